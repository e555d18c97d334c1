// Sets of an object's fields, and merging objects by their types' shapes: what server-side apply is made of
// (kubernetes-api.md §9).
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "cluster/apiserver/schema.h"
#include "cluster/apiserver/types.h"

namespace gpuop::cluster::api {

// A trie of path elements as fieldsV1 writes them: "f:name", "k:{…}", "v:…".
struct FieldSet {
  bool member = false;
  std::map<std::string, FieldSet> children;

  static FieldSet from_json(const Json& fields);
  Json json() const;
  bool empty() const { return !member && children.empty(); }
  void add(const FieldSet& other);
  FieldSet without(const FieldSet& other) const;
  FieldSet common(const FieldSet& other) const;
  // ".spec.containers[name=\"c\"].image", each member once.
  std::vector<std::string> paths() const;
};

// How one value is merged: by a built-in message, by a custom resource's schema, or by what it looks like.
class Form {
 public:
  enum class Kind { kWhole, kMap, kKeyed, kSet };

  static Form of_type(const ResourceType& type);
  Kind kind(const Json& value) const;
  Form child(std::string_view key) const;  // of a map
  Form item() const;                       // of a list
  const std::vector<std::string>& keys() const;
  // Whether `key` is one of many like it (a label) rather than a field with a name of its own.
  bool open_key(std::string_view key) const;
  // What a value must be: "map", "list", "string", "numeric (int or float)", "boolean", "" for anything.
  std::string wanted() const;
  bool declares(std::string_view key) const;  // of a map

 private:
  const Message* message_ = nullptr;
  const Field* field_ = nullptr;  // the container that the value is, if any
  const Schema* schema_ = nullptr;
  const Field* scalar_ = nullptr;  // a text, number or boolean
  bool root_ = false;
};

// What keeps `value` from being applied: wrong types, fields that do not exist, entries twice. Each with its
// path.
void find_faults(const Json& value, const Form& form, const std::string& path,
                 std::vector<std::string>& faults);
FieldSet fields_of(const Json& value, const Form& form);
struct FieldChanges {
  FieldSet changed;  // new or different
  FieldSet removed;
};
FieldChanges compare(const Json& old, const Json& now, const Form& form);
// `applied` over `live`.
Json merge_by_form(const Json& live, const Json& applied, const Form& form);
// Takes `doomed` out of `value`; an item goes whole, with what nobody owns in it, unless `kept` has part of
// it.
void remove_fields(Json& value, const FieldSet& doomed, const FieldSet& kept, const Form& form);

}  // namespace gpuop::cluster::api
