// Acceptance cases of nfd.md by number.
#include <gtest/gtest.h>

#include "base/files.h"
#include "features/config.h"
#include "features/master.h"
#include "features/sources.h"
#include "features/worker.h"

namespace gpuop::features {
namespace {

void put(const fs::path& path, std::string_view text) {
  ASSERT_TRUE(make_dirs(path.parent_path()));
  ASSERT_TRUE(write_file_atomic(path, text));
}

class Host {
 public:
  Host() {
    view.sys = dir.path() / "sys";
    view.os_release = dir.path() / "etc/os-release";
    view.boot = dir.path() / "boot";
    view.usr = dir.path() / "usr";
    view.lib = dir.path() / "lib";
    view.swaps = dir.path() / "proc/swaps";
    view.features_d = dir.path() / "features.d";
    view.node_name = "n1";
    EXPECT_TRUE(make_dirs(view.features_d));
  }
  void pci(const std::string& address, const std::string& device_class, const std::string& vendor,
           const std::string& device, const std::string& sub_vendor, const std::string& sub_device) {
    const fs::path at = view.sys / "bus/pci/devices" / address;
    put(at / "class", "0x" + device_class + "\n");
    put(at / "vendor", "0x" + vendor + "\n");
    put(at / "device", "0x" + device + "\n");
    put(at / "subsystem_vendor", "0x" + sub_vendor + "\n");
    put(at / "subsystem_device", "0x" + sub_device + "\n");
  }
  void h100() { pci("0000:17:00.0", "030200", "10de", "2330", "10de", "16c1"); }
  std::map<std::string, std::string> labels() {
    std::vector<std::string> problems;
    return pci_labels(read_pci(view, problems), config, problems);
  }
  Discovery run() { return discover(view, config, *parse_time("2026-01-01T00:00:00Z")); }

