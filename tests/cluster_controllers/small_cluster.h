// The API server and the controllers in one thread, on a virtual clock; nodes and kubelets are played by the
// test.
#pragma once

#include <gtest/gtest.h>

#include "base/json.h"
#include "base/yaml.h"
#include "cluster/apiserver/api_server.h"
#include "cluster/controllers/controllers.h"
#include "kube/client.h"
#include "kube/informer.h"
#include "kube/object.h"

namespace gpuop::cluster::test {

struct SmallCluster {
  std::unique_ptr<Loop> loop = Loop::make_virtual(*parse_time("2026-01-02T03:04:05Z"));
  ApiServer server{*loop, {.seed = 7}};
  std::shared_ptr<kube::Transport> transport = kube::make_memory_transport(*loop, server.handler());
  kube::Client user{*loop, transport, {.user_agent = "test"}};
  kube::Client client{*loop, transport, {.user_agent = "controllers"}};
  std::unique_ptr<Controllers> controllers = start_controllers(*loop, client);
  kube::Informer pods{user, kube::kPods, {.keep = {"*"}}};
  bool kubelet = false;  // bound pods become ready at once, deleted ones go at once

  SmallCluster() {
    pods.on_change([this](const auto&, const auto& now) {
      if (now && kubelet) play_kubelet(*now);
    });
    pods.start();
    settle();
    EXPECT_TRUE(controllers->synced());
  }

  // Everything that can happen without time passing, and a little time.
  void settle(Duration span = 100ms) { loop->run_for(span); }

  static Json yaml(std::string_view text) {
    auto document = parse_yaml_one(text, "test");
    EXPECT_TRUE(document) << document.error().text();
    return document ? document->value : Json();
  }

  Json create(const kube::Resource& type, const std::string& ns, Json object) {
    object.as_object()["apiVersion"] = type.api_version();
    object.as_object()["kind"] = type.kind;
    const auto result =
        kube::await(*loop, [&](auto done) { return user.create(type, ns, object, {}, done); });
    EXPECT_TRUE(result) << result.error().message;
    return result.value_or(Json());
  }
  template <class Text>
    requires std::is_convertible_v<Text, std::string_view>
  Json create(const kube::Resource& type, const std::string& ns, const Text& text) {
    return create(type, ns, yaml(text));
  }
  std::optional<Json> get(const kube::Resource& type, const std::string& ns, const std::string& name) {
    auto result = kube::await(*loop, [&](auto done) { return user.get(type, ns, name, done); });
    return result ? std::optional(*result) : std::nullopt;
  }
  JsonArray list(const kube::Resource& type, const std::string& ns, const std::string& labels = "") {
    const auto result =
        kube::await(*loop, [&](auto done) { return user.list(type, ns, {.label_selector = labels}, done); });
    EXPECT_TRUE(result) << result.error().message;
    return result ? get_array(*result, {"items"}) : JsonArray();
  }
  void merge(const kube::Resource& type, const std::string& ns, const std::string& name,
             std::string_view patch, const std::string& sub = "") {
    const auto body = parse_json(patch);
    ASSERT_TRUE(body) << body.error().text();
    const auto result = kube::await(*loop, [&](auto done) {
      return user.patch(type, ns, name, kube::Patch::kMerge, *body, {.subresource = sub}, done);
    });
    EXPECT_TRUE(result) << result.error().message;
  }
  void remove(const kube::Resource& type, const std::string& ns, const std::string& name,
              kube::DeleteOptions options = {}) {
    const auto result =
        kube::await(*loop, [&](auto done) { return user.remove(type, ns, name, options, done); });
    EXPECT_TRUE(result) << result.error().message;
  }

  void add_node(const std::string& name, const std::string& labels = "{}", const std::string& gpus = "") {
    Json node = *parse_json(R"({"metadata":{"name":")" + name + R"(","labels":)" + labels + "}}");
    create(kube::kNodes, "", node);
    const std::string extended = gpus.empty() ? "" : R"(,"nvidia.com/gpu":")" + gpus + "\"";
    const std::string amounts = R"({"cpu":"4","memory":"8Gi","pods":"110")" + extended + "}";
    merge(kube::kNodes, "", name,
          R"({"status":{"capacity":)" + amounts + R"(,"allocatable":)" + amounts +
              R"(,"conditions":[{"type":"Ready","status":"True","reason":"KubeletReady"}]}})",
          "status");
  }

  void set_pod_status(const Json& pod, const std::string& status) {
    const auto body = parse_json(R"({"status":)" + status + "}");
    user.patch(kube::kPods, kube::namespace_of(pod), kube::name_of(pod), kube::Patch::kStrategic, *body,
               {.subresource = "status"}, [](kube::ApiResult<>) {})
        .detach();
  }
  void make_ready(const Json& pod) {
    const std::string now = format_time(loop->now());
    set_pod_status(
        pod, R"({"phase":"Running","conditions":[{"type":"Ready","status":"True","lastTransitionTime":")" +
                 now + "\"}]}");
  }

  void play_kubelet(const Json& pod) {
    if (get_string(pod, {"spec", "nodeName"}).empty()) return;
    if (!get_string(pod, {"metadata", "deletionTimestamp"}).empty()) {
      user.remove(kube::kPods, kube::namespace_of(pod), kube::name_of(pod),
                  {.grace_seconds = 0, .precondition_uid = str(kube::uid_of(pod))}, [](kube::ApiResult<>) {})
          .detach();
    } else if (get_string(pod, {"status", "phase"}) == "Pending" ||
               get_string(pod, {"status", "phase"}).empty()) {
      make_ready(pod);
    }
  }

  int count(const kube::Resource& type, const std::string& ns, const std::string& labels = "") {
    return static_cast<int>(list(type, ns, labels).size());
  }
};

constexpr std::string_view kDaemonSet = R"(
metadata: {name: d, namespace: default}
spec:
  selector: {matchLabels: {app: d}}
  template:
    metadata: {labels: {app: d}}
    spec:
      nodeSelector: {gpu: "yes"}
      containers: [{name: c, image: i}]
)";

}  // namespace gpuop::cluster::test
