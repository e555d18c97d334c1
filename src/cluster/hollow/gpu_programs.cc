// The device plugin and GPU feature discovery on a hollow node: plans, allocations, health and labels come
// from the same functions as on a real one.
#include <algorithm>

#include "base/log.h"
#include "base/text.h"
#include "cluster/hollow/program.h"
#include "fleet/faults.h"
#include "labels/publish.h"
#include "plugin/health.h"
#include "plugin/preferred.h"
#include "plugin/resources.h"
#include "sharing/command_line.h"

namespace gpuop::cluster {
namespace {

// What both programs read at each (re)load. `why`: the sentence that ends them.
Result<sharing::Settings> load_settings(sharing::Program which, const ProgramContext& context,
                                        const std::string& file) {
  sharing::SettingsInputs inputs;
  const std::vector<std::string> arguments(context.words.begin() + 1, context.words.end());
  inputs.flags = TRY(sharing::parse_command_line(which, arguments)).flags;
  inputs.env = context.env;
  if (!file.empty()) inputs.file = TRY(sharing::parse_config_file(file, "/config/config.yaml"));
  return sharing::resolve_settings(which, inputs);
}

class DevicePluginProgram : public Program {
 public:
  explicit DevicePluginProgram(ProgramContext context) : context_(std::move(context)) {}
  ~DevicePluginProgram() override { withdraw(); }

  void start() override {
    client_ = context_.world.client("nvidia-device-plugin");
    config_ = std::make_unique<SelectedConfig>(context_.loop, *client_, context_.ns, context_.pod,
                                               context_.machine.node().name, [this] { reload(); });
    xids_ = context_.machine.on_xid([this](std::size_t gpu, int code) { xid(gpu, code); });
    config_->start();
  }

  std::vector<std::string> gpu_faults() const override {
    std::vector<std::string> out;
    out.reserve(reported_.size() + missing_.size());
    for (const auto& [unit, fault] : reported_)
      out.push_back(fleet::xid_fault(unit, std::to_string(fault.gpu), fault.xid));
    for (const std::string& why : missing_) out.push_back("not offered: " + why);
    return out;
  }

 private:
  struct Reported {
    std::size_t gpu = 0;
    int xid = 0;
  };

  void reload() {
    withdraw();
    if (auto served = serve(); !served) {
      log::warn("device plugin ends", {{"node", context_.machine.node().name}, {"error", served.error()}});
      context_.exit(1);
    }
  }

  Result<> serve() {
    const auto settings = TRY(load_settings(sharing::Program::kPlugin, context_, config_->text()));
    TRY(sharing::validate_plugin(settings, {}));
    const plugin::Facts facts = context_.machine.plugin_facts();
    reported_.clear();
    missing_ = facts.inventory.warnings;
    const plugin::Plan plan = TRY(plugin::plan_resources(settings, facts));
    health_ = std::make_unique<plugin::HealthState>(plugin::parse_health_rules(
        context_.env_or("DP_DISABLE_HEALTHCHECKS"), context_.env_or("DP_ENABLE_HEALTHCHECKS")));
    resources_ = plan.resources;
    for (const plugin::Resource& resource : plan.resources) {
      plugin::Offer offer;
      offer.resource = resource;
      offer.settings = settings;
      offer.scores = plan.scores;
      offer.control_nodes = plan.control_nodes;
      offer.imex = plan.imex;
      offers_.push_back(std::make_shared<HollowOffer>(context_.loop, plugin::make_offer(std::move(offer))));
      context_.world.register_plugin(offers_.back());
    }
    return {};
  }

  void xid(std::size_t gpu, int code) {
    if (!health_) return;
    plugin::HealthEvent event;
    event.gpu_uuid = context_.machine.uuid(gpu);
    event.xid = static_cast<std::uint64_t>(code);
    for (const std::string& unit : health_->apply(event, resources_, context_.loop.now()))
      reported_[unit] = {gpu, code};
    for (const auto& offer : offers_) {
      offer->set_health([this](const std::string& uuid) { return health_->healthy(uuid); });
    }
  }