  TempDir dir;
  HostView view;
  WorkerConfig config;
};

using Labels = std::map<std::string, std::string>;

TEST(features, case01_pci_device_and_default_label) {
  Host host;
  host.h100();
  std::vector<std::string> problems;
  const auto features = read_pci(host.view, problems);
  EXPECT_EQ(features.instances.at("pci.device").at(0), (Attributes{{"class", "0302"},
                                                                   {"vendor", "10de"},
                                                                   {"device", "2330"},
                                                                   {"subsystem_vendor", "10de"},
                                                                   {"subsystem_device", "16c1"}}));
  EXPECT_EQ(host.labels(), (Labels{{"pci-0302_10de.present", "true"}}));
}

TEST(features, case02_case03_operator_chart_configuration) {
  Host host;
  host.h100();
  ASSERT_TRUE(merge_config(
      host.config,
      "sources:\n  pci:\n    deviceClassWhitelist: [\"02\", \"0200\", \"0207\", \"0300\", \"0302\"]\n"
      "    deviceLabelFields: [vendor]\n",
      "f"));
  EXPECT_EQ(host.labels(), (Labels{{"pci-10de.present", "true"}}));
  put(host.view.sys / "bus/pci/devices/0000:17:00.0/sriov_totalvfs", "0\n");
  EXPECT_EQ(host.labels(), (Labels{{"pci-10de.present", "true"}, {"pci-10de.sriov.capable", "true"}}));
}

TEST(features, case04_case05_label_fields) {
  Host host;
  host.h100();
  host.config.pci_class_whitelist = {"03"};
  host.config.pci_label_fields = {"subsystem_device", "vendor", "foo"};
  std::vector<std::string> problems;
  EXPECT_EQ(pci_labels(read_pci(host.view, problems), host.config, problems),
            (Labels{{"pci-10de_16c1.present", "true"}}));
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_NE(problems[0].find("'foo'"), std::string::npos);
  host.config.pci_label_fields = {"foo"};
  EXPECT_EQ(host.labels(), (Labels{{"pci-0302_10de.present", "true"}}));
}

TEST(features, case06_class_whitelist_ignores_case) {
  Host host;
  host.pci("0000:00:01.0", "0b4000", "8086", "0001", "8086", "0001");
  host.config.pci_class_whitelist = {"0B40"};
  EXPECT_EQ(host.labels(), (Labels{{"pci-0b40_8086.present", "true"}}));
}

TEST(features, case07_incomplete_device_is_left_out) {
  Host host;
  host.h100();
  host.pci("0000:18:00.0", "030200", "10de", "2330", "10de", "16c1");
  fs::remove(host.view.sys / "bus/pci/devices/0000:18:00.0/subsystem_vendor");
  std::vector<std::string> problems;
  EXPECT_EQ(read_pci(host.view, problems).instances.at("pci.device").size(), 1u);
  EXPECT_EQ(problems.size(), 1u);
}

TEST(features, case08_kernel_version) {
  EXPECT_EQ(
      kernel_version("5.14.0-284.30.1.el9_2.x86_64"),
      (Attributes{
          {"full", "5.14.0-284.30.1.el9_2.x86_64"}, {"major", "5"}, {"minor", "14"}, {"revision", "0"}}));
  EXPECT_EQ(kernel_version("6.5.0-1020-aws+~").at("full"), "6.5.0-1020-aws");
  EXPECT_EQ(kernel_version("4.18.0-305.el8.x86_64+rt").at("full"), "4.18.0-305.el8.x86_64_rt");
  EXPECT_EQ(kernel_version("rolling").count("major"), 0u);
}

TEST(features, case09_case10_os_release) {
  Host host;
  put(host.view.os_release,
      "ID=\"rhcos\"\nVERSION_ID=\"4.14\"\nOSTREE_VERSION='414.92.202309282257-0'\nNAME=x\n");
  const auto labels = host.run().labels;
  const std::string prefix = "feature.node.kubernetes.io/system-os_release.";
  EXPECT_EQ(labels.at(prefix + "ID"), "rhcos");
  EXPECT_EQ(labels.at(prefix + "VERSION_ID.major"), "4");
  EXPECT_EQ(labels.at(prefix + "VERSION_ID.minor"), "14");
  EXPECT_EQ(labels.at(prefix + "OSTREE_VERSION"), "414.92.202309282257-0");
  EXPECT_EQ(parse_os_release("VERSION_ID=rolling\n"), (Attributes{{"VERSION_ID", "rolling"}}));
}

TEST(features, os_release_is_not_taken_from_our_own_image) {
  Host host;
  const auto found = host.run();
  EXPECT_FALSE(found.labels.contains("feature.node.kubernetes.io/system-os_release.ID"));
  EXPECT_FALSE(found.problems.empty());
}

TEST(features, case11_feature_file_of_gpu_feature_discovery) {
  Host host;
  put(host.view.features_d / "gfd", "nvidia.com/gpu.count=8\nnvidia.com/mig.capable\n");
  put(host.view.features_d / ".hidden", "x=1\n");
  const auto found = host.run();
  EXPECT_EQ(found.labels.at("nvidia.com/gpu.count"), "8");
  EXPECT_EQ(found.labels.at("nvidia.com/mig.capable"), "true");
  EXPECT_EQ(found.features.attributes.at("local.feature").size(), 2u);
}

TEST(features, case12_case13_directives) {
  std::vector<std::string> problems;
  const Time now = *parse_time("2026-01-01T00:00:00Z");
  const auto parse = [&](std::string_view text) { return parse_feature_file(text, "f", now, problems); };
  EXPECT_EQ(
      parse("# +expiry-time=2001-01-01T00:00:00Z\na=1\n# +expiry-time=2199-01-01T00:00:00Z\nb=2\n").labels,
      (Labels{{"b", "2"}}));
  auto found = parse("# +no-label\nx=1\ny=2\n");
  EXPECT_EQ(found.features, (Attributes{{"x", "1"}, {"y", "2"}}));
  EXPECT_EQ(found.labels, (Labels{{"y", "2"}}));
  found = parse("# +no-feature\nx=1\ny=2\n");
  EXPECT_EQ(found.features, (Attributes{{"y", "2"}}));
  EXPECT_EQ(found.labels, (Labels{{"x", "1"}, {"y", "2"}}));
  // The directive belongs to the next feature line, an expired one too.
  EXPECT_EQ(
      parse(
          "# +expiry-time=2001-01-01T00:00:00Z\n# +no-label\na=1\n# +expiry-time=2199-01-01T00:00:00Z\nb=2\n")
          .labels,
      (Labels{{"b", "2"}}));
  EXPECT_TRUE(problems.empty());
  parse("# +expiry-time=soon\n# +what\na=1\n");
  EXPECT_EQ(problems.size(), 2u);
}

TEST(features, case14_oversized_feature_file) {
  Host host;
  put(host.view.features_d / "big", std::string(65537, 'x'));
  const auto found = host.run();
  const auto named = std::find_if(found.problems.begin(), found.problems.end(), [](const std::string& text) {
    return text.find("65537") != std::string::npos && text.find("65536") != std::string::npos;
  });
  EXPECT_NE(named, found.problems.end());
}

TEST(features, case15_sleep_interval) {
  WorkerConfig config;
  ASSERT_TRUE(merge_config(config, "core: {sleepInterval: 200ms}", "f"));
  EXPECT_EQ(config.sleep_interval, 1s);
  EXPECT_EQ(config.warnings.size(), 1u);
  ASSERT_TRUE(merge_config(config, "CORE: {SLEEPINTERVAL: 0s}", "f"));
  EXPECT_EQ(config.sleep_interval, 0s);
  const auto bad = merge_config(config, "core: {sleepInterval: abc}", "f");
  ASSERT_FALSE(bad);
  EXPECT_TRUE(bad.error().text().starts_with("failed to parse config file")) << bad.error().text();
  EXPECT_FALSE(merge_config(config, "core: [", "f"));
}

TEST(features, unknown_configuration_keys_are_named_once) {
  WorkerConfig config;
  ASSERT_TRUE(
      merge_config(config, "core: {slepInterval: 5s}\nsources: {pci: {deviceLabelField: [vendor]}}\n", "f"));
  ASSERT_EQ(config.warnings.size(), 2u);
  EXPECT_NE(config.warnings[0].find("core.slepInterval"), std::string::npos);
  EXPECT_NE(config.warnings[0].find("'sleepInterval'"), std::string::npos);
}

TEST(features, master_configuration) {
  MasterOptions options;
  std::vector<std::string> warnings;
  ASSERT_TRUE(merge_master_config(
      options, "extraLabelNs: [a.com]\ndenyLabelNs: [\"*.b.com\"]\nenableTaint: true\n", "m.conf", warnings));
  EXPECT_EQ(options.extra_label_ns, std::vector<std::string>{"a.com"});
  EXPECT_EQ(options.deny_label_ns, std::vector<std::string>{"*.b.com"});
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("enableTaint"), std::string::npos);
  EXPECT_FALSE(merge_master_config(options, "extraLabelNs: 5", "m.conf", warnings));
}

TEST(features, case16_owner_references) {
  EXPECT_EQ(*check_owner_refs({"ds", "node"}), (std::vector<std::string>{"node", "ds"}));
  EXPECT_EQ(check_owner_refs({"pod", "pod"}).error().text(), "duplicate owner reference source \"pod\"");
  EXPECT_EQ(check_owner_refs({"job"}).error().text(),
            "invalid owner reference source \"job\" (must be one of: node, pod, ds)");
  EXPECT_TRUE(check_owner_refs({})->empty());
}

TEST(features, case38_case39_white_list_and_withheld_features) {
  Host host;
  host.h100();
  put(host.view.os_release, "ID=ubuntu\n");
  host.config.label_white_list = "^(pci|kernel)-";
  host.config.no_publish_features = {"pci.*"};
  const auto found = host.run();
  for (const auto& [key, value] : found.labels)
    EXPECT_TRUE(key.find("/pci-") != key.npos || key.find("/kernel-") != key.npos) << key;
  EXPECT_TRUE(found.labels.contains("feature.node.kubernetes.io/pci-0302_10de.present"));
  WorkerOptions options;
  options.config = host.config;
  options.node = "n1";
  options.ns = "nfd";
  options.pod_uid = "u";
  const Json object = node_feature(options, found, {});
  EXPECT_FALSE(has(object, {"spec", "features", "instances", "pci.device"}));
  EXPECT_TRUE(has(object, {"spec", "features", "attributes", "system.osrelease"}));
  EXPECT_EQ(get_string(object, {"metadata", "labels", "nfd.node.kubernetes.io/node-name"}), "n1");
  EXPECT_FALSE(differs(object, node_feature(options, found, {})));
  options.pod_uid = "v";
  EXPECT_TRUE(differs(object, node_feature(options, found, {})));
}

TEST(features, feature_sets_survive_the_object) {
  FeatureSet set;
  set.flags["kernel.loadedmodule"] = {"nvidia", "i2c_core"};
  set.attributes["memory.numa"] = {{"node_count", "2"}};
  set.instances["pci.device"] = {{{"vendor", "10de"}}, {{"vendor", "15b3"}}};
  EXPECT_EQ(features_from_json(features_to_json(set)), set);
}

std::shared_ptr<const Json> feature(const std::string& ns, const std::string& name,
                                    const std::string& labels) {
  return std::make_shared<const Json>(*parse_json(R"({"metadata":{"name":")" + name + R"(","namespace":")" +
                                                  ns + R"("},"spec":{"labels":)" + labels + "}}"));
}

