#include <fcntl.h>
#include <fnmatch.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/log.h"
#include "base/text.h"
#include "elf/elf.h"
#include "elf/ld_cache.h"
#include "shim/hooks.h"
#include "shim/rootfs.h"

namespace gpuop::shim {

namespace {

// Bounds on what an image can make us do (§6.3).
constexpr std::size_t kMaxConfFiles = 64;
constexpr std::size_t kMaxDirs = 1024;
constexpr std::size_t kMaxLibraries = 100000;

constexpr std::string_view kConf = "/etc/ld.so.conf";
constexpr std::string_view kFolderConf = "/etc/ld.so.conf.d/00-nvcr-nvidia.conf";
constexpr std::string_view kSystemConf = "/etc/ld.so.conf.d/zz-nvcr-nvidia.conf";

#ifdef __aarch64__
constexpr std::string_view kTriplet = "aarch64-linux-gnu";
constexpr std::string_view kMuslPath = "/etc/ld-musl-aarch64.path";
#else
constexpr std::string_view kTriplet = "x86_64-linux-gnu";
constexpr std::string_view kMuslPath = "/etc/ld-musl-x86_64.path";
#endif

std::vector<std::string> system_dirs(const Root& root) {
  if (root.exists("/etc/debian_version")) {
    return {"/lib/" + std::string(kTriplet), "/usr/lib/" + std::string(kTriplet), "/lib", "/usr/lib"};
  }
  std::vector<std::string> dirs = {"/lib", "/usr/lib", "/lib64", "/usr/lib64"};
#ifdef __x86_64__
  dirs.emplace_back("/libx32");
  dirs.emplace_back("/usr/libx32");
#endif
  return dirs;
}

// Library folders from ld.so.conf and what it includes.
class Configuration {
 public:
  explicit Configuration(const Root& root) : root_(root) {}
  std::vector<std::string> dirs() {
    read(std::string(kConf));
    return std::move(dirs_);
  }

 private:
  void read(const std::string& file) {
    if (seen_.size() >= kMaxConfFiles || !seen_.insert(file).second) return;
    auto text = read_regular(root_, file);
    if (!text) return;
    for (const auto& raw : split(*text, '\n')) {
      std::string line(trim(std::string_view(raw).substr(0, raw.find('#'))));
      if (line.starts_with("include ") || line.starts_with("include\t")) {
        for (const auto& pattern : split_fields(line.substr(8))) include(file, pattern);
      } else if (line.starts_with('/') && dirs_.size() < kMaxDirs) {
        // "dir=type" of old days.
        add(line.substr(0, line.find_first_of("= \t,:")));
      }
    }
  }
  void include(const std::string& from, std::string pattern) {
    fs::path path = pattern.starts_with('/') ? fs::path(pattern) : fs::path(from).parent_path() / pattern;
    auto names = root_.list(path.parent_path());
    if (!names) return;
    for (const auto& name : *names) {
      if (fnmatch(path.filename().c_str(), name.c_str(), FNM_PERIOD) == 0)
        read((path.parent_path() / name).string());
    }
  }
  void add(std::string dir) {
    while (dir.size() > 1 && dir.ends_with('/')) dir.pop_back();
    if (std::ranges::find(dirs_, dir) == dirs_.end()) dirs_.push_back(std::move(dir));
  }

