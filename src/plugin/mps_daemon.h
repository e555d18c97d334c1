// Runs the MPS control daemons: start, readiness, log following, stop (device-plugin-gfd-mps.md §8).
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/loop.h"
#include "base/process.h"
#include "base/result.h"
#include "plugin/mps.h"

namespace gpuop::plugin {

// The program `name` by PATH; kNotFound names the folders.
Result<std::string> find_program_in_path(std::string_view name, std::string_view path);

// Mounts a fresh tmpfs at `<root>/shm`, taking away what was there.
Result<> mount_shm(const std::filesystem::path& root);

struct MpsServiceOptions {
  sharing::SettingsInputs inputs;
  std::filesystem::path root = "/mps";
  std::string control;  // path of nvidia-cuda-mps-control; empty: by PATH of the environment
  Duration retry = 30s;
  Duration quit_limit = 30s;
};

class MpsService {
 public:
  // `fatal` is called once, on the loop, when a start fails for good.
  MpsService(Loop& loop, MpsServiceOptions options, std::function<void(const Error&)> fatal);
  ~MpsService();  // stops what runs
  // The first start. An error is fatal; what may pass is retried.
  Result<> start();
  // Stops, reads the configuration anew, starts (SIGHUP).
  void reload();
  bool ready() const;
  struct Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace gpuop::plugin
