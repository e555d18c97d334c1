#include "hardware/nvml.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <mutex>

#include "hardware/driver_root.h"

namespace gpuop::hardware {

namespace {

std::string format_uuid(const std::uint8_t (&bytes)[16]) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string text;
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += kHex[bytes[i] >> 4];
    text += kHex[bytes[i] & 15];
  }
  return text;
}

// Text of an out buffer that a library may have left without its end.
template <std::size_t N>
std::string text_of(const std::array<char, N>& buffer) {
  return std::string(buffer.data(), strnlen(buffer.data(), N));
}

}  // namespace

// Symbols by name. wait_event() may look one up while another thread does.
struct Nvml::Symbols {
  std::mutex mutex;
  std::map<std::string_view, void*> known;  // keys are string literals
};

Code code_of(int nvml_return) {
  switch (nvml_return) {
    case abi::kNotSupported:
    case abi::kFunctionNotFound:
      return Code::kUnsupported;
    case abi::kNotFound:
      return Code::kNotFound;
    case abi::kInvalidArgument:
      return Code::kInvalid;
    case abi::kNoPermission:
      return Code::kPermission;
    case abi::kTimeout:
      return Code::kTimeout;
    case abi::kInUse:
      return Code::kBusy;
    case abi::kDriverNotLoaded:
    case abi::kLibraryNotFound:
    case abi::kUninitialized:
      return Code::kUnavailable;
    case abi::kInsufficientResources:
      return Code::kNoSpace;
    default:
      return Code::kIo;
  }
}

std::string_view brand_name(int brand) {
  static constexpr std::array<std::string_view, 17> kNames = {
      "Unknown",   "Quadro",      "Tesla",     "NVS",        "Grid",      "GeForce",
      "Titan",     "NvidiaVApps", "NvidiaVPC", "NvidiaVCS",  "NvidiaVWS", "NvidiaCloudGaming",
      "QuadroRTX", "NvidiaRTX",   "Nvidia",    "GeForceRTX", "TitanRTX"};
  return brand >= 0 && brand < static_cast<int>(kNames.size()) ? kNames[static_cast<std::size_t>(brand)]
                                                               : kNames[0];
}

std::string_view architecture_name(unsigned architecture) {
  switch (architecture) {
    case 2:
      return "Kepler";
    case 3:
      return "Maxwell";
    case 4:
      return "Pascal";
    case 5:
      return "Volta";
    case 6:
      return "Turing";
    case 7:
      return "Ampere";
    case 8:
      return "Ada Lovelace";
    case 9:
      return "Hopper";
    case 10:
      return "Blackwell";
    case 13:
      return "Rubin";
    default:
      return "Unknown";
  }
}

Nvml::Nvml(void* handle, std::filesystem::path library)
    : handle_(handle), library_(std::move(library)), symbols_(std::make_unique<Symbols>()) {}

Nvml::~Nvml() {
  if (auto shutdown = reinterpret_cast<int (*)()>(symbol("nvmlShutdown"))) shutdown();
  dlclose(handle_);
}

Result<std::unique_ptr<Nvml>> Nvml::open(const std::filesystem::path& library) {
  void* handle = dlopen(library.c_str(), RTLD_LAZY | RTLD_GLOBAL);
  if (handle == nullptr) {
    const char* why = dlerror();
    return fail(Code::kUnavailable, "load NVML '" + library.string() +
                                        "': ERROR_LIBRARY_NOT_FOUND: " + (why != nullptr ? why : "unknown"));
  }
  auto init = reinterpret_cast<int (*)()>(dlsym(handle, "nvmlInit_v2"));
  if (init == nullptr) {
    dlclose(handle);
    return fail(Code::kUnavailable,
                "load NVML '" + library.string() + "': nvmlInit_v2 is missing: not an NVML library");
  }
  int code = init();
  if (code != abi::kSuccess) {
    auto text = reinterpret_cast<const char* (*)(int)>(dlsym(handle, "nvmlErrorString"));
    std::string why = text != nullptr ? text(code) : "code " + std::to_string(code);
    dlclose(handle);
    return fail(code_of(code), "initialise NVML '" + library.string() + "': " + why);
  }
  return std::unique_ptr<Nvml>(new Nvml(handle, library));
}

