#include <cstdio>
#include <string>
#include <vector>

#include "base/version.h"
#include "shim/hooks.h"

int main(int argc, char** argv) {
  std::vector<std::string> args(argv + (argc > 0 ? 1 : 0), argv + argc);
  gpuop::shim::secure_hook_process();
  if (!args.empty() && (args[0] == "--version" || args[0] == "-v")) {
    std::printf("NVIDIA CDI Hook version %s\n", GPUOP_VERSION);
    return 0;
  }
  return gpuop::shim::run_hook(args);
}
