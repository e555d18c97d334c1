// How containers and pods end.
#include <algorithm>

#include "base/files.h"
#include "base/log.h"
#include "base/text.h"
#include "cluster/kubelet/log_files.h"
#include "cluster/kubelet/pod_worker_inl.h"
#include "cluster/kubelet/volume_files.h"
#include "kube/object.h"

namespace gpuop::cluster {

namespace {

constexpr Duration kFirstCrashDelay = std::chrono::seconds(10);
constexpr Duration kLongestCrashDelay = std::chrono::seconds(300);
constexpr Duration kGoodRun = std::chrono::minutes(10);
// A container always gets so much between SIGTERM and SIGKILL, whatever its hook used up.
constexpr Duration kLeastGrace = std::chrono::seconds(2);

}  // namespace

void PodWorker::exited(Container& container) {
  container.prober.reset();
  container.hook.reset();
  container.stopping = false;
  container.stop_grace.reset();
  container.stop_timer.reset();
  container.hook_done = true;
  container.termination_message = read_termination(container);
  container.waiting_reason.clear();
  container.waiting_message.clear();
  if (ending() || finished_ || !should_start(container)) return;
  const ContainerInfo& info = *container.current;
  if (info.finished - info.started >= kGoodRun) container.crash_delay = {};
  const Duration delay = container.crash_delay;
  container.crash_delay =
      delay == Duration::zero() ? kFirstCrashDelay : std::min(2 * delay, kLongestCrashDelay);
  container.not_before = info.finished + delay;
  container.timer.reset();
  if (delay == Duration::zero()) return;
  container.waiting_reason = "CrashLoopBackOff";
  container.waiting_message = "back-off " + format_go_duration(delay) +
                              " restarting failed container=" + container.name + " pod=" + name_ + "_" + ns_ +
                              "(" + uid_ + ")";
  event("Warning", "BackOff",
        "Back-off restarting failed container " + container.name + " in pod " + name_ + "_" + ns_ + "(" +
            uid_ + ")");
}

std::string PodWorker::read_termination(const Container& container) const {
  if (!context_.on_disk()) return {};
  const ContainerInfo& info = *container.current;
  std::string text = file_tail(termination_path(container.name, info.attempt), 4096);
  if (!text.empty()) return text;
  const bool from_log =
      get_string(spec_of(container.name), {"terminationMessagePolicy"}) == "FallbackToLogsOnError";
  if (!from_log || info.exit_code == 0) return {};
  return log_tail(log_path(container.name, info.attempt), 80, 2048);
}

// An attempt that no status shows any more: its container and its files go.
void PodWorker::drop_attempt(const ContainerInfo& info) {
  context_.runtime.remove_container(info.id, [](const Result<>&) {});
  if (!context_.on_disk()) return;
  for (const auto& path : {log_path(info.name, info.attempt), termination_path(info.name, info.attempt)}) {
    if (auto removed = remove_file(path); !removed) {
      log::warn("cannot remove a container's file", {{"error", removed.error()}});
    }
  }
}

Duration PodWorker::grace_period() const {
  std::int64_t seconds = get_int(*pod_, {"spec", "terminationGracePeriodSeconds"}, 30);
  if (has(*pod_, {"metadata", "deletionGracePeriodSeconds"})) {
    seconds = get_int(*pod_, {"metadata", "deletionGracePeriodSeconds"});
  }
  return std::chrono::seconds(std::max<std::int64_t>(seconds, 0));
}

void PodWorker::restart_for(Container& container, const std::string& kind) {
  if (!is_running(container) || container.stopping) return;
  event("Normal", "Killing",
        "Container " + container.name + " failed " + to_lower(kind) + " probe, will be restarted");
  const Json& spec = spec_of(container.name);
  const std::string field = kind == "Startup" ? "startupProbe" : "livenessProbe";
  Duration grace = grace_period();
  if (has(spec, {field, "terminationGracePeriodSeconds"})) {
    grace = std::chrono::seconds(get_int(spec, {field, "terminationGracePeriodSeconds"}));
  }
  stop_container(container, grace);
}

void PodWorker::stop_container(Container& container, Duration grace) {
  if (!is_running(container) || container.stop_timer || std::exchange(container.stopping, true)) return;
  container.stop_grace = grace;
  container.hook.reset();
  const Json* hook = gpuop::find(spec_of(container.name), {"lifecycle", "preStop"});
  if (hook == nullptr || !hook->is_object() || grace <= Duration::zero()) {
    return stop_now(container.name, grace);
  }
  const Time begun = context_.loop.now();
  auto after = [this, &container, grace, begun](const Result<>& how) {
    if (!how) {
      event("Warning", "FailedPreStopHook", "PreStopHook failed: " + how.error().text());
    }
    const Duration left = grace - (context_.loop.now() - begun);
    stop_now(container.name, std::max(left, std::min(grace, kLeastGrace)));
  };
  container.hook = run_action(context_, *hook, spec_of(container.name), container.current->id, grace, after);
}

void PodWorker::stop_now(const std::string& name, Duration grace) {
  const Container* container = find(name);
  if (container == nullptr || !is_running(*container)) return;
  context_.runtime.stop_container(
      container->current->id, grace, safe([this, name, id = container->current->id](const Result<>& how) {
        Container* stopped = find(name);
        if (stopped == nullptr || !stopped->current || stopped->current->id != id) return;
        if (!how) {
          log::warn("cannot stop a container", {{"container", id}, {"error", how.error()}});
          stopped->stopping = false;
          stopped->stop_timer = context_.loop.after(end_backoff_.next(), [this, stopped] {
            stopped->stop_timer.reset();
            schedule_sync();
          });
        }
        schedule_sync();
      }));
}

// Stops what runs, app containers first and sidecars after them, last one first. True when nothing runs or
// starts.
bool PodWorker::stop_all(Duration grace) {
  const Time now = context_.loop.now();
  if (!stop_grace_ || grace < *stop_grace_) {
    const bool shorter = stop_grace_.has_value();
    stop_grace_ = grace;
    stop_deadline_ = now + grace;
    if (shorter) {
      for (const auto& container : containers_) {
        if (container->stopping) stop_now(container->name, grace);
      }
    }
  }
  bool plain_runs = false, starting = false;
  for (const auto& container : containers_) {
    starting = starting || container->busy;
    container->timer.reset();
    if (container->kind == ContainerKind::kSidecar || !is_running(*container)) continue;
    plain_runs = true;
    if (!container->stop_grace) event("Normal", "Killing", "Stopping container " + container->name);
    stop_container(*container, grace);
  }
  if (plain_runs || starting) return false;
  for (auto it = containers_.rbegin(); it != containers_.rend(); ++it) {
    if (!is_running(**it)) continue;
    if (!(*it)->stop_grace) event("Normal", "Killing", "Stopping container " + (*it)->name);
    stop_container(**it, std::max(stop_deadline_ - now, std::min(grace, kLeastGrace)));
    return false;
  }
  return true;
}

void PodWorker::sync_finished() {
  const bool was_over =
      get_string(observed_, {"phase"}) == "Succeeded" || get_string(observed_, {"phase"}) == "Failed";
  if (!stop_all(grace_period())) return;
  ended_ = true;
  if (!std::exchange(released_, true)) {
    context_.devices.release(uid_);
    hooks_.changed();
  }
  if (volumes_) volumes_->stop();
  // The runtime forgets the containers with the sandbox: only once the API server knows how they ended.
  if (was_over && (sandbox_ready_ || sandbox_busy_)) remove_sandbox();
}

void PodWorker::sync_end() {
  for (const auto& container : containers_) {
    // A container that waited to be started again is shown as it ended.
    if (container->current && container->current->state == ContainerState::kExited)
      container->waiting_reason.clear();
  }
  if (!stop_all(grace_period())) return;
  if (!std::exchange(ended_, true) && volumes_) volumes_->stop();
  if (!std::exchange(released_, true)) {
    context_.devices.release(uid_);
    hooks_.changed();
  }
  const bool told =
      api_gone_ || (!patching_ && (build_status(facts()) == acknowledged_ ||
                                   status_patch(observed_, build_status(facts())).get_object().empty() ||
                                   (finished_ && failed_reason_.empty())));
  if (!told) return;  // publish() follows, and its answer brings us back
  if (!sandbox_removed_) return remove_sandbox();
  if (!std::exchange(files_removed_, true)) remove_files();
  if (!api_gone_) return delete_from_api();
  over_ = true;
  stop();
  context_.loop.post([gone = hooks_.gone, uid = uid_] { gone(uid); });
}

void PodWorker::remove_sandbox() {
  if (sandbox_removed_ || end_timer_ || std::exchange(sandbox_removing_, true)) return;
  context_.runtime.remove_sandbox(uid_, safe([this](const Result<>& how) {
                                    sandbox_removing_ = false;
                                    if (how) {
                                      sandbox_removed_ = true;
                                      sandbox_ready_ = false;
                                      end_backoff_.reset();
                                    } else {
                                      log::warn("cannot remove a pod's sandbox",
                                                {{"pod", ns_ + "/" + name_}, {"error", how.error()}});
                                      end_timer_ = context_.loop.after(end_backoff_.next(), [this] {
                                        end_timer_.reset();
                                        schedule_sync();
                                      });
                                    }
                                    schedule_sync();
                                  }));
}

void PodWorker::remove_files() {
  if (!context_.on_disk()) return;
  for (const auto& dir : {context_.here(context_.pod_dir(uid_)), context_.pod_log_dir(*pod_)}) {
    if (auto removed = remove_tree(dir); !removed) {
      log::warn("cannot remove a pod's files", {{"pod", ns_ + "/" + name_}, {"error", removed.error()}});
    }
  }
}

void PodWorker::delete_from_api() {
  if (end_timer_ || std::exchange(deleting_, true)) return;
  delete_ = context_.client.remove(
      kube::kPods, ns_, name_, {.propagation = {}, .grace_seconds = 0, .precondition_uid = uid_},
      safe([this](const kube::ApiResult<>& answer) {
        // Gone, or a finalizer holds it: the informer tells when it is gone. A conflict may be another pod of
        // its name, which the informer tells too, or mean nothing.
        if (answer || !(answer.error().unavailable() || answer.error().conflict())) {
          if (!answer && answer.error().not_found()) api_gone_ = true;
          return schedule_sync();
        }
        deleting_ = false;
        end_timer_ = context_.loop.after(end_backoff_.next(), [this] {
          end_timer_.reset();
          schedule_sync();
        });
      }));
}

void PodWorker::runtime_back(const std::vector<ContainerInfo>& containers, bool sandbox) {
  if (stopped_ || over_) return;
  for (const ContainerInfo& info : containers) container_changed(info);
  for (const auto& container : containers_) {
    if (!is_running(*container)) continue;
    const bool there = std::ranges::any_of(
        containers, [&](const ContainerInfo& info) { return info.id == container->current->id; });
    if (there) continue;
    ContainerInfo lost = *container->current;
    lost.state = ContainerState::kExited;
    lost.exit_code = 137;
    lost.reason = "ContainerStatusUnknown";
    lost.message = "The container could not be located when the runtime came back";
    lost.finished = context_.loop.now();
    container_changed(lost);
  }
  if (!sandbox && sandbox_ready_) lose_sandbox();
  for (const auto& container : containers_) container->start_backoff.reset();
  poke();
}

}  // namespace gpuop::cluster
