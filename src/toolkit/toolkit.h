// The toolkit operand: host programs, their configuration, CDI specs, facts and the engine's configuration,
// set up when the driver is ready, kept in step with it, and taken back at the end (container-toolkit-cdi.md
// §5).
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/json.h"
#include "base/loop.h"
#include "base/result.h"
#include "hardware/driver_root.h"
#include "hardware/returned.h"
#include "toolkit/engine.h"
#include "toolkit/install.h"

namespace gpuop::toolkit {

struct Options {
  bool no_daemon = false;
  bool no_runtime_config = false;
  bool enable_nri_plugin = false;
  std::string engine = "docker";  // containerd, crio, docker
  std::filesystem::path root = "/usr/local/nvidia";
  std::filesystem::path source;  // where our programs are; empty: beside this one
  std::filesystem::path pid_file = "/run/nvidia/toolkit/toolkit.pid";
  std::filesystem::path driver_ready = "/run/nvidia/validations/driver-ready";  // empty: do not wait

  // Files that are made when the engine is configured and answers, and removed at the end.
  std::vector<std::filesystem::path> configured;

  // Used when there is no driver-ready to take them from.
  std::string driver_root = "/run/nvidia/driver";
  std::string driver_root_ctr_path = "/run/nvidia/driver";
  std::string dev_root;
  std::string dev_root_ctr_path;

  RuntimeConfig runtime;              // the optional settings; folder, roots and runtimes are filled in
  std::vector<std::string> runtimes;  // empty: discovered

  bool cdi_enabled = false;
  std::string cdi_output_dir = "/var/run/cdi";  // empty: no spec
  std::string cdi_kind = "management.nvidia.com/gpu";
  std::string create_device_nodes = "control";  // "", none, control

  std::filesystem::path config;   // the engine's main file; empty: the engine's default
  std::filesystem::path drop_in;  // empty: the engine's default
  std::string drop_in_host_path;  // as the host sees it; empty: the same
  std::filesystem::path socket;
  std::string restart_mode;  // empty: the engine's default
  std::optional<bool> enable_cdi_in_runtime;
  std::filesystem::path host_root = "/host";
  std::string runtime_name = "nvidia";
  bool set_as_default = true;
  bool legacy_config = false;
  std::string runtime_type = "io.containerd.runc.v2";
  Json overrides = JsonObject{};
  Duration device_rescan_interval = 10s;  // while a GPU cannot be read; 0: only when a device node comes
};

// Fills in the defaults that depend on the engine, and checks. Errors name the flag.
Result<Options> complete(Options options);

// What the engine's files are to say; pure.
EngineSettings engine_settings(const Options& options);

class Toolkit {
 public:
  // Takes the pid file's lock. kBusy when another instance has it; the file's content is then unchanged.
  static Result<std::unique_ptr<Toolkit>> create(Loop& loop, Options options);

  // Waits for the driver (kCancelled when the loop is stopped first), then sets everything up.
  Result<> set_up();
  // Waits until the loop is stopped, setting up again whenever the driver changes.
  Result<> serve();
  // Takes the engine's configuration back and restarts it where that changes what it does; removes the pid
  // file.
  Result<> clean_up();
  bool no_daemon() const { return options_.no_daemon; }
  // Only removes the pid file: the end before anything was set up, or with no_daemon.
  void release();

 private:
  Toolkit(Loop& loop, Options options, Fd lock)
      : loop_(loop), options_(std::move(options)), lock_(std::move(lock)) {}
  Result<hardware::DriverReady> driver() const;
  Result<> apply(const hardware::DriverReady& driver);
  Result<> write_runtime_config(const hardware::DriverReady& driver, const FileText& engine_config);
  Result<> write_cdi(const hardware::DriverReady& driver);
  Result<> write_facts(const hardware::DriverReady& driver);
  Result<> set_up_engine();
  void wait_for_gpus(const hardware::DriverReady& driver, const hardware::Inventory& seen);
  void refresh(const hardware::DriverReady& driver);

  Loop& loop_;
  Options options_;
  Fd lock_;
  std::optional<hardware::DriverReady> applied_;
  std::unique_ptr<hardware::ReturnedWatch> returned_;
};

}  // namespace gpuop::toolkit
