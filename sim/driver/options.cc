#include "sim/driver/options.h"

#include <cstdlib>
#include <map>

#include "base/text.h"

namespace gpuop::sim::driver {

namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

// Options that each command takes; true: with a value.
const std::map<std::string, bool>& accepted(Command command) {
  static const std::map<std::string, bool> init = {
      {"-a", false}, {"--accept-license", false}, {"-m", true}, {"--max-threads", true}};
  static const std::map<std::string, bool> build = {{"-a", false}, {"--accept-license", false},
                                                    {"-t", true},  {"--tag", true},
                                                    {"-m", true},  {"--max-threads", true}};
  static const std::map<std::string, bool> update = {
      {"-k", true}, {"--kernel", true}, {"-s", true}, {"--sign", true},
      {"-t", true}, {"--tag", true},    {"-m", true}, {"--max-threads", true}};
  static const std::map<std::string, bool> none;
  switch (command) {
    case Command::kInit:
      return init;
    case Command::kBuild:
      return build;
    case Command::kUpdate:
      return update;
    default:
      return none;
  }
}

}  // namespace

std::string usage() {
  return "Usage: nvidia-driver COMMAND [ARG...]\n\nCommands:\n"
         "  init   [-a | --accept-license] [-m | --max-threads MAX_THREADS]\n"
         "  build  [-a | --accept-license] [-t | --tag TAG] [-m | --max-threads MAX_THREADS]\n"
         "  load\n"
         "  update [-k | --kernel VERSION] [-s | --sign KEYID] [-t | --tag TAG] [-m | --max-threads "
         "MAX_THREADS]\n"
         "  reload_nvidia_peermem\n"
         "  probe_nvidia_peermem\n";
}

Result<Options> read_options(const std::vector<std::string>& arguments, const fs::path& self) {
  static const std::map<std::string, Command> commands = {{"init", Command::kInit},
                                                          {"build", Command::kBuild},
                                                          {"load", Command::kLoad},
                                                          {"update", Command::kUpdate},
                                                          {"reload_nvidia_peermem", Command::kReloadPeermem},
                                                          {"probe_nvidia_peermem", Command::kProbePeermem}};
  if (arguments.empty()) return fail(Code::kInvalid, usage());
  auto command = commands.find(arguments[0]);
  if (command == commands.end()) return fail(Code::kInvalid, usage());
  Options o;
  o.command = command->second;
  for (std::size_t i = 1; i < arguments.size(); ++i) {
    auto known = accepted(o.command).find(arguments[i]);
    if (known == accepted(o.command).end()) return fail(Code::kInvalid, usage());
    if (known->second && ++i >= arguments.size()) return fail(Code::kInvalid, usage());
  }
  o.version = variable("DRIVER_VERSION");
  o.digest = std::string(trim(variable("DRIVER_CONFIG_DIGEST")));
  o.rdma = variable("GPU_DIRECT_RDMA_ENABLED") == "true";
  o.host_mofed = variable("USE_HOST_MOFED") == "true";
  o.kernel_root = variable("GPUOP_KERNEL_ROOT");
  if (o.version.empty()) return fail(Code::kInvalid, "nvidia-driver: DRIVER_VERSION: unbound variable");
  std::string type = variable("KERNEL_MODULE_TYPE");
  if (!type.empty() && type != "auto" && type != "open" && type != "proprietary") {
    return fail(Code::kInvalid,
                "nvidia-driver: KERNEL_MODULE_TYPE '" + type + "': must be auto, open or proprietary");
  }
  if (o.kernel_root.empty()) {
    return fail(
        Code::kInvalid,
        "nvidia-driver: GPUOP_KERNEL_ROOT: not set; this program plays the driver of simulated nodes");
  }
  // <sim dir>/bin/nvidia-driver, or the copy in the image beside the usual place.
  o.sim_dir = self.parent_path().parent_path();
  if (!file_exists(o.sim_dir / "lib/libnvidia-ml.so")) o.sim_dir = "/usr/lib/gpuop-sim";
  return o;
}

}  // namespace gpuop::sim::driver
