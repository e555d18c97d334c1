#include "plugin/cdi_specs.h"

#include <set>

#include "base/log.h"
#include "cdigen/generate.h"
#include "hardware/driver_root.h"

namespace gpuop::plugin {
namespace {

constexpr std::string_view kVendor = "k8s.device-plugin.nvidia.com";

fs::path file_of(const fs::path& dir, std::string_view cls) {
  return dir / (std::string(kVendor) + "-" + std::string(cls) + ".json");
}

class Writer {
 public:
  Writer(const sharing::Settings& settings, const Facts& facts, const Plan& plan, const fs::path& dir)
      : settings_(settings), plan_(plan), dir_(dir) {
    found_.inventory = facts.inventory;
  }

  Result<CdiOutcome> write() {
    if (settings_.any_cdi()) {
      TRY(look());
      TRY(gpus());
      for (auto [cls, wanted] : {std::pair("gdrcopy", settings_.gdrcopy), std::pair("gds", settings_.gds),
                                 std::pair("mofed", settings_.mofed)}) {
        if (wanted) TRY(extra(cls));
      }
      if (plan_.imex) TRY(imex());
    }
    for (std::string_view cls : {"gpu", "gdrcopy", "gds", "mofed", "imex-channel"}) {
      if (!written_.contains(cls)) TRY_IN(remove_file(file_of(dir_, cls)), "remove stale CDI spec");
    }
    return std::move(out_);
  }

 private:
  // The driver's files as this container sees them; without a mounted driver root they are its own.
  Result<> look() {
    fs::path driver = settings_.container_driver_root;
    if (driver.empty() || !file_exists(driver)) driver = "/";
    Root root = TRY(Root::open(driver));
    found_.driver = TRY(cdigen::observe_driver(root, {.version = found_.inventory.driver_version}));
    Root dev = TRY(Root::open(hardware::dev_root_of(settings_.container_driver_root)));
    found_.devices = TRY(cdigen::observe_devices(dev));
    return {};
  }

  cdigen::Options options(std::string mode, std::string cls) const {
    cdigen::Options options;
    options.mode = std::move(mode);
    options.vendor = kVendor;
    options.device_class = std::move(cls);
    options.driver_root = settings_.driver_root;
    options.dev_root = settings_.dev_root;
    options.hook_path = settings_.cdi_hook_path;
    options.strategies = {settings_.device_id_strategy};
    options.disabled_hooks = settings_.cdi_disable_hooks;
    options.features = settings_.cdi_feature_flags;
    options.all_device = false;
    return options;
  }

  Result<> save(std::string_view cls, cdi::Spec spec) {
    bool changed = TRY(cdi::save_spec(std::move(spec), file_of(dir_, cls)));
    log::info("CDI spec", {{"file", file_of(dir_, cls).string()}, {"changed", changed}});
    written_.insert(std::string(cls));
    return {};
  }

  // Every device of the plan once, but for those with a node that does not exist.
  Result<> gpus() {
    cdigen::Options opts = options("nvml", "gpu");
    opts.device_ids.clear();
    std::set<std::string> seen;
    for (const Resource& resource : plan_.resources) {
      for (const Device& device : resource.devices) {
        if (device.gpu_uuid.empty() || !seen.insert(device.uuid).second) continue;
        if (auto path = missing_node(device)) {
          out_.missing[settings_.device_id_strategy == "index" ? device.index : device.uuid] = *path;
        } else {
          opts.device_ids.push_back(device.uuid);
        }
      }
    }
    if (opts.device_ids.empty()) return {};
    return save("gpu", TRY(cdigen::generate(found_, opts)));
  }

  std::optional<std::string> missing_node(const Device& device) const {
    for (const std::string& path : device.paths) {
      if (!found_.devices.nodes.contains(path)) return path;
    }
    return std::nullopt;
  }

  Result<> extra(const std::string& cls) {
    auto spec = cdigen::generate(found_, options(cls, cls));
    if (!spec && spec.error().code() == Code::kInvalid) {
      log::warn("Ignoring empty CDI specs", {{"class", cls}, {"why", spec.error().text()}});
      return {};
    }
    TRY(save(cls, TRY(std::move(spec))));
    out_.classes.push_back(cls);
    return {};
  }

  Result<> imex() {
    cdigen::Options opts = options("imex", "imex-channel");
    opts.device_ids = {"0"};
    cdi::Spec spec = TRY(cdigen::generate(found_, opts));
    spec.edits = {};
    return save("imex-channel", std::move(spec));
  }

  const sharing::Settings& settings_;
  const Plan& plan_;
  const fs::path& dir_;
  cdigen::Facts found_;
  std::set<std::string, std::less<>> written_;
  CdiOutcome out_;
};

}  // namespace

Result<CdiOutcome> write_cdi_specs(const sharing::Settings& settings, const Facts& facts, const Plan& plan,
                                   const fs::path& dir) {
  return Writer(settings, facts, plan, dir).write();
}

}  // namespace gpuop::plugin
