#include "sim/tree_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cerrno>

#include <cstdio>

namespace gpuop::sim {

Result<> put(const fs::path& path, std::string_view content, mode_t mode) {
  TRY(make_dirs(path.parent_path()));
  Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, mode));
  if (!fd) return fail(errno_error("write '" + path.string() + "'", errno));
  ::fchmod(fd.get(), mode);
  while (!content.empty()) {
    ssize_t n = ::write(fd.get(), content.data(), content.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return fail(errno_error("write '" + path.string() + "'", errno));
    content.remove_prefix(static_cast<std::size_t>(n));
  }
  return {};
}

Result<> put_new(const fs::path& path, std::string_view content, mode_t mode) {
  fs::path temporary = path;
  temporary += ".new";
  TRY(put(temporary, content, mode));
  if (::rename(temporary.c_str(), path.c_str()) != 0)
    return fail(errno_error("write '" + path.string() + "'", errno));
  return {};
}

Result<> put_link(const fs::path& target, const fs::path& link) {
  TRY(make_dirs(link.parent_path()));
  TRY(make_symlink_atomic(target, link));
  return {};
}

Result<> drop(const fs::path& path) {
  std::error_code why;
  fs::remove_all(path, why);
  if (why) return fail(errno_error("remove '" + path.string() + "'", why.value()));
  return {};
}

}  // namespace gpuop::sim
