#include "commands.h"

namespace gpuop {

std::span<const GpuctlCommand> gpuctl_commands() {
  static constexpr GpuctlCommand kTable[] = {
      {"status", "how far each node has come, and what it waits for", status_main},
  };
  return kTable;
}

}  // namespace gpuop
