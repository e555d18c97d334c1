// The promise: from a pod bound to its node to its container started, the kubelet itself takes a few
// milliseconds, with volumes really written and an API server (in memory) that answers at once.
#include <benchmark/benchmark.h>

#include "base/files.h"
#include "cluster/apiserver/api_server.h"
#include "cluster/kubelet/kubelet.h"
#include "cluster/kubelet/recording_runtime.h"
#include "kube/client.h"

namespace {

using namespace gpuop;
using namespace gpuop::cluster;

Json pod(const std::string& name) {
  auto parsed =
      parse_json(R"({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": ")" + name + R"("}, "spec": {
    "nodeName": "n1", "terminationGracePeriodSeconds": 0,
    "volumes": [{"name": "c", "configMap": {"name": "kube-root-ca.crt"}}, {"name": "h", "hostPath": {"path": "/run"}},
                {"name": "e", "emptyDir": {}}],
    "containers": [{"name": "c", "image": "a:1", "volumeMounts": [{"name": "c", "mountPath": "/c"},
      {"name": "h", "mountPath": "/h"}, {"name": "e", "mountPath": "/e"}]}]}})");
  return std::move(*parsed);
}

void bound_to_started(benchmark::State& state) {
  Loop loop;
  TempDir dir("bench");
  ApiServer server(loop, {.ca_pem = "CA"});
  kube::Client client(loop, kube::make_memory_transport(loop, server.handler()));
  RecordingRuntime runtime(loop);
  KubeletOptions options;
  options.node_name = "n1";
  options.node_root = dir.path();
  options.serve_devices = options.serve_http = false;
  auto kubelet = Kubelet::create(loop, client, runtime, options);
  if (!kubelet) return state.SkipWithError(kubelet.error().text().c_str());
  (*kubelet)->start();
  loop.run_for(std::chrono::milliseconds(200));
  int number = 0;
  for (auto _ : state) {
    const std::string name = "p" + std::to_string(number++);
    client.create(kube::kPods, "default", pod(name), {}, [](const kube::ApiResult<>&) {}).detach();
    if (!loop.run_until([&] { return runtime.specs.size() == 1; }, std::chrono::seconds(5))) {
      return state.SkipWithError("the container did not start");
    }
    state.PauseTiming();
    client.remove(kube::kPods, "default", name, {}, [](const kube::ApiResult<>&) {}).detach();
    loop.run_until([&] { return (*kubelet)->pods() == 0; }, std::chrono::seconds(5));
    runtime.specs.clear();
    runtime.calls.clear();
    state.ResumeTiming();
  }
}
BENCHMARK(bound_to_started)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace
