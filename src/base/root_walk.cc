#include "base/root_walk.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <deque>
#include <string>
#include <vector>

namespace gpuop {

namespace {

constexpr int kMaxLinks = 40;  // as the kernel's own limit

// The parts still to go, and the folders that led here: the last one is where the walk stands.
struct Walk {
  std::deque<std::string> parts;
  std::vector<Fd> folders;
  int links = 0;

  void push_front(const std::filesystem::path& path) {
    std::vector<std::string> more;
    for (const auto& part : path.relative_path()) {
      if (!part.empty() && part != ".") more.push_back(part.string());
    }
    // A trailing slash asks for a folder.
    if (!path.empty() && path.string().ends_with('/') && !more.empty()) more.emplace_back(".");
    parts.insert(parts.begin(), more.begin(), more.end());
  }
  void to_root() {
    while (folders.size() > 1) folders.pop_back();
  }
  int here() const { return folders.back().get(); }
};

// Takes a link's text in place of its name; 0, or -errno.
int follow(Walk& walk, const std::string& name) {
  if (++walk.links > kMaxLinks) return -ELOOP;
  std::string target(4096, '\0');
  ssize_t size = ::readlinkat(walk.here(), name.c_str(), target.data(), target.size());
  if (size < 0) return -errno;
  target.resize(static_cast<std::size_t>(size));
  if (target.starts_with('/')) walk.to_root();
  walk.push_front(target);
  return 0;
}

bool is_link(int folder, const std::string& name) {
  struct stat info{};
  return ::fstatat(folder, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(info.st_mode);
}

}  // namespace

int open_by_walking(int root_fd, const std::filesystem::path& inner, int flags, mode_t mode) {
  Walk walk;
  Fd root(::openat(root_fd, ".", O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!root) return -errno;
  walk.folders.push_back(std::move(root));
  walk.push_front(inner);
  while (!walk.parts.empty()) {
    std::string name = std::move(walk.parts.front());
    walk.parts.pop_front();
    if (name == "..") {
      if (walk.folders.size() > 1) walk.folders.pop_back();
      continue;
    }
    bool last = walk.parts.empty();
    if (name == "." && !last) continue;
    bool wants_link = last && (flags & O_NOFOLLOW) != 0;
    if (name != "." && !wants_link && is_link(walk.here(), name)) {
      if (last && (flags & (O_CREAT | O_EXCL)) == (O_CREAT | O_EXCL)) return -EEXIST;
      if (int error = follow(walk, name); error != 0) return error;
      continue;
    }
    // The check above may have been overtaken: a link that is there now is refused, not followed.
    int how = last ? flags | O_NOFOLLOW | O_CLOEXEC : O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    Fd fd(::openat(walk.here(), name.c_str(), how, mode));
    if (!fd) return -errno;
    if (last) {
      struct stat info{};
      bool slipped =
          !wants_link && (flags & O_PATH) != 0 && ::fstat(fd.get(), &info) == 0 && S_ISLNK(info.st_mode);
      return slipped ? -EAGAIN : fd.release();
    }
    walk.folders.push_back(std::move(fd));
  }
  // The path ended at a folder that is open already: "/", or behind "..".
  int fd = ::openat(walk.here(), ".", flags | O_CLOEXEC, mode);
  return fd >= 0 ? fd : -errno;
}

}  // namespace gpuop
