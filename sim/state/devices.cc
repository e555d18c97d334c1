#include "sim/state/devices.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

namespace gpuop::sim {

bool device_node_exists(const std::string& name) {
  struct stat st{};
  if (const char* dir = getenv("GPUOP_SIM_DEV"))
    return stat((std::string(dir) + "/" + name).c_str(), &st) == 0;
  return stat(("/dev/" + name).c_str(), &st) == 0 && S_ISCHR(st.st_mode);
}

namespace {

// Never on a machine's own /dev: a simulated node's is a nodev file system, where a node opens nothing.
bool make_node(const std::string& name, unsigned major, unsigned minor, mode_t mode) {
  if (const char* dir = getenv("GPUOP_SIM_DEV")) {
    std::string path = std::string(dir) + "/" + name;
    if (mknod(path.c_str(), S_IFCHR | mode, makedev(major, minor)) == 0) return true;
    // Tests without the right to make devices: any file counts.
    int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd >= 0) close(fd);
    return fd >= 0;
  }
  struct statvfs fs{};
  if (statvfs("/dev", &fs) != 0 || !(fs.f_flag & ST_NODEV)) return false;
  const std::string path = "/dev/" + name;
  // The umask would take bits away.
  return mknod(path.c_str(), S_IFCHR | mode, makedev(major, minor)) == 0 && chmod(path.c_str(), mode) == 0;
}

}  // namespace

bool make_device_node(const std::string& name, unsigned minor) {
  constexpr unsigned kNvidiaMajor = 195;
  return !getenv("GPUOP_SIM_DEV") && make_node(name, kNvidiaMajor, minor, 0666);
}

bool make_capability_node(unsigned minor) {
  constexpr unsigned kCapsMajor = 511;
  return make_node("nvidia-caps/nvidia-cap" + std::to_string(minor), kCapsMajor, minor, 0444);
}

}  // namespace gpuop::sim
