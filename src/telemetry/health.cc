// Health watches judged from NVML's figures and from XIDs (telemetry.md §7.4).
#include <algorithm>
#include <cmath>

#include "telemetry/own_families.h"

namespace gpuop::telemetry {
namespace {

constexpr int kWarn = 10;
constexpr int kFail = 20;

enum ErrorCode : int {
  kOk = 0,
  kPciReplayRate = 3,
  kVolatileDbe = 4,
  kPendingPageRetirements = 6,
  kRetiredPagesLimit = 7,
  kCorruptInforom = 9,
  kThrottleThermal = 10,
  kPowerUnreadable = 11,
  kThrottlePower = 12,
  kNvlinkErrorThreshold = 13,
  kNvlinkDown = 14,
  kNvlinkCrcThreshold = 70,
  kNvlinkCritical = 71,
  kRowRemapFailure = 80,
  kUncontained = 81,
  kXid = 101,
  kFallenOffBus = 120,
  kRecoveryReset = 125,
  kRecoveryReboot = 126,
  kRecoveryDrainP2p = 127,
  kRecoveryDrainReset = 128,
};

// What an XID means for a watch.
struct XidRule {
  std::uint64_t xid;
  const char* watch;
  int state;
  int code;
};
constexpr XidRule kXidRules[] = {
    {48, "ALL", kFail, kXid},
    {74, "ALL", kFail, kXid},
    {79, "ALL", kFail, kFallenOffBus},
    {94, "ALL", kFail, kXid},
    {95, "ALL", kFail, kUncontained},
    {119, "ALL", kFail, kXid},
    {120, "ALL", kFail, kXid},
    {140, "ALL", kFail, kXid},
    {31, "MEM", kWarn, kXid},
    {32, "MEM", kWarn, kXid},
    {43, "MEM", kWarn, kXid},
    {63, "MEM", kWarn, kPendingPageRetirements},
    {64, "MEM", kWarn, kRowRemapFailure},
    {38, "PCIE", kWarn, kXid},
    {39, "PCIE", kWarn, kXid},
    {42, "PCIE", kWarn, kPciReplayRate},
    {60, "THERMAL", kWarn, kThrottleThermal},
    {61, "THERMAL", kWarn, kXid},
    {62, "THERMAL", kWarn, 40},
    {54, "POWER", kWarn, kXid},
    {56, "POWER", kWarn, kXid},
    {57, "POWER", kWarn, kThrottlePower},
    {58, "POWER", kWarn, kXid},
    {78, "POWER", kWarn, kXid},
    {67, "NVLINK", kWarn, kNvlinkErrorThreshold},
    {73, "NVLINK", kWarn, kXid},
    {121, "NVLINK", kWarn, kXid},
    {137, "NVLINK", kWarn, kXid},
    {93, "INFOROM", kWarn, kCorruptInforom},
};

using Verdicts = std::map<std::string, HealthVerdict>;

// The worst incident of a watch stays; of equals the first.
void raise(Verdicts& verdicts, const char* watch, int state, int code) {
  HealthVerdict& verdict = verdicts[watch];
  if (state > verdict.state) verdict = {state, code};
}

std::uint64_t growth(const std::optional<std::uint64_t>& now, const std::optional<std::uint64_t>& before) {
  return now && before && *now > *before ? *now - *before : 0;
}

void judge_pcie(const HealthFacts& now, const HealthFacts& before, Duration span, Verdicts& verdicts) {
  constexpr double kPerLane[] = {0, 0.15, 0.3, 0.48, 0.96, 1.92, 3.84};
  std::uint64_t replays = growth(now.pcie_replays, before.pcie_replays);
  if (replays == 0 || !now.pcie_gen || !now.pcie_width || span <= Duration::zero()) return;
  double allowed = std::ceil(kPerLane[std::min(*now.pcie_gen, 6u)] * *now.pcie_width);
  double minutes = std::chrono::duration<double, std::ratio<60>>(span).count();
  if (static_cast<double>(replays) / std::max(minutes, 1.0) > allowed)
    raise(verdicts, "PCIE", kWarn, kPciReplayRate);
}

void judge_memory(const HealthFacts& now, Verdicts& verdicts) {
  if (now.double_bit_volatile.value_or(0) > 0) raise(verdicts, "MEM", kFail, kVolatileDbe);
  if (now.retired_pages.value_or(0) >= 63) raise(verdicts, "MEM", kFail, kRetiredPagesLimit);
  if (now.remap_failure.value_or(false)) raise(verdicts, "MEM", kFail, kRowRemapFailure);
  if (now.retirement_pending.value_or(false)) raise(verdicts, "MEM", kWarn, kPendingPageRetirements);
}

void judge_links(const HealthFacts& now, const HealthFacts* before, Duration span, Verdicts& verdicts) {
  if (!now.links_down.empty()) raise(verdicts, "NVLINK", kFail, kNvlinkDown);
  if (!before) return;
  if (std::uint64_t errors = growth(now.crc_errors, before->crc_errors)) {
    double seconds = std::max(std::chrono::duration<double>(span).count(), 1.0);
    if (static_cast<double>(errors) / seconds >= 100) {
      raise(verdicts, "NVLINK", kFail, kNvlinkCrcThreshold);
    } else {
      raise(verdicts, "NVLINK", kWarn, kNvlinkErrorThreshold);
    }
  }
  if (growth(now.link_errors, before->link_errors)) raise(verdicts, "NVLINK", kFail, kNvlinkCritical);
}

void judge_recovery(const HealthFacts& now, Verdicts& verdicts) {
  switch (now.recovery_action.value_or(0)) {
    case 1:
      return raise(verdicts, "DRIVER", kFail, kRecoveryReset);
    case 2:
      return raise(verdicts, "DRIVER", kFail, kRecoveryReboot);
    case 3:
      return raise(verdicts, "DRIVER", kWarn, kRecoveryDrainP2p);
    case 4:
      return raise(verdicts, "DRIVER", kWarn, kRecoveryDrainReset);
    default:
      return;
  }
}

}  // namespace

Verdicts judge_health(const HealthFacts& now, const HealthFacts* before, Duration span,
                      const std::map<std::uint64_t, std::int64_t>& xids) {
  Verdicts verdicts;
  for (const std::string& watch : health_watches()) verdicts[watch];
  judge_memory(now, verdicts);
  judge_links(now, before, span, verdicts);
  judge_recovery(now, verdicts);
  if (now.inforom_valid && !*now.inforom_valid) raise(verdicts, "INFOROM", kWarn, kCorruptInforom);
  if (!now.power_readable) raise(verdicts, "POWER", kWarn, kPowerUnreadable);
  if (before) {
    judge_pcie(now, *before, span, verdicts);
    if (growth(now.thermal_violation_ns, before->thermal_violation_ns))
      raise(verdicts, "THERMAL", kWarn, kThrottleThermal);
    if (growth(now.power_violation_ns, before->power_violation_ns))
      raise(verdicts, "POWER", kWarn, kThrottlePower);
  }
  for (const XidRule& rule : kXidRules)
    if (xids.contains(rule.xid)) raise(verdicts, rule.watch, rule.state, rule.code);
  return verdicts;
}

const std::vector<std::string>& health_watches() {
  static const std::vector<std::string> watches = {"PCIE",    "NVLINK",  "PMU",   "MCU",    "MEM", "SM",
                                                   "INFOROM", "THERMAL", "POWER", "DRIVER", "ALL"};
  return watches;
}

std::string health_error_text(int code) {
  switch (code) {
    case kOk:
      return "DCGM_FR_OK";
    case kPciReplayRate:
      return "DCGM_FR_PCI_REPLAY_RATE";
    case kVolatileDbe:
      return "DCGM_FR_VOLATILE_DBE_DETECTED";
    case kPendingPageRetirements:
      return "DCGM_FR_PENDING_PAGE_RETIREMENTS";
    case kRetiredPagesLimit:
      return "DCGM_FR_RETIRED_PAGES_LIMIT";
    case 8:
      return "DCGM_FR_RETIRED_PAGES_DBE_LIMIT";
    case kCorruptInforom:
      return "DCGM_FR_CORRUPT_INFOROM";
    // Three names are of before NVIDIA renamed them: dashboards know these.
    case kThrottleThermal:
      return "DCGM_FR_CLOCK_THROTTLE_THERMAL";
    case kPowerUnreadable:
      return "DCGM_FR_POWER_UNREADABLE";
    case kThrottlePower:
      return "DCGM_FR_CLOCK_THROTTLE_POWER";
    case kNvlinkErrorThreshold:
      return "DCGM_FR_NVLINK_ERROR_THRESHOLD";
    case kNvlinkDown:
      return "DCGM_FR_NVLINK_DOWN";
    case 40:
      return "DCGM_FR_THERMAL_VIOLATIONS";
    case 43:
      return "DCGM_FR_THROTTLING_VIOLATION";
    case kNvlinkCrcThreshold:
      return "DCGM_FR_NVLINK_CRC_ERROR_THRESHOLD";
    case kNvlinkCritical:
      return "DCGM_FR_NVLINK_ERROR_CRITICAL";
    case kRowRemapFailure:
      return "DCGM_FR_ROW_REMAP_FAILURE";
    case kUncontained:
      return "DCGM_FR_UNCONTAINED_ERROR";
    case kXid:
      return "DCGM_FR_XID_ERROR";
    case kFallenOffBus:
      return "DCGM_FR_FALLEN_OFF_BUS";
    case kRecoveryReset:
      return "DCGM_FR_GPU_RECOVERY_RESET";
    case kRecoveryReboot:
      return "DCGM_FR_GPU_RECOVERY_REBOOT";
    case kRecoveryDrainP2p:
      return "DCGM_FR_GPU_RECOVERY_DRAIN_P2P";
    case kRecoveryDrainReset:
      return "DCGM_FR_GPU_RECOVERY_DRAIN_RESET";
    default:
      return "DCGM_FR_UNKNOWN(" + std::to_string(code) + ")";
  }
}

}  // namespace gpuop::telemetry