Result<std::unique_ptr<Nvml>> Nvml::open_root(const std::filesystem::path& driver_root) {
  return open(nvml_library(driver_root));
}

void* Nvml::symbol(const char* name) const {
  std::lock_guard lock(symbols_->mutex);
  auto [it, fresh] = symbols_->known.try_emplace(name, nullptr);
  if (fresh) it->second = dlsym(handle_, name);
  return it->second;
}

bool Nvml::has(const char* name) const {
  return symbol(name) != nullptr;
}

std::string Nvml::error_text(int code) const {
  if (auto text = reinterpret_cast<const char* (*)(int)>(symbol("nvmlErrorString"))) {
    if (const char* found = text(code)) return found;
  }
  return "code " + std::to_string(code);
}

Error Nvml::error(const char* name, int code) const {
  last_code_ = code;
  return Error(code_of(code), std::string(name) + ": " + error_text(code));
}

template <class... Args>
Result<> Nvml::call(const char* name, Args... args) const {
  auto function = reinterpret_cast<int (*)(Args...)>(symbol(name));
  if (function == nullptr) {
    last_code_ = abi::kFunctionNotFound;
    return fail(Code::kUnsupported, std::string(name) + ": this NVML library does not offer it");
  }
  int code = function(args...);
  if (code != abi::kSuccess) return fail(error(name, code));
  return {};
}

Result<std::string> Nvml::driver_version() const {
  std::array<char, 80> buffer{};
  TRY(call("nvmlSystemGetDriverVersion", buffer.data(), 80u));
  return text_of(buffer);
}

Result<std::string> Nvml::nvml_version() const {
  std::array<char, 80> buffer{};
  TRY(call("nvmlSystemGetNVMLVersion", buffer.data(), 80u));
  return text_of(buffer);
}

Result<int> Nvml::cuda_version() const {
  int version = 0;
  TRY(call(has("nvmlSystemGetCudaDriverVersion_v2") ? "nvmlSystemGetCudaDriverVersion_v2"
                                                    : "nvmlSystemGetCudaDriverVersion",
           &version));
  return version;
}

Result<unsigned> Nvml::device_count() const {
  unsigned count = 0;
  TRY(call("nvmlDeviceGetCount_v2", &count));
  return count;
}

Result<Nvml::Device> Nvml::device_by_index(unsigned index) const {
  Device device = nullptr;
  TRY(call("nvmlDeviceGetHandleByIndex_v2", index, &device));
  return device;
}

Result<Nvml::Device> Nvml::device_by_uuid(const std::string& uuid) const {
  Device device = nullptr;
  TRY(call("nvmlDeviceGetHandleByUUID", uuid.c_str(), &device));
  return device;
}

Result<Nvml::Device> Nvml::device_by_bus_id(const std::string& bus_id) const {
  Device device = nullptr;
  TRY(call("nvmlDeviceGetHandleByPciBusId_v2", bus_id.c_str(), &device));
  return device;
}

Result<std::string> Nvml::name(Device device) const {
  return read_text("nvmlDeviceGetName", device);
}
Result<std::string> Nvml::uuid(Device device) const {
  return read_text("nvmlDeviceGetUUID", device);
}

Result<std::string> Nvml::serial(Device device) const {
  std::array<char, 30> buffer{};
  TRY(call("nvmlDeviceGetSerial", device, buffer.data(), 30u));
  return text_of(buffer);
}

Result<unsigned> Nvml::index(Device device) const {
  return read_u32("nvmlDeviceGetIndex", device);
}
Result<unsigned> Nvml::minor_number(Device device) const {
  return read_u32("nvmlDeviceGetMinorNumber", device);
}

