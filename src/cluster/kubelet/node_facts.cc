#include "cluster/kubelet/node_facts.h"

#include <sched.h>

#include "base/files.h"
#include "base/text.h"

namespace gpuop::cluster {

namespace {

std::string read_trimmed(const std::filesystem::path& root, const char* inner) {
  auto opened = Root::open(root);
  if (!opened) return {};
  auto text = opened->read(inner);
  return text ? std::string(trim(*text)) : std::string();
}

// A file of the kernel's: beneath GPUOP_KERNEL_ROOT where that is set, else beneath the node's root.
std::string read_kernel(const std::filesystem::path& root, const char* inner) {
  const auto path = kernel_path(inner);
  if (path == inner) return read_trimmed(root, inner);
  auto text = read_file(path);
  return text ? std::string(trim(*text)) : std::string();
}

// The value of KEY=value or KEY="value" in an os-release file.
std::string os_release_value(const std::string& text, std::string_view key) {
  for (const std::string& line : split(text, '\n')) {
    const std::string_view view = trim(line);
    if (!view.starts_with(key) || view.size() <= key.size() || view[key.size()] != '=') continue;
    std::string_view value = view.substr(key.size() + 1);
    if (value.size() >= 2 && (value.front() == '"' || value.front() == '\'') &&
        value.back() == value.front()) {
      value = value.substr(1, value.size() - 2);
    }
    return std::string(value);
  }
  return {};
}

std::int64_t meminfo_total(const std::string& text) {
  for (const std::string& line : split(text, '\n')) {
    const auto fields = split_fields(line);
    if (fields.size() >= 2 && fields[0] == "MemTotal:") return parse_int(fields[1]).value_or(0) * 1024;
  }
  return 0;
}

std::string derived_hex(const std::string& name, std::string_view what) {
  return sha256_hex(name + "/" + std::string(what)).substr(0, 32);
}

std::string derived_uuid(const std::string& name, std::string_view what) {
  std::string hex = derived_hex(name, what);
  for (std::size_t at : {20, 16, 12, 8}) hex.insert(at, "-");
  return hex;
}

}  // namespace

std::string machine_architecture() {
#if defined(__aarch64__)
  return "arm64";
#elif defined(__x86_64__)
  return "amd64";
#else
#error "no Kubernetes name is known for this architecture"
#endif
}

NodeFacts read_node_facts(const std::filesystem::path& root, const std::string& name) {
  NodeFacts facts;
  facts.architecture = machine_architecture();
  facts.kernel_version = read_kernel(root, "/proc/sys/kernel/osrelease");
  if (facts.kernel_version.empty()) facts.kernel_version = kernel_release().value_or("unknown");
  std::string release = read_trimmed(root, "/etc/os-release");
  if (release.empty()) release = read_trimmed(root, "/usr/lib/os-release");
  facts.os_image = os_release_value(release, "PRETTY_NAME");
  if (facts.os_image.empty()) facts.os_image = "Linux";
  facts.machine_id = read_trimmed(root, "/etc/machine-id");
  if (facts.machine_id.empty()) facts.machine_id = derived_hex(name, "machine");
  facts.system_uuid = read_kernel(root, "/sys/class/dmi/id/product_uuid");
  if (facts.system_uuid.empty()) facts.system_uuid = derived_uuid(name, "system");
  facts.boot_id = read_kernel(root, "/proc/sys/kernel/random/boot_id");
  if (facts.boot_id.empty()) facts.boot_id = derived_uuid(name, "boot");
  if (const std::int64_t memory = meminfo_total(read_kernel(root, "/proc/meminfo")); memory > 0) {
    facts.memory_bytes = memory;
  }
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0) facts.cpus = CPU_COUNT(&set);
  return facts;
}

}  // namespace gpuop::cluster
