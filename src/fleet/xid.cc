#include "fleet/xid.h"

#include <algorithm>

namespace gpuop::fleet {
namespace {

enum class Cure {
  kApplication,  // what ran on it is wrong
  kReset,        // a reset heals it
  kReboot,       // only the machine's start does, or another part
  kMemory,       // a reset puts the spare rows in; if it comes again, the board is worn
  kLink,         // of NVLink
};

struct Row {
  std::int64_t number;
  std::string_view meaning;
  Cure cure;
};

constexpr Row kRows[] = {
    {13, "an application made the graphics engine fail", Cure::kApplication},
    {31, "an application touched memory that it has not", Cure::kApplication},
    {43, "an application was stopped by the GPU", Cure::kApplication},
    {45, "an application was ended while it used the GPU", Cure::kApplication},
    {46, "the GPU stopped processing", Cure::kReset},
    {48, "two bits of its memory are wrong", Cure::kMemory},
    {61, "its microcontroller stopped", Cure::kReset},
    {62, "its microcontroller halted", Cure::kReset},
    {63, "a row of its memory is to be replaced by a spare one", Cure::kMemory},
    {64, "a row of its memory could not be replaced", Cure::kMemory},
    {69, "an application made the graphics engine fail", Cure::kApplication},
    {74, "NVLink fails", Cure::kLink},
    {79, "the GPU has fallen off the bus", Cure::kReboot},
    {92, "many bits of its memory had to be corrected", Cure::kMemory},
    {94, "an error of its memory ended the application that met it", Cure::kMemory},
    {95, "an error of its memory concerns everything on it", Cure::kMemory},
    {109, "a context could not be switched in time", Cure::kReset},
    {119, "its firmware (GSP) does not answer", Cure::kReset},
    {120, "its firmware (GSP) failed", Cure::kReset},
    {140, "an error of its memory was not recovered", Cure::kMemory},
};

std::string text_of(Cure cure, std::string_view gpu) {
  const std::string reset = "nvidia-smi --gpu-reset -i " + std::string(gpu);
  switch (cure) {
    case Cure::kApplication:
      return "look at the application that ran on it; the GPU is offered again when that has ended";
    case Cure::kReset:
      return "reset it on the node while nothing uses it (" + reset + "), or reboot the node";
    case Cure::kReboot:
      return "drain and reboot the node; if it comes again, check the board's seat and power";
    case Cure::kMemory:
      return "reset it on the node while nothing uses it (" + reset +
             "); if it comes again, have the board replaced";
    case Cure::kLink:
      return "read nvidia-smi nvlink --status on the node, check bridges and switches, and reset it (" +
             reset + ")";
  }
  return reset;
}

}  // namespace

Xid xid(std::int64_t number, std::string_view gpu) {
  const auto* row = std::ranges::find(kRows, number, &Row::number);
  if (row == std::end(kRows))
    return {"", "look the number up in NVIDIA's list of XID errors, and read nvidia-smi -q on the node"};
  return {row->meaning, text_of(row->cure, gpu)};
}

}  // namespace gpuop::fleet
