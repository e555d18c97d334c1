// Strategic merge patch, driven by the type tables (kubernetes-api.md §8).
#include <algorithm>

#include "cluster/apiserver/server.h"

namespace gpuop::cluster::api {

namespace {

constexpr int kMaxDepth = 64;
constexpr std::string_view kOrder = "$setElementOrder/";
constexpr std::string_view kDeleteFrom = "$deleteFromPrimitiveList/";

using Merged = std::expected<Json, MergeFault>;

std::unexpected<MergeFault> fault(int code, std::string text) {
  return std::unexpected(MergeFault{code, std::move(text)});
}

bool is_directive(std::string_view key) {
  return key.starts_with("$");
}

// Values that a patch adds: nulls and directives inside it are instructions, not content.
Json without_directives(const Json& value) {
  if (const JsonObject* map = value.if_object()) {
    JsonObject out;
    for (const auto& [key, item] : *map)
      if (!item.is_null() && !is_directive(std::string_view(key.data(), key.size())))
        out[key] = without_directives(item);
    return out;
  }
  if (const JsonArray* list = value.if_array()) {
    JsonArray out;
    for (const Json& item : *list) {
      if (get_string(item, {"$patch"}) == "delete") continue;
      if (item.is_object() && item.get_object().size() == 1 && item.get_object().contains("$patch")) continue;
      out.push_back(without_directives(item));
    }
    return out;
  }
  return value;
}

class Merger {
 public:
  Merged map(const Json& target, const Json& patch, const Message* shape, int depth) {
    if (depth > kMaxDepth) return fault(400, "the patch is nested too deeply");
    const JsonObject& changes = patch.get_object();
    std::string_view directive = get_string(patch, {"$patch"});
    if (directive == "replace") return without_directives(patch);
    if (directive == "delete") return Json(JsonObject());
    if (!directive.empty() && directive != "merge")
      return fault(500, "unknown patch type: " + std::string(directive) + " in map: " + go_value(patch));
    JsonObject out = target.is_object() ? target.get_object() : JsonObject();
    if (const Json* keep = changes.if_contains("$retainKeys")) TRY(retain(out, *keep));
    for (const auto& [key, value] : changes) {
      std::string_view name(key.data(), key.size());
      if (name.starts_with(kDeleteFrom)) {
        TRY(delete_from(out, name.substr(kDeleteFrom.size()), value));
        continue;
      }
      if (is_directive(name)) continue;
      if (value.is_null()) {
        out.erase(key);
        continue;
      }
      const Field* field = field_of(shape, name);
      const Json* order = changes.if_contains(std::string(kOrder) + std::string(name));
      Json* before = out.if_contains(key);
      if (value.is_object()) {
        // The values of a map of messages have the map's own type; those of plain maps have none.
        const Message* below = field == nullptr ? nullptr : field->message;
        if (field != nullptr && field->shape == Shape::kMap) below = nullptr;
        out[key] = TRY(map(before == nullptr ? Json(JsonObject()) : *before, value, below, depth + 1));
      } else if (value.is_array()) {
        out[key] = TRY(list(before == nullptr ? Json(JsonArray()) : *before, value, field, order, depth + 1));
      } else {
        out[key] = value;
      }
    }
    // An order alone also sorts a list that is not patched otherwise.
    for (const auto& [key, value] : changes) {
      std::string_view name(key.data(), key.size());
      if (!name.starts_with(kOrder)) continue;
      std::string_view target_name = name.substr(kOrder.size());
      Json* before = out.if_contains(target_name);
      const Field* field = field_of(shape, target_name);
      if (before != nullptr && before->is_array() && !changes.contains(target_name))
        sort(before->get_array(), value, field);
    }
    return Json(std::move(out));
  }

 private:
  static const Field* field_of(const Message* shape, std::string_view name) {
    if (shape == nullptr) return nullptr;
    auto found = shape->by_name.find(name);
    if (found != shape->by_name.end()) return found->second;
    // Types without a table still have metadata.
    static const Field meta = [] {
      Field field;
      field.name = "metadata";
      field.kind = FieldKind::kMessage;
      field.message = find_message("meta", "ObjectMeta");
      return field;
    }();
    return name == "metadata" && shape->fields.empty() ? &meta : nullptr;
  }

  static std::expected<void, MergeFault> retain(JsonObject& out, const Json& keep) {
    const JsonArray* names = keep.if_array();
    if (names == nullptr) return fault(400, "invalid $retainKeys: a list is needed");
    for (auto it = out.begin(); it != out.end();) {
      bool kept = std::any_of(names->begin(), names->end(),
                              [&](const Json& name) { return as_text(name) == std::string_view(it->key()); });
      it = kept ? it + 1 : out.stable_erase(it);
    }
    return {};
  }

  static std::expected<void, MergeFault> delete_from(JsonObject& out, std::string_view name,
                                                     const Json& values) {
    const JsonArray* doomed = values.if_array();
    if (doomed == nullptr) return fault(400, "invalid $deleteFromPrimitiveList: a list is needed");
    Json* list = out.if_contains(name);
    if (list == nullptr || !list->is_array()) return {};
    JsonArray left;
    for (const Json& item : list->get_array())
      if (std::find(doomed->begin(), doomed->end(), item) == doomed->end()) left.push_back(item);
    *list = std::move(left);
    return {};
  }

  static const Json* key_of(const Json& item, const Field& field) {
    return find(item, {field.merge_keys[0]});
  }

