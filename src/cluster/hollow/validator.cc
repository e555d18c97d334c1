// The validator's components on a hollow node: the same gates, waits and workload pods.
#include <algorithm>

#include "base/text.h"
#include "cluster/hollow/program.h"
#include "kube/informer.h"
#include "kube/object.h"
#include "validate/gates.h"
#include "validate/progress.h"
#include "validate/sequence.h"
#include "validate/workload.h"

namespace gpuop::cluster {
namespace {

using validate::Workload;

constexpr Duration kCudaLimit = 300s, kCapacityLimit = 150s;

class Validator : public Program {
 public:
  explicit Validator(ProgramContext context) : context_(std::move(context)) {}

  void start() override {
    component_ = context_.env_or("COMPONENT");
    for (std::size_t i = 0; i + 1 < context_.words.size(); ++i) {
      if (context_.words[i] == "--component" || context_.words[i] == "-c") component_ = context_.words[i + 1];
    }
    wait_ = context_.flag("WITH_WAIT", false);
    workload_ = context_.flag("WITH_WORKLOAD", true);
    if (component_ == "metrics") return serve();
    if (!may_change_gates()) return context_.exit(1);
    context_.machine.remove_gates(component_ + "-ready");
    if (component_ == "driver" || component_ == "toolkit") {
      if (wait_) changes_ = context_.machine.on_change([this] { look(); });
      return look();
    }
    client_ = context_.world.client("nvidia-validator");
    node_ = context_.env_or("NODE_NAME");
    ns_ = context_.env_or("OPERATOR_NAMESPACE", context_.ns);
    if (component_ == "cuda") return workload_ ? begin_workload(Workload::kCuda, "") : pass();
    if (component_ == "plugin") return wait_for_capacity();
    context_.exit(1);
  }

  ~Validator() override {
    if (serving_) context_.machine.serve(port_, false);
  }

 private:
  void serve() {
    port_ = static_cast<int>(parse_int(context_.env_or("METRICS_PORT")).value_or(0));
    if (port_ <= 0) return context_.exit(1);
    context_.machine.serve(port_, true);
    serving_ = true;
  }

  bool works() const {
    const HollowMachine& machine = context_.machine;
    if (machine.driver().empty()) return false;
    // A driver container's own gate has to be there first.
    if (component_ == "driver") return machine.driver_is_host() || machine.gate(".driver-ctr-ready");
    // The runtime injects nvidia-smi where it is wired, and the pod asks for it.
    return machine.toolkit() && context_.handler.starts_with("nvidia");
  }

  void look() {
    if (works()) return pass();
    if (!wait_) return fail_now();
    if (context_.waiting && component_ == "driver") {
      const bool host = context_.machine.driver_is_host();
      context_.waiting(host, host ? "run nvidia-smi of the host: it ended with code 9"
                                  : "wait for the driver container: "
                                    "'/run/nvidia/validations/.driver-ctr-ready' is not there yet");
    }
  }

  bool may_change_gates() const {
    return context_.env_or(validate::kGateOwnerFile).empty() ||
           validate::holds_gates(context_.machine.gate_owner(), context_.pod_uid);
  }
  void pass() {
    if (!may_change_gates()) return fail_now();
    stop();
    context_.machine.open_gate(component_ + "-ready");
    context_.exit(0);
  }
  void fail_now() {
    stop();
    context_.exit(1);
  }
  void stop() {
    changes_.reset();
    deadline_.reset();
    // The informer may be the one that calls: it goes with this object.
    if (watch_) old_.push_back(std::move(watch_));
  }

  void wait_for_capacity() {
    watch(kube::kNodes, "", node_, {"status.capacity", "status.allocatable"}, kCapacityLimit,
          [this](const Json& node) {
            if (validate::plugin_is_off(node)) {
              stop();
              return context_.exit(0);
            }
            if (!validate::has_gpu_capacity(node)) return;
            if (!workload_) return pass();
            const auto resource = validate::pick_resource(node);
            if (!resource) return;
            stop();
            begin_workload(Workload::kPlugin, *resource);
          });
  }

