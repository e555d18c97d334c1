#include "cdi/registry.h"

#include <gtest/gtest.h>

#include "base/files.h"
#include "base/text.h"

namespace gpuop::cdi {
namespace {

#define EXPECT_HAS(text, part) EXPECT_NE(std::string(text).find(part), std::string::npos) << (text)

Spec spec_of(std::string kind, std::string device, Edits edits, Edits common = {}) {
  Spec spec{"1.1.0", std::move(kind), {}, {{std::move(device), {}, std::move(edits)}}, std::move(common)};
  return spec;
}

Edits env(std::string entry) {
  Edits edits;
  edits.env.push_back(std::move(entry));
  return edits;
}

void put(const fs::path& file, const Spec& spec) {
  ASSERT_TRUE(make_dirs(file.parent_path()));
  ASSERT_TRUE(write_file_atomic(file, file.extension() == ".json" ? to_json_text(spec) : to_yaml_text(spec)));
}

TEST(container_toolkit, case07_precedence_and_conflicts) {
  TempDir dir;
  fs::path etc = dir.path() / "etc/cdi";
  fs::path run = dir.path() / "run/cdi";
  put(etc / "a.yaml", spec_of("acme.com/x", "1", env("FROM=etc")));
  put(run / "b.json", spec_of("acme.com/x", "1", env("FROM=run")));
  auto registry = Registry::load({etc, run});
  EXPECT_TRUE(registry.errors().empty());
  EXPECT_EQ(registry.file_of("acme.com/x=1"), run / "b.json");
  EXPECT_EQ(registry.edits_for({"acme.com/x=1"})->env, std::vector<std::string>{"FROM=run"});

  ASSERT_TRUE(remove_file(run / "b.json"));
  put(etc / "b.yaml", spec_of("acme.com/x", "1", env("FROM=b")));
  ASSERT_TRUE(write_file_atomic(etc / "c.yml", "not: [even yaml"));
  registry = Registry::load({etc, run});
  EXPECT_FALSE(registry.has("acme.com/x=1"));
  ASSERT_EQ(registry.errors().size(), 2u);
  EXPECT_HAS(registry.errors().at((etc / "a.yaml").string()).at(0), "conflicting device");
  EXPECT_TRUE(registry.errors().contains((etc / "b.yaml").string()));

  put(run / "z.yaml", spec_of("acme.com/x", "1", env("FROM=run")));
  EXPECT_TRUE(Registry::load({etc, run}).has("acme.com/x=1"));
}

TEST(container_toolkit, case08_a_bad_file_hides_nothing_else) {
  TempDir dir;
  ASSERT_TRUE(write_file_atomic(
      dir.path() / "bad.yaml",
      "cdiVersion: 0.5.0\nkind: a.com/b\ndevices:\n- name: x\n  containerEdits:\n    deviceNode:\n"
      "    - path: /dev/x\n"));
  put(dir.path() / "good.yaml", spec_of("acme.com/x", "1", env("A=1")));
  auto registry = Registry::load({dir.path()});
  EXPECT_EQ(registry.device_names(), std::vector<std::string>{"acme.com/x=1"});
  EXPECT_HAS(registry.errors().at((dir.path() / "bad.yaml").string()).at(0), "unknown field \"deviceNode\"");
}

TEST(container_toolkit, case09_env_is_replaced_in_place) {
  Json oci = parse_json(R"({"process":{"env":["A=1","B=2"]}})").value();
  Edits edits;
  edits.env = {"B=9", "C=3"};
  ASSERT_TRUE(apply(oci, edits));
  EXPECT_EQ(to_text(oci), R"({"process":{"env":["A=1","B=9","C=3"]}})");
}

TEST(container_toolkit, case10_mounts_are_sorted_by_depth) {
  Json oci = parse_json(R"({"mounts":[{"destination":"/usr/lib/x"},{"destination":"/a"}]})").value();
  Edits edits;
  edits.mounts.push_back({"/host/b", "/b", {"ro", "bind"}, ""});
  ASSERT_TRUE(apply(oci, edits));
  std::vector<std::string> order;
  for (const auto& mount : get_array(oci, {"mounts"}))
    order.push_back(str(get_string(mount, {"destination"})));
  EXPECT_EQ(order, (std::vector<std::string>{"/a", "/b", "/usr/lib/x"}));
}

TEST(container_toolkit, case11_minimal_nodes_need_no_host_node) {
  Json oci = parse_json("{}").value();
  Edits edits;
  edits.device_nodes.push_back({"/dev/gpuop-none", "", "c", 240, 1, {}, "none", {}, {}});
  ASSERT_TRUE(apply(oci, edits));
  EXPECT_EQ(to_text(*find(oci, {"linux", "resources", "devices"})),
            R"([{"allow":true,"type":"c","major":240,"minor":1,"access":""}])");
  edits.device_nodes[0].type = "";
  edits.device_nodes[0].major = 0;
  auto result = apply(oci, edits);
  ASSERT_FALSE(result);
  EXPECT_HAS(result.error().text(), "/dev/gpuop-none");
}

TEST(container_toolkit, case12_unresolvable_devices_change_nothing) {
  auto registry = Registry::of({spec_of("v.com/x", "1", env("A=1"))});
  Json oci = parse_json(R"({"process":{}})").value();
  auto result = registry.inject(oci, {"v.com/x=1", "v.com/x=nope", "v.com/y=zz"});
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().text(), "unresolvable CDI devices v.com/x=nope, v.com/y=zz");
  EXPECT_EQ(to_text(oci), R"({"process":{}})");
}

TEST(container_toolkit, case13_annotations) {
  Annotations annotations;
  ASSERT_TRUE(annotate(annotations, "p", "a/b", {"v.com/c=d"}));
  EXPECT_EQ(annotations, (Annotations{{"cdi.k8s.io/p_a_b", "v.com/c=d"}}));
  auto before = annotations;
  EXPECT_FALSE(annotate(annotations, "p", "x", {"nvidia0"}));
  EXPECT_FALSE(annotate(annotations, "p", "a/b", {"v.com/c=d"}));
  EXPECT_EQ(annotations, before);
}

TEST(cdi, common_edits_come_once_before_the_first_device) {
  Spec spec = spec_of("v.com/x", "1", env("D=1"), env("C=0"));
  spec.devices.push_back({"2", {}, env("D=2")});
  auto registry = Registry::of({spec});
  EXPECT_EQ(registry.edits_for({"v.com/x=2", "v.com/x=1"})->env,
            (std::vector<std::string>{"C=0", "D=2", "D=1"}));
}

TEST(cdi, nodes_take_the_processes_ids_and_replace_their_path) {
  Json oci =
      parse_json(
          R"({"process":{"user":{"uid":1000,"gid":5}},"linux":{"devices":[{"path":"/dev/null","type":"b"}]}})")
          .value();
  Edits edits;
  edits.device_nodes.push_back({"/dev/null", "", "", 0, 0, {}, "", {}, 7});
  edits.additional_gids = {0, 44, 44};
  ASSERT_TRUE(apply(oci, edits));
  EXPECT_EQ(to_text(*find(oci, {"linux", "devices"})),
            R"([{"path":"/dev/null","type":"c","major":1,"minor":3,"fileMode":438,"uid":1000,"gid":7}])");
  EXPECT_EQ(to_text(*find(oci, {"process", "user", "additionalGids"})), "[44]");
}

TEST(cdi, bind_mounts_into_a_user_namespace_are_id_mapped) {
  Json oci = parse_json(R"({"linux":{"namespaces":[{"type":"user"}]}})").value();
  Edits edits;
  edits.mounts.push_back({"/a", "/a", {"ro", "rbind"}, ""});
  edits.mounts.push_back({"/b", "/b", {"ro", "bind"}, ""});
  edits.mounts.push_back({"/c", "/c", {"idmap", "bind"}, ""});
  ASSERT_TRUE(apply(oci, edits));
  EXPECT_EQ(to_text(*find(oci, {"mounts"})),
            R"([{"destination":"/a","source":"/a","options":["ro","rbind","ridmap"]},)"
            R"({"destination":"/b","source":"/b","options":["ro","bind","idmap"]},)"
            R"({"destination":"/c","source":"/c","options":["idmap","bind"]}])");
}

TEST(cdi, hooks_keep_their_order_by_stage) {
  Json oci = parse_json(R"({"hooks":{"createContainer":[{"path":"/first"}]}})").value();
  Edits edits;
  edits.hooks.push_back({"createContainer", "/h", {"h", "x"}, {"A=b"}, 30});
  edits.hooks.push_back({"startContainer", "/s", {}, {}, {}});
  ASSERT_TRUE(apply(oci, edits));
  EXPECT_EQ(
      to_text(oci),
      R"({"hooks":{"createContainer":[{"path":"/first"},{"path":"/h","args":["h","x"],"env":["A=b"],"timeout":30}],)"
      R"("startContainer":[{"path":"/s"}]}})");
}

}  // namespace
}  // namespace gpuop::cdi
