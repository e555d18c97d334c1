#include <fcntl.h>
#include <linux/magic.h>
#include <linux/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>

#include "base/log.h"
#include "base/text.h"
#include "shim/hooks.h"
#include "shim/rootfs.h"

namespace gpuop::shim {

namespace {

constexpr const char* kParams = "/proc/driver/nvidia/params";

// The new mount calls; glibc 2.36 has wrappers, kernels before 5.2 do not have them and answer ENOSYS.
int fs_open(const char* type) {
  return static_cast<int>(syscall(SYS_fsopen, type, FSOPEN_CLOEXEC));
}
int fs_config_create(int fs) {
  return static_cast<int>(syscall(SYS_fsconfig, fs, FSCONFIG_CMD_CREATE, nullptr, nullptr, 0));
}
int fs_mount(int fs) {
  return static_cast<int>(syscall(SYS_fsmount, fs, FSMOUNT_CLOEXEC, 0));
}
int clone_tree(int dir, const char* path) {
  return static_cast<int>(syscall(SYS_open_tree, dir, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC));
}

// A read-only mount of one file with that content, not attached anywhere yet.
Result<Fd> file_mount(std::string_view content) {
  constexpr const char* kDoing = "make a file to mount";
  Fd fs(fs_open("tmpfs"));
  if (!fs || fs_config_create(fs.get()) != 0) return fail(errno_error(kDoing, errno));
  Fd mount(fs_mount(fs.get()));
  if (!mount) return fail(errno_error(kDoing, errno));
  Fd file(openat(mount.get(), "file", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444));
  if (!file || write(file.get(), content.data(), content.size()) != static_cast<ssize_t>(content.size())) {
    return fail(errno_error(kDoing, errno));
  }
  file.reset();
  Fd tree(clone_tree(mount.get(), "file"));
  if (!tree) return fail(errno_error(kDoing, errno));
  mount_attr attributes{};
  attributes.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC;
  if (syscall(SYS_mount_setattr, tree.get(), "", AT_EMPTY_PATH, &attributes, sizeof(attributes)) != 0) {
    return fail(errno_error(kDoing, errno));
  }
  return tree;
}

// What is covered must be on procfs, not a file that the image put there (§6.4 S13); or the very file that
// the parameters were read from, which no image can hold.
bool is_kernels_own(int target) {
  struct statfs system{};
  if (fstatfs(target, &system) == 0 && system.f_type == PROC_SUPER_MAGIC) return true;
  struct stat theirs{}, kernels{};
  return fstat(target, &theirs) == 0 && stat(kernel_path(kParams).c_str(), &kernels) == 0 &&
         theirs.st_dev == kernels.st_dev && theirs.st_ino == kernels.st_ino;
}

std::optional<unsigned> gpu_minor(const std::string& name) {
  if (!name.starts_with("nvidia")) return std::nullopt;
  auto number = parse_int(std::string_view(name).substr(6));
  if (!number || *number < 0 || *number > 63) return std::nullopt;
  return static_cast<unsigned>(*number);
}

}  // namespace

std::optional<std::string> modified_params(std::string_view params) {
  bool found = false;
  std::string text;
  auto lines = split(params, '\n');
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (lines[i] == "ModifyDeviceFiles: 1") {
      lines[i] = "ModifyDeviceFiles: 0";
      found = true;
    }
    text += lines[i] + (i + 1 < lines.size() ? "\n" : "");
  }
  if (!found) return std::nullopt;
  return text;
}

Result<> disable_device_node_modification(const Root& root) {
  auto params = read_file(kernel_path(kParams), 1u << 20);
  if (!params) return {};
  auto text = modified_params(*params);
  if (!text) return {};
  auto target = root.open_at(kParams, O_PATH);
  if (!target) {
    log::debug("the container has no driver parameters to hide", {{"why", target.error()}});
    return {};
  }
  if (!is_kernels_own(target->get())) {
    return fail(Code::kInvalid, std::string("hide '") + kParams + "': the container's file is not on procfs");
  }
  Fd tree = TRY(file_mount(*text));
  if (syscall(SYS_move_mount, tree.get(), "", target->get(), "",
              MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) != 0) {
    return fail(errno_error(std::string("mount over '") + kParams + "'", errno));
  }
  return {};
}

std::string application_profile(std::uint64_t minors) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string mask;
  for (; minors != 0; minors >>= 4) mask.insert(mask.begin(), kHex[minors & 15]);
  return R"({"profiles":[{"name":"_container_","settings":["EGLVisibleDGPUDevices",0x)" + mask +
         R"(]}],"rules":[{"pattern":[],"profile":"_container_"}]})";
}

Result<> update_application_profile(const Root& root) {
  std::uint64_t minors = 0;
  auto names = root.list("/dev");
  if (!names) return {};
  for (const auto& name : *names) {
    auto minor = gpu_minor(name);
    if (!minor) continue;
    auto fd = root.open_at("/dev/" + name, O_PATH | O_NOFOLLOW);
    struct stat info{};
    if (fd && fstat(fd->get(), &info) == 0 && S_ISCHR(info.st_mode)) minors |= std::uint64_t{1} << *minor;
  }
  if (minors == 0) return {};
  auto written = replace_file(root, "/etc/nvidia/nvidia-application-profiles-rc.d/10-container.conf",
                              application_profile(minors), 0444);
  if (!written && !is_read_only(written.error())) return fail(std::move(written).error());
  if (!written) log::warn("left out the application profile", {{"why", written.error()}});
  return {};
}

Result<> change_modes(const Root& root, mode_t mode, const std::vector<std::string>& paths) {
  for (const auto& path : paths) {
    auto fd = root.open_at(path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
    struct stat info{};
    if (!fd || fstat(fd->get(), &info) != 0 || (info.st_mode & 07777) == mode) continue;
    if (fchmod(fd->get(), mode) != 0 && errno != EPERM && errno != EACCES && errno != EROFS) {
      return fail(errno_error("change the mode of '" + path + "'", errno));
    }
  }
  return {};
}

}  // namespace gpuop::shim
