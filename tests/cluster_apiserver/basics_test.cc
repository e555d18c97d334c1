#include "api.h"

namespace gpuop::cluster {
namespace {

TEST(cluster_apiserver, case01_aggregated_discovery) {
  Api api;
  Reply reply =
      api.get("/api",
              "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json;"
              "g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json");
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.headers["Content-Type"],
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList");
  const Json& version = get_array(get_array(reply.body, {"items"})[0], {"versions"})[0];
  std::vector<std::string> subs;
  for (const Json& resource : get_array(version, {"resources"}))
    if (get_string(resource, {"resource"}) == "pods")
      for (const Json& sub : get_array(resource, {"subresources"}))
        subs.push_back(text_at(sub, {"subresource"}));
  for (std::string_view wanted : {"status", "log", "eviction", "exec", "binding"})
    EXPECT_NE(std::find(subs.begin(), subs.end(), wanted), subs.end()) << wanted;
}

TEST(cluster_apiserver, case02_legacy_discovery) {
  Api api;
  Reply reply = api.get("/api/v1", "application/json");
  EXPECT_EQ(text_at(reply.body, {"kind"}), "APIResourceList");
  bool found = false;
  for (const Json& resource : get_array(reply.body, {"resources"})) {
    if (get_string(resource, {"name"}) != "pods/eviction") continue;
    found = true;
    EXPECT_EQ(text_at(resource, {"group"}), "policy");
    EXPECT_EQ(text_at(resource, {"version"}), "v1");
    EXPECT_EQ(text_at(resource, {"kind"}), "Eviction");
    EXPECT_TRUE(get_bool(resource, {"namespaced"}));
    EXPECT_EQ(get_array(resource, {"verbs"}), JsonArray{"create"});
  }
  EXPECT_TRUE(found);
}

TEST(cluster_apiserver, case08_cbor_is_refused) {
  Api api;
  Reply reply = api.call("POST /api/v1/namespaces/default/configmaps", "x", "application/cbor");
  EXPECT_EQ(reply.status, 415);
  EXPECT_EQ(text_at(reply.body, {"reason"}), "UnsupportedMediaType");
  for (std::string_view media :
       {"application/json", "application/yaml", "application/vnd.kubernetes.protobuf"})
    EXPECT_NE(text_at(reply.body, {"message"}).find(media), std::string::npos);
}

TEST(cluster_apiserver, case11_pages_of_one_snapshot) {
  Api api;
  for (int i = 0; i < 4; ++i)
    ASSERT_EQ(api.post("/api/v1/namespaces/default/configmaps",
                       R"({"metadata":{"name":"c)" + std::to_string(i) + "\"}}")
                  .status,
              201);
  // kube-root-ca.crt is the fifth.
  Reply first = api.get("/api/v1/namespaces/default/configmaps?limit=2");
  EXPECT_EQ(get_array(first.body, {"items"}).size(), 2u);
  EXPECT_EQ(get_int(first.body, {"metadata", "remainingItemCount"}), 3);
  std::string token = url_encode(text_at(first.body, {"metadata", "continue"}));
  ASSERT_EQ(api.del("/api/v1/namespaces/default/configmaps/c2").status, 200);
  Reply second = api.get("/api/v1/namespaces/default/configmaps?limit=2&continue=" + token);
  ASSERT_EQ(get_array(second.body, {"items"}).size(), 2u);
  EXPECT_EQ(text_at(get_array(second.body, {"items"})[0], {"metadata", "name"}), "c2");
  EXPECT_EQ(text_at(second.body, {"metadata", "resourceVersion"}),
            text_at(first.body, {"metadata", "resourceVersion"}));
  api.server->compact();
  Reply gone = api.get("/api/v1/namespaces/default/configmaps?limit=2&continue=" + token);
  EXPECT_EQ(gone.status, 410);
  EXPECT_EQ(text_at(gone.body, {"reason"}), "Expired");
  std::string fresh = text_at(gone.body, {"metadata", "continue"});
  ASSERT_FALSE(fresh.empty());
  Reply rest = api.get("/api/v1/namespaces/default/configmaps?limit=5&continue=" + url_encode(fresh));
  EXPECT_EQ(get_array(rest.body, {"items"}).size(), 2u);
  EXPECT_EQ(api.get("/api/v1/configmaps?continue=nonsense").status, 400);
}

TEST(cluster_apiserver, case12_selectors) {
  Api api;
  api.post("/api/v1/namespaces/default/configmaps", R"({"metadata":{"name":"with","labels":{"a":"b"}}})");
  api.post("/api/v1/namespaces/default/configmaps", R"({"metadata":{"name":"other","labels":{"a":"c"}}})");
  Reply reply = api.get("/api/v1/namespaces/default/configmaps?labelSelector=a%20notin%20(b)");
  std::vector<std::string> names;
  for (const Json& item : get_array(reply.body, {"items"}))
    names.push_back(text_at(item, {"metadata", "name"}));
  EXPECT_EQ(names, (std::vector<std::string>{"kube-root-ca.crt", "other"}));
  Reply bad = api.get("/api/v1/pods?fieldSelector=spec.foo%3Dx");
  EXPECT_EQ(bad.status, 400);
  EXPECT_EQ(text_at(bad.body, {"message"}), "field label not supported: spec.foo");
}

TEST(cluster_apiserver, case17_conflicts) {
  Api api;
  ASSERT_EQ(api.post("/api/v1/nodes", R"({"metadata":{"name":"n1"}})").status, 201);
  Json node = api.get("/api/v1/nodes/n1").body;
  ASSERT_EQ(api.patch("/api/v1/nodes/n1", R"({"metadata":{"labels":{"a":"b"}}})").status, 200);
  Reply reply = api.put("/api/v1/nodes/n1", to_text(node));
  EXPECT_EQ(reply.status, 409);
  EXPECT_EQ(text_at(reply.body, {"reason"}), "Conflict");
  EXPECT_TRUE(text_at(reply.body, {"message"})
                  .ends_with("please apply your changes to the latest version and try again"));
}

TEST(cluster_apiserver, case18_json_patch) {
  Api api;
  api.post("/api/v1/nodes", R"({"metadata":{"name":"n1","labels":{"x":"y"}}})");
  EXPECT_EQ(api.patch("/api/v1/nodes/n1", R"([{"op":"test","path":"/metadata/name","value":"zz"}])",
                      "json-patch+json")
                .status,
            422);
  Reply reply = api.patch("/api/v1/nodes/n1", R"([{"op":"add","path":"/metadata/labels/a~1b","value":""}])",
                          "json-patch+json");
  EXPECT_EQ(reply.status, 200);
  EXPECT_TRUE(has(reply.body, {"metadata", "labels", "a/b"}));
}

TEST(cluster_apiserver, case23_dry_run) {
  Api api;
  std::uint64_t before = api.server->resource_version();
  Reply reply = api.post("/api/v1/namespaces/default/configmaps?dryRun=All", R"({"metadata":{"name":"x"}})");
  EXPECT_EQ(reply.status, 201);
  EXPECT_FALSE(text_at(reply.body, {"metadata", "uid"}).empty());
  EXPECT_EQ(api.server->resource_version(), before);
  EXPECT_EQ(api.get("/api/v1/namespaces/default/configmaps/x").status, 404);
  EXPECT_EQ(
      api.post("/api/v1/namespaces/default/configmaps?dryRun=foo", R"({"metadata":{"name":"x"}})").status,
      422);
}

TEST(cluster_apiserver, case24_names) {
  Api api;
  std::string first =
      text_at(api.post("/api/v1/namespaces/default/configmaps", R"({"metadata":{"generateName":"a-"}})").body,
              {"metadata", "name"});
  std::string second =
      text_at(api.post("/api/v1/namespaces/default/configmaps", R"({"metadata":{"generateName":"a-"}})").body,
              {"metadata", "name"});
  EXPECT_NE(first, second);
  for (const std::string& name : {first, second}) {
    ASSERT_EQ(name.size(), 7u);
    EXPECT_EQ(name.find_first_not_of("bcdfghjklmnpqrstvwxz2456789", 2), std::string::npos);
  }
  Reply bad = api.post("/api/v1/namespaces/default/configmaps", R"({"metadata":{"name":"A_b"}})");
  EXPECT_EQ(bad.status, 422);
  const Json& cause = get_array(bad.body, {"details", "causes"})[0];
  EXPECT_EQ(text_at(cause, {"reason"}), "FieldValueInvalid");
  EXPECT_EQ(text_at(cause, {"field"}), "metadata.name");
}

TEST(cluster_apiserver, case25_deletion_and_finalizers) {
  Api api;
  api.post("/api/v1/namespaces/default/configmaps",
           R"({"metadata":{"name":"x","finalizers":["example.com/f"]}})");
  EXPECT_EQ(api.del("/api/v1/namespaces/default/configmaps/x", R"({"preconditions":{"uid":"other"}})").status,
            409);
  auto watch = api.watch("/api/v1/namespaces/default/configmaps?watch=1&fieldSelector=metadata.name%3Dx");
  Reply deleted = api.del("/api/v1/namespaces/default/configmaps/x");
  EXPECT_EQ(deleted.status, 200);
  EXPECT_FALSE(text_at(deleted.body, {"metadata", "deletionTimestamp"}).empty());
  Reply more = api.patch("/api/v1/namespaces/default/configmaps/x",
                         R"({"metadata":{"finalizers":["example.com/f","example.com/g"]}})");
  EXPECT_EQ(more.status, 422);
  EXPECT_NE(
      text_at(more.body, {"message"}).find("no new finalizers can be added if the object is being deleted"),
      std::string::npos);
  EXPECT_EQ(
      api.patch("/api/v1/namespaces/default/configmaps/x", R"({"metadata":{"finalizers":null}})").status,
      200);
  EXPECT_EQ(api.get("/api/v1/namespaces/default/configmaps/x").status, 404);
  std::vector<Json> events = Api::events(*watch);
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(text_at(events[2], {"type"}), "DELETED");
}

TEST(cluster_apiserver, unknown_paths_and_methods) {
  Api api;
  Reply reply = api.get("/nothing/here");
  EXPECT_EQ(reply.status, 404);
  EXPECT_EQ(reply.text, "404 page not found\n");
  EXPECT_EQ(api.get("/apis/extensions/v1beta1").status, 404);
  EXPECT_EQ(api.get("/api/v1/watch/foos").status, 404);
  EXPECT_EQ(api.get("/api/v1/foos").status, 404);
  EXPECT_EQ(api.call("PUT /api/v1/namespaces/default/pods", "{}").status, 405);
  EXPECT_EQ(api.get("/api/v1/nodes/x/proxy/stats").status, 405);
  EXPECT_EQ(api.get("/readyz").text, "ok");
  EXPECT_EQ(text_at(api.get("/version").body, {"gitVersion"}), "v1.34.0");
}

TEST(cluster_apiserver, malformed_bodies) {
  Api api;
  EXPECT_EQ(api.post("/api/v1/namespaces/default/configmaps", "{").status, 400);
  EXPECT_EQ(api.post("/api/v1/namespaces/default/configmaps", "").status, 400);
  EXPECT_EQ(api.post("/api/v1/namespaces/default/configmaps", "[]").status, 400);
  EXPECT_EQ(api.call("POST /api/v1/namespaces/default/configmaps", "a: [", "application/yaml").status, 400);
  EXPECT_EQ(api.call("POST /api/v1/namespaces/default/configmaps", std::string("k8s\0\xff\xff", 6),
                     "application/vnd.kubernetes.protobuf")
                .status,
            400);
  Reply wrong = api.post("/apis/apps/v1/namespaces/default/deployments",
                         R"({"metadata":{"name":"d"},"spec":{"replicas":"x"}})");
  EXPECT_EQ(wrong.status, 400);
  EXPECT_NE(text_at(wrong.body, {"message"}).find("json: cannot unmarshal string into Go struct field"),
            std::string::npos);
  Reply big = api.post("/api/v1/namespaces/default/configmaps", std::string(3145729, ' '));
  EXPECT_EQ(big.status, 413);
  Reply nowhere = api.post("/api/v1/namespaces/none/configmaps", R"({"metadata":{"name":"x"}})");
  EXPECT_EQ(nowhere.status, 404);
  EXPECT_EQ(text_at(nowhere.body, {"message"}), "namespaces \"none\" not found");
}

TEST(cluster_apiserver, case50_namespaces_end_when_finalized) {
  Api api;
  ASSERT_EQ(api.post("/api/v1/namespaces", R"({"metadata":{"name":"x"}})").status, 201);
  ASSERT_EQ(api.post("/api/v1/namespaces/x/configmaps",
                     R"({"metadata":{"name":"c","finalizers":["example.com/f"]}})")
                .status,
            201);
  Reply deleted = api.del("/api/v1/namespaces/x");
  EXPECT_EQ(text_at(deleted.body, {"status", "phase"}), "Terminating");
  Reply late = api.post("/api/v1/namespaces/x/configmaps", R"({"metadata":{"name":"d"}})");
  EXPECT_EQ(late.status, 403);
  EXPECT_EQ(text_at(get_array(late.body, {"details", "causes"})[0], {"reason"}), "NamespaceTerminating");
  Json ns = api.get("/api/v1/namespaces/x").body;
  set(ns, {"spec"}, JsonObject());
  EXPECT_EQ(api.put("/api/v1/namespaces/x/finalize", to_text(ns)).status, 200);
  EXPECT_EQ(api.get("/api/v1/namespaces/x").status, 404);
  EXPECT_EQ(api.del("/api/v1/namespaces/kube-system").status, 403);
}

TEST(cluster_apiserver, answers_that_cannot_be_read) {
  Api api;
  HttpRequest request =
      Api::request("POST /api/v1/namespaces/default/configmaps", R"({"metadata":{"name":"x"}})");
  request.headers["Accept"] = "application/vnd.kubernetes.protobuf";
  EXPECT_EQ(Api::reply_of(*api.send(request)).status, 406);
  EXPECT_EQ(api.get("/api/v1/namespaces/default/configmaps/x").status, 404);
  request.headers["Accept"] = "application/json;as=Nonsense;v=v1;g=meta.k8s.io";
  EXPECT_EQ(Api::reply_of(*api.send(request)).status, 406);
  request.headers["Accept"] = "application/vnd.kubernetes.protobuf,application/json";
  EXPECT_EQ(Api::reply_of(*api.send(request)).status, 201);
}

TEST(cluster_apiserver, numbers_beyond_all_clocks) {
  Api api;
  auto watch = api.watch("/api/v1/pods?watch=1&timeoutSeconds=9223372036854775807");
  api.loop->run_for(48h);
  EXPECT_TRUE(watch->ended);
  api.post(
      "/api/v1/namespaces/default/pods",
      R"({"metadata":{"name":"p"},"spec":{"terminationGracePeriodSeconds":9223372036854775807,"containers":[{"name":"c","image":"i"}]}})");
  api.post("/api/v1/namespaces/default/pods/p/binding", R"({"target":{"name":"n"}})");
  EXPECT_EQ(api.del("/api/v1/namespaces/default/pods/p").status, 200);
  EXPECT_EQ(api.post("/api/v1/namespaces/default/serviceaccounts/default/token",
                     R"({"spec":{"expirationSeconds":9223372036854775807}})")
                .status,
            422);
}

TEST(cluster_apiserver, events_live_for_an_hour) {
  Api api;
  auto event = [](std::string_view name, std::string_view last) {
    return R"({"metadata":{"name":")" + str(name) +
           R"("},"involvedObject":{"kind":"Pod","namespace":"default","name":"p"},"lastTimestamp":")" +
           str(last) + R"(","message":"m"})";
  };
  std::string path = "/api/v1/namespaces/default/events";
  ASSERT_EQ(api.post(path, event("old", "2025-01-01T00:00:00Z")).status, 201);
  ASSERT_EQ(api.post(path, event("renewed", "2025-01-01T00:00:00Z")).status, 201);
  Reply newer = api.get("/apis/events.k8s.io/v1/namespaces/default/events/old");
  EXPECT_EQ(text_at(newer.body, {"regarding", "name"}), "p");
  EXPECT_EQ(text_at(newer.body, {"note"}), "m");
  api.loop->run_for(50min);
  ASSERT_EQ(api.patch(path + "/renewed", R"({"lastTimestamp":"2025-01-01T00:50:00Z","count":2})").status,
            200);
  api.loop->run_for(15min);
  ASSERT_EQ(api.post(path, event("new", "2025-01-01T01:05:00Z")).status, 201);
  EXPECT_EQ(api.get(path + "/old").status, 404);
  EXPECT_EQ(api.get(path + "/renewed").status, 200);
  EXPECT_NE(api.get("/metrics").text.find("apiserver_storage_objects{resource=\"events\"} 2"),
            std::string::npos);
}

TEST(cluster_apiserver, no_change_writes_nothing) {
  Api api;
  Reply made =
      api.post("/api/v1/namespaces/default/configmaps", R"({"metadata":{"name":"x"},"data":{"a":"b"}})");
  Reply again = api.patch("/api/v1/namespaces/default/configmaps/x", R"({"data":{"a":"b"}})");
  EXPECT_EQ(again.status, 200);
  EXPECT_EQ(text_at(again.body, {"metadata", "resourceVersion"}),
            text_at(made.body, {"metadata", "resourceVersion"}));
}

}  // namespace
}  // namespace gpuop::cluster
