#include "kube/object.h"

#include <gtest/gtest.h>

#include "fake_server.h"

namespace gpuop::kube {
namespace {

using test::json;

bool selects(std::string_view text, std::string_view labels) {
  const auto selector = LabelSelector::parse(text);
  EXPECT_TRUE(selector) << selector.error().text();
  return selector && selector->matches(json(labels).as_object());
}

TEST(kube, selector_text) {
  EXPECT_TRUE(selects("", R"({"a":"b"})"));
  EXPECT_TRUE(selects("a=b", R"({"a":"b"})"));
  EXPECT_TRUE(selects("a==b,c", R"({"a":"b","c":""})"));
  EXPECT_FALSE(selects("a=b", R"({"a":"c"})"));
  EXPECT_TRUE(selects("a!=b", "{}"));
  EXPECT_TRUE(selects("a in (b, c)", R"({"a":"c"})"));
  EXPECT_FALSE(selects("a in (b,c)", "{}"));
  EXPECT_TRUE(selects("a notin (b)", "{}"));
  EXPECT_FALSE(selects("a notin (b),x.io/y", R"({"x.io/y":"1","a":"b"})"));
  EXPECT_TRUE(selects("!a", "{}"));
  EXPECT_TRUE(selects("! a , b", R"({"b":"1"})"));
  EXPECT_TRUE(selects("a>1,b<5", R"({"a":"2","b":"4"})"));
  EXPECT_FALSE(selects("a>1", R"({"a":"x"})"));
  EXPECT_TRUE(selects("a=", R"({"a":""})"));
  for (const char* bad : {"a b", "=b", "a in b", "a in (b", "a,,b", "a=b=c", "a>x", "-a", "a=b,",
                          "a in (b c)", "a=-b", "A_/b"}) {
    EXPECT_FALSE(LabelSelector::parse(bad)) << bad;
  }
  for (const char* text : {"a=b", "a!=b", "a in (b,c)", "a notin (b,c)", "a", "!a", "a>1", "a<1", "a="}) {
    EXPECT_EQ(LabelSelector::parse(text)->text(), text);
  }
}

TEST(kube, selector_object) {
  const auto of = [](std::string_view text) { return LabelSelector::from_object(json(text)); };
  EXPECT_FALSE(of("null")->matches({}));
  EXPECT_TRUE(of("{}")->matches({}));
  const auto both =
      of(R"({"matchLabels":{"a":"b"},"matchExpressions":[{"key":"c","operator":"NotIn","values":["d"]}]})");
  ASSERT_TRUE(both);
  EXPECT_TRUE(both->matches(json(R"({"a":"b"})").as_object()));
  EXPECT_FALSE(both->matches(json(R"({"a":"b","c":"d"})").as_object()));
  EXPECT_EQ(both->text(), "a=b,c!=d");
  const auto misspelt = of(R"({"matchExpressions":[{"key":"c","operator":"Exist"}]})");
  ASSERT_FALSE(misspelt);
  EXPECT_NE(misspelt.error().text().find("did you mean 'Exists'"), std::string::npos)
      << misspelt.error().text();
  EXPECT_FALSE(of(R"({"matchExpressions":[{"key":"c","operator":"In"}]})"));
}

TEST(kube, quantities) {
  struct Row {
    const char* in;
    const char* canonical;
    long long milli;
  };
  for (const Row& row : {Row{"0", "0", 0},
                         {"1", "1", 1000},
                         {"1500m", "1500m", 1500},
                         {"1024Mi", "1Gi", 1073741824000},
                         {"0.5", "500m", 500},
                         {"1000m", "1", 1000},
                         {"1000", "1k", 1000000},
                         {"1.5Gi", "1536Mi", 1610612736000},
                         {"1e3", "1e3", 1000000},
                         {"1E2", "100", 100000},
                         {"2Ki", "2Ki", 2048000},
                         {"0.5Ki", "512", 512000},
                         {".5", "500m", 500},
                         {"5.", "5", 5000},
                         {"-3", "-3", -3000},
                         {"+3", "3", 3000},
                         {"1n", "1n", 1},
                         {"100k", "100k", 100000000},
                         {"129M", "129M", 129000000000},
                         {"0.0001", "100u", 1},
                         {"9P", "9P", 9000000000000000000}}) {
    const auto canonical = canonical_quantity(Json(row.in));
    ASSERT_TRUE(canonical) << row.in << ": " << canonical.error().text();
    EXPECT_EQ(*canonical, row.canonical) << row.in;
    EXPECT_EQ(static_cast<long long>(*parse_quantity_milli(Json(row.in))), row.milli) << row.in;
  }
  EXPECT_EQ(*parse_quantity(Json(8)), 8);
  EXPECT_EQ(*parse_quantity(Json("1500m")), 2);
  EXPECT_EQ(*canonical_quantity(Json(0.25)), "250m");
  EXPECT_EQ(*parse_quantity(Json("99999999999999999999999")), INT64_MAX);
  for (const char* bad : {"", "x", "1.2.3", "1KB", "Gi", "1e", "--1", "1 Gi", " 1", "1gi", "."}) {
    EXPECT_FALSE(parse_quantity(Json(bad))) << bad;
  }
  EXPECT_FALSE(parse_quantity(Json(true)));
  EXPECT_FALSE(parse_quantity(Json(nullptr)));
}

TEST(kube, merge_patch_turns_one_into_the_other) {
  const Json from = json(R"({"a":1,"b":{"c":[1],"d":null,"e":"x"},"g":{}})");
  const Json to = json(R"({"a":1,"b":{"c":[2],"f":true},"h":{"i":1}})");
  const Json diff = merge_diff(from, to);
  EXPECT_EQ(diff, json(R"({"b":{"c":[2],"e":null,"f":true},"g":null,"h":{"i":1}})")) << to_text(diff);
  Json target = from;
  merge_apply(target, diff);
  EXPECT_EQ(get_object(target, {"h"}), get_object(to, {"h"}));
  EXPECT_FALSE(has(target, {"g"}));
  EXPECT_EQ(merge_diff(to, to), json("{}"));
}

TEST(kube, json_patch) {
  const auto patched = [](std::string_view target, std::string_view patch) -> std::string {
    Json value = json(target);
    const auto done = json_patch_apply(value, json(patch));
    return done ? to_text(value) : std::string(code_name(done.error().code()));
  };
  EXPECT_EQ(patched(R"({"a":{}})", R"([{"op":"add","path":"/a/x~1y~0","value":""}])"),
            R"({"a":{"x/y~":""}})");
  EXPECT_EQ(patched("[1,3]", R"([{"op":"add","path":"/1","value":2},{"op":"add","path":"/-","value":4}])"),
            "[1,2,3,4]");
  EXPECT_EQ(
      patched(R"({"a":1,"b":2})", R"([{"op":"move","from":"/a","path":"/c"},{"op":"remove","path":"/b"}])"),
      R"({"c":1})");
  EXPECT_EQ(patched(R"({"a":[1]})",
                    R"([{"op":"copy","from":"/a","path":"/b"},{"op":"replace","path":"/a/0","value":9}])"),
            R"({"a":[9],"b":[1]})");
  EXPECT_EQ(patched(R"({"a":1})", R"([{"op":"test","path":"/a","value":2}])"), code_name(Code::kConflict));
  EXPECT_EQ(patched(R"({"a":1})", R"([{"op":"test","path":"/a","value":1}])"), R"({"a":1})");
  EXPECT_EQ(patched(R"({"a":1})", R"([{"op":"remove","path":"/b"}])"), code_name(Code::kNotFound));
  EXPECT_EQ(patched("[1]", R"([{"op":"add","path":"/01","value":2}])"), code_name(Code::kNotFound));
  EXPECT_EQ(patched("{}", R"([{"op":"ad","path":"/b","value":1}])"), code_name(Code::kInvalid));
  EXPECT_EQ(patched("{}", R"([{"op":"add","path":"b","value":1}])"), code_name(Code::kInvalid));
  EXPECT_EQ(patched("{}", "{}"), code_name(Code::kInvalid));
  EXPECT_EQ(patched(R"({"a":{"b":1}})", R"([{"op":"move","from":"/a","path":"/a/b"}])"),
            code_name(Code::kInvalid));
  // A copy of the whole into itself, again and again, is stopped.
  std::string bomb = "[";
  for (int i = 0; i < 64; ++i)
    bomb += std::string(i ? "," : "") + R"({"op":"copy","from":"","path":"/a)" + std::to_string(i) + R"("})";
  EXPECT_EQ(patched(R"({"b":"0123456789"})", bomb + "]"), code_name(Code::kInvalid));
  std::string deep = "[";
  for (int i = 0; i < 400; ++i)
    deep +=
        std::string(i ? "," : "") +
        R"({"op":"move","from":"/b","path":"/c"},{"op":"add","path":"/b","value":{}},{"op":"move","from":"/c","path":"/b/c"})";
  EXPECT_EQ(patched(R"({"b":{}})", deep + "]"), code_name(Code::kInvalid));
  // Nothing is left of a patch that fails half way.
  Json value = json(R"({"a":1})");
  EXPECT_FALSE(json_patch_apply(value, json(R"([{"op":"remove","path":"/a"},{"op":"remove","path":"/a"}])")));
  EXPECT_EQ(to_text(value), R"({"a":1})");
}

TEST(kube, conditions_move_only_with_their_status) {
  Json object = json("{}");
  EXPECT_TRUE(set_condition(object, "Ready", "False", "R", "m", "t1"));
  EXPECT_FALSE(set_condition(object, "Ready", "False", "R", "m", "t2"));
  EXPECT_TRUE(set_condition(object, "Ready", "False", "R2", "m", "t3"));
  EXPECT_EQ(get_string(*condition(object, "Ready"), {"lastTransitionTime"}), "t1");
  EXPECT_TRUE(set_condition(object, "Ready", "True", "R2", "m", "t4"));
  EXPECT_EQ(get_string(*condition(object, "Ready"), {"lastTransitionTime"}), "t4");
  EXPECT_EQ(condition(object, "Other"), nullptr);
}

TEST(kube, node_matching) {
  const Json node = json(R"({"metadata":{"name":"n1","labels":{"a":"b","n":"5"}},
    "spec":{"taints":[{"key":"k","value":"v","effect":"NoSchedule"},{"key":"soft","effect":"PreferNoSchedule"}]}})");
  EXPECT_TRUE(node_matches(node, json("{}")));
  EXPECT_TRUE(node_matches(node, json(R"({"nodeSelector":{"a":"b"}})")));
  EXPECT_FALSE(node_matches(node, json(R"({"nodeSelector":{"a":"c"}})")));
  const auto affinity = [&](std::string_view terms) {
    return node_matches(
        node,
        json(
            R"({"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":)" +
            std::string(terms) + "}}}}"));
  };
  EXPECT_FALSE(affinity("[]"));
  EXPECT_FALSE(affinity("[{}]"));
  EXPECT_TRUE(affinity(R"([{},{"matchFields":[{"key":"metadata.name","operator":"In","values":["n1"]}]}])"));
  EXPECT_FALSE(affinity(R"([{"matchFields":[{"key":"metadata.name","operator":"In","values":["n2"]}]}])"));
  EXPECT_TRUE(affinity(
      R"([{"matchExpressions":[{"key":"n","operator":"Gt","values":["4"]},{"key":"z","operator":"DoesNotExist"}]}])"));
  EXPECT_FALSE(affinity(R"([{"matchExpressions":[{"key":"n","operator":"Lt","values":["4"]}]}])"));

