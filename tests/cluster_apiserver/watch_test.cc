#include "api.h"

namespace gpuop::cluster {
namespace {

constexpr std::string_view kMaps = "/api/v1/namespaces/default/configmaps";

std::string map_named(std::string_view name, std::string_view label = "b") {
  return R"({"metadata":{"name":")" + std::string(name) + R"(","labels":{"a":")" + std::string(label) +
         R"("}}})";
}

TEST(cluster_apiserver, case13_watch_after_compaction) {
  Api api;
  for (int i = 0; i < 60; ++i) api.post(kMaps, map_named("c" + std::to_string(i)));
  api.server->compact();
  auto watch = api.watch(str(kMaps) + "?watch=1&resourceVersion=5");
  EXPECT_EQ(watch->answer.status, 200);
  EXPECT_TRUE(watch->ended);
  std::vector<Json> events = Api::events(*watch);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(text_at(events[0], {"type"}), "ERROR");
  EXPECT_EQ(get_int(events[0], {"object", "code"}), 410);
  EXPECT_EQ(text_at(events[0], {"object", "reason"}), "Expired");
}

TEST(cluster_apiserver, case14_watch_with_selector) {
  Api api;
  api.post(kMaps, map_named("x"));
  std::string version = std::to_string(api.server->resource_version());
  auto watch = api.watch(str(kMaps) + "?watch=1&labelSelector=a%3Db&resourceVersion=" + version);
  api.patch(str(kMaps) + "/x", R"({"metadata":{"labels":{"a":"c"}}})");
  api.patch(str(kMaps) + "/x", R"({"data":{"k":"v"}})");  // not seen: it does not match
  api.patch(str(kMaps) + "/x", R"({"metadata":{"labels":{"a":"b"}}})");
  std::vector<Json> events = Api::events(*watch);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(text_at(events[0], {"type"}), "DELETED");
  EXPECT_EQ(text_at(events[0], {"object", "metadata", "labels", "a"}), "b");
  EXPECT_GT(std::stoi(text_at(events[0], {"object", "metadata", "resourceVersion"})), std::stoi(version));
  EXPECT_EQ(text_at(events[1], {"type"}), "ADDED");
}

TEST(cluster_apiserver, case15_initial_events) {
  Api api;
  for (std::string_view name : {"p1", "p2", "p3"}) {
    std::string pod = replace_all(std::string(kPodBody), "p1", name);
    ASSERT_EQ(api.post("/api/v1/namespaces/default/pods", pod).status, 201);
  }
  std::string query = "?watch=1&sendInitialEvents=true&allowWatchBookmarks=true";
  auto watch = api.watch("/api/v1/pods" + query + "&resourceVersionMatch=NotOlderThan");
  std::vector<Json> events = Api::events(*watch);
  ASSERT_EQ(events.size(), 4u);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(text_at(events[static_cast<std::size_t>(i)], {"type"}), "ADDED");
  EXPECT_EQ(text_at(events[3], {"type"}), "BOOKMARK");
  EXPECT_EQ(text_at(events[3], {"object", "metadata", "annotations", "k8s.io/initial-events-end"}), "true");
  EXPECT_EQ(text_at(events[3], {"object", "kind"}), "Pod");
  EXPECT_EQ(text_at(events[3], {"object", "metadata", "resourceVersion"}),
            std::to_string(api.server->resource_version()));
  api.del("/api/v1/namespaces/default/pods/p2");
  events = Api::events(*watch);
  ASSERT_EQ(events.size(), 5u);
  EXPECT_EQ(text_at(events[4], {"type"}), "DELETED");
  Reply without = api.get("/api/v1/pods" + query);
  EXPECT_EQ(without.status, 422);
  EXPECT_NE(text_at(without.body, {"message"}).find("sendInitialEvents requires"), std::string::npos);
}

