#include "cluster/kubelet/pod_worker.h"

#include <algorithm>
#include <set>

#include "base/log.h"
#include "base/text.h"
#include "cluster/kubelet/log_files.h"
#include "cluster/kubelet/pod_worker_inl.h"
#include "kube/object.h"

namespace gpuop::cluster {

namespace {

std::int64_t version_of(const Json& object) {
  return parse_int(get_string(object, {"metadata", "resourceVersion"})).value_or(0);
}

bool is_terminal(std::string_view phase) {
  return phase == "Succeeded" || phase == "Failed";
}

}  // namespace

std::shared_ptr<PodWorker> PodWorker::create(KubeletContext& context, std::shared_ptr<const Json> pod,
                                             const std::vector<ContainerInfo>& adopted,
                                             std::optional<int> sandbox, PodHooks hooks) {
  std::shared_ptr<PodWorker> worker(new PodWorker(context, std::move(pod), std::move(hooks)));
  worker->sandbox_ready_ = sandbox.has_value();
  worker->adopt(adopted);
  sandbox ? worker->find_past(*sandbox) : worker->lose_sandbox();
  worker->schedule_sync();
  return worker;
}

PodWorker::PodWorker(KubeletContext& context, std::shared_ptr<const Json> pod, PodHooks hooks)
    : context_(context),
      pod_(std::move(pod)),
      hooks_(std::move(hooks)),
      uid_(kube::uid_of(*pod_)),
      ns_(kube::namespace_of(*pod_)),
      name_(kube::name_of(*pod_)) {
  if (const Json* status = gpuop::find(*pod_, {"status"})) observed_ = *status;
  observed_version_ = version_of(*pod_);
  const auto begun = parse_time(get_string(observed_, {"startTime"}));
  start_time_ = begun ? *begun : context_.loop.now();
  for (std::string_view list : {"initContainers", "containers"}) {
    for (const Json& spec : get_array(*pod_, {"spec", list})) {
      auto container = std::make_unique<Container>();
      container->name = str(get_string(spec, {"name"}));
      if (list == "initContainers") {
        container->kind =
            get_string(spec, {"restartPolicy"}) == "Always" ? ContainerKind::kSidecar : ContainerKind::kInit;
      }
      containers_.push_back(std::move(container));
    }
  }
  // A pod that ended before the kubelet started is not run again.
  finished_ = is_terminal(get_string(observed_, {"phase"}));
}

PodWorker::~PodWorker() = default;

void PodWorker::adopt(const std::vector<ContainerInfo>& adopted) {
  for (const auto& container : containers_) {
    std::vector<ContainerInfo> attempts;
    for (const ContainerInfo& info : adopted) {
      // One that is only made is started again under its number, which the runtime takes as the same start.
      if (info.name == container->name && info.state != ContainerState::kCreated) attempts.push_back(info);
    }
    if (attempts.empty()) continue;
    std::ranges::sort(attempts, {}, &ContainerInfo::attempt);
    container->current = attempts.back();
    container->image_id = container->current->image_id;
    if (attempts.size() > 1) container->last = attempts[attempts.size() - 2];
    container->hook_done = true;
    for (const char* list : {"initContainerStatuses", "containerStatuses"}) {
      for (const Json& status : get_array(observed_, {list})) {
        if (get_string(status, {"containerID"}) !=
            context_.options.container_scheme + "://" + container->current->id)
          continue;
        container->was_started = get_bool(status, {"started"});
        container->was_ready = get_bool(status, {"ready"});
      }
    }
    if (is_running(*container)) {
      begin_probes(*container);
    } else if (container->current->state == ContainerState::kExited) {
      exited(*container);
    }
  }
}

PodWorker::Container* PodWorker::find(const std::string& name) {
  const auto found = std::ranges::find(containers_, name, [](const auto& c) { return c->name; });
  return found == containers_.end() ? nullptr : found->get();
}
const PodWorker::Container* PodWorker::find(const std::string& name) const {
  return const_cast<PodWorker*>(this)->find(name);
}

const Json& PodWorker::spec_of(const std::string& name) const {
  const Json* spec = find_container(*pod_, name);
  static const Json none;
  return spec != nullptr ? *spec : none;
}

bool PodWorker::is_running(const Container& container) const {
  return container.current && container.current->state == ContainerState::kRunning;
}

bool PodWorker::is_past(const Container& container) const {
  return container.current && container.current->attempt <= container.past;
}

std::string PodWorker::policy() const {
  return str(get_string(*pod_, {"spec", "restartPolicy"}, "Always"));
}

std::filesystem::path PodWorker::log_path(const std::string& container, int attempt) const {
  return context_.pod_log_dir(*pod_) / container / (std::to_string(attempt) + ".log");
}

std::filesystem::path PodWorker::termination_path(const std::string& container, int attempt) const {
  return context_.here(context_.pod_dir(uid_) / "containers" / container / std::to_string(attempt));
}

bool PodWorker::active() const {
  return !finished_ && !ended_ && !over_;
}

std::optional<int> PodWorker::log_attempt(const std::string& name, bool previous) const {
  const Container* container = find(name);
  if (container == nullptr) return std::nullopt;
  // A pod that ended before this kubelet started: its containers are gone, its status and its logs are not.
  if (!container->current && finished_ && !previous) {
    for (const char* list : {"initContainerStatuses", "containerStatuses"}) {
      for (const Json& status : get_array(observed_, {list})) {
        if (get_string(status, {"name"}) == name) return static_cast<int>(get_int(status, {"restartCount"}));
      }
    }
  }
  if (!container->current) return std::nullopt;
  if (!previous) return container->current->attempt;
  if (container->last) return container->last->attempt;
  // Between two attempts the ended one is the previous one.
  if (container->current->state == ContainerState::kExited && !container->waiting_reason.empty()) {
    return container->current->attempt;
  }
  return std::nullopt;
}

bool PodWorker::running(const std::string& name, int attempt) const {
  const Container* container = find(name);
  return container != nullptr && is_running(*container) && container->current->attempt == attempt;
}

std::optional<std::string> PodWorker::running_id(const std::string& name) const {
  const Container* container = find(name);
  if (container == nullptr || !is_running(*container)) return std::nullopt;
  return container->current->id;
}

void PodWorker::event(std::string_view type, std::string_view reason, const std::string& message) {
  context_.events.event(*pod_, type, reason, valid_utf8(message));
}

void PodWorker::schedule_sync() {
  if (std::exchange(sync_asked_, true)) return;
  context_.loop.post(safe([this] {
    sync_asked_ = false;
    sync();
  }));
}

void PodWorker::update(std::shared_ptr<const Json> pod) {
  pod_ = std::move(pod);
  if (version_of(*pod_) >= observed_version_) {
    observed_version_ = version_of(*pod_);
    const Json* status = gpuop::find(*pod_, {"status"});
    observed_ = status != nullptr ? *status : Json();
  }
  if (volumes_) volumes_->update(pod_);
  schedule_sync();
}

void PodWorker::removed_from_api() {
  api_gone_ = true;
  schedule_sync();
}

void PodWorker::poke() {
  if (stopped_ || over_) return;
  sandbox_timer_.reset();
  sandbox_backoff_.reset();
  end_timer_.reset();
  for (const auto& container : containers_) container->stop_timer.reset();
  schedule_sync();
}

void PodWorker::stop() {
  stopped_ = true;
  if (volumes_) volumes_->stop();
  for (const auto& container : containers_) {
    container->prober.reset();
    container->timer.reset();
    container->hook.reset();
    container->stop_timer.reset();
    container->watches.clear();
  }
  for (Handle* handle : {&sandbox_timer_, &deadline_timer_, &end_timer_, &patch_, &delete_, &patch_timer_}) {
    handle->reset();
  }
}

bool PodWorker::ending() const {
  return api_gone_ || has(*pod_, {"metadata", "deletionTimestamp"});
}

void PodWorker::sync() {
  if (stopped_ || over_) return;
  if (ending()) {
    sync_end();
  } else if (finished_) {
    sync_finished();
  } else {
    sync_run();
  }
  if (!over_) publish();
}

void PodWorker::admit() {
  if (std::exchange(admitting_, true)) return;
  std::set<std::string> running;
  for (const auto& container : containers_) {
    if (is_running(*container)) running.insert(container->name);
  }
  context_.devices.admit(*pod_, running, safe([this](const Result<>& how) {
    admitting_ = false;
    if (ending()) {
      context_.devices.release(uid_);
    } else if (!how) {
      const char* reason =
          how.error().code() == Code::kBusy ? "TopologyAffinityError" : "UnexpectedAdmissionError";
      event("Warning", reason, how.error().text());
      refuse(reason, "Pod was rejected: " + how.error().text());
    } else {
      admitted_ = true;
      hooks_.changed();
    }
    schedule_sync();
  }));
}

void PodWorker::refuse(std::string reason, std::string message) {
  failed_reason_ = std::move(reason);
  failed_message_ = std::move(message);
  finished_ = true;
}

void PodWorker::watch_deadline() {
  const std::int64_t seconds = get_int(*pod_, {"spec", "activeDeadlineSeconds"});
  if (seconds <= 0 || deadline_timer_) return;
  const Duration left = start_time_ + std::chrono::seconds(seconds) - context_.loop.now();
  deadline_timer_ = context_.loop.after(left, [this] {
    if (finished_ || ending()) return;
    refuse("DeadlineExceeded", "Pod was active on the node longer than the specified deadline");
    event("Normal", "DeadlineExceeded", failed_message_);
    schedule_sync();
  });
}

void PodWorker::sync_run() {
  watch_deadline();
  if (!admitted_) {
    admit();
    if (!admitted_) return;
  }
  if (!volumes_) {
    volumes_ = std::make_unique<PodVolumes>(context_, pod_, safe([this] { schedule_sync(); }));
    volumes_->start();
  }
  tell_mount_problems();
  if (!sandbox_ready_ && !sandbox_is_worth_it()) {
    finished_ = true;
    return schedule_sync();
  }
  ensure_sandbox();
  if (volumes_->ready() && sandbox_ready_) sync_containers();
}

void PodWorker::tell_mount_problems() {
  auto problems = volumes_->problems();
  for (const std::string& problem : problems) {
    if (std::ranges::find(told_problems_, problem) == told_problems_.end())
      event("Warning", "FailedMount", problem);
  }
  told_problems_ = std::move(problems);
}

void PodWorker::ensure_sandbox() {
  if (sandbox_ready_ || sandbox_busy_ || sandbox_timer_ || !context_.runtime_available) return;
  SandboxSpec spec;
  spec.uid = uid_;
  spec.ns = ns_;
  spec.name = name_;
  spec.hostname = str(get_string(*pod_, {"spec", "hostname"}, name_));
  if (get_bool(*pod_, {"spec", "hostNetwork"})) spec.hostname = context_.options.node_name;
  spec.host_pid = get_bool(*pod_, {"spec", "hostPID"});
  spec.share_pid = get_bool(*pod_, {"spec", "shareProcessNamespace"});
  for (const auto& item : get_object(*pod_, {"metadata", "annotations"})) {
    spec.annotations[str(item.key())] = str(as_text(item.value()));
  }
  for (const auto& item : get_object(*pod_, {"metadata", "labels"})) {
    spec.labels[str(item.key())] = str(as_text(item.value()));
  }
  if (const std::string_view name = get_string(*pod_, {"spec", "runtimeClassName"}); !name.empty()) {
    if (!context_.runtime_classes.synced()) return;  // its first list pokes every pod
    const auto found = context_.runtime_classes.get(name);
    if (!found) return sandbox_failed("RuntimeClass \"" + str(name) + "\" not found");
    spec.runtime_handler = str(get_string(*found, {"handler"}));
  }
  sandbox_busy_ = true;
  context_.runtime.run_sandbox(spec, safe([this](const Result<>& how) {
                                 sandbox_busy_ = false;
                                 if (how) {
                                   sandbox_ready_ = true;
                                   sandbox_backoff_.reset();
                                   told_sandbox_.clear();
                                 } else {
                                   sandbox_failed("rpc error: code = Unknown desc = " + how.error().text());
                                 }
                                 schedule_sync();
                               }));
}

// A reboot took the sandbox, or the end of the runtime's shims did: the pod begins anew, init containers
// first.
void PodWorker::lose_sandbox() {
  sandbox_ready_ = false;
  for (const auto& container : containers_) {
    if (!container->current) continue;
    sandbox_lost_ = true;
    container->past = container->current->attempt;
  }
}

// The kubelet before this one may have ended while the pod began anew: attempts that ran in an earlier
// sandbox do not count.
void PodWorker::find_past(int sandbox) {
  for (const auto& container : containers_) {
    if (!container->current || container->current->sandbox_attempt >= sandbox) continue;
    sandbox_lost_ = true;
    container->past = container->current->attempt;
  }
}

// As the kubelet decides whether a pod whose sandbox is gone gets another one.
bool PodWorker::sandbox_is_worth_it() const {
  if (!sandbox_lost_) return true;
  if (policy() == "Never") return false;
  return policy() != "OnFailure" || std::ranges::any_of(containers_, [](const auto& c) {
           return c->kind == ContainerKind::kApp &&
                  !(c->current && c->current->state == ContainerState::kExited && c->current->exit_code == 0);
         });
}

void PodWorker::sandbox_failed(const std::string& why) {
  if (why != told_sandbox_)
    event("Warning", "FailedCreatePodSandBox", "Failed to create pod sandbox: " + why);
  told_sandbox_ = why;
  sandbox_timer_ = context_.loop.after(sandbox_backoff_.next(), [this] {
    sandbox_timer_.reset();
    schedule_sync();
  });
}

// Whether the app containers may run: init containers one after another, sidecars in between as soon as they
// started.
bool PodWorker::sync_inits() {
  const bool began = std::ranges::any_of(containers_, [this](const auto& c) {
    return c->kind == ContainerKind::kApp && ((c->current && !is_past(*c)) || c->busy);
  });
  for (const auto& container : containers_) {
    if (container->kind == ContainerKind::kApp) break;
    if (container->kind == ContainerKind::kSidecar) {
      if (!is_running(*container)) try_start(*container);
      const bool up = is_running(*container) && container->prober && container->prober->started();
      if (!up && !began) return false;
      continue;
    }
    if (began) continue;
    const bool done = container->current && container->current->state == ContainerState::kExited &&
                      container->current->exit_code == 0 && !is_past(*container);
    if (done) continue;
    if (!is_running(*container)) {
      if (should_start(*container)) {
        try_start(*container);
      } else if (!container->busy) {
        finished_ = true;  // it failed and the policy says never: the pod failed
        schedule_sync();
      }
    }
    return false;
  }
  return true;
}

// A container that is to be stopped and still runs, or that runs another image than the pod now says.
void PodWorker::check_running(Container& container) {
  if (!is_running(container) || container.stopping) return;
  if (container.stop_grace) return stop_container(container, *container.stop_grace);
  if (container.current->image == get_string(spec_of(container.name), {"image"})) return;
  event("Normal", "Killing", "Container " + container.name + " definition changed, will be restarted");
  stop_container(container, grace_period());
}

void PodWorker::sync_containers() {
  for (const auto& container : containers_) check_running(*container);
  if (!sync_inits()) return;
  bool over = true;
  for (const auto& container : containers_) {
    if (container->kind != ContainerKind::kApp) continue;
    if (is_running(*container) || container->busy) {
      over = false;
    } else if (should_start(*container)) {
      over = false;
      try_start(*container);
    }
  }
  if (over) {
    finished_ = true;
    schedule_sync();
  }
}

PodFacts PodWorker::facts() const {
  PodFacts out{*pod_,
               observed_,
               {},
               context_.node.node_ip,
               context_.options.container_scheme,
               sandbox_ready_,
               ended_,
               failed_reason_,
               failed_message_,
               start_time_,
               context_.loop.now()};
  for (const auto& container : containers_) {
    ContainerFacts& c = out.containers.emplace_back();
    c.name = container->name;
    c.kind = container->kind;
    c.image = str(get_string(spec_of(container->name), {"image"}));
    c.image_id = container->image_id;
    c.current = container->current;
    c.last = container->last;
    c.termination_message = container->termination_message;
    c.last_termination_message = container->last_termination_message;
    c.waiting_reason = container->waiting_reason;
    c.waiting_message = container->waiting_message;
    c.past = is_past(*container) && !finished_ && !ending();
    if (container->prober && is_running(*container)) {
      c.started = container->hook_done && container->prober->started();
      c.ready = container->hook_done && container->prober->ready() && !(ending() && container->stopping);
    }
  }
  return out;
}

void PodWorker::publish() {
  if (api_gone_ || patching_ || patch_timer_) return;
  // A pod that had ended before this kubelet knew of it keeps the status that it has.
  const bool look_again = std::exchange(look_again_, false);
  if (!look_again && finished_ && failed_reason_.empty() && is_terminal(get_string(observed_, {"phase"})))
    return;
  Json desired = build_status(facts());
  // What the server acknowledged is not sent again, however it chose to store it.
  if (!look_again && desired == acknowledged_) return;
  Json patch = status_patch(observed_, desired);
  if (patch.get_object().empty()) return;
  patching_ = true;
  const Json body = JsonObject{{"metadata", JsonObject{{"uid", uid_}}}, {"status", std::move(patch)}};
  patch_ =
      context_.client.patch(kube::kPods, ns_, name_, kube::Patch::kStrategic, body, {.subresource = "status"},
                            safe([this, desired = std::move(desired)](kube::ApiResult<> answer) {
                              patch_done(desired, std::move(answer));
                            }));
}

void PodWorker::patch_done(const Json& sent, kube::ApiResult<> answer) {
  patching_ = false;
  patch_.reset();
  if (answer) {
    patch_backoff_.reset();
    acknowledged_ = sent;
    look_again_ = std::exchange(uncertain_, false);
    if (version_of(*answer) >= observed_version_) {
      observed_version_ = version_of(*answer);
      const Json* status = gpuop::find(*answer, {"status"});
      observed_ = status != nullptr ? *status : Json();
    }
  } else if (answer.error().not_found() || answer.error().conflict()) {
    // Gone, or another pod of that name: the informer will say so.
    patch_timer_ = context_.loop.after(std::chrono::seconds(10), [this] {
      patch_timer_.reset();
      schedule_sync();
    });
  } else {
    log::warn("cannot write a pod's status", {{"pod", ns_ + "/" + name_}, {"error", answer.error().message}});
    uncertain_ = true;
    patch_timer_ = context_.loop.after(patch_backoff_.next(), [this] {
      patch_timer_.reset();
      schedule_sync();
    });
  }
  schedule_sync();
}

}  // namespace gpuop::cluster
