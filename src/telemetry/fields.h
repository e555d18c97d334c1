// The fields of the exporter, each declared once: number, names, type, the lowest entity on which the figure
// means something, and where NVML has it (telemetry.md §3.1, §3.4, §3.5).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace gpuop::telemetry {

// What a field read as; monostate: nothing could be read.
using Value = std::variant<std::monostate, std::int64_t, double, std::string>;

// Whether a value stands for "none" (§3.3): nothing, DCGM's blank numbers and texts, NaN, infinity.
bool is_blank(const Value& value);

enum class Type { kInt, kDouble, kText };
enum class Level { kNode, kGpu, kInstance, kCompute };

// Which call has the figure. `symbol`, `argument` and `second` are the call's own.
enum class Call {
  kNone,         // known, and never offered by NVML: the field has no samples
  kU32,          // unsigned f(device)
  kU32Arg,       // unsigned f(device, argument)
  kU64,          // unsigned long long f(device)
  kUtilization,  // argument 0: GPU, 1: memory
  kEngine,       // encoder, decoder
  kFieldValue,   // nvmlDeviceGetFieldValues id `argument`, scope `second`
  kLinkRate,     // change of the sum of field ids; argument 138, 139 or 0 for both; scope `second`
  kFrameBuffer,  // argument: a FrameBuffer
  kBar1,         // argument 0 total, 1 used, 2 free
  kText,         // text f(device)
  kTextArg,      // text f(device, argument)
  kBrand,        // nvmlDeviceGetBrand as text
  kIdentity,     // argument: an Identity, from what identifies the GPU
  kPair,         // two unsigned outs; argument: which (power constraints, MIG mode, ECC mode)
  kMargin,       // nvmlDeviceGetMarginTemperature
  kRetired,      // retired pages of cause `argument`
  kEccCounter,   // nvmlDeviceGetMemoryErrorCounter: argument is error << 8 | counter, second the location
  kRemapBanks,   // row remapper histogram, its argument-th number
  kFabric,       // argument: 0 status, 1 error code, 2 cluster, 3 clique, 4 health mask
  kLicence,      // vGPU licence held
  kGpm,          // GPM metric `argument`
  kXid,          // latest XID, from events
  kSystem,       // argument 0: driver version, 1: NVML version, 2: CUDA version
};

enum FrameBuffer : unsigned { kFbTotal, kFbFree, kFbUsed, kFbReserved, kFbUsedShare };
enum Identity : unsigned { kIdName, kIdUuid, kIdMinor, kIdBusId };

enum class Scale {
  kPlain,
  kMilli,        // divided by 1000.0
  kMilliWhole,   // divided by 1000, whole numbers, as a double
  kPercent,      // divided by 100.0
  kMebi,         // times 1048576, truncated
  kTemperature,  // above 200: nothing
};

struct Field {
  std::string name;
  int id = 0;
  Type type = Type::kInt;
  Level level = Level::kGpu;
  Call call = Call::kNone;
  const char* symbol = nullptr;
  unsigned argument = 0;
  unsigned second = 0;
  Scale scale = Scale::kPlain;

  bool profiling() const { return id >= 1000 && id < 1100; }
};

inline constexpr int kXidField = 230;
inline constexpr int kClockReasonsField = 112;
inline constexpr int kGpuUtilField = 203;
inline constexpr int kFbUsedField = 252;
inline constexpr unsigned kAllLinks = 0xFFFFFFFF;

// The exporter's own families (§2.3).
inline constexpr int kXidCount = 9001;
inline constexpr int kClockEventsCount = 9002;
inline constexpr int kHealthStatus = 9003;
inline constexpr int kP2pStatus = 9004;
inline constexpr int kXidTotal = 9005;
inline constexpr int kClockEventsTotal = 9006;

std::span<const Field> fields();
const Field* field_by_id(int id);

// The number that a name of a collectors file stands for, by the order of §2.1: fields, 1.x names, 4.6
// aliases, own families.
std::optional<int> field_id(std::string_view name);
// What to offer for an unknown name: up to three near ones, or those that people mean by it.
std::vector<std::string> candidates_for(std::string_view name);

}  // namespace gpuop::telemetry
