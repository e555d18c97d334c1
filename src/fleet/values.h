// What an administrator's values files mean to our Helm chart, said before anything is installed: keys that
// no version of the chart has, values of the wrong type, values that do nothing or not what they seem to,
// those that the chart refuses, and those that the API server would refuse in the objects that come of them.
// The knowledge is the chart's own files (values.schema.json, values.yaml, files/), which are
// built in, so that `gpuctl preflight` and helm say the same.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/yaml.h"
#include "fleet/value_fields.h"

namespace gpuop::fleet {

struct ValuesRules {
  JsonArray advice;         // as in files/advice.yaml
  JsonArray images;         // as in files/images.yaml
  JsonArray foreign;        // as in files/foreign.yaml
  std::string app_version;  // of Chart.yaml, which is the programs' own
  Json schema;              // values.schema.json
  Json defaults;            // values.yaml
};
// Those of the chart of this version.
const ValuesRules& chart_rules();

// files/keys.txt of the chart, which its install notes go by: a template cannot read the schema.
std::string keys_file(const Json& schema);

struct ValuesFinding {
  enum class Kind {
    kUnknown,    // no version of the chart has the key; it does nothing
    kDuplicate,  // written twice in one map; the last one counts
    kNoEffect,   // does nothing, or not what it seems to
    kRefused,    // the chart would not install
    kBroken,     // the chart installs, and the API server or the operator refuses what comes of it
  };
  Kind kind;
  std::string path;      // "driver.version", "toolkit.env CONTAINERD_CONFIG"
  int line = 0;          // 1-based, in the user's file
  std::string text;      // what is the case, and what to write instead
  std::size_t file = 0;  // which of the files
  std::string meant{};   // the path that the text ends with as what was meant; "" for none
};

// What a caller finds beside that in the values of all files, merged with the defaults.
using MoreFaults = std::function<std::vector<FieldFault>(const Json& merged)>;

// Of files as helm takes them with several -f: the later wins, key by key. In the order of files and lines.
std::vector<ValuesFinding> check_values(std::span<const YamlDocument> files, const ValuesRules& rules,
                                        const MoreFaults& more = {});

// The chart's defaults with what the files set, as helm merges them: null takes a default away.
Json merged_values(std::span<const YamlDocument> files, const Json& defaults);

// The advice on environment variables in a ClusterPolicy's spec, whose paths are those of the values: what
// was set with kubectl, or by another chart, is told as well. kRefused: it would ruin nodes, and must not be
// carried out.
std::vector<ValuesFinding> check_policy_env(const Json& spec);

// Of an object that brings a chart into a cluster (HelmRelease, HelmChart, Application, any other), which was
// taken for the values in it: that it is none, and where they are. "" for a values file.
std::string no_values_file(const Json& value);

// Whether the chart would install and the operator take it.
bool installable(const std::vector<ValuesFinding>& findings);

}  // namespace gpuop::fleet
