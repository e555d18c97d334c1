// NVML, loaded at run time: libnvidia-ml.so.1 by path or soname, symbols looked up when first used
// (device-plugin-gfd-mps.md §7). One object is one successful nvmlInit_v2; its destructor shuts down.
//
// Errors: every call answers "nvmlFunction: the library's own text". Codes: NOT_SUPPORTED and an absent
// symbol are kUnsupported, NOT_FOUND kNotFound, INVALID_ARGUMENT kInvalid, NO_PERMISSION kPermission, TIMEOUT
// kTimeout, IN_USE kBusy, DRIVER_NOT_LOADED and an absent library kUnavailable, everything else kIo.
// last_code() has the library's own number of the latest call that failed.
//
// Threads: NVML is thread-safe, this object is not; a thread that waits for events uses only wait_event().
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "base/result.h"
#include "hardware/nvml_abi.h"

namespace gpuop::hardware {

struct MigMode {
  bool current = false;
  bool pending = false;
};

struct ComputeCapability {
  int major = 0;
  int minor = 0;
};

// Fabric registration, from whichever call the library has (§7.6).
struct Fabric {
  std::string cluster_uuid;  // "xxxxxxxx-xxxx-…", zeros when unset
  unsigned clique_id = 0;
  unsigned status = 0;  // an NVML return code
  unsigned state = 0;   // 0 not supported, 1 not started, 2 in progress, 3 completed
  std::optional<unsigned> health_mask;
  std::optional<unsigned> health_summary;  // 0 not supported, 1 healthy, 2 unhealthy, 3 limited
};

struct MemoryUse {  // bytes
  std::uint64_t total = 0;
  std::uint64_t used = 0;
  std::uint64_t free = 0;
  std::optional<std::uint64_t> reserved;  // only with the v2 call
};

class Nvml {
 public:
  using Device = abi::Device;

  // Loads `library` (a path, or a soname for the loader's own search) and initialises it.
  static Result<std::unique_ptr<Nvml>> open(const std::filesystem::path& library = "libnvidia-ml.so.1");
  // Loads the library found beneath a driver root (driver_root.h); "/" and "" mean the plain soname.
  static Result<std::unique_ptr<Nvml>> open_root(const std::filesystem::path& driver_root);
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  const std::filesystem::path& library() const { return library_; }
  int last_code() const { return last_code_; }
  std::string error_text(int code) const;
  bool has(const char* symbol) const;  // whether the library offers it

  Result<std::string> driver_version() const;
  Result<std::string> nvml_version() const;
  Result<int> cuda_version() const;  // 12040 = 12.4

  Result<unsigned> device_count() const;
  Result<Device> device_by_index(unsigned index) const;
  Result<Device> device_by_uuid(const std::string& uuid) const;
  Result<Device> device_by_bus_id(const std::string& bus_id) const;
  Result<std::string> name(Device device) const;
  Result<std::string> uuid(Device device) const;
  Result<std::string> serial(Device device) const;
  Result<unsigned> index(Device device) const;
  Result<unsigned> minor_number(Device device) const;
  Result<abi::PciInfo> pci_info(Device device) const;
  Result<MemoryUse> memory(Device device) const;  // v2 where the library has it, else v1
  Result<abi::Memory> memory_v1(Device device) const;
  Result<ComputeCapability> compute_capability(Device device) const;
  Result<int> brand(Device device) const;
  Result<unsigned> architecture(Device device) const;
  Result<unsigned> addressing_mode(Device device) const;  // 0 none, 1 HMM, 2 ATS
  Result<unsigned> memory_numa_node(Device device) const;
  Result<int> compute_mode(Device device) const;
  Result<> set_compute_mode(Device device, int mode) const;
  Result<bool> persistence_mode(Device device) const;
  Result<> set_persistence_mode(Device device, bool on) const;

  Result<MigMode> mig_mode(Device device) const;           // kUnsupported: not MIG capable
  Result<int> set_mig_mode(Device device, bool on) const;  // answers the activation status, an NVML code
  Result<unsigned> max_mig_devices(Device device) const;
  Result<Device> mig_device(Device parent, unsigned index) const;  // kNotFound: a hole
  Result<bool> is_mig_device(Device device) const;
  Result<Device> mig_parent(Device mig) const;
  Result<unsigned> gpu_instance_id(Device mig) const;
  Result<unsigned> compute_instance_id(Device mig) const;
  Result<abi::DeviceAttributes> attributes(Device mig) const;

  Result<abi::GpuInstanceProfileInfo> gpu_instance_profile(Device device, unsigned profile) const;
  Result<std::vector<abi::Placement>> possible_placements(Device device, unsigned profile_id) const;
  Result<unsigned> remaining_capacity(Device device, unsigned profile_id) const;
  Result<abi::GpuInstance> create_gpu_instance(Device device, unsigned profile_id,
                                               const abi::Placement* placement = nullptr) const;
  Result<> destroy(abi::GpuInstance instance) const;
  Result<std::vector<abi::GpuInstance>> gpu_instances(Device device, unsigned profile_id,
                                                      unsigned limit) const;
  Result<abi::GpuInstance> gpu_instance(Device device, unsigned id) const;
  Result<abi::GpuInstanceInfo> info(abi::GpuInstance instance) const;
  Result<abi::ComputeInstanceProfileInfo> compute_instance_profile(abi::GpuInstance instance,
                                                                   unsigned profile,
                                                                   unsigned engine = 0) const;
  Result<abi::ComputeInstance> create_compute_instance(abi::GpuInstance instance, unsigned profile_id) const;
  Result<> destroy(abi::ComputeInstance instance) const;
  Result<std::vector<abi::ComputeInstance>> compute_instances(abi::GpuInstance instance, unsigned profile_id,
                                                              unsigned limit) const;
  Result<abi::ComputeInstance> compute_instance(abi::GpuInstance instance, unsigned id) const;
  Result<abi::ComputeInstanceInfo> info(abi::ComputeInstance instance) const;

