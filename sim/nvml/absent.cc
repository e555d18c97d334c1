// What the real library exports and boards without fans, displays and units answer NOT_SUPPORTED to.
#include "sim/nvml/library.h"

using namespace gpuop::sim;        // NOLINT: the file defines C symbols only
using namespace gpuop::sim::nvml;  // NOLINT

// Cooled by their chassis.
NVML_ABSENT_ON_DEVICE(nvmlDeviceGetFanSpeed_v2)
NVML_ABSENT_ON_DEVICE(nvmlDeviceGetFanSpeedRPM)
NVML_ABSENT_ON_DEVICE(nvmlDeviceGetTargetFanSpeed)
NVML_ABSENT_ON_DEVICE(nvmlDeviceGetMinMaxFanSpeed)
NVML_ABSENT_ON_DEVICE(nvmlDeviceGetFanControlPolicy_v2)
NVML_ABSENT_ON_DEVICE(nvmlDeviceGetCoolerInfo)
NVML_ABSENT_ON_DEVICE(nvmlDeviceSetDefaultFanSpeed_v2)
NVML_ABSENT_ON_DEVICE(nvmlDeviceSetFanControlPolicy)
NVML_ABSENT_ON_DEVICE(nvmlDeviceSetFanSpeed_v2)
NVML_ABSENT_ON_DEVICE(nvmlDeviceSetTemperatureThreshold)

// Of other systems and older or other boards.
NVML_ABSENT_ON_DEVICE(nvmlDeviceGetDriverModel)
NVML_ABSENT_ON_DEVICE(nvmlDeviceGetDriverModel_v2)
NVML_ABSENT_ON_DEVICE(nvmlDeviceSetDriverModel)
NVML_ABSENT_ON_DEVICE(nvmlDeviceGetGpuOperationMode)
NVML_ABSENT_ON_DEVICE(nvmlDeviceSetGpuOperationMode)
NVML_ABSENT_ON_DEVICE(nvmlDeviceGetBridgeChipInfo)
NVML_ABSENT_ON_DEVICE(nvmlDeviceSetAPIRestriction)
NVML_ABSENT_ON_DEVICE(nvmlDeviceGetPowerMizerMode_v1)
NVML_ABSENT_ON_DEVICE(nvmlDeviceSetPowerMizerMode_v1)
NVML_ABSENT_ON_DEVICE(nvmlDeviceGetAdaptiveTgpModeInfo_v1)
NVML_ABSENT_ON_DEVICE(nvmlDeviceSetAdaptiveTgpMode_v1)
NVML_ABSENT_ON_DEVICE(nvmlDeviceGetMemoryLimits_v1)
NVML_ABSENT_ON_DEVICE(nvmlDeviceSetMemoryLimits_v1)
NVML_ABSENT_ON_DEVICE(nvmlDeviceSetDramEncryptionMode)
NVML_ABSENT_ON_DEVICE(nvmlDeviceGetLastBBXFlushTime)
NVML_ABSENT_ON_DEVICE(nvmlDeviceGetBBXTimeData_v1)
NVML_ABSENT_ON_DEVICE(nvmlDeviceGetHostname_v1)
NVML_ABSENT_ON_DEVICE(nvmlDeviceSetHostname_v1)
NVML_ABSENT_ON_DEVICE(nvmlDevicePerfMetricsGetSamples_v1)
NVML_ABSENT_ON_DEVICE(nvmlDeviceReadWritePRM_v1)
NVML_ABSENT_ON_DEVICE(nvmlDeviceReadPRMCounters_v1)
NVML_ABSENT_ON_DEVICE(nvmlDeviceSetRusdSettings_v1)
NVML_ABSENT_ON_DEVICE(nvmlDeviceWorkloadPowerProfileGetProfilesInfo)
NVML_ABSENT_ON_DEVICE(nvmlDeviceWorkloadPowerProfileGetCurrentProfiles)
NVML_ABSENT_ON_DEVICE(nvmlDeviceWorkloadPowerProfileSetRequestedProfiles)
NVML_ABSENT_ON_DEVICE(nvmlDeviceWorkloadPowerProfileClearRequestedProfiles)
NVML_ABSENT_ON_DEVICE(nvmlDeviceWorkloadPowerProfileUpdateProfiles_v1)
NVML_ABSENT_ON_DEVICE(nvmlDevicePowerSmoothingActivatePresetProfile)
NVML_ABSENT_ON_DEVICE(nvmlDevicePowerSmoothingUpdatePresetProfileParam)
NVML_ABSENT_ON_DEVICE(nvmlDevicePowerSmoothingSetState)

