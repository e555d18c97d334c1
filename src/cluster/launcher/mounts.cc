#include "cluster/launcher/mounts.h"

#include <fcntl.h>
#include <linux/mount.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <map>

namespace gpuop::cluster {
namespace {

// glibc 2.36 has wrappers for these, older ones not; the numbers are the same on every architecture.
int sys_open_tree(int dir, const char* path, unsigned flags) {
  return static_cast<int>(::syscall(SYS_open_tree, dir, path, flags));
}
int sys_move_mount(int from_dir, const char* from, int to_dir, const char* to, unsigned flags) {
  return static_cast<int>(::syscall(SYS_move_mount, from_dir, from, to_dir, to, flags));
}
int sys_fsopen(const char* type, unsigned flags) {
  return static_cast<int>(::syscall(SYS_fsopen, type, flags));
}
int sys_fsconfig(int fd, unsigned command, const char* key, const void* value, int aux) {
  return static_cast<int>(::syscall(SYS_fsconfig, fd, command, key, value, aux));
}
int sys_fsmount(int fd, unsigned flags, unsigned attributes) {
  return static_cast<int>(::syscall(SYS_fsmount, fd, flags, attributes));
}

struct Flag {
  std::uint64_t set = 0, clear = 0;
};

const std::map<std::string, Flag, std::less<>>& attribute_flags() {
  static const std::map<std::string, Flag, std::less<>> flags{
      {"ro", {MOUNT_ATTR_RDONLY, 0}},
      {"rw", {0, MOUNT_ATTR_RDONLY}},
      {"nosuid", {MOUNT_ATTR_NOSUID, 0}},
      {"suid", {0, MOUNT_ATTR_NOSUID}},
      {"nodev", {MOUNT_ATTR_NODEV, 0}},
      {"dev", {0, MOUNT_ATTR_NODEV}},
      {"noexec", {MOUNT_ATTR_NOEXEC, 0}},
      {"exec", {0, MOUNT_ATTR_NOEXEC}},
      {"noatime", {MOUNT_ATTR_NOATIME, MOUNT_ATTR__ATIME}},
      {"strictatime", {MOUNT_ATTR_STRICTATIME, MOUNT_ATTR__ATIME}},
      {"relatime", {MOUNT_ATTR_RELATIME, MOUNT_ATTR__ATIME}},
      {"nodiratime", {MOUNT_ATTR_NODIRATIME, 0}},
      {"diratime", {0, MOUNT_ATTR_NODIRATIME}},
  };
  return flags;
}

const std::map<std::string, std::uint64_t, std::less<>>& propagation_flags() {
  static const std::map<std::string, std::uint64_t, std::less<>> flags{
      {"private", MS_PRIVATE}, {"slave", MS_SLAVE}, {"shared", MS_SHARED}, {"unbindable", MS_UNBINDABLE}};
  return flags;
}

}  // namespace

MountOptions parse_mount_options(const std::vector<std::string>& options) {
  MountOptions out;
  for (const std::string& option : options) {
    if (option == "bind" || option == "rbind") {
      out.bind = true;
      out.recursive = option == "rbind";
      continue;
    }
    if (option == "defaults" || option == "async" || option == "sync" || option.empty()) continue;
    if (option == "rro") {
      out.recursive_set |= MOUNT_ATTR_RDONLY;
      continue;
    }
    if (auto flag = attribute_flags().find(option); flag != attribute_flags().end()) {
      out.set = (out.set & ~flag->second.clear) | flag->second.set;
      out.clear = (out.clear & ~flag->second.set) | flag->second.clear;
      continue;
    }
    bool recursive = option.size() > 1 && option[0] == 'r';
    if (auto flag = propagation_flags().find(option); flag != propagation_flags().end()) {
      out.propagation = flag->second;
      out.propagation_recursive = false;
      continue;
    }
    if (recursive) {
      if (auto flag = propagation_flags().find(std::string_view(option).substr(1));
          flag != propagation_flags().end()) {
        out.propagation = flag->second;
        out.propagation_recursive = true;
        continue;
      }
    }
    std::size_t equals = option.find('=');
    if (equals == std::string::npos) {
      out.data.emplace_back(option, "");
    } else {
      out.data.emplace_back(option.substr(0, equals), option.substr(equals + 1));
    }
  }
  return out;
}

Result<Fd> clone_mount(const std::string& path, bool recursive) {
  Fd fd(sys_open_tree(AT_FDCWD, path.c_str(),
                      OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | (recursive ? unsigned{AT_RECURSIVE} : 0u)));
  if (!fd) return fail(errno_error("clone mount '" + path + "'", errno));
  return fd;
}

Result<Fd> new_mount(const std::string& type, const std::string& source, const MountOptions& options) {
  std::string doing = "make file system '" + type + "'";
  Fd context(sys_fsopen(type.c_str(), FSOPEN_CLOEXEC));
  if (!context) return fail(errno_error(doing, errno));
  if (!source.empty()) sys_fsconfig(context.get(), FSCONFIG_SET_STRING, "source", source.c_str(), 0);
  for (const auto& [key, value] : options.data) {
    int rc = value.empty() ? sys_fsconfig(context.get(), FSCONFIG_SET_FLAG, key.c_str(), nullptr, 0)
                           : sys_fsconfig(context.get(), FSCONFIG_SET_STRING, key.c_str(), value.c_str(), 0);
    if (rc != 0) return fail(errno_error(doing + ": option '" + key + "'", errno));
  }
  if (sys_fsconfig(context.get(), FSCONFIG_CMD_CREATE, nullptr, nullptr, 0) != 0) {
    return fail(errno_error(doing, errno));
  }
  Fd mount(sys_fsmount(context.get(), FSMOUNT_CLOEXEC, static_cast<unsigned>(options.set)));
  if (!mount) return fail(errno_error(doing, errno));
  return mount;
}

Result<> set_mount_attributes(int mount, std::uint64_t set, std::uint64_t clear, std::uint64_t propagation,
                              bool recursive) {
  if ((set | clear | propagation) == 0) return {};
  struct mount_attr attributes{};
  attributes.attr_set = set;
  attributes.attr_clr = clear;
  attributes.propagation = propagation;
  if (::syscall(SYS_mount_setattr, mount, "", AT_EMPTY_PATH | (recursive ? unsigned{AT_RECURSIVE} : 0u),
                &attributes, sizeof attributes) != 0) {
    return fail(errno_error("set mount attributes", errno));
  }
  return {};
}

Result<> attach_mount(int mount, int destination) {
  if (sys_move_mount(mount, "", destination, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) != 0) {
    return fail(errno_error("attach mount", errno));
  }
  return {};
}

Result<Fd> open_mount_point(const Root& root, const std::string& inner, bool folder) {
  int flags = O_PATH | O_CLOEXEC | (folder ? O_DIRECTORY : 0);
  if (auto there = root.open_at(inner, flags)) return there;
  if (folder) {
    TRY(root.make_dirs(inner));
    return root.open_at(inner, flags);
  }
  fs::path parent = fs::path(inner).parent_path();
  TRY(root.make_dirs(parent));
  Fd made = TRY(root.open_at(inner, O_CREAT | O_CLOEXEC | O_RDONLY | O_NONBLOCK, 0644));
  made.reset();
  return root.open_at(inner, flags);
}

Result<> make_holder_private(const std::string& path) {
  std::string holder = path;
  for (;;) {
    if (::mount(nullptr, holder.c_str(), nullptr, MS_PRIVATE, nullptr) == 0) return {};
    if (errno != EINVAL || holder == "/")
      return fail(errno_error("make mount of '" + path + "' private", errno));
    holder = fs::path(holder).parent_path();
  }
}

Result<> apply_mount(const Root& root, const OciMount& mount) {
  MountOptions options = parse_mount_options(mount.options);
  std::string doing = "mount '" + mount.source + "' on '" + mount.destination + "'";
  bool bind = options.bind || mount.type == "bind";
  Fd tree;
  bool folder = true;
  if (bind) {
    tree = TRY_IN(clone_mount(mount.source, options.recursive), doing);
    struct stat info{};
    if (::fstat(tree.get(), &info) != 0) return fail(errno_error(doing, errno));
    folder = S_ISDIR(info.st_mode);
    TRY_IN(set_mount_attributes(tree.get(), options.set, options.clear, 0, false), doing);
  } else {
    tree = TRY_IN(new_mount(mount.type, mount.source, options), doing);
  }
  if (options.recursive_set) {
    TRY_IN(set_mount_attributes(tree.get(), options.recursive_set, 0, 0, true), doing);
  }
  if (options.propagation) {
    TRY_IN(set_mount_attributes(tree.get(), 0, 0, options.propagation, options.propagation_recursive), doing);
  }
  Fd point = TRY_IN(open_mount_point(root, mount.destination, folder), doing);
  TRY_IN(attach_mount(tree.get(), point.get()), doing);
  return {};
}

}  // namespace gpuop::cluster
