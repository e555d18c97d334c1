// One pod's life on this node: admission, volumes, sandbox, containers in their order, probes, restarts, the
// end, and the status that tells of it.
//
// Everything that happens (a new version of the pod, a container's change, a probe, a timer) only marks a
// fact and asks for sync(); sync() looks at all facts, starts what is missing and publishes the status.
// Nothing in here waits for a period of time that Kubernetes does not prescribe.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cluster/kubelet/context.h"
#include "cluster/kubelet/pod_status.h"
#include "cluster/kubelet/pod_volumes.h"
#include "cluster/kubelet/prober.h"

namespace gpuop::cluster {

struct PodHooks {
  std::function<void(const std::string& uid)> gone;  // nothing is left of the pod, here and in the API
  std::function<void()> changed;                     // what pod-resources shows may have changed
};

class PodWorker : public std::enable_shared_from_this<PodWorker> {
 public:
  // `adopted`: the pod's containers as the runtime has them. `sandbox`: attempt of the one that it has.
  static std::shared_ptr<PodWorker> create(KubeletContext& context, std::shared_ptr<const Json> pod,
                                           const std::vector<ContainerInfo>& adopted,
                                           std::optional<int> sandbox, PodHooks hooks);
  ~PodWorker();

  void update(std::shared_ptr<const Json> pod);
  void removed_from_api();
  void container_changed(const ContainerInfo& info);
  // The runtime came back: what it has of this pod now.
  void runtime_back(const std::vector<ContainerInfo>& containers, bool sandbox);
  // Something outside changed that a waiting step may wait for.
  void poke();
  // The kubelet stops: nothing is done any more, everything stays.
  void stop();

  const Json& pod() const { return *pod_; }
  // Neither ended nor about to: what pod-resources lists.
  bool active() const;
  // The attempt whose log is asked for; nullopt: there is none. And whether more may come to it.
  std::optional<int> log_attempt(const std::string& container, bool previous) const;
  bool running(const std::string& container, int attempt) const;
  // In the runtime; nullopt when it does not run.
  std::optional<std::string> running_id(const std::string& container) const;

 private:
  struct Container {
    std::string name;
    ContainerKind kind = ContainerKind::kApp;
    std::optional<ContainerInfo> current, last;
    std::string termination_message, last_termination_message;
    std::string image_id;
    std::string waiting_reason, waiting_message;
    bool busy = false;                   // a start is under way
    bool stopping = false;               // a stop was asked for
    std::optional<Duration> stop_grace;  // of the stop that is wanted, until the container has ended
    bool hook_done = false;              // postStart is over
    int past = -1;                       // attempts up to this one were in a sandbox that is gone
    Time not_before{};                   // no start before
    Duration crash_delay{};              // the next delay after a crash; zero: at once
    Backoff start_backoff{std::chrono::milliseconds(250), std::chrono::seconds(10)};
    Backoff image_backoff{std::chrono::seconds(10), std::chrono::seconds(300)};
    Duration pull_began{};
    Handle timer, hook, stop_timer;
    std::map<std::string, std::string> env;  // of the start under way
    std::vector<Handle> watches;             // of ConfigMaps and Secrets that env refers to
    bool watching = false;
    std::unique_ptr<Prober> prober;
    bool was_started = false, was_ready = false;  // from before a restart of the kubelet
  };

  PodWorker(KubeletContext& context, std::shared_ptr<const Json> pod, PodHooks hooks);
  void adopt(const std::vector<ContainerInfo>& containers);

  // pod_worker.cc: what to do next
  void schedule_sync();
  void sync();
  void sync_run();
  void sync_containers();
  void check_running(Container& container);
  bool sync_inits();
  bool ending() const;
  void admit();
  void refuse(std::string reason, std::string message);
  void ensure_sandbox();
  void lose_sandbox();
  void find_past(int sandbox);
  bool sandbox_is_worth_it() const;
  void sandbox_failed(const std::string& why);
  void watch_deadline();
  void tell_mount_problems();
  void publish();
  void patch_done(const Json& sent, kube::ApiResult<> answer);
  PodFacts facts() const;
  void event(std::string_view type, std::string_view reason, const std::string& message);

