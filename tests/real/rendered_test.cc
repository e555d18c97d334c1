// What the operator makes of ten policies on a real API server, defaulting, garbage collection and all,
// against what upstream's operator made of them on one (tests/operator/data). Nodes are made by hand, and no
// pod is to run.
#include <gtest/gtest.h>

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include "../operator/upstream_objects.h"
#include "base/files.h"
#include "base/process.h"
#include "cluster_fixture.h"
#include "kube/config.h"
#include "kube/object.h"

namespace gpuop::real {
namespace {

const std::string kPrograms = BUILD_ROOT "/bin/";

std::string bare() {
  return env_or("GPUOP_REAL_BARE_KUBECONFIG");
}

Json labels_of(const std::string& name) {
  Json out = JsonObject{};
  if (name == "cpu-a")
    return JsonObject{{"feature.node.kubernetes.io/kernel-version.full", "5.15.0-91-generic"}};
  for (const auto& [key, value] :
       {std::pair{"pci-10de.present", "true"}, std::pair{"system-os_release.ID", "ubuntu"},
        std::pair{"system-os_release.VERSION_ID", "22.04"},
        std::pair{"kernel-version.full", "5.15.0-91-generic"}})
    set(out, {std::string("feature.node.kubernetes.io/") + key}, value);
  if (name == "plain-b") set(out, {"feature.node.kubernetes.io/kernel-version.full"}, "5.15.0-113-generic");
  if (name == "mig-a") {
    set(out, {"nvidia.com/mig.capable"}, "true");
    set(out, {"nvidia.com/mig.config"}, "all-1g.10gb");
  }
  if (name == "vm-a") set(out, {"nvidia.com/gpu.workload.config"}, "vm-passthrough");
  if (name == "vgpu-a") set(out, {"nvidia.com/gpu.workload.config"}, "vm-vgpu");
  return out;
}

// The nodes of the captures, and a taint that keeps every pod away: none could run.
std::string nodes() {
  JsonArray items;
  for (const char* name : {"plain-a", "plain-b", "mig-a", "vm-a", "vgpu-a", "cpu-a"}) {
    Json node = JsonObject{{"apiVersion", "v1"}, {"kind", "Node"}};
    set(node, {"metadata"}, JsonObject{{"name", name}, {"labels", labels_of(name)}});
    set(node, {"spec", "taints"},
        JsonArray{JsonObject{{"key", "test.gpuop/none"}, {"effect", "NoSchedule"}, {"value", "x"}}});
    set(node, {"status", "nodeInfo", "containerRuntimeVersion"}, "containerd://2.0.0");
    items.push_back(node);
  }
  return to_text(JsonObject{{"apiVersion", "v1"}, {"kind", "List"}, {"items", items}});
}

class Rendered : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(bare(), "");
    must({"apply", "--server-side", "-f", SOURCE_ROOT "/deploy/chart/crds"});
    must({"wait", "--for=condition=Established", "crd", "--all", "--timeout=30s"});
    must({"create", "namespace", kOperatorNamespace});
    for (const char* literal : {"kmod-params,nvidia.conf", "repo-config,custom.list"}) {
      const auto parts = split(literal, ',');
      must({"-n", kOperatorNamespace, "create", "configmap", parts[0], "--from-literal", parts[1] + "=x"});
    }
    client_ = std::move(*kube::make_client(loop_, kube::load_kubeconfig({bare()}).value()));
    for (const auto* type : {&kube::kDaemonSets, &kube::kServiceAccounts, &kube::kRoles, &kube::kRoleBindings,
                             &kube::kConfigMaps, &kube::kServices, &kube::kClusterRoles,
                             &kube::kClusterRoleBindings, &kube::kRuntimeClasses, &kube::kNodes}) {
      kube::InformerOptions options;
      options.ns = type->namespaced ? kOperatorNamespace : "";
      options.keep = {"*"};
      watched_.push_back(std::make_unique<kube::Informer>(*client_, *type, std::move(options)));
      watched_.back()->start();
    }
    start_operator();
  }

  void TearDown() override {
    if (operator_) operator_->kill(SIGKILL);
    loop_.run_until([this] { return ended_; }, 10s);
    // What stays would be in the way of the next test.
    for (const auto& what : std::vector<std::vector<std::string>>{{"clusterpolicy,nvidiadriver", "--all"},
                                                                  {"nodes", "--all"},
                                                                  {"namespace", kOperatorNamespace},
                                                                  {"crd", "--all"}}) {
      std::vector<std::string> args{"delete", "--timeout=60s"};
      args.insert(args.end(), what.begin(), what.end());
      const auto done = kubectl_on(bare(), args, "", 70s);
      EXPECT_EQ(done.code, 0) << join(args, " ") << ": " << done.err;
    }
  }