  const auto taint = [&](std::string_view tolerations) {
    const Json pod = json(R"({"tolerations":)" + std::string(tolerations) + "}");
    return untolerated_taint(node, pod, {"NoSchedule", "NoExecute"}) != nullptr;
  };
  EXPECT_TRUE(taint("[]"));
  EXPECT_FALSE(taint(R"([{"operator":"Exists"}])"));
  EXPECT_FALSE(taint(R"([{"key":"k","value":"v"}])"));
  EXPECT_TRUE(taint(R"([{"key":"k","value":"w"}])"));
  EXPECT_TRUE(taint(R"([{"key":"k","operator":"Exists","effect":"NoExecute"}])"));
  EXPECT_FALSE(taint(R"([{"key":"k","operator":"Exists","effect":"NoSchedule"}])"));
}

TEST(kube, resource_paths) {
  EXPECT_EQ(kPods.path(), "/api/v1/pods");
  EXPECT_EQ(kPods.path("x", "p", "log"), "/api/v1/namespaces/x/pods/p/log");
  EXPECT_EQ(kNodes.path("ignored", "n"), "/api/v1/nodes/n");
  EXPECT_EQ(kDaemonSets.path("x"), "/apis/apps/v1/namespaces/x/daemonsets");
  EXPECT_EQ(kDaemonSets.api_version(), "apps/v1");
}

}  // namespace
}  // namespace gpuop::kube
