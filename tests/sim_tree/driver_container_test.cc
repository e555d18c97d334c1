// The played driver container in a container's surroundings: a root of its own, /run/nvidia shared with the
// node.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>

#include "driver_root.h"
#include "sim/state/contexts.h"

namespace gpuop::sim {
namespace {

// What a process printed and how it ended.
struct Ended {
  int code = -1;
  std::string output;
};

class Container {
 public:
  Container() {
    NodeHardware hw;
    hw.model = "H200";
    hw.count = 2;
    hw.profiles = built_sim() / "profiles";
    EXPECT_TRUE(build_node_tree(hw, kernel()));
    for (const char* d : {"usr/bin", "usr/lib/gpuop-sim", "run/nvidia", "proc", "dev", "sys", "tmp", "etc",
                          ".gpuop-kernel", "lib64", "lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu"}) {
      fs::create_directories(root() / d);
    }
    fs::create_directories(node_run());
    // The root is a mount of its own, and /run/nvidia one that the node shares.
    bind(root(), root());
    bind(node_run(), node_run());
    EXPECT_EQ(::mount(nullptr, node_run().c_str(), nullptr, MS_SHARED, nullptr), 0);
    bind(node_run(), root() / "run/nvidia");
    bind(kernel(), root() / ".gpuop-kernel");
    bind(kernel() / "sys", root() / "sys");
    bind(built_sim(), root() / "usr/lib/gpuop-sim");
    for (const char* lib : {"/lib64/ld-linux-x86-64.so.2", "/lib/x86_64-linux-gnu/libc.so.6",
                            "/lib/x86_64-linux-gnu/libm.so.6", "/lib/x86_64-linux-gnu/libdl.so.2"}) {
      fs::copy_file(lib, root() / (lib + 1));
    }
  }
  ~Container() {
    for (const auto& path : mounted_) ::umount2(path.c_str(), MNT_DETACH);
  }

  fs::path kernel() const { return dir_.path() / "kernel"; }
  fs::path root() const { return dir_.path() / "root"; }
  fs::path node_run() const { return dir_.path() / "node-run-nvidia"; }

  // Starts `nvidia-driver init` and waits for a line that contains `until`.
  pid_t start(const std::string& until, std::string* output, const std::string& digest = "") {
    int out[2];
    EXPECT_EQ(::pipe2(out, O_CLOEXEC), 0);
    pid_t pid = ::fork();
    if (pid == 0) {
      ::dup2(out[1], 1);
      ::dup2(out[1], 2);
      std::string text = "DRIVER_CONFIG_DIGEST=" + digest;
      char* argv[] = {const_cast<char*>("nvidia-driver"), const_cast<char*>("init"), nullptr};
      char* env[] = {const_cast<char*>("DRIVER_VERSION=580.82.07"),
                     const_cast<char*>("GPUOP_KERNEL_ROOT=/.gpuop-kernel"), text.data(), nullptr};
      if (::chroot(root().c_str()) == 0 && ::chdir("/") == 0) {
        ::execve("/usr/lib/gpuop-sim/bin/nvidia-driver", argv, env);
      }
      ::_exit(126);
    }
    ::close(out[1]);
    reader_ = Fd(out[0]);
    read_until(until, output);
    return pid;
  }

  void read_until(const std::string& until, std::string* output) {
    char c;
    while (output->find(until) == std::string::npos && ::read(reader_.get(), &c, 1) == 1) *output += c;
  }

