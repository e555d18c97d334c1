#include "base/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <random>

#include "base/root_walk.h"

namespace gpuop {
namespace {

std::string quoted(const fs::path& path) {
  return "'" + path.string() + "'";
}

Result<> write_all(int fd, std::string_view content, const std::string& doing) {
  while (!content.empty()) {
    const ssize_t n = ::write(fd, content.data(), content.size());
    if (n < 0) {
      if (errno == EINTR) continue;
      return fail(errno_error(doing, errno));
    }
    content.remove_prefix(static_cast<std::size_t>(n));
  }
  return {};
}

std::string unique_suffix() {
  static thread_local std::mt19937_64 engine{std::random_device{}()};
  return std::to_string(engine());
}

}  // namespace

Fd& Fd::operator=(Fd&& other) noexcept {
  if (this != &other) reset(other.release());
  return *this;
}

int Fd::release() {
  const int fd = fd_;
  fd_ = -1;
  return fd;
}

void Fd::reset(int fd) {
  if (fd_ >= 0) ::close(fd_);
  fd_ = fd;
}

Result<std::string> read_fd(int fd, std::size_t limit) {
  std::string content;
  std::size_t room = 4096;
  struct stat info{};
  if (::fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_size > 0) {
    room = static_cast<std::size_t>(info.st_size) + 1;
  }
  while (true) {
    const std::size_t have = content.size();
    if (have > limit) return fail(Code::kInvalid, "larger than " + std::to_string(limit) + " bytes");
    content.resize(have + std::min(room, limit + 1 - have));
    const ssize_t n = ::read(fd, content.data() + have, content.size() - have);
    if (n < 0 && errno == EINTR) {
      content.resize(have);
      continue;
    }
    content.resize(have + static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
    if (n < 0) return fail(errno_error("read", errno));
    if (n == 0) return content;
    room = std::max<std::size_t>(content.size(), 4096);
  }
}

Result<std::string> read_file(const fs::path& path, std::size_t limit) {
  Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return fail(errno_error("open " + quoted(path), errno));
  return TRY_IN(read_fd(fd.get(), limit), "read " + quoted(path));
}

Result<bool> write_file_atomic(const fs::path& path, std::string_view content, mode_t mode) {
  struct stat info{};
  if (::lstat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) && (info.st_mode & 07777) == mode &&
      static_cast<std::size_t>(info.st_size) == content.size()) {
    if (auto now = read_file(path, content.size()); now && *now == content) return false;
  }
  const fs::path dir = path.has_parent_path() ? path.parent_path() : fs::path(".");
  const fs::path temp = dir / ("." + path.filename().string() + "." + unique_suffix() + ".tmp");
  const std::string doing = "write " + quoted(path);
  Fd fd(::open(temp.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode));
  if (!fd) return fail(errno_error(doing, errno));
  auto written = write_all(fd.get(), content, doing);
  if (written && ::fchmod(fd.get(), mode) != 0) written = fail(errno_error(doing, errno));
  if (written && ::fsync(fd.get()) != 0) written = fail(errno_error(doing, errno));
  if (written && ::rename(temp.c_str(), path.c_str()) != 0) written = fail(errno_error(doing, errno));
  if (!written) {
    ::unlink(temp.c_str());
    return fail(std::move(written).error());
  }
  if (Fd folder(::open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)); folder) ::fsync(folder.get());
  return true;
}

Result<> write_in_place(const fs::path& path, std::string_view content) {
  Fd fd(::open(path.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC));
  if (!fd) return fail(errno_error("write " + quoted(path), errno));
  return write_all(fd.get(), content, "write " + quoted(path));
}

Result<> make_dirs(const fs::path& path, mode_t mode) {
  if (::mkdir(path.c_str(), mode) == 0) return {};
  if (errno == ENOENT && path.has_parent_path() && path.parent_path() != path) {
    TRY(make_dirs(path.parent_path(), mode));
    if (::mkdir(path.c_str(), mode) == 0) return {};
  }
  if (errno == EEXIST) {
    struct stat info{};
    if (::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) return {};
    return fail(errno_error("make folder " + quoted(path), ENOTDIR));
  }
  return fail(errno_error("make folder " + quoted(path), errno));
}

Result<bool> remove_file(const fs::path& path) {
  if (::unlink(path.c_str()) == 0) return true;
  if (errno == ENOENT || errno == ENOTDIR) return false;
  return fail(errno_error("remove " + quoted(path), errno));
}

Result<bool> make_symlink_atomic(const fs::path& target, const fs::path& link) {
  std::error_code error;
  if (fs::is_symlink(link, error) && fs::read_symlink(link, error) == target) return false;
  const fs::path temp =
      link.parent_path() / ("." + link.filename().string() + "." + unique_suffix() + ".tmp");
  if (::symlink(target.c_str(), temp.c_str()) != 0)
    return fail(errno_error("make link " + quoted(link), errno));
  if (::rename(temp.c_str(), link.c_str()) != 0) {
    const int err = errno;
    ::unlink(temp.c_str());
    return fail(errno_error("make link " + quoted(link), err));
  }
  return true;
}

namespace {
Result<std::vector<std::string>> names_of(DIR* dir) {
  std::vector<std::string> names;
  while (const dirent* entry = ::readdir(dir)) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}
}  // namespace

