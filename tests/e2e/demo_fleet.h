// A fleet with the operator and the demo's policy on it.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/text.h"
#include "base/version.h"
#include "base/yaml.h"
#include "cluster/fleet/install_tree.h"
#include "cluster/fleet/supervisor.h"
#include "fleet/chain.h"
#include "fleet/manifests.h"
#include "kube/config.h"
#include "kube/informer.h"
#include "kube/object.h"

namespace gpuop {

class DemoFleet : public ::testing::Test {
 protected:
  static constexpr const char* kImage = "ghcr.io/gpu-operator/gpu-operator:" GPUOP_VERSION;

  // Starts it and waits until every GPU node is ready, and the operator. `fleet` is the text of a fleet
  // file; empty: the demo's.
  void bring_up(std::string fleet = {}) {
    if (::geteuid() != 0) FAIL() << "a fleet needs root: run the tests as root";
    fs::path data = BUILD_ROOT "/share/gpu-operator";
    auto tree = cluster::stage_install_tree(
        {BUILD_ROOT "/bin", BUILD_ROOT "/sim", data / "assets", BUILD_ROOT "/install"});
    ASSERT_TRUE(tree) << tree.error().text();
    if (fleet.empty()) fleet = *read_file(data / "fleets/demo.yaml");
    cluster::FleetOptions options;
    auto parsed = cluster::parse_fleet(fleet, "fleet");
    ASSERT_TRUE(parsed) << parsed.error().text();
    options.fleet = *parsed;
    options.state_dir = state_ = dir_.path() / "fleet";
    options.install_tree = BUILD_ROOT "/install";
    options.program = BUILD_ROOT "/bin/gpuctl";
    options.image = kImage;
    auto started = cluster::FleetProcess::start(
        loop_, options, [this](const cluster::FleetStatus& status) { status_ = status; },
        [this] { ended_ = true; });
    ASSERT_TRUE(started) << started.error().text();
    fleet_ = std::move(*started);
    ASSERT_TRUE(wait([&] { return status_.phase != cluster::FleetStatus::Phase::kStarting; }, 30s)) << logs();
    ASSERT_EQ(status_.phase, cluster::FleetStatus::Phase::kUp) << status_.error;
    client_ = *kube::make_client(loop_, *kube::load_kubeconfig({fleet_->kubeconfig().string()}));
    apply(data);
    watch();
    ASSERT_TRUE(wait([&] { return chain().ready(); }, 60s)) << render(chain()) << logs();
    // Nodes may be ready before the kubelet has asked the operator a second time whether it is.
    ASSERT_TRUE(wait([&] { return operator_available(); }, 30s)) << waiting() << logs();
  }

  // Ends it, so that another can be brought up.
  void take_down() {
    policies_.reset();
    deployments_.reset();
    nodes_.reset();
    pods_.reset();
    client_.reset();
    fleet_.reset();
    status_ = {};
    ended_ = false;
  }

