// Every file of cases/ is a test: GPUs and settings in, labels out.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/files.h"
#include "base/text.h"
#include "base/yaml.h"
#include "labels/decide.h"
#include "sharing/command_line.h"

namespace gpuop::labels {
namespace {

constexpr std::uint64_t kMiB = 1u << 20;

hardware::MigDevice make_mig(const Json& item, unsigned index) {
  hardware::MigDevice mig;
  mig.index = index;
  mig.uuid = "MIG-" + std::to_string(index);
  mig.profile = str(get_string(item, {"profile"}));
  auto number = [&](const char* key, int fallback) {
    return static_cast<std::uint32_t>(get_int(item, {key}, fallback));
  };
  mig.attributes.memory_size_mib = number("memory", 4864);
  mig.attributes.multiprocessor_count = number("sm", 14);
  mig.attributes.gpu_instance_slice_count = number("gi_slices", 1);
  mig.attributes.compute_instance_slice_count = number("ci_slices", 1);
  mig.attributes.shared_copy_engine_count = number("copy", 1);
  mig.attributes.shared_decoder_count = number("decoder", 0);
  return mig;
}

void add_gpu(Facts& facts, const Json& item) {
  hardware::Gpu gpu;
  gpu.index = static_cast<unsigned>(facts.inventory.gpus.size());
  gpu.name = str(get_string(item, {"name"}, "NVIDIA A100-PCIE-40GB"));
  std::int64_t memory = get_int(item, {"memory"}, 40960);
  if (memory >= 0) gpu.memory_bytes = static_cast<std::uint64_t>(memory) * kMiB;
  gpu.compute_capability = {static_cast<int>(get_int(item, {"cc_major"}, 8)),
                            static_cast<int>(get_int(item, {"cc_minor"}, 0))};
  gpu.mig_capable = get_bool(item, {"mig_capable"}, true);
  for (const Json& mig : get_array(item, {"mig"})) {
    for (std::int64_t n = get_int(mig, {"times"}, 1); n > 0; --n) {
      gpu.mig_devices.push_back(make_mig(mig, static_cast<unsigned>(gpu.mig_devices.size())));
    }
  }
  gpu.mig_mode.current = get_bool(item, {"mig_enabled"}) || !gpu.mig_devices.empty();
  std::int64_t cls = get_int(item, {"class"}, 0x030200);
  facts.pci_classes.push_back(cls < 0 ? std::nullopt
                                      : std::optional<std::uint32_t>(static_cast<std::uint32_t>(cls)));
  FabricFact fabric;
  fabric.error = str(get_string(item, {"fabric", "error"}));
  if (has(item, {"fabric", "uuid"})) {
    fabric.info = hardware::Fabric{};
    fabric.info->cluster_uuid = str(get_string(item, {"fabric", "uuid"}));
    fabric.info->clique_id = static_cast<unsigned>(get_int(item, {"fabric", "clique"}));
    fabric.info->state = static_cast<unsigned>(get_int(item, {"fabric", "state"}, 3));
  }
  facts.fabrics.push_back(std::move(fabric));
  facts.inventory.gpus.push_back(std::move(gpu));
}

Facts make_facts(const Json& file) {
  Facts facts;
  facts.platform = hardware::Platform::kNvml;
  if (get_bool(file, {"no_nvml"})) facts.platform = hardware::Platform::kNone;
  facts.init_error = str(get_string(file, {"nvml_error"}));
  facts.has_versions = !get_bool(file, {"no_versions"});
  facts.inventory.driver_version = str(get_string(file, {"driver"}, "550.54.15"));
  facts.inventory.cuda_version = 12040;
  for (const Json& item : get_array(file, {"gpus"})) {
    for (std::int64_t n = get_int(item, {"count"}, 1); n > 0; --n) add_gpu(facts, item);
  }
  if (has(file, {"machine"})) facts.machine = str(get_string(file, {"machine"}));
  facts.vgpu_error = str(get_string(file, {"vgpu_error"}));
  if (facts.vgpu_error.empty()) facts.vgpus.emplace();
  for (const Json& item : get_array(file, {"vgpus"})) {
    facts.vgpus->push_back({str(get_string(item, {"version"})), str(get_string(item, {"branch"}))});
  }
  return facts;
}

void run_case(const fs::path& path) {
  auto text = read_file(path);
  ASSERT_TRUE(text);
  auto document = parse_yaml_one(*text, path.string());
  ASSERT_TRUE(document) << document.error().text();
  const Json& file = document->value;

  sharing::SettingsInputs inputs;
  for (const auto& [key, value] : get_object(file, {"env"})) inputs.env[key] = str(as_text(value));
  auto config = sharing::parse_config_file(get_string(file, {"config"}), "config.yaml");
  ASSERT_TRUE(config) << config.error().text();
  inputs.file = *config;
  auto settings = sharing::resolve_settings(sharing::Program::kFeatureDiscovery, inputs);
  ASSERT_TRUE(settings) << settings.error().text();

  auto decision = decide(*settings, make_facts(file), 1700000000);
  if (has(file, {"error"})) {
    ASSERT_FALSE(decision);
    EXPECT_NE(decision.error().text().find(get_string(file, {"error"})), std::string::npos)
        << decision.error().text();
    return;
  }
  ASSERT_TRUE(decision) << decision.error().text();
  for (const auto& [key, value] : get_object(file, {"labels"})) {
    std::string label = "nvidia.com/" + std::string(key);
    ASSERT_TRUE(decision->labels.contains(label)) << label << " is missing among\n"
                                                  << features_text(decision->labels);
    EXPECT_EQ(decision->labels[label], as_text(value)) << label;
  }
  for (const Json& key : get_array(file, {"absent"})) {
    EXPECT_FALSE(decision->labels.contains("nvidia.com/" + str(as_text(key)))) << as_text(key);
  }
  if (has(file, {"count"})) {
    EXPECT_EQ(decision->labels.size(), static_cast<std::size_t>(get_int(file, {"count"})))
        << features_text(decision->labels);
  }
  for (const Json& wanted : get_array(file, {"warnings"})) {
    bool said = std::ranges::any_of(decision->warnings, [&](const std::string& warning) {
      return warning.find(as_text(wanted)) != std::string::npos;
    });
    EXPECT_TRUE(said) << "nothing says '" << as_text(wanted) << "' among\n" << join(decision->warnings, "\n");
  }
  if (get_bool(file, {"quiet"})) {
    EXPECT_EQ(decision->warnings, std::vector<std::string>());
  }
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
}  // namespace gpuop::labels