Result<abi::PciInfo> Nvml::pci_info(Device device) const {
  abi::PciInfo info{};
  TRY(call("nvmlDeviceGetPciInfo_v3", device, &info));
  return info;
}

Result<abi::Memory> Nvml::memory_v1(Device device) const {
  abi::Memory memory{};
  TRY(call("nvmlDeviceGetMemoryInfo", device, &memory));
  return memory;
}

Result<MemoryUse> Nvml::memory(Device device) const {
  abi::MemoryV2 memory{};
  memory.version = abi::version_word(sizeof(memory), 2);
  auto second = call("nvmlDeviceGetMemoryInfo_v2", device, &memory);
  if (second) return MemoryUse{memory.total, memory.used, memory.free, memory.reserved};
  if (last_code_ != abi::kFunctionNotFound && last_code_ != abi::kArgumentVersionMismatch) {
    return fail(std::move(second).error());
  }
  abi::Memory first = TRY(memory_v1(device));
  return MemoryUse{first.total, first.used, first.free, std::nullopt};
}

Result<ComputeCapability> Nvml::compute_capability(Device device) const {
  ComputeCapability capability;
  TRY(call("nvmlDeviceGetCudaComputeCapability", device, &capability.major, &capability.minor));
  return capability;
}

Result<int> Nvml::brand(Device device) const {
  int value = 0;
  TRY(call("nvmlDeviceGetBrand", device, &value));
  return value;
}

Result<unsigned> Nvml::architecture(Device device) const {
  return read_u32("nvmlDeviceGetArchitecture", device);
}

Result<unsigned> Nvml::addressing_mode(Device device) const {
  abi::AddressingMode mode{abi::version_word(sizeof(abi::AddressingMode), 1), 0};
  TRY(call("nvmlDeviceGetAddressingMode", device, &mode));
  return mode.value;
}

Result<unsigned> Nvml::memory_numa_node(Device device) const {
  return read_u32("nvmlDeviceGetNumaNodeId", device);
}

Result<int> Nvml::compute_mode(Device device) const {
  int mode = 0;
  TRY(call("nvmlDeviceGetComputeMode", device, &mode));
  return mode;
}

Result<> Nvml::set_compute_mode(Device device, int mode) const {
  return call("nvmlDeviceSetComputeMode", device, mode);
}

Result<bool> Nvml::persistence_mode(Device device) const {
  int mode = 0;
  TRY(call("nvmlDeviceGetPersistenceMode", device, &mode));
  return mode != 0;
}

Result<> Nvml::set_persistence_mode(Device device, bool on) const {
  return call("nvmlDeviceSetPersistenceMode", device, on ? 1 : 0);
}

Result<abi::EventSet> Nvml::create_event_set() const {
  abi::EventSet set = nullptr;
  TRY(call("nvmlEventSetCreate", &set));
  return set;
}

void Nvml::free_event_set(abi::EventSet set) const {
  // Nothing can be done about a set that the library will not free.
  auto freed = call("nvmlEventSetFree", set);
  static_cast<void>(freed);
}

Result<std::uint64_t> Nvml::supported_events(Device device) const {
  unsigned long long mask = 0;
  TRY(call("nvmlDeviceGetSupportedEventTypes", device, &mask));
  return mask;
}

Result<> Nvml::register_events(Device device, std::uint64_t mask, abi::EventSet set) const {
  return call("nvmlDeviceRegisterEvents", device, static_cast<unsigned long long>(mask), set);
}

Result<abi::EventData> Nvml::wait_event(abi::EventSet set, unsigned timeout_ms) const {
  using Wait = int (*)(abi::EventSet, abi::EventData*, unsigned);
  abi::EventData data{};
  auto wait = reinterpret_cast<Wait>(symbol("nvmlEventSetWait_v2"));
  bool old = wait == nullptr;
  if (old) wait = reinterpret_cast<Wait>(symbol("nvmlEventSetWait"));
  if (wait == nullptr)
    return fail(Code::kUnsupported, "nvmlEventSetWait: this NVML library does not offer it");
  int code = wait(set, &data, timeout_ms);
  // last_code_ belongs to the other thread.
  if (code != abi::kSuccess) return fail(code_of(code), "nvmlEventSetWait: " + error_text(code));
  if (old) data.gpu_instance_id = data.compute_instance_id = abi::kNoInstance;
  return data;
}

