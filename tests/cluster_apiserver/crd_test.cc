#include "api.h"

namespace gpuop::cluster {
namespace {

std::string crd(std::string_view schema, std::string_view extra = "") {
  return R"({"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"gpuclusters.nvidia.com"},
"spec":{"group":"nvidia.com","scope":"Cluster","names":{"plural":"gpuclusters","kind":"GPUCluster"},
"versions":[{"name":"v1","served":true,"storage":true,"subresources":{"status":{}},"additionalPrinterColumns":[
{"name":"Status","type":"string","jsonPath":".status.state"},{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"},
{"name":"Born","type":"string","jsonPath":".metadata.creationTimestamp"}],
"schema":{"openAPIV3Schema":)" +
         std::string(schema) + "}" + std::string(extra) + "}]}}";
}

constexpr std::string_view kCrds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
constexpr std::string_view kObjects = "/apis/nvidia.com/v1/gpuclusters";

constexpr std::string_view kSchema = R"({"type":"object","properties":{
"spec":{"type":"object","properties":{"a":{"type":"object","properties":{"b":{"type":"integer","default":7}}},
"kind":{"type":"string","enum":["x","y"]},"size":{"x-kubernetes-int-or-string":true},"free":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}},
"status":{"type":"object","properties":{"state":{"type":"string"}}}}})";

TEST(cluster_apiserver, case10_custom_columns) {
  Api api;
  ASSERT_EQ(api.post(kCrds, crd(kSchema)).status, 201);
  ASSERT_EQ(
      api.post(kObjects, R"({"apiVersion":"nvidia.com/v1","kind":"GPUCluster","metadata":{"name":"g"}})")
          .status,
      201);
  api.loop->run_for(std::chrono::hours(12 * 24));
  Reply reply = api.get(kObjects, "application/json;as=Table;v=v1;g=meta.k8s.io,application/json");
  ASSERT_EQ(reply.status, 200);
  const JsonArray& columns = get_array(reply.body, {"columnDefinitions"});
  ASSERT_EQ(columns.size(), 4u);
  EXPECT_EQ(text_at(columns[1], {"name"}), "Status");
  const JsonArray& cells = get_array(get_array(reply.body, {"rows"})[0], {"cells"});
  ASSERT_EQ(cells.size(), 4u);
  EXPECT_EQ(as_text(cells[0]), "g");
  EXPECT_TRUE(cells[1].is_null());
  EXPECT_EQ(as_text(cells[2]), "12d");
  EXPECT_EQ(as_text(cells[3]), "2025-01-01T00:00:00Z");
}

TEST(cluster_apiserver, case21_status_and_spec_apart) {
  Api api;
  ASSERT_EQ(api.post(kCrds, crd(kSchema)).status, 201);
  Json object =
      api.post(
             kObjects,
             R"({"apiVersion":"nvidia.com/v1","kind":"GPUCluster","metadata":{"name":"g"},"spec":{"kind":"x"},"status":{"state":"early"}})")
          .body;
  EXPECT_FALSE(has(object, {"status"}));
  EXPECT_EQ(get_int(object, {"metadata", "generation"}), 1);
  set(object, {"spec", "kind"}, "y");
  set(object, {"status", "state"}, "ready");
  Reply status = api.put(str(kObjects) + "/g/status", to_text(object));
  ASSERT_EQ(status.status, 200);
  EXPECT_EQ(text_at(status.body, {"spec", "kind"}), "x");
  EXPECT_EQ(text_at(status.body, {"status", "state"}), "ready");
  EXPECT_EQ(get_int(status.body, {"metadata", "generation"}), 1);
  object = status.body;
  set(object, {"spec", "kind"}, "y");
  set(object, {"status", "state"}, "broken");
  Reply main = api.put(str(kObjects) + "/g", to_text(object));
  ASSERT_EQ(main.status, 200);
  EXPECT_EQ(text_at(main.body, {"spec", "kind"}), "y");
  EXPECT_EQ(text_at(main.body, {"status", "state"}), "ready");
  EXPECT_EQ(get_int(main.body, {"metadata", "generation"}), 2);
}

TEST(cluster_apiserver, case17_custom_resources_need_a_version) {
  Api api;
  ASSERT_EQ(api.post(kCrds, crd(kSchema)).status, 201);
  api.post(kObjects, R"({"apiVersion":"nvidia.com/v1","kind":"GPUCluster","metadata":{"name":"g"}})");
  Reply reply = api.put(str(kObjects) + "/g",
                        R"({"apiVersion":"nvidia.com/v1","kind":"GPUCluster","metadata":{"name":"g"}})");
  EXPECT_EQ(reply.status, 422);
  EXPECT_NE(text_at(reply.body, {"message"})
                .find("metadata.resourceVersion: Invalid value: 0: must be specified for an update"),
            std::string::npos);
}

TEST(cluster_apiserver, case20_strategic_patch) {
  Api api;
  ASSERT_EQ(api.post(kCrds, crd(kSchema)).status, 201);
  api.post(kObjects, R"({"apiVersion":"nvidia.com/v1","kind":"GPUCluster","metadata":{"name":"g"}})");
  EXPECT_EQ(api.patch(str(kObjects) + "/g", R"({"spec":{}})", "strategic-merge-patch+json").status, 415);
  api.post(
      "/api/v1/nodes",
      R"({"metadata":{"name":"n"},"spec":{"taints":[{"key":"a","effect":"NoSchedule"},{"key":"b","effect":"NoExecute"}]}})");
  Reply node = api.patch("/api/v1/nodes/n", R"({"spec":{"taints":[{"key":"k","effect":"NoSchedule"}]}})",
                         "strategic-merge-patch+json");
  ASSERT_EQ(node.status, 200);
  ASSERT_EQ(get_array(node.body, {"spec", "taints"}).size(), 1u);
}

TEST(cluster_apiserver, case30_defaults) {
  Api api;
  ASSERT_EQ(api.post(kCrds, crd(kSchema)).status, 201);
  Reply with = api.post(
      kObjects,
      R"({"apiVersion":"nvidia.com/v1","kind":"GPUCluster","metadata":{"name":"with"},"spec":{"a":{}}})");
  EXPECT_EQ(get_int(with.body, {"spec", "a", "b"}), 7);
  Reply without = api.post(
      kObjects,
      R"({"apiVersion":"nvidia.com/v1","kind":"GPUCluster","metadata":{"name":"without"},"spec":{}})");
  EXPECT_FALSE(has(without.body, {"spec", "a"}));
}

TEST(cluster_apiserver, case29_rules) {
  Api api;
  Reply bad =
      api.post(kCrds, crd(R"({"type":"object","x-kubernetes-validations":[{"rule":"self.spec.x &&"}]})"));
  EXPECT_EQ(bad.status, 422);
  EXPECT_NE(text_at(bad.body, {"message"}).find("self.spec.x &&"), std::string::npos);
  ASSERT_EQ(
      api.post(
             kCrds,
             crd(R"({"type":"object","properties":{"spec":{"type":"object","properties":{"driverType":{"type":"string",
"x-kubernetes-validations":[{"rule":"self == oldSelf","message":"driverType is an immutable field"}]}}}},
"x-kubernetes-validations":[{"rule":"self.metadata.name == 'gpu-cluster'","message":"GPUCluster is a singleton, metadata.name must be 'gpu-cluster'"}]})"))
          .status,
      201);
  Reply foo =
      api.post(kObjects, R"({"apiVersion":"nvidia.com/v1","kind":"GPUCluster","metadata":{"name":"foo"}})");
  EXPECT_EQ(foo.status, 422);
  EXPECT_NE(
      text_at(foo.body, {"message"}).find("GPUCluster is a singleton, metadata.name must be 'gpu-cluster'"),
      std::string::npos);
  ASSERT_EQ(
      api.post(
             kObjects,
             R"({"apiVersion":"nvidia.com/v1","kind":"GPUCluster","metadata":{"name":"gpu-cluster"},"spec":{"driverType":"gpu"}})")
          .status,
      201);
  Reply changed = api.patch(str(kObjects) + "/gpu-cluster", R"({"spec":{"driverType":"vgpu"}})");
  EXPECT_EQ(changed.status, 422);
  EXPECT_NE(text_at(changed.body, {"message"})
                .find("spec.driverType: Invalid value: \"string\": driverType is an immutable field"),
            std::string::npos);
}

