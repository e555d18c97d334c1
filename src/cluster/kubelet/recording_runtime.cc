#include "cluster/kubelet/recording_runtime.h"

#include <csignal>
#include <fstream>

#include "base/text.h"

namespace gpuop::cluster {

namespace {

std::string title(const ContainerInfo& info) {
  return info.pod_uid + "/" + info.name + "#" + std::to_string(info.attempt);
}

std::unexpected<Error> away() {
  return fail(Code::kUnavailable, "call the runtime: it is away");
}

}  // namespace

RecordingRuntime::RecordingRuntime(Loop& loop) : loop_(loop) {}
RecordingRuntime::~RecordingRuntime() {
  *alive_ = false;
}

void RecordingRuntime::later(std::function<void()> work) {
  loop_.post([alive = std::weak_ptr<bool>(alive_), work = std::move(work)] {
    if (!alive.expired()) work();
  });
}

void RecordingRuntime::note(std::string call) {
  if (record) calls.push_back(std::move(call));
}

std::vector<SandboxSpec> RecordingRuntime::sandboxes() const {
  std::vector<SandboxSpec> out;
  out.reserve(sandboxes_.size());
  for (const auto& [uid, spec] : sandboxes_) out.push_back(spec);
  return out;
}

const SandboxSpec* RecordingRuntime::sandbox(const std::string& pod_uid) const {
  const auto found = sandboxes_.find(pod_uid);
  return found == sandboxes_.end() ? nullptr : &found->second;
}

RecordingRuntime::Container* RecordingRuntime::by_id(const std::string& id) {
  auto found = containers_.find(id);
  return found == containers_.end() ? nullptr : found->second.get();
}

const ContainerInfo* RecordingRuntime::container(const std::string& pod_uid, const std::string& name) const {
  const ContainerInfo* best = nullptr;
  for (const auto& [id, container] : containers_) {
    const ContainerInfo& info = container->info;
    if (info.pod_uid != pod_uid || info.name != name) continue;
    if (best == nullptr || info.attempt > best->attempt) best = &info;
  }
  return best;
}

void RecordingRuntime::end(Container& container, int code, int signal) {
  if (container.info.state == ContainerState::kExited) return;
  container.life.reset();
  container.stopping.reset();
  container.info.state = ContainerState::kExited;
  container.info.exit_code = signal != 0 ? 128 + signal : code;
  container.info.signal = signal;
  container.info.reason = container.info.exit_code == 0 ? "Completed" : "Error";
  container.info.finished = loop_.now();
  container.info.pid = 0;
  if (on_end) on_end(container.info);
  if (!container.play.termination_text.empty() && !container.termination_log.empty()) {
    std::ofstream(container.termination_log) << container.play.termination_text;
  }
  auto waiting = std::exchange(container.stopped, {});
  later([this, info = container.info, waiting = std::move(waiting)] {
    if (changed_) changed_(info);
    for (const auto& done : waiting) done({});
  });
}

bool RecordingRuntime::exit(const std::string& pod_uid, const std::string& name, int code) {
  const ContainerInfo* info = container(pod_uid, name);
  return info != nullptr && exit_container(info->id, code);
}

bool RecordingRuntime::exit_container(const std::string& id, int code) {
  Container* container = by_id(id);
  if (container == nullptr || container->info.state != ContainerState::kRunning) return false;
  end(*container, code, 0);
  return true;
}

void RecordingRuntime::go_away() {
  away_ = true;
  later([this] {
    if (available_) available_(false);
  });
}

void RecordingRuntime::come_back(bool lose) {
  away_ = false;
  if (lose) {
    for (const auto& [id, container] : containers_) {
      if (container->info.state == ContainerState::kRunning && on_end) on_end(container->info);
    }
    containers_.clear();
    sandboxes_.clear();
  }
  later([this] {
    if (available_) available_(true);
  });
}

void RecordingRuntime::reboot() {
  sandboxes_.clear();
  for (auto& [id, container] : containers_) {
    if (container->info.state != ContainerState::kRunning) continue;
    end(*container, 255, 0);
    container->info.reason = "Unknown";
  }
}

void RecordingRuntime::version(Done<std::string> done) {
  later([this, done] {
    done(away_ ? Result<std::string>(away()) : Result<std::string>("containerd://2.1.0"));
  });
}

void RecordingRuntime::ensure_image(const std::string& image, bool pull, Done<std::string> done) {
  note("image " + image + (pull ? " pull" : ""));
  if (pull && on_pull) on_pull();
  if (pull && pull_takes > Duration::zero()) {
    // Nobody waits for a pull that outlives the runtime.
    loop_
        .after(pull_takes,
               [this, alive = std::weak_ptr<bool>(alive_), image, done] {
                 if (!alive.expired()) image_answer(image, true, done);
               })
        .detach();
    return;
  }
  later([this, image, pull, done] { image_answer(image, pull, done); });
}

void RecordingRuntime::image_answer(const std::string& image, bool pull, const Done<std::string>& done) {
  if (away_) return done(away());
  const std::string fault = image_fault ? image_fault(image, pull) : std::string();
  if (!fault.empty()) return done(fail(Code::kNotFound, fault));
  if (missing_images.contains(image) || (pull_all && !pull && !pulled_.contains(image))) {
    return done(fail(Code::kNotFound, "failed to resolve image '" + image + "': not found"));
  }
  pulled_.insert(image);
  done("sha256:" + sha256_hex(image));
}

void RecordingRuntime::run_sandbox(const SandboxSpec& spec, Done<void> done) {
  note("sandbox " + spec.uid);
  later([this, spec, done] {
    if (away_) return done(away());
    if (!handlers.contains(spec.runtime_handler)) {
      return done(fail(Code::kNotFound, "failed to get sandbox runtime: no runtime for \"" +
                                            spec.runtime_handler + "\" is configured"));
    }
    if (!sandboxes_.contains(spec.uid)) {
      SandboxSpec made = spec;
      made.attempt = made_sandboxes_[spec.uid]++;
      sandboxes_.emplace(spec.uid, std::move(made));
    }
    done({});
  });
}

void RecordingRuntime::remove_sandbox(const std::string& uid, Done<void> done) {
  note("remove-sandbox " + uid);
  later([this, uid, done] {
    if (away_) return done(away());
    for (auto& [id, container] : containers_) {
      if (container->info.pod_uid == uid) end(*container, 0, SIGKILL);
    }
    std::erase_if(containers_, [&](const auto& item) { return item.second->info.pod_uid == uid; });
    sandboxes_.erase(uid);
    made_sandboxes_.erase(uid);
    done({});
  });
}

void RecordingRuntime::start_container(const ContainerSpec& spec, Done<std::string> done) {
  later([this, spec, done] {
    if (away_) return done(away());
    for (const auto& [id, container] : containers_) {
      const ContainerInfo& info = container->info;
      if (info.pod_uid == spec.pod_uid && info.name == spec.name && info.attempt == spec.attempt)
        return done(id);
    }
    note("start " + spec.pod_uid + "/" + spec.name + "#" + std::to_string(spec.attempt));
    Play play = behave ? behave(spec) : Play{};
    if (play.refuses) return done(fail(*play.refuses));
    const auto sandbox = sandboxes_.find(spec.pod_uid);
    if (sandbox == sandboxes_.end()) return done(fail(Code::kUnknown, "the pod has no sandbox"));
    if (record) specs.push_back(spec);
    auto container = std::make_unique<Container>();
    ContainerInfo& info = container->info;
    info.id = sha256_hex(spec.pod_uid + spec.name + std::to_string(next_id_));
    info.pod_uid = spec.pod_uid;
    info.name = spec.name;
    info.attempt = spec.attempt;
    info.sandbox_attempt = sandbox->second.attempt;
    info.init = spec.init;
    info.image = spec.image;
    info.image_id = "sha256:" + sha256_hex(spec.image);
    info.state = ContainerState::kRunning;
    info.pid = static_cast<int>(100000 + next_id_++);
    info.started = loop_.now();
    container->play = play;
    container->termination_log = spec.termination_log;
    const std::string id = info.id;
    if (play.lives) {
      container->life = loop_.after(*play.lives, [this, id] {
        if (Container* found = by_id(id)) end(*found, found->play.exit_code, 0);
      });
    }
    later([this, copy = info] {
      if (changed_) changed_(copy);
    });
    const ContainerInfo started = info;
    containers_[id] = std::move(container);
    done(id);
    if (on_start) on_start(spec, started);
  });
}

void RecordingRuntime::stop_container(const std::string& id, Duration grace, Done<void> done) {
  Container* container = by_id(id);
  if (container != nullptr) {
    note("stop " + title(container->info) + " " + format_go_duration(grace));
  }
  later([this, id, grace, done] {
    if (away_) return done(away());
    Container* found = by_id(id);
    if (found == nullptr || found->info.state == ContainerState::kExited) return done({});
    found->stopped.push_back(done);
    const bool obeys = found->play.stops_after <= grace;
    found->stopping = loop_.after(obeys ? found->play.stops_after : grace, [this, id, obeys] {
      if (Container* ending = by_id(id)) end(*ending, ending->play.stop_code, obeys ? 0 : SIGKILL);
    });
  });
}

void RecordingRuntime::remove_container(const std::string& id, Done<void> done) {
  if (Container* container = by_id(id)) note("remove " + title(container->info));
  later([this, id, done] {
    if (away_) return done(away());
    containers_.erase(id);
    done({});
  });
}

void RecordingRuntime::exec(const std::string& id, const std::vector<std::string>& argv, Duration limit,
                            Done<ExitState> done) {
  if (Container* container = by_id(id)) note("exec " + title(container->info) + " " + join(argv, " "));
  later([this, id, argv, limit, done] {
    if (away_) return done(away());
    Container* found = by_id(id);
    if (found == nullptr || found->info.state != ContainerState::kRunning) {
      return done(fail(Code::kNotFound, "exec in container '" + id + "': it is not running"));
    }
    if (defer_exec && defer_exec(found->info, argv, limit, done)) return;
    done(on_exec ? on_exec(found->info, argv) : Result<ExitState>(ExitState{}));
  });
}

void RecordingRuntime::exec_stream(const std::string& id, const std::vector<std::string>&, ExecStreams,
                                   Done<ExitState> done) {
  later([id, done] {
    done(fail(Code::kUnsupported, "exec in container '" + id + "': this node runs no processes"));
  });
}

void RecordingRuntime::list(Done<std::vector<ContainerInfo>> done) {
  later([this, done] {
    if (away_) return done(away());
    std::vector<ContainerInfo> out;
    out.reserve(containers_.size());
    for (const auto& [id, container] : containers_) out.push_back(container->info);
    done(std::move(out));
  });
}

void RecordingRuntime::list_sandboxes(Done<std::vector<SandboxSpec>> done) {
  later([this, done] {
    if (away_) return done(away());
    done(sandboxes());
  });
}

void RecordingRuntime::on_change(std::function<void(const ContainerInfo&)> changed) {
  changed_ = std::move(changed);
}
void RecordingRuntime::on_available(std::function<void(bool)> available) {
  available_ = std::move(available);
}

}  // namespace gpuop::cluster