  static JsonArray::iterator same(JsonArray& list, const Json& key, const Field& field) {
    return std::find_if(list.begin(), list.end(), [&](const Json& item) {
      const Json* its = key_of(item, field);
      return its != nullptr && *its == key;
    });
  }

  Merged list(const Json& target, const Json& patch, const Field* field, const Json* order, int depth) {
    if (field != nullptr && field->set) {
      JsonArray out = target.is_array() ? target.get_array() : JsonArray();
      const JsonArray before = out;
      for (const Json& item : patch.get_array())
        if (std::find(out.begin(), out.end(), item) == out.end()) out.push_back(item);
      if (order != nullptr) {
        sort(out, *order, field);
      } else {
        place(out, before, patch.get_array(), field);
      }
      return Json(std::move(out));
    }
    if (field == nullptr || field->merge_keys.empty()) return without_directives(patch);
    for (const Json& item : patch.get_array()) {
      if (!item.is_object()) return fault(400, "a list of objects is needed for " + field->name);
      if (get_string(item, {"$patch"}) == "replace" && item.get_object().size() == 1)
        return without_directives(patch);
    }
    JsonArray out = target.is_array() ? target.get_array() : JsonArray();
    const JsonArray before = out;
    for (const Json& item : patch.get_array()) {
      const Json* key = key_of(item, *field);
      if (key == nullptr)
        return fault(
            500, "map: " + go_value(item) + " does not contain declared merge key: " + field->merge_keys[0]);
      std::string_view directive = get_string(item, {"$patch"});
      if (!directive.empty() && directive != "delete" && directive != "replace" && directive != "merge")
        return fault(500, "unknown patch type: " + std::string(directive) + " in map: " + go_value(item));
      auto found = same(out, *key, *field);
      if (get_string(item, {"$patch"}) == "delete") {
        while (found != out.end()) {
          out.erase(found);
          found = same(out, *key, *field);
        }
      } else if (found == out.end()) {
        out.push_back(without_directives(item));
      } else {
        Json merged = TRY(map(*found, item, field->message, depth + 1));
        *found = std::move(merged);
      }
    }
    if (order != nullptr) {
      sort(out, *order, field);
    } else {
      place(out, before, patch.get_array(), field);
    }
    return Json(std::move(out));
  }

  static bool is_same(const Json& a, const Json& b, const Field* field) {
    if (field == nullptr || field->merge_keys.empty()) return a == b;
    const Json* left = key_of(a, *field);
    const Json* right = key_of(b, *field);
    return left != nullptr && right != nullptr && *left == *right;
  }

  // Where no order is asked for, what the patch names stands in the patch's order, and before those that only
  // the server has, unless both had a place there: then the server's places decide.
  static void place(JsonArray& list, const JsonArray& before, const JsonArray& patch, const Field* field) {
    auto at = [&](const JsonArray& where, const Json& item) {
      return static_cast<std::size_t>(
          std::find_if(where.begin(), where.end(),
                       [&](const Json& one) { return is_same(one, item, field); }) -
          where.begin());
    };
    std::vector<Json> named;
    std::vector<Json> others;
    for (const Json& item : list) (at(patch, item) < patch.size() ? named : others).push_back(item);
    std::stable_sort(named.begin(), named.end(),
                     [&](const Json& a, const Json& b) { return at(patch, a) < at(patch, b); });
    list.clear();
    std::size_t left = 0;
    std::size_t right = 0;
    while (left < others.size() || right < named.size()) {
      bool take_other = right == named.size();
      if (left < others.size() && right < named.size()) {
        std::size_t a = at(before, others[left]);
        std::size_t b = at(before, named[right]);
        take_other = a < before.size() && b < before.size() && a < b;
      }
      list.push_back(take_other ? others[left++] : named[right++]);
    }
  }

  // Items named by the order stand as it says; the others keep their place before or behind their neighbours.
  static void sort(JsonArray& list, const Json& order, const Field* field) {
    const JsonArray* wanted = order.if_array();
    if (wanted == nullptr) return;
    auto rank = [&](const Json& item) -> std::size_t {
      for (std::size_t i = 0; i < wanted->size(); ++i) {
        if (field == nullptr || field->merge_keys.empty()) {
          if ((*wanted)[i] == item) return i;
          continue;
        }
        const Json* a = key_of((*wanted)[i], *field);
        const Json* b = key_of(item, *field);
        if (a != nullptr && b != nullptr && *a == *b) return i;
      }
      return wanted->size();
    };
    struct Ranked {
      std::size_t rank, place;
      Json item;
    };
    std::vector<Ranked> ranked;
    std::size_t last = 0;
    for (Json& item : list) {
      std::size_t own = rank(item);
      if (own < wanted->size()) last = own;
      ranked.push_back({own < wanted->size() ? own : last, ranked.size(), std::move(item)});
    }
    std::sort(ranked.begin(), ranked.end(), [](const Ranked& a, const Ranked& b) {
      return a.rank != b.rank ? a.rank < b.rank : a.place < b.place;
    });
    list.clear();
    for (Ranked& entry : ranked) list.push_back(std::move(entry.item));
  }
};

}  // namespace

std::expected<Json, MergeFault> strategic_merge(const Json& target, const Json& patch,
                                                const Message& message) {
  if (!patch.is_object()) return fault(400, "a strategic merge patch must be an object");
  return Merger().map(target, patch, &message, 0);
}

}  // namespace gpuop::cluster::api
