#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>

#include "base/inotify.h"
#include "base/text.h"
#include "cluster/runtime/node_runtime.h"
#include "cluster/runtime/remote_runtime.h"
#include "cluster/runtime/runtime_server.h"

namespace gpuop::cluster {
namespace {

bool enter_own_mounts() {
  static bool entered = ::geteuid() == 0 && ::unshare(CLONE_NEWNS) == 0 &&
                        ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
  return entered;
}

// A node's folders, with busybox for an image.
class node_runtime : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!enter_own_mounts()) FAIL() << "containers need root: run the tests as root";
    // As on a node: containers' upper layers and state lie on a tmpfs.
    ASSERT_EQ(::mount("node", at("").c_str(), "tmpfs", 0, nullptr), 0);
    for (const char* dir : {"image/bin", "cdi", "etc", "logs", "src"}) fs::create_directories(at(dir));
    fs::copy_file("/bin/busybox", at("image/bin/busybox"));
    for (const char* link :
         {"sh", "cat", "echo", "sleep", "env", "hostname", "ls", "kill", "stat", "touch"}) {
      fs::create_symlink("busybox", at("image/bin") + "/" + link);
    }
    config("");
    open();
  }
  void TearDown() override {
    if (!runtime_) return;
    bool gone = false;
    runtime_->remove_sandbox("pod-1", [&](Result<>) { gone = true; });
    loop_.run_until([&] { return gone; }, 10s);
    runtime_.reset();
    ::umount2(at("").c_str(), MNT_DETACH);
  }

  std::string pulls_;
  std::string at(std::string_view sub) const { return (dir_.path() / sub).string(); }
  void config(std::string_view more) {
    ASSERT_TRUE(
        write_file_atomic(at("etc/config.toml"),
                          "version = 3\n[plugins.\"io.containerd.cri.v1.runtime\"]\ncdi_spec_dirs = [\"" +
                              at("cdi") + "\"]\n" + std::string(more)));
  }
  void open() {
    NodeRuntimeOptions options;
    options.engine.state_dir = at("state");
    options.engine.run_dir = at("run");
    options.engine.config = at("etc/config.toml");
    options.pulls = pulls_;
    options.launcher = BUILD_ROOT "/bin/gpuop-runc";
    options.images.rows = {{"test/busybox:1", {at("image")}, {}, {"PATH=/bin"}}};
    runtime_.reset();
    auto made = NodeRuntime::create(loop_, options);
    ASSERT_TRUE(made) << made.error().text();
    runtime_ = std::move(*made);
    runtime_->on_change([this](const ContainerInfo& info) { seen_[info.name] = info; });
  }
  void sandbox(const std::string& handler = "", bool share_pid = false) {
    std::optional<Result<>> done;
    runtime_->run_sandbox({.uid = "pod-1",
                           .ns = "default",
                           .name = "pod",
                           .hostname = "pod",
                           .runtime_handler = handler,
                           .share_pid = share_pid},
                          [&](Result<> result) { done = std::move(result); });
    ASSERT_TRUE(done && *done) << (done ? done->error().text() : "");
  }
  ContainerSpec spec(const std::string& script, const std::string& name = "c") {
    ContainerSpec out;
    out.pod_uid = "pod-1";
    out.name = name;
    out.image = "test/busybox:1";
    out.command = {"sh", "-c", script};
    out.log_path = at("logs/" + name + ".log");
    return out;
  }
  Result<std::string> start(const ContainerSpec& spec) { return start(*runtime_, spec); }
  Result<std::string> start(Runtime& runtime, const ContainerSpec& spec) {
    std::optional<Result<std::string>> done;
    runtime.start_container(spec, [&](Result<std::string> result) { done = std::move(result); });
    loop_.run_until([&] { return done.has_value(); }, 10s);
    return done ? *done : Result<std::string>(fail(Code::kTimeout, "no answer"));
  }
  bool ended(const std::string& name = "c") {
    return loop_.run_until([&] { return seen_[name].state == ContainerState::kExited; }, 10s);
  }
  std::vector<ContainerInfo> list() {
    std::vector<ContainerInfo> out;
    runtime_->list([&](auto infos) { out = *infos; });
    return out;
  }
  std::string log(const std::string& name = "c") {
    std::string out;
    for (const std::string& line : split(read_file(at("logs/" + name + ".log")).value_or(""), '\n')) {
      if (line.size() > 31) out += line.substr(31) + "\n";
    }
    return out;
  }

  TempDir dir_{"runtime"};
  Loop loop_;
  std::unique_ptr<NodeRuntime> runtime_;
  std::map<std::string, ContainerInfo> seen_;
};