TEST(features, case26_denied_namespaces) {
  std::vector<std::string> rejected;
  MasterOptions options;
  options.extra_label_ns = {};
  options.deny_label_ns = {"*.example.com"};
  auto merged = merge_labels(
      {feature("nfd", "n1",
               R"({"kubernetes.io/foo":"1","a.example.com/x":"1","example.com/x":"1","b":"2"})")},
      options, rejected);
  EXPECT_EQ(merged, (Labels{{"example.com/x", "1"}, {"feature.node.kubernetes.io/b", "2"}}));
  EXPECT_EQ(rejected.size(), 2u);
  options.extra_label_ns = {"kubernetes.io"};
  merged = merge_labels({feature("nfd", "n1", R"({"kubernetes.io/foo":"1"})")}, options, rejected);
  EXPECT_EQ(merged, (Labels{{"kubernetes.io/foo", "1"}}));
}

TEST(features, case31_merge_order) {
  std::vector<std::shared_ptr<const Json>> objects{feature("team", "z", R"({"a":"2"})"),
                                                   feature("nfd", "n1", R"({"a":"1"})")};
  order_features(objects, "nfd");
  std::vector<std::string> rejected;
  EXPECT_EQ(merge_labels(objects, {}, rejected).at("feature.node.kubernetes.io/a"), "2");
}

