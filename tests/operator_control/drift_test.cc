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
    apply(with_image(image), manager);
  }
  void apply(const std::string& text, const std::string& manager) {
    kube::ClientOptions options;
    options.field_manager = manager;
    kube::Client other(*loop, transport, options);
    Json body = *parse_json(text);
    set(body, {"apiVersion"}, "apps/v1");
    set(body, {"kind"}, "DaemonSet");
    set(body, {"metadata", "name"}, kSet);
    kube::WriteOptions write;
    write.force = true;
    must(kube::await(*loop, [&](auto done) {
      return other.patch(kube::kDaemonSets, kNs, kSet, kube::Patch::kApply, body, write, done);
    }));
  }
  std::vector<std::string> told(const std::string& reason = "ChangePutBack") {
    std::vector<std::string> out;
    for (const std::string& event : events("Warning"))
      if (const auto at = event.find(" " + reason + ": "); at != std::string::npos)
        out.push_back(event.substr(0, event.find(' ')) + " " + event.substr(at + reason.size() + 3));
    return out;
  }
  // As `kubectl edit` does it: as a field manager of this name.
  void edit(const std::string& patch, const std::string& manager = "kubectl-edit",
            const kube::Resource& type = kube::kDaemonSets, const std::string& name = kSet) {
    kube::ClientOptions options;
    options.field_manager = manager;
    kube::Client other(*loop, transport, options);
    must(kube::await(*loop, [&](auto done) {
      return other.patch(type, type.namespaced ? kNs : "", name, kube::Patch::kMerge, *parse_json(patch), {},
                         done);
    }));
  }
  // What the DaemonSet controller does after an edit that leaves `desired` nodes.
  void scheduled(int desired) {
    const std::string generation =
        std::to_string(get_int(get(kube::kDaemonSets, kNs, kSet), {"metadata", "generation"}));
    const std::string count = std::to_string(desired);
    merge(kube::kDaemonSets, kNs, kSet,
          R"({"status":{"observedGeneration":)" + generation + R"(,"desiredNumberScheduled":)" + count +
              R"(,"currentNumberScheduled":)" + count + R"(,"numberReady":)" + count +
              R"(,"updatedNumberScheduled":)" + count + R"(,"numberAvailable":)" + count + "}}",
          "status");
    settle();
  }
  Json spec() { return *find(get(kube::kDaemonSets, kNs, kSet), {"spec"}); }
  std::string advice() { return str(get_string(condition("p", "Advice"), {"message"})); }
};

TEST(operator_drift, another_managers_edit_is_put_back_and_named) {
  Drift c;
  c.apply_image("theirs:1", "argocd");
  c.settle();
  EXPECT_EQ(c.image(), "ours:1");
  const std::string what =
      "spec.template.spec.containers[nvidia-dcgm-exporter].image was changed by field manager 'argocd' and "
      "put "
      "back";
  ASSERT_EQ(c.told().size(), 1u);
  EXPECT_EQ(c.told()[0], "DaemonSet " + what + ": change ClusterPolicy 'p' instead");
  c.all_available();
  EXPECT_EQ(c.state("p"), "ready");
  c.loop->run_for(10s);
  const std::string advice = c.advice();
  EXPECT_TRUE(advice.starts_with("DaemonSet 'nvidia-dcgm-exporter': " + what + " at 2026-01-01T00:00:"))
      << advice;
  EXPECT_TRUE(advice.ends_with(": change ClusterPolicy 'p' instead")) << advice;
}

// What was put back is told until the object is next written for another reason, by whichever operator leads;
// and costs nothing.
TEST(operator_drift, what_was_put_back_is_told_until_the_next_real_change) {
  Drift c;
  c.apply_image("theirs:1", "argocd");
  c.settle();
  c.all_available();
  c.loop->run_for(10s);
  const std::string advice = c.advice();
  ASSERT_NE(advice, "");
  const int writes = c.writes;
  c.loop->run_for(12h);
  c.controller.reset();
  c.start_operator();
  c.loop->run_for(1h);
  EXPECT_EQ(c.advice(), advice);
  EXPECT_EQ(c.writes, writes);
  // An edit that does not concern the object is no change of it.
  c.merge(kube::kClusterPolicies, "", "p", R"({"spec":{"toolkit":{"env":[{"name":"A","value":"1"}]}}})");
  c.all_available();
  c.loop->run_for(10s);
  EXPECT_EQ(c.advice(), advice);
  c.merge(kube::kClusterPolicies, "", "p", R"({"spec":{"dcgmExporter":{"env":[{"name":"A","value":"1"}]}}})");
  c.settle();
  c.all_available();
  c.loop->run_for(10s);
  EXPECT_EQ(c.advice(), "");
}

