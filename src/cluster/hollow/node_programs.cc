// The NFD worker, the driver manager and the operator on a hollow node.
#include <algorithm>

#include "base/log.h"
#include "base/text.h"
#include "cluster/hollow/program.h"
#include "driver/pods.h"
#include "features/master.h"
#include "features/sources.h"
#include "features/worker.h"
#include "kube/informer.h"
#include "kube/lease.h"
#include "kube/object.h"
#include "operator/controller.h"

namespace gpuop::cluster {
namespace {

constexpr Duration kFirstDelay = 1s, kLongestDelay = 60s;

// Doubling delays between tries.
class Delay {
 public:
  Duration next() {
    now_ = now_ == Duration::zero() ? kFirstDelay : std::min(2 * now_, kLongestDelay);
    return now_;
  }
  void reset() { now_ = Duration::zero(); }

 private:
  Duration now_{0};
};

class NfdWorker : public Program {
 public:
  explicit NfdWorker(ProgramContext context) : context_(std::move(context)) {}
  ~NfdWorker() override {
    if (serving_) context_.machine.serve(port_, false);
  }

  void start() override {
    for (const std::string& word : context_.words) {
      const auto equals = word.find("port=");
      if (equals != std::string::npos)
        port_ = static_cast<int>(parse_int(word.substr(equals + 5)).value_or(port_));
    }
    options_.node = context_.env_or("NODE_NAME");
    options_.ns = context_.env_or("KUBERNETES_NAMESPACE", context_.ns);
    options_.pod_name = context_.env_or("POD_NAME");
    options_.pod_uid = context_.env_or("POD_UID");
    if (options_.node.empty()) return context_.exit(1);
    client_ = context_.world.client("nfd-worker");
    changes_ = context_.machine.on_change([this] { soon(); });
    read_pod();
  }

 private:
  // The worker reads its configuration file once; it comes with its pod.
  void read_pod() {
    call_ = client_->get(kube::kPods, options_.ns, context_.pod, [this](kube::ApiResult<> pod) {
      if (!pod) return later([this] { read_pod(); });
      delay_.reset();
      add_owners(*pod);
      const std::string map =
          mounted_config_map(*pod, "/etc/kubernetes/node-feature-discovery/nfd-worker.conf");
      if (map.empty()) return discover();
      read_config(map);
    });
  }

  void add_owners(const Json& pod) {
    const auto owner = [](std::string_view api, std::string_view kind, std::string_view name,
                          std::string_view uid) {
      return JsonObject{
          {"apiVersion", api}, {"kind", kind}, {"name", name}, {"uid", uid}, {"blockOwnerDeletion", false}};
    };
    owners_.push_back(owner("v1", "Pod", kube::name_of(pod), kube::uid_of(pod)));
    for (const Json& set : get_array(pod, {"metadata", "ownerReferences"})) {
      if (get_string(set, {"kind"}) != "DaemonSet") continue;
      owners_.push_back(owner(get_string(set, {"apiVersion"}), "DaemonSet", get_string(set, {"name"}),
                              get_string(set, {"uid"})));
    }
  }

  void read_config(const std::string& map) {
    call_ = client_->get(kube::kConfigMaps, options_.ns, map, [this, map](kube::ApiResult<> object) {
      if (!object) return later([this, map] { read_config(map); });
      delay_.reset();
      const auto text = get_string(*object, {"data", "nfd-worker.conf"});
      if (!features::merge_config(options_.config, text, "nfd-worker.conf")) return context_.exit(1);
      discover();
    });
  }

  // Files that change together are read together.
  void soon() {
    if (!serving_ || debounce_) return;
    debounce_ = context_.loop.after(1s, [this] {
      debounce_.reset();
      discover();
    });
  }

  void discover() {
    timer_.reset();
    features::Discovery found;
    found.features = context_.machine.features();
    features::add_labels(found, context_.machine.feature_files(), options_.config);
    wanted_ = features::node_feature(options_, found, owners_);
    if (!live_.is_null() && !features::differs(live_, wanted_)) return published();
    publish();
  }

