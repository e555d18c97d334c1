// What an administrator's values file means to our Helm chart, said before anything is installed: keys that
// no version of the chart has, values of the wrong type, values that do nothing or not what they seem to, and
// those that the chart refuses. The knowledge is the chart's own files (files/keys.txt, files/advice.yaml,
// files/images.yaml, values.schema.json, values.yaml), so that `gpuctl preflight` and helm say the same.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/json.h"
#include "base/result.h"
#include "base/yaml.h"

namespace gpuop::fleet {

struct ValuesRules {
  std::set<std::string> keys;  // dotted; "x.*": whatever lies below x belongs to the user
  JsonArray advice;            // as in files/advice.yaml
  JsonArray images;            // as in files/images.yaml
  std::string app_version;     // of Chart.yaml
  Json schema;                 // draft-07, the part of it that our schema uses
  Json defaults;
};

// Reads them from the chart's folder. An unreadable or ill-formed file of the chart is an error that names
// it.
Result<ValuesRules> load_values_rules(const fs::path& chart);

struct ValuesFinding {
  enum class Kind {
    kUnknown,    // no version of the chart has the key; it does nothing
    kDuplicate,  // written twice in one map; the last one counts
    kNoEffect,   // does nothing, or not what it seems to
    kRefused,    // the chart would not install
    kBroken,     // the chart installs, and the operator cannot carry it out
  };
  Kind kind;
  std::string path;  // "driver.version", "toolkit.env CONTAINERD_CONFIG"
  int line = 0;      // 1-based, in the user's file
  std::string text;  // what is the case, and what to write instead
};

// In the order of lines.
std::vector<ValuesFinding> check_values(const YamlDocument& values, const ValuesRules& rules);

// The advice on environment variables in a ClusterPolicy's spec, whose paths are those of the values: what
// was set with kubectl, or by another chart, is told as well. kRefused: it would ruin nodes, and must not be
// carried out.
std::vector<ValuesFinding> check_policy_env(const Json& spec);

// Whether the chart would install and the operator take it.
bool installable(const std::vector<ValuesFinding>& findings);

}  // namespace gpuop::fleet
