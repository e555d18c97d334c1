// What others change of the operator's objects: put back once, then left alone for ten minutes, with a word
// on who it was; and what only looks like a change is left as it is (operator.md §3.2, ours).
#include "operator/drift.h"

#include "base/text.h"
#include "operator/apply.h"
#include "test_cluster.h"

namespace gpuop::op {
namespace {

constexpr const char* kSet = "nvidia-dcgm-exporter";

struct Drift : Cluster {
  Drift() {
    node("n1", kGpu);
    policy("p");
    settle();
    all_available();
    loop->run_for(2s);
  }
  std::string image() {
    const Json set = get(kube::kDaemonSets, kNs, kSet);
    return str(get_string(get_array(set, {"spec", "template", "spec", "containers"}).at(0), {"image"}));
  }
  static std::string with_image(const std::string& image) {
    return R"({"spec":{"template":{"spec":{"containers":[{"name":"nvidia-dcgm-exporter","image":")" + image +
           R"("}]}}}})";
  }
  // As `kubectl set image` does it.
  void set_image(const std::string& image) {
    must(kube::await(*loop, [&](auto done) {
      return client->patch(kube::kDaemonSets, kNs, kSet, kube::Patch::kStrategic,
                           *parse_json(with_image(image)), {}, done);
    }));
  }
  // As `kubectl apply --server-side --force-conflicts` does it.
  void apply_image(const std::string& image, const std::string& manager) {
    kube::ClientOptions options;
    options.field_manager = manager;
    kube::Client other(*loop, transport, options);
    Json body = *parse_json(with_image(image));
    set(body, {"apiVersion"}, "apps/v1");
    set(body, {"kind"}, "DaemonSet");
    set(body, {"metadata", "name"}, kSet);
    kube::WriteOptions write;
    write.force = true;
    must(kube::await(*loop, [&](auto done) {
      return other.patch(kube::kDaemonSets, kNs, kSet, kube::Patch::kApply, body, write, done);
    }));
  }
  std::vector<std::string> told() {
    std::vector<std::string> out;
    for (const char* ns : {kNs, "default"}) {
      const auto list =
          kube::await(*loop, [&](auto done) { return client->list(kube::kEvents, ns, {}, done); });
      for (const auto& event : get_array(*list, {"items"}))
        if (get_string(event, {"reason"}) == "ChangePutBack")
          out.push_back(str(get_string(event, {"involvedObject", "kind"})) + " " +
                        str(get_string(event, {"message"})));
    }
    return out;
  }
  std::string advice() { return str(get_string(condition("p", "Advice"), {"message"})); }
};

TEST(operator_drift, another_managers_edit_is_put_back_and_named) {
  Drift c;
  c.apply_image("theirs:1", "argocd");
  c.settle();
  EXPECT_EQ(c.image(), "ours:1");
  const std::string words =
      "spec.template.spec.containers[nvidia-dcgm-exporter].image was changed by field manager 'argocd' and "
      "put back: "
      "change ClusterPolicy 'p' instead (another change is put back after 2026-01-01T00:10:";
  ASSERT_EQ(c.told().size(), 1u);
  EXPECT_TRUE(c.told()[0].starts_with("DaemonSet " + words)) << c.told()[0];
  EXPECT_TRUE(c.advice().starts_with("DaemonSet 'nvidia-dcgm-exporter': " + words)) << c.advice();
  c.all_available();
  EXPECT_EQ(c.state("p"), "ready");
  // The advice ends with the ten minutes, and nothing else is written.
  c.loop->run_for(9min);
  const int writes = c.writes;
  c.loop->run_for(1min);
  EXPECT_EQ(c.advice(), "");
  EXPECT_EQ(c.writes, writes + 1);
  c.loop->run_for(1h);
  EXPECT_EQ(c.writes, writes + 1);
}