Result<int> Nvml::topology_ancestor(Device a, Device b) const {
  int level = 0;
  TRY(call("nvmlDeviceGetTopologyCommonAncestor", a, b, &level));
  return level;
}

Result<int> Nvml::p2p_status(Device a, Device b, int caps_index) const {
  int status = 0;
  TRY(call("nvmlDeviceGetP2PStatus", a, b, caps_index, &status));
  return status;
}

Result<bool> Nvml::nvlink_active(Device device, unsigned link) const {
  int state = 0;
  TRY(call("nvmlDeviceGetNvLinkState", device, link, &state));
  return state == 1;
}

Result<abi::PciInfo> Nvml::nvlink_remote(Device device, unsigned link) const {
  abi::PciInfo info{};
  TRY(call("nvmlDeviceGetNvLinkRemotePciInfo_v2", device, link, &info));
  return info;
}

Result<int> Nvml::nvlink_remote_type(Device device, unsigned link) const {
  int type = 255;
  TRY(call("nvmlDeviceGetNvLinkRemoteDeviceType", device, link, &type));
  return type;
}

Result<Fabric> Nvml::fabric(Device device) const {
  abi::FabricInfoV3 third{};
  third.version = abi::version_word(sizeof(third), 3);
  auto answer = call("nvmlDeviceGetGpuFabricInfoV", device, &third);
  if (answer) {
    return Fabric{format_uuid(third.cluster_uuid),
                  third.clique_id,
                  third.status,
                  third.state,
                  third.health_mask,
                  third.health_summary};
  }
  if (last_code_ == abi::kArgumentVersionMismatch) {
    abi::FabricInfoV2 second{};
    second.version = abi::version_word(sizeof(second), 2);
    TRY(call("nvmlDeviceGetGpuFabricInfoV", device, &second));
    return Fabric{format_uuid(second.cluster_uuid),
                  second.clique_id,
                  second.status,
                  second.state,
                  second.health_mask,
                  std::nullopt};
  }
  if (last_code_ != abi::kFunctionNotFound) return fail(std::move(answer).error());
  abi::FabricInfo first{};
  TRY(call("nvmlDeviceGetGpuFabricInfo", device, &first));
  return Fabric{format_uuid(first.cluster_uuid),
                first.clique_id,
                first.status,
                first.state,
                std::nullopt,
                std::nullopt};
}

Result<> Nvml::field_values(Device device, std::vector<abi::FieldValue>& fields) const {
  return call("nvmlDeviceGetFieldValues", device, static_cast<int>(fields.size()), fields.data());
}

Result<std::vector<abi::ProcessInfo>> Nvml::compute_processes(Device device) const {
  std::vector<abi::ProcessInfo> processes;
  // Processes come and go between the two calls: ask for room until the answer fits.
  for (unsigned room = 16;; room *= 2) {
    processes.resize(room);
    unsigned count = room;
    auto answer = call("nvmlDeviceGetComputeRunningProcesses_v3", device, &count, processes.data());
    if (answer) {
      processes.resize(std::min(count, room));
      return processes;
    }
    if (last_code_ != abi::kInsufficientSize || room > 65536) return fail(std::move(answer).error());
  }
}

Result<abi::Utilization> Nvml::utilization(Device device) const {
  abi::Utilization use{};
  TRY(call("nvmlDeviceGetUtilizationRates", device, &use));
  return use;
}

Result<abi::Bar1Memory> Nvml::bar1_memory(Device device) const {
  abi::Bar1Memory memory{};
  TRY(call("nvmlDeviceGetBAR1MemoryInfo", device, &memory));
  return memory;
}

