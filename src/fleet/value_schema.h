// What a JSON schema (draft-07, the keywords that values.schema.json of our chart uses) says of a value. The
// same file is what helm checks values by, so that both refuse the same. Pure.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace gpuop::fleet {

struct SchemaFault {
  std::string path;   // "driver.env[0].name"; "" is the value itself
  std::string text;   // what must be there, what is, and the nearest right name
  std::string meant;  // the path that the text ends with as what was meant; "" for none
};

// Everything that the schema refuses, in document order.
std::vector<SchemaFault> schema_faults(const Json& value, const Json& schema);

// Keywords of the schema that schema_faults() does not know, each once. None, or both would differ.
std::set<std::string> foreign_keywords(const Json& schema);

// Every key that the schema names, dotted; "x.*": whatever lies below x belongs to the user. Sorted; keys of
// lists' items are not among them.
std::set<std::string> schema_keys(const Json& schema);

// Calls `visit` for `value` and everything below it that the schema names, with its path and its schema:
// `form` is the name of the definition that it is of, or "".
struct SchemaPlace {
  const std::string& path;
  const Json& value;
  const Json& schema;
  std::string_view form;
};
void visit_schema(const Json& value, const Json& schema,
                  const std::function<void(const SchemaPlace& place)>& visit);

// Whether an object of this schema takes keys that it does not name.
bool takes_any_key(const Json& schema);

// "driver", "env" → "driver.env".
std::string below(const std::string& path, std::string_view key);
std::string below(const std::string& path, std::size_t index);

}  // namespace gpuop::fleet
