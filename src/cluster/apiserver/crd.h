// Custom resource definitions: the definition's own rules, and what a served version needs (§12).
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "cluster/apiserver/schema.h"
#include "cluster/apiserver/status.h"
#include "cluster/apiserver/types.h"

namespace gpuop::cluster::api {

struct PrinterColumn {
  std::string name, type, format, description;
  int priority = 0;
  std::string json_path;
};

// One served version of a custom resource.
class CustomType {
 public:
  // `old`: what is said of the version where it is deprecated and says nothing itself.
  CustomType(std::shared_ptr<const Schema> schema, const Json& version, const std::string& old);

  const Schema& schema() const { return *schema_; }
  const std::vector<PrinterColumn>& columns() const { return columns_; }
  bool selectable(std::string_view field) const;
  // What every answer says of a deprecated version.
  const std::vector<std::string>& warnings() const { return warnings_; }
  // spec.versions[].schema.openAPIV3Schema as it was given.
  const Json& source() const { return source_; }
  // Paths of the scale subresource, "" when there is none.
  std::string spec_replicas, status_replicas, label_selector;

 private:
  std::shared_ptr<const Schema> schema_;
  std::vector<PrinterColumn> columns_;
  std::vector<std::string> selectable_, warnings_;
  Json source_;
};

// Fills in what the definition leaves out (listKind, singular, conversion).
void default_crd(Json& crd);
// Everything that makes a definition unusable.
FieldErrors validate_crd(const Json& crd);
// Writes status: acceptedNames, storedVersions, conditions. `others`: the group's other definitions, which
// hold the names that they have been given.
void establish_crd(Json& crd, const std::vector<Json>& others, std::string_view now_text);
// The served versions; empty while the names are not accepted.
std::vector<TypePtr> types_of_crd(const Json& crd);

// A value by a printer column's or scale's path (".spec.a.b",
// ".status.conditions[?(@.type==\"Ready\")].status", with or without the leading dot or braces). Null when
// absent.
const Json* by_json_path(const Json& object, std::string_view path);

}  // namespace gpuop::cluster::api
