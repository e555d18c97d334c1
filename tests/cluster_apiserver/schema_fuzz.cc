// A schema and an object, both hostile: compiled, pruned, defaulted, validated without harm.
#include <string_view>

#include "base/json.h"
#include "cluster/apiserver/cel.h"
#include "cluster/apiserver/crd.h"
#include "cluster/apiserver/schema.h"

using namespace gpuop;
using namespace gpuop::cluster::api;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view text(reinterpret_cast<const char*>(data), size);
  std::size_t line = text.find('\n');
  std::string_view first = text.substr(0, line);
  std::string_view second = line == std::string_view::npos ? std::string_view() : text.substr(line + 1);
  if (auto rule = CelProgram::compile(first, CelType(), CelType::Kind::kBool)) {
    Json self = JsonObject{{"a", 1}, {"b", JsonArray{"x", "y"}}};
    (void)(*rule)->evaluate(self, &self);
  }
  Result<Json> source = parse_json(first);
  Result<Json> object = parse_json(second);
  if (!source) return 0;
  FieldErrors errors;
  auto schema = Schema::compile(*source, "", errors);
  if (!object) return 0;
  (void)by_json_path(*object, first);
  std::vector<std::string> unknown;
  Json value = *object;
  schema->prune(value, "", true, unknown);
  schema->apply_defaults(value);
  schema->validate(value, nullptr, "", true, errors);
  schema->check_rules(value, &*object, "", errors);
  // Pruning twice is pruning once.
  Json again = value;
  unknown.clear();
  schema->prune(again, "", true, unknown);
  Json third = again;
  schema->prune(third, "", true, unknown);
  if (third != again) __builtin_trap();
  return 0;
}
