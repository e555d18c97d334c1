#include "explain.h"

#include <algorithm>
#include <chrono>

#include "base/http.h"
#include "base/text.h"
#include "fleet/faults.h"
#include "kube/object.h"

namespace gpuop {
namespace {

class Explainer {
 public:
  Explainer(Loop& loop, kube::Client& client, const std::string& ns)
      : loop_(loop), client_(client), ns_(ns) {}

  Result<std::string> log(const fleet::LogRef& from, int lines) {
    HttpRequest request;
    request.path = kube::kPods.path(ns_, from.pod, "log");
    request.query = build_query({{"tailLines", std::to_string(lines)}, {"container", from.container}});
    if (from.previous) request.query += "&previous=true";
    const auto answer = kube::await_raw(loop_, [&](const auto& done) { return client_.raw(request, done); });
    if (!answer) return fail(answer.error().error("read the log of pod '" + from.pod + "'"));
    return answer->body;
  }

  // The newest warning about a pod; "" when there is none.
  std::string warning_of(const std::string& pod) {
    kube::ListOptions options;
    options.field_selector = "involvedObject.name=" + pod;
    const auto list =
        kube::await(loop_, [&](const auto& done) { return client_.list(kube::kEvents, ns_, options, done); });
    std::string message;
    std::string_view newest;
    if (!list) return message;
    for (const auto& event : get_array(*list, {"items"})) {
      if (get_string(event, {"type"}) != "Warning") continue;
      const auto at =
          get_string(event, {"lastTimestamp"}, get_string(event, {"metadata", "creationTimestamp"}));
      if (at < newest) continue;
      newest = at;
      message =
          std::string(get_string(event, {"reason"})) + ": " + std::string(get_string(event, {"message"}));
    }
    return message;
  }

  void stage(fleet::Stage& stage) {
    if (stage.log) {
      auto text = log(*stage.log, 20);
      // The kubelet may have taken the container away, and its log with it.
      const std::string words = text ? fleet::last_words(*text) : std::string();
      if (!words.empty()) stage.detail += ": " + words;
    } else if (!stage.pod.empty() && stage.state == fleet::StageState::kWorking) {
      if (const std::string words = warning_of(stage.pod); !words.empty()) stage.detail += ": " + words;
    }
  }

  void plugin(fleet::NodeChain& node) {
    auto text = log({node.plugin_pod, "nvidia-device-plugin", false}, 400);
    if (!text) {
      node.warnings.push_back(text.error().text());
      return;
    }
    for (std::string& fault : fleet::plugin_faults(*text)) node.warnings.push_back(std::move(fault));
  }

 private:
  Loop& loop_;
  kube::Client& client_;
  const std::string& ns_;
};

}  // namespace

void explain(Loop& loop, kube::Client& client, const std::string& ns, const ClusterWatch& cluster,
             fleet::ClusterChain& chain) {
  Explainer explainer(loop, client, ns);
  for (auto& node : chain.nodes) {
    if (const auto* broken = node.first_broken()) {
      const auto at = std::ranges::find(node.stages, broken->name, &fleet::Stage::name);
      explainer.stage(*at);
    }
    if (!node.plugin_pod.empty()) explainer.plugin(node);
  }
  chain.operator_fault = cluster.operator_fault(std::chrono::system_clock::now());
}

}  // namespace gpuop