TEST(operator_drift, what_was_put_back_is_told_of_its_own_policy_alone) {
  Drift c;
  c.apply_image("theirs:1", "argocd");
  c.settle();
  ASSERT_NE(c.advice(), "");
  c.remove(kube::kClusterPolicies, "", "p");
  for (const auto& name : c.names(kube::kDaemonSets, kNs)) c.remove(kube::kDaemonSets, kNs, name);
  c.settle();
  c.policy("q");
  c.settle();
  c.all_available();
  c.loop->run_for(10s);
  EXPECT_TRUE(c.condition("q", "Advice").is_null()) << to_text(c.condition("q", "Advice"));
  // The objects of a policy that a collector did not get to are the next one's, and what was of them is past.
  c.apply_image("theirs:1", "argocd");
  c.loop->run_for(10s);
  ASSERT_NE(str(get_string(c.condition("q", "Advice"), {"message"})), "");
  c.remove(kube::kClusterPolicies, "", "q");
  c.policy("r");
  c.loop->run_for(10s);
  c.all_available();
  c.loop->run_for(10s);
  EXPECT_TRUE(c.condition("r", "Advice").is_null()) << to_text(c.condition("r", "Advice"));
}

// A pass that could not look says nothing new.
TEST(operator_drift, advice_stays_when_nobody_could_look) {
  Drift c;
  c.apply_image("theirs:1", "argocd");
  c.settle();
  c.all_available();
  c.loop->run_for(10s);
  const std::string advice = c.advice();
  ASSERT_NE(advice, "");
  c.controller.reset();
  c.refuse = [](const HttpRequest& request) -> std::optional<HttpResponse> {
    if (request.path != "/version") return std::nullopt;
    return Cluster::status_answer(500, "InternalError", "etcd is away");
  };
  c.start_operator();
  c.loop->run_for(1min);
  EXPECT_EQ(c.state("p"), "notReady");
  EXPECT_EQ(c.advice(), advice);
}

// The second edit within ten minutes is another one: its fields, its manager, until when it stays.
TEST(operator_drift, a_second_edit_is_told_for_what_it_is) {
  Drift c;
  c.apply_image("theirs:1", "argocd");
  c.settle();
  const std::string first = c.advice();
  c.edit(R"({"spec":{"template":{"spec":{"priorityClassName":"low"}}}})", "helm");
  c.settle();
  EXPECT_EQ(get_string(c.spec(), {"template", "spec", "priorityClassName"}), "low");
  ASSERT_EQ(c.told("ChangeStaysForNow").size(), 1u);
  const std::string words = c.told("ChangeStaysForNow")[0];
  EXPECT_TRUE(
      words.starts_with("DaemonSet spec.template.spec.priorityClassName was changed by field manager "
                        "'helm' and stays so until 2026-01-01T00:1"))
      << words;
  EXPECT_TRUE(words.ends_with("when it is put back: change ClusterPolicy 'p' instead")) << words;
  c.loop->run_for(10s);
  EXPECT_NE(c.advice(), first);
  EXPECT_EQ(c.advice(), "DaemonSet 'nvidia-dcgm-exporter': " + words.substr(10));
  // A status that changes is no further edit.
  c.daemonsets_available();
  EXPECT_EQ(c.told("ChangeStaysForNow").size(), 1u);
  // A third one is.
  c.edit(R"({"spec":{"template":{"spec":{"hostNetwork":true}}}})", "kubectl-edit");
  c.settle();
  EXPECT_EQ(c.told("ChangeStaysForNow").size(), 2u);
  c.loop->run_for(10min);
  EXPECT_EQ(get_string(c.spec(), {"template", "spec", "priorityClassName"}), "system-node-critical");
  EXPECT_FALSE(get_bool(c.spec(), {"template", "spec", "hostNetwork"}));
  EXPECT_EQ(c.told().size(), 2u);
}

