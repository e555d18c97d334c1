// Nodes whose GPUs go to virtual machines: what the sandbox validator waits for is another's work.
#include <gtest/gtest.h>

#include "fleet/chain.h"
#include "kube/object.h"

namespace gpuop::fleet {
namespace {

Json node() {
  return *parse_json(R"({"metadata":{"name":"n1","labels":{"nvidia.com/gpu.present":"true",
      "nvidia.com/gpu.workload.config":"vm-passthrough",
      "nvidia.com/gpu.deploy.sandbox-validator":"true","nvidia.com/gpu.deploy.vfio-manager":"true"}}})");
}

Json pod(const std::string& name, const std::string& label, const std::string& set, std::string_view status) {
  Json out = *parse_json(R"({"metadata":{"namespace":"gpu-operator"},"spec":{"nodeName":"n1"}})");
  gpuop::set(out, {"metadata", "name"}, name);
  gpuop::set(out, {"metadata", "labels", label}, set);
  gpuop::set(out, {"metadata", "ownerReferences"},
             JsonArray{JsonObject{{"kind", "DaemonSet"}, {"name", set}, {"controller", true}}});
  gpuop::set(out, {"status"}, *parse_json(status));
  return out;
}
Json validator(std::string_view status) {
  return pod("v", "app", "nvidia-sandbox-validator", status);
}
Json vfio_manager(std::string_view status) {
  return pod("m", "name", "nvidia-vfio-manager", status);
}

constexpr std::string_view kReady = R"({"conditions":[{"type":"Ready","status":"True"}]})";
constexpr std::string_view kInVfio = R"({"phase":"Pending","initContainerStatuses":[
  {"name":"cc-manager-validation","state":{"terminated":{"exitCode":0,"reason":"Completed"}}},
  {"name":"vfio-pci-validation","state":{"running":{}}},
  {"name":"vgpu-manager-validation","state":{"waiting":{"reason":"PodInitializing"}}}]})";

std::string link_of(const std::vector<Json>& pods) {
  Objects all;
  for (const Json& pod : pods) all.push_back(std::make_shared<const Json>(pod));
  const auto link = chain_of(node(), all, {}).broken_link();
  return link ? link->text() : "";
}

TEST(fleet_machines, a_node_is_ready_with_its_sandbox_validator) {
  EXPECT_EQ(link_of({validator(kReady), vfio_manager(kReady)}), "");
}

TEST(fleet_machines, who_binds_the_gpus_is_named_where_the_validator_waits_for_that) {
  EXPECT_EQ(
      link_of({validator(kInVfio), vfio_manager(kReady)}),
      "nvidia-sandbox-validator: pod v waits in vfio-pci-validation; read what it waits for: kubectl -n "
      "gpu-operator logs v -c vfio-pci-validation, and what that pod of nvidia-vfio-manager does: kubectl "
      "-n gpu-operator logs m");
  EXPECT_EQ(
      link_of({validator(kInVfio)}),
      "nvidia-sandbox-validator: pod v waits in vfio-pci-validation, and no pod of nvidia-vfio-manager is "
      "on this node; read what it waits for: kubectl -n gpu-operator logs v -c vfio-pci-validation");
  EXPECT_EQ(link_of({validator(kInVfio), vfio_manager(R"({"phase":"Pending"})")}),
            "nvidia-sandbox-validator: pod m is not ready yet");
  const std::string pull = link_of({validator(kInVfio), vfio_manager(R"({"phase":"Pending",
      "initContainerStatuses":[{"name":"k8s-driver-manager","image":"nvcr.io/x:1",
      "state":{"waiting":{"reason":"ImagePullBackOff","message":"Back-off pulling image \"nvcr.io/x:1\""}}}]})")});
  EXPECT_TRUE(pull.starts_with("nvidia-sandbox-validator: pod m: ")) << pull;
  EXPECT_NE(pull.find("nvcr.io/x:1"), std::string::npos) << pull;
}

}  // namespace
}  // namespace gpuop::fleet
