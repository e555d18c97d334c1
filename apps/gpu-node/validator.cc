// nvidia-validator: the flags and environment of operands-driver-validator.md §4.1.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <tuple>

#include "base/log.h"
#include "base/loop.h"
#include "base/process.h"
#include "base/text.h"
#include "cli.h"
#include "roles.h"
#include "validate/gates.h"
#include "validate/node_status.h"
#include "validate/sequence.h"
#include "validate/validator.h"

namespace gpuop {
namespace {

// The kubelet puts it into the container's status. The file is there in a container alone.
void leave_message(const std::string& text) {
  const Fd file(::open("/dev/termination-log", O_WRONLY | O_TRUNC | O_CLOEXEC));
  if (file) std::ignore = ::write(file.get(), text.data(), text.size());
}

// To the sequence of validations that this process is a step of.
void report(int fd, bool failing, std::string why) {
  std::ranges::replace(why, '\n', ' ');
  why = (failing ? "failing " : "waiting ") + why + "\n";
  std::ignore = ::write(fd, why.data(), why.size());
}

}  // namespace

int validator_main(int argc, char** argv) {
  validate::ValidatorOptions options;
  std::string interval = "5";
  std::string mig_strategy;
  CLI::App app("Prove that a stage of this node works and leave its gate file.");
  app.add_option("-c,--component", options.component, "stage to check: " + join(validate::components(), ", "))
      ->envname("COMPONENT");
  app.add_option("-n,--node-name", options.node, "this node")->envname("NODE_NAME");
  app.add_option("--namespace,--ns", options.ns, "namespace of the operands")->envname("OPERATOR_NAMESPACE");
  app.add_option("--kubeconfig", options.kubeconfig, "cluster access (default: the pod's own)")
      ->envname("KUBECONFIG");
  app.add_option("-w,--with-wait", options.with_wait, "wait until the stage works")->envname("WITH_WAIT");
  app.add_option("-l,--with-workload", options.with_workload, "prove it with a pod")
      ->envname("WITH_WORKLOAD");
  app.add_option("-r,--cleanup-all", options.cleanup_all, "remove every gate first")->envname("CLEANUP_ALL");
  app.add_option("-o,--output-dir", options.output_dir, "folder of the gate files")
      ->envname("OUTPUT_DIR")
      ->capture_default_str();
  app.add_option("-s,--sleep-interval-seconds", interval, "time between tries of what no event announces")
      ->envname("SLEEP_INTERVAL_SECONDS")
      ->capture_default_str();
  app.add_option("-m,--mig-strategy", mig_strategy, "accepted, without effect")->envname("MIG_STRATEGY");
  app.add_option("-p,--metrics-port", options.metrics_port, "port of component metrics")
      ->envname("METRICS_PORT");
  app.add_option("-g,--default-gpu-workload-config", options.default_workload, "workload of unlabelled nodes")
      ->envname("DEFAULT_GPU_WORKLOAD_CONFIG");
  app.add_option("--disable-dev-char-symlink-creation", options.no_dev_char, "make no device nodes and links")
      ->envname("DISABLE_DEV_CHAR_SYMLINK_CREATION");
  app.add_option("--host-root", options.driver.host_root, "root of the host, as the host sees it")
      ->envname("HOST_ROOT");
  app.add_option("--driver-install-dir", options.driver.install_dir, "driver container's root, on the host")
      ->envname("DRIVER_INSTALL_DIR");
  app.add_option("--driver-install-dir-ctr-path", options.driver.install_dir_ctr,
                 "the same, in this container")
      ->envname("DRIVER_INSTALL_DIR_CTR_PATH");
  app.add_option("--driver-validation-skip-gpu-init", options.driver.skip_gpu_init,
                 "only ask for the driver's version")
      ->envname("DRIVER_VALIDATION_SKIP_GPU_INIT");
  if (auto code = parse_command_line(app, argc, argv)) return *code;

  log::setup("nvidia-validator");
  const auto seconds = parse_int(interval);
  if (!seconds || *seconds < 1) {
    log::error("--sleep-interval-seconds: must be a whole number of seconds above 0; got '" + interval + "'");
    return 1;
  }
  options.interval = std::chrono::seconds(*seconds);
  options.driver.status_dir = options.output_dir;
  options.proven_later = env_or(validate::kProvenLater) == "true";
  options.proves_toolkit = env_or(validate::kProvesToolkit) == "true";
  options.toolkit_configured = env_or("TOOLKIT_CONFIGURED_FILE");
  options.gate_owner = env_or(validate::kGateOwnerFile);
  options.pod = env_or("POD_UID");
  if (const auto fd = parse_int(env_or(validate::kReportFd)); fd && *fd > 2) {
    ::fcntl(static_cast<int>(*fd), F_SETFD, FD_CLOEXEC);
    options.waiting = [fd = static_cast<int>(*fd)](bool failing, const std::string& why) {
      report(fd, failing, why);
    };
  }
  if (const auto checked = validate::check_options(options); !checked) {
    log::error(checked.error().text());
    return 1;
  }
  Loop loop;
  bool interrupted = false;
  Handle signals = on_signals(loop, {SIGHUP, SIGINT, SIGQUIT, SIGTERM}, [&](int number) {
    log::info("stopping", {{"signal", number}});
    interrupted = true;
    loop.stop();
  });
  const auto result = options.component == "metrics" ? validate::serve_node_status(loop, options)
                                                     : validate::run(loop, options);
  if (!result) {
    log::error(result.error().text(), {{"component", options.component}});
    leave_message(options.component + ": " + result.error().text());
    return 1;
  }
  return interrupted ? 1 : 0;
}

}  // namespace gpuop
