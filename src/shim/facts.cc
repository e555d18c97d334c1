#include "shim/facts.h"

#include "base/files.h"
#include "base/json.h"

namespace gpuop::shim {

namespace {

Json gpu_json(const HostFacts::Gpu& gpu) {
  return JsonObject{{"index", gpu.index},
                    {"minor", gpu.minor},
                    {"uuid", gpu.uuid},
                    {"busId", gpu.bus_id},
                    {"arch", gpu.arch},
                    {"brand", gpu.brand},
                    {"mig", JsonArray(gpu.mig.begin(), gpu.mig.end())}};
}

HostFacts::Gpu gpu_of(const Json& json) {
  HostFacts::Gpu gpu;
  gpu.index = static_cast<unsigned>(get_int(json, {"index"}));
  gpu.minor = static_cast<unsigned>(get_int(json, {"minor"}));
  gpu.uuid = get_string(json, {"uuid"});
  gpu.bus_id = get_string(json, {"busId"});
  gpu.arch = get_string(json, {"arch"});
  gpu.brand = get_string(json, {"brand"});
  for (const auto& uuid : get_array(json, {"mig"})) gpu.mig.emplace_back(as_text(uuid));
  return gpu;
}

}  // namespace

std::string format_facts(const HostFacts& facts) {
  JsonArray gpus;
  for (const auto& gpu : facts.gpus) gpus.emplace_back(gpu_json(gpu));
  JsonObject specs;
  for (const auto& [name, spec] : facts.specs) specs[name] = cdi::to_json(spec);
  return to_text(JsonObject{{"version", 1},
                            {"driverVersion", facts.driver_version},
                            {"cudaVersion", facts.cuda_version},
                            {"gpus", std::move(gpus)},
                            {"specs", std::move(specs)}}) +
         "\n";
}

Result<HostFacts> parse_facts(std::string_view text, std::string_view file) {
  auto doing = "read facts '" + std::string(file) + "'";
  Json json = TRY_IN(parse_json(text), doing);
  if (get_int(json, {"version"}) != 1) return fail(Code::kInvalid, doing + ": version: must be 1");
  HostFacts facts;
  facts.driver_version = get_string(json, {"driverVersion"});
  facts.cuda_version = get_string(json, {"cudaVersion"});
  for (const auto& gpu : get_array(json, {"gpus"})) facts.gpus.push_back(gpu_of(gpu));
  for (const auto& member : get_object(json, {"specs"})) {
    std::string name(member.key());
    facts.specs.emplace(name, TRY_IN(cdi::parse_spec(to_text(member.value()), name), doing));
  }
  return facts;
}

Result<HostFacts> read_facts(const fs::path& file) {
  return parse_facts(TRY(read_file(file, 16u << 20)), file.string());
}

}  // namespace gpuop::shim
