// A runtime that starts nothing and remembers everything: for tests and hollow nodes. Containers "run" as
// `behave` says, on the loop's clock.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cluster/runtime/runtime.h"

namespace gpuop::cluster {

class RecordingRuntime : public Runtime {
 public:
  // How one start goes.
  struct Play {
    std::optional<Error> refuses;   // start_container fails with it
    std::optional<Duration> lives;  // exits by itself after so long; none: runs until stopped
    int exit_code = 0;
    Duration stops_after{0};       // from SIGTERM to its end; longer than the grace: it is killed
    int stop_code = 0;             // exit code after SIGTERM
    std::string termination_text;  // written to the termination log
  };

  explicit RecordingRuntime(Loop& loop);
  ~RecordingRuntime() override;

  std::function<Play(const ContainerSpec&)> behave;
  std::function<Result<ExitState>(const ContainerInfo&, const std::vector<std::string>& argv)> on_exec;
  // Asked first: whether it takes the call, and answers it by `done` when it will.
  std::function<bool(const ContainerInfo&, const std::vector<std::string>& argv, Duration limit,
                     const Done<ExitState>& done)>
      defer_exec;
  std::set<std::string> handlers{"", "runc"};
  // Images that are neither here nor to be had; everything else is present, or pulled when `pull_all` is
  // false.
  std::set<std::string> missing_images;
  bool pull_all = false;   // every image has to be pulled once
  Duration pull_takes{0};  // of each pull
  // Why an image cannot be had now, beside `missing_images`; empty: it can.
  std::function<void()> on_pull;  // a pull begins
  std::function<std::string(const std::string& image, bool pull)> image_fault;
  // A container runs; it has ended, whatever ended it. For what "runs" in it.
  std::function<void(const ContainerSpec&, const ContainerInfo&)> on_start;
  std::function<void(const ContainerInfo&)> on_end;
  bool record = true;  // keep `calls` and `specs`; hollow nodes that live long do not

  // "sandbox UID", "image NAME", "start UID/NAME#ATTEMPT", "stop UID/NAME#ATTEMPT GRACE", "remove …", "exec
  // …", in order.
  std::vector<std::string> calls;
  std::vector<ContainerSpec> specs;  // of each start_container that was not refused
  std::vector<SandboxSpec> sandboxes() const;
  const SandboxSpec* sandbox(const std::string& pod_uid) const;  // null: there is none
  // Ends a running container now. False when there is none.
  bool exit(const std::string& pod_uid, const std::string& name, int code);
  bool exit_container(const std::string& id, int code);
  // The newest attempt of a container; nullptr when there is none.
  const ContainerInfo* container(const std::string& pod_uid, const std::string& name) const;
  // The runtime's process dies and comes back: containers end with 137 when `lose` says so.
  void go_away();
  void come_back(bool lose);
  // The node boots: containers are found as ended with 255, sandboxes are gone. Between two kubelets.
  void reboot();

  void version(Done<std::string> done) override;
  void ensure_image(const std::string& image, bool pull, Done<std::string> done) override;
  void run_sandbox(const SandboxSpec& spec, Done<void> done) override;
  void remove_sandbox(const std::string& uid, Done<void> done) override;
  void start_container(const ContainerSpec& spec, Done<std::string> done) override;
  void stop_container(const std::string& id, Duration grace, Done<void> done) override;
  void remove_container(const std::string& id, Done<void> done) override;
  void exec(const std::string& id, const std::vector<std::string>& argv, Duration limit,
            Done<ExitState> done) override;
  // kUnsupported: nothing runs here.
  void exec_stream(const std::string& id, const std::vector<std::string>& argv, ExecStreams streams,
                   Done<ExitState> done) override;
  void list(Done<std::vector<ContainerInfo>> done) override;
  void list_sandboxes(Done<std::vector<SandboxSpec>> done) override;
  void on_change(std::function<void(const ContainerInfo&)> changed) override;
  void on_available(std::function<void(bool)> available) override;

 private:
  struct Container {
    ContainerInfo info;
    Play play;
    std::string termination_log;
    Handle life, stopping;
    std::vector<Done<void>> stopped;
  };
  Container* by_id(const std::string& id);
  void end(Container& container, int code, int signal);
  void later(std::function<void()> work);
  void note(std::string call);
  void image_answer(const std::string& image, bool pull, const Done<std::string>& done);

  Loop& loop_;
  bool away_ = false;
  std::uint64_t next_id_ = 1;
  std::map<std::string, SandboxSpec> sandboxes_;
  std::map<std::string, int> made_sandboxes_;                     // how many, by uid
  std::map<std::string, std::unique_ptr<Container>> containers_;  // by id
  std::set<std::string> pulled_;
  std::function<void(const ContainerInfo&)> changed_;
  std::function<void(bool)> available_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace gpuop::cluster