Result<unsigned> Nvml::read_u32(const char* name, Device device) const {
  unsigned value = 0;
  TRY(call(name, device, &value));
  return value;
}

Result<unsigned> Nvml::read_u32(const char* name, Device device, unsigned argument) const {
  unsigned value = 0;
  TRY(call(name, device, argument, &value));
  return value;
}

Result<std::uint64_t> Nvml::read_u64(const char* name, Device device) const {
  unsigned long long value = 0;
  TRY(call(name, device, &value));
  return value;
}

Result<std::string> Nvml::read_text(const char* name, Device device) const {
  std::array<char, 96> buffer{};
  TRY(call(name, device, buffer.data(), 96u));
  return text_of(buffer);
}

Result<std::string> Nvml::read_text(const char* name, Device device, unsigned argument) const {
  std::array<char, 96> buffer{};
  TRY(call(name, device, argument, buffer.data(), 96u));
  return text_of(buffer);
}

Result<unsigned> Nvml::read_u32_pair(const char* name, Device device) const {
  unsigned first = 0;
  unsigned second = 0;
  TRY(call(name, device, &first, &second));
  return first;
}

Result<int> Nvml::margin_temperature(Device device) const {
  abi::MarginTemperature margin{abi::version_word(sizeof(abi::MarginTemperature), 1), 0};
  TRY(call("nvmlDeviceGetMarginTemperature", device, &margin));
  return margin.margin;
}

Result<unsigned> Nvml::retired_pages(Device device, unsigned cause) const {
  unsigned count = 0;
  auto asked =
      call("nvmlDeviceGetRetiredPages", device, cause, &count, static_cast<unsigned long long*>(nullptr));
  // The addresses are not wanted: too little room for them is an answer.
  if (!asked && last_code_ != abi::kInsufficientSize) return fail(std::move(asked).error());
  return count;
}

Result<std::uint64_t> Nvml::memory_errors(Device device, unsigned error, unsigned counter,
                                          unsigned location) const {
  unsigned long long count = 0;
  TRY(call("nvmlDeviceGetMemoryErrorCounter", device, error, counter, location, &count));
  return count;
}

Result<abi::RowRemapperHistogram> Nvml::row_remapper_histogram(Device device) const {
  abi::RowRemapperHistogram histogram{};
  TRY(call("nvmlDeviceGetRowRemapperHistogram", device, &histogram));
  return histogram;
}

Result<bool> Nvml::vgpu_licensed(Device device) const {
  abi::GridFeatures features{};
  auto asked = call("nvmlDeviceGetGridLicensableFeatures_v4", device, &features);
  if (!asked && last_code_ == abi::kFunctionNotFound)
    asked = call("nvmlDeviceGetGridLicensableFeatures_v3", device, &features);
  if (!asked) return fail(std::move(asked).error());
  if (features.is_supported == 0) return false;
  for (unsigned i = 0; i < std::min(features.count, 3u); ++i) {
    if (features.features[i].code == abi::kGridFeatureVgpu && features.features[i].state > 0) return true;
  }
  return false;
}

Result<bool> Nvml::inforom_valid(Device device) const {
  auto valid = call("nvmlDeviceValidateInforom", device);
  if (valid) return true;
  constexpr int kCorruptedInforom = 14;
  if (last_code_ == kCorruptedInforom) return false;
  return fail(std::move(valid).error());
}

Result<std::vector<abi::ProcessUtilization>> Nvml::process_utilization(Device device,
                                                                       std::uint64_t since) const {
  std::vector<abi::ProcessUtilization> samples;
  unsigned count = 0;
  for (unsigned room = 64; room <= 65536; room *= 2) {
    samples.resize(room);
    count = room;
    auto asked = call("nvmlDeviceGetProcessUtilization", device, samples.data(), &count,
                      static_cast<unsigned long long>(since));
    if (asked) {
      samples.resize(std::min(count, room));
      return samples;
    }
    if (last_code_ == abi::kNotFound) return std::vector<abi::ProcessUtilization>{};  // nothing ran
    if (last_code_ != abi::kInsufficientSize) return fail(std::move(asked).error());
  }
  return fail(Code::kIo, "nvmlDeviceGetProcessUtilization: the answer keeps growing");
}

