#include "labels/decide.h"

#include <algorithm>
#include <set>

#include "base/text.h"

namespace gpuop::labels {
namespace {

using hardware::Gpu;
using hardware::MigDevice;
using sharing::Settings;
using sharing::SharingStrategy;

constexpr std::size_t kMaxValue = 63;
constexpr std::uint64_t kMiB = 1u << 20;

bool alnum(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

std::string strip(std::string_view text) {
  while (!text.empty() && !alnum(text.front())) text.remove_prefix(1);
  while (!text.empty() && !alnum(text.back())) text.remove_suffix(1);
  return std::string(text);
}

std::string cut(std::string_view text) {
  return strip(text.substr(0, kMaxValue));
}

std::string profile_text(const MigDevice& mig) {
  return replace_all(mig.profile, "+", ".");
}

// GPUs of one model, in NVML order.
struct Model {
  std::string name;
  std::vector<const Gpu*> gpus;
  // Whole GPUs speak for the model where there are any.
  const Gpu& speaker() const {
    auto whole = std::ranges::find_if(gpus, [](const Gpu* gpu) { return !gpu->mig_mode.current; });
    return whole == gpus.end() ? *gpus.front() : **whole;
  }
};

class Labeller {
 public:
  Labeller(const Settings& settings, const Facts& facts, std::int64_t timestamp)
      : settings_(settings), facts_(facts), timestamp_(timestamp) {}

  Result<Decision> run() {
    if (!settings_.no_timestamp) set("gfd.timestamp", std::to_string(timestamp_));
    TRY(check_source());
    for (const std::string& warning : facts_.inventory.warnings) warn(warning);
    if (!facts_.inventory.gpus.empty()) {
      machine();
      if (facts_.has_versions) versions();
      capabilities();
      resources();
      mode();
      clique();
    }
    vgpu();
    return std::move(out_);
  }

 private:
  void set(std::string_view name, std::string value) {
    out_.labels["nvidia.com/" + std::string(name)] = std::move(value);
  }
  void set(std::string_view name, std::uint64_t value) { set(name, std::to_string(value)); }
  void warn(std::string text) { out_.warnings.push_back(std::move(text)); }

  Result<> check_source() {
    std::string why = facts_.init_error;
    if (facts_.platform == hardware::Platform::kNone) {
      why = "unsupported strategy " + settings_.device_discovery_strategy + ": no NVML library was found" +
            (why.empty() ? "" : ": " + why);
    }
    if (why.empty()) return {};
    if (settings_.fail_on_init_error) return fail(Code::kUnavailable, why);
    warn(why + "; labelling without devices");
    return {};
  }

  void machine() {
    if (settings_.machine_type_file.empty() || !facts_.machine) {
      set("gpu.machine", "unknown");
      return;
    }
    set("gpu.machine", cut(sanitise(trim(*facts_.machine))));
  }

  void versions() {
    const std::string& driver = facts_.inventory.driver_version;
    std::vector<std::string> parts = split(driver, '.');
    if (parts.size() < 2) {
      warn("driver version '" + driver + "' has no minor part: no version labels");
    } else {
      if (parts.size() > 3) warn("driver version '" + driver + "' has more than three parts");
      parts.resize(3);
      set("cuda.driver.major", parts[0]);
      set("cuda.driver.minor", parts[1]);
      set("cuda.driver.rev", parts[2]);
      set("cuda.driver-version.major", parts[0]);
      set("cuda.driver-version.minor", parts[1]);
      set("cuda.driver-version.revision", parts[2]);
      set("cuda.driver-version.full", cut(driver));
    }
    int cuda = facts_.inventory.cuda_version;
    std::string major = std::to_string(cuda / 1000), minor = std::to_string(cuda % 1000 / 10);
    set("cuda.runtime.major", major);
    set("cuda.runtime.minor", minor);
    set("cuda.runtime-version.major", major);
    set("cuda.runtime-version.minor", minor);
    set("cuda.runtime-version.full", major + "." + minor);
  }

  bool any_mig() const {
    return std::ranges::any_of(facts_.inventory.gpus, [](const Gpu& gpu) { return gpu.mig_mode.current; });
  }

  void capabilities() {
    bool capable = std::ranges::any_of(facts_.inventory.gpus, &Gpu::mig_capable);
    set("mig.capable", capable ? "true" : "false");
    bool mps = sharing::active_strategy(settings_) == SharingStrategy::kMps;
    if (mps && any_mig()) warn("MPS sharing is not supported for MIG devices: mps.capable is false");
    set("mps.capable", mps && !any_mig() ? "true" : "false");
  }

  // --- models ---

  std::vector<Model> models() const {
    std::vector<Model> out;
    for (const Gpu& gpu : facts_.inventory.gpus) {
      auto found = std::ranges::find(out, gpu.name, &Model::name);
      if (found == out.end()) found = out.insert(out.end(), Model{gpu.name, {}});
      found->gpus.push_back(&gpu);
    }
    return out;
  }

  // The model with the most GPUs; of several the one with the lowest index.
  Model labelled_model() {
    std::vector<Model> all = models();
    auto most = std::ranges::max_element(all, {}, [](const Model& model) { return model.gpus.size(); });
    if (all.size() > 1) {
      std::vector<std::string> names;
      for (const Model& model : all) names.push_back(std::to_string(model.gpus.size()) + "x " + model.name);
      warn("Multiple device types detected: " + join(names, ", ") + "; labels describe " + most->name);
    }
    return *most;
  }

  void resources() {
    Model model = labelled_model();
    whole_gpus(model);
    if (settings_.mig_strategy == "single") {
      set("mig.strategy", "single");
      single();
    } else if (settings_.mig_strategy == "mixed") {
      set("mig.strategy", "mixed");
      mixed();
    }
  }

  struct Shares {
    int replicas = 1;
    std::string strategy = "none";
    bool suffix = false;  // "-SHARED" on the product
  };
  Shares shares(std::string_view resource, bool mig) const {
    Shares out;
    SharingStrategy strategy = sharing::active_strategy(settings_);
    if (mig && strategy == SharingStrategy::kMps) return out;
    const sharing::SharedResource* entry = sharing::find_shared(settings_, resource);
    if (!entry) return out;
    out.replicas = entry->replicas;
    out.strategy = sharing::strategy_name(strategy);
    out.suffix = entry->rename.empty();
    return out;
  }

  void whole_gpus(const Model& model) {
    const Gpu& gpu = model.speaker();
    Shares shared = shares("nvidia.com/gpu", false);
    if (gpu.mig_mode.current) shared = {0, "none", false};
    set("gpu.count", model.gpus.size());
    set("gpu.product", product_name(gpu.name, suffixes("", shared)));
    set("gpu.replicas", std::to_string(shared.replicas));
    set("gpu.sharing-strategy", shared.strategy);
    if (gpu.memory_bytes && *gpu.memory_bytes >= kMiB) set("gpu.memory", *gpu.memory_bytes / kMiB);
    if (gpu.compute_capability.major == 0) return;
    set("gpu.family", std::string(family_of(gpu.compute_capability)));
    set("gpu.compute.major", std::to_string(gpu.compute_capability.major));
    set("gpu.compute.minor", std::to_string(gpu.compute_capability.minor));
  }

  static std::vector<std::string> suffixes(const std::string& mig, const Shares& shared) {
    std::vector<std::string> out;
    if (!mig.empty()) out.push_back("MIG-" + mig);
    if (shared.suffix) out.emplace_back("SHARED");
    return out;
  }

  // --- MIG ---

  void single() {
    if (!any_mig()) return;
    std::string problem;
    const Gpu* first = nullptr;
    std::set<std::string> profiles;
    bool whole = false;
    for (const Gpu& gpu : facts_.inventory.gpus) {
      if (!gpu.mig_mode.current) {
        whole = true;
        continue;
      }
      if (!first) first = &gpu;
      if (gpu.mig_devices.empty()) problem = "GPU " + std::to_string(gpu.index) + " has no MIG devices";
      for (const MigDevice& mig : gpu.mig_devices) profiles.insert(mig.profile);
    }
    if (problem.empty() && whole) problem = "GPUs with and without MIG";
    if (problem.empty() && profiles.size() > 1) problem = "more than one MIG profile";
    if (!problem.empty()) {
      warn("invalid configuration for the MIG strategy single: " + problem);
      set("gpu.product", product_name(first->name, {"MIG-INVALID"}));
      set("gpu.count", "0");
      set("gpu.replicas", "0");
      set("gpu.memory", "0");
      set("gpu.sharing-strategy", "");
      return;
    }
    std::size_t count = 0;
    for (const Gpu& gpu : facts_.inventory.gpus) count += gpu.mig_devices.size();
    mig_labels("gpu", "nvidia.com/gpu", *first, first->mig_devices.front(), count);
  }

  void mixed() {
    struct Group {
      const Gpu* gpu;
      const MigDevice* mig;
      std::size_t count = 0;
    };
    std::map<std::string, Group> groups;
    for (const Gpu& gpu : facts_.inventory.gpus) {
      for (const MigDevice& mig : gpu.mig_devices) {
        if (mig.profile.empty()) {
          warn("MIG device '" + mig.uuid + "' has no profile that NVML can name: it is not labelled");
          continue;
        }
        ++groups.try_emplace(profile_text(mig), Group{&gpu, &mig}).first->second.count;
      }
    }
    for (const auto& [profile, group] : groups) {
      mig_labels("mig-" + profile, "nvidia.com/mig-" + profile, *group.gpu, *group.mig, group.count);
    }
  }

  void mig_labels(const std::string& prefix, const std::string& resource, const Gpu& gpu,
                  const MigDevice& mig, std::size_t count) {
    Shares shared = shares(resource, true);
    const auto& a = mig.attributes;
    auto put = [&](std::string_view name, std::uint64_t value) {
      set(prefix + "." + std::string(name), value);
    };
    set(prefix + ".product", product_name(gpu.name, suffixes(profile_text(mig), shared)));
    put("count", count);
    put("replicas", static_cast<std::uint64_t>(shared.replicas));
    set(prefix + ".sharing-strategy", shared.strategy);
    put("memory", a.memory_size_mib);
    put("multiprocessors", a.multiprocessor_count);
    put("slices.gi", a.gpu_instance_slice_count);
    put("slices.ci", a.compute_instance_slice_count);
    put("engines.copy", a.shared_copy_engine_count);
    put("engines.decoder", a.shared_decoder_count);
    put("engines.encoder", a.shared_encoder_count);
    put("engines.jpeg", a.shared_jpeg_count);
    put("engines.ofa", a.shared_ofa_count);
  }

  // --- the rest ---

  void mode() {
    auto all = [&](std::uint32_t wanted) {
      return std::ranges::all_of(facts_.pci_classes, [&](const auto& cls) { return cls && *cls == wanted; });
    };
    set("gpu.mode", all(0x030000) ? "graphics" : all(0x030200) ? "compute" : "unknown");
  }

  void clique() {
    std::set<std::pair<std::string, unsigned>> cliques;
    for (const FabricFact& fact : facts_.fabrics) {
      if (!fact.error.empty()) {
        warn("fabric information cannot be read, no gpu.clique label: " + fact.error);
        return;
      }
      constexpr unsigned completed = 3;
      if (!fact.info || fact.info->state != completed || fact.info->status != 0) continue;
      if (fact.info->cluster_uuid.find_first_not_of("0-") == std::string::npos) continue;
      cliques.emplace(fact.info->cluster_uuid, fact.info->clique_id);
    }
    if (cliques.size() > 1) warn("GPUs belong to different fabric cliques: no gpu.clique label");
    if (cliques.size() != 1) return;
    set("gpu.clique", cliques.begin()->first + "." + std::to_string(cliques.begin()->second));
  }

  void vgpu() {
    if (!facts_.vgpus) {
      warn("vGPU detection failed, no vgpu labels: " + facts_.vgpu_error);
      return;
    }
    set("vgpu.present", facts_.vgpus->empty() ? "false" : "true");
    if (facts_.vgpus->empty()) return;
    set("vgpu.host-driver-version", cut(sanitise(facts_.vgpus->front().driver_version)));
    set("vgpu.host-driver-branch", cut(sanitise(facts_.vgpus->front().driver_branch)));
  }

  const Settings& settings_;
  const Facts& facts_;
  std::int64_t timestamp_;
  Decision out_;
};

}  // namespace

Result<Decision> decide(const Settings& settings, const Facts& facts, std::int64_t timestamp) {
  return Labeller(settings, facts, timestamp).run();
}

std::string sanitise(std::string_view text) {
  std::string kept;
  for (char c : text) {
    if (alnum(c) || c == '-' || c == '_' || c == '.' || c == ' ') kept += c;
  }
  return strip(join(split_fields(kept), "-"));
}

std::string product_name(std::string_view model, const std::vector<std::string>& suffixes) {
  std::string tail;
  for (const std::string& suffix : suffixes) tail += "-" + sanitise(suffix);
  std::string head = sanitise(model);
  if (head.size() + tail.size() > kMaxValue) {
    head = strip(std::string_view(head).substr(0, kMaxValue - std::min(kMaxValue, tail.size())));
  }
  return strip(head + tail).substr(0, kMaxValue);
}

std::string_view family_of(hardware::ComputeCapability capability) {
  switch (capability.major) {
    case 1:
      return "tesla";
    case 2:
      return "fermi";
    case 3:
      return "kepler";
    case 5:
      return "maxwell";
    case 6:
      return "pascal";
    case 7:
      return capability.minor < 5 ? "volta" : "turing";
    case 8:
      return capability.minor < 9 ? "ampere" : "ada-lovelace";
    case 9:
      return "hopper";
    case 10:
    case 11:
    case 12:
      return "blackwell";
    case 13:
      return "rubin";
    default:
      return "undefined";
  }
}

std::string features_text(const Labels& labels) {
  std::string text;
  for (const auto& [key, value] : labels) text += key + "=" + value + "\n";
  return text;
}

}  // namespace gpuop::labels