Result<std::vector<std::string>> list_dir(const fs::path& path) {
  DIR* dir = ::opendir(path.c_str());
  if (!dir) return fail(errno_error("list " + quoted(path), errno));
  auto names = names_of(dir);
  ::closedir(dir);
  return names;
}

bool file_exists(const fs::path& path) {
  return ::access(path.c_str(), F_OK) == 0;
}

Result<FileLock> FileLock::acquire(const fs::path& path) {
  Fd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!fd) return fail(errno_error("lock " + quoted(path), errno));
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) return fail(Code::kBusy, "lock " + quoted(path) + ": held by another process");
    return fail(errno_error("lock " + quoted(path), errno));
  }
  return FileLock(std::move(fd));
}

Result<Root> Root::open(const fs::path& path) {
  Fd fd(::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!fd) return fail(errno_error("open root " + quoted(path), errno));
  return Root(path, std::move(fd));
}

Result<Fd> Root::open_at(const fs::path& inner, int flags, mode_t mode) const {
  open_how how{};
  how.flags = static_cast<std::uint64_t>(flags | O_CLOEXEC);
  how.mode = (flags & (O_CREAT | O_TMPFILE)) ? mode : 0;
  how.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS;
  const std::string relative = inner.empty() ? std::string(".") : inner.string();
  while (true) {
    const long fd = ::syscall(SYS_openat2, fd_.get(), relative.c_str(), &how, sizeof how);
    if (fd >= 0) return Fd(static_cast<int>(fd));
    // The kernel answers EAGAIN when it could not be sure under a concurrent rename.
    if (errno == EINTR || errno == EAGAIN) continue;
    if (errno == ENOSYS) {  // before Linux 5.6
      const int walked = open_by_walking(fd_.get(), relative, flags, mode);
      if (walked >= 0) return Fd(walked);
      errno = -walked;
      if (errno == EAGAIN) continue;
    }
    return fail(errno_error("open '" + relative + "' beneath " + quoted(path_), errno));
  }
}

Result<std::string> Root::read(const fs::path& inner) const {
  Fd fd = TRY(open_at(inner, O_RDONLY));
  return TRY_IN(read_fd(fd.get()), "read '" + inner.string() + "' beneath " + quoted(path_));
}

bool Root::exists(const fs::path& inner) const {
  return open_at(inner, O_PATH).has_value();
}

Result<fs::path> Root::resolve(const fs::path& inner) const {
  Fd fd = TRY(open_at(inner, O_PATH));
  std::error_code error;
  const fs::path real = fs::read_symlink("/proc/self/fd/" + std::to_string(fd.get()), error);
  const fs::path root =
      error ? fs::path() : fs::read_symlink("/proc/self/fd/" + std::to_string(fd_.get()), error);
  if (error)
    return fail(Code::kIo,
                "resolve '" + inner.string() + "' beneath " + quoted(path_) + ": " + error.message());
  const std::string base = root == "/" ? std::string() : root.string();
  const std::string text = real.string();
  if (!text.starts_with(base)) {
    return fail(Code::kInvalid,
                "resolve '" + inner.string() + "' beneath " + quoted(path_) + ": leads outside");
  }
  const std::string inside = text.substr(base.size());
  return fs::path(inside.empty() ? "/" : inside);
}

Result<std::vector<std::string>> Root::list(const fs::path& inner) const {
  Fd fd = TRY(open_at(inner, O_RDONLY | O_DIRECTORY));
  DIR* dir = ::fdopendir(fd.get());
  if (!dir) return fail(errno_error("list '" + inner.string() + "' beneath " + quoted(path_), errno));
  fd.release();
  auto names = names_of(dir);
  ::closedir(dir);
  return names;
}

Result<> Root::make_dirs(const fs::path& inner, mode_t mode) const {
  fs::path at;
  for (const auto& part : inner.relative_path()) {
    if (part.empty() || part == ".") continue;
    if (part == "..")
      return fail(Code::kInvalid, "make folder '" + inner.string() + "': '..' is not allowed");
    Fd parent = TRY(open_at(at, O_PATH | O_DIRECTORY));
    if (::mkdirat(parent.get(), part.c_str(), mode) != 0 && errno != EEXIST) {
      return fail(errno_error("make folder '" + (at / part).string() + "' beneath " + quoted(path_), errno));
    }
    at /= part;
  }
  TRY(open_at(at, O_PATH | O_DIRECTORY));
  return {};
}

fs::path kernel_path(const fs::path& absolute) {
  const char* root = std::getenv("GPUOP_KERNEL_ROOT");
  if (!root || !*root || std::string_view(root) == "/") return absolute;
  return fs::path(root) / absolute.relative_path();
}

Result<std::string> kernel_release() {
  std::string text = TRY(read_file(kernel_path("/proc/sys/kernel/osrelease")));
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  return text;
}

TempDir::TempDir(std::string_view prefix) {
  const char* base = std::getenv("TMPDIR");
  std::string pattern = std::string(base && *base ? base : "/tmp") + "/" + std::string(prefix) + ".XXXXXX";
  if (!::mkdtemp(pattern.data())) {
    std::perror(("make a temporary folder " + pattern).c_str());
    std::abort();
  }
  path_ = pattern;
}

TempDir::~TempDir() {
  std::error_code error;
  fs::remove_all(path_, error);
}

}  // namespace gpuop