  void must(std::vector<std::string> args, const std::string& input = "") {
    const auto done = kubectl_on(bare(), args, input);
    ASSERT_EQ(done.code, 0) << join(args, " ") << ": " << done.err;
  }

  void start_operator() {
    const int log = ::open((fs::path(folder()) / "log/rendered-operator.log").c_str(),
                           O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC, 0644);
    SpawnOptions options;
    options.stdout_fd = options.stderr_fd = log;
    options.die_with_parent = true;
    auto child =
        Child::spawn(loop_,
                     {.argv = {kPrograms + "gpu-operator", "--kubeconfig", bare(), "--assets",
                               std::string(SOURCE_ROOT) + "/assets", "--metrics-bind-address", "0",
                               "--health-probe-bind-address", "0"},
                      // What upstream's had at the captures.
                      .env = {std::string("OPERATOR_NAMESPACE=") + kOperatorNamespace,
                              "VALIDATOR_IMAGE=nvcr.io/nvidia/gpu-operator:v26.7.0",
                              "DRIVER_MANAGER_IMAGE=nvcr.io/nvidia/cloud-native/k8s-driver-manager:v0.12.0"}},
                     options, [this](const ExitState&) { ended_ = true; });
    ::close(log);
    ASSERT_TRUE(child) << child.error().text();
    operator_ = std::move(*child);
    ended_ = false;
  }

  // What is owned by a policy or a driver resource.
  op::Objects owned() const {
    op::Objects out;
    for (const auto& informer : watched_) {
      informer->for_each([&out](const auto& object) {
        const Json* owner = kube::controller_of(*object);
        if (owner && get_string(*owner, {"apiVersion"}).starts_with("nvidia.com/"))
          out[op::key_of(*object)] = *object;
      });
    }
    return out;
  }

  std::vector<std::string> differences_of_nodes(const std::string& name) const {
    op::Objects ours;
    watched_.back()->for_each([&ours](const auto& node) {
      Json seen = JsonObject{{"labels", JsonObject{}}, {"annotations", JsonObject{}}};
      for (const char* part : {"labels", "annotations"})
        for (const auto& [key, value] : get_object(*node, {"metadata", part}))
          if (key.starts_with("nvidia.com/")) set(seen, {part, key}, value);
      ours[std::string(kube::name_of(*node))] = seen;
    });
    return op::differences(op::upstream_objects(name, "nodes"), ours);
  }

  // Waits until nothing differs but what is listed.
  void compare(const std::string& name, std::vector<op::Known>& known) {
    std::vector<std::string> found;
    const bool equal = loop_.run_until(
        [&] {
          const op::Objects ours = owned();
          std::string pool;
          for (const auto& [key, object] : ours)
            if (key.starts_with("DaemonSet/nvidia-gpu-driver-")) pool = key.substr(10);
          std::vector<op::Known> used = known;
          found = op::unexpected(op::differences(op::upstream_objects(name, "objects", pool), ours), used);
          const auto nodes = op::unexpected(differences_of_nodes(name), used);
          found.insert(found.end(), nodes.begin(), nodes.end());
          if (found.empty()) known = used;
          return found.empty();
        },
        30s);
    EXPECT_TRUE(equal);
    for (const std::string& difference : found) ADD_FAILURE() << name << ": " << difference;
  }

  Loop loop_;
  std::unique_ptr<kube::Client> client_;
  std::vector<std::unique_ptr<kube::Informer>> watched_;
  std::unique_ptr<Child> operator_;
  bool ended_ = true;
};

TEST_F(Rendered, ten_policies_become_what_upstream_made_of_them) {
  std::vector<op::Known> known = op::known_differences();
  for (const std::string name : op::kCases) {
    SCOPED_TRACE(name);
    must({"create", "--validate=false", "-f", "-"}, nodes());
    const std::string policies = SOURCE_ROOT "/tests/policy/data/";
    must({"create", "-f", policies + name + ".yaml"});
    if (name == "08-driver-crd") must({"create", "-f", policies + name + "-nvidiadriver.yaml"});
    if (!HasFailure()) compare(name, known);
    if (HasFailure()) return;
    must({"delete", "clusterpolicy,nvidiadriver", "--all"});
    EXPECT_TRUE(loop_.run_until([this] { return owned().empty(); }, 60s)) << "what it owned is collected";
    must({"delete", "nodes", "--all"});
  }
  // A cluster of this kind has nothing that speaks against the chart's own values.
  must({"create", "--validate=false", "-f", "-"}, nodes());
  const auto checked = run({kPrograms + "gpuctl", "preflight", "--cluster", "--kubeconfig", bare()}, 30s);
  EXPECT_EQ(checked.code, 0) << checked.out << checked.err;
  for (const op::Known& each : known)
    EXPECT_TRUE(each.used) << "known difference that is none: " << each.prefix;
}

}  // namespace
}  // namespace gpuop::real
