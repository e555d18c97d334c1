// Schemas: what a resource's JSON may hold and where each field goes in its C++ struct. Private to this room.
//
// A resource type is declared by one function per struct that lists its fields (describe(Fields<T>&)). The
// declaration is data: parsing, defaults, checks, the CRD's OpenAPI schema and the field reference walk it.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/json.h"
#include "policy/shared_types.h"

namespace gpuop::policy {

enum class Kind {
  kObject,  // a struct, or JSON with the listed properties
  kMap,     // string keys, `items` values
  kArray,   // of `items`
  kString,
  kBool,
  kInt32,
  kInt64,
  kQuantity,  // a Kubernetes quantity, int or string
  kIntOrString,
};

struct Property;

struct Schema {
  Kind kind = Kind::kObject;
  std::string doc;
  std::vector<Property> properties;  // kObject
  const Schema* items = nullptr;     // kArray, kMap
  std::optional<Json> default_value;
  std::vector<std::string> choices;  // enum
  std::string pattern;               // for the CRD; `matches` decides here
  bool (*matches)(std::string_view text) = nullptr;
  std::string must;  // what `matches` wants, for messages: "be a duration such as 15s"
  std::optional<std::int64_t> minimum;
  std::optional<std::int64_t> maximum;
  bool required = false;
  bool deprecated = false;
  std::string deprecation;                                 // why, or what to use
  std::vector<std::pair<std::string, std::string>> rules;  // CEL rule, message
  std::string list_map_key;                                // kArray with x-kubernetes-list-type: map

  // Puts checked JSON into the C++ value; null: the value is kept as JSON.
  void (*store)(const Schema& schema, const Json& json, void* target) = nullptr;
  // The C++ value as JSON, for documenting what absence means; null when unknown.
  std::optional<Json> (*load)(const void* source) = nullptr;
};

struct Property {
  std::string name;
  Schema schema;
  std::size_t offset = 0;   // of the member in its struct
  bool has_member = false;  // false: part of JSON that is kept whole
  // The struct behind an optional or plain member, for documenting; null when there is none.
  const void* (*inner)(const void* member) = nullptr;
};

// Chained facts about the field just added.
class FieldRef {
 public:
  explicit FieldRef(Schema& schema) : schema_(schema) {}
  FieldRef& default_value(Json value) {
    schema_.default_value = std::move(value);
    return *this;
  }
  FieldRef& one_of(std::vector<std::string> choices) {
    schema_.choices = std::move(choices);
    return *this;
  }
  FieldRef& pattern(std::string text, bool (*matches)(std::string_view), std::string must);
  FieldRef& min(std::int64_t value) {
    schema_.minimum = value;
    return *this;
  }
  FieldRef& max(std::int64_t value) {
    schema_.maximum = value;
    return *this;
  }
  FieldRef& required() {
    schema_.required = true;
    return *this;
  }
  FieldRef& deprecated(std::string why);
  FieldRef& rule(std::string cel, std::string message);
  FieldRef& int32() {
    schema_.kind = Kind::kInt32;
    return *this;
  }
  FieldRef& as(Kind kind) {
    schema_.kind = kind;
    return *this;
  }
  FieldRef& as(const Schema& schema);  // takes that schema's shape; doc and storage stay
  // Each item of an array of strings must match.
  FieldRef& items(const Schema& schema) {
    schema_.items = &schema;
    return *this;
  }

 private:
  Schema& schema_;
};

template <class T>
class Fields;

// Finds the describe() of T; each struct's stands where its resource is declared.
template <class T>
const Schema& schema_of();

namespace detail {

void store_string(const Schema&, const Json&, void*);
void store_bool(const Schema&, const Json&, void*);
void store_optional_bool(const Schema&, const Json&, void*);
void store_int(const Schema&, const Json&, void*);
void store_json(const Schema&, const Json&, void*);
void store_json_array(const Schema&, const Json&, void*);
void store_strings(const Schema&, const Json&, void*);
void store_map(const Schema&, const Json&, void*);
void store_object(const Schema&, const Json&, void*);
std::optional<Json> load_string(const void*);
std::optional<Json> load_bool(const void*);
std::optional<Json> load_int(const void*);
const Schema& string_schema();

template <class T>
struct Traits {  // a struct
  static void fill(Schema& s) {
    std::string doc = std::move(s.doc);
    s = schema_of<T>();
    s.doc = std::move(doc);
  }
  static const void* inner(const void* member) { return member; }
};
template <>
struct Traits<std::string> {
  static void fill(Schema& s) {
    s.kind = Kind::kString;
    s.store = store_string;
    s.load = load_string;
  }
};
template <>
struct Traits<bool> {
  static void fill(Schema& s) {
    s.kind = Kind::kBool;
    s.store = store_bool;
    s.load = load_bool;
  }
};
template <>
struct Traits<std::optional<bool>> {
  static void fill(Schema& s) {
    s.kind = Kind::kBool;
    s.store = store_optional_bool;
  }
};
template <>
struct Traits<std::int64_t> {
  static void fill(Schema& s) {
    s.kind = Kind::kInt64;
    s.store = store_int;
    s.load = load_int;
  }
};
template <>
struct Traits<Json> {
  static void fill(Schema& s) {
    s.kind = Kind::kObject;
    s.store = store_json;
  }
};
template <>
struct Traits<JsonArray> {
  static void fill(Schema& s) {
    s.kind = Kind::kArray;
    s.store = store_json_array;
  }
};
template <>
struct Traits<std::vector<std::string>> {
  static void fill(Schema& s) {
    s.kind = Kind::kArray;
    s.items = &string_schema();
    s.store = store_strings;
  }
};
template <>
struct Traits<StringMap> {
  static void fill(Schema& s) {
    s.kind = Kind::kMap;
    s.items = &string_schema();
    s.store = store_map;
  }
};
template <class T>
struct Traits<std::vector<T>> {
  static void fill(Schema& s) {
    s.kind = Kind::kArray;
    s.items = &schema_of<T>();
    s.store = [](const Schema& schema, const Json& json, void* target) {
      auto& list = *static_cast<std::vector<T>*>(target);
      list.clear();
      for (const Json& item : json.get_array())
        schema.items->store(*schema.items, item, &list.emplace_back());
    };
  }
};
template <class T>
struct Traits<std::optional<T>> {
  static void fill(Schema& s) {
    Traits<T>::fill(s);
    s.store = [](const Schema& schema, const Json& json, void* target) {
      auto& slot = *static_cast<std::optional<T>*>(target);
      slot.emplace();
      store_object(schema, json, &*slot);
    };
  }
  static const void* inner(const void*) {
    static const T blank{};
    return &blank;
  }
};

}  // namespace detail

template <class T>
class Fields {
 public:
  explicit Fields(Schema& schema) : schema_(schema) {}

