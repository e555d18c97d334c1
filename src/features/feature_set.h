// What a node's feature sources found: the content of NodeFeature.spec.features (nfd.md §3.1).
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/json.h"

namespace gpuop::features {

using Attributes = std::map<std::string, std::string>;

struct FeatureSet {
  std::map<std::string, std::set<std::string>> flags;        // "kernel.loadedmodule" → names
  std::map<std::string, Attributes> attributes;              // "kernel.version" → name → value
  std::map<std::string, std::vector<Attributes>> instances;  // "pci.device" → one map a device

  bool operator==(const FeatureSet&) const = default;
  // Later sets win over earlier ones, name by name; instances are appended.
  void merge(const FeatureSet& other);
  void erase(const std::string& feature);
};

// spec.features of a NodeFeature, and back (what is malformed is left out).
Json features_to_json(const FeatureSet& set);
FeatureSet features_from_json(const Json& features);

}  // namespace gpuop::features
