#include "cluster/hollow/node_options.h"

#include "base/text.h"
#include "sim/node_tree.h"

namespace gpuop::cluster {
namespace {

std::string address_of(int index) {
  const int n = index + 1;
  return "10." + std::to_string(16 + n / 65536) + "." + std::to_string(n / 256 % 256) + "." +
         std::to_string(n % 256);
}

// PRETTY_NAME of the node's os-release.
std::string os_image(const FleetNode& node) {
  if (const auto text = sim::os_release_text(node.os_id, node.os_version)) {
    for (const std::string& line : split(*text, '\n')) {
      constexpr std::string_view kKey = "PRETTY_NAME=\"";
      if (line.starts_with(kKey)) return line.substr(kKey.size(), line.size() - kKey.size() - 1);
    }
  }
  return node.os_id + " " + node.os_version;
}

std::string id_text(const std::string& what) {
  return sha256_hex(what).substr(0, 32);
}

}  // namespace

KubeletOptions hollow_kubelet_options(const HollowMachine& machine, int index) {
  const FleetNode& node = machine.node();
  KubeletOptions out;
  out.node_name = node.name;
  out.labels = node.labels;
  if (!node.instance_type.empty()) out.labels["node.kubernetes.io/instance-type"] = node.instance_type;
  for (const FleetTaint& taint : node.taints) {
    out.taints.push_back(JsonObject{{"key", taint.key}, {"value", taint.value}, {"effect", taint.effect}});
  }
  out.facts.kernel_version = machine.kernel();
  out.facts.os_image = os_image(node);
  out.facts.machine_id = id_text("machine/" + node.name);
  out.facts.system_uuid = id_text("system/" + node.name);
  out.facts.boot_id = machine.boot_id();
  out.facts.cpus = node.cpus;
  out.facts.memory_bytes = node.memory_mib << 20;
  out.node_root.clear();
  out.serve_devices = false;
  out.serve_http = false;
  out.node_ip = address_of(index);
  return out;
}

}  // namespace gpuop::cluster