  void withdraw() {
    for (const auto& offer : offers_) {
      context_.world.withdraw_plugin(offer);
      offer->close();
    }
    offers_.clear();
  }

  ProgramContext context_;
  std::unique_ptr<kube::Client> client_;
  std::unique_ptr<SelectedConfig> config_;
  std::vector<std::shared_ptr<HollowOffer>> offers_;
  std::vector<plugin::Resource> resources_;
  std::unique_ptr<plugin::HealthState> health_;
  std::map<std::string, Reported> reported_;  // by unit
  std::vector<std::string> missing_;          // GPUs that did not answer when it was started
  Handle xids_;
};

class FeatureDiscovery : public Program {
 public:
  explicit FeatureDiscovery(ProgramContext context) : context_(std::move(context)) {}

  void start() override {
    client_ = context_.world.client("gpu-feature-discovery");
    config_ = std::make_unique<SelectedConfig>(context_.loop, *client_, context_.ns, context_.pod,
                                               context_.machine.node().name, [this] { reload(); });
    config_->start();
  }

 private:
  void reload() {
    timer_.reset();
    const auto settings = load_settings(sharing::Program::kFeatureDiscovery, context_, config_->text());
    if (!settings || !sharing::validate_feature_discovery(*settings)) return context_.exit(1);
    settings_ = *settings;
    timestamp_ =
        std::chrono::duration_cast<std::chrono::seconds>(context_.loop.now().time_since_epoch()).count();
    publisher_.reset();
    if (settings_.use_node_feature_api) {
      publisher_ = std::make_unique<labels::NodeFeaturePublisher>(
          *client_, labels::NodeFeatureTarget{settings_.ns, settings_.node_name, settings_.pod_name});
    }
    look();
  }

  void look() {
    auto decision = labels::decide(settings_, context_.machine.label_facts(), timestamp_);
    if (!decision) return context_.exit(1);
    if (!publisher_) {
      context_.machine.write_feature_file(std::move(decision->labels));
      return again();
    }
    publisher_->publish(decision->labels, [this](const Result<>& done) {
      if (!done) return context_.exit(1);
      again();
    });
  }

  void again() {
    if (settings_.oneshot) return context_.exit(0);
    if (settings_.sleep_interval) timer_ = context_.loop.after(*settings_.sleep_interval, [this] { look(); });
  }

  ProgramContext context_;
  std::unique_ptr<kube::Client> client_;
  std::unique_ptr<SelectedConfig> config_;
  std::unique_ptr<labels::NodeFeaturePublisher> publisher_;
  sharing::Settings settings_;
  std::int64_t timestamp_ = 0;
  Handle timer_;
};

}  // namespace

// --- offers

struct HollowOffer::Shared {
  class Registration;
  Shared(Loop& l, std::shared_ptr<const plugin::Offer> o)
      : loop(l), offer(std::move(o)), healthy(offer->resource.devices.size(), true) {}

  std::vector<Device> list() const {
    std::vector<Device> out;
    const auto& devices = offer->resource.devices;
    for (std::size_t i = 0; i < devices.size(); ++i) {
      Device device{devices[i].id, healthy[i], {}};
      if (devices[i].numa_node) device.numa.push_back(*devices[i].numa_node);
      out.push_back(std::move(device));
    }
    return out;
  }