TEST(cluster_apiserver, case05_unknown_fields) {
  Api api;
  ASSERT_EQ(api.post(kCrds, crd(kSchema)).status, 201);
  std::string body =
      R"({"apiVersion":"nvidia.com/v1","kind":"GPUCluster","metadata":{"name":"g"},"spec":{"foo":1,"kind":"x"}})";
  Reply strict = api.post(str(kObjects) + "?fieldValidation=Strict", body);
  EXPECT_EQ(strict.status, 400);
  EXPECT_EQ(text_at(strict.body, {"message"}),
            "GPUCluster in version \"v1\" cannot be handled as a GPUCluster: strict decoding error: unknown "
            "field \"spec.foo\"");
  Reply warned = api.post(str(kObjects) + "?fieldValidation=Warn", body);
  EXPECT_EQ(warned.status, 201);
  EXPECT_EQ(warned.headers["Warning"], "299 - \"unknown field \\\"spec.foo\\\"\"");
  EXPECT_FALSE(has(warned.body, {"spec", "foo"}));
  EXPECT_EQ(text_at(warned.body, {"spec", "kind"}), "x");
}

TEST(cluster_apiserver, custom_objects_are_validated) {
  Api api;
  ASSERT_EQ(api.post(kCrds, crd(kSchema)).status, 201);
  Reply wrong = api.post(
      kObjects,
      R"({"apiVersion":"nvidia.com/v1","kind":"GPUCluster","metadata":{"name":"g"},"spec":{"a":{"b":"text"},"kind":"z","size":true,"free":{"any":[1]}}})");
  ASSERT_EQ(wrong.status, 422);
  std::string message = text_at(wrong.body, {"message"});
  EXPECT_NE(message.find(
                "spec.a.b: Invalid value: \"string\": spec.a.b in body must be of type integer: \"string\""),
            std::string::npos)
      << message;
  EXPECT_NE(message.find("spec.kind: Unsupported value: \"z\": supported values: \"x\", \"y\""),
            std::string::npos)
      << message;
  EXPECT_EQ(get_array(wrong.body, {"details", "causes"}).size(), 3u) << message;
  Reply good = api.post(
      kObjects,
      R"({"apiVersion":"nvidia.com/v1","kind":"GPUCluster","metadata":{"name":"g"},"spec":{"size":"50%","free":{"any":[1]}}})");
  EXPECT_EQ(good.status, 201);
  EXPECT_TRUE(has(good.body, {"spec", "free", "any"}));
}

