// Files: whole reads, atomic writes, and opening beneath a root that may be hostile.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace gpuop {

namespace fs = std::filesystem;

// A file descriptor that closes itself.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(other.release()) {}
  Fd& operator=(Fd&& other) noexcept;
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  ~Fd() { reset(); }
  int get() const { return fd_; }
  int release();
  void reset(int fd = -1);
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// The whole file; at most `limit` bytes (kInvalid beyond). Works for /proc and /sys files.
Result<std::string> read_file(const fs::path& path, std::size_t limit = 64u << 20);
Result<std::string> read_fd(int fd, std::size_t limit = 64u << 20);

// Writes temp + fsync + rename in the same folder, only when the content or mode differs.
// Answers whether something was written. Makes no folders.
Result<bool> write_file_atomic(const fs::path& path, std::string_view content, mode_t mode = 0644);
// Writes to an existing file in place (for /proc and /sys). O_TRUNC only.
Result<> write_in_place(const fs::path& path, std::string_view content);
// mkdir -p.
Result<> make_dirs(const fs::path& path, mode_t mode = 0755);
// Removes the file; absent is fine. Answers whether it was there.
Result<bool> remove_file(const fs::path& path);
// Replaces `link` by a symlink to `target`, atomically; nothing is done when it is already so.
Result<bool> make_symlink_atomic(const fs::path& target, const fs::path& link);
// Sorted names in a folder, without . and ..; kNotFound when there is none.
Result<std::vector<std::string>> list_dir(const fs::path& path);
bool file_exists(const fs::path& path);

// An exclusive flock on `path` (made if absent), held until the object goes. kBusy when another holds it.
class FileLock {
 public:
  static Result<FileLock> acquire(const fs::path& path);
  int fd() const { return fd_.get(); }

 private:
  explicit FileLock(Fd fd) : fd_(std::move(fd)) {}
  Fd fd_;
};

// A folder that paths are resolved beneath, as if it were "/": symlinks, absolute or relative, cannot lead
// out (openat2 with RESOLVE_IN_ROOT and RESOLVE_NO_MAGICLINKS). Use it for container and driver roots.
class Root {
 public:
  static Result<Root> open(const fs::path& path);

  const fs::path& path() const { return path_; }
  int fd() const { return fd_.get(); }
  // Opens `inner` ("/usr/lib/x" or "usr/lib/x") with open(2) flags.
  Result<Fd> open_at(const fs::path& inner, int flags, mode_t mode = 0) const;
  Result<std::string> read(const fs::path& inner) const;
  bool exists(const fs::path& inner) const;
  // The path inside the root with every symlink followed: starts with "/".
  Result<fs::path> resolve(const fs::path& inner) const;
  // Names in a folder, sorted.
  Result<std::vector<std::string>> list(const fs::path& inner) const;
  // mkdir -p beneath the root.
  Result<> make_dirs(const fs::path& inner, mode_t mode = 0755) const;

 private:
  Root(fs::path path, Fd fd) : path_(std::move(path)), fd_(std::move(fd)) {}
  fs::path path_;
  Fd fd_;
};

// Where the kernel's own paths are read (operands-driver-validator.md §4.1): GPUOP_KERNEL_ROOT or "/".
// kernel_path("/proc/modules") answers "<root>/proc/modules".
fs::path kernel_path(const fs::path& absolute);
// The kernel's release, from <kernel root>/proc/sys/kernel/osrelease.
Result<std::string> kernel_release();

// A folder under TMPDIR that is removed with everything in it when the object goes (tests, demos).
class TempDir {
 public:
  explicit TempDir(std::string_view prefix = "gpuop");
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

}  // namespace gpuop
