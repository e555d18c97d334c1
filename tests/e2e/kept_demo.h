// The demo as a user runs it, as a process.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/files.h"
#include "base/process.h"

namespace gpuop {

inline const std::string kGpuctl = BUILD_ROOT "/bin/gpuctl";

inline std::vector<std::string> environment() {
  return {"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
          "HOME=" + env_or("HOME", "/root"), "TMPDIR=" + env_or("TMPDIR", "/tmp")};
}

inline ExitState run(std::vector<std::string> argv, Duration limit, const std::string& input = "") {
  Command command{std::move(argv), environment()};
  command.input = input;
  auto result = run_command(command, limit);
  if (!result) {
    ExitState failed;
    failed.code = -1;
    failed.err = result.error().text();
    return failed;
  }
  return std::move(*result);
}

// A demo that was kept, with its own folder; ended with the object.
class KeptDemo {
 public:
  explicit KeptDemo(std::vector<std::string> more = {}) {
    std::vector<std::string> argv{kGpuctl, "demo", "--keep", "--state-dir", state()};
    argv.insert(argv.end(), more.begin(), more.end());
    demo = run(argv, 4min);
  }
  ~KeptDemo() { run({kGpuctl, "demo", "--stop", "--state-dir", state()}, 1min); }
  KeptDemo(const KeptDemo&) = delete;
  KeptDemo& operator=(const KeptDemo&) = delete;
  std::string state() const { return (dir.path() / "fleet").string(); }
  std::string kubeconfig() const { return state() + "/kubeconfig"; }
  ExitState kubectl(std::vector<std::string> args, const std::string& input = "",
                    Duration limit = 30s) const {
    args.insert(args.begin(), {env_or("GPUOP_KUBECTL", "kubectl"), "--kubeconfig", kubeconfig()});
    return run(std::move(args), limit, input);
  }

  TempDir dir;
  ExitState demo;
};

inline bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

}  // namespace gpuop