  const Root& root_;
  std::set<std::string> seen_;
  std::vector<std::string> dirs_;
};

bool library_name(std::string_view name) {
  return (name.starts_with("lib") || name.starts_with("ld-")) && name.find(".so") != std::string_view::npos;
}

struct Found {
  std::string name;
  elf::ElfFile file;
  bool is_link = false;
};

std::vector<Found> libraries_in(const Root& root, const std::string& dir) {
  std::vector<Found> found;
  auto names = root.list(dir);
  if (!names) return found;
  for (const auto& name : *names) {
    if (!library_name(name)) continue;
    fs::path path = fs::path(dir) / name;
    auto fd = open_regular(root, path);
    if (!fd) continue;
    auto file = elf::read_elf(fd->get());
    if (!file || !file->is_shared || !elf::ld_cache_flags(*file)) continue;
    auto entry = root.open_at(path, O_PATH | O_NOFOLLOW);
    struct stat info{};
    bool is_link = entry && fstat(entry->get(), &info) == 0 && S_ISLNK(info.st_mode);
    found.push_back({name, std::move(*file), is_link});
  }
  return found;
}

bool plain_name(std::string_view name) {
  return !name.empty() && name.find('/') == std::string_view::npos && name != "." && name != "..";
}

// The links by which programs ask for a library; a library that is mounted as one file has none yet.
Result<> make_soname_links(const Root& root, const std::string& dir, const std::vector<Found>& libraries) {
  std::map<std::string, std::string> wanted;  // soname to file: the highest version wins
  for (const auto& library : libraries) {
    if (library.is_link || !plain_name(library.file.soname) || library.file.soname == library.name) continue;
    auto [it, fresh] = wanted.try_emplace(library.file.soname, library.name);
    if (!fresh && elf::compare_library_names(it->second, library.name) < 0) it->second = library.name;
  }
  for (const auto& [soname, file] : wanted) {
    bool taken = std::ranges::any_of(
        libraries, [&](const Found& other) { return other.name == soname && !other.is_link; });
    if (taken) continue;
    TRY(replace_symlink(root, fs::path(dir) / soname, file));
  }
  return {};
}

void add_entries(const std::string& dir, const std::vector<Found>& libraries,
                 std::vector<elf::LdCacheEntry>& entries) {
  std::set<std::pair<std::string, std::uint32_t>> here;
  auto add = [&](const std::string& name, const std::string& file, std::uint32_t flags) {
    if (here.emplace(name, flags).second)
      entries.push_back({name, (fs::path(dir) / file).string(), flags, 0});
  };
  std::set<std::string> names;
  for (const auto& library : libraries) names.insert(library.name);
  for (const auto& library : libraries) {
    std::uint32_t flags = *elf::ld_cache_flags(library.file);
    const std::string& soname = library.file.soname;
    if (!plain_name(soname)) {
      add(library.name, library.name, flags);
    } else {
      add(soname, names.contains(soname) ? soname : library.name, flags);
      if (library.is_link) add(library.name, library.name, flags);
    }
  }
}

// Folders that the configuration does not name yet.
Result<> write_configuration(const Root& root, const std::vector<std::string>& folders) {
  if (!root.exists(kConf)) TRY(replace_file(root, kConf, "include /etc/ld.so.conf.d/*.conf\n", 0644));
  auto known = Configuration(root).dirs();
  std::string own = read_regular(root, kFolderConf).value_or("");
  std::string text;
  for (const auto& folder : folders) {
    bool ours = own.find(folder + "\n") != std::string::npos;
    if (ours || std::ranges::find(known, folder) == known.end()) text += folder + "\n";
  }
  if (!text.empty()) TRY(replace_file(root, kFolderConf, text, 0644));
  std::string system;
  for (const auto& dir : system_dirs(root)) system += dir + "\n";
  TRY(replace_file(root, kSystemConf, system, 0644));
  return {};
}

// musl has one text file with a path; without it the built-in folders count, so they are written along.
Result<> update_musl(const Root& root, const std::vector<std::string>& folders) {
  if (!root.exists("/etc/alpine-release")) return {};
  std::string text = read_regular(root, kMuslPath).value_or("/lib\n/usr/local/lib\n/usr/lib\n");
  if (!text.empty() && !text.ends_with('\n')) text += '\n';
  for (const auto& folder : folders) {
    if (("\n" + text).find("\n" + folder + "\n") == std::string::npos) text += folder + "\n";
  }
  TRY(replace_file(root, kMuslPath, text, 0644));
  return {};
}

Result<> build_cache(const Root& root, const std::vector<std::string>& folders) {
  TRY(write_configuration(root, folders));
  TRY(update_musl(root, folders));
  auto dirs = Configuration(root).dirs();
  for (auto& dir : system_dirs(root)) {
    if (std::ranges::find(dirs, dir) == dirs.end()) dirs.push_back(std::move(dir));
  }
  std::vector<elf::LdCacheEntry> entries;
  std::set<std::string> scanned;  // /lib and /usr/lib are often one folder
  for (const auto& dir : dirs) {
    auto real = root.resolve(dir);
    if (!real || !scanned.insert(real->string()).second) continue;
    auto libraries = libraries_in(root, dir);
    if (std::ranges::find(folders, dir) != folders.end()) {
      TRY(make_soname_links(root, dir, libraries));
      libraries = libraries_in(root, dir);
    }
    add_entries(dir, libraries, entries);
    if (entries.size() > kMaxLibraries) {
      log::warn("too many libraries: the rest is left out of the loader's cache", {{"limit", kMaxLibraries}});
      break;
    }
  }
  TRY(replace_file(root, "/etc/ld.so.cache", elf::format_ld_cache(std::move(entries)), 0644));
  return {};
}

}  // namespace

Result<> update_ldcache(const Root& root, const std::vector<std::string>& folders) {
  auto done = build_cache(root, folders);
  if (!done && is_read_only(done.error())) {
    log::warn("the container's root cannot be written: its loader's cache stays", {{"why", done.error()}});
    return {};
  }
  return done;
}

}  // namespace gpuop::shim
