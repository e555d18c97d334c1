#include "shim/rootfs.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

namespace gpuop::shim {

namespace {

struct Place {
  Fd folder;
  std::string leaf;
};

// The folder of `inner`, made when missing, and its last part.
Result<Place> place_of(const Root& root, const fs::path& inner) {
  fs::path path = inner.relative_path();
  std::string leaf = path.filename().string();
  if (leaf.empty() || leaf == "." || leaf == "..") {
    return fail(Code::kInvalid,
                "write '" + inner.string() + "' beneath '" + root.path().string() + "': not a file's name");
  }
  fs::path folder = path.parent_path();
  auto fd = root.open_at(folder, O_PATH | O_DIRECTORY);
  if (!fd && fd.error().code() == Code::kNotFound) {
    TRY(root.make_dirs(folder.lexically_normal(), 0755));
    fd = root.open_at(folder, O_PATH | O_DIRECTORY);
  }
  if (!fd) return fail(std::move(fd).error());
  return Place{std::move(*fd), std::move(leaf)};
}

std::string temporary_name() {
  return ".gpuop-" + std::to_string(getpid());
}

std::string link_text(int folder, const std::string& leaf) {
  std::string text(4096, '\0');
  ssize_t size = readlinkat(folder, leaf.c_str(), text.data(), text.size());
  text.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
  return text;
}

Result<> write_all(int fd, std::string_view content, const std::string& doing) {
  while (!content.empty()) {
    ssize_t n = write(fd, content.data(), content.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail(errno_error(doing, errno));
    content.remove_prefix(static_cast<std::size_t>(n));
  }
  return {};
}

// Renames over the leaf, or takes the temporary away.
Result<> put_in_place(const Place& place, const std::string& temporary, const std::string& doing) {
  if (renameat(place.folder.get(), temporary.c_str(), place.folder.get(), place.leaf.c_str()) == 0) return {};
  int why = errno;
  unlinkat(place.folder.get(), temporary.c_str(), 0);
  return fail(errno_error(doing, why));
}

}  // namespace

Result<Root> open_rootfs(const fs::path& path) {
  std::string normal = path.lexically_normal().string();
  if (path.empty() || normal == "/" || normal == "//" || !path.is_absolute()) {
    return fail(Code::kInvalid, "open container root '" + path.string() + "': refused");
  }
  while (normal.size() > 1 && normal.ends_with('/')) normal.pop_back();
  struct stat info{};
  if (lstat(normal.c_str(), &info) != 0)
    return fail(errno_error("open container root '" + normal + "'", errno));
  if (!S_ISDIR(info.st_mode))
    return fail(Code::kInvalid, "open container root '" + normal + "': not a folder");
  return Root::open(normal);
}

Result<Fd> open_regular(const Root& root, const fs::path& inner) {
  Fd fd = TRY(root.open_at(inner, O_RDONLY | O_NONBLOCK | O_NOCTTY));
  struct stat info{};
  if (fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode)) {
    return fail(Code::kInvalid,
                "open '" + inner.string() + "' beneath '" + root.path().string() + "': not a regular file");
  }
  return fd;
}

Result<std::string> read_regular(const Root& root, const fs::path& inner, std::size_t limit) {
  Fd fd = TRY(open_regular(root, inner));
  struct stat info{};
  if (fstat(fd.get(), &info) == 0 && static_cast<std::uint64_t>(info.st_size) > limit) {
    return fail(Code::kInvalid,
                "read '" + inner.string() + "': larger than " + std::to_string(limit) + " bytes");
  }
  return TRY_IN(read_fd(fd.get(), limit), "read '" + inner.string() + "'");
}

Result<bool> replace_file(const Root& root, const fs::path& inner, std::string_view content, mode_t mode) {
  auto doing = "write '" + inner.string() + "' beneath '" + root.path().string() + "'";
  if (auto now = read_regular(root, inner, content.size()); now && *now == content) return false;
  Place place = TRY(place_of(root, inner));
  std::string temporary = temporary_name();
  unlinkat(place.folder.get(), temporary.c_str(), 0);
  Fd fd(openat(place.folder.get(), temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
               mode));
  if (!fd) return fail(errno_error(doing, errno));
  auto written = write_all(fd.get(), content, doing);
  if (written && fchmod(fd.get(), mode) != 0) written = fail(errno_error(doing, errno));
  if (!written) {
    unlinkat(place.folder.get(), temporary.c_str(), 0);
    return fail(std::move(written).error());
  }
  TRY(put_in_place(place, temporary, doing));
  return true;
}

Result<bool> replace_symlink(const Root& root, const fs::path& inner, std::string_view target) {
  auto doing = "link '" + inner.string() + "' beneath '" + root.path().string() + "'";
  Place place = TRY(place_of(root, inner));
  if (link_text(place.folder.get(), place.leaf) == target) return false;
  std::string temporary = temporary_name();
  unlinkat(place.folder.get(), temporary.c_str(), 0);
  if (symlinkat(std::string(target).c_str(), place.folder.get(), temporary.c_str()) != 0) {
    return fail(errno_error(doing, errno));
  }
  TRY(put_in_place(place, temporary, doing));
  return true;
}

bool is_read_only(const Error& error) {
  return error.code() == Code::kPermission || error.text().find("Read-only file system") != std::string::npos;
}

}  // namespace gpuop::shim