Result<bool> Nvml::gpm_supported(Device device) const {
  abi::GpmSupport support{1, 0};
  TRY(call("nvmlGpmQueryDeviceSupport", device, &support));
  return support.is_supported_device != 0;
}

Result<abi::GpmSample> Nvml::gpm_sample_alloc() const {
  abi::GpmSample sample = nullptr;
  TRY(call("nvmlGpmSampleAlloc", &sample));
  return sample;
}

void Nvml::gpm_sample_free(abi::GpmSample sample) const {
  auto freed = call("nvmlGpmSampleFree", sample);
  static_cast<void>(freed);
}

Result<> Nvml::gpm_sample(Device device, abi::GpmSample sample) const {
  return call("nvmlGpmSampleGet", device, sample);
}

Result<> Nvml::gpm_mig_sample(Device parent, unsigned gpu_instance, abi::GpmSample sample) const {
  return call("nvmlGpmMigSampleGet", parent, gpu_instance, sample);
}

Result<> Nvml::gpm_metrics(abi::GpmMetrics& metrics) const {
  return call("nvmlGpmMetricsGet", &metrics);
}

// --- MIG ---

Result<MigMode> Nvml::mig_mode(Device device) const {
  unsigned current = 0;
  unsigned pending = 0;
  TRY(call("nvmlDeviceGetMigMode", device, &current, &pending));
  return MigMode{current == 1, pending == 1};
}

Result<int> Nvml::set_mig_mode(Device device, bool on) const {
  int status = 0;
  TRY(call("nvmlDeviceSetMigMode", device, on ? 1u : 0u, &status));
  return status;
}

Result<unsigned> Nvml::max_mig_devices(Device device) const {
  return read_u32("nvmlDeviceGetMaxMigDeviceCount", device);
}

Result<Nvml::Device> Nvml::mig_device(Device parent, unsigned index) const {
  Device device = nullptr;
  auto answer = call("nvmlDeviceGetMigDeviceHandleByIndex", parent, index, &device);
  if (answer) return device;
  // An index without a device is NOT_FOUND on some drivers and INVALID_ARGUMENT on others.
  if (last_code_ == abi::kInvalidArgument) return fail(Code::kNotFound, answer.error().text());
  return fail(std::move(answer).error());
}

Result<bool> Nvml::is_mig_device(Device device) const {
  unsigned is = TRY(read_u32("nvmlDeviceIsMigDeviceHandle", device));
  return is != 0;
}

Result<Nvml::Device> Nvml::mig_parent(Device mig) const {
  Device parent = nullptr;
  TRY(call("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", mig, &parent));
  return parent;
}

Result<unsigned> Nvml::gpu_instance_id(Device mig) const {
  return read_u32("nvmlDeviceGetGpuInstanceId", mig);
}
Result<unsigned> Nvml::compute_instance_id(Device mig) const {
  return read_u32("nvmlDeviceGetComputeInstanceId", mig);
}

Result<abi::DeviceAttributes> Nvml::attributes(Device mig) const {
  abi::DeviceAttributes attributes{};
  TRY(call("nvmlDeviceGetAttributes_v2", mig, &attributes));
  return attributes;
}

Result<abi::GpuInstanceProfileInfo> Nvml::gpu_instance_profile(Device device, unsigned profile) const {
  abi::GpuInstanceProfileInfo info{};
  TRY(call("nvmlDeviceGetGpuInstanceProfileInfo", device, profile, &info));
  return info;
}