TEST_F(node_runtime, runs_a_container_to_its_end) {
  sandbox();
  auto id = start(spec("echo hello; exit 3"));
  ASSERT_TRUE(id) << id.error().text();
  EXPECT_EQ(id->size(), 64u);
  ASSERT_TRUE(ended());
  EXPECT_EQ(seen_["c"].exit_code, 3);
  EXPECT_EQ(seen_["c"].reason, "Error");
  EXPECT_GT(seen_["c"].finished.time_since_epoch().count(), 0);
  EXPECT_EQ(log(), "stdout F hello\n");
  EXPECT_EQ(list().size(), 1u);
}

TEST_F(node_runtime, starting_twice_is_starting_once) {
  sandbox();
  auto first = start(spec("sleep 1000")), second = start(spec("sleep 1000"));
  ASSERT_TRUE(first && second);
  EXPECT_EQ(*first, *second);
  EXPECT_EQ(list().size(), 1u);
}

TEST_F(node_runtime, refusals_are_the_kubelets_texts) {
  sandbox();
  auto text = [&](const ContainerSpec& s) {
    auto id = start(s);
    return id ? std::string("fine") : id.error().text();
  };
  ContainerSpec missing = spec("");
  missing.command = {"absent"};
  EXPECT_NE(text(missing).find("OCI runtime create failed"), std::string::npos);
  EXPECT_NE(text(missing).find("exec: \"absent\": executable file not found in $PATH"), std::string::npos);
  ContainerSpec none = spec("");
  none.command = {};
  EXPECT_NE(text(none).find("no command specified"), std::string::npos);
  ContainerSpec device = spec("");
  device.devices = {{"/dev/absent", "", ""}};
  EXPECT_NE(text(device).find("failed to stat device \"/dev/absent\""), std::string::npos);
  EXPECT_TRUE(list().empty()) << "what never ran is forgotten";
  Result<> unknown;
  runtime_->run_sandbox({.uid = "pod-2", .runtime_handler = "nvidia"},
                        [&](Result<> result) { unknown = result; });
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code(), Code::kNotFound);
  EXPECT_NE(unknown.error().text().find("no runtime for \"nvidia\" is configured"), std::string::npos);
}

TEST_F(node_runtime, cdi_files_are_obeyed_and_nothing_else_is_injected) {
  sandbox();
  ASSERT_TRUE(write_file_atomic(at("src/lib"), "driver\n"));
  ASSERT_TRUE(write_file_atomic(
      at("cdi/gpu.json"),
      R"({"cdiVersion":"0.5.0","kind":"nvidia.com/gpu","devices":[{"name":"0","containerEdits":{"env":["GPU=0"],)"
      R"("mounts":[{"hostPath":")" +
          at("src/lib") +
          R"(","containerPath":"/lib/x","options":["ro","rbind","rprivate"]}]}}],)"
          R"("containerEdits":{"hooks":[{"hookName":"createContainer","path":"/bin/busybox",)"
          R"("args":["sh","-c","echo hooked > hooked"],"env":["A=1"]}]}})"));
  ContainerSpec with = spec("echo $GPU; cat /lib/x /hooked");
  with.cdi_devices = {"nvidia.com/gpu=0"};
  ASSERT_TRUE(start(with));
  ASSERT_TRUE(ended());
  EXPECT_EQ(log(), "stdout F 0\nstdout F driver\nstdout F hooked\n");
  ASSERT_TRUE(start(spec("echo [$GPU]; ls /lib/x", "without")));
  ASSERT_TRUE(ended("without"));
  EXPECT_EQ(log("without").find("stdout F []\n"), 0u);
  ASSERT_TRUE(remove_file(at("cdi/gpu.json")));
  with.attempt = 1;
  auto gone = start(with);
  ASSERT_FALSE(gone);
  EXPECT_NE(
      gone.error().text().find("CDI device injection failed: unresolvable CDI devices nvidia.com/gpu=0"),
      std::string::npos)
      << gone.error().text();
}