TEST(operator_drift, a_restart_keeps_the_ten_minutes) {
  Drift c;
  c.apply_image("theirs:1", "argocd");
  c.settle();
  ASSERT_EQ(c.image(), "ours:1");
  c.apply_image("theirs:2", "argocd");
  c.settle();
  c.controller.reset();
  c.start_operator();
  c.loop->run_for(5min);
  EXPECT_EQ(c.image(), "theirs:2");
  c.loop->run_for(5min);
  EXPECT_EQ(c.image(), "ours:1");
}

// Where pods run is the operator's to say, whether the policy sets a field or not.
TEST(operator_drift, what_others_add_to_the_pods_is_put_back) {
  Drift c;
  const Json before = c.spec();
  const auto last = [&] {
    const Json set = c.get(kube::kDaemonSets, kNs, kSet);
    return str(kube::annotation(set, kPutBackAnnotation));
  };
  for (
      const char* field :
      {R"("nodeSelector":{"disk":"ssd"})", R"("nodeSelector":{"disk":""})",
       R"("affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"x","operator":"Exists"}]}]}}})",
       R"("tolerations":null)", R"("schedulerName":"mine")", R"("hostPID":true)",
       R"("priorityClassName":"low")", R"("runtimeClassName":"runc")", R"("nodeName":"n2")",
       R"("hostUsers":false)",
       R"("topologySpreadConstraints":[{"maxSkew":1,"topologyKey":"a","whenUnsatisfiable":"DoNotSchedule"}])",
       R"("imagePullSecrets":[{"name":"x"}])", R"("securityContext":{"runAsUser":1})",
       R"("terminationGracePeriodSeconds":1)"}) {
    c.edit(R"({"spec":{"template":{"spec":{)" + std::string(field) + "}}}}");
    c.settle();
    EXPECT_EQ(to_canonical_text(c.spec()), to_canonical_text(before)) << field;
    // What is taken away is nobody's any more.
    const std::string who =
        std::string(field).ends_with("null") ? "another client" : "field manager 'kubectl-edit'";
    EXPECT_TRUE(last().ends_with("was changed by " + who)) << last();
    const std::string name(field + 1, std::string_view(field).find('"', 1) - 1);
    EXPECT_NE(last().find(" spec.template.spec." + name), std::string::npos) << last();
    c.loop->run_for(kPutBackGap);
  }
  c.edit(R"({"spec":{"minReadySeconds":3600,"updateStrategy":{"type":"OnDelete","rollingUpdate":null}}})");
  c.settle();
  EXPECT_EQ(to_canonical_text(c.spec()), to_canonical_text(before));
}

// Two who apply one object each have their own fields of it.
TEST(operator_drift, what_another_manager_applies_beside_ours_stays) {
  Drift c;
  const auto grace = [&c] {
    return get_int(c.spec(), {"template", "spec", "terminationGracePeriodSeconds"});
  };
  const auto version = [&c] {
    return str(get_string(c.get(kube::kDaemonSets, kNs, kSet), {"metadata", "resourceVersion"}));
  };
  for (const int seconds : {31, 32}) {
    c.apply(
        R"({"spec":{"template":{"spec":{"terminationGracePeriodSeconds":)" + std::to_string(seconds) + "}}}}",
        "team-a");
    const std::string applied = version();
    c.settle();
    c.loop->run_for(2 * kPutBackGap);
    EXPECT_EQ(grace(), seconds);
    EXPECT_EQ(version(), applied);
  }
  EXPECT_TRUE(c.told().empty());
  // But not what takes an operand from its nodes, nor what we say ourselves.
  c.apply(R"({"spec":{"template":{"spec":{"nodeSelector":{"disk":"ssd"}}}}})", "team-a");
  c.settle();
  EXPECT_FALSE(has(c.spec(), {"template", "spec", "nodeSelector", "disk"}));
  EXPECT_EQ(c.told().size(), 1u);
}

