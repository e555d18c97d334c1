#include "cluster/kubelet/volume_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include "base/files.h"
#include "base/text.h"

namespace gpuop::cluster {

namespace {

constexpr const char* kDataLink = "..data";

std::string value_of(ObjectKind kind, const Json& value, bool binary) {
  if (kind == ObjectKind::kSecret || binary) return base64_decode(as_text(value)).value_or("");
  return str(as_text(value));
}

std::map<std::string, std::string> object_data(ObjectKind kind, const Json& object) {
  std::map<std::string, std::string> out;
  for (const auto& item : get_object(object, {"data"}))
    out[str(item.key())] = value_of(kind, item.value(), false);
  if (kind == ObjectKind::kConfigMap) {
    for (const auto& item : get_object(object, {"binaryData"})) {
      out[str(item.key())] = value_of(kind, item.value(), true);
    }
  }
  return out;
}

bool safe_relative(const std::string& path) {
  if (path.empty() || path.front() == '/') return false;
  const auto parts = split(path, '/');
  if (parts.front().starts_with("..")) return false;
  return std::ranges::none_of(parts, [](const std::string& part) { return part == ".." || part.empty(); });
}

// The payload that `dir` shows now.
Payload shown(const std::filesystem::path& dir) {
  Payload out;
  std::error_code error;
  const auto data = dir / kDataLink;
  for (auto it = fs::recursive_directory_iterator(data, error);
       !error && it != fs::recursive_directory_iterator(); it.increment(error)) {
    struct stat info{};
    if (::lstat(it->path().c_str(), &info) != 0 || !S_ISREG(info.st_mode)) continue;
    auto text = read_file(it->path());
    if (!text) return {};
    out[it->path().lexically_relative(data).string()] = {std::move(*text), info.st_mode & 07777};
  }
  return out;
}

Result<> write_new(const std::filesystem::path& path, const std::string& text, mode_t mode) {
  const Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file) return fail(errno_error("write '" + path.string() + "'", errno));
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t wrote = ::write(file.get(), text.data() + done, text.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return fail(errno_error("write '" + path.string() + "'", errno));
    done += static_cast<std::size_t>(wrote);
  }
  if (::fchmod(file.get(), mode) != 0) return fail(errno_error("chmod '" + path.string() + "'", errno));
  return {};
}

Result<> write_tree(const std::filesystem::path& folder, const Payload& payload) {
  TRY(make_dirs(folder));
  for (const auto& [name, content] : payload) {
    const auto path = folder / name;
    if (path.parent_path() != folder) TRY(make_dirs(path.parent_path()));
    TRY(write_new(path, content.data, content.mode));
  }
  return {};
}

int remove_at(int parent, const char* name, dev_t device) {
  struct stat info{};
  if (::fstatat(parent, name, &info, AT_SYMLINK_NOFOLLOW) != 0) return errno == ENOENT ? 0 : errno;
  if (!S_ISDIR(info.st_mode)) return ::unlinkat(parent, name, 0) == 0 ? 0 : errno;
  if (info.st_dev != device) return EBUSY;
  const int fd = ::openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return errno;
  DIR* dir = ::fdopendir(fd);
  if (dir == nullptr) {
    const int error = errno;
    ::close(fd);
    return error;
  }
  int result = 0;
  while (const dirent* entry = ::readdir(dir)) {
    const std::string_view child = entry->d_name;
    if (child == "." || child == "..") continue;
    if (const int error = remove_at(fd, entry->d_name, device); error != 0) result = error;
  }
  ::closedir(dir);
  if (result != 0) return result;
  return ::unlinkat(parent, name, AT_REMOVEDIR) == 0 ? 0 : errno;
}

// A path as /proc/self/mountinfo escapes it: "\040" for a blank.
std::string unescape_mount(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size()) {
      out += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + (text[i + 3] - '0'));
      i += 3;
    } else {
      out += text[i];
    }
  }
  return out;
}

void unmount_beneath(const std::filesystem::path& dir) {
  auto text = read_file("/proc/self/mountinfo");
  if (!text) return;
  std::vector<std::string> points;
  const std::string prefix = dir.string() + "/";
  for (const std::string& line : split(*text, '\n')) {
    const auto fields = split_fields(line);
    if (fields.size() < 5) continue;
    std::string point = unescape_mount(fields[4]);
    if (point.starts_with(prefix)) points.push_back(std::move(point));
  }
  // Last mounted first.
  for (auto it = points.rbegin(); it != points.rend(); ++it)
    ::umount2(it->c_str(), MNT_DETACH | UMOUNT_NOFOLLOW);
}

}  // namespace