TEST_F(node_runtime, a_handler_runs_its_own_binary_which_runs_the_launcher) {
  ASSERT_TRUE(write_file_atomic(at("src/nvidia-container-runtime"),
                                "#!/bin/busybox sh\necho \"$@\" >> " + at("src/calls") +
                                    "\nexec " BUILD_ROOT "/bin/gpuop-runc \"$@\"\n",
                                0755));
  config("[plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.nvidia.options]\nBinaryName = \"" +
         at("src/nvidia-container-runtime") +
         "\"\n[plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.gone.options]\nBinaryName = "
         "\"/absent/rt\"\n");
  open();
  sandbox("nvidia");
  auto id = start(spec("echo ran"));
  ASSERT_TRUE(id) << id.error().text();
  ASSERT_TRUE(ended());
  EXPECT_EQ(log(), "stdout F ran\n");
  std::string calls = read_file(at("src/calls")).value_or("");
  EXPECT_NE(calls.find(" create --bundle "), std::string::npos) << calls;
  EXPECT_NE(calls.find(" start "), std::string::npos);
  EXPECT_NE(calls.find(" delete "), std::string::npos);
  ContainerSpec broken = spec("");
  broken.attempt = 1;
  broken.command = {"absent"};
  auto refused = start(broken);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().text().find("executable file not found"), std::string::npos)
      << refused.error().text();
  runtime_->run_sandbox({.uid = "pod-2", .hostname = "x", .runtime_handler = "gone"}, [](Result<>) {});
  ContainerSpec other = spec("");
  other.pod_uid = "pod-2";
  refused = start(other);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().text().find("/absent/rt"), std::string::npos) << refused.error().text();
}

TEST_F(node_runtime, containers_survive_their_runtime) {
  sandbox();
  ASSERT_TRUE(start(spec("until [ -f /tmp/go ]; do sleep 0.02; done; exit 5")));
  ASSERT_TRUE(start(spec("sleep 1000", "other")));
  int pid = list().at(0).pid;
  runtime_.reset();
  seen_.clear();
  open();
  auto now = list();
  ASSERT_EQ(now.size(), 2u);
  EXPECT_TRUE(now[0].pid == pid || now[1].pid == pid);
  EXPECT_EQ(now[0].state, ContainerState::kRunning);
  // One that ends while a runtime watches that did not start it, and one that ends while none does.
  std::string root = "/proc/" + std::to_string(now[0].name == "c" ? now[0].pid : now[1].pid) + "/root";
  ASSERT_TRUE(make_dirs(root + "/tmp"));
  ASSERT_TRUE(write_file_atomic(root + "/tmp/go", ""));
  ASSERT_TRUE(ended());
  EXPECT_EQ(seen_["c"].exit_code, 5);
  int other = now[0].name == "other" ? now[0].pid : now[1].pid;
  std::string other_id = now[0].name == "other" ? now[0].id : now[1].id;
  runtime_.reset();
  ::kill(other, SIGKILL);
  std::string exit_file = at("run/io.containerd.runtime.v2.task/k8s.io/") + other_id + "/exit.json";
  ASSERT_TRUE(wait_for_file(loop_, exit_file, 10s));
  open();
  for (const ContainerInfo& info : list()) {
    EXPECT_EQ(info.state, ContainerState::kExited) << info.name;
    EXPECT_EQ(info.exit_code, info.name == "c" ? 5 : 137) << info.name;
  }
}