TEST(operator_drift, a_runtime_class_that_chooses_nodes_is_put_back) {
  Drift c;
  c.edit(R"({"scheduling":{"nodeSelector":{"disk":"ssd"}}})", "kubectl-edit", kube::kRuntimeClasses,
         "nvidia");
  c.settle();
  EXPECT_FALSE(has(c.get(kube::kRuntimeClasses, "", "nvidia"), {"scheduling"}));
  ASSERT_EQ(c.told().size(), 1u);
  EXPECT_TRUE(c.told()[0].starts_with("RuntimeClass scheduling was changed by field manager 'kubectl-edit'"))
      << c.told()[0];
}

TEST(operator_drift, labels_and_the_hash_come_back) {
  Drift c;
  const Json before = c.get(kube::kDaemonSets, kNs, kSet);
  for (const char* metadata :
       {R"("labels":{"app":null})", R"("labels":{"app":"other"})",
        R"("annotations":{"nvidia.com/last-applied-hash":null})",
        R"("annotations":{"nvidia.com/last-applied-hash":"1"})", R"("ownerReferences":null)"}) {
    c.edit(R"({"metadata":{)" + std::string(metadata) + "}}");
    c.settle();
    const Json now = c.get(kube::kDaemonSets, kNs, kSet);
    EXPECT_EQ(to_canonical_text(*find(now, {"metadata", "labels"})),
              to_canonical_text(*find(before, {"metadata", "labels"})))
        << metadata;
    EXPECT_EQ(kube::annotation(now, kHashAnnotation), kube::annotation(before, kHashAnnotation)) << metadata;
    EXPECT_NE(kube::controller_of(now), nullptr) << metadata;
    EXPECT_FALSE(c.told().empty()) << metadata;
    EXPECT_EQ(c.state("p"), "ready") << metadata;
    // Within the ten minutes it stays, and the policy is no less ready for a hash.
    c.edit(R"({"metadata":{)" + std::string(metadata) + "}}");
    c.settle();
    EXPECT_FALSE(c.told("ChangeStaysForNow").empty()) << metadata;
    EXPECT_EQ(c.state("p"), "ready") << metadata;
    c.loop->run_for(kPutBackGap);
    EXPECT_EQ(to_canonical_text(*find(c.get(kube::kDaemonSets, kNs, kSet), {"metadata", "labels"})),
              to_canonical_text(*find(before, {"metadata", "labels"})))
        << metadata;
    c.loop->run_for(kPutBackGap);
  }
}

// The first edit is put back; the second keeps the operand off its nodes for up to ten minutes.
TEST(operator_drift, a_policy_whose_operand_is_kept_off_its_nodes_is_not_ready_and_says_why) {
  Drift c;
  for (int i = 0; i < 2; ++i) {
    c.edit(R"({"spec":{"template":{"spec":{"nodeSelector":{"disk":"ssd"}}}}})");
    c.settle();
  }
  ASSERT_TRUE(has(c.spec(), {"template", "spec", "nodeSelector", "disk"}));
  c.scheduled(0);
  c.loop->run_for(20s);
  EXPECT_EQ(c.state("p"), "notReady");
  const std::string error = str(get_string(c.condition("p", "Error"), {"message"}));
  EXPECT_NE(error.find("state-dcgm-exporter: DaemonSet nvidia-dcgm-exporter leaves out nodes that it is for: "
                       "spec.template.spec.nodeSelector.disk is not as the operator set it"),
            std::string::npos)
      << error;
  c.loop->run_for(10min);
  c.all_available();
  c.loop->run_for(20s);
  EXPECT_EQ(c.state("p"), "ready");
}

