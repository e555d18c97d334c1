#include <fnmatch.h>

#include <algorithm>

#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "elf/elf.h"
#include "shim/hooks.h"
#include "shim/requirements.h"
#include "shim/rootfs.h"

namespace gpuop::shim {

namespace {

std::int64_t major_of(std::string_view version) {
  return parse_int(version.substr(0, version.find('.'))).value_or(-1);
}

}  // namespace

bool use_cuda_compat(const CudaCompatOptions& host, std::string_view compat_version, std::string_view note) {
  if (!note.empty()) {
    auto facts = parse_json(note);
    if (!facts) return false;
    if (!host.host_driver_version.empty()) {
      bool known = std::ranges::any_of(get_array(*facts, {"Driver"}), [&](const Json& driver) {
        std::int64_t major = driver.is_string() ? parse_int(as_text(driver)).value_or(-1)
                                                : (driver.is_int64() ? driver.get_int64() : -1);
        return major == major_of(host.host_driver_version);
      });
      return known && compare_versions(compat_version, host.host_driver_version) > 0;
    }
    std::string cuda = str(get_string(*facts, {"CUDA Version"}));
    return !host.host_cuda_version.empty() && !cuda.empty() &&
           compare_versions(cuda, host.host_cuda_version) > 0;
  }
  if (!host.host_cuda_version.empty()) return false;
  return major_of(compat_version) > major_of(host.host_driver_version);
}

Result<> enable_cuda_compat(const Root& root, const CudaCompatOptions& options) {
  if (options.host_driver_version.empty() && options.host_cuda_version.empty()) return {};
  auto names = root.list(options.container_root);
  if (!names) return {};
  std::vector<std::string> candidates;
  for (const auto& name : *names) {
    if (fnmatch("libcuda.so.*.*", name.c_str(), 0) != 0) continue;
    if (open_regular(root, fs::path(options.container_root) / name)) candidates.push_back(name);
  }
  if (candidates.size() != 1) {
    log::debug("no single CUDA compatibility library", {{"found", candidates.size()}});
    return {};
  }
  fs::path path = fs::path(options.container_root) / candidates[0];
  auto fd = TRY(open_regular(root, path));
  std::string note;
  if (auto notes = elf::read_section(fd.get(), ".note.cuda.fwd_compatibility", 1u << 16)) {
    note = elf::note_description(*notes, "NVIDIA Corporation").value_or("");
    while (!note.empty() && note.back() == '\0') note.pop_back();
  }
  std::string version = candidates[0].substr(std::string_view("libcuda.so.").size());
  bool use = use_cuda_compat(options, version, note);
  log::debug("CUDA compatibility",
             {{"image", version}, {"driver", options.host_driver_version}, {"used", use}});
  if (!use) return {};
  fs::path folder = TRY(root.resolve(options.container_root));
  auto written = replace_file(root, "/etc/ld.so.conf.d/00-compat-nvidia.conf", folder.string() + "\n", 0644);
  if (!written && !is_read_only(written.error())) return fail(std::move(written).error());
  if (!written)
    log::warn("CUDA compatibility is left out: the container's root cannot be written",
              {{"why", written.error()}});
  return {};
}

}  // namespace gpuop::shim