  Result<abi::EventSet> create_event_set() const;
  void free_event_set(abi::EventSet set) const;
  Result<std::uint64_t> supported_events(Device device) const;
  Result<> register_events(Device device, std::uint64_t mask, abi::EventSet set) const;
  // Blocks up to `timeout_ms`; kTimeout when nothing came. With the v1 call the instance ids are kNoInstance.
  // May be called from another thread than the rest.
  Result<abi::EventData> wait_event(abi::EventSet set, unsigned timeout_ms) const;

  // 0 internal, 10 single, 20 multiple, 30 host bridge, 40 node, 50 system.
  Result<int> topology_ancestor(Device a, Device b) const;
  Result<int> p2p_status(Device a, Device b, int caps_index) const;  // 0: works
  Result<bool> nvlink_active(Device device, unsigned link) const;
  Result<abi::PciInfo> nvlink_remote(Device device, unsigned link) const;
  Result<int> nvlink_remote_type(Device device, unsigned link) const;  // 0 GPU, 1 NPU, 2 switch, 255 unknown
  Result<Fabric> fabric(Device device) const;

  // Fills `fields` in place; each has its own nvml_return. An error only when the call itself failed.
  Result<> field_values(Device device, std::vector<abi::FieldValue>& fields) const;
  Result<std::vector<abi::ProcessInfo>> compute_processes(Device device) const;
  Result<abi::Utilization> utilization(Device device) const;
  Result<abi::Bar1Memory> bar1_memory(Device device) const;

  // The many functions of one shape, by name: out is an unsigned int, a 64-bit one, or text; `argument` is
  // the enumerator of those that take one (clock kind, temperature sensor, InfoROM object, …).
  Result<unsigned> read_u32(const char* symbol, Device device) const;
  Result<unsigned> read_u32(const char* symbol, Device device, unsigned argument) const;
  Result<std::uint64_t> read_u64(const char* symbol, Device device) const;
  Result<std::string> read_text(const char* symbol, Device device) const;
  Result<std::string> read_text(const char* symbol, Device device, unsigned argument) const;
  // The first of two u32 outs: encoder and decoder utilisation (the second is the sampling period, µs).
  Result<unsigned> read_u32_pair(const char* symbol, Device device) const;

  // Calls of the metrics exporter (telemetry.md §3.1).
  Result<int> margin_temperature(Device device) const;  // °C until the GPU slows down
  // Pages retired for a cause: 0 repeated single-bit errors, 1 a double-bit error.
  Result<unsigned> retired_pages(Device device, unsigned cause) const;
  // error: 0 corrected, 1 uncorrected; counter: 0 volatile, 1 aggregate; location: NVML's number.
  Result<std::uint64_t> memory_errors(Device device, unsigned error, unsigned counter,
                                      unsigned location) const;
  Result<abi::RowRemapperHistogram> row_remapper_histogram(Device device) const;
  Result<bool> vgpu_licensed(Device device) const;
  Result<bool> inforom_valid(Device device) const;
  // Samples newer than `since` (µs since the epoch); empty when there is none.
  Result<std::vector<abi::ProcessUtilization>> process_utilization(Device device, std::uint64_t since) const;

  // GPM (telemetry.md §3.2). Any error of gpm_supported means: no GPM.
  Result<bool> gpm_supported(Device device) const;
  Result<abi::GpmSample> gpm_sample_alloc() const;
  void gpm_sample_free(abi::GpmSample sample) const;
  Result<> gpm_sample(Device device, abi::GpmSample sample) const;
  Result<> gpm_mig_sample(Device parent, unsigned gpu_instance, abi::GpmSample sample) const;
  Result<> gpm_metrics(abi::GpmMetrics& metrics) const;

  // The address of a symbol, or nullptr; for functions that this class does not wrap.
  void* symbol(const char* name) const;

 private:
  struct Symbols;
  Nvml(void* handle, std::filesystem::path library);
  template <class... Args>
  Result<> call(const char* name, Args... args) const;
  Error error(const char* name, int code) const;

  void* handle_;
  std::filesystem::path library_;
  std::unique_ptr<Symbols> symbols_;
  mutable int last_code_ = 0;
};

// The code of an error that this file's rules give an NVML return.
Code code_of(int nvml_return);
// "Tesla" for 2 and so on (§7.4); "Unknown" for others.
std::string_view brand_name(int brand);
// "Ampere"; "Ada Lovelace" for 8 (the DRA text); "Unknown" for others.
std::string_view architecture_name(unsigned architecture);

}  // namespace gpuop::hardware