  Loop& loop;
  std::shared_ptr<const plugin::Offer> offer;
  std::vector<bool> healthy;
  std::vector<std::weak_ptr<Registration>> registrations;
  std::uint64_t allocations = 0;
  bool closed = false;
};

class HollowOffer::Shared::Registration
    : public DevicePlugin,
      public std::enable_shared_from_this<HollowOffer::Shared::Registration> {
 public:
  explicit Registration(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}

  bool preferred_available() const override { return true; }
  void watch(std::function<void(std::vector<Device>)> devices, std::function<void(Error)> ended) override {
    devices_ = std::move(devices);
    ended_ = std::move(ended);
    send();
  }
  void send() {
    later([](Registration& self) {
      if (self.devices_) self.devices_(self.shared_->list());
    });
  }
  void close() {
    later([](Registration& self) {
      if (self.ended_) std::exchange(self.ended_, nullptr)(Error(Code::kUnavailable, "the plugin has ended"));
    });
  }
  void preferred(const std::vector<std::string>& available, const std::vector<std::string>& must_include,
                 int size, Done<std::vector<std::string>> done) override {
    later([available, must_include, size, done](Registration& self) {
      done(plugin::preferred(*self.shared_->offer, available, must_include, size).ids);
    });
  }
  void allocate(const std::vector<std::string>& ids, Done<DeviceAnswer> done) override {
    later([ids, done](Registration& self) {
      if (self.shared_->closed) return done(fail(Code::kUnavailable, "the plugin has ended"));
      // Unique over what this plugin hands out; a run replays.
      const std::string unique =
          sha256_hex(self.shared_->offer->resource.name + std::to_string(++self.shared_->allocations))
              .substr(0, 32);
      auto made = plugin::allocate(*self.shared_->offer, ids, unique);
      if (!made) return done(fail(made.error()));
      done(answer_of(*made));
    });
  }
  void pre_start(const std::vector<std::string>&, Done<void> done) override {
    later([done](Registration&) { done({}); });
  }
  void stop() override {
    devices_ = nullptr;
    ended_ = nullptr;
    stopped_ = true;
  }

 private:
  static DeviceAnswer answer_of(const plugin::Allocation& made) {
    DeviceAnswer out;
    out.envs = made.envs;
    out.annotations = made.annotations;
    out.cdi_devices = made.cdi_devices;
    for (const plugin::Mount& mount : made.mounts) {
      out.mounts.push_back({mount.host_path, mount.container_path, mount.read_only, Propagation::kPrivate});
    }
    for (const plugin::DeviceNode& node : made.devices) {
      out.devices.push_back({node.host_path, node.container_path, node.permissions});
    }
    return out;
  }
  void later(std::function<void(Registration&)> work) {
    shared_->loop.post([weak = weak_from_this(), work = std::move(work)] {
      const auto self = weak.lock();
      if (self && !self->stopped_) work(*self);
    });
  }

  std::shared_ptr<Shared> shared_;
  std::function<void(std::vector<Device>)> devices_;
  std::function<void(Error)> ended_;
  bool stopped_ = false;
};

HollowOffer::HollowOffer(Loop& loop, std::shared_ptr<const plugin::Offer> offer)
    : shared_(std::make_shared<Shared>(loop, std::move(offer))) {}

const std::string& HollowOffer::resource() const {
  return shared_->offer->resource.name;
}

void HollowOffer::set_health(const std::function<bool(const std::string&)>& healthy) {
  bool changed = false;
  const auto& devices = shared_->offer->resource.devices;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    const bool now = healthy(devices[i].uuid);
    changed = changed || now != shared_->healthy[i];
    shared_->healthy[i] = now;
  }
  if (!changed) return;
  for (const auto& weak : shared_->registrations) {
    if (const auto registration = weak.lock()) registration->send();
  }
}

std::shared_ptr<DevicePlugin> HollowOffer::registration() {
  auto out = std::make_shared<Shared::Registration>(shared_);
  std::erase_if(shared_->registrations, [](const auto& weak) { return weak.expired(); });
  shared_->registrations.push_back(out);
  return out;
}

void HollowOffer::close() {
  shared_->closed = true;
  for (const auto& weak : shared_->registrations) {
    if (const auto registration = weak.lock()) registration->close();
  }
}

std::unique_ptr<Program> make_device_plugin(ProgramContext context) {
  return std::make_unique<DevicePluginProgram>(std::move(context));
}
std::unique_ptr<Program> make_feature_discovery(ProgramContext context) {
  return std::make_unique<FeatureDiscovery>(std::move(context));
}

}  // namespace gpuop::cluster
