#include "hardware/driver_root.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <array>
#include <map>

#include "base/text.h"

namespace gpuop::hardware {

namespace {

constexpr std::array<std::string_view, 7> kLibraryDirs = {"/",
                                                          "/usr/lib64",
                                                          "/usr/lib/x86_64-linux-gnu",
                                                          "/usr/lib/aarch64-linux-gnu",
                                                          "/lib64",
                                                          "/lib/x86_64-linux-gnu",
                                                          "/lib/aarch64-linux-gnu"};
constexpr std::array<std::string_view, 5> kBinaryDirs = {"/", "/usr/bin", "/usr/sbin", "/bin", "/sbin"};
constexpr std::array<std::string_view, 6> kHostBinaryDirs = {"/usr/bin", "/usr/sbin",        "/bin",
                                                             "/sbin",    "/usr/lib/wsl/lib", "/opt/bin"};

std::optional<struct stat> stat_inside(const Root& root, const fs::path& inner) {
  auto fd = root.open_at(inner, O_PATH | O_CLOEXEC);
  struct stat info{};
  if (!fd || fstat(fd->get(), &info) != 0) return std::nullopt;
  return info;
}

std::string searched(std::span<const std::string_view> dirs) {
  std::string text;
  for (auto dir : dirs) text += (text.empty() ? "" : ", ") + std::string(dir);
  return text;
}

// "550.54.14" of "libcuda.so.550.54.14": digits and dots, at least one dot inside.
std::optional<std::string> version_suffix(std::string_view file, std::string_view stem) {
  if (!file.starts_with(stem)) return std::nullopt;
  std::string_view rest = file.substr(stem.size());
  if (rest.find('.') == std::string_view::npos || rest.front() == '.' || rest.back() == '.')
    return std::nullopt;
  if (rest.find_first_not_of("0123456789.") != std::string_view::npos) return std::nullopt;
  return std::string(rest);
}

}  // namespace

std::span<const std::string_view> library_dirs() {
  return kLibraryDirs;
}
std::span<const std::string_view> binary_dirs() {
  return kBinaryDirs;
}
std::span<const std::string_view> host_binary_dirs() {
  return kHostBinaryDirs;
}

Result<fs::path> find_library(const Root& root, std::string_view name,
                              std::span<const std::string_view> dirs) {
  for (auto dir : dirs) {
    fs::path candidate = fs::path(dir) / name;
    auto info = stat_inside(root, candidate);
    if (!info || !S_ISREG(info->st_mode)) continue;
    if (auto resolved = root.resolve(candidate)) return *resolved;
  }
  return fail(Code::kNotFound, "find library '" + std::string(name) + "' under '" + root.path().string() +
                                   "': in none of " + searched(dirs));
}

Result<fs::path> find_program(const Root& root, std::string_view name,
                              std::span<const std::string_view> dirs) {
  for (auto dir : dirs) {
    fs::path candidate = fs::path(dir) / name;
    auto info = stat_inside(root, candidate);
    if (info && S_ISREG(info->st_mode) && info->st_size > 0 && (info->st_mode & 0111) != 0) return candidate;
  }
  return fail(Code::kNotFound, "find program '" + std::string(name) + "' under '" + root.path().string() +
                                   "': in none of " + searched(dirs));
}

fs::path nvml_library(const fs::path& driver_root) {
  static constexpr std::string_view kSoname = "libnvidia-ml.so.1";
  if (driver_root.empty() || driver_root == "/") return kSoname;
  auto root = Root::open(driver_root);
  if (!root) return kSoname;
  auto found = find_library(*root, kSoname);
  if (!found) return kSoname;
  return driver_root / found->relative_path();
}

fs::path dev_root_of(const fs::path& driver_root) {
  if (driver_root.empty()) return "/";
  auto root = Root::open(driver_root);
  if (!root) return "/";
  auto info = stat_inside(*root, "/dev");
  return info && S_ISDIR(info->st_mode) ? driver_root : fs::path("/");
}

Result<std::string> driver_version_from_files(const Root& root, std::span<const std::string_view> dirs) {
  for (std::string_view stem : {"libcuda.so.", "libnvidia-ml.so."}) {
    for (auto dir : dirs) {
      auto names = root.list(dir);
      if (!names) continue;
      for (const auto& name : *names) {
        if (auto version = version_suffix(name, stem)) return *version;
      }
    }
  }
  return fail(Code::kNotFound, "find the driver's version under '" + root.path().string() +
                                   "': no libcuda.so.VERSION or libnvidia-ml.so.VERSION in " +
                                   searched(dirs));
}

std::string format_driver_ready(const DriverReady& facts) {
  return std::string("IS_HOST_DRIVER=") + (facts.is_host_driver ? "true" : "false") +
         "\nNVIDIA_DRIVER_ROOT=" + facts.driver_root +
         "\nDRIVER_ROOT_CTR_PATH=" + facts.driver_root_ctr_path + "\nNVIDIA_DEV_ROOT=" + facts.dev_root +
         "\nDEV_ROOT_CTR_PATH=" + facts.dev_root_ctr_path + "\n";
}

Result<DriverReady> parse_driver_ready(std::string_view text) {
  std::map<std::string, std::string, std::less<>> values;
  for (const auto& line : split(text, '\n')) {
    auto equals = line.find('=');
    if (equals != std::string::npos)
      values[std::string(trim(line.substr(0, equals)))] = trim(line.substr(equals + 1));
  }
  for (std::string_view key : {"IS_HOST_DRIVER", "NVIDIA_DRIVER_ROOT", "DRIVER_ROOT_CTR_PATH",
                               "NVIDIA_DEV_ROOT", "DEV_ROOT_CTR_PATH"}) {
    if (!values.contains(key))
      return fail(Code::kInvalid, "read driver-ready: " + std::string(key) + " is missing");
  }
  return DriverReady{values["IS_HOST_DRIVER"] == "true", values["NVIDIA_DRIVER_ROOT"],
                     values["DRIVER_ROOT_CTR_PATH"], values["NVIDIA_DEV_ROOT"], values["DEV_ROOT_CTR_PATH"]};
}

}  // namespace gpuop::hardware