TEST(operator_drift, nobody_fights) {
  Drift c;
  int edits = 0;
  for (int i = 0; i < 60; ++i) {
    if (c.image() != "theirs:1") {
      c.set_image("theirs:1");
      ++edits;
    }
    c.loop->run_for(30s);
    if (i == 1) {
      EXPECT_NE(c.advice().find("it was changed again, and stays so until then"), std::string::npos)
          << c.advice();
    }
  }
  EXPECT_LE(edits, 4) << "in half an hour";
  EXPECT_GE(edits, 3);
  ASSERT_FALSE(c.told().empty());
  EXPECT_NE(c.told()[0].find("was changed by another client and put back"), std::string::npos) << c.told()[0];
  // What is wanted now is never held back.
  c.merge(kube::kClusterPolicies, "", "p",
          R"({"spec":{"dcgmExporter":{"repository":"r","image":"i","version":"2"}}})");
  c.settle();
  EXPECT_EQ(c.image(), "r/i:2");
}

TEST(operator_drift, other_kinds_too) {
  Drift c;
  const Json before = c.get(kube::kConfigMaps, kNs, "default-gpu-clients");
  const auto data = [&] { return *find(c.get(kube::kConfigMaps, kNs, "default-gpu-clients"), {"data"}); };
  for (int i = 0; i < 3; ++i) {
    c.merge(kube::kConfigMaps, kNs, "default-gpu-clients",
            R"({"data":{"clients.yaml":"theirs","more":"x"}})");
    c.settle();
    EXPECT_EQ(data() == *find(before, {"data"}), i == 0) << i;
  }
  c.loop->run_for(10min);
  EXPECT_TRUE(data() == *find(before, {"data"}));
  ASSERT_FALSE(c.told().empty());
  EXPECT_TRUE(c.told()[0].starts_with("ConfigMap data.clients.yaml, data.more was changed by "))
      << c.told()[0];
}

TEST(operator_drift, what_others_add_stays) {
  Drift c;
  const int writes = c.writes;
  c.merge(kube::kDaemonSets, kNs, kSet,
          R"({"metadata":{"labels":{"team":"x"}},"spec":{"template":{"spec":{"shareProcessNamespace":true},
              "metadata":{"annotations":{"kubectl.kubernetes.io/restartedAt":"now"}}}}})");
  c.daemonsets_available();
  const int own = c.writes;
  c.loop->run_for(20min);
  EXPECT_EQ(c.writes, own);
  EXPECT_GT(own, writes);
  EXPECT_TRUE(c.told().empty());
}

TEST(operator_drift, an_edit_while_the_operator_was_away_is_found) {
  Drift c;
  c.controller.reset();
  c.apply_image("theirs:1", "kubectl");
  c.start_operator();
  c.settle();
  EXPECT_EQ(c.image(), "ours:1");
  EXPECT_EQ(c.told().size(), 1u);
}

TEST(operator_drift, a_restart_finds_nothing_and_asks_nothing) {
  Drift c;
  c.controller.reset();
  const int writes = c.writes;
  int gets = 0;
  c.spy = [&](const HttpRequest& request) {
    gets += request.method == "GET" && request.path.find("/daemonsets/") != std::string::npos;
  };
  c.start_operator();
  c.loop->run_for(1min);
  EXPECT_EQ(c.writes, writes);
  EXPECT_EQ(gets, 0);
}

