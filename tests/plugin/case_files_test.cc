// Every file of cases/ is a test: facts and settings in, resources, allocations and preferences out. "U0" in
// a file stands for the UUID of GPU 0, and so on.
#include <gtest/gtest.h>

#include <algorithm>
#include <regex>

#include "base/files.h"
#include "base/text.h"
#include "base/yaml.h"
#include "plugin/allocate.h"
#include "plugin/preferred.h"
#include "sharing/command_line.h"

namespace gpuop::plugin {
namespace {

constexpr std::uint64_t kMiB = 1u << 20;

std::vector<std::string> texts(const Json& root, Keys keys) {
  std::vector<std::string> out;
  for (const Json& item : get_array(root, keys))
    out.push_back(item.is_string() ? str(as_text(item)) : to_text(item));
  return out;
}

std::map<std::string, std::string> text_map(const JsonObject& object) {
  std::map<std::string, std::string> out;
  for (const auto& [key, value] : object) out[key] = value.is_string() ? str(as_text(value)) : to_text(value);
  return out;
}

hardware::Gpu make_gpu(unsigned index, const Json& extra) {
  hardware::Gpu gpu;
  gpu.index = gpu.minor = index;
  gpu.uuid = "GPU-00000000-0000-0000-0000-00000000000" + std::to_string(index);
  gpu.name = str(get_string(extra, {"name"}, "NVIDIA A100-PCIE-40GB"));
  gpu.memory_bytes = 40960 * kMiB;
  gpu.mig_mode.current = get_bool(extra, {"mig_enabled"});
  for (const Json& item : get_array(extra, {"mig"})) {
    hardware::MigDevice mig;
    mig.index = static_cast<unsigned>(gpu.mig_devices.size());
    mig.profile = str(get_string(item, {"profile"}));
    mig.gpu_instance_id = static_cast<unsigned>(get_int(item, {"gi"}));
    mig.compute_instance_id = static_cast<unsigned>(get_int(item, {"ci"}));
    mig.uuid = str(get_string(item, {"uuid"}));
    mig.attributes.gpu_instance_slice_count = static_cast<unsigned>(mig.profile[0] - '0');
    mig.attributes.memory_size_mib = static_cast<std::uint64_t>(get_int(item, {"memory"}, 4864));
    gpu.mig_devices.push_back(std::move(mig));
    gpu.mig_mode.current = true;
  }
  return gpu;
}

Facts make_facts(const Json& file) {
  Facts facts;
  facts.platform = Platform::kNvml;
  facts.init_error = str(get_string(file, {"nvml_error"}));
  auto count = static_cast<std::size_t>(get_int(file, {"gpus"}, 4));
  for (unsigned i = 0; i < count; ++i) {
    const Json* extra = find(file, {"gpu", std::to_string(i)});
    facts.inventory.gpus.push_back(make_gpu(i, extra ? *extra : Json(JsonObject())));
    facts.numa_nodes.push_back(std::nullopt);
  }
  facts.links.assign(count,
                     std::vector<Link>(count, Link{static_cast<int>(get_int(file, {"topology"}, 50)), 0}));
  auto pairs = [&](const char* key, auto set) {
    for (const auto& [pair, value] : get_object(file, {key})) {
      auto ends = split(pair, '-');
      auto a = static_cast<std::size_t>(*parse_int(ends[0])),
           b = static_cast<std::size_t>(*parse_int(ends[1]));
      set(facts.links[a][b], static_cast<int>(value.as_int64()));
      set(facts.links[b][a], static_cast<int>(value.as_int64()));
    }
  };
  pairs("levels", [](Link& link, int value) { link.topology = value; });
  pairs("nvlinks", [](Link& link, int value) { link.nvlinks = value; });
  facts.control_nodes = texts(file, {"control_nodes"});
  facts.imex_channel0 = get_bool(file, {"imex_channel0"});
  facts.mig_minors = hardware::parse_mig_minors(get_string(file, {"mig_minors"}));
  return facts;
}

Result<sharing::Settings> make_settings(const Json& file) {
  sharing::SettingsInputs inputs;
  auto line = TRY(sharing::parse_command_line(sharing::Program::kPlugin, texts(file, {"flags"})));
  inputs.flags = line.flags;
  inputs.env = text_map(get_object(file, {"env"}));
  inputs.file = TRY(sharing::parse_config_file(get_string(file, {"config"}), "config.yaml"));
  auto settings = TRY(sharing::resolve_settings(sharing::Program::kPlugin, inputs));
  TRY(sharing::validate_plugin(settings, {.nvml_loadable = get_bool(file, {"nvml_loadable"}, true)}));
  return settings;
}

std::string contains_all(const std::vector<std::string>& lines, const std::vector<std::string>& wanted) {
  for (const std::string& text : wanted) {
    bool found =
        std::ranges::any_of(lines, [&](const auto& line) { return line.find(text) != std::string::npos; });
    if (!found) return "nothing says '" + text + "' among:\n" + join(lines, "\n");
  }
  return {};
}

void check_allocate(const Offer& offer, const Json& step) {
  auto got = allocate(offer, texts(step, {"ids"}), "0f0f0f0f-0000-4000-8000-000000000001");
  if (has(step, {"error"})) {
    ASSERT_FALSE(got);
    EXPECT_NE(got.error().text().find(get_string(step, {"error"})), std::string::npos) << got.error().text();
    return;
  }
  ASSERT_TRUE(got) << got.error().text();
  EXPECT_EQ(got->envs, text_map(get_object(step, {"envs"})));
  EXPECT_EQ(got->annotations, text_map(get_object(step, {"annotations"})));
  EXPECT_EQ(got->cdi_devices, texts(step, {"cdi"}));
  std::vector<std::string> mounts, devices;
  for (const Mount& m : got->mounts)
    mounts.push_back(m.host_path + " " + m.container_path + (m.read_only ? " ro" : " rw"));
  for (const DeviceNode& d : got->devices)
    devices.push_back(d.host_path + " " + d.container_path + " " + d.permissions);
  EXPECT_EQ(mounts, texts(step, {"mounts"}));
  EXPECT_EQ(devices, texts(step, {"devices"}));
}

void check_preferred(const Offer& offer, const Json& step) {
  std::vector<std::string> available = texts(step, {"available"});
  if (get_string(step, {"available"}) == "all") {
    // The kubelet's order is random; backwards is as good as any.
    for (const Device& device : offer.resource.devices) available.insert(available.begin(), device.id);
  }
  Preference got =
      preferred(offer, available, texts(step, {"must"}), static_cast<int>(get_int(step, {"size"})));
  std::vector<std::string> ids = texts(step, {"ids"});
  if (!get_bool(step, {"ordered"})) std::ranges::sort(got.ids);
  EXPECT_EQ(got.ids, ids) << to_text(step);
  EXPECT_NE(got.problem.find(get_string(step, {"problem"})), std::string::npos) << got.problem;
  if (!has(step, {"problem"})) {
    EXPECT_EQ(got.problem, "");
  }
}

void run_case(const fs::path& path) {
  auto text = read_file(path);
  ASSERT_TRUE(text);
  std::string expanded =
      std::regex_replace(*text, std::regex("\\bU([0-9])\\b"), "GPU-00000000-0000-0000-0000-00000000000$1");
  auto document = parse_yaml_one(expanded, path.string());
  ASSERT_TRUE(document) << document.error().text();
  const Json& file = document->value;

  auto settings = make_settings(file);
  auto plan = settings ? plan_resources(*settings, make_facts(file))
                       : Result<Plan>(std::unexpected(settings.error()));
  if (has(file, {"error"})) {
    ASSERT_FALSE(plan);
    EXPECT_EQ(contains_all({plan.error().text()}, {str(get_string(file, {"error"}))}), "");
    return;
  }
  ASSERT_TRUE(plan) << plan.error().text();
  std::vector<std::string> said = settings->notes;
  said.insert(said.end(), plan->warnings.begin(), plan->warnings.end());
  EXPECT_EQ(contains_all(said, texts(file, {"warnings"})), "");
  if (has(file, {"quiet"})) {
    EXPECT_EQ(said, std::vector<std::string>());
  }
  if (has(file, {"settings"})) {
    Json got = sharing::settings_json(sharing::Program::kPlugin, *settings);
    for (const auto& [key, value] : get_object(file, {"settings"})) {
      const Json* found = find(got, {"flags", std::string_view(key)});
      ASSERT_NE(found, nullptr) << key;
      EXPECT_EQ(*found, value) << key;
    }
  }
  if (has(file, {"resources"})) {
    std::map<std::string, std::vector<std::string>> got, wanted;
    for (const Resource& resource : plan->resources) {
      for (const Device& device : resource.devices) got[resource.name].push_back(device.id);
    }
    for (const auto& [name, ids] : get_object(file, {"resources"})) wanted[name] = texts(ids, {});
    EXPECT_EQ(got, wanted);
  }
  if (plan->resources.empty()) return;
  Offer parts;
  parts.resource = plan->resources.front();
  parts.settings = *settings;
  parts.scores = plan->scores;
  parts.control_nodes = plan->control_nodes;
  parts.imex = plan->imex;
  parts.cdi_classes = texts(file, {"cdi_classes"});
  parts.not_in_cdi = texts(file, {"not_in_cdi"});
  auto offer = make_offer(parts);
  if (has(file, {"endpoint"})) {
    EXPECT_EQ(offer->resource.endpoint(), get_string(file, {"endpoint"}));
  }
  for (const Json& step : get_array(file, {"allocate"})) check_allocate(*offer, step);
  for (const Json& step : get_array(file, {"preferred"})) check_preferred(*offer, step);
}

class CaseFile : public ::testing::Test {
 public:
  explicit CaseFile(fs::path path) : path_(std::move(path)) {}
  void TestBody() override { run_case(path_); }

 private:
  fs::path path_;
};

const bool kRegistered = [] {
  auto names = list_dir(TEST_DATA "/cases");
  if (!names) std::abort();
  for (const std::string& name : *names) {
    fs::path path = fs::path(TEST_DATA "/cases") / name;
    ::testing::RegisterTest("device_plugin", path.stem().c_str(), nullptr, nullptr, path.c_str(), 1,
                            [path]() -> ::testing::Test* { return new CaseFile(path); });
  }
  return true;
}();

}  // namespace
}  // namespace gpuop::plugin
