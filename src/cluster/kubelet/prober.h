// The probes of one running container: startup holds the others off, liveness asks for a restart, readiness
// says whether the container may be used.
//
// Each probe runs when its initialDelaySeconds are over, and then every periodSeconds. Until the first
// success, tries in between (100 ms after the first, doubling) make a container ready as soon as it is, not a
// period later; they count as successes only, never as failures.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <string>

#include "cluster/kubelet/context.h"

namespace gpuop::cluster {

struct ProberEvents {
  std::function<void()> changed;  // started() or ready() changed
  // One try that went wrong: "failed", or "errored" when it could not be made (it does not count then).
  std::function<void(const std::string& kind, const std::string& how, const std::string& why)> failed;
  std::function<void(const std::string& kind)> restart;  // liveness or startup gave up
};

class Prober {
 public:
  // `was_started`, `was_ready`: what the pod's status said of this very container before (a kubelet restart).
  // Callbacks never come from within the constructor.
  Prober(KubeletContext& context, std::shared_ptr<const Json> pod, const Json& container, std::string id,
         Time started, bool was_started, bool was_ready, ProberEvents events);
  ~Prober();
  bool started() const;  // the startup probe succeeded, or there is none
  bool ready() const;    // the readiness probe succeeded, or there is none; and started

 private:
  enum Kind { kStartup, kLiveness, kReadiness };
  struct Probe {
    const Json* spec = nullptr;
    bool active = false;
    Duration period{};
    Duration next_early{};  // delay of the next early try; zero: none
    Duration due{};         // elapsed() of the next counted try
    int successes = 0, failures = 0;
    bool passed = false, ever = false;
    bool counted = true;  // the try under way
    Handle timer, running;
  };
  void activate(Kind kind, Duration delay);
  void run(Kind kind, bool counted);
  void done(Kind kind, Result<> how);
  void schedule(Kind kind);
  void start_others();

  KubeletContext& context_;
  std::shared_ptr<const Json> pod_;
  Json container_;
  std::string id_;
  Time started_at_;
  ProberEvents events_;
  std::array<Probe, 3> probes_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

// One action of a probe or lifecycle hook: exec, httpGet, tcpSocket or sleep. An error's text says why it
// failed.
Handle run_action(KubeletContext& context, const Json& action, const Json& container, const std::string& id,
                  Duration limit, std::function<void(Result<>)> done);

}  // namespace gpuop::cluster