// A webhook that rewrites images, as registries' mirrors have it.
TEST(operator_drift, what_a_webhook_makes_of_our_objects_is_no_change) {
  Cluster c(false);
  const auto rewrite = [&](HttpRequest& request) {
    if (request.method == "GET" || request.path.find("/daemonsets") == std::string::npos ||
        request.path.ends_with("/status"))
      return;
    request.body = replace_all(request.body, "\"image\":\"ours:1\"", "\"image\":\"mirror/ours:1\"");
  };
  auto mirrored =
      kube::make_memory_transport(*c.loop, [&](HttpRequest request, std::shared_ptr<HttpResponder> out) {
        rewrite(request);
        ++c.requests;
        if (request.method != "GET") ++c.writes;
        c.server.handler()(std::move(request), std::move(out));
      });
  kube::Client through(*c.loop, mirrored);
  c.start_operator(&through);
  c.node("n1", kGpu);
  c.policy("p");
  c.settle();
  c.all_available();
  c.loop->run_for(10s);
  const auto image = [&] {
    const Json set = c.get(kube::kDaemonSets, kNs, kSet);
    return str(get_string(get_array(set, {"spec", "template", "spec", "containers"}).at(0), {"image"}));
  };
  EXPECT_EQ(image(), "mirror/ours:1");
  int writes = c.writes;
  c.loop->run_for(30min);
  EXPECT_EQ(c.writes, writes);
  // A restart does not know of the webhook: it looks, and leaves it.
  c.controller.reset();
  c.start_operator(&through);
  c.loop->run_for(30min);
  EXPECT_EQ(c.writes, writes);
  EXPECT_EQ(c.state("p"), "ready");
}

std::vector<std::string> texts(const std::vector<Difference>& found) {
  std::vector<std::string> out;
  for (const auto& one : found) out.push_back(one.text());
  return out;
}

TEST(operator_drift, differences_are_named_and_attributed) {
  const Json wanted = *parse_json(R"({"kind":"DaemonSet","spec":{"template":{"spec":{"containers":[
      {"name":"c","image":"a","env":[{"name":"X","value":"1"}]}],"hostPID":true,"tolerations":[]}}}})");
  Json live = *parse_json(R"({"kind":"DaemonSet","metadata":{"managedFields":[
      {"manager":"gpu-operator","fieldsV1":{"f:spec":{"f:template":{"f:spec":{"f:hostPID":{}}}}}},
      {"manager":"kubectl-edit","fieldsV1":{"f:spec":{"f:template":{"f:spec":{"f:containers":{
        "k:{\"name\":\"other\"}":{"f:image":{}},"k:{\"name\":\"c\"}":{".":{},"f:env":{"k:{\"name\":\"X\"}":{"f:value":{}}}}}}}}}},
      {"manager":"patcher","fieldsV1":{"f:metadata":{"f:annotations":{"f:spec":{}}}}}]},
    "spec":{"template":{"spec":{"containers":[{"name":"c","image":"a","imagePullPolicy":"Always",
      "env":[{"name":"X","value":"2"}]}],"dnsPolicy":"ClusterFirst"}}}})");
  auto found = differences(live, wanted);
  EXPECT_EQ(texts(found), (std::vector<std::string>{"spec.template.spec.containers[c].env[X].value",
                                                    "spec.template.spec.hostPID"}));
  EXPECT_EQ(found[0].live, "\"2\"");
  EXPECT_EQ(found[1].live, "");
  EXPECT_EQ(managers_of(live, found, "gpu-operator"), std::vector<std::string>{"kubectl-edit"});
  EXPECT_EQ(managers_of(live, {found[1]}, "gpu-operator"), std::vector<std::string>{});
  remove(live, {"metadata", "managedFields"});
  EXPECT_EQ(managers_of(live, found, "gpu-operator"), std::nullopt);
  EXPECT_TRUE(differences(wanted, wanted).empty());
}

TEST(operator_drift, what_is_owned_whole_differs_by_additions_too) {
  const Json wanted =
      *parse_json(R"({"kind":"Role","rules":[{"verbs":["get"],"resources":["pods"]}],"data":{"a":"1"}})");
  const Json live = *parse_json(
      R"({"kind":"Role","rules":[{"verbs":["get"],"resources":["pods"],"nonResourceURLs":["/x"]}],"data":{"a":"1","b":"2"}})");
  EXPECT_EQ(texts(differences(live, wanted)),
            (std::vector<std::string>{"data.b", "rules[0].nonResourceURLs"}));
  EXPECT_EQ(fields_text(differences(live, wanted)), "data.b, rules[0].nonResourceURLs");
}

}  // namespace
}  // namespace gpuop::op
