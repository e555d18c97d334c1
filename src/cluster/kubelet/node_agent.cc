#include "cluster/kubelet/node_agent.h"

#include "base/log.h"
#include "base/text.h"
#include "kube/object.h"

namespace gpuop::cluster {

namespace {

constexpr Duration kLeasePeriod = std::chrono::seconds(10);
constexpr Duration kStatusPeriod = std::chrono::minutes(5);
constexpr const char* kLeaseNamespace = "kube-node-lease";
constexpr const char* kNotChecked = "container runtime status check may not have completed yet";

std::int64_t version_of(const Json& object) {
  return parse_int(get_string(object, {"metadata", "resourceVersion"})).value_or(0);
}

}  // namespace

NodeAgent::NodeAgent(KubeletContext& context, std::function<std::map<std::string, DeviceCounts>()> devices)
    : context_(context),
      devices_(std::move(devices)),
      informer_(context.client, kube::kNodes,
                {.ns = {},
                 .label_selector = {},
                 .field_selector = "metadata.name=" + context.options.node_name,
                 .keep = {"status"}}) {}

NodeAgent::~NodeAgent() = default;

NodeStatusFacts NodeAgent::facts() const {
  auto devices = devices_();
  for (const std::string& name : gone_) devices.try_emplace(name);
  return {context_.options,   runtime_version_,     port_,
          std::move(devices), ready_ && !rebooted_, rebooted_ ? kNotChecked : not_ready_message_,
          context_.loop.now()};
}

void NodeAgent::start() {
  informer_.on_change([this](const auto&, const auto& now) { node_changed(now); });
  informer_.start();
  register_node();
}

void NodeAgent::register_node() {
  call_ = context_.client.create(kube::kNodes, {}, build_node(facts()), {}, [this](kube::ApiResult<> answer) {
    if (answer) return registered(*answer);
    if (answer.error().already_exists()) {
      call_ =
          context_.client.get(kube::kNodes, {}, context_.options.node_name, [this](kube::ApiResult<> found) {
            if (found) {
              first_report_ = true;
              return registered(*found);
            }
            timer_ = context_.loop.after(backoff_.next(), [this] { register_node(); });
          });
      return;
    }
    log::warn("cannot register the node",
              {{"node", context_.options.node_name}, {"error", answer.error().message}});
    timer_ = context_.loop.after(backoff_.next(), [this] { register_node(); });
  });
}

void NodeAgent::registered(const Json& node) {
  backoff_.reset();
  registered_ = present_ = true;
  uid_ = kube::uid_of(node);
  const Json* status = find(node, {"status"});
  observed_ = status != nullptr ? *status : Json(JsonObject());
  observed_version_ = version_of(node);
  fix_labels(node);
  if (!std::exchange(announced_, true)) {
    context_.events.event(self(), "Normal", "Starting", "Starting kubelet.");
  }
  note_reboot(node);
  // As the kubelet does without a device checkpoint: nobody gets what another installation of this node had.
  if (std::exchange(reset_, false)) {
    for (std::string& name : extended_resources(observed_)) gone_.insert(std::move(name));
  }
  publish_soon();
  if (!lease_timer_ && !lease_call_) renew();
  if (!heartbeat_timer_) heartbeat();
}

// A node that booted says so, and is ready only after its first look at itself.
void NodeAgent::note_reboot(const Json& node) {
  const std::string before = str(get_string(node, {"status", "nodeInfo", "bootID"}));
  const std::string& now = context_.options.facts.boot_id;
  if (before.empty() || before == now) return;
  rebooted_ = true;
  const std::string& name = context_.options.node_name;
  context_.events.event(self(), "Warning", "Rebooted",
                        "Node " + name + " has been rebooted, boot id: " + now);
}

Json NodeAgent::self() const {
  return JsonObject{{"apiVersion", "v1"},
                    {"kind", "Node"},
                    {"metadata", JsonObject{{"name", context_.options.node_name}, {"uid", uid_}}}};
}

void NodeAgent::fix_labels(const Json& node) {
  const Json patch = node_label_patch(context_.options, node);
  if (patch.get_object().empty()) return;
  label_call_ = context_.client.patch(kube::kNodes, {}, context_.options.node_name, kube::Patch::kMerge,
                                      patch, {}, [](const kube::ApiResult<>& answer) {
                                        if (!answer) {
                                          log::warn("cannot set the node's labels",
                                                    {{"error", answer.error().message}});
                                        }
                                      });
}

void NodeAgent::node_changed(const std::shared_ptr<const Json>& node) {
  if (!registered_) return;
  if (!node) {
    log::warn("the node was deleted; it registers when the kubelet is started anew",
              {{"node", context_.options.node_name}});
    present_ = false;
    observed_version_ = 0;
    return;
  }
  if (!std::exchange(present_, true)) {
    // Somebody created it again.
    uid_ = kube::uid_of(*node);
    last_patch_ = nullptr;
  }
  if (version_of(*node) < observed_version_) return;
  observed_version_ = version_of(*node);
  const Json* status = find(*node, {"status"});
  observed_ = status != nullptr ? *status : Json(JsonObject());
  publish_soon();
}

void NodeAgent::set_runtime_version(std::string version) {
  runtime_version_ = std::move(version);
  publish_soon();
}

void NodeAgent::set_ready(bool ready, std::string message) {
  ready_ = ready;
  not_ready_message_ = std::move(message);
  publish_soon();
}

void NodeAgent::changed() {
  publish_soon();
}

void NodeAgent::publish_soon() {
  if (!registered_ || std::exchange(soon_, true)) return;
  context_.loop.post([this, alive = std::weak_ptr<bool>(alive_)] {
    if (alive.expired()) return;
    soon_ = false;
    publish(false);
  });
}

void NodeAgent::publish(bool heartbeat) {
  if (!registered_ || !present_ || writing_) return;
  const Time now = context_.loop.now();
  // The first word of a kubelet on a node that was there already is a whole report.
  heartbeat = heartbeat || first_report_;
  Json patch = node_status_patch(observed_, build_node_status(facts()), heartbeat);
  if (patch.get_object().empty()) return;
  Json timeless = patch;
  if (Json* conditions = timeless.get_object().if_contains("conditions")) {
    for (Json& condition : conditions->get_array()) condition.get_object().erase("lastHeartbeatTime");
    for (Json& condition : conditions->get_array()) condition.get_object().erase("lastTransitionTime");
  }
  if (timeless == last_patch_ && !heartbeat && now - last_patch_time_ < kLeasePeriod) {
    timer_ = context_.loop.after(kLeasePeriod, [this] { publish(false); });
    return;
  }
  last_patch_ = std::move(timeless);
  last_patch_time_ = now;
  writing_ = true;
  const Json body = JsonObject{{"status", std::move(patch)}};
  call_ = context_.client.patch(
      kube::kNodes, {}, context_.options.node_name, kube::Patch::kStrategic, body, {.subresource = "status"},
      [this](kube::ApiResult<> answer) {
        writing_ = false;
        if (answer) {
          backoff_.reset();
          rebooted_ = first_report_ = false;
          gone_.clear();
          if (version_of(*answer) >= observed_version_) {
            observed_version_ = version_of(*answer);
            observed_ =
                find(*answer, {"status"}) != nullptr ? *find(*answer, {"status"}) : Json(JsonObject());
          }
          return publish_soon();  // what changed meanwhile
        }
        last_patch_ = nullptr;
        if (!present_) return;  // its end came while this was under way
        log::warn("cannot write the node's status", {{"error", answer.error().message}});
        timer_ = context_.loop.after(backoff_.next(), [this] { publish(false); });
      });
}

void NodeAgent::heartbeat() {
  heartbeat_timer_ = context_.loop.after(kStatusPeriod, [this] {
    publish(true);
    heartbeat();
  });
}

void NodeAgent::renew() {
  lease_timer_.reset();
  const Json body = build_lease(context_.options.node_name, uid_, context_.loop.now());
  lease_call_ = context_.client.patch(
      kube::kLeases, kLeaseNamespace, context_.options.node_name, kube::Patch::kMerge, body, {},
      [this](const kube::ApiResult<>& answer) {
        lease_call_.reset();
        if (answer) {
          lease_backoff_.reset();
          lease_timer_ = context_.loop.after(kLeasePeriod, [this] { renew(); });
        } else if (answer.error().not_found() && present_) {
          lease_missing();
        } else {
          lease_timer_ = context_.loop.after(lease_backoff_.next(), [this] { renew(); });
        }
      });
}

void NodeAgent::lease_missing() {
  const Json body = build_lease(context_.options.node_name, uid_, context_.loop.now());
  lease_call_ = context_.client.create(
      kube::kLeases, kLeaseNamespace, body, {}, [this](const kube::ApiResult<>& answer) {
        lease_call_.reset();
        if (answer) lease_backoff_.reset();
        lease_timer_ =
            context_.loop.after(answer ? kLeasePeriod : lease_backoff_.next(), [this] { renew(); });
      });
}

}  // namespace gpuop::cluster
