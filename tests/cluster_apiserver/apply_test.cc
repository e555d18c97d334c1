#include "api.h"

namespace gpuop::cluster {
namespace {

constexpr std::string_view kMap = "/api/v1/namespaces/default/configmaps/m";

std::string map_with(std::string_view data) {
  return R"({"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m"},"data":)" + std::string(data) + "}";
}

Reply apply(Api& api, std::string_view path, std::string body, std::string_view manager, bool force = false) {
  return api.patch(str(path) + "?fieldManager=" + str(manager) + (force ? "&force=true" : "&force=false"),
                   std::move(body), "apply-patch+yaml");
}

std::vector<std::string> owned(const Json& object, std::string_view manager) {
  std::vector<std::string> keys;
  for (const Json& entry : get_array(object, {"metadata", "managedFields"}))
    if (get_string(entry, {"manager"}) == manager)
      for (const auto& field : get_object(entry, {"fieldsV1", "f:data"})) keys.emplace_back(field.key());
  return keys;
}

TEST(cluster_apiserver, case22_server_side_apply) {
  Api api;
  EXPECT_EQ(api.patch(kMap, map_with("{}"), "apply-patch+yaml").status, 422);
  Reply made = apply(api, kMap, map_with(R"({"x":"1","y":"2"})"), "A");
  ASSERT_EQ(made.status, 201) << made.text;
  EXPECT_EQ(owned(made.body, "A"), (std::vector<std::string>{"f:x", "f:y"}));
  Reply fewer = apply(api, kMap, map_with(R"({"x":"1"})"), "A");
  ASSERT_EQ(fewer.status, 200) << fewer.text;
  EXPECT_FALSE(has(fewer.body, {"data", "y"}));
  Reply other = apply(api, kMap, map_with(R"({"x":"9"})"), "B");
  ASSERT_EQ(other.status, 409) << other.text;
  EXPECT_EQ(text_at(other.body, {"message"}), "Apply failed with 1 conflict: conflict with \"A\": .data.x");
  const Json& cause = get_array(other.body, {"details", "causes"})[0];
  EXPECT_EQ(text_at(cause, {"reason"}), "FieldManagerConflict");
  EXPECT_EQ(text_at(cause, {"field"}), ".data.x");
  Reply forced = apply(api, kMap, map_with(R"({"x":"9"})"), "B", true);
  ASSERT_EQ(forced.status, 200) << forced.text;
  EXPECT_EQ(text_at(forced.body, {"data", "x"}), "9");
  EXPECT_TRUE(owned(forced.body, "A").empty());
  EXPECT_EQ(owned(forced.body, "B"), std::vector<std::string>{"f:x"});
  Reply again = apply(api, kMap, map_with(R"({"x":"9"})"), "B");
  EXPECT_EQ(text_at(again.body, {"metadata", "resourceVersion"}),
            text_at(forced.body, {"metadata", "resourceVersion"}));
  Reply forbidden = api.patch(str(kMap) + "?force=true", "{}", "merge-patch+json");
  EXPECT_EQ(forbidden.status, 422);
}

TEST(cluster_apiserver, apply_shares_equal_values) {
  Api api;
  apply(api, kMap, map_with(R"({"x":"1"})"), "A");
  ASSERT_EQ(apply(api, kMap, map_with(R"({"x":"1"})"), "B").status, 200);
  Reply left = apply(api, kMap, map_with("{}"), "A");
  EXPECT_EQ(text_at(left.body, {"data", "x"}), "1");  // B still wants it
  Reply gone = apply(api, kMap, map_with("{}"), "B");
  EXPECT_FALSE(has(gone.body, {"data", "x"}));
}

TEST(cluster_apiserver, apply_meets_other_writers) {
  Api api;
  std::string deployment =
      R"({"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d"},"spec":{"replicas":1,"selector":{"matchLabels":{"a":"b"}},
"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i","env":[{"name":"E","value":"1"}]}]}}}})";
  std::string path = "/apis/apps/v1/namespaces/default/deployments/d";
  ASSERT_EQ(apply(api, path, deployment, "helm").status, 201);
  HttpRequest scale =
      Api::request("PATCH " + path + "/scale", R"({"spec":{"replicas":3}})", "application/merge-patch+json");
  scale.headers["User-Agent"] = "kubectl/v1.35";
  EXPECT_EQ(Api::reply_of(*api.send(scale)).status, 200);
  Reply clash = apply(api, path, deployment, "helm");
  ASSERT_EQ(clash.status, 409) << clash.text;
  EXPECT_EQ(text_at(clash.body, {"message"}),
            "Apply failed with 1 conflict: conflict with \"kubectl\" with subresource \"scale\" using "
            "apps/v1: .spec.replicas");
  Reply forced = apply(api, path, deployment, "helm", true);
  EXPECT_EQ(get_int(forced.body, {"spec", "replicas"}), 1);
  // Another applier adds a variable and a container of its own; helm's stay.
  std::string more =
      R"({"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d"},"spec":{"template":{"spec":{"containers":[{"name":"c","env":[{"name":"F","value":"2"}]},{"name":"side","image":"s"}]}}}})";
  Reply both = apply(api, path, more, "mesh");
  ASSERT_EQ(both.status, 200) << both.text;
  ASSERT_EQ(get_array(both.body, {"spec", "template", "spec", "containers"}).size(), 2u);
  EXPECT_EQ(get_array(get_array(both.body, {"spec", "template", "spec", "containers"})[0], {"env"}).size(),
            2u);
  std::string none = R"({"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d"}})";
  Reply left = apply(api, path, none, "mesh");
  ASSERT_EQ(left.status, 200) << left.text;
  const JsonArray& containers = get_array(left.body, {"spec", "template", "spec", "containers"});
  ASSERT_EQ(containers.size(), 1u);
  EXPECT_EQ(get_array(containers[0], {"env"}).size(), 1u);
  EXPECT_EQ(text_at(containers[0], {"image"}), "i");
}

TEST(cluster_apiserver, owners_can_be_reset) {
  Api api;
  api.post("/api/v1/namespaces/default/configmaps", map_with(R"({"x":"1"})"));
  Json made = api.get(kMap).body;
  EXPECT_EQ(get_array(made, {"metadata", "managedFields"}).size(), 1u);
  Reply reset = api.patch(kMap, R"({"metadata":{"managedFields":[{}]}})");
  EXPECT_EQ(reset.status, 200);
  EXPECT_FALSE(has(reset.body, {"metadata", "managedFields"}));
}

}  // namespace
}  // namespace gpuop::cluster