TEST_F(node_runtime, a_container_whose_shim_is_killed_goes_with_it) {
  // What the shim leaves comes to this process, so that its end can be waited for.
  ::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
  sandbox();
  auto id = start(spec("sleep 1000"));
  ASSERT_TRUE(id);
  int pid = list().at(0).pid;
  auto record = parse_json(read_file(at("state/containers/" + *id + ".json")).value_or(""));
  ASSERT_TRUE(record);
  ::kill(static_cast<pid_t>(get_int(*record, {"shimPid"})), SIGKILL);
  ASSERT_TRUE(ended());
  EXPECT_EQ(seen_["c"].exit_code, 255);
  int status = 0;
  EXPECT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFSIGNALED(status));
  ::prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0);
}

TEST_F(node_runtime, stop_gives_grace_and_then_kills) {
  sandbox();
  auto polite = start(spec("trap 'echo bye; exit 0' TERM; while :; do sleep 0.02; done"));
  auto deaf = start(spec("trap '' TERM; while :; do sleep 0.02; done", "deaf"));
  ASSERT_TRUE(polite && deaf);
  // The trap is set once the script runs.
  loop_.run_for(100ms);
  int stopped = 0;
  runtime_->stop_container(*polite, 5s, [&](Result<>) { ++stopped; });
  runtime_->stop_container(*deaf, 100ms, [&](Result<>) { ++stopped; });
  ASSERT_TRUE(loop_.run_until([&] { return stopped == 2; }, 10s));
  EXPECT_EQ(seen_["c"].exit_code, 0);
  EXPECT_EQ(log(), "stdout F bye\n");
  EXPECT_EQ(seen_["deaf"].exit_code, 137);
}

TEST_F(node_runtime, exec_runs_inside_within_its_limit) {
  sandbox();
  auto id = start(spec("sleep 1000"));
  ASSERT_TRUE(id);
  std::optional<Result<ExitState>> state;
  auto run = [&](const std::vector<std::string>& argv, Duration limit) {
    state.reset();
    runtime_->exec(*id, argv, limit, [&](Result<ExitState> result) { state = std::move(result); });
    loop_.run_until([&] { return state.has_value(); }, 10s);
  };
  run({"sh", "-c", "echo out; exit 2"}, 5s);
  ASSERT_TRUE(state && *state);
  EXPECT_EQ((*state)->code, 2);
  EXPECT_EQ((*state)->out, "out\n");
  run({"sleep", "1000"}, 50ms);
  ASSERT_TRUE(state && !*state);
  EXPECT_EQ(state->error().code(), Code::kTimeout);
}

TEST_F(node_runtime, a_shared_pid_namespace_is_the_pods) {
  sandbox("", true);
  ASSERT_TRUE(start(spec("sleep 1000", "a")));
  ASSERT_TRUE(start(spec("for p in /proc/[0-9]*; do cat $p/cmdline; echo; done", "b")));
  ASSERT_TRUE(ended("b"));
  EXPECT_NE(log("b").find("sleep"), std::string::npos) << log("b");
}

TEST_F(node_runtime, a_shared_pid_namespace_that_was_killed_is_made_anew) {
  sandbox("", true);
  ASSERT_TRUE(start(spec("sleep 1000", "a")));
  auto saved = parse_json(read_file(at("state/sandboxes/pod-1.json")).value_or(""));
  ASSERT_TRUE(saved);
  ::kill(static_cast<pid_t>(get_int(*saved, {"pausePid"})), SIGKILL);
  ASSERT_TRUE(ended("a"));
  EXPECT_EQ(seen_["a"].exit_code, 137);
  ContainerSpec again = spec("echo back", "a");
  again.attempt = 1;
  auto id = start(again);
  ASSERT_TRUE(id) << id.error().text();
  ASSERT_TRUE(loop_.run_until(
      [&] { return seen_["a"].attempt == 1 && seen_["a"].state == ContainerState::kExited; }, 10s));
  EXPECT_EQ(seen_["a"].exit_code, 0);
}