  void watch(const kube::Resource& type, const std::string& ns, const std::string& name,
             std::vector<std::string> keep, Duration limit, std::function<void(const Json&)> seen) {
    kube::InformerOptions options;
    options.ns = ns;
    options.field_selector = "metadata.name=" + name;
    options.keep = std::move(keep);
    watch_ = std::make_unique<kube::Informer>(*client_, type, options);
    watch_->on_change([this, seen = std::move(seen)](const auto& old, const auto& now) {
      if (!watch_) return;
      if (now) return seen(*now);
      if (old) fail_now();  // deleted meanwhile
    });
    watch_->start();
    deadline_ = context_.loop.after(limit, [this] { fail_now(); });
  }

  // --- workload pods (validate/workload.cc, without waiting in place)

  void begin_workload(Workload which, const std::string& resource) {
    which_ = which;
    resource_ = resource;
    call_ =
        client_->get(kube::kDaemonSets, ns_, "nvidia-operator-validator", [this](kube::ApiResult<> owner) {
          if (!owner) return fail_now();
          owner_ = std::move(*owner);
          list_earlier();
        });
  }

  void list_earlier() {
    kube::ListOptions filter;
    filter.label_selector =
        which_ == Workload::kCuda ? "app=nvidia-cuda-validator" : "app=nvidia-device-plugin-validator";
    filter.field_selector = "spec.nodeName=" + node_;
    call_ = client_->list(kube::kPods, ns_, filter, [this](kube::ApiResult<> list) {
      if (!list) return fail_now();
      for (const Json& pod : get_array(*list, {"items"})) earlier_.emplace_back(kube::name_of(pod));
      remove_earlier();
    });
  }

  void remove_earlier() {
    if (earlier_.empty()) return create();
    const std::string name = std::move(earlier_.back());
    earlier_.pop_back();
    kube::DeleteOptions how;
    how.propagation = "Background";
    how.grace_seconds = 0;
    call_ = client_->remove(kube::kPods, ns_, name, how, [this](kube::ApiResult<> gone) {
      if (!gone && !gone.error().not_found()) return fail_now();
      remove_earlier();
    });
  }

  validate::WorkloadOptions options() const {
    validate::WorkloadOptions out;
    out.node = node_;
    out.ns = ns_;
    out.image = context_.env_or("VALIDATOR_IMAGE");
    out.pull_policy = context_.env_or("VALIDATOR_IMAGE_PULL_POLICY");
    for (const std::string& secret : split(context_.env_or("VALIDATOR_IMAGE_PULL_SECRETS"), ',')) {
      if (const auto name = trim(secret); !name.empty()) out.pull_secrets.emplace_back(name);
    }
    out.runtime_class = context_.env_or("VALIDATOR_RUNTIME_CLASS");
    return out;
  }

  void create() {
    const auto wanted = options();
    if (wanted.image.empty()) return fail_now();
    const Json pod = validate::workload_pod(which_, wanted, owner_, resource_);
    owner_ = nullptr;
    call_ = client_->create(kube::kPods, ns_, pod, {}, [this](kube::ApiResult<> made) {
      if (!made) return fail_now();
      watch(kube::kPods, ns_, std::string(kube::name_of(*made)), {"status.phase"}, kCudaLimit,
            [this](const Json& now) {
              const auto phase = get_string(now, {"status", "phase"});
              if (phase == "Succeeded") return pass();
              if (phase == "Failed") fail_now();
            });
    });
  }

  ProgramContext context_;
  std::string component_, node_, ns_, resource_;
  bool wait_ = false, workload_ = true, serving_ = false;
  int port_ = 0;
  Workload which_ = Workload::kCuda;
  Json owner_;
  std::vector<std::string> earlier_;
  std::unique_ptr<kube::Client> client_;
  std::unique_ptr<kube::Informer> watch_;
  std::vector<std::unique_ptr<kube::Informer>> old_;
  Handle changes_, call_, deadline_;
};

// Components one after the other, and then what the container is for (validate/sequence.h).
class Validations : public Program {
 public:
  explicit Validations(ProgramContext context) : context_(std::move(context)) {}
  ~Validations() override {
    if (!passed_file_.empty()) context_.machine.remove_gates(passed_file_);
  }

