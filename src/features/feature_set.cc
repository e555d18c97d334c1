#include "features/feature_set.h"

namespace gpuop::features {

void FeatureSet::merge(const FeatureSet& other) {
  for (const auto& [feature, names] : other.flags) flags[feature].insert(names.begin(), names.end());
  for (const auto& [feature, values] : other.attributes) {
    auto& mine = attributes[feature];
    for (const auto& [name, value] : values) mine[name] = value;
  }
  for (const auto& [feature, list] : other.instances) {
    auto& mine = instances[feature];
    mine.insert(mine.end(), list.begin(), list.end());
  }
}

void FeatureSet::erase(const std::string& feature) {
  flags.erase(feature);
  attributes.erase(feature);
  instances.erase(feature);
}

namespace {
JsonObject object_of(const Attributes& values) {
  JsonObject out;
  for (const auto& [name, value] : values) out[name] = value;
  return out;
}
Attributes attributes_of(const JsonObject& object) {
  Attributes out;
  for (const auto& [name, value] : object) {
    if (value.is_string()) out[std::string(name)] = std::string(as_text(value));
  }
  return out;
}
}  // namespace

Json features_to_json(const FeatureSet& set) {
  JsonObject flags;
  for (const auto& [feature, names] : set.flags) {
    JsonObject elements;
    for (const auto& name : names) elements[name] = JsonObject{};
    flags[feature] = JsonObject{{"elements", std::move(elements)}};
  }
  JsonObject attributes;
  for (const auto& [feature, values] : set.attributes)
    attributes[feature] = JsonObject{{"elements", object_of(values)}};
  JsonObject instances;
  for (const auto& [feature, list] : set.instances) {
    JsonArray elements;
    for (const auto& values : list) elements.push_back(JsonObject{{"attributes", object_of(values)}});
    instances[feature] = JsonObject{{"elements", std::move(elements)}};
  }
  return JsonObject{{"flags", std::move(flags)},
                    {"attributes", std::move(attributes)},
                    {"instances", std::move(instances)}};
}

FeatureSet features_from_json(const Json& features) {
  FeatureSet set;
  for (const auto& [feature, entry] : get_object(features, {"flags"})) {
    auto& names = set.flags[std::string(feature)];
    for (const auto& [name, nothing] : get_object(entry, {"elements"})) names.emplace(name);
  }
  for (const auto& [feature, entry] : get_object(features, {"attributes"})) {
    set.attributes[std::string(feature)] = attributes_of(get_object(entry, {"elements"}));
  }
  for (const auto& [feature, entry] : get_object(features, {"instances"})) {
    auto& list = set.instances[std::string(feature)];
    for (const auto& element : get_array(entry, {"elements"}))
      list.push_back(attributes_of(get_object(element, {"attributes"})));
  }
  return set;
}

}  // namespace gpuop::features
