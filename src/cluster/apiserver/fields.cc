#include "cluster/apiserver/fields.h"

#include "cluster/apiserver/server.h"

#include <algorithm>

namespace gpuop::cluster::api {

namespace {

constexpr int kMaxDepth = 64;

std::string field_element(std::string_view name) {
  return "f:" + std::string(name);
}
std::string value_element(const Json& value) {
  return "v:" + to_text(value);
}

std::string key_element(const Json& item, const std::vector<std::string>& keys) {
  std::vector<std::string> sorted = keys;
  std::sort(sorted.begin(), sorted.end());
  JsonObject out;
  for (const std::string& key : sorted)
    if (const Json* value = find(item, {key})) out[key] = *value;
  // A port's protocol is TCP where it is left out.
  if (std::find(keys.begin(), keys.end(), "protocol") != keys.end() && !out.contains("protocol"))
    out["protocol"] = "TCP";
  return "k:" + to_text(Json(std::move(out)));
}

FieldSet leaf() {
  FieldSet set;
  set.member = true;
  return set;
}

std::string shown(const std::string& element) {
  std::string rest = element.substr(2);
  if (element[0] == 'f') return "." + rest;
  if (element[0] == 'v') return "[=" + rest + "]";
  Result<Json> keys = parse_json(rest);
  if (!keys || !keys->is_object()) return "[" + rest + "]";
  std::string out;
  for (const auto& [key, value] : keys->get_object())
    out += (out.empty() ? "" : ",") + std::string(key) + "=" + to_text(value);
  return "[" + out + "]";
}

void list_paths(const FieldSet& set, const std::string& path, std::vector<std::string>& out) {
  // What is owned at one level comes before what is owned further down.
  for (const auto& [element, below] : set.children)
    if (below.member) out.push_back(path + shown(element));
  for (const auto& [element, below] : set.children) list_paths(below, path + shown(element), out);
}

FieldSet read(const Json& fields, int depth) {
  FieldSet set;
  const JsonObject* map = fields.if_object();
  if (map == nullptr || depth > kMaxDepth) return set;
  for (const auto& [key, below] : *map) {
    if (key == ".") {
      set.member = true;
      continue;
    }
    if (key.size() < 2) continue;
    FieldSet child = read(below, depth + 1);
    if (child.empty()) child.member = true;
    set.children[std::string(key)] = std::move(child);
  }
  return set;
}

}  // namespace

FieldSet FieldSet::from_json(const Json& fields) {
  return read(fields, 0);
}

Json FieldSet::json() const {
  JsonObject out;
  if (member && !children.empty()) out["."] = JsonObject();
  for (const auto& [element, below] : children) out[element] = below.json();
  return out;
}

void FieldSet::add(const FieldSet& other) {
  member = member || other.member;
  for (const auto& [element, below] : other.children) children[element].add(below);
}

FieldSet FieldSet::without(const FieldSet& other) const {
  FieldSet out;
  out.member = member && !other.member;
  for (const auto& [element, below] : children) {
    auto found = other.children.find(element);
    FieldSet left = found == other.children.end() ? below : below.without(found->second);
    if (!left.empty()) out.children[element] = std::move(left);
  }
  return out;
}

FieldSet FieldSet::common(const FieldSet& other) const {
  FieldSet out;
  out.member = member && other.member;
  for (const auto& [element, below] : children) {
    auto found = other.children.find(element);
    if (found == other.children.end()) continue;
    FieldSet both = below.common(found->second);
    if (!both.empty()) out.children[element] = std::move(both);
  }
  return out;
}

std::vector<std::string> FieldSet::paths() const {
  std::vector<std::string> out;
  list_paths(*this, "", out);
  return out;
}

// --- forms
// -------------------------------------------------------------------------------------------------------

Form Form::of_type(const ResourceType& type) {
  Form form;
  form.root_ = true;
  if (type.custom) {
    form.schema_ = &type.custom_schema();
  } else {
    form.message_ = type.message;
  }
  return form;
}

Form::Kind Form::kind(const Json& value) const {
  if (value.is_object()) {
    if (schema_ != nullptr) return schema_->map_atomic ? Kind::kWhole : Kind::kMap;
    if (field_ != nullptr) return field_->whole_map ? Kind::kWhole : Kind::kMap;
    return message_ != nullptr && message_->whole ? Kind::kWhole : Kind::kMap;
  }
  if (!value.is_array()) return Kind::kWhole;
  if (schema_ != nullptr) {
    if (schema_->list_type == Schema::ListType::kMap && !schema_->map_keys.empty()) return Kind::kKeyed;
    return schema_->list_type == Schema::ListType::kSet ? Kind::kSet : Kind::kWhole;
  }
  if (field_ == nullptr) return Kind::kWhole;
  if (field_->set) return Kind::kSet;
  return field_->merge_keys.empty() ? Kind::kWhole : Kind::kKeyed;
}

Form Form::child(std::string_view key) const {
  static const Message* meta = find_message("meta", "ObjectMeta");
  Form out;
  if (root_ && key == "metadata") {
    out.message_ = meta;
    return out;
  }
  if (schema_ != nullptr) {
    auto known = schema_->properties.find(key);
    if (known != schema_->properties.end()) {
      out.schema_ = known->second.get();
    } else {
      out.schema_ = schema_->additional.get();
    }
    return out;
  }
  if (field_ != nullptr) {  // a value of a map field
    out.message_ = field_->message;
    return out;
  }
  if (message_ == nullptr) return out;
  auto known = message_->by_name.find(key);
  if (known == message_->by_name.end()) return out;
  const Field* field = known->second;
  if (field->shape == Shape::kOne) {
    out.message_ = field->message;
    out.scalar_ = field->message == nullptr ? field : nullptr;
  } else {
    out.field_ = field;
  }
  return out;
}

Form Form::item() const {
  Form out;
  if (schema_ != nullptr) out.schema_ = schema_->items.get();
  if (field_ != nullptr) out.message_ = field_->message;
  return out;
}

const std::vector<std::string>& Form::keys() const {
  return schema_ != nullptr ? schema_->map_keys : field_->merge_keys;
}

bool Form::open_key(std::string_view key) const {
  if (root_) return false;
  if (schema_ != nullptr) return !schema_->properties.contains(key);
  if (field_ != nullptr) return true;
  return message_ == nullptr || !message_->by_name.contains(key);
}

// --- walking
// -----------------------------------------------------------------------------------------------------

namespace {

std::vector<std::pair<std::string, const Json*>> elements_of(const Json& value, const Form& form);

// Everything in `value`, each map and list on the way included: what a writer owns who brought all of it.
FieldSet whole_of(const Json& value, const Form& form) {
  FieldSet out = leaf();
  Form::Kind kind = form.kind(value);
  if (kind == Form::Kind::kWhole) return out;
  for (const auto& [element, item] : elements_of(value, form)) {
    Form below = kind == Form::Kind::kMap ? form.child(std::string_view(element).substr(2)) : form.item();
    out.children[element] = whole_of(*item, below);
  }
  return out;
}

FieldSet below_of(const Json& value, const Form& form) {
  if (form.kind(value) == Form::Kind::kWhole || (value.is_object() && value.get_object().empty()))
    return leaf();
  return fields_of(value, form);
}

Json* same_item(JsonArray& list, const std::string& element, const std::vector<std::string>& keys) {
  for (Json& item : list)
    if (key_element(item, keys) == element) return &item;
  return nullptr;
}

void compare_maps(const Json& old, const Json& now, const Form& form, FieldChanges& out);

void compare_one(const std::string& element, const Json* old, const Json* now, const Form& form,
                 FieldChanges& out) {
  if (old == nullptr || now == nullptr) {
    FieldSet& side = old == nullptr ? out.changed : out.removed;
    side.children[element] = whole_of(old == nullptr ? *now : *old, form);
    return;
  }
  if (*old == *now) return;
  Form::Kind kind = form.kind(*now);
  if (kind == Form::Kind::kWhole || kind != form.kind(*old)) {
    out.changed.children[element] = leaf();
    return;
  }
  FieldChanges below;
  compare_maps(*old, *now, form, below);
  if (!below.changed.empty()) out.changed.children[element] = std::move(below.changed);
  if (!below.removed.empty()) out.removed.children[element] = std::move(below.removed);
}

std::vector<std::pair<std::string, const Json*>> elements_of(const Json& value, const Form& form) {
  std::vector<std::pair<std::string, const Json*>> out;
  Form::Kind kind = form.kind(value);
  if (kind == Form::Kind::kMap) {
    for (const auto& [key, item] : value.get_object())
      out.emplace_back(field_element(std::string_view(key.data(), key.size())), &item);
  } else if (kind == Form::Kind::kKeyed) {
    for (const Json& item : value.get_array()) out.emplace_back(key_element(item, form.keys()), &item);
  } else if (kind == Form::Kind::kSet) {
    for (const Json& item : value.get_array()) out.emplace_back(value_element(item), &item);
  }
  return out;
}

void compare_maps(const Json& old, const Json& now, const Form& form, FieldChanges& out) {
  auto before = elements_of(old, form);
  auto after = elements_of(now, form);
  bool list = !now.is_object();
  auto find_in = [](const auto& elements, const std::string& element) -> const Json* {
    for (const auto& [name, value] : elements)
      if (name == element) return value;
    return nullptr;
  };
  auto form_of = [&](const std::string& element) {
    return list ? form.item() : form.child(std::string_view(element).substr(2));
  };
  for (const auto& [element, value] : after)
    compare_one(element, find_in(before, element), value, form_of(element), out);
  for (const auto& [element, value] : before)
    if (find_in(after, element) == nullptr) compare_one(element, value, nullptr, form_of(element), out);
}

}  // namespace

FieldSet fields_of(const Json& value, const Form& form) {
  FieldSet out;
  Form::Kind kind = form.kind(value);
  if (kind == Form::Kind::kWhole) return leaf();
  bool list = kind != Form::Kind::kMap;
  for (const auto& [element, item] : elements_of(value, form)) {
    std::string_view name = std::string_view(element).substr(2);
    FieldSet below = below_of(*item, list ? form.item() : form.child(name));
    if (list || form.open_key(name)) below.member = true;
    out.children[element] = std::move(below);
  }
  return out;
}

FieldChanges compare(const Json& old, const Json& now, const Form& form) {
  FieldChanges out;
  compare_maps(old, now, form, out);
  return out;
}

// --- what an applied object must be
// ------------------------------------------------------------------------------

std::string Form::wanted() const {
  if (schema_ != nullptr) {
    if (schema_->int_or_string || schema_->preserve_unknown) return {};
    switch (schema_->type) {
      case Schema::Type::kObject:
        return "map";
      case Schema::Type::kArray:
        return "list";
      case Schema::Type::kString:
        return "string";
      case Schema::Type::kInteger:
      case Schema::Type::kNumber:
        return "numeric (int or float)";
      case Schema::Type::kBoolean:
        return "boolean";
      case Schema::Type::kAny:
        return {};
    }
  }
  if (field_ != nullptr) return field_->shape == Shape::kMap ? "map" : "list";
  if (message_ != nullptr && !message_->fields.empty()) return "map";
  if (scalar_ == nullptr) return {};
  if (scalar_->kind == FieldKind::kText || scalar_->kind == FieldKind::kBytes) return "string";
  if (scalar_->kind == FieldKind::kInt) return "numeric (int or float)";
  return scalar_->kind == FieldKind::kBool ? "boolean" : "";
}

bool Form::declares(std::string_view key) const {
  if (root_ && (key == "apiVersion" || key == "kind" || key == "metadata")) return true;
  if (schema_ != nullptr)
    return schema_->preserve_unknown || schema_->additional_any || schema_->additional != nullptr ||
           schema_->properties.contains(key) || schema_->type == Schema::Type::kAny || schema_->embedded;
  if (field_ != nullptr) return true;
  return message_ == nullptr || message_->fields.empty() || message_->by_name.contains(key);
}

namespace {

std::string go_syntax(const Json& value) {
  return value.is_object() || value.is_array() ? go_value(value) : to_text(value);
}

bool has_type(const Json& value, const std::string& wanted) {
  if (wanted == "map") return value.is_object();
  if (wanted == "list") return value.is_array();
  if (wanted == "string") return value.is_string();
  return wanted == "boolean" ? value.is_bool() : value.is_number();
}

void check_list(const Json& value, const Form& form, const std::string& path,
                std::vector<std::string>& faults) {
  Form::Kind kind = form.kind(value);
  std::map<std::string, int> seen;
  std::size_t index = 0;
  for (const Json& item : value.get_array()) {
    std::string place = path + "[" + std::to_string(index++) + "]";
    if (kind == Form::Kind::kKeyed) {
      const std::vector<std::string>& keys = form.keys();
      if (std::none_of(keys.begin(), keys.end(), [&](const std::string& key) { return has(item, {key}); })) {
        std::string names;
        for (const std::string& key : keys) names += (names.empty() ? "" : " ") + to_text(Json(key));
        faults.push_back(path + ": element " + std::to_string(index - 1) +
                         ": associative list with keys has an element that omits all key fields [" + names +
                         "] (and doesn't have default values for any key fields)");
        continue;
      }
    }
    if (kind == Form::Kind::kKeyed || kind == Form::Kind::kSet) {
      std::string element = kind == Form::Kind::kSet ? value_element(item) : key_element(item, form.keys());
      place = path + shown(element);
      if (++seen[element] == 2) faults.push_back(path + ": duplicate entries for key " + shown(element));
    }
    // Keys have told already what they are.
    Json inner = item;
    if (kind == Form::Kind::kKeyed)
      for (const std::string& key : form.keys()) gpuop::remove(inner, {key});
    find_faults(inner, form.item(), place, faults);
  }
}

}  // namespace

void find_faults(const Json& value, const Form& form, const std::string& path,
                 std::vector<std::string>& faults) {
  std::string wanted = form.wanted();
  if (value.is_null()) return;
  if (!wanted.empty() && !has_type(value, wanted)) {
    bool container = wanted == "map" || wanted == "list";
    faults.push_back(path + ": expected " + wanted + ", got &" +
                     (container ? "{" + go_value(value) + "}"
                                : "value.valueUnstructured{Value:" + go_syntax(value) + "}"));
    return;
  }
  if (value.is_array()) return check_list(value, form, path, faults);
  if (!value.is_object()) return;
  for (const auto& [key, item] : value.get_object()) {
    std::string_view name(key.data(), key.size());
    std::string here = path + "." + std::string(name);
    if (form.declares(name)) {
      find_faults(item, form.child(name), here, faults);
    } else {
      faults.push_back(here + ": field not declared in schema");
    }
  }
}

Json merge_by_form(const Json& live, const Json& applied, const Form& form) {
  Form::Kind kind = form.kind(applied);
  if (kind == Form::Kind::kWhole || kind != form.kind(live)) return applied;
  Json out = live;
  if (kind == Form::Kind::kMap) {
    JsonObject& map = out.get_object();
    for (const auto& [key, value] : applied.get_object()) {
      Json* before = map.if_contains(key);
      std::string_view name(key.data(), key.size());
      map[key] = before == nullptr ? value : merge_by_form(Json(*before), value, form.child(name));
    }
    return out;
  }
  JsonArray& list = out.get_array();
  for (const Json& item : applied.get_array()) {
    if (kind == Form::Kind::kSet) {
      if (std::find(list.begin(), list.end(), item) == list.end()) list.push_back(item);
      continue;
    }
    Json* before = same_item(list, key_element(item, form.keys()), form.keys());
    if (before == nullptr) {
      list.push_back(item);
    } else {
      *before = merge_by_form(Json(*before), item, form.item());
    }
  }
  return out;
}

namespace {

const FieldSet& child_of(const FieldSet& set, const std::string& element) {
  static const FieldSet none;
  auto found = set.children.find(element);
  return found == set.children.end() ? none : found->second;
}

void remove_from_list(Json& value, const FieldSet& doomed, const FieldSet& kept, const Form& form,
                      bool keyed) {
  JsonArray left;
  for (Json& item : value.get_array()) {
    std::string element = keyed ? key_element(item, form.keys()) : value_element(item);
    auto found = doomed.children.find(element);
    if (found != doomed.children.end()) {
      const FieldSet& owned = child_of(kept, element);
      if (found->second.member && owned.empty()) continue;
      // The keys stay as long as the item does.
      FieldSet inner = found->second;
      if (keyed)
        for (const std::string& key : form.keys()) inner.children.erase(field_element(key));
      remove_fields(item, inner, owned, form.item());
    }
    left.push_back(std::move(item));
  }
  value = std::move(left);
}

}  // namespace

void remove_fields(Json& value, const FieldSet& doomed, const FieldSet& kept, const Form& form) {
  Form::Kind kind = form.kind(value);
  if (kind == Form::Kind::kKeyed || kind == Form::Kind::kSet)
    return remove_from_list(value, doomed, kept, form, kind == Form::Kind::kKeyed);
  JsonObject* map = value.if_object();
  if (map == nullptr || kind == Form::Kind::kWhole) return;
  for (const auto& [element, below] : doomed.children) {
    if (element[0] != 'f') continue;
    std::string_view name = std::string_view(element).substr(2);
    Json* item = map->if_contains(name);
    if (item == nullptr) continue;
    const FieldSet& owned = child_of(kept, element);
    bool goes = below.member && owned.empty();
    if (!goes) {
      remove_fields(*item, below, owned, form.child(name));
      goes = (item->is_object() && item->get_object().empty()) ||
             (item->is_array() && item->get_array().empty());
    }
    if (!goes) continue;
    auto place = map->find(name);
    map->stable_erase(place);
  }
}

}  // namespace gpuop::cluster::api