Result<> add_object_files(Payload& payload, ObjectKind kind, const Json& source, const std::string& name,
                          const ObjectView& view, mode_t default_mode) {
  const bool optional = get_bool(source, {"optional"});
  const char* word = kind == ObjectKind::kSecret ? "secret" : "configmap";
  if (!view.object) {
    if (optional) return {};
    return fail(Code::kNotFound, std::string(word) + " \"" + name + "\" not found");
  }
  const auto data = object_data(kind, *view.object);
  const JsonArray& items = get_array(source, {"items"});
  if (items.empty()) {
    for (const auto& [key, value] : data) payload[key] = {value, default_mode};
    return {};
  }
  for (const Json& item : items) {
    const std::string key = str(get_string(item, {"key"}));
    const std::string path = str(get_string(item, {"path"}));
    const auto found = data.find(key);
    if (found == data.end()) {
      if (optional) continue;
      return fail(Code::kNotFound, std::string("references non-existent ") +
                                       (kind == ObjectKind::kSecret ? "secret" : "config") + " key: " + key);
    }
    if (!safe_relative(path)) return fail(Code::kInvalid, "invalid path: " + path);
    payload[path] = {found->second,
                     static_cast<mode_t>(get_int(item, {"mode"}, static_cast<std::int64_t>(default_mode)))};
  }
  return {};
}

Result<> add_downward_files(Payload& payload, const Json& source, const Json& pod, const NodeView& node,
                            mode_t default_mode) {
  for (const Json& item : get_array(source, {"items"})) {
    const std::string path = str(get_string(item, {"path"}));
    if (!safe_relative(path)) return fail(Code::kInvalid, "invalid path: " + path);
    FileContent file{{},
                     static_cast<mode_t>(get_int(item, {"mode"}, static_cast<std::int64_t>(default_mode)))};
    if (const Json* ref = find(item, {"fieldRef"})) {
      file.data = TRY(pod_field(pod, node, get_string(*ref, {"fieldPath"})));
    } else if (const Json* resource = find(item, {"resourceFieldRef"})) {
      const Json* container = find_container(pod, get_string(*resource, {"containerName"}));
      if (container == nullptr) return fail(Code::kNotFound, "container of resourceFieldRef not found");
      file.data = TRY(resource_field(*container, node, get_string(*resource, {"resource"}),
                                     find(*resource, {"divisor"})));
    }
    payload[path] = std::move(file);
  }
  return {};
}

Result<bool> write_payload(const std::filesystem::path& dir, const Payload& payload,
                           const std::string& stamp) {
  TRY(make_dirs(dir));
  std::error_code error;
  const auto old = fs::read_symlink(dir / kDataLink, error);
  const bool had = !error;
  if (had && shown(dir) == payload) return false;
  TRY(write_tree(dir / stamp, payload));
  TRY(make_symlink_atomic(stamp, dir / kDataLink));
  std::set<std::string> tops;
  for (const auto& [name, content] : payload) tops.insert(name.substr(0, name.find('/')));
  for (const std::string& top : tops) TRY(make_symlink_atomic(fs::path(kDataLink) / top, dir / top));
  for (const std::string& name : TRY(list_dir(dir))) {
    if (name.starts_with("..") || tops.contains(name)) continue;
    TRY(remove_file(dir / name));
  }
  if (had && old.string() != stamp) TRY(remove_tree(dir / old));
  return true;
}

Result<> write_lightly(const std::filesystem::path& path, const std::string& text, mode_t mode) {
  if (const auto old = read_file(path); old && *old == text) return {};
  return write_new(path, text, mode);
}

Result<> remove_tree(const std::filesystem::path& dir) {
  struct stat info{};
  if (::lstat(dir.c_str(), &info) != 0) {
    if (errno == ENOENT) return {};
    return fail(errno_error("remove '" + dir.string() + "'", errno));
  }
  unmount_beneath(dir);
  if (const int error = remove_at(AT_FDCWD, dir.c_str(), info.st_dev); error != 0) {
    return fail(errno_error("remove '" + dir.string() + "'", error));
  }
  return {};
}

Result<> mount_tmpfs(const std::filesystem::path& dir, std::int64_t bytes) {
  struct stat info{}, parent{};
  if (::stat(dir.c_str(), &info) == 0 && ::stat(dir.parent_path().c_str(), &parent) == 0 &&
      info.st_dev != parent.st_dev) {
    return {};
  }
  const std::string data = bytes > 0 ? "mode=0777,size=" + std::to_string(bytes) : "mode=0777";
  if (::mount("tmpfs", dir.c_str(), "tmpfs", MS_NOSUID | MS_NODEV, data.c_str()) != 0) {
    return fail(errno_error("mount a tmpfs at '" + dir.string() + "'", errno));
  }
  return {};
}

}  // namespace gpuop::cluster