  void publish() {
    call_ = client_->get(kube::kNodeFeatures, options_.ns, options_.node, [this](kube::ApiResult<> live) {
      if (!live && !live.error().not_found()) return later([this] { publish(); });
      if (!live) {
        call_ = client_->create(kube::kNodeFeatures, options_.ns, wanted_, {},
                                [this](kube::ApiResult<> made) { written(std::move(made)); });
        return;
      }
      if (!features::differs(*live, wanted_)) return written(std::move(live));
      Json body = wanted_;
      set(body, {"metadata", "resourceVersion"}, get_string(*live, {"metadata", "resourceVersion"}));
      call_ = client_->update(kube::kNodeFeatures, options_.ns, options_.node, body, {},
                              [this](kube::ApiResult<> made) { written(std::move(made)); });
    });
  }

  void written(kube::ApiResult<> result) {
    if (!result) return later([this] { publish(); });
    delay_.reset();
    live_ = std::move(*result);
    published();
  }

  void published() {
    if (!std::exchange(serving_, true)) context_.machine.serve(port_, true);
    const Duration interval = options_.config.sleep_interval;
    if (interval > Duration::zero()) timer_ = context_.loop.after(interval, [this] { discover(); });
  }

  void later(std::function<void()> work) { retry_ = context_.loop.after(delay_.next(), std::move(work)); }

  ProgramContext context_;
  features::WorkerOptions options_;
  JsonArray owners_;
  Json live_, wanted_;
  int port_ = 8080;
  bool serving_ = false;
  Delay delay_;
  std::unique_ptr<kube::Client> client_;
  Handle changes_, call_, timer_, retry_, debounce_;
};

// The init container before a driver container: says that the host has a driver, or clears the way.
class DriverManager : public Program {
 public:
  explicit DriverManager(ProgramContext context) : context_(std::move(context)) {}

  void start() override {
    client_ = context_.world.client("k8s-driver-manager");
    node_name_ = context_.machine.node().name;
    read_node();
  }

 private:
  using Labels = std::map<std::string, std::string>;

  void read_node() {
    call_ = client_->get(kube::kNodes, "", node_name_, [this](kube::ApiResult<> node) {
      if (!node) return context_.exit(1);
      node_ = std::move(*node);
      if (context_.machine.driver_is_host()) {
        // The label does not select this pod any more: it is about to be removed.
        return label({{driver::operand_label("driver"), "pre-installed"}},
                     [this] { timer_ = context_.loop.after(60s, [this] { context_.exit(1); }); });
      }
      if (context_.machine.driver().empty()) return restore();
      label(driver::changed_labels(node_, "", driver::paused), [this] { wait_for_operands(); });
    });
  }

  void label(const Labels& labels, std::function<void()> then) {
    if (labels.empty()) return then();
    JsonObject body;
    for (const auto& [key, value] : labels) body[key] = value;
    const Json patch = JsonObject{{"metadata", JsonObject{{"labels", std::move(body)}}}};
    call_ = client_->patch(kube::kNodes, "", node_name_, kube::Patch::kMerge, patch, {},
                           [this, then = std::move(then)](const kube::ApiResult<>& done) {
                             if (!done) return context_.exit(1);
                             then();
                           });
  }

  void wait_for_operands() {
    kube::InformerOptions options;
    options.field_selector = "spec.nodeName=" + node_name_;
    options.keep = {"spec.nodeSelector", "status.phase"};
    pods_ = std::make_unique<kube::Informer>(*client_, kube::kPods, options);
    pods_->on_change([this](const auto&, const auto&) { look(); });
    pods_->on_synced([this] { look(); });
    pods_->start();
    timer_ = context_.loop.after(5min, [this] { give_up(); });
  }

