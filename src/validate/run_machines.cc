// The components of nodes whose GPUs go to virtual machines (operands-driver-validator.md §4.2).
#include "base/files.h"
#include "base/log.h"
#include "base/text.h"
#include "kube/object.h"
#include "validate/machines.h"
#include "validate/run.h"

namespace gpuop::validate {

namespace {

// The role of the sandbox validator may get its node and not watch it (§3.1); while something is waited for,
// the label that says what the node is for may change.
constexpr Duration kNodeAge = 60s;
constexpr const char* kWorkloadType = "workload-type";
constexpr const char* kHostVgpuManager = "host-vgpu-manager-ready";

}  // namespace

// The node as it was at most a minute ago. What was read once is good until it can be read again.
Result<> Run::read_node() {
  if (seen_node && loop.now() - seen_at < kNodeAge) return {};
  kube::Client* kube = TRY(api());
  auto node =
      kube::await(loop, [&](const auto& done) { return kube->get(kube::kNodes, "", options.node, done); });
  if (node) {
    seen_node = std::move(*node);
    seen_at = loop.now();
    node_fault.clear();
    return {};
  }
  Error error = node.error().error("read node '" + options.node + "'");
  if (seen_node) {
    if (node_fault != error.text()) log::warn(error.text());
    node_fault = error.text();
    seen_at = loop.now();
    return {};
  }
  if (node.error().unavailable()) return fail(std::move(error));
  // No waiting helps.
  std::string text = error.text();
  if (node.error().forbidden()) text += "; the role of this pod's ServiceAccount must allow it to get nodes";
  return fail(Code::kConflict, std::move(text));
}

Result<> Run::write_workload(const std::string& workload) {
  const std::string content = workload + "\n";
  const auto old = read_file(gate(kWorkloadType));
  if (old && *old == content) return {};
  TRY(gates.change([&]() -> Result<> {
    TRY_IN(write_file_atomic(gate(kWorkloadType), content), "record the node's workload");
    return {};
  }));
  log::info("workload of this node", {{"workload", workload}});
  return {};
}

// Runs the check on a node of that workload. false: it is of another, and there is nothing to check.
Result<bool> Run::until_of(std::string_view workload, const std::vector<fs::path>& dirs,
                           const std::function<Result<>()>& check) {
  bool wanted = true;
  TRY(until(dirs, [&]() -> Result<> {
    TRY(read_node());
    const std::string found = workload_of(*seen_node, options.default_workload);
    TRY(write_workload(found));
    wanted = found == workload;
    if (!wanted) {
      log::info("nothing to check on a node of another workload", {{"workload", found}});
      return {};
    }
    return check();
  }));
  return wanted;
}

Result<> Run::vfio_pci() {
  if (!TRY(until_of(kPassthrough, {}, [this] { return check_vfio(options.driver.host); }))) return {};
  return open_gate("vfio-pci-ready");
}

Result<> Run::vgpu_manager() {
  TRY(close_gate(kHostVgpuManager));
  bool on_host = false;
  const auto look = [&]() -> Result<> {
    on_host = TRY(find_vgpu_manager(options.driver));
    return {};
  };
  if (!TRY(until_of(kVgpu, {options.driver.install_dir_ctr}, look))) return {};
  // The driver is there; what it enables comes soon or not at all.
  const Time end = loop.now() + options.vgpu_limit;
  TRY(retry(
      loop, {}, options.interval,
      [&]() -> Result<> {
        auto checked = check_vgpu_parents();
        if (checked || loop.now() < end) return checked;
        return fail(Code::kConflict,
                    checked.error().text() + ", for " + format_go_duration(options.vgpu_limit) + " now");
      },
      options.waiting));
  return open_gate(on_host ? kHostVgpuManager : "vgpu-manager-ready");
}

Result<> Run::vgpu_devices() {
  if (!TRY(until_of(kVgpu, {}, check_vgpus))) return {};
  return open_gate("vgpu-devices-ready");
}

Result<> Run::cc_manager() {
  TRY(until({options.output_dir}, [this]() -> Result<> {
    TRY(read_node());
    if (kube::label(*seen_node, "nvidia.com/cc.capable") != "true") {
      log::info("this node is not capable of confidential computing: nothing to wait for");
      return {};
    }
    if (file_exists(gate(".cc-manager-ctr-ready"))) return {};
    return fail(Code::kNotFound,
                "wait for the CC manager: '" + gate(".cc-manager-ctr-ready").string() +
                    "' is not there yet; it runs with sandboxWorkloads.mode=kata only: in another mode set "
                    "ccManager.enabled=false");
  }));
  return open_gate("cc-manager-ready");
}

}  // namespace gpuop::validate
