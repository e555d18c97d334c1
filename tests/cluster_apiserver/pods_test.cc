#include "api.h"

namespace gpuop::cluster {
namespace {

constexpr std::string_view kPods = "/api/v1/namespaces/default/pods";

std::string pod(std::string_view resources) {
  return R"({"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"busybox:1.36","resources":)" +
         std::string(resources) + "}]}}";
}

TEST(cluster_apiserver, case34_extended_resources) {
  Api api;
  Reply half = api.post(kPods, pod(R"({"limits":{"nvidia.com/gpu":"0.5"}})"));
  EXPECT_EQ(half.status, 422);
  EXPECT_NE(text_at(half.body, {"message"}).find("must be an integer"), std::string::npos);
  Reply request_only = api.post(kPods, pod(R"({"requests":{"nvidia.com/gpu":1}})"));
  EXPECT_EQ(request_only.status, 422);
  EXPECT_NE(text_at(request_only.body, {"message"}).find("imit must be set for non overcommitable resources"),
            std::string::npos);
  EXPECT_EQ(api.post(kPods, pod(R"({"limits":{"nvidia.com/gpu":2},"requests":{"nvidia.com/gpu":1}})")).status,
            422);
  Reply copied = api.post(kPods, pod(R"({"limits":{"nvidia.com/gpu":2}})"));
  ASSERT_EQ(copied.status, 201);
  const Json& container = get_array(copied.body, {"spec", "containers"})[0];
  EXPECT_EQ(text_at(container, {"resources", "requests", "nvidia.com/gpu"}), "2");
}

TEST(cluster_apiserver, pods_are_admitted_as_on_a_real_server) {
  Api api;
  Reply made = api.post(kPods, pod("{}"));
  ASSERT_EQ(made.status, 201);
  const Json& spec = *find(made.body, {"spec"});
  EXPECT_EQ(text_at(spec, {"serviceAccountName"}), "default");
  EXPECT_EQ(get_int(spec, {"terminationGracePeriodSeconds"}), 30);
  EXPECT_EQ(text_at(spec, {"restartPolicy"}), "Always");
  EXPECT_EQ(get_array(spec, {"tolerations"}).size(), 2u);
  EXPECT_EQ(get_int(spec, {"priority"}, -1), 0);
  const Json& container = get_array(spec, {"containers"})[0];
  EXPECT_EQ(text_at(container, {"imagePullPolicy"}), "IfNotPresent");
  ASSERT_EQ(get_array(container, {"volumeMounts"}).size(), 1u);
  std::string volume = text_at(get_array(container, {"volumeMounts"})[0], {"name"});
  EXPECT_TRUE(volume.starts_with("kube-api-access-"));
  EXPECT_EQ(text_at(get_array(spec, {"volumes"})[0], {"name"}), volume);
  EXPECT_EQ(text_at(made.body, {"status", "phase"}), "Pending");
  EXPECT_EQ(text_at(made.body, {"status", "qosClass"}), "BestEffort");
  Reply missing = api.post(
      kPods,
      R"({"metadata":{"name":"q"},"spec":{"serviceAccountName":"nobody","containers":[{"name":"c","image":"i"}]}})");
  EXPECT_EQ(missing.status, 403);
  EXPECT_NE(text_at(missing.body, {"message"}).find("error looking up service account default/nobody"),
            std::string::npos);
  Reply runtime = api.post(
      kPods,
      R"({"metadata":{"name":"q"},"spec":{"runtimeClassName":"nvidia","containers":[{"name":"c","image":"i"}]}})");
  EXPECT_EQ(runtime.status, 403);
  Reply critical = api.post(
      kPods,
      R"({"metadata":{"name":"q"},"spec":{"priorityClassName":"system-node-critical","containers":[{"name":"c","image":"i"}]}})");
  EXPECT_EQ(get_int(critical.body, {"spec", "priority"}), 2000001000);
}

TEST(cluster_apiserver, pods_end_with_grace) {
  Api api;
  api.post(kPods, pod("{}"));
  EXPECT_EQ(api.post(str(kPods) + "/p/binding", R"({"target":{"name":"n"}})").status, 201);
  Reply first = api.del(str(kPods) + "/p");
  EXPECT_EQ(first.status, 200);
  EXPECT_EQ(get_int(first.body, {"metadata", "deletionGracePeriodSeconds"}), 30);
  EXPECT_EQ(text_at(first.body, {"metadata", "deletionTimestamp"}), "2025-01-01T00:00:30Z");
  Reply longer = api.del(str(kPods) + "/p", R"({"gracePeriodSeconds":60})");
  EXPECT_EQ(get_int(longer.body, {"metadata", "deletionGracePeriodSeconds"}), 30);
  EXPECT_EQ(api.get(str(kPods) + "/p").status, 200);
  std::string uid = text_at(first.body, {"metadata", "uid"});
  EXPECT_EQ(
      api.del(str(kPods) + "/p", R"({"gracePeriodSeconds":0,"preconditions":{"uid":")" + uid + "\"}}").status,
      200);
  EXPECT_EQ(api.get(str(kPods) + "/p").status, 404);
  api.post(kPods, pod("{}"));
  EXPECT_EQ(api.del(str(kPods) + "/p").status, 200);  // never assigned: gone at once
  EXPECT_EQ(api.get(str(kPods) + "/p").status, 404);
}

