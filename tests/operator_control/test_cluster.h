// The operator against the embedded API server, on a virtual clock; kubelets and DaemonSet controllers are
// played by hand.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/loop.h"
#include "base/text.h"
#include "cluster/apiserver/api_server.h"
#include "kube/client.h"
#include "kube/object.h"
#include "operator/controller.h"
#include "policy/crds.h"

namespace gpuop::op {

inline constexpr const char* kNs = "gpu-operator";

class Cluster {
 public:
  explicit Cluster(bool with_operator = true) {
    transport =
        kube::make_memory_transport(*loop, [this](HttpRequest request, std::shared_ptr<HttpResponder> out) {
          ++requests;
          if (request.method != "GET") ++writes;
          if (spy) spy(request);
          if (refuse) {
            if (auto answer = refuse(request)) return out->send(std::move(*answer));
          }
          server.handler()(std::move(request), std::move(out));
        });
    client = std::make_unique<kube::Client>(*loop, transport);
    must(kube::await(*loop, [&](auto done) {
      return client->create(kube::kNamespaces, "", *parse_json(R"({"metadata":{"name":"gpu-operator"}})"), {},
                            std::move(done));
    }));
    for (const auto& crd : policy::crds())
      must(kube::await(*loop, [&](auto done) {
        return client->create(kube::kCustomResourceDefinitions, "", crd, {}, std::move(done));
      }));
    loop->run_for(10ms);
    if (with_operator) start_operator();
  }

  static Json must(kube::ApiResult<> result) {
    if (result) return std::move(*result);
    ADD_FAILURE() << result.error().status << " " << result.error().message;
    return nullptr;
  }

  // `own`: the client that it uses; null: the test's.
  void start_operator(kube::Client* own = nullptr) {
    ControllerOptions options;
    options.ns = kNs;
    options.own_image = "ours:1";
    for (const char* name :
         {"VALIDATOR_IMAGE", "DRIVER_MANAGER_IMAGE", "CONTAINER_TOOLKIT_IMAGE", "DEVICE_PLUGIN_IMAGE",
          "GFD_IMAGE", "DCGM_EXPORTER_IMAGE", "MIG_MANAGER_IMAGE"}) {
      options.env[name] = "ours:1";
    }
    for (const auto& [name, value] : more_env) options.env[name] = value;
    options.assets = *load_assets(fs::path(SOURCE_ROOT) / "assets");
    controller = std::make_unique<Controller>(*loop, own ? *own : *client, std::move(options), metrics);
    controller->start_watching();
    controller->lead();
  }