TEST(operator_drift, an_operand_without_a_pod_on_its_nodes_is_not_ready) {
  Drift c;
  c.scheduled(0);
  c.loop->run_for(20s);
  EXPECT_EQ(c.state("p"), "notReady");
  EXPECT_NE(str(get_string(c.condition("p", "Error"), {"message"}))
                .find("DaemonSet nvidia-dcgm-exporter has no pod yet on the nodes that it is for"),
            std::string::npos);
  // Nobody is kept off a node that does not want it, or that nobody may run on.
  c.label("n1", R"("nvidia.com/gpu.deploy.dcgm-exporter":"false")");
  c.settle();
  EXPECT_EQ(c.state("p"), "ready");
  c.label("n1", R"("nvidia.com/gpu.deploy.dcgm-exporter":"true")");
  c.merge(kube::kNodes, "", "n1", R"({"spec":{"taints":[{"key":"x","effect":"NoSchedule"}]}})");
  c.loop->run_for(20s);
  EXPECT_EQ(c.state("p"), "ready");
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
      EXPECT_NE(c.advice().find("and stays so until"), std::string::npos) << c.advice();
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

TEST(operator_drift, labels_and_annotations_that_others_add_stay) {
  Drift c;
  const int writes = c.writes;
  c.merge(kube::kDaemonSets, kNs, kSet,
          R"({"metadata":{"labels":{"team":"x"}},"spec":{"template":{
              "metadata":{"annotations":{"kubectl.kubernetes.io/restartedAt":"now"}}}}})");
  c.daemonsets_available();
  const int own = c.writes;
  c.loop->run_for(20min);
  EXPECT_EQ(c.writes, own);
  EXPECT_GT(own, writes);
  EXPECT_TRUE(c.told().empty());
  // Also when something else is put back: else pods would restart once more.
  c.set_image("theirs:1");
  c.settle();
  EXPECT_EQ(c.image(), "ours:1");
  const Json set = c.get(kube::kDaemonSets, kNs, kSet);
  EXPECT_EQ(kube::label(set, "team"), "x");
  EXPECT_EQ(
      get_string(set, {"spec", "template", "metadata", "annotations", "kubectl.kubernetes.io/restartedAt"}),
      "now");
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

TEST(operator_drift, what_the_api_server_fills_in_is_no_difference) {
  const Json wanted = *parse_json(R"({"kind":"DaemonSet","spec":{"selector":{},"template":{"spec":{
      "serviceAccountName":"a","hostNetwork":true,"containers":[{"name":"c","image":"a","ports":[{"containerPort":80}],
      "livenessProbe":{"httpGet":{"port":80}}}],"volumes":[{"name":"h","hostPath":{"path":"/"}},
      {"name":"m","configMap":{"name":"m"}},{"name":"e","emptyDir":{}}]}}}})");
  Json live = *parse_json(R"({"kind":"DaemonSet","spec":{"revisionHistoryLimit":10,"selector":{},
      "updateStrategy":{"type":"RollingUpdate","rollingUpdate":{"maxSurge":0,"maxUnavailable":1}},
      "template":{"metadata":{"creationTimestamp":null},"spec":{"serviceAccountName":"a","serviceAccount":"a",
      "hostNetwork":true,"dnsPolicy":"ClusterFirst","restartPolicy":"Always","schedulerName":"default-scheduler",
      "securityContext":{},"terminationGracePeriodSeconds":30,"containers":[{"name":"c","image":"a",
      "imagePullPolicy":"IfNotPresent","resources":{},"terminationMessagePath":"/dev/termination-log",
      "terminationMessagePolicy":"File","ports":[{"containerPort":80,"hostPort":80,"protocol":"TCP"}],
      "livenessProbe":{"httpGet":{"port":80,"path":"/","scheme":"HTTP"},"failureThreshold":3,"periodSeconds":10,
      "successThreshold":1,"timeoutSeconds":1}}],"volumes":[{"name":"h","hostPath":{"path":"/","type":""}},
      {"name":"m","configMap":{"name":"m","defaultMode":420}},{"name":"e","emptyDir":{}}]}}}})");
  EXPECT_EQ(texts(differences(live, wanted)), std::vector<std::string>());
  set(live, {"spec", "updateStrategy", "rollingUpdate", "maxUnavailable"}, "100%");
  set(live, {"spec", "template", "spec", "dnsPolicy"}, "Default");
  set(find_mutable(live, {"spec", "template", "spec", "containers"})->as_array()[0], {"ports"},
      *parse_json(R"([{"containerPort":80,"hostPort":81,"protocol":"TCP"}])"));
  EXPECT_EQ(texts(differences(live, wanted)),
            (std::vector<std::string>{"spec.updateStrategy", "spec.template.spec.dnsPolicy",
                                      "spec.template.spec.containers[c].ports[0].hostPort"}));
  EXPECT_TRUE(of_placement(differences(live, wanted)).empty());
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
