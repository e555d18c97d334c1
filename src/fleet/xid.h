// What NVIDIA's XID errors mean and what helps (NVIDIA's XID catalogue). Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace gpuop::fleet {

struct Xid {
  std::string_view meaning;  // "the GPU has fallen off the bus"; "" for one that is not known here
  std::string cure;          // never ""
};
// `gpu`: what nvidia-smi -i takes, an index or UUID.
Xid xid(std::int64_t number, std::string_view gpu);

}  // namespace gpuop::fleet
