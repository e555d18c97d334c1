#include <gtest/gtest.h>

#include "base/text.h"
#include "fleet/values.h"
#include "preflight/config_texts.h"

namespace gpuop::preflight {
namespace {

using Kind = fleet::ValuesFinding::Kind;

// "error LINE PATH: TEXT" or "warning …", one a line.
std::string said(const std::string& values) {
  const auto document = parse_yaml_one(values, "values.yaml");
  if (!document) return document.error().text();
  std::string out;
  for (const auto& one : fleet::check_values({&*document, 1}, fleet::chart_rules(), value_faults)) {
    const bool error = one.kind == Kind::kRefused || one.kind == Kind::kBroken;
    out +=
        (error ? "error " : "warning ") + std::to_string(one.line) + " " + one.path + ": " + one.text + "\n";
  }
  return out;
}

std::string driver(const std::string& spec, const std::string& version = "nvidia.com/v1alpha1") {
  return "extraObjects:\n  - apiVersion: " + version +
         "\n    kind: NVIDIADriver\n    metadata: {name: a}\n    spec:\n      " + spec + "\n";
}

TEST(preflight, extra_objects_of_our_kinds_are_checked_by_field) {
  EXPECT_EQ(said(driver("driverType: gpu")), "");
  EXPECT_EQ(
      said(driver("driverType: gpus")),
      "error 6 extraObjects[0].spec.driverType: must be one of gpu, vgpu, vgpu-host-manager; got 'gpus' "
      "(did you mean 'gpu'?); the API server refuses it\n");
  EXPECT_EQ(said(driver("driverTyp: gpu")).find("warning 6 extraObjects[0].spec.driverTyp: unknown field"),
            0U)
      << said(driver("driverTyp: gpu"));
  EXPECT_EQ(said(driver("driverType: gpu", "nvidia.com/v1")),
            "error 2 extraObjects[0].apiVersion: must be nvidia.com/v1alpha1 for a NVIDIADriver; got "
            "nvidia.com/v1; the API server refuses it\n");
  const std::string both = said(driver("{default: true, nodeSelector: {a: b}}"));
  EXPECT_EQ(both.find("error 6 extraObjects[0].spec.nodeSelector: default NVIDIADriver must"), 0U) << both;
  EXPECT_EQ(
      said("extraObjects: [{apiVersion: nvidia.com/v1, kind: ClusterPolcy, metadata: {name: a}, spec: {}}]"),
      "error 1 extraObjects[0].kind: is no kind of nvidia.com/v1 (did you mean 'ClusterPolicy'?); the API "
      "server refuses it\n");
}

// Helm's own line is all that there is of what stands in a text.
TEST(preflight, extra_objects_in_texts_are_checked_with_their_names) {
  const std::string text =
      "extraObjects:\n  - |\n    apiVersion: nvidia.com/v1alpha1\n    kind: GPUCluster\n"
      "    metadata: {name: all}\n    spec: {draDriver: {}, daemonsets: {updateStrategy: Roling}}\n";
  const std::string all = said(text);
  EXPECT_EQ(all.find("error 2 extraObjects[0]: GPUCluster 'all': spec.daemonsets.updateStrategy: must be"),
            0U)
      << all;
  EXPECT_EQ(said("extraObjects:\n  - |\n    apiVersion: nvidia.com/v1\n    kind: ClusterPolicy\n"
                 "    metadata: {name: '{{ .Release.Name }}'}\n    spec: 3\n"),
            "");
}

TEST(preflight, a_second_cluster_policy_is_told) {
  const std::string policy =
      "extraObjects: [{apiVersion: nvidia.com/v1, kind: ClusterPolicy, metadata: {name: a}, spec: {operator: "
      "{}, "
      "driver: {}, toolkit: {}, devicePlugin: {}, daemonsets: {}, dcgm: {}, dcgmExporter: {}, "
      "nodeStatusExporter: {}, gfd: {}}}]\n";
  EXPECT_EQ(said(policy),
            "warning 1 extraObjects[0].kind: the operator follows one ClusterPolicy, and ignores this beside "
            "the chart's. Instead: clusterPolicy.deployCR=false\n");
  EXPECT_EQ(said(policy + "clusterPolicy: {deployCR: false}\n"), "");
}

std::string map(const std::string& name, const std::string& key, const std::string& text) {
  return "extraObjects:\n  - apiVersion: v1\n    kind: ConfigMap\n    metadata: {name: " + name +
         "}\n    data:\n      " + key + ": " + to_text(Json(text)) + "\n";
}

TEST(preflight, extra_config_maps_are_read_by_those_whom_they_configure) {
  const std::string plugin = "devicePlugin: {config: {name: plug, default: any}}\n";
  EXPECT_EQ(said(map("plug", "any", "version: v1") + plugin), "");
  EXPECT_EQ(said(map("other", "any", "version: v2") + plugin), "");
  const std::string bad = said(map("plug", "any", "version: v2") + plugin);
  EXPECT_EQ(bad.find("error 6 extraObjects[0].data.any: "), 0U) << bad;
  const std::string missing = said(map("plug", "ane", "version: v1") + plugin);
  EXPECT_EQ(missing.find("error 7 devicePlugin.config.default: 'any' is not in the data"), 0U) << missing;
  const std::string mig =
      said(map("parts", "config.yaml", "version: v2") + "migManager: {config: {name: parts}}\n");
  EXPECT_EQ(mig.find("error 6 extraObjects[0].data.config.yaml: "), 0U) << mig;
  const std::string metrics = said(map("m", "dcgm-metrics.csv", "DCGM_FI_DEV_GPU_TMP, gauge, T") +
                                   "dcgmExporter: {config: {name: m}}\n");
  EXPECT_EQ(metrics.find("error 6 extraObjects[0].data.dcgm-metrics.csv: "), 0U) << metrics;
}

TEST(preflight, extra_objects_of_any_kind_have_kind_and_name) {
  EXPECT_EQ(said("extraObjects: [{apiVersion: a/v1, kind: Any, metadata: {name: x}, spec: 3}]"), "");
  EXPECT_EQ(said("extraObjects: [{apiVersion: a/v1, kind: Any}]"),
            "error 1 extraObjects[0]: Any must have metadata.name, a text; the API server refuses it\n");
  EXPECT_EQ(said("extraObjects: [{apiVersion: v1, kind: List, items: []}]"), "");
  EXPECT_EQ(
      said("extraObjects: [{apiVersion: v1, kind: ConfigMap, metadata: {name: x}, data: {a: 1}}]"),
      "error 1 extraObjects[0].data.a: must be a text; got 1 (put it in quotes); the API server refuses "
      "it\n");
}

}  // namespace
}  // namespace gpuop::preflight