// Counters of NVLinks of before Ampere.
NVML_ABSENT_ON_DEVICE(nvmlDeviceSetNvLinkUtilizationControl)
NVML_ABSENT_ON_DEVICE(nvmlDeviceGetNvLinkUtilizationControl)
NVML_ABSENT_ON_DEVICE(nvmlDeviceGetNvLinkUtilizationCounter)
NVML_ABSENT_ON_DEVICE(nvmlDeviceFreezeNvLinkUtilizationCounter)
NVML_ABSENT_ON_DEVICE(nvmlDeviceResetNvLinkUtilizationCounter)
NVML_ABSENT_ON_DEVICE(nvmlDeviceSetNvLinkDeviceLowPowerThreshold)
NVML_ABSENT_ON_DEVICE(nvmlDeviceSetNvlinkBwMode)
NVML_ABSENT_ON_DEVICE(nvmlDeviceSetNvlinkBwModeAsync_v1)
NVML_ABSENT_ON_DEVICE(nvmlDeviceGetNvLinkTelemetrySamples_v1)
NVML_ABSENT(nvmlSystemGetNvlinkBwMode)
NVML_ABSENT(nvmlSystemSetNvlinkBwMode)

// Confidential computing that is not on.
NVML_ABSENT_ON_DEVICE(nvmlDeviceGetConfComputeProtectedMemoryUsage)
NVML_ABSENT_ON_DEVICE(nvmlDeviceGetConfComputeGpuCertificate)
NVML_ABSENT_ON_DEVICE(nvmlDeviceGetConfComputeGpuAttestationReport)
NVML_ABSENT_ON_DEVICE(nvmlDeviceSetConfComputeUnprotectedMemSize)
NVML_ABSENT(nvmlSystemGetConfComputeGpusReadyState)
NVML_ABSENT(nvmlSystemSetConfComputeGpusReadyState)
NVML_ABSENT(nvmlSystemGetConfComputeKeyRotationThresholdInfo)
NVML_ABSENT(nvmlSystemSetConfComputeKeyRotationThresholdInfo)

// Hot removal is the node simulator's doing, not the library's; operational events are of later boards.
NVML_ABSENT(nvmlDeviceModifyDrainState)
NVML_ABSENT(nvmlDeviceQueryDrainState)
NVML_ABSENT(nvmlDeviceRemoveGpu)
NVML_ABSENT(nvmlDeviceRemoveGpu_v2)
NVML_ABSENT(nvmlDeviceDiscoverGpus)
NVML_ABSENT(nvmlSystemGetCPER_v1)
NVML_ABSENT(nvmlEventSetRegisterGpuOperationalEvents_v1)
NVML_ABSENT(nvmlEventSetWait_v3)
NVML_ABSENT(nvmlEventSetGetContextCount_v1)
NVML_ABSENT(nvmlEventSetGetContextInfo_v1)
NVML_ABSENT(nvmlEventSetGetContextData_v1)
NVML_ABSENT(nvmlEventSetGetGpuOperationalEventContextLegacyXid_v1)
NVML_ABSENT(nvmlSystemEventSetCreate)
NVML_ABSENT(nvmlSystemEventSetFree)
NVML_ABSENT(nvmlSystemRegisterEvents)
NVML_ABSENT(nvmlSystemEventSetWait)

// Streaming of performance samples is always on.
NVML_EXPORT int nvmlGpmQueryIfStreamingEnabled(void* device, unsigned* out) {
  NVML_BOARD(nvmlGpmQueryIfStreamingEnabled, device);
  NVML_NEED(out);
  if (!gpu.board.gpm_supported) return kNotSupported;
  *out = 1;
  return kSuccess;
}
NVML_EXPORT int nvmlGpmSetStreamingEnabled(void* device, unsigned enabled) {
  NVML_BOARD(nvmlGpmSetStreamingEnabled, device);
  return !gpu.board.gpm_supported ? kNotSupported : enabled == 1 ? kSuccess : kInvalidArgument;
}

// S-class units, of which no node has any: every handle is a wrong one.
#define NO_UNIT(symbol)      \
  NVML_EXPORT int symbol() { \
    NVML_ENTER(symbol);      \
    return kInvalidArgument; \
  }
NO_UNIT(nvmlUnitGetHandleByIndex)
NO_UNIT(nvmlUnitGetUnitInfo)
NO_UNIT(nvmlUnitGetLedState)
NO_UNIT(nvmlUnitSetLedState)
NO_UNIT(nvmlUnitGetPsuInfo)
NO_UNIT(nvmlUnitGetTemperature)
NO_UNIT(nvmlUnitGetFanSpeedInfo)
NO_UNIT(nvmlUnitGetDevices)

NVML_EXPORT int nvmlDeviceGetViolationStatus(void* device, int policy, ViolationTime* out) {
  NVML_BOARD(nvmlDeviceGetViolationStatus, device);
  NVML_NEED(out);
  // 0 power, 1 heat, 2 sync boost, 3 board limit, 4 low utilisation, 5 reliability, 10 and 11 all clocks.
  if (policy < 0 || policy > 11 || (policy > 5 && policy < 10)) return kInvalidArgument;
  std::uint64_t at = now_us();
  Sensors s = sense(state, index, contexts_of(index), at);
  *out = ViolationTime{at, 0};
  if (policy == 0 || policy >= 10) out->violation_ns += s.power_violation_ns;
  if (policy == 1 || policy >= 10) out->violation_ns += s.thermal_violation_ns;
  if (policy == 4) out->violation_ns = s.idle_ns;
  return kSuccess;
}
