#include "sim/state/devices.h"

#include <stdlib.h>
#include <sys/stat.h>

namespace gpuop::sim {

bool device_node_exists(const std::string& name) {
  struct stat st{};
  if (const char* dir = getenv("GPUOP_SIM_DEV"))
    return stat((std::string(dir) + "/" + name).c_str(), &st) == 0;
  return stat(("/dev/" + name).c_str(), &st) == 0 && S_ISCHR(st.st_mode);
}

}  // namespace gpuop::sim
