// Memory errors and what was done about them: ECC counters, retired pages, remapped rows (telemetry.md §3).
#include <algorithm>

#include "sim/nvml/library.h"

using namespace gpuop::sim;        // NOLINT: the file defines C symbols only
using namespace gpuop::sim::nvml;  // NOLINT

namespace {
constexpr std::uint32_t kTuring = 6;  // the first that counts the chip's errors together
constexpr std::uint32_t kAmpere = 7;  // the first architecture that remaps rows

bool counts_errors(const Gpu& gpu) {
  return gpu.board.ecc_supported && gpu.live.ecc_current;
}
}  // namespace

NVML_EXPORT int nvmlDeviceGetEccMode(void* device, int* current, int* pending) {
  NVML_BOARD(nvmlDeviceGetEccMode, device);
  if (!current || !pending) return kInvalidArgument;
  if (!gpu.board.ecc_supported) return kNotSupported;
  *current = static_cast<int>(gpu.live.ecc_current);
  *pending = static_cast<int>(gpu.live.ecc_pending);
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceGetDefaultEccMode(void* device, int* out) {
  NVML_BOARD(nvmlDeviceGetDefaultEccMode, device);
  NVML_NEED(out);
  if (!gpu.board.ecc_supported) return kNotSupported;
  *out = 1;
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceGetTotalEccErrors(void* device, int error, int counter, unsigned long long* out) {
  NVML_BOARD(nvmlDeviceGetTotalEccErrors, device);
  if (!out || error < 0 || error > 1 || counter < 0 || counter > 1) return kInvalidArgument;
  if (!gpu.board.ecc_supported || !gpu.live.ecc_current) return kNotSupported;
  const Live& l = gpu.live;
  *out = error == 0 ? (counter == 0 ? l.ecc_sbe_volatile : l.ecc_sbe_aggregate)
                    : (counter == 0 ? l.ecc_dbe_volatile : l.ecc_dbe_aggregate);
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceGetMemoryErrorCounter(void* device, int error, int counter, int location,
                                                unsigned long long* out) {
  NVML_BOARD(nvmlDeviceGetMemoryErrorCounter, device);
  if (!out || error < 0 || error > 1 || counter < 0 || counter > 1) return kInvalidArgument;
  if (!gpu.board.ecc_supported || !gpu.live.ecc_current) return kNotSupported;
  const Live& l = gpu.live;
  switch (location) {
    case 2:  // device memory (DRAM): where the injected errors are
      *out = error == 0 ? (counter == 0 ? l.ecc_sbe_volatile : l.ecc_sbe_aggregate)
                        : (counter == 0 ? l.ecc_dbe_volatile : l.ecc_dbe_aggregate);
      return kSuccess;
    case 7:
      if (gpu.board.architecture < kTuring) return kNotSupported;
      *out = 0;
      return kSuccess;  // SRAM
    default:
      return location < 0 || location > 8 ? kInvalidArgument : kNotSupported;
  }
}

NVML_EXPORT int nvmlDeviceGetRetiredPages(void* device, int cause, unsigned* count, unsigned long long*) {
  NVML_BOARD(nvmlDeviceGetRetiredPages, device);
  NVML_NEED(count);
  if (cause < 0 || cause > 1) return kInvalidArgument;
  if (!gpu.board.retired_pages_supported) return kNotSupported;
  unsigned have = cause == 0 ? gpu.live.retired_sbe : gpu.live.retired_dbe, room = *count;
  *count = have;
  return have > room ? kInsufficientSize : kSuccess;
}

NVML_EXPORT int nvmlDeviceGetRemappedRows(void* device, unsigned* corrected, unsigned* uncorrected,
                                          unsigned* pending, unsigned* failed) {
  NVML_BOARD(nvmlDeviceGetRemappedRows, device);
  if (!corrected || !uncorrected || !pending || !failed) return kInvalidArgument;
  if (!gpu.board.row_remap_supported) return kNotSupported;
  *corrected = gpu.live.remapped_correctable;
  *uncorrected = gpu.live.remapped_uncorrectable;
  *pending = gpu.live.remap_pending;
  *failed = gpu.live.remap_failed;
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceGetRowRemapperHistogram(void* device, RowRemapperHistogram* out) {
  NVML_BOARD(nvmlDeviceGetRowRemapperHistogram, device);
  NVML_NEED(out);
  if (!gpu.board.row_remap_supported) return kNotSupported;
  std::uint32_t banks = 640, touched = gpu.live.remapped_correctable + gpu.live.remapped_uncorrectable;
  touched = std::min(touched, banks);
  *out = RowRemapperHistogram{banks - touched, touched, 0, 0, 0};
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceSetEccMode(void* device, int mode) {
  NVML_BOARD(nvmlDeviceSetEccMode, device);
  if (mode < 0 || mode > 1) return kInvalidArgument;
  if (!gpu.board.ecc_supported) return kNotSupported;
  if (gpu.live.ecc_pending == static_cast<unsigned>(mode)) return kSuccess;
  return change([&](State& s) {  // in force after a reset
    s.gpus[index].live.ecc_pending = static_cast<unsigned>(mode);
    return 0;
  });
}

NVML_EXPORT int nvmlDeviceClearEccErrorCounts(void* device, int counter) {
  NVML_BOARD(nvmlDeviceClearEccErrorCounts, device);
  if (counter < 0 || counter > 1) return kInvalidArgument;
  if (!counts_errors(gpu)) return kNotSupported;
  return change([&](State& s) {
    Live& l = s.gpus[index].live;
    (counter ? l.ecc_sbe_aggregate : l.ecc_sbe_volatile) = 0;
    (counter ? l.ecc_dbe_aggregate : l.ecc_dbe_volatile) = 0;
    return 0;
  });
}

NVML_EXPORT int nvmlDeviceGetDetailedEccErrors(void* device, int error, int counter, EccCounts* out) {
  NVML_BOARD(nvmlDeviceGetDetailedEccErrors, device);
  if (!out || error < 0 || error > 1 || counter < 0 || counter > 1) return kInvalidArgument;
  if (!counts_errors(gpu)) return kNotSupported;
  const Live& l = gpu.live;
  *out = EccCounts{};
  out->device_memory = error == 0 ? (counter == 0 ? l.ecc_sbe_volatile : l.ecc_sbe_aggregate)
                                  : (counter == 0 ? l.ecc_dbe_volatile : l.ecc_dbe_aggregate);
  return kSuccess;
}

// Injected errors are in the memory, none in the chip.
NVML_EXPORT int nvmlDeviceGetSramEccErrorStatus(void* device, SramEccStatus* out) {
  NVML_BOARD(nvmlDeviceGetSramEccErrorStatus, device);
  NVML_NEED(out);
  if (out->version != version_word(sizeof(SramEccStatus), 1)) return kArgumentVersionMismatch;
  if (!counts_errors(gpu) || gpu.board.architecture < kAmpere) return kNotSupported;
  std::uint32_t version = out->version;
  *out = SramEccStatus{};
  out->version = version;
  return kSuccess;
}
NVML_EXPORT int nvmlDeviceGetSramUniqueUncorrectedEccErrorCounts(void* device, SramUniqueErrors* out) {
  NVML_BOARD(nvmlDeviceGetSramUniqueUncorrectedEccErrorCounts, device);
  NVML_NEED(out);
  if (out->version != version_word(sizeof(SramUniqueErrors), 1)) return kArgumentVersionMismatch;
  if (!counts_errors(gpu) || gpu.board.architecture < kAmpere) return kNotSupported;
  out->count = 0;
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceGetRetiredPages_v2(void* device, int cause, unsigned* count,
                                             unsigned long long* addresses, unsigned long long*) {
  return nvmlDeviceGetRetiredPages(device, cause, count, addresses);
}
NVML_EXPORT int nvmlDeviceGetRetiredPagesPendingStatus(void* device, int* out) {
  NVML_BOARD(nvmlDeviceGetRetiredPagesPendingStatus, device);
  NVML_NEED(out);
  if (!gpu.board.retired_pages_supported) return kNotSupported;
  *out = gpu.live.retired_pending != 0;
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceGetRemappedRows_v2(void* device, RowRemapsV2* out) {
  NVML_BOARD(nvmlDeviceGetRemappedRows_v2, device);
  NVML_NEED(out);
  if (!gpu.board.row_remap_supported) return kNotSupported;
  const Live& l = gpu.live;
  *out = RowRemapsV2{l.remapped_correctable, 0, l.remapped_uncorrectable, 0, l.remap_pending, l.remap_failed};
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceGetRepairStatus(void* device, RepairStatus* out) {
  NVML_BOARD(nvmlDeviceGetRepairStatus, device);
  NVML_NEED(out);
  if (out->version != version_word(sizeof(RepairStatus), 1)) return kArgumentVersionMismatch;
  if (gpu.board.architecture < 10) return kNotSupported;
  *out = RepairStatus{out->version, 0, 0};
  return kSuccess;
}
NVML_EXPORT int nvmlDeviceGetUnrepairableMemoryFlag_v1(void* device, std::uint32_t* out) {
  NVML_BOARD(nvmlDeviceGetUnrepairableMemoryFlag_v1, device);
  NVML_NEED(out);
  if (gpu.board.architecture < 10) return kNotSupported;
  *out = gpu.live.remap_failed != 0;
  return kSuccess;
}
NVML_ABSENT_ON_DEVICE(nvmlDeviceGetBankRemapperStatus_v1)