TEST(cluster_apiserver, pod_specs_hardly_change) {
  Api api;
  api.post(kPods, pod("{}"));
  EXPECT_EQ(api.patch(str(kPods) + "/p", R"({"spec":{"hostNetwork":true}})").status, 422);
  Reply image = api.patch(str(kPods) + "/p", R"({"spec":{"containers":[{"name":"c","image":"busybox:2"}]}})",
                          "strategic-merge-patch+json");
  EXPECT_EQ(image.status, 200);
  EXPECT_EQ(get_int(image.body, {"metadata", "generation"}), 2);
  Reply status = api.patch(str(kPods) + "/p/status", R"({"status":{"phase":"Running"}})");
  EXPECT_EQ(text_at(status.body, {"status", "phase"}), "Running");
  EXPECT_EQ(get_int(status.body, {"metadata", "generation"}), 2);
}

TEST(cluster_apiserver, case09_pod_table) {
  Api api;
  api.post(kPods, pod("{}"));
  api.post(str(kPods) + "/p/binding", R"({"target":{"name":"n1"}})");
  api.loop->run_for(10min);
  ASSERT_EQ(
      api.patch(
             str(kPods) + "/p/status",
             R"({"status":{"phase":"Running","podIP":"10.0.0.1","containerStatuses":[{"name":"c","ready":true,"restartCount":3,
"image":"i","imageID":"x","state":{"running":{"startedAt":"2025-01-01T00:05:00Z"}},"lastState":{"terminated":{"exitCode":1,"finishedAt":"2025-01-01T00:05:00Z"}}}]}})")
          .status,
      200);
  Reply reply = api.get(str(kPods) + "/p", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json");
  std::vector<std::string> names;
  for (const Json& column : get_array(reply.body, {"columnDefinitions"}))
    names.push_back(text_at(column, {"name"}));
  EXPECT_EQ(names, (std::vector<std::string>{"Name", "Ready", "Status", "Restarts", "Age", "IP", "Node",
                                             "Nominated Node", "Readiness Gates"}));
  std::vector<std::string> cells;
  for (const Json& cell : get_array(get_array(reply.body, {"rows"})[0], {"cells"}))
    cells.push_back(str(as_text(cell)));
  EXPECT_EQ(cells, (std::vector<std::string>{"p", "1/1", "Running", "3 (5m ago)", "10m", "10.0.0.1", "n1",
                                             "<none>", "<none>"}));
}

TEST(cluster_apiserver, case19_strategic_patch_of_containers) {
  Api api;
  std::string body =
      R"({"metadata":{"name":"d"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},
"spec":{"containers":[{"name":"c","image":"i"},{"name":"other","image":"o"}]}}}})";
  ASSERT_EQ(api.post("/apis/apps/v1/namespaces/default/daemonsets", body).status, 201);
  std::string patch = R"({"spec":{"template":{"spec":{"containers":[{"name":"c","image":"j"}]}}}})";
  Reply once =
      api.patch("/apis/apps/v1/namespaces/default/daemonsets/d", patch, "strategic-merge-patch+json");
  ASSERT_EQ(once.status, 200);
  const JsonArray& containers = get_array(once.body, {"spec", "template", "spec", "containers"});
  ASSERT_EQ(containers.size(), 2u);
  EXPECT_EQ(text_at(containers[0], {"image"}), "j");
  EXPECT_EQ(text_at(containers[1], {"image"}), "o");
  EXPECT_EQ(get_int(once.body, {"metadata", "generation"}), 2);
  Reply twice =
      api.patch("/apis/apps/v1/namespaces/default/daemonsets/d", patch, "strategic-merge-patch+json");
  EXPECT_EQ(text_at(twice.body, {"metadata", "resourceVersion"}),
            text_at(once.body, {"metadata", "resourceVersion"}));
  EXPECT_EQ(get_int(twice.body, {"metadata", "generation"}), 2);
}

