#include "labels/service.h"

#include <algorithm>

#include "base/files.h"
#include "base/log.h"
#include "labels/publish.h"

namespace gpuop::labels {
namespace {

using sharing::Program;
using sharing::Settings;

}  // namespace

struct Service::Impl {
  Impl(Loop& l, ServiceOptions o, std::function<void(Result<>)> e)
      : loop(l), options(std::move(o)), end(std::move(e)) {}
  ~Impl() { clean(); }

  // A features file tells of a living discovery; it goes with the process, but for the uses that end by plan.
  void clean() {
    if (!loaded || settings.use_node_feature_api || settings.oneshot || !settings.sleep_interval) return;
    remove_features(settings.output_file);
  }

  Result<> load() {
    sharing::SettingsInputs inputs = options.inputs;
    std::string path = sharing::config_file_path(Program::kFeatureDiscovery, inputs);
    if (!path.empty()) {
      std::string text = TRY_IN(read_file(path), "unable to parse config file");
      inputs.file = TRY(sharing::parse_config_file(text, path));
    }
    settings = TRY(sharing::resolve_settings(Program::kFeatureDiscovery, inputs));
    TRY(sharing::validate_feature_discovery(settings));
    for (const std::string& note : settings.notes) log::warn("configuration: " + note);
    log::info("configuration:\n" +
              to_pretty_text(sharing::settings_json(Program::kFeatureDiscovery, settings)));
    if (settings.use_node_feature_api) {
      if (settings.node_name.empty()) return fail(Code::kInvalid, "required flag node-name not set");
      if (settings.ns.empty()) return fail(Code::kInvalid, "required flag namespace not set");
      if (!client) client = TRY(options.make_client(settings));
      publisher = std::make_unique<NodeFeaturePublisher>(
          *client, NodeFeatureTarget{settings.ns, settings.node_name, settings.pod_name});
    } else {
      publisher.reset();
    }
    timestamp = std::chrono::duration_cast<std::chrono::seconds>(loop.now().time_since_epoch()).count();
    loaded = true;
    return {};
  }

  void start() {
    next.reset();
    if (auto ok = load(); !ok) return end(std::move(ok));
    look();
  }

  void look() {
    auto labels = compute();
    if (!labels) return end(fail(std::move(labels).error()));
    if (publisher) {
      publisher->publish(*labels, [this](Result<> done) { after(std::move(done)); });
    } else {
      after(write_features(settings.output_file, *labels));
    }
  }

  Result<Labels> compute() {
    Facts facts = TRY(observe(settings));
    Decision decision = TRY(decide(settings, facts, timestamp));
    // Said once, not every minute.
    for (const std::string& warning : decision.warnings) {
      if (std::ranges::find(said, warning) == said.end()) log::warn(warning);
    }
    said = decision.warnings;
    if (decision.labels.size() <= 1) log::warn("No labels generated from any source");
    return std::move(decision.labels);
  }

  void after(Result<> done) {
    if (!done) return end(std::move(done));
    if (settings.oneshot) return end({});
    // NVML tells nobody of most of what is labelled, so the hardware is looked at again.
    if (settings.sleep_interval) next = loop.after(*settings.sleep_interval, [this] { look(); });
  }

  Loop& loop;
  ServiceOptions options;
  std::function<void(Result<>)> end;
  Settings settings;
  bool loaded = false;
  std::int64_t timestamp = 0;
  std::vector<std::string> said;
  std::unique_ptr<kube::Client> client;
  std::unique_ptr<NodeFeaturePublisher> publisher;
  Handle next;
};

Service::Service(Loop& loop, ServiceOptions options, std::function<void(Result<>)> end)
    : impl_(std::make_unique<Impl>(loop, std::move(options), std::move(end))) {}
Service::~Service() = default;

void Service::start() {
  impl_->start();
}

void Service::reload() {
  log::info("asked to reload");
  impl_->clean();
  impl_->said.clear();
  impl_->start();
}

}  // namespace gpuop::labels