  // pod_start.cc: one container's start
  bool should_start(const Container& container) const;
  void try_start(Container& container);
  void begin_start(Container& container);
  void start_image(Container& container, const Json& spec);
  void image_answered(Container& container, const std::string& image, bool pulled, Result<std::string> id);
  void pull(Container& container, const std::string& image);
  void start_devices(Container& container);
  void start_run(Container& container);
  Result<ContainerSpec> container_spec(const Container& container, const Json& spec);
  void add_devices(ContainerSpec& out) const;
  Result<> add_hosts_file(ContainerSpec& out, const Json& spec);
  void start_answered(Container& container, const ContainerSpec& spec, Result<std::string> id);
  void started(Container& container);
  void begin_probes(Container& container);
  void start_failed(Container& container, const std::string& reason, const std::string& message,
                    Duration delay);
  std::map<std::string, std::string> device_env(const std::string& container) const;

  // pod_end.cc: exits and the end
  void exited(Container& container);
  std::string read_termination(const Container& container) const;
  void drop_attempt(const ContainerInfo& info);
  void stop_container(Container& container, Duration grace);
  void stop_now(const std::string& name, Duration grace);
  bool stop_all(Duration grace);
  void restart_for(Container& container, const std::string& kind);
  Duration grace_period() const;
  void sync_end();
  void sync_finished();
  void remove_sandbox();
  void remove_files();
  void delete_from_api();

  Container* find(const std::string& name);
  const Container* find(const std::string& name) const;
  const Json& spec_of(const std::string& name) const;
  bool is_running(const Container& container) const;
  bool is_past(const Container& container) const;
  std::string policy() const;
  std::filesystem::path log_path(const std::string& container, int attempt) const;
  std::filesystem::path termination_path(const std::string& container, int attempt) const;
  template <class F>
  auto safe(F callback);

  KubeletContext& context_;
  std::shared_ptr<const Json> pod_;
  PodHooks hooks_;
  std::string uid_, ns_, name_;
  Json observed_;  // status as the API server has it
  std::int64_t observed_version_ = 0;
  Json acknowledged_;                                   // the status that was last written
  std::vector<std::unique_ptr<Container>> containers_;  // in the order of the spec, init containers first
  std::unique_ptr<PodVolumes> volumes_;
  std::vector<std::string> told_problems_;
  Time start_time_{};
  bool admitted_ = false, admitting_ = false;
  bool sandbox_ready_ = false, sandbox_busy_ = false;
  bool sandbox_lost_ = false;  // the pod had one, and containers in it
  std::string told_sandbox_;
  Backoff sandbox_backoff_{std::chrono::milliseconds(250), std::chrono::seconds(10)};
  Handle sandbox_timer_, deadline_timer_;
  std::string failed_reason_, failed_message_;
  bool finished_ = false;  // will not run any more; not deleted
  bool ended_ = false;     // nothing runs any more
  bool api_gone_ = false, over_ = false, stopped_ = false;
  std::optional<Duration> stop_grace_;  // of the stop under way
  Time stop_deadline_{};
  bool sandbox_removing_ = false, sandbox_removed_ = false, files_removed_ = false, released_ = false;
  bool deleting_ = false;
  Backoff end_backoff_{std::chrono::milliseconds(250), std::chrono::seconds(10)};
  Handle end_timer_;
  bool sync_asked_ = false;
  bool patching_ = false;
  bool uncertain_ = false;   // a write failed, and may have come through all the same
  bool look_again_ = false;  // what is there is to be compared anew
  Handle patch_, delete_, patch_timer_;
  Backoff patch_backoff_{std::chrono::milliseconds(250), std::chrono::seconds(10)};
};

}  // namespace gpuop::cluster