TEST(features, case32_no_removal_on_the_first_sight_of_a_node) {
  const Json node =
      *parse_json(R"({"labels":{"feature.node.kubernetes.io/pci-10de.present":"true","mine":"x"},
    "annotations":{"nfd.node.kubernetes.io/feature-labels":"pci-10de.present"}})");
  const auto& labels = get_object(node, {"labels"});
  const auto& annotations = get_object(node, {"annotations"});
  EXPECT_TRUE(decide_labels(labels, annotations, {}, false).empty());
  const auto change = decide_labels(labels, annotations, {}, true);
  EXPECT_EQ(to_text(label_patch(change, "7")),
            R"({"metadata":{"labels":{"feature.node.kubernetes.io/pci-10de.present":null},)"
            R"("annotations":{"nfd.node.kubernetes.io/feature-labels":null},"resourceVersion":"7"}})");
}

TEST(features, case36_second_pass_writes_nothing) {
  const Labels wanted{{"feature.node.kubernetes.io/a", "1"}, {"nvidia.com/gpu.count", "8"}};
  const auto change = decide_labels({}, {}, wanted, true);
  EXPECT_EQ(change.labels.size(), 2u);
  EXPECT_EQ(change.owned, "a,nvidia.com/gpu.count");
  const Json node = *parse_json(R"({"l":{"feature.node.kubernetes.io/a":"1","nvidia.com/gpu.count":"8"},
    "a":{"nfd.node.kubernetes.io/feature-labels":"a,nvidia.com/gpu.count"}})");
  EXPECT_TRUE(decide_labels(get_object(node, {"l"}), get_object(node, {"a"}), wanted, true).empty());
}

}  // namespace
}  // namespace gpuop::features