// The namespace's end lasts as long as somebody has not been reaped: here by a shim that is stopped.
TEST_F(node_runtime, a_shared_pid_namespace_that_is_ending_is_not_waited_for) {
  sandbox("", true);
  const auto first = start(spec("sleep 1000", "a"));
  ASSERT_TRUE(first);
  const auto saved = parse_json(read_file(at("state/sandboxes/pod-1.json")).value_or(""));
  const auto container = parse_json(read_file(at("state/containers/" + *first + ".json")).value_or(""));
  ASSERT_TRUE(saved && container);
  const auto shim = static_cast<pid_t>(get_int(*container, {"shimPid"}));
  const auto init = static_cast<pid_t>(get_int(*container, {"info", "pid"}));
  ASSERT_GT(shim, 1);
  ASSERT_GT(init, 1);
  bool dead = false;
  const auto watch = on_process_exit(loop_, init, [&] { dead = true; });
  ASSERT_TRUE(watch);
  ::kill(shim, SIGSTOP);
  ::kill(static_cast<pid_t>(get_int(*saved, {"pausePid"})), SIGKILL);
  EXPECT_TRUE(loop_.run_until([&] { return dead; }, 10s));
  const auto id = start(spec("echo new", "b"));
  ::kill(shim, SIGCONT);
  ASSERT_TRUE(id) << id.error().text();
  EXPECT_TRUE(ended("b"));
  EXPECT_EQ(seen_["b"].exit_code, 0);
  EXPECT_TRUE(ended("a"));
}

TEST_F(node_runtime, removing_leaves_nothing) {
  sandbox();
  ASSERT_TRUE(start(spec("sleep 1000")));
  bool gone = false;
  runtime_->remove_sandbox("pod-1", [&](Result<>) { gone = true; });
  ASSERT_TRUE(loop_.run_until([&] { return gone; }, 10s));
  EXPECT_TRUE(list().empty());
  for (const char* dir : {"state/containers", "state/sandboxes", "state/overlay", "run/runc/k8s.io",
                          "run/io.containerd.runtime.v2.task/k8s.io"}) {
    auto names = list_dir(at(dir));
    EXPECT_TRUE(!names || names->empty()) << dir << ": " << names->front();
  }
  EXPECT_EQ(read_file("/proc/self/mountinfo").value_or("").find(at("run")), std::string::npos);
}

TEST_F(node_runtime, a_remote_runtime_comes_back) {
  sandbox();
  auto server = RuntimeServer::create(loop_, at("run/c.sock"), *runtime_);
  ASSERT_TRUE(server) << server.error().text();
  auto remote = RemoteRuntime::create(loop_, at("run/c.sock"));
  ASSERT_TRUE(remote);
  std::vector<bool> up;
  (*remote)->on_available([&](bool is_up) { up.push_back(is_up); });
  ASSERT_TRUE(loop_.run_until([&] { return (*remote)->available(); }, 5s));
  (*remote)->on_change([this](const ContainerInfo& info) { seen_[info.name] = info; });
  auto id = start(**remote, spec("echo remote"));
  ASSERT_TRUE(id) << id.error().text();
  ASSERT_TRUE(ended());
  std::optional<std::vector<ContainerInfo>> infos;
  (*remote)->list([&](auto list) { infos = *list; });
  ASSERT_TRUE(loop_.run_until([&] { return infos.has_value(); }, 5s));
  EXPECT_EQ(infos->at(0).id, *id);
  std::optional<Result<std::string>> image;
  (*remote)->ensure_image("nvcr.io/x/y:1", true,
                          [&](Result<std::string> result) { image = std::move(result); });
  ASSERT_TRUE(loop_.run_until([&] { return image.has_value(); }, 5s));
  ASSERT_FALSE(*image);
  EXPECT_EQ(image->error().code(), Code::kNotFound);

  server->reset();
  ASSERT_TRUE(loop_.run_until([&] { return !(*remote)->available(); }, 5s));
  auto away = start(**remote, spec("echo x", "away"));
  ASSERT_FALSE(away);
  EXPECT_EQ(away.error().code(), Code::kUnavailable);
  server = RuntimeServer::create(loop_, at("run/c.sock"), *runtime_);
  ASSERT_TRUE(server);
  ASSERT_TRUE(loop_.run_until([&] { return (*remote)->available(); }, 5s));
  EXPECT_GE(up.size(), 3u);
  EXPECT_TRUE(up.back());
}