TEST(cluster_apiserver, case16_timeout_and_bookmarks) {
  Api api;
  auto plain = api.watch(str(kMaps) + "?watch=1&timeoutSeconds=300");
  auto marked = api.watch(str(kMaps) + "?watch=1&timeoutSeconds=300&allowWatchBookmarks=true");
  auto brief = api.watch(str(kMaps) + "?watch=1&timeoutSeconds=2");
  api.loop->run_for(1900ms);
  EXPECT_FALSE(brief->ended);
  api.loop->run_for(200ms);
  EXPECT_TRUE(brief->ended);
  EXPECT_FALSE(brief->aborted);
  api.loop->run_for(90s);
  auto count = [](const Recorder& watch) {
    int marks = 0;
    for (const Json& event : Api::events(watch)) marks += text_at(event, {"type"}) == "BOOKMARK" ? 1 : 0;
    return marks;
  };
  EXPECT_EQ(count(*plain), 0);
  EXPECT_EQ(count(*marked), 1);
  api.loop->run_for(300s);
  EXPECT_TRUE(marked->ended);
  EXPECT_EQ(api.server->watch_count(), 0u);
}

TEST(cluster_apiserver, watch_replays_and_follows) {
  Api api;
  std::string version = std::to_string(api.server->resource_version());
  api.post(kMaps, map_named("x"));
  auto watch = api.watch(str(kMaps) + "?watch=true&resourceVersion=" + version);
  api.patch(str(kMaps) + "/x", R"({"data":{"k":"v"}})");
  api.post("/api/v1/namespaces/kube-system/configmaps", map_named("elsewhere"));
  std::vector<Json> events = Api::events(*watch);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(text_at(events[0], {"type"}), "ADDED");
  EXPECT_EQ(text_at(events[1], {"type"}), "MODIFIED");
  watch->close();
  EXPECT_EQ(api.server->watch_count(), 0u);
}

TEST(cluster_apiserver, watch_of_one_nodes_pods) {
  Api api;
  auto watch = api.watch("/api/v1/pods?watch=1&fieldSelector=spec.nodeName%3Dn1");
  ASSERT_EQ(api.post("/api/v1/namespaces/default/pods", std::string(kPodBody)).status, 201);
  EXPECT_EQ(Api::events(*watch).size(), 0u);
  ASSERT_EQ(
      api.post("/api/v1/namespaces/default/pods/p1/binding", R"({"target":{"kind":"Node","name":"n1"}})")
          .status,
      201);
  std::vector<Json> events = Api::events(*watch);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(text_at(events[0], {"type"}), "ADDED");
  EXPECT_EQ(api.post("/api/v1/namespaces/default/pods/p1/binding", R"({"target":{"name":"n2"}})").status,
            409);
}

TEST(cluster_apiserver, watch_of_metadata_and_tables) {
  Api api;
  HttpRequest request = Api::request("GET " + str(kMaps) + "?watch=1&fieldSelector=metadata.name%3Dx");
  request.headers["Accept"] = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
  auto metadata = api.send(request);
  request.headers["Accept"] = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
  auto table = api.send(request);
  api.post(kMaps, map_named("x"));
  api.patch(str(kMaps) + "/x", R"({"data":{"k":"v"}})");
  std::vector<Json> events = Api::events(*metadata);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(text_at(events[1], {"object", "kind"}), "PartialObjectMetadata");
  EXPECT_FALSE(has(events[1], {"object", "data"}));
  events = Api::events(*table);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(get_array(events[0], {"object", "columnDefinitions"}).size(), 3u);
  EXPECT_EQ(get_array(get_array(events[1], {"object", "rows"})[0], {"cells"})[1], Json(1));
}

TEST(cluster_apiserver, versions_from_the_future_time_out) {
  Api api;
  auto list = api.send(Api::request("GET " + str(kMaps) + "?resourceVersion=99999"));
  EXPECT_FALSE(list->ended);
  api.loop->run_for(4s);
  ASSERT_TRUE(list->ended);
  Reply reply = Api::reply_of(*list);
  EXPECT_EQ(reply.status, 504);
  EXPECT_EQ(text_at(get_array(reply.body, {"details", "causes"})[0], {"reason"}), "ResourceVersionTooLarge");
  EXPECT_EQ(get_int(reply.body, {"details", "retryAfterSeconds"}), 1);
}

}  // namespace
}  // namespace gpuop::cluster