  // A kind that takes every field.
  void define(const kube::Resource& type) {
    const std::string plural(type.plural), group(type.group), version(type.version), kind(type.kind);
    const Json crd =
        *parse_json(R"({"metadata":{"name":")" + plural + "." + group + R"("},"spec":{"group":")" + group +
                    R"(","scope":")" + (type.namespaced ? "Namespaced" : "Cluster") +
                    R"(","names":{"plural":")" + plural + R"(","singular":")" + to_lower(kind) +
                    R"(","kind":")" + kind + R"("},"versions":[{"name":")" + version +
                    R"(","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object",
        "x-kubernetes-preserve-unknown-fields":true}}}]}})");
    must(kube::await(*loop, [&](auto done) {
      return client->create(kube::kCustomResourceDefinitions, "", crd, {}, std::move(done));
    }));
    loop->run_for(50ms);
  }
  void create(const kube::Resource& type, const std::string& ns, const std::string& object) {
    Json body = *parse_json(object);
    set(body, {"apiVersion"}, type.api_version());
    set(body, {"kind"}, type.kind);
    must(kube::await(*loop, [&](auto done) { return client->create(type, ns, body, {}, std::move(done)); }));
  }

  void policy(const std::string& name, const std::string& spec = "") {
    const std::string text =
        R"({"apiVersion":"nvidia.com/v1","kind":"ClusterPolicy","metadata":{"name":")" + name +
        R"("},"spec":{"operator":{},"daemonsets":{},"driver":{"enabled":false},"toolkit":{},"devicePlugin":{},
        "dcgm":{"enabled":false},"dcgmExporter":{},"nodeStatusExporter":{},"gfd":{}}})";
    Json object = *parse_json(text);
    if (!spec.empty()) kube::merge_apply(*find_mutable(object, {"spec"}), *parse_json(spec));
    must(kube::await(*loop, [&](auto done) {
      return client->create(kube::kClusterPolicies, "", object, {}, std::move(done));
    }));
  }
  void node(const std::string& name, const std::string& labels) {
    const std::string text = R"({"metadata":{"name":")" + name + R"(","labels":{)" + labels + "}}}";
    must(kube::await(*loop, [&](auto done) {
      return client->create(kube::kNodes, "", *parse_json(text), {}, std::move(done));
    }));
  }
  void label(const std::string& name, const std::string& labels) {
    const Json patch = *parse_json(R"({"metadata":{"labels":{)" + labels + "}}}");
    must(kube::await(*loop, [&](auto done) {
      return client->patch(kube::kNodes, "", name, kube::Patch::kMerge, patch, {}, std::move(done));
    }));
  }
  void merge(const kube::Resource& type, const std::string& ns, const std::string& name,
             const std::string& patch, const std::string& subresource = "") {
    kube::WriteOptions options;
    options.subresource = subresource;
    must(kube::await(*loop, [&](auto done) {
      return client->patch(type, ns, name, kube::Patch::kMerge, *parse_json(patch), options, std::move(done));
    }));
  }
  void remove(const kube::Resource& type, const std::string& ns, const std::string& name) {
    must(kube::await(*loop, [&](auto done) { return client->remove(type, ns, name, {}, std::move(done)); }));
  }
  Json get(const kube::Resource& type, const std::string& ns, const std::string& name) {
    const auto result =
        kube::await(*loop, [&](auto done) { return client->get(type, ns, name, std::move(done)); });
    return result ? *result : Json(nullptr);
  }
  std::vector<std::string> names(const kube::Resource& type, const std::string& ns) {
    std::vector<std::string> out;
    const auto list =
        kube::await(*loop, [&](auto done) { return client->list(type, ns, {}, std::move(done)); });
    for (const auto& item : get_array(*list, {"items"})) out.emplace_back(kube::name_of(item));
    return out;
  }
  std::string state(const std::string& name) {
    return std::string(get_string(get(kube::kClusterPolicies, "", name), {"status", "state"}));
  }
  Json condition(const std::string& name, const std::string& type) {
    const Json object = get(kube::kClusterPolicies, "", name);
    const Json* found = kube::condition(object, type);
    return found ? *found : Json(nullptr);
  }
  Json node_condition(const std::string& name, const std::string& type) {
    const Json object = get(kube::kNodes, "", name);
    const Json* found = kube::condition(object, type);
    return found ? *found : Json(nullptr);
  }
  std::map<std::string, std::string> labels(const std::string& name) {
    std::map<std::string, std::string> out;
    const Json object = get(kube::kNodes, "", name);
    for (const auto& [key, value] : get_object(object, {"metadata", "labels"})) {
      if (std::string_view(key).starts_with("nvidia.com/"))
        out[std::string(key)] = std::string(as_text(value));
    }
    return out;
  }
  // "Kind name reason: message" of every event of a type.
  std::vector<std::string> events(const std::string& type) {
    std::vector<std::string> out;
    for (const char* ns : {kNs, "default"}) {
      const auto list =
          kube::await(*loop, [&](auto done) { return client->list(kube::kEvents, ns, {}, std::move(done)); });
      for (const auto& event : get_array(*list, {"items"})) {
        if (get_string(event, {"type"}) != type) continue;
        std::string line;
        for (const char* part : {"kind", "name"})
          line += std::string(get_string(event, {"involvedObject", part})) + " ";
        line +=
            std::string(get_string(event, {"reason"})) + ": " + std::string(get_string(event, {"message"}));
        out.push_back(std::move(line));
      }
    }
    return out;
  }
  // What the kubelet says of the node's GPUs.
  void devices(const std::string& name, const std::string& capacity, const std::string& allocatable) {
    merge(kube::kNodes, "", name,
          R"({"status":{"capacity":{)" + capacity + R"(},"allocatable":{)" + allocatable + "}}}", "status");
  }
  // A pod of an operand on a node, with this status; an existing one gets the status.
  void pod(const std::string& app, const std::string& node, const std::string& status) {
    const std::string name = app + "-" + node;
    if (get(kube::kPods, kNs, name).is_null()) {
      const std::string text = R"({"metadata":{"name":")" + name + R"(","labels":{"app":")" + app +
                               R"("}},"spec":{"nodeName":")" + node +
                               R"(","containers":[{"name":"c","image":"i"}]}})";
      Json made = *parse_json(text);
      if (const Json set = get(kube::kDaemonSets, kNs, app); !set.is_null())
        gpuop::set(made, {"metadata", "ownerReferences"},
                   JsonArray{JsonObject{{"apiVersion", "apps/v1"},
                                        {"kind", "DaemonSet"},
                                        {"name", app},
                                        {"uid", kube::uid_of(set)},
                                        {"controller", true}}});
      must(kube::await(
          *loop, [&](auto done) { return client->create(kube::kPods, kNs, made, {}, std::move(done)); }));
    }
    merge(kube::kPods, kNs, name, R"({"status":)" + status + "}", "status");
  }
  static constexpr const char* kRunning =
      R"({"phase":"Running","conditions":[{"type":"Ready","status":"True"}],"containerStatuses":null})";
  // Every DaemonSet has what it asks for, and every node's GPUs are allocatable and validated.
  void all_available() {
    for (const auto& name : names(kube::kNodes, "")) {
      devices(name, R"("nvidia.com/gpu":"8")", R"("nvidia.com/gpu":"8")");
      if (labels(name)["nvidia.com/gpu.present"] == "true") validated(name);
    }
    daemonsets_available();
  }
  void validated(const std::string& node) {
    label(node, R"("nvidia.com/gpu.product":"NVIDIA-L4")");
    for (const char* app : {"nvidia-operator-validator", "gpu-feature-discovery", "nvidia-dcgm-exporter"})
      pod(app, node, kRunning);
    const Json live = get(kube::kNodes, "", node);
    for (const auto& name : names(kube::kDaemonSets, kNs)) {
      const Json set = get(kube::kDaemonSets, kNs, name);
      const Json* made = find(set, {"spec", "template"});
      // Drivers' pods come of a revision.
      if (kube::label(*made, "app.kubernetes.io/component") != "nvidia-driver" &&
          kube::node_matches(live, *find(*made, {"spec"})))
        pod(name, node, kRunning);
    }
  }
  void daemonsets_available() {
    for (const auto& name : names(kube::kDaemonSets, kNs)) {
      const Json set = get(kube::kDaemonSets, kNs, name);
      const std::string generation = std::to_string(get_int(set, {"metadata", "generation"}));
      merge(
          kube::kDaemonSets, kNs, name,
          R"({"status":{"observedGeneration":)" + generation +
              R"(,"desiredNumberScheduled":1,"currentNumberScheduled":1,"numberReady":1,"updatedNumberScheduled":1,"numberAvailable":1,"numberMisscheduled":0}})",
          "status");
    }
    settle();
  }
  void settle() { loop->run_for(500ms); }

  std::unique_ptr<Loop> loop = Loop::make_virtual(*parse_time("2026-01-01T00:00:00Z"));
  cluster::ApiServer server{*loop};
  // Sees every request; may answer in the server's place.
  std::function<void(const HttpRequest&)> spy;
  std::function<std::optional<HttpResponse>(const HttpRequest&)> refuse;
  static HttpResponse status_answer(int code, const std::string& reason, const std::string& message) {
    const Json body = JsonObject{{"kind", "Status"},   {"apiVersion", "v1"}, {"status", "Failure"},
                                 {"message", message}, {"reason", reason},   {"code", code}};
    return HttpResponse::text(code, to_text(body), "application/json");
  }
  std::map<std::string, std::string> more_env;  // of the operator, when it starts
  int requests = 0;
  int writes = 0;
  std::shared_ptr<kube::Transport> transport;
  std::unique_ptr<kube::Client> client;
  Metrics metrics;
  std::unique_ptr<Controller> controller;
};

inline constexpr const char* kGpu =
    R"("feature.node.kubernetes.io/pci-10de.present":"true","feature.node.kubernetes.io/system-os_release.ID":"ubuntu",
       "feature.node.kubernetes.io/system-os_release.VERSION_ID":"24.04",
       "feature.node.kubernetes.io/kernel-version.full":"6.8.0-60-generic")";

}  // namespace gpuop::op
