// Strategic merge patches and field sets over any object.
#include <string_view>

#include "base/json.h"
#include "cluster/apiserver/fields.h"
#include "cluster/apiserver/server.h"

using namespace gpuop;
using namespace gpuop::cluster::api;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Message* pod = find_message("core", "Pod");
  static const TypePtr type = [] {
    for (const TypePtr& each : builtin_types())
      if (each->store == "/pods") return each;
    return TypePtr();
  }();
  std::string_view text(reinterpret_cast<const char*>(data), size);
  std::size_t line = text.find('\n');
  if (line == std::string_view::npos) return 0;
  Result<Json> target = parse_json(text.substr(0, line));
  Result<Json> patch = parse_json(text.substr(line + 1));
  if (!target || !patch || !target->is_object() || !patch->is_object()) return 0;
  (void)strategic_merge(*target, *patch, *pod);
  Form form = Form::of_type(*type);
  FieldSet fields = fields_of(*patch, form);
  if (FieldSet::from_json(fields.json()).json() != fields.json()) __builtin_trap();
  Json merged = merge_by_form(*target, *patch, form);
  FieldChanges changes = compare(*target, merged, form);
  remove_fields(merged, changes.changed, {}, form);
  return 0;
}