  static int wait(pid_t pid) {
    int status = 0;
    ::waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  // A program in the driver root, as the node sees it.
  Ended in_driver_root(const std::vector<std::string>& argv) const {
    int out[2];
    EXPECT_EQ(::pipe2(out, O_CLOEXEC), 0);
    pid_t pid = ::fork();
    if (pid == 0) {
      ::dup2(out[1], 1);
      std::vector<char*> args;
      for (const auto& a : argv) args.push_back(const_cast<char*>(a.c_str()));
      args.push_back(nullptr);
      char* env[] = {nullptr};
      ::unsetenv("GPUOP_SIM_DEV");
      if (::chroot((node_run() / "driver").c_str()) == 0 && ::chdir("/") == 0)
        ::execve(args[0], args.data(), env);
      ::_exit(126);
    }
    ::close(out[1]);
    Ended e;
    char buffer[1024];
    for (ssize_t n; (n = ::read(out[0], buffer, sizeof buffer)) > 0;)
      e.output.append(buffer, static_cast<std::size_t>(n));
    ::close(out[0]);
    e.code = wait(pid);
    return e;
  }

 private:
  void bind(const fs::path& from, const fs::path& to) {
    ASSERT_EQ(::mount(from.c_str(), to.c_str(), nullptr, MS_BIND | MS_REC, nullptr), 0) << to;
    mounted_.insert(mounted_.begin(), to);
  }
  TempDir dir_{fast_prefix()};
  std::vector<fs::path> mounted_;
  Fd reader_;
};

// Programs that are built with sanitizers are not static, so they do not run in a bare root.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#elif defined(__has_feature)
constexpr bool kSanitized = __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
constexpr bool kSanitized = false;
#endif

bool own_mounts() {
  return !kSanitized && ::unshare(CLONE_NEWNS) == 0 &&
         ::mount(nullptr, "/", nullptr, MS_PRIVATE | MS_REC, nullptr) == 0;
}

TEST(sim_tree, driver_container_comes_up_serves_and_goes) {
  if (::geteuid() != 0 || !own_mounts()) GTEST_SKIP() << "needs root, and static programs";
  Container c;
  std::string output;
  pid_t pid = c.start("now waiting for signal", &output);
  ASSERT_NE(output.find("now waiting for signal"), std::string::npos) << output;
  EXPECT_EQ(*read_file(c.node_run() / "validations/.driver-daemons-status"), "Ready");
  EXPECT_EQ(*read_file(c.node_run() / "nvidia-driver.pid"), std::to_string(pid) + "\n");
  EXPECT_TRUE(module_loaded(c.kernel(), "nvidia-modeset"));
  EXPECT_EQ(*read_file(c.kernel() / "sys/module/firmware_class/parameters/path"),
            "/run/nvidia/driver/lib/firmware");
  struct stat node{};
  ASSERT_EQ(::stat((c.node_run() / "driver/dev/nvidia1").c_str(), &node), 0);
  EXPECT_TRUE(S_ISCHR(node.st_mode));
  Ended smi = c.in_driver_root(
      {"/usr/bin/nvidia-smi", "--query-gpu=index,name,driver_version", "--format=csv,noheader"});
  EXPECT_EQ(smi.code, 0);
  EXPECT_EQ(smi.output, "0, NVIDIA H200, 580.82.07\n1, NVIDIA H200, 580.82.07\n");
  // A second one finds the first.
  std::string second;
  EXPECT_EQ(Container::wait(c.start("already running", &second)), 1);
  EXPECT_NE(second.find("already running"), std::string::npos);

  ::kill(pid, SIGTERM);
  EXPECT_EQ(Container::wait(pid), 0);
  EXPECT_FALSE(module_loaded(c.kernel(), "nvidia"));
  EXPECT_FALSE(file_exists(c.node_run() / "driver/usr"));
  EXPECT_FALSE(file_exists(c.node_run() / "nvidia-driver.pid"));
  EXPECT_FALSE(file_exists(c.kernel() / "proc/driver/nvidia/version"));
}

TEST(sim_tree, driver_container_takes_the_fast_path_and_stays_while_in_use) {
  if (::geteuid() != 0 || !own_mounts()) GTEST_SKIP() << "needs root, and static programs";
  Container c;
  std::string output;
  pid_t pid = c.start("now waiting for signal", &output, "digest-1");
  EXPECT_EQ(*read_file(c.node_run() / "nvidia-driver.state"), "digest-1\n");
  ::kill(pid, SIGKILL);
  Container::wait(pid);
  ASSERT_TRUE(module_loaded(c.kernel(), "nvidia"));
  output.clear();
  pid = c.start("now waiting for signal", &output, "digest-1");
  EXPECT_NE(output.find("userspace only"), std::string::npos) << output;
  // A process that has the driver open keeps it, and the container stays until it is gone; no less one that
  // computes.
  StateFile file;
  ASSERT_EQ(file.open((c.kernel() / "sim/state").string()), StateFault::kNone);
  ASSERT_TRUE(claim_client(file.fd()));
  ::kill(pid, SIGTERM);
  output.clear();
  c.read_until("in use by process", &output);
  EXPECT_TRUE(module_loaded(c.kernel(), "nvidia-modeset"));
  release_client(file.fd());
  int slot = claim_context(file.fd(), {.gpu = 0, .memory_mib = 500});
  ASSERT_GE(slot, 0);
  ::kill(pid, SIGTERM);
  output.clear();
  c.read_until("in use by process", &output);
  EXPECT_TRUE(module_loaded(c.kernel(), "nvidia-modeset"));
  release_context(file.fd(), slot);
  ::kill(pid, SIGTERM);
  EXPECT_EQ(Container::wait(pid), 0);
  EXPECT_FALSE(module_loaded(c.kernel(), "nvidia"));
}

}  // namespace
}  // namespace gpuop::sim
