#include "cluster/fleet/install_tree.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <set>

#include "base/process.h"
#include "base/text.h"
#include "elf/elf.h"
#include "elf/ld_cache.h"

namespace gpuop::cluster {
namespace {

#if defined(__aarch64__)
constexpr const char* kTriplet = "aarch64-linux-gnu";
#else
constexpr const char* kTriplet = "x86_64-linux-gnu";
#endif

// Applets that load modules, stop a machine or stand in for programs which a node brings itself.
const std::set<std::string, std::less<>>& unwanted_applets() {
  static const std::set<std::string, std::less<>> names{
      "depmod",  "halt",  "init",    "insmod",   "ldconfig",
      "linuxrc", "lsmod", "modinfo", "modprobe", "poweroff",
      "reboot",  "rmmod", "swapoff", "swapon",   "hwclock",
      "rtcwake", "rdate", "ntpd",    "watchdog", "devmem",
      "fbset",   "fdisk", "mdev",    "runlevel", "start-stop-daemon",
      "date"};
  return names;
}

struct timespec modified(const struct stat& info) {
  return info.st_mtim;
}

bool same_file(const struct stat& a, const struct stat& b) {
  return S_ISREG(b.st_mode) && a.st_size == b.st_size && modified(a).tv_sec == modified(b).tv_sec &&
         modified(a).tv_nsec == modified(b).tv_nsec && (a.st_mode & 0777) == (b.st_mode & 0777);
}

// Copies content, mode and time; what is there with the same size, mode and time is left alone.
Result<> copy_if_changed(const fs::path& from, const fs::path& to) {
  std::string doing = "copy '" + from.string() + "' to '" + to.string() + "'";
  Fd in(::open(from.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat source{}, there{};
  if (!in || ::fstat(in.get(), &source) != 0) return fail(errno_error(doing, errno));
  if (::lstat(to.c_str(), &there) == 0 && same_file(source, there)) return {};
  TRY(make_dirs(to.parent_path()));
  fs::path temp = to;
  temp += ".new";
  Fd out(::open(temp.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, source.st_mode & 0777));
  if (!out) return fail(errno_error(doing, errno));
  for (off_t left = source.st_size; left > 0;) {
    ssize_t n = ::copy_file_range(in.get(), nullptr, out.get(), nullptr, static_cast<std::size_t>(left), 0);
    if (n < 0 && (errno == EXDEV || errno == EINVAL || errno == ENOSYS)) {
      std::string text = TRY_IN(read_file(from, 4u << 30), doing);
      if (::pwrite(out.get(), text.data(), text.size(), 0) != static_cast<ssize_t>(text.size())) {
        return fail(errno_error(doing, errno));
      }
      break;
    }
    if (n <= 0) return fail(errno_error(doing, n < 0 ? errno : EIO));
    left -= n;
  }
  struct timespec times[2] = {source.st_atim, source.st_mtim};
  if (::fchmod(out.get(), source.st_mode & 0777) != 0 || ::futimens(out.get(), times) != 0 ||
      ::rename(temp.c_str(), to.c_str()) != 0) {
    return fail(errno_error(doing, errno));
  }
  return {};
}

Result<> copy_tree(const fs::path& from, const fs::path& to) {
  std::error_code error;
  for (fs::recursive_directory_iterator at(from, error), end; !error && at != end; at.increment(error)) {
    fs::path inner = at->path().lexically_relative(from);
    if (at->is_symlink()) {
      TRY(make_dirs((to / inner).parent_path()));
      TRY(make_symlink_atomic(fs::read_symlink(at->path()), to / inner));
    } else if (at->is_directory()) {
      TRY(make_dirs(to / inner));
    } else if (at->is_regular_file()) {
      TRY(copy_if_changed(at->path(), to / inner));
    }
  }
  if (error) return fail(errno_error("list '" + from.string() + "'", error.value()));
  return {};
}

class Stage {
 public:
  explicit Stage(const InstallTreeOptions& options)
      : options_(options), tree_(InstallTree::at(options.out)) {}
  Result<InstallTree> run();

 private:
  Result<> skeleton();
  Result<> programs();
  Result<> roles();
  Result<> busybox();
  Result<> node_layer();
  Result<> driver_layer();
  // `from` as `inner` of the image, and the libraries that it needs.
  Result<> add_program(const fs::path& root, const fs::path& from, const fs::path& inner);
  Result<> add_libraries(const fs::path& file);
  Result<fs::path> find_library(const std::string& name) const;

  const InstallTreeOptions& options_;
  InstallTree tree_;
  std::map<std::string, std::string> cache_;
  std::set<std::string> libraries_;
};

Result<> Stage::skeleton() {
  const fs::path& root = tree_.image;
  for (const char* dir :
       {"usr/bin", "usr/lib", "usr/lib64", "usr/local/bin", "usr/local/sbin", "usr/share", "etc/ld.so.conf.d",
        "proc", "sys", "dev", "run", "tmp", "var/tmp", "var/log", "var/lib", "root", "home", "mnt", "opt"}) {
    TRY(make_dirs(root / dir));
  }
  for (const char* open_dir : {"tmp", "var/tmp"}) ::chmod((root / open_dir).c_str(), 01777);
  const std::pair<const char*, const char*> links[] = {{"usr/bin", "bin"},     {"usr/bin", "sbin"},
                                                       {"bin", "usr/sbin"},    {"usr/lib", "lib"},
                                                       {"usr/lib64", "lib64"}, {"../run", "var/run"}};
  for (const auto& [target, link] : links) TRY(make_symlink_atomic(target, root / link));
  const std::pair<const char*, const char*> files[] = {
      {"etc/passwd", "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\n"},
      {"etc/group", "root:x:0:\nvideo:x:44:\nnogroup:x:65534:\n"},
      {"etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n"},
      {"etc/ld.so.conf", "include /etc/ld.so.conf.d/*.conf\n"},
      {"etc/hosts", "127.0.0.1 localhost\n::1 localhost\n"},
      {"etc/resolv.conf", ""},
      // Libraries lie where Debian has them: whoever asks which kind of root this is must find that.
      {"etc/debian_version", "12.0\n"},
      {"etc/os-release",
       "PRETTY_NAME=\"gpu-operator\"\nNAME=\"gpu-operator\"\nID=debian\nVERSION_ID=\"12\"\n"}};
  for (const auto& [path, text] : files) TRY(write_file_atomic(root / path, text));
  return {};
}

Result<fs::path> Stage::find_library(const std::string& name) const {
  if (auto found = cache_.find(name); found != cache_.end() && file_exists(found->second))
    return fs::path(found->second);
  for (const std::string& dir :
       {std::string("/usr/local/lib"), std::string("/lib/") + kTriplet, std::string("/usr/lib/") + kTriplet,
        std::string("/lib"), std::string("/usr/lib"), std::string("/lib64"), std::string("/usr/lib64")}) {
    if (file_exists(fs::path(dir) / name)) return fs::path(dir) / name;
  }
  return fail(Code::kNotFound, "find library '" + name + "': it is in no folder of the dynamic loader");
}

Result<> Stage::add_libraries(const fs::path& file) {
  Fd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return fail(errno_error("open '" + file.string() + "'", errno));
  auto elf = elf::read_elf(fd.get());
  if (!elf) return {};  // a script, or a program of another machine
  if (auto loader = elf::read_section(fd.get(), ".interp", 4096)) {
    fs::path path(loader->c_str());  // ends at its zero byte
    if (libraries_.insert(path.filename()).second) {
      fs::path inner = path.lexically_relative("/");
      // /lib64 and /lib are links into /usr.
      TRY(copy_if_changed(path, tree_.image / "usr" / inner));
    }
  }
  for (const std::string& name : elf->needed) {
    if (!libraries_.insert(name).second) continue;
    fs::path found = TRY_IN(find_library(name), "stage '" + file.string() + "'");
    std::error_code error;
    fs::path real = fs::canonical(found, error);
    TRY(copy_if_changed(real, tree_.image / "usr/lib" / kTriplet / name));
    TRY(add_libraries(real));
  }
  return {};
}

Result<> Stage::add_program(const fs::path& root, const fs::path& from, const fs::path& inner) {
  TRY(copy_if_changed(from, root / inner));
  return add_libraries(from);
}

Result<> Stage::programs() {
  for (const std::string& name : TRY_IN(list_dir(options_.programs), "stage programs")) {
    fs::path path = options_.programs / name;
    struct stat info{};
    if (::stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode) || !(info.st_mode & 0111)) continue;
    if (name.starts_with("gpuop-")) continue;  // what builds and runs the demo, not what is in the image
    TRY(add_program(tree_.image, path, fs::path("usr/bin") / name));
  }
  fs::path ldconfig = file_exists("/sbin/ldconfig.real") ? "/sbin/ldconfig.real" : "/sbin/ldconfig";
  if (file_exists(ldconfig)) TRY(add_program(tree_.image, ldconfig, "usr/bin/ldconfig"));
  if (!options_.assets.empty()) TRY(copy_tree(options_.assets, tree_.image / "opt/gpu-operator/assets"));
  if (!options_.crds.empty()) TRY(copy_tree(options_.crds, tree_.image / "opt/gpu-operator/crds"));
  // The metrics exporter's collectors have a place of their own, where users know them.
  if (!options_.assets.empty() && file_exists(options_.assets / "metrics"))
    TRY(copy_tree(options_.assets / "metrics", tree_.image / "etc/dcgm-exporter"));
  return {};
}

Result<std::vector<std::string>> lines_of(const fs::path& program, const char* argument) {
  ExitState state = TRY(run_command(Command{.argv = {program.string(), argument}}, 20s));
  if (!state.ok()) {
    return fail(Code::kUnknown,
                "run '" + program.string() + " " + argument + "': exit status " + std::to_string(state.code));
  }
  std::vector<std::string> lines = split(state.out, '\n');
  std::erase_if(lines, [](const std::string& line) { return line.empty(); });
  return lines;
}

// A link beside the programs, unless something of that name is there that is no link.
Result<> put_link(const fs::path& bin, const std::string& name, const std::string& target) {
  struct stat info{};
  if (name.find('/') != std::string::npos || name == target) return {};
  if (::lstat((bin / name).c_str(), &info) == 0 && !S_ISLNK(info.st_mode)) return {};
  TRY(make_symlink_atomic(target, bin / name));
  return {};
}

Result<> Stage::roles() {
  fs::path program = options_.programs / "gpu-node";
  if (!file_exists(program)) return {};
  for (const std::string& name : TRY(lines_of(program, "--names")))
    TRY(put_link(tree_.image / "usr/bin", name, "gpu-node"));
  return {};
}

Result<> Stage::busybox() {
  fs::path program = "/bin/busybox";
  if (!file_exists(program)) {
    return fail(Code::kNotFound, "stage busybox: '/bin/busybox': not there (Debian package busybox-static)");
  }
  TRY(add_program(tree_.image, program, "usr/bin/busybox"));
  for (const std::string& name : TRY(lines_of(program, "--list"))) {
    if (!unwanted_applets().contains(name)) TRY(put_link(tree_.image / "usr/bin", name, "busybox"));
  }
  return {};
}

Result<> Stage::node_layer() {
  TRY(make_dirs(tree_.node_layer / "usr/bin"));
  fs::path launcher = options_.programs / "gpuop-runc";
  if (file_exists(launcher)) {
    TRY(add_program(tree_.node_layer, launcher, "usr/bin/gpuop-runc"));
    for (const char* name : {"runc", "crun"})
      TRY(make_symlink_atomic("gpuop-runc", tree_.node_layer / "usr/bin" / name));
    // What the node's init system is to those who restart the container engine.
    TRY(write_file_atomic(tree_.node_layer / "usr/bin/systemctl",
                          "#!/bin/sh\nexec /usr/bin/gpuctl sim-node-systemctl \"$@\"\n", 0755));
  }
  if (file_exists(options_.sim)) TRY(copy_tree(options_.sim, tree_.node_layer / "usr/lib/gpuop-sim"));
  return {};
}

Result<> Stage::driver_layer() {
  TRY(make_dirs(tree_.driver_layer / "usr/bin"));
  if (!file_exists(options_.sim)) return {};
  TRY(copy_tree(options_.sim, tree_.driver_layer / "usr/lib/gpuop-sim"));
  for (const std::string& name : TRY(list_dir(options_.sim / "bin"))) {
    if (name == "nvidia-driver")
      TRY(make_symlink_atomic("../lib/gpuop-sim/bin/nvidia-driver", tree_.driver_layer / "usr/bin" / name));
    TRY(add_libraries(options_.sim / "bin" / name));
  }
  return {};
}

Result<InstallTree> Stage::run() {
  if (auto text = read_file("/etc/ld.so.cache")) {
    if (auto entries = elf::parse_ld_cache(*text)) {
      for (const elf::LdCacheEntry& entry : *entries) {
        if (entry.bits() == 64 && entry.hwcap == 0) cache_.emplace(entry.name, entry.path);
      }
    }
  }
  TRY(skeleton());
  TRY(programs());
  TRY(roles());
  TRY(busybox());
  TRY(node_layer());
  TRY(driver_layer());
  return tree_;
}

}  // namespace

Result<InstallTree> stage_install_tree(const InstallTreeOptions& options) {
  return Stage(options).run();
}

}  // namespace gpuop::cluster