TEST(cluster_apiserver, metadata_of_custom_objects_is_typed) {
  Api api;
  ASSERT_EQ(api.post(kCrds, crd(kSchema)).status, 201);
  EXPECT_EQ(
      api.post(
             kObjects,
             R"({"apiVersion":"nvidia.com/v1","kind":"GPUCluster","metadata":{"name":"g","labels":{"a":1}}})")
          .status,
      400);
  EXPECT_EQ(api.post(kObjects, R"({"apiVersion":"nvidia.com/v1","kind":"GPUCluster","metadata":"g"})").status,
            400);
  Reply unknown =
      api.post(str(kObjects) + "?fieldValidation=Strict",
               R"({"apiVersion":"nvidia.com/v1","kind":"GPUCluster","metadata":{"name":"g","nam":"x"}})");
  EXPECT_EQ(unknown.status, 400);
  EXPECT_NE(text_at(unknown.body, {"message"}).find("unknown field \"metadata.nam\""), std::string::npos);
}

TEST(cluster_apiserver, case06_openapi_follows_definitions) {
  Api api;
  EXPECT_FALSE(has(api.get("/openapi/v3").body, {"paths", "apis/nvidia.com/v1"}));
  ASSERT_EQ(api.post(kCrds, crd(kSchema)).status, 201);
  Reply index = api.get("/openapi/v3");
  std::string url = text_at(index.body, {"paths", "apis/nvidia.com/v1", "serverRelativeURL"});
  Reply document = api.get(url);
  ASSERT_EQ(document.status, 200);
  const Json* patch = find(document.body, {"paths", "/apis/nvidia.com/v1/gpuclusters/{name}", "patch"});
  ASSERT_NE(patch, nullptr);
  EXPECT_EQ(text_at(*patch, {"x-kubernetes-group-version-kind", "kind"}), "GPUCluster");
  EXPECT_TRUE(has(document.body, {"components", "schemas", "com.nvidia.v1.GPUCluster"}));
  EXPECT_EQ(api.get("/openapi/v2").status, 404);
}

