#include "sim/state/devices.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>

namespace gpuop::sim {

bool device_node_exists(const std::string& name) {
  struct stat st{};
  if (const char* dir = getenv("GPUOP_SIM_DEV"))
    return stat((std::string(dir) + "/" + name).c_str(), &st) == 0;
  return stat(("/dev/" + name).c_str(), &st) == 0 && S_ISCHR(st.st_mode);
}

bool make_device_node(const std::string& name, unsigned minor) {
  // Never on a machine's own /dev: a simulated node's is a nodev file system, where a node opens nothing.
  struct statvfs fs{};
  if (getenv("GPUOP_SIM_DEV") || statvfs("/dev", &fs) != 0 || !(fs.f_flag & ST_NODEV)) return false;
  constexpr unsigned kNvidiaMajor = 195;
  const std::string path = "/dev/" + name;
  // The umask would take bits away.
  return mknod(path.c_str(), S_IFCHR | 0666, makedev(kNvidiaMajor, minor)) == 0 &&
         chmod(path.c_str(), 0666) == 0;
}

}  // namespace gpuop::sim
