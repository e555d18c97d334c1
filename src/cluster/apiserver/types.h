// What the server knows of resource types: the shapes of built-in messages and the table of served resources.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gpuop::cluster::api {

struct Message;

enum class FieldKind {
  kText,
  kInt,
  kBool,
  kBytes,
  kMessage,
  kTime,
  kMicroTime,
  kQuantity,
  kIntOrString,
  kRaw,   // any JSON (RawExtension, FieldsV1)
  kOpen,  // a message that the tables do not hold: taken as it is in JSON, refused in protobuf
};
enum class Shape { kOne, kList, kMap };

struct Field {
  int number = 0;
  std::string name;  // JSON name; empty when inlined
  FieldKind kind = FieldKind::kText;
  Shape shape = Shape::kOne;
  bool keep_zero = false;    // 0, false or "" is stored, not dropped
  bool inlined = false;      // the message's fields stand in the parent's JSON
  bool set = false;          // list of distinct texts
  bool retain_keys = false;  // strategic merge: $retainKeys
  bool whole_map = false;    // server-side apply owns the map whole
  std::vector<std::string> merge_keys;
  std::string type_name;
  const Message* message = nullptr;
};

struct Message {
  std::string name;
  bool whole = false;  // server-side apply owns it whole
  std::vector<Field> fields;
  std::map<std::string, const Field*, std::less<>> by_name;  // JSON names, inlined ones too
  const Field* by_number(int number) const;
};

// The message `name`, looked for in `package` first ("core", "apps", "meta", …); null when the tables lack
// it.
const Message* find_message(std::string_view package, std::string_view name);

// (package, table text) pairs; see type_tables.cc.
const std::vector<std::pair<std::string_view, std::string_view>>& type_tables();

class CustomType;  // crd.h
class Schema;      // schema.h

struct Subresource {
  std::string name;  // "status"
  std::string group, version, kind;
  std::vector<std::string> verbs;
};

enum class NameRule { kSubdomain, kLabel, kPath };

struct ResourceType {
  std::string group, version, plural, singular, kind, list_kind;
  bool namespaced = true;
  std::vector<std::string> short_names, categories, verbs;
  std::vector<Subresource> subresources;
  bool has_status = false;
  bool has_scale = false;
  bool has_generation = false;
  bool create_only = false;  // reviews: answered, never stored
  NameRule name_rule = NameRule::kSubdomain;
  const Message* message = nullptr;          // built-in shape, null when not in the tables
  std::shared_ptr<const CustomType> custom;  // set for custom resources
  std::string store;                         // the collection that holds it: "apps/daemonsets"

  std::string api_version() const { return group.empty() ? version : group + "/" + version; }
  // "daemonsets.apps", as messages name it.
  std::string qualified() const { return group.empty() ? plural : plural + "." + group; }
  std::string qualified_kind() const { return group.empty() ? kind : kind + "." + group; }
  const Subresource* subresource(std::string_view name) const;
  const Schema& custom_schema() const;  // only where `custom` is set
};
using TypePtr = std::shared_ptr<const ResourceType>;

// Every built-in resource type, in the order in which discovery shows them.
std::vector<TypePtr> builtin_types();

// "Pod" → "pods.v1" like lookups are by (group, version, plural).
struct TypeKey {
  std::string group, version, plural;
  auto operator<=>(const TypeKey&) const = default;
};

}  // namespace gpuop::cluster::api