Result<std::vector<abi::Placement>> Nvml::possible_placements(Device device, unsigned profile_id) const {
  unsigned count = 0;
  TRY(call("nvmlDeviceGetGpuInstancePossiblePlacements_v2", device, profile_id,
           static_cast<abi::Placement*>(nullptr), &count));
  std::vector<abi::Placement> placements(count);
  if (count == 0) return placements;
  TRY(call("nvmlDeviceGetGpuInstancePossiblePlacements_v2", device, profile_id, placements.data(), &count));
  placements.resize(std::min<std::size_t>(count, placements.size()));
  return placements;
}

Result<unsigned> Nvml::remaining_capacity(Device device, unsigned profile_id) const {
  return read_u32("nvmlDeviceGetGpuInstanceRemainingCapacity", device, profile_id);
}

Result<abi::GpuInstance> Nvml::create_gpu_instance(Device device, unsigned profile_id,
                                                   const abi::Placement* placement) const {
  abi::GpuInstance instance = nullptr;
  if (placement != nullptr) {
    TRY(call("nvmlDeviceCreateGpuInstanceWithPlacement", device, profile_id, placement, &instance));
  } else {
    TRY(call("nvmlDeviceCreateGpuInstance", device, profile_id, &instance));
  }
  return instance;
}

Result<> Nvml::destroy(abi::GpuInstance instance) const {
  return call("nvmlGpuInstanceDestroy", instance);
}

Result<std::vector<abi::GpuInstance>> Nvml::gpu_instances(Device device, unsigned profile_id,
                                                          unsigned limit) const {
  std::vector<abi::GpuInstance> instances(limit);
  unsigned count = limit;
  TRY(call("nvmlDeviceGetGpuInstances", device, profile_id, instances.data(), &count));
  instances.resize(std::min(count, limit));
  return instances;
}

Result<abi::GpuInstance> Nvml::gpu_instance(Device device, unsigned id) const {
  abi::GpuInstance instance = nullptr;
  TRY(call("nvmlDeviceGetGpuInstanceById", device, id, &instance));
  return instance;
}

Result<abi::GpuInstanceInfo> Nvml::info(abi::GpuInstance instance) const {
  abi::GpuInstanceInfo info{};
  TRY(call("nvmlGpuInstanceGetInfo", instance, &info));
  return info;
}

Result<abi::ComputeInstanceProfileInfo> Nvml::compute_instance_profile(abi::GpuInstance instance,
                                                                       unsigned profile,
                                                                       unsigned engine) const {
  abi::ComputeInstanceProfileInfo info{};
  TRY(call("nvmlGpuInstanceGetComputeInstanceProfileInfo", instance, profile, engine, &info));
  return info;
}

Result<abi::ComputeInstance> Nvml::create_compute_instance(abi::GpuInstance instance,
                                                           unsigned profile_id) const {
  abi::ComputeInstance created = nullptr;
  TRY(call("nvmlGpuInstanceCreateComputeInstance", instance, profile_id, &created));
  return created;
}

Result<> Nvml::destroy(abi::ComputeInstance instance) const {
  return call("nvmlComputeInstanceDestroy", instance);
}

Result<std::vector<abi::ComputeInstance>> Nvml::compute_instances(abi::GpuInstance instance,
                                                                  unsigned profile_id, unsigned limit) const {
  std::vector<abi::ComputeInstance> instances(limit);
  unsigned count = limit;
  TRY(call("nvmlGpuInstanceGetComputeInstances", instance, profile_id, instances.data(), &count));
  instances.resize(std::min(count, limit));
  return instances;
}

Result<abi::ComputeInstance> Nvml::compute_instance(abi::GpuInstance instance, unsigned id) const {
  abi::ComputeInstance found = nullptr;
  TRY(call("nvmlGpuInstanceGetComputeInstanceById", instance, id, &found));
  return found;
}

Result<abi::ComputeInstanceInfo> Nvml::info(abi::ComputeInstance instance) const {
  abi::ComputeInstanceInfo info{};
  TRY(call("nvmlComputeInstanceGetInfo_v2", instance, &info));
  return info;
}

}  // namespace gpuop::hardware