  template <class M, class B>
  FieldRef add(std::string_view name, M B::* base_member, std::string_view doc) {
    static_assert(std::is_base_of_v<B, T>);
    M T::* member = base_member;
    static const T probe{};
    Property& p = schema_.properties.emplace_back();
    p.name = name;
    p.offset = static_cast<std::size_t>(reinterpret_cast<const char*>(&(probe.*member)) -
                                        reinterpret_cast<const char*>(&probe));
    p.has_member = true;
    p.schema.doc = doc;
    detail::Traits<M>::fill(p.schema);
    if constexpr (requires { &detail::Traits<M>::inner; }) p.inner = &detail::Traits<M>::inner;
    return FieldRef(p.schema);
  }

  Schema& schema() { return schema_; }

 private:
  Schema& schema_;
};

// Each struct of a resource has one: describe(Fields<T>&).
template <class T>
const Schema& schema_of() {
  static const Schema schema = [] {
    Schema s;
    s.kind = Kind::kObject;
    s.store = detail::store_object;
    Fields<T> fields(s);
    describe(fields);
    return s;
  }();
  return schema;
}

// JSON that is kept as JSON: a property of an object schema.
FieldRef add_json(Schema& schema, std::string_view name, Kind kind, std::string_view doc);

// --- walking ---

struct Problem {
  std::string path;
  std::string text;  // "spec.x: must be …"
};

// Everything wrong with `json`, in document order. `path` is its own path ("spec").
std::vector<Problem> find_problems(const Schema& schema, const Json& json, const std::string& path);
// Unknown and deprecated fields, in document order.
std::vector<Note> find_notes(const Schema& schema, const Json& json, const std::string& path);
// What the API server stores: nulls and unknown fields dropped, defaults filled in (also inside blocks that
// are there).
Json normalized(const Schema& schema, const Json& json);

// The OpenAPI v3 schema of the CRD.
Json openapi(const Schema& schema);
// Rows of the field reference, one a leaf or block, beneath `path`; `assumed` is a default-constructed value
// or null.
std::string reference_rows(const Schema& schema, const void* assumed, const std::string& path);
// Every path that the schema declares, arrays as "[]", maps as "{}".
void list_paths(const Schema& schema, const std::string& path, std::vector<std::string>& out);

// Shared declarations.
void describe(Fields<EnvVar>& f);
void describe(Fields<ImageSpec>& f);
void describe(Fields<Manager>& f);
void describe(Fields<NamedConfig>& f);
void describe(Fields<Toggle>& f);
void describe(Fields<Probe>& f);
void describe(Fields<ServiceMonitor>& f);
void describe(Fields<Rdma>& f);
void describe(Fields<Sidecar>& f);

const Schema& toleration_schema();
const Schema& pod_security_context_schema();
const Schema& resources_schema();
const Schema& relabel_config_schema();
const Schema& node_affinity_schema();
const Schema& condition_schema();
bool matches_image_name(std::string_view text);
bool matches_image_name_whole(std::string_view text);
bool matches_duration(std::string_view text);

// Groups IMG, ARGS, ENV, RES and HN of operator.md §1.2 for whichever struct has them.
template <class T>
void add_image(Fields<T>& f) {
  f.add("repository", &T::repository, "Registry and path of the image, without its name.");
  f.add("image", &T::image, "Image name; with repository and version empty, the whole reference.")
      .pattern("[a-zA-Z0-9\\-]+", matches_image_name, "hold a letter, a digit or '-'");
  f.add("version", &T::version, "Image tag, or a digest as sha256:HEX.");
  f.add("imagePullPolicy", &T::image_pull_policy,
        "Always, Never or IfNotPresent; anything else counts as IfNotPresent.");
  f.add("imagePullSecrets", &T::image_pull_secrets, "Names of pull secrets in the operator's namespace.");
}
template <class T>
void add_args(Fields<T>& f) {
  f.add("args", &T::args, "Arguments; when set they replace the main container's.");
}
template <class T>
void add_env(Fields<T>& f) {
  f.add("env", &T::env, "Environment variables, each a name and a value.");
}
template <class T>
void add_resources(Fields<T>& f) {
  f.add("resources", &T::resources, "Resource limits and requests of the container.").as(resources_schema());
}
template <class T>
void add_enabled(Fields<T>& f, std::string_view doc) {
  f.add("enabled", &T::enabled, doc);
}
template <class T>
void add_container(Fields<T>& f) {
  add_image(f);
  add_resources(f);
  add_args(f);
  add_env(f);
  f.add("hostNetwork", &T::host_network, "Run the pod in the host's network namespace.");
}

}  // namespace gpuop::policy
