#include "shim/toml.h"

#include <algorithm>
#include <sstream>

#include "base/quote.h"
#include "base/toml_library.h"

namespace gpuop {

namespace {

Json to_json_value(const toml::node& node) {
  if (const auto* table = node.as_table()) {
    JsonObject object;
    for (const auto& [key, value] : *table) object[std::string_view(key.str())] = to_json_value(value);
    return object;
  }
  if (const auto* array = node.as_array()) {
    JsonArray list;
    for (const auto& item : *array) list.emplace_back(to_json_value(item));
    return list;
  }
  if (const auto* text = node.as_string()) return Json(std::string_view(text->get()));
  if (const auto* integer = node.as_integer()) return Json(integer->get());
  if (const auto* real = node.as_floating_point()) return Json(real->get());
  if (const auto* flag = node.as_boolean()) return Json(flag->get());
  std::ostringstream text;
  node.visit([&](const auto& value) {
    if constexpr (toml::is_date<decltype(value)> || toml::is_time<decltype(value)> ||
                  toml::is_date_time<decltype(value)>) {
      text << value.get();
    }
  });
  return Json(text.str());
}

bool is_bare(std::string_view key) {
  return !key.empty() && std::ranges::all_of(key, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
}

std::string key_text(std::string_view key) {
  return is_bare(key) ? std::string(key) : toml_string(key);
}

std::string value_text(const Json& value);

std::string list_text(const JsonArray& list) {
  std::string text = "[";
  for (const auto& item : list) text += (text.size() > 1 ? ", " : "") + value_text(item);
  return text + "]";
}

std::string value_text(const Json& value) {
  if (value.is_string()) return toml_string(as_text(value));
  if (value.is_array()) return list_text(value.get_array());
  if (value.is_object()) {
    std::string text = "{";
    for (const auto& member : value.get_object()) {
      text += (text.size() > 1 ? ", " : "") + key_text(member.key()) + " = " + value_text(member.value());
    }
    return text + "}";
  }
  return to_text(value);
}

bool is_table_list(const Json& value) {
  return value.is_array() && !value.get_array().empty() &&
         std::ranges::all_of(value.get_array(), [](const Json& item) { return item.is_object(); });
}

void emit(std::string& out, const JsonObject& table, const std::string& path, std::size_t level,
          std::size_t indent) {
  std::vector<std::string> keys;
  for (const auto& member : table) keys.emplace_back(member.key());
  std::ranges::sort(keys);
  std::string margin(level * indent, ' ');
  for (const auto& key : keys) {
    const Json& value = table.at(key);
    if (value.is_object() || is_table_list(value) || value.is_null()) continue;
    out += margin + key_text(key) + " = " + value_text(value) + "\n";
  }
  for (const auto& key : keys) {
    const Json& value = table.at(key);
    std::string name = path.empty() ? key_text(key) : path + "." + key_text(key);
    if (value.is_object()) {
      out += (out.empty() ? "" : "\n") + margin + "[" + name + "]\n";
      emit(out, value.get_object(), name, level + 1, indent);
    } else if (is_table_list(value)) {
      for (const auto& item : value.get_array()) {
        out += (out.empty() ? "" : "\n") + margin + "[[" + name + "]]\n";
        emit(out, item.get_object(), name, level + 1, indent);
      }
    }
  }
}

}  // namespace

Result<Json> parse_toml(std::string_view text, std::string_view file) {
  try {
    toml::table table = toml::parse(text, file);
    return to_json_value(table);
  } catch (const toml::parse_error& error) {
    const auto& at = error.source().begin;
    return fail(Code::kInvalid, "read '" + std::string(file) + "': line " + std::to_string(at.line) +
                                    ", column " + std::to_string(at.column) + ": " +
                                    std::string(error.description()));
  } catch (const std::exception& error) {
    return fail(Code::kInvalid, "read '" + std::string(file) + "': " + error.what());
  }
}

std::string to_toml(const Json& table, int indent) {
  std::string out;
  if (table.is_object()) emit(out, table.get_object(), "", 0, static_cast<std::size_t>(indent));
  return out;
}

std::string toml_string(std::string_view text) {
  return in_quotes(text, "\\u00");
}

}  // namespace gpuop
