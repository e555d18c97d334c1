// A hollow node on a virtual clock: TinyApi, recording runtime, kubelet.
#pragma once

#include <gtest/gtest.h>

#include "base/files.h"
#include "base/yaml.h"
#include "cluster/kubelet/kubelet.h"
#include "cluster/kubelet/recording_runtime.h"
#include "tiny_api.h"

namespace gpuop::cluster {

inline Json yaml(const std::string& text) {
  return parse_yaml_one(text, "test").value().value;
}

class Node {
 public:
  explicit Node(bool on_disk = false, Loop::Mode mode = Loop::Mode::kVirtual) {
    if (mode == Loop::Mode::kVirtual) {
      loop = Loop::make_virtual(parse_time("2026-01-02T03:04:05Z").value());
    } else {
      loop = std::make_unique<Loop>();
    }
    api = std::make_unique<TinyApi>(*loop);
    options.node_name = "n1";
    options.node_root = on_disk ? dir.path() : fs::path();
    options.serve_devices = options.serve_http = false;
    options.service_host = "10.96.0.1";
    runtime = std::make_unique<RecordingRuntime>(*loop);
    client = std::make_unique<kube::Client>(*loop, kube::make_memory_transport(*loop, api->handler()));
  }
  ~Node() {
    kubelet.reset();
    client.reset();
  }
  void start() {
    kubelet = std::move(Kubelet::create(*loop, *client, *runtime, options)).value();
    kubelet->start();
    settle();
  }
  void restart() {
    kubelet.reset();
    client = std::make_unique<kube::Client>(*loop, kube::make_memory_transport(*loop, api->handler()));
    start();
  }
  // Lets everything happen that needs no time.
  void settle() { loop->run_for(std::chrono::milliseconds(1)); }
  void pass(Duration span) { loop->run_for(span); }

  static std::string pod_path(const std::string& name) { return "/api/v1/namespaces/default/pods/" + name; }
  // `spec` in YAML; bound to the node.
  std::string add_pod(const std::string& name, const std::string& spec, Json metadata = JsonObject()) {
    Json pod = JsonObject{{"apiVersion", "v1"}, {"kind", "Pod"}, {"spec", yaml(spec)}};
    metadata.get_object()["name"] = name;
    metadata.get_object()["namespace"] = "default";
    gpuop::set(pod, {"metadata"}, std::move(metadata));
    gpuop::set(pod, {"spec", "nodeName"}, "n1");
    gpuop::set(pod, {"status", "phase"}, "Pending");
    api->put(pod_path(name), std::move(pod));
    settle();
    return str(get_string(pod_of(name), {"metadata", "uid"}));
  }
  const Json& pod_of(const std::string& name) const { return api->at(pod_path(name)); }
  std::string phase(const std::string& name) const {
    return str(get_string(pod_of(name), {"status", "phase"}));
  }
  // The status of a container, init or not.
  Json container(const std::string& pod, const std::string& name) const {
    for (const char* list : {"initContainerStatuses", "containerStatuses"}) {
      for (const Json& status : get_array(pod_of(pod), {"status", list})) {
        if (get_string(status, {"name"}) == name) return status;
      }
    }
    return nullptr;
  }
  std::string condition(const std::string& pod, const std::string& type) const {
    const Json* found = kube::condition(pod_of(pod), type);
    return found == nullptr ? "" : str(get_string(*found, {"status"}));
  }
  std::string waiting(const std::string& pod, const std::string& name) const {
    return str(get_string(container(pod, name), {"state", "waiting", "reason"}));
  }
  int restarts(const std::string& pod, const std::string& name) const {
    return static_cast<int>(get_int(container(pod, name), {"restartCount"}, -1));
  }
  int events(const std::string& reason) const {
    int count = 0;
    for (const Json& event : api->events) count += get_string(event, {"reason"}) == reason ? 1 : 0;
    return count;
  }
  std::string event_text(const std::string& reason) const {
    for (const Json& event : api->events) {
      if (get_string(event, {"reason"}) == reason) return str(get_string(event, {"message"}));
    }
    return {};
  }
  const Json& node() const { return api->at("/api/v1/nodes/n1"); }
  int calls(const std::string& prefix) const {
    return static_cast<int>(
        std::ranges::count_if(runtime->calls, [&](const auto& c) { return c.starts_with(prefix); }));
  }

  TempDir dir{"kubelet"};
  std::unique_ptr<Loop> loop;
  std::unique_ptr<TinyApi> api;
  std::unique_ptr<RecordingRuntime> runtime;
  std::unique_ptr<kube::Client> client;
  KubeletOptions options;
  std::unique_ptr<Kubelet> kubelet;
};

inline RecordingRuntime::Play lives(Duration span, int code) {
  RecordingRuntime::Play play;
  play.lives = span;
  play.exit_code = code;
  return play;
}

}  // namespace gpuop::cluster