  void start() override {
    std::vector<std::string> words;
    auto word = context_.words.begin() + 1;
    for (; word != context_.words.end() && *word != "--"; ++word) {
      if (*word == "--tell")
        tell();
      else if (word->starts_with("--passed-file="))
        passed_file_ = word->substr(word->find('=') + 1);
      else if (word->starts_with("--gate-owner="))
        gate_owner_ = word->substr(word->find('=') + 1);
      else if (!word->starts_with("--"))
        words.push_back(*word);
    }
    if (word != context_.words.end()) program_.assign(word + 1, context_.words.end());
    auto steps = validate::parse_steps(words);
    if (!steps) return context_.exit(1);
    steps_ = std::move(*steps);
    take_gates();
  }
  void stopping() override {
    if (running_) running_->stopping();
    if (!gate_owner_.empty() && at_ < steps_.size())
      context_.machine.decide_gates(validate::release_gates(context_.machine.gate_owner(), context_.pod_uid));
  }

 private:
  void take_gates() {
    if (!gate_owner_.empty()) {
      const auto claim = validate::claim_gates(context_.machine.gate_owner(), context_.pod_uid);
      context_.machine.decide_gates(claim);
      if (!claim.mine) {
        changes_ = context_.machine.on_change([this] { take_gates(); });
        return;
      }
    }
    changes_.reset();
    next();
  }

  // The record of a pod: gone with a boot.
  std::string record(const std::string& component) const {
    return "passed/" + context_.pod_uid + "/" + context_.container + "/" + component;
  }

  void tell() {
    validate::ProgressOptions options;
    options.ns = context_.ns;
    options.pod = context_.pod;
    options.told = !context_.env_or("VALIDATION_TOLD").empty();
    progress_ =
        std::make_unique<validate::Progress>(context_.loop, options, [this]() -> Result<kube::Client*> {
          if (!client_) client_ = context_.world.client("nvidia-validator");
          return client_.get();
        });
  }

  void next() {
    while (at_ < steps_.size() && context_.machine.gate(record(steps_[at_].component)) &&
           context_.machine.gate(steps_[at_].component + "-ready"))
      ++at_;
    ProgramContext context = context_;
    if (at_ == steps_.size()) {
      if (progress_) progress_->passed();
      if (!passed_file_.empty()) context_.machine.open_gate(passed_file_);
      context.words = program_;
    } else {
      context.words = {"nvidia-validator"};
      for (const std::string& entry : steps_[at_].env) {
        const auto equals = entry.find('=');
        context.env[entry.substr(0, equals)] = entry.substr(equals + 1);
      }
      context.env[validate::kGateOwnerFile] = gate_owner_;
      context.env["COMPONENT"] = steps_[at_].component;
      if (progress_) {
        progress_->step(steps_[at_].component);
        context.waiting = [this](bool failing, const std::string& why) { progress_->waits(failing, why); };
      }
      context.exit = [this, alive = std::weak_ptr<bool>(alive_)](int code) {
        if (alive.expired()) return;
        context_.loop.post([this, alive, code] {
          if (!alive.expired()) ended(code);
        });
      };
    }
    auto made = make_program(std::move(context));
    if (!made) return context_.exit(127);
    running_ = std::move(*made);
    running_->start();
  }

  void ended(int code) {
    if (code != 0) return context_.exit(code);
    context_.machine.open_gate(record(steps_[at_].component));
    ++at_;
    next();
  }

  ProgramContext context_;
  std::string passed_file_, gate_owner_;
  std::vector<std::string> program_;
  std::vector<validate::Step> steps_;
  std::size_t at_ = 0;
  std::unique_ptr<kube::Client> client_;
  std::unique_ptr<validate::Progress> progress_;
  std::unique_ptr<Program> running_;
  Handle changes_;  // while another validator has the gates
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace

std::unique_ptr<Program> make_validations(ProgramContext context) {
  return std::make_unique<Validations>(std::move(context));
}

std::unique_ptr<Program> make_validator(ProgramContext context) {
  return std::make_unique<Validator>(std::move(context));
}

}  // namespace gpuop::cluster
