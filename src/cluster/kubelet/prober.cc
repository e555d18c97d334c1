#include "cluster/kubelet/prober.h"

#include "base/text.h"

namespace gpuop::cluster {

namespace {

constexpr Duration kFirstEarly = std::chrono::milliseconds(100);
constexpr std::array<const char*, 3> kFields{"startupProbe", "livenessProbe", "readinessProbe"};
constexpr std::array<const char*, 3> kWords{"Startup", "Liveness", "Readiness"};

Duration seconds_of(const Json& spec, std::string_view key, std::int64_t fallback) {
  const std::int64_t value = get_int(spec, {key}, fallback);
  return std::chrono::seconds(value > 0 ? value : fallback);
}

// A port by number, or by the name of one of the container's ports; 0 when there is none.
int port_of(const Json& value, const Json& container) {
  if (value.is_int64()) return static_cast<int>(value.get_int64());
  if (value.is_uint64()) return static_cast<int>(value.get_uint64());
  const std::string_view name = as_text(value);
  for (const Json& port : get_array(container, {"ports"})) {
    if (get_string(port, {"name"}) == name) return static_cast<int>(get_int(port, {"containerPort"}));
  }
  return static_cast<int>(parse_int(name).value_or(0));
}

NetProbe net_probe_of(KubeletContext& context, const Json& action, const Json& container, Duration limit) {
  NetProbe probe;
  const Json* http = find(action, {"httpGet"});
  const Json& spec = http != nullptr ? *http : *find(action, {"tcpSocket"});
  probe.kind = http == nullptr                                     ? NetProbe::Kind::kTcp
               : to_lower(get_string(spec, {"scheme"})) == "https" ? NetProbe::Kind::kHttps
                                                                   : NetProbe::Kind::kHttp;
  probe.host = str(get_string(spec, {"host"}, context.node.node_ip));
  if (probe.host.empty()) probe.host = context.node.node_ip;
  if (const Json* port = find(spec, {"port"})) probe.port = port_of(*port, container);
  probe.path = str(get_string(spec, {"path"}, "/"));
  if (!probe.path.starts_with('/')) probe.path.insert(0, "/");
  for (const Json& header : get_array(spec, {"httpHeaders"})) {
    probe.headers.emplace_back(get_string(header, {"name"}), get_string(header, {"value"}));
  }
  probe.timeout = limit;
  return probe;
}

// A handle around a call that has none of its own: dropping it drops the answer.
template <class Start>
Handle guarded(Start start, std::function<void(Result<>)> done) {
  auto live = std::make_shared<std::function<void(Result<>)>>(std::move(done));
  start([weak = std::weak_ptr(live)](Result<> how) {
    if (const auto call = weak.lock()) {
      if (auto once = std::exchange(*call, nullptr)) once(std::move(how));
    }
  });
  return Handle([live] { *live = nullptr; });
}

std::string exec_failure(const ExitState& state) {
  const std::string text(trim(state.out + state.err));
  return "command exited with " + std::to_string(state.code) + (text.empty() ? "" : ": " + text);
}

}  // namespace

Handle run_action(KubeletContext& context, const Json& action, const Json& container, const std::string& id,
                  Duration limit, std::function<void(Result<>)> done) {
  if (const Json* exec = find(action, {"exec"})) {
    std::vector<std::string> argv;
    for (const Json& word : get_array(*exec, {"command"})) argv.emplace_back(as_text(word));
    return guarded(
        [&](const auto& answered) {
          context.runtime.exec(id, argv, limit, [answered, limit](Result<ExitState> state) {
            if (!state && state.error().code() == Code::kTimeout) {
              answered(fail(Code::kTimeout, "command timed out after " + format_go_duration(limit)));
            } else if (!state) {
              // The command could not be run: that says nothing about the container.
              answered(fail(Code::kCancelled, state.error().text()));
            } else if (!state->ok()) {
              answered(fail(Code::kUnavailable, exec_failure(*state)));
            } else {
              answered({});
            }
          });
        },
        std::move(done));
  }
  if (has(action, {"httpGet"}) || has(action, {"tcpSocket"})) {
    const NetProbe probe = net_probe_of(context, action, container, limit);
    if (context.net_probe) return context.net_probe(probe, std::move(done));
    return guarded([&](const auto& answered) { context.loop.post([answered] { answered({}); }); },
                   std::move(done));
  }
  if (const Json* sleep = find(action, {"sleep"})) {
    const Duration length = std::chrono::seconds(get_int(*sleep, {"seconds"}));
    return context.loop.after(std::min(length, limit), [done = std::move(done)] { done({}); });
  }
  return guarded(
      [&](const auto& answered) {
        context.loop.post([answered] {
          answered(
              fail(Code::kUnsupported, "only exec, httpGet, tcpSocket and sleep are offered by this node"));
        });
      },
      std::move(done));
}

Prober::Prober(KubeletContext& context, std::shared_ptr<const Json> pod, const Json& container,
               std::string id, Time started, bool was_started, bool was_ready, ProberEvents events)
    : context_(context),
      pod_(std::move(pod)),
      container_(container),
      id_(std::move(id)),
      started_at_(started),
      events_(std::move(events)) {
  for (int kind = kStartup; kind <= kReadiness; ++kind) {
    probes_[kind].spec = find(container_, {kFields[kind]});
    if (probes_[kind].spec != nullptr && !probes_[kind].spec->is_object()) probes_[kind].spec = nullptr;
  }
  probes_[kStartup].passed = probes_[kStartup].spec == nullptr || was_started;
  probes_[kLiveness].passed = true;
  probes_[kReadiness].passed = probes_[kReadiness].spec == nullptr || was_ready;
  probes_[kReadiness].ever = was_ready;
  if (!probes_[kStartup].passed) {
    const Duration since = context_.loop.now() - started_at_;
    activate(kStartup,
             std::chrono::seconds(get_int(*probes_[kStartup].spec, {"initialDelaySeconds"})) - since);
  } else {
    start_others();
  }
}

Prober::~Prober() = default;

bool Prober::started() const {
  return probes_[kStartup].passed;
}
bool Prober::ready() const {
  return started() && probes_[kReadiness].passed;
}

void Prober::start_others() {
  const Duration since = context_.loop.now() - started_at_;
  for (Kind kind : {kLiveness, kReadiness}) {
    if (probes_[kind].spec == nullptr) continue;
    activate(kind, std::chrono::seconds(get_int(*probes_[kind].spec, {"initialDelaySeconds"})) - since);
  }
}

void Prober::activate(Kind kind, Duration delay) {
  Probe& probe = probes_[kind];
  probe.active = true;
  probe.period = seconds_of(*probe.spec, "periodSeconds", 10);
  delay = std::max(delay, Duration::zero());
  probe.due = context_.loop.elapsed() + delay;
  // Liveness has nothing to gain from an early success.
  probe.next_early = kind == kLiveness || probe.ever ? Duration::zero() : kFirstEarly;
  probe.timer = context_.loop.after(delay, [this, kind] { run(kind, true); });
}

void Prober::run(Kind kind, bool counted) {
  Probe& probe = probes_[kind];
  probe.counted = counted;
  if (counted) probe.due += probe.period;
  const Duration limit = seconds_of(*probe.spec, "timeoutSeconds", 1);
  probe.running = run_action(context_, *probe.spec, container_, id_, limit,
                             [this, kind](Result<> how) { done(kind, std::move(how)); });
}

void Prober::schedule(Kind kind) {
  Probe& probe = probes_[kind];
  const Duration now = context_.loop.elapsed();
  if (probe.next_early > Duration::zero() && now + probe.next_early < probe.due) {
    probe.timer = context_.loop.after(probe.next_early, [this, kind] { run(kind, false); });
    probe.next_early *= 2;
    return;
  }
  probe.next_early = Duration::zero();
  // A try that outlived its period does not make up for the ones it missed.
  if (probe.due < now) probe.due = now;
  probe.timer = context_.loop.after(probe.due - now, [this, kind] { run(kind, true); });
}

void Prober::done(Kind kind, Result<> how) {
  Probe& probe = probes_[kind];
  probe.running.reset();
  std::weak_ptr<bool> alive = alive_;
  if (how) {
    probe.failures = 0;
    ++probe.successes;
    probe.ever = true;
    probe.next_early = Duration::zero();
    const auto threshold =
        kind == kReadiness ? std::max<std::int64_t>(get_int(*probe.spec, {"successThreshold"}, 1), 1) : 1;
    if (!probe.passed && probe.successes >= threshold) {
      probe.passed = true;
      if (kind == kStartup) {
        probe.active = false;
        start_others();
      }
      events_.changed();
      if (alive.expired()) return;
    }
    if (probe.active) schedule(kind);
    return;
  }
  if (!probe.counted) return schedule(kind);
  if (how.error().code() == Code::kCancelled) {
    events_.failed(kWords[kind], "errored", how.error().text());
    if (!alive.expired()) schedule(kind);
    return;
  }
  probe.successes = 0;
  ++probe.failures;
  events_.failed(kWords[kind], "failed", how.error().text());
  if (alive.expired()) return;
  const auto threshold = std::max<std::int64_t>(get_int(*probe.spec, {"failureThreshold"}, 3), 1);
  if (probe.failures >= threshold) {
    if (kind == kReadiness) {
      const bool before = std::exchange(probe.passed, false);
      if (before) events_.changed();
      if (alive.expired()) return;
    } else {
      probe.active = false;
      events_.restart(kWords[kind]);
      return;
    }
  }
  schedule(kind);
}

}  // namespace gpuop::cluster