TEST(cluster_apiserver, deleting_a_definition_deletes_its_objects) {
  Api api;
  ASSERT_EQ(api.post(kCrds, crd(kSchema)).status, 201);
  ASSERT_EQ(
      api.post(
             kObjects,
             R"({"apiVersion":"nvidia.com/v1","kind":"GPUCluster","metadata":{"name":"g","finalizers":["example.com/f"]}})")
          .status,
      201);
  ASSERT_EQ(
      api.post(kObjects, R"({"apiVersion":"nvidia.com/v1","kind":"GPUCluster","metadata":{"name":"h"}})")
          .status,
      201);
  auto watch = api.watch(str(kObjects) + "?watch=1");
  EXPECT_EQ(api.del(str(kCrds) + "/gpuclusters.nvidia.com").status, 200);
  EXPECT_EQ(api.get(str(kObjects) + "/h").status, 404);
  EXPECT_EQ(api.get(str(kCrds) + "/gpuclusters.nvidia.com").status, 200);
  EXPECT_EQ(api.patch(str(kObjects) + "/g",
                      R"({"apiVersion":"nvidia.com/v1","kind":"GPUCluster","metadata":{"finalizers":null}})")
                .status,
            200);
  api.loop->run_for(1s);
  EXPECT_EQ(api.get(str(kCrds) + "/gpuclusters.nvidia.com").status, 404);
  EXPECT_EQ(api.get(kObjects).status, 404);
  EXPECT_TRUE(watch->ended);
}

TEST(cluster_apiserver, definitions_that_cannot_work) {
  Api api;
  EXPECT_EQ(api.post(kCrds, crd(R"({"properties":{}})")).status, 422);
  EXPECT_EQ(api.post(kCrds, crd(R"({"type":"object","properties":{"a":{"type":"array"}}})")).status, 422);
  EXPECT_EQ(api.post(kCrds, crd(R"({"type":"object","properties":{"a":{"type":"text"}}})")).status, 422);
  std::string misnamed = replace_all(crd(kSchema), "gpuclusters.nvidia.com", "others.nvidia.com");
  EXPECT_EQ(api.post(kCrds, misnamed).status, 422);
  std::string webhook =
      replace_all(crd(kSchema), "\"scope\"", R"("conversion":{"strategy":"Webhook"},"scope")");
  Reply refused = api.post(kCrds, webhook);
  EXPECT_EQ(refused.status, 422);
  EXPECT_NE(text_at(refused.body, {"message"}).find("conversion webhooks are not supported"),
            std::string::npos);
}

TEST(cluster_apiserver, established_at_once) {
  Api api;
  Reply made = api.post(kCrds, crd(kSchema));
  std::map<std::string, std::string> conditions;
  for (const Json& condition : get_array(made.body, {"status", "conditions"}))
    conditions[text_at(condition, {"type"})] = text_at(condition, {"status"});
  EXPECT_EQ(conditions["NamesAccepted"], "True");
  EXPECT_EQ(conditions["Established"], "True");
  EXPECT_EQ(text_at(made.body, {"status", "acceptedNames", "listKind"}), "GPUClusterList");
  EXPECT_EQ(get_array(made.body, {"status", "storedVersions"}), JsonArray{"v1"});
}

}  // namespace
}  // namespace gpuop::cluster