TEST(cluster_apiserver, case28_eviction_within_budgets) {
  Api api;
  api.post(
      kPods,
      R"({"metadata":{"name":"p","labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}})");
  api.post(str(kPods) + "/p/binding", R"({"target":{"name":"n"}})");
  api.patch(str(kPods) + "/p/status", R"({"status":{"phase":"Running"}})");
  api.post("/apis/policy/v1/namespaces/default/poddisruptionbudgets",
           R"({"metadata":{"name":"b"},"spec":{"minAvailable":1,"selector":{"matchLabels":{"a":"b"}}}})");
  std::string status = "/apis/policy/v1/namespaces/default/poddisruptionbudgets/b/status";
  api.patch(
      status,
      R"({"status":{"observedGeneration":1,"disruptionsAllowed":0,"currentHealthy":1,"desiredHealthy":1,"expectedPods":1}})");
  std::string body =
      R"({"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"p","namespace":"default"}})";
  Reply no = api.post(str(kPods) + "/p/eviction", body);
  EXPECT_EQ(no.status, 429);
  EXPECT_EQ(text_at(get_array(no.body, {"details", "causes"})[0], {"reason"}), "DisruptionBudget");
  EXPECT_EQ(text_at(no.body, {"message"}),
            "Cannot evict pod as it would violate the pod's disruption budget.");
  api.patch(status, R"({"status":{"disruptionsAllowed":1}})");
  EXPECT_EQ(api.post(str(kPods) + "/p/eviction", body).status, 201);
  EXPECT_FALSE(text_at(api.get(str(kPods) + "/p").body, {"metadata", "deletionTimestamp"}).empty());
  EXPECT_EQ(api.post(str(kPods) + "/none/eviction", body).status, 400);  // another pod's
  EXPECT_EQ(api.post(str(kPods) + "/none/eviction", R"({"metadata":{"name":"none"}})").status, 404);
}

TEST(cluster_apiserver, tokens_are_bound_to_their_pod) {
  ApiServerOptions options;
  options.authorization = ApiServerOptions::Authorization::kRbac;
  options.tokens["root"] = {"root", "", {"system:masters"}};
  Api api(options);
  auto as_root = [&](std::string_view line, std::string body = {}) {
    HttpRequest request = Api::request(line, std::move(body));
    request.headers["Authorization"] = "Bearer root";
    return Api::reply_of(*api.send(std::move(request)));
  };
  ASSERT_EQ(as_root("POST " + str(kPods), pod("{}")).status, 201);
  Reply made = as_root("POST /api/v1/namespaces/default/serviceaccounts/default/token",
                       R"({"spec":{"boundObjectRef":{"kind":"Pod","name":"p"}}})");
  ASSERT_EQ(made.status, 201) << made.text;
  EXPECT_EQ(text_at(made.body, {"status", "expirationTimestamp"}), "2025-01-01T01:00:00Z");
  HttpRequest self = Api::request("POST /apis/authentication.k8s.io/v1/selfsubjectreviews", "{}");
  self.headers["Authorization"] = "Bearer " + text_at(made.body, {"status", "token"});
  Reply who = Api::reply_of(*api.send(self));
  EXPECT_EQ(text_at(who.body, {"status", "userInfo", "username"}), "system:serviceaccount:default:default");
  HttpRequest list = self;
  list.method = "GET";
  list.path = "/api/v1/namespaces/default/pods";
  Reply denied = Api::reply_of(*api.send(list));
  EXPECT_EQ(denied.status, 403);
  EXPECT_EQ(text_at(denied.body, {"message"}),
            "pods is forbidden: User \"system:serviceaccount:default:default\" cannot list resource \"pods\" "
            "in API group \"\" in the namespace \"default\"");
  ASSERT_EQ(
      as_root(
          "POST /apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings",
          R"({"metadata":{"name":"v"},"roleRef":{"kind":"ClusterRole","name":"view"},"subjects":[{"kind":"ServiceAccount","name":"default","namespace":"default"}]})")
          .status,
      201);
  EXPECT_EQ(Api::reply_of(*api.send(list)).status, 200);
  ASSERT_EQ(as_root("DELETE " + str(kPods) + "/p").status, 200);
  EXPECT_EQ(Api::reply_of(*api.send(list)).status, 401);
}

}  // namespace
}  // namespace gpuop::cluster
