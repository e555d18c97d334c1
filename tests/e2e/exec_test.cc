// kubectl exec and cp with containers of a fleet. Needs tests/tools/fetch-kubectl's cache (or GPUOP_KUBECTL).
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <array>

#include "base/process.h"
#include "demo_fleet.h"

namespace gpuop {
namespace {

std::string kubectl_path() {
  std::string given = env_or("GPUOP_KUBECTL");
  if (!given.empty()) return given;
  return env_or("XDG_CACHE_HOME", env_or("HOME") + "/.cache") + "/gpu-operator/kubectl/kubectl";
}

class kubectl_exec : public DemoFleet {
 protected:
  ExitState kubectl(std::vector<std::string> words, std::string input = {}) {
    Command command;
    command.argv = {kubectl_path(), "--kubeconfig=" + fleet_->kubeconfig().string()};
    command.argv.insert(command.argv.end(), words.begin(), words.end());
    return run(std::move(command), std::move(input));
  }
  ExitState run(Command command, std::string input = {}) {
    command.env = {"HOME=" + dir_.path().string(), "PATH=/usr/bin:/bin", "TERM=xterm"};
    command.input = std::move(input);
    command.output_limit = 16u << 20;
    std::optional<ExitState> state;
    Handle running = run_command(loop_, std::move(command), 30s, [&](Result<ExitState> done) {
      state = done ? *done : ExitState{.code = -1, .err = done.error().text()};
    });
    loop_.run_until([&] { return state.has_value(); }, 40s);
    return state.value_or(ExitState{.code = -1});
  }
  void copy_both_ways(const std::string& pod);
  void on_a_terminal(const std::string& pod);
  void forward_a_port();
  std::string plugin_pod() const {
    std::string out;
    pods_->for_each([&](const auto& pod) {
      if (kube::name_of(*pod).find("device-plugin") != std::string_view::npos) out = kube::name_of(*pod);
    });
    return out;
  }
};

void kubectl_exec::copy_both_ways(const std::string& pod) {
  const fs::path here = dir_.path() / "copied";
  ASSERT_TRUE(make_dirs(here / "sub"));
  std::string bytes(3u << 20, '\0');
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 2654435761u >> 13);
  ASSERT_TRUE(write_file_atomic(here / "sub/big", bytes));
  ASSERT_TRUE(write_file_atomic(here / "small", "small\n"));
  const ExitState in = kubectl({"cp", here.string(), "gpu-operator/" + pod + ":/tmp/came"});
  ASSERT_EQ(in.code, 0) << in.err;
  const ExitState out =
      kubectl({"cp", "gpu-operator/" + pod + ":/tmp/came", (dir_.path() / "back").string()});
  ASSERT_EQ(out.code, 0) << out.err;
  EXPECT_TRUE(read_file(dir_.path() / "back/sub/big").value_or("") == bytes);
  EXPECT_EQ(read_file(dir_.path() / "back/small").value_or(""), "small\n");
}

// On a terminal of 100 columns and 33 rows, which the program in the container then has as well.
void kubectl_exec::on_a_terminal(const std::string& pod) {
  if (!file_exists("/usr/bin/script")) GTEST_SKIP() << "no script(1)";
  const std::string line = "stty cols 100 rows 33; " + kubectl_path() +
                           " --kubeconfig=" + fleet_->kubeconfig().string() + " exec -n gpu-operator -it " +
                           pod + " -- sh -c 'test -t 0 && test -t 2 && echo all; tty; " +
                           "until test \"$(stty size)\" = \"33 100\"; do :; done; stty size; exit 5'";
  const ExitState state = run({.argv = {"/usr/bin/script", "-qec", line, "/dev/null"}});
  EXPECT_EQ(state.code, 5) << state.out << state.err;
  // In between the terminal may echo what script(1) sends at the end of its own input.
  EXPECT_NE(state.out.find("all\r\n"), std::string::npos) << state.out;
  EXPECT_NE(state.out.find("/dev/pts/"), std::string::npos) << state.out;
  EXPECT_NE(state.out.find("33 100"), std::string::npos) << state.out;
}

// The exporter's metrics, through a port of this machine that kubectl chooses.
void kubectl_exec::forward_a_port() {
  Command command;
  command.argv = {kubectl_path(), "--kubeconfig=" + fleet_->kubeconfig().string(),
                  "port-forward", "-n",
                  "gpu-operator", "service/nvidia-dcgm-exporter",
                  ":9400"};
  command.env = {"HOME=" + dir_.path().string()};
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  Fd words(ends[0]), theirs(ends[1]);
  ::fcntl(words.get(), F_SETFL, O_NONBLOCK);
  bool gone = false;
  auto child = Child::spawn(loop_, command,
                            {.stdout_fd = theirs.get(), .stderr_fd = theirs.get(), .die_with_parent = true},
                            [&](const ExitState&) { gone = true; });
  ASSERT_TRUE(child) << child.error().text();
  theirs.reset();
  std::string said;
  Handle readable = loop_.on_readable(words.get(), [&] {
    std::array<char, 4096> text;
    const ssize_t n = ::read(words.get(), text.data(), text.size());
    if (n > 0) said.append(text.data(), static_cast<std::size_t>(n));
    if (n == 0) readable.reset();
  });
  ASSERT_TRUE(wait([&] { return gone || said.find(" -> 9400") != std::string::npos; }, 10s)) << said;
  const std::size_t colon = said.find(':');
  const std::string url =
      "http://127.0.0.1:" + said.substr(colon + 1, said.find(' ', colon) - colon - 1) + "/metrics";
  for (int i = 0; i < 3; ++i) {
    const ExitState got = run({.argv = {"/usr/bin/curl", "-sS", "--max-time", "10", url}});
    EXPECT_NE(got.out.find("DCGM_FI_DEV_GPU_UTIL"), std::string::npos) << said << got.err << got.out.size();
  }
  (*child)->kill(SIGTERM);
  EXPECT_TRUE(wait([&] { return gone; }, 10s));
}

TEST_F(kubectl_exec, daily_use) {
  if (!file_exists(kubectl_path())) GTEST_SKIP() << "no kubectl at " << kubectl_path();
  bring_up("nodes: [{name: gpu, gpus: {model: A100-SXM4-80GB, count: 1}, driver: preinstalled}]");
  if (HasFatalFailure()) return;
  const std::string pod = plugin_pod();
  ASSERT_FALSE(pod.empty());
  const auto exec = [&](std::vector<std::string> argv, std::string input = {}, bool in = false) {
    std::vector<std::string> words{"exec", "-n", "gpu-operator", pod};
    if (in) words.emplace_back("-i");
    words.emplace_back("--");
    words.insert(words.end(), argv.begin(), argv.end());
    return kubectl(words, std::move(input));
  };
  const ExitState good = exec({"true"});
  EXPECT_EQ(good.code, 0) << good.err;
  const ExitState seven = exec({"sh", "-c", "echo out; echo err >&2; exit 7"});
  EXPECT_EQ(seven.code, 7);
  EXPECT_EQ(seven.out, "out\n");
  EXPECT_NE(seven.err.find("err\n"), std::string::npos);
  EXPECT_NE(seven.err.find("command terminated with exit code 7"), std::string::npos) << seven.err;
  const ExitState absent = exec({"no-such-program"});
  EXPECT_EQ(absent.code, 127);
  EXPECT_NE(absent.err.find("\"no-such-program\": executable file not found in $PATH"), std::string::npos);
  EXPECT_EQ(exec({"cat"}, "through\n", true).out, "through\n");
  const ExitState lot = exec({"sh", "-c", "head -c 5000000 /dev/zero | tr '\\0' x"});
  EXPECT_EQ(lot.out.size(), 5000000u);
  std::string five(5u << 20, 'y');
  EXPECT_EQ(exec({"sh", "-c", "wc -c"}, five, true).out, std::to_string(five.size()) + "\n");
  // The container's own environment.
  EXPECT_EQ(exec({"sh", "-c", "echo $KUBERNETES_SERVICE_HOST"}).out, "127.0.0.1\n");
  EXPECT_EQ(kubectl({"exec", "-n", "gpu-operator", pod, "-c", "nope", "--", "true"}).err,
            "Error from server (BadRequest): container nope is not valid for pod " + pod + "\n");
  EXPECT_NE(kubectl({"exec", "-n", "gpu-operator", "nope", "--", "true"}).err.find("pods \"nope\" not found"),
            std::string::npos);
  copy_both_ways(pod);
  forward_a_port();
  on_a_terminal(pod);
}

}  // namespace
}  // namespace gpuop