// Through the socket, as a kubelet does it.
TEST_F(node_runtime, a_program_with_streams_of_the_callers) {
  sandbox();
  const auto id = start(spec("sleep 1000"));
  ASSERT_TRUE(id) << id.error().text();
  auto server = RuntimeServer::create(loop_, at("run/rt.sock"), *runtime_);
  ASSERT_TRUE(server) << server.error().text();
  auto remote = *RemoteRuntime::create(loop_, at("run/rt.sock"));
  ASSERT_TRUE(loop_.run_until([&] { return remote->available(); }, 5s));
  const auto exec = [&](const std::string& container, const std::vector<std::string>& argv,
                        const std::string& input) {
    std::array<int, 2> in{}, out{};
    EXPECT_EQ(::pipe2(in.data(), O_CLOEXEC), 0);
    EXPECT_EQ(::pipe2(out.data(), O_CLOEXEC), 0);
    Fd feed(in[1]), seen(out[0]);
    ExecStreams streams;
    streams.in.reset(in[0]);
    streams.out.reset(out[1]);
    std::optional<Result<ExitState>> state;
    remote->exec_stream(container, argv, std::move(streams), [&](Result<ExitState> how) { state = how; });
    EXPECT_EQ(::write(feed.get(), input.data(), input.size()), static_cast<ssize_t>(input.size()));
    feed.reset();
    loop_.run_until([&] { return state.has_value(); }, 5s);
    Result<ExitState> how = state ? std::move(*state) : fail(Code::kTimeout, "no answer");
    if (how) how->out = read_fd(seen.get()).value_or("");
    return how;
  };
  const auto state = exec(*id, {"sh", "-c", "cat; hostname; exit 9"}, "given\n");
  ASSERT_TRUE(state) << state.error().text();
  EXPECT_EQ(state->out, "given\npod\n");
  EXPECT_EQ(state->code, 9);
  EXPECT_EQ(exec(*id, {"absent"}, "")->code, 127);
  const auto none = exec("none", {"true"}, "");
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code(), Code::kConflict);
}

TEST_F(node_runtime, a_program_on_a_terminal) {
  sandbox();
  const auto id = start(spec("sleep 1000"));
  ASSERT_TRUE(id) << id.error().text();
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
  Fd ours(ends[0]);
  ExecStreams streams;
  streams.console.reset(ends[1]);
  std::optional<Result<ExitState>> state;
  runtime_->exec_stream(*id, {"sh", "-c", "test -t 0 && test -t 1 && test -t 2 && echo $TERM; exit 4"},
                        std::move(streams), [&](Result<ExitState> how) { state = std::move(how); });
  ASSERT_TRUE(loop_.run_until([&] { return state.has_value(); }, 5s));
  ASSERT_TRUE(*state) << state->error().text();
  EXPECT_EQ((*state)->code, 4);
  char byte = 0;
  iovec data{&byte, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ASSERT_EQ(::recvmsg(ours.get(), &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT), 1);
  ASSERT_NE(CMSG_FIRSTHDR(&message), nullptr);
  int master = -1;
  std::memcpy(&master, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof master);
  Fd terminal(master);
  std::array<char, 64> text{};
  const ssize_t n = ::read(terminal.get(), text.data(), text.size());
  ASSERT_GT(n, 0);
  EXPECT_EQ(std::string(text.data(), static_cast<std::size_t>(n)), "xterm\r\n");
}

}  // namespace
}  // namespace gpuop::cluster