  void look() {
    if (!pods_ || !pods_->synced()) return;
    const auto apps = driver::waited_apps(node_);
    const bool clients = !kube::label(node_, driver::operand_label("client")).empty();
    bool waiting = false;
    pods_->for_each([&](const auto& pod) {
      waiting = waiting || driver::is_waited_for(*pod, context_.ns, apps, clients);
    });
    if (waiting) return;
    drop_informer();
    timer_.reset();
    context_.machine.unload_driver();
    reread_and_restore();
  }

  // It may be the one that calls: it goes with this object.
  void drop_informer() { old_ = std::move(pods_); }

  void reread_and_restore() {
    call_ = client_->get(kube::kNodes, "", node_name_, [this](kube::ApiResult<> node) {
      if (!node) return context_.exit(1);
      node_ = std::move(*node);
      restore();
    });
  }

  void restore() {
    label(driver::changed_labels(node_, "", driver::restored), [this] { context_.exit(0); });
  }

  void give_up() {
    drop_informer();
    call_ = client_->get(kube::kNodes, "", node_name_, [this](kube::ApiResult<> node) {
      if (!node) return context_.exit(1);
      label(driver::changed_labels(*node, "", driver::restored), [this] { context_.exit(1); });
    });
  }

  ProgramContext context_;
  std::string node_name_;
  Json node_;
  std::unique_ptr<kube::Client> client_;
  std::unique_ptr<kube::Informer> pods_, old_;
  Handle call_, timer_;
};

// The operator itself, as apps/gpu-operator wires it.
class Operator : public Program {
 public:
  explicit Operator(ProgramContext context) : context_(std::move(context)) {}
  ~Operator() override {
    for (const int port : {8080, 8081}) {
      if (serving_) context_.machine.serve(port, false);
    }
  }

  void start() override {
    if (context_.world.assets == nullptr) return context_.exit(1);
    client_ = context_.world.client("gpu-operator");
    op::ControllerOptions options;
    options.ns = context_.env_or("OPERATOR_NAMESPACE");
    options.own_image = context_.env_or("OPERATOR_IMAGE");
    options.env = context_.env;
    options.assets = *context_.world.assets;
    const std::string ns = options.ns;
    controller_ = std::make_unique<op::Controller>(context_.loop, *client_, std::move(options), metrics_);
    features::MasterOptions master;
    master.ns = ns;
    master_ = std::make_unique<features::Master>(context_.loop, *client_, master, &controller_->nodes());
    controller_->start_watching();
    master_->start_watching();
    for (const int port : {8080, 8081}) context_.machine.serve(port, true);
    serving_ = true;
    const bool elect = std::ranges::find(context_.words, "--leader-elect") != context_.words.end();
    if (!elect) return lead();
    kube::LeaseOptions lease;
    lease.ns = ns;
    lease.name = "53822513.nvidia.com";
    lease.identity = context_.pod + "_" + context_.pod_uid;
    auto elector =
        kube::LeaderElector::create(*client_, lease, [this] { lead(); }, [this] { context_.exit(1); });
    if (!elector) return context_.exit(1);
    elector_ = std::move(*elector);
    elector_->start();
  }

 private:
  void lead() {
    controller_->lead();
    master_->lead();
  }

  ProgramContext context_;
  std::unique_ptr<kube::Client> client_;
  op::Metrics metrics_;
  std::unique_ptr<op::Controller> controller_;
  std::unique_ptr<features::Master> master_;
  std::unique_ptr<kube::LeaderElector> elector_;
  bool serving_ = false;
};

}  // namespace

std::unique_ptr<Program> make_nfd_worker(ProgramContext context) {
  return std::make_unique<NfdWorker>(std::move(context));
}
std::unique_ptr<Program> make_driver_manager(ProgramContext context) {
  return std::make_unique<DriverManager>(std::move(context));
}
std::unique_ptr<Program> make_operator(ProgramContext context) {
  return std::make_unique<Operator>(std::move(context));
}

}  // namespace gpuop::cluster
