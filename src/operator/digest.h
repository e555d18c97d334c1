// The driver's configuration digest (operator.md §9): equal to upstream's, byte for byte. Private.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "policy/shared_types.h"

namespace gpuop::op {

// From the finished pod of a ClusterPolicy driver DaemonSet, before the digest variable itself is set.
std::string driver_digest(const Json& pod);

// The same from fields by name, each value with its Go type in front, e.g. {"DriverType", "(string)gpu"}.
std::string digest_of(const std::map<std::string, std::string>& fields);

// Fields put in one by one; what is empty is left out, as upstream leaves out zero values.
class DriverDigest {
 public:
  void text(std::string_view name, std::string_view value);
  void flag(std::string_view name);
  void list(std::string_view name, const JsonArray& value);
  void env(std::string_view name, const std::vector<policy::EnvVar>& variables);
  // A field's text as it stands.
  void ready(std::string_view name, std::string value);
  // AdditionalVolumes and AdditionalVolumeMounts of nvidia-driver-ctr: those whose volume is not among
  // `known`.
  void volumes(const Json& pod, const std::set<std::string>& known);
  std::string digest() const { return digest_of(fields_); }

 private:
  std::map<std::string, std::string> fields_;
};

}  // namespace gpuop::op