  bool wait(const std::function<bool()>& what, Duration limit) {
    loop_.run_until([&] { return ended_ || what(); }, limit);
    return !ended_ && what();
  }
  fleet::ClusterChain chain() const {
    return fleet::cluster_chain({all(*policies_), all(*nodes_), all(*pods_), {}, {}, {}});
  }
  // What must be the same before and after: what nodes offer, and which pods look after them.
  std::map<std::string, std::string> picture() const {
    std::map<std::string, std::string> out;
    for (const auto& node : chain().nodes) {
      std::string& text = out[node.name];
      text = node.product;
      for (const auto& [resource, count] : node.allocatable)
        text += " " + resource + "=" + std::to_string(count);
    }
    pods_->for_each([&](const auto& pod) {
      const Json* owner = kube::controller_of(*pod);
      if (!owner || get_string(*owner, {"kind"}) != "DaemonSet") return;
      out[str(get_string(*pod, {"spec", "nodeName"}))] += " " + str(get_string(*owner, {"name"}));
    });
    for (auto& [name, text] : out) {
      std::vector<std::string> words = split_fields(text);
      std::ranges::sort(words);
      text = join(words, " ");
    }
    return out;
  }
  // What is not settled, and what each container waits for and why.
  std::string waiting() const {
    std::string out;
    pods_->for_each([&](const auto& pod) {
      if (get_string(*pod, {"status", "phase"}) == "Succeeded") return;
      const Json* ready = kube::condition(*pod, "Ready");
      if (ready && get_string(*ready, {"status"}) == "True") return;
      out += "pod " + str(get_string(*pod, {"metadata", "name"})) + " on " +
             str(get_string(*pod, {"spec", "nodeName"})) + ": " + str(get_string(*pod, {"status", "phase"})) +
             "\n";
      for (const char* kind : {"initContainerStatuses", "containerStatuses"}) {
        const Json* statuses = find(*pod, {"status", kind});
        if (!statuses) continue;
        for (const Json& status : statuses->as_array()) out += "  " + to_text(status) + "\n";
      }
    });
    return out;
  }
  // Every container of every pod runs, or has done its work.
  bool settled() const {
    bool good = true;
    pods_->for_each([&](const auto& pod) {
      if (get_string(*pod, {"status", "phase"}) == "Succeeded") return;
      const Json* ready = kube::condition(*pod, "Ready");
      good = good && ready && get_string(*ready, {"status"}) == "True";
    });
    return good;
  }
  std::string logs() const {
    std::string out = "\n";
    for (const std::string& name : list_dir(state_ / "log").value_or(std::vector<std::string>{})) {
      std::string text = read_file(state_ / "log" / name).value_or("");
      out += "--- " + name + "\n" + text.substr(text.size() > 4000 ? text.size() - 4000 : 0);
    }
    return out;
  }
  // A node's root, through one of its processes: the kubelet, since a toolkit starts the runtime anew. It is
  // away for a moment too when it was killed; the loop is not for waiting, which may be what asks.
  fs::path root_of(const std::string& node) {
    for (int turn = 0; turn < 500; ++turn) {
      for (const auto& info :
           cluster::list_fleet_processes(state_).value_or(std::vector<cluster::FleetProcessInfo>{})) {
        if (info.role == "kubelet" && info.node == node) return "/proc/" + std::to_string(info.pid) + "/root";
      }
      std::this_thread::sleep_for(20ms);
    }
    ADD_FAILURE() << "node " << node << " has no kubelet";
    return "/nonexistent";
  }

  TempDir dir_{"e2e"};
  fs::path state_;
  Loop loop_;
  cluster::FleetStatus status_;
  bool ended_ = false;
  std::function<void(Json& policy)> adjust_;  // before it is applied
  std::unique_ptr<cluster::FleetProcess> fleet_;
  std::unique_ptr<kube::Client> client_;
  std::unique_ptr<kube::Informer> policies_, nodes_, pods_, deployments_;

 private:
  void apply(const fs::path& data) {
    std::vector<Json> objects;
    for (const char* part : {"deploy/chart/crds", "deploy/manifests"}) {
      auto loaded = fleet::load_manifests(data / part);
      ASSERT_TRUE(loaded) << loaded.error().text();
      for (Json& object : *loaded) objects.push_back(std::move(object));
    }
    auto policy = parse_yaml(*read_file(data / "fleets/demo-policy.yaml"), "demo-policy.yaml");
    ASSERT_TRUE(policy) << policy.error().text();
    for (auto& document : *policy) {
      if (adjust_ && get_string(document.value, {"kind"}) == "ClusterPolicy") adjust_(document.value);
      objects.push_back(std::move(document.value));
    }
    auto applied = fleet::apply_all(loop_, *client_, objects);
    ASSERT_TRUE(applied) << applied.error().text();
  }
  void watch() {
    auto informer = [this](const kube::Resource& type, std::string ns) {
      kube::InformerOptions options;
      options.ns = std::move(ns);
      options.keep = {"*"};
      auto out = std::make_unique<kube::Informer>(*client_, type, std::move(options));
      out->start();
      return out;
    };
    policies_ = informer(kube::kClusterPolicies, "");
    nodes_ = informer(kube::kNodes, "");
    pods_ = informer(kube::kPods, "gpu-operator");
    deployments_ = informer(kube::kDeployments, "gpu-operator");
  }
  bool operator_available() const {
    const auto found = deployments_->get("gpu-operator/gpu-operator");
    return found && get_int(*found, {"status", "availableReplicas"}) > 0;
  }
  static fleet::Objects all(const kube::Informer& informer) {
    fleet::Objects out;
    informer.for_each([&](const auto& object) { out.push_back(object); });
    return out;
  }
};

}  // namespace gpuop
