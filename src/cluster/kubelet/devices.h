// The device manager: what plugins advertise, who holds which device, and what the holder's container gets
// (device-plugin-gfd-mps.md §1). No gRPC here: a plugin is an interface, whose edge is device_sockets.h.
//
// State that must outlive the process is the checkpoint file, in the kubelet's own format, checksum included.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/loop.h"
#include "base/result.h"
#include "cluster/kubelet/topology.h"
#include "cluster/runtime/runtime.h"

namespace gpuop::cluster {

struct Device {
  std::string id;
  bool healthy = true;
  std::vector<std::int64_t> numa;  // NUMA nodes; empty: none in particular
  bool operator==(const Device&) const = default;
};

// What Allocate answered for one container.
struct DeviceAnswer {
  std::map<std::string, std::string> envs;
  std::vector<RuntimeMount> mounts;
  std::vector<RuntimeDevice> devices;
  std::map<std::string, std::string> annotations;
  std::vector<std::string> cdi_devices;
};
// v1beta1.ContainerAllocateResponse on the wire, as the checkpoint keeps it.
std::string encode_answer(const DeviceAnswer& answer);
Result<DeviceAnswer> decode_answer(const std::string& bytes);

// A registered plugin, whatever carries it. Callbacks come on the loop, each at most once a call, and none
// after stop().
class DevicePlugin {
 public:
  template <class T>
  using Done = std::function<void(Result<T>)>;
  virtual ~DevicePlugin() = default;
  virtual bool preferred_available() const { return false; }
  virtual bool pre_start_required() const { return false; }
  // ListAndWatch: `devices` for each whole list, `ended` when the stream is over.
  virtual void watch(std::function<void(std::vector<Device>)> devices, std::function<void(Error)> ended) = 0;
  virtual void preferred(const std::vector<std::string>& available,
                         const std::vector<std::string>& must_include, int size,
                         Done<std::vector<std::string>> done) = 0;
  virtual void allocate(const std::vector<std::string>& ids, Done<DeviceAnswer> done) = 0;
  virtual void pre_start(const std::vector<std::string>& ids, Done<void> done) = 0;
  virtual void stop() = 0;
};

// One line of the checkpoint: what a container holds of one resource.
struct DeviceGrant {
  std::string pod_uid, container, resource;
  std::map<std::int64_t, std::vector<std::string>> ids;  // by NUMA node; -1: none in particular
  DeviceAnswer answer;
  std::vector<std::string> flat() const;
};

struct DeviceCheckpoint {
  std::vector<DeviceGrant> grants;
  std::map<std::string, std::vector<std::string>> registered;
};
// kubelet_internal_checkpoint: {"Data":{"PodDeviceEntries":…,"RegisteredDevices":…},"Checksum":N}. The
// checksum is the 32-bit FNV-1a of Go's verbose rendering of Data, as the kubelet computes it.
std::string write_checkpoint(const DeviceCheckpoint& checkpoint);
// kInvalid: no JSON, another shape or a wrong checksum.
Result<DeviceCheckpoint> read_checkpoint(const std::string& text);

// Takes the place of the file where a node has no disk (hollow nodes): empty until something was written. It
// outlives the kubelet, as the file does.
using KeptCheckpoint = std::shared_ptr<std::optional<DeviceCheckpoint>>;

struct DeviceCounts {
  std::int64_t capacity = 0, allocatable = 0;
  bool operator==(const DeviceCounts&) const = default;
};

class DeviceManager {
 public:
  // `checkpoint` empty: nothing is kept. `changed` is called when counts or grants changed.
  DeviceManager(Loop& loop, std::filesystem::path checkpoint, std::function<void()> changed);
  ~DeviceManager();

  // In place of a file.
  void keep_in(KeptCheckpoint kept) { kept_ = std::move(kept); }
  // From which NUMA nodes devices come; `numa_nodes` of the machine.
  void set_topology(TopologyPolicy policy, int numa_nodes);
  // Reads the checkpoint. A broken one is named in the log and set aside as empty, as the kubelet does.
  void load();
  // There was no checkpoint: the node is a new installation.
  bool fresh() const { return fresh_; }
  // Takes the place of an earlier plugin of that resource.
  void add_plugin(const std::string& resource, const std::shared_ptr<DevicePlugin>& plugin);

  // Whether a plugin serves, or served, the resource.
  bool manages(const std::string& resource) const;
  // Gives every container of the pod its devices, or none of them. Pods wait for one another in order. Grants
  // that the pod holds already are kept; a container that is not in `running` (the kubelet's first look after
  // a reboot) gets them only when a plugin says that they are healthy. The error's text is the one of
  // UnexpectedAdmissionError, with code kBusy that of TopologyAffinityError.
  void admit(const Json& pod, const std::set<std::string>& running, std::function<void(Result<>)> done);
  void release(const std::string& pod_uid);
  // Drops the grants of every pod that is not in `pods`.
  void keep_only(const std::set<std::string>& pods);

  // What a container holds, all resources.
  std::vector<const DeviceGrant*> grants(const std::string& pod_uid, const std::string& container) const;
  // Runs PreStartContainer of the plugins that want it.
  void pre_start(const std::string& pod_uid, const std::string& container,
                 std::function<void(Result<>)> done);

  std::map<std::string, DeviceCounts> counts() const;
  // Healthy devices by resource, for GetAllocatableResources; and any device's NUMA nodes.
  std::map<std::string, std::vector<Device>> allocatable() const;
  std::vector<std::int64_t> numa_of(const std::string& resource, const std::string& id) const;

 private:
  struct Resource;
  struct Admission;
  void devices_came(const std::string& name, std::uint64_t generation, std::vector<Device> devices);
  void plugin_ended(const std::string& name, std::uint64_t generation, const Error& why);
  void next_admission();
  Result<> check_usable(const std::string& resource, const std::vector<std::string>& held) const;
  void step(std::shared_ptr<Admission> admission);
  Result<> align(Admission& admission, const std::string& container);
  void choose(std::shared_ptr<Admission> admission);
  void prefer(const std::shared_ptr<Admission>& admission, std::vector<std::string> given,
              const std::vector<std::string>& pool);
  void allocate(const std::shared_ptr<Admission>& admission, const std::vector<std::string>& ids);
  void finish(const std::shared_ptr<Admission>& admission, Result<> how);
  std::set<std::string> in_use(const std::string& resource) const;
  void take_up(DeviceCheckpoint checkpoint);
  void save();
  void note_change();

  Loop& loop_;
  std::filesystem::path checkpoint_;
  KeptCheckpoint kept_;
  bool fresh_ = false;
  TopologyPolicy topology_ = TopologyPolicy::kNone;
  int numa_nodes_ = 1;
  std::function<void()> changed_;
  std::map<std::string, std::unique_ptr<Resource>> resources_;
  std::vector<std::unique_ptr<DeviceGrant>> grants_;
  std::deque<std::shared_ptr<Admission>> waiting_;
  std::shared_ptr<Admission> current_;
  std::uint64_t generations_ = 0;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace gpuop::cluster
