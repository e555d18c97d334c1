#include "cluster/kubelet/devices.h"

#include <algorithm>

#include "base/files.h"
#include "base/log.h"
#include "kube/object.h"

namespace gpuop::cluster {

namespace {

// How long a resource keeps its capacity after its plugin went away (kubernetes-api.md §14.4).
constexpr Duration kPluginGrace = std::chrono::minutes(5);

struct Request {
  std::string container, resource;
  std::int64_t count = 0;
  bool reusable = false;  // a plain init container: what it held goes to the containers after it
};

}  // namespace

struct DeviceManager::Resource {
  std::shared_ptr<DevicePlugin> plugin;  // null: gone, or not back since the restart
  std::uint64_t generation = 0;
  std::vector<Device> devices;  // kept after the plugin went, all unhealthy, until the grace is over
  Handle grace;
};

struct DeviceManager::Admission {
  std::string pod_uid;
  std::vector<Request> requests;
  std::size_t next = 0;
  std::map<std::string, std::vector<std::string>> reusable;  // by resource
  std::map<std::string, std::uint64_t> nodes;  // by container: where its devices are to come from
  std::vector<std::unique_ptr<DeviceGrant>> made;
  bool cancelled = false;
  std::function<void(Result<>)> done;
};

std::vector<std::string> DeviceGrant::flat() const {
  std::vector<std::string> out;
  for (const auto& [node, list] : ids) out.insert(out.end(), list.begin(), list.end());
  return out;
}

DeviceManager::DeviceManager(Loop& loop, std::filesystem::path checkpoint, std::function<void()> changed)
    : loop_(loop), checkpoint_(std::move(checkpoint)), changed_(std::move(changed)) {}

DeviceManager::~DeviceManager() {
  *alive_ = false;
  for (auto& [name, resource] : resources_) {
    if (resource->plugin) resource->plugin->stop();
  }
}

void DeviceManager::load() {
  if (kept_) {
    fresh_ = !*kept_;
    if (*kept_) take_up(**kept_);
    return;
  }
  if (checkpoint_.empty()) return;
  auto text = read_file(checkpoint_);
  fresh_ = !text && text.error().code() == Code::kNotFound;
  if (!text) return;
  auto checkpoint = read_checkpoint(*text);
  if (!checkpoint) {
    log::warn("device checkpoint is unusable, starting without it",
              {{"file", checkpoint_.string()}, {"error", checkpoint.error()}});
    return;
  }
  take_up(std::move(*checkpoint));
}

void DeviceManager::take_up(DeviceCheckpoint checkpoint) {
  for (DeviceGrant& grant : checkpoint.grants)
    grants_.push_back(std::make_unique<DeviceGrant>(std::move(grant)));
  for (const auto& [name, ids] : checkpoint.registered) {
    auto& resource = resources_[name];
    if (!resource) resource = std::make_unique<Resource>();
  }
}

void DeviceManager::add_plugin(const std::string& name, const std::shared_ptr<DevicePlugin>& plugin) {
  auto& resource = resources_[name];
  if (!resource) resource = std::make_unique<Resource>();
  if (resource->plugin) resource->plugin->stop();
  resource->plugin = plugin;
  resource->generation = ++generations_;
  resource->grace.reset();
  const std::uint64_t generation = resource->generation;
  std::weak_ptr<bool> alive = alive_;
  plugin->watch(
      [this, alive, name, generation](std::vector<Device> devices) {
        if (!alive.expired()) devices_came(name, generation, std::move(devices));
      },
      [this, alive, name, generation](const Error& why) {
        if (!alive.expired()) plugin_ended(name, generation, why);
      });
}

void DeviceManager::devices_came(const std::string& name, std::uint64_t generation,
                                 std::vector<Device> devices) {
  Resource& resource = *resources_[name];
  if (resource.generation != generation || resource.devices == devices) return;
  resource.devices = std::move(devices);
  note_change();
}

void DeviceManager::plugin_ended(const std::string& name, std::uint64_t generation, const Error& why) {
  Resource& resource = *resources_[name];
  if (resource.generation != generation) return;
  log::info("device plugin went away", {{"resource", name}, {"error", why}});
  // The stream's own callbacks may still be on the stack: let go of the plugin on a later turn.
  loop_.post([gone = std::move(resource.plugin)] { gone->stop(); });
  resource.plugin = nullptr;
  for (Device& device : resource.devices) device.healthy = false;
  std::weak_ptr<bool> alive = alive_;
  resource.grace = loop_.after(kPluginGrace, [this, alive, name] {
    if (alive.expired()) return;
    resources_[name]->devices.clear();
    note_change();
  });
  note_change();
}

bool DeviceManager::manages(const std::string& resource) const {
  return resources_.contains(resource);
}

void DeviceManager::admit(const Json& pod, const std::set<std::string>& running,
                          std::function<void(Result<>)> done) {
  auto admission = std::make_shared<Admission>();
  admission->pod_uid = str(kube::uid_of(pod));
  admission->done = std::move(done);
  for (std::string_view list : {"initContainers", "containers"}) {
    for (const Json& container : get_array(pod, {"spec", list})) {
      const bool plain_init =
          list == "initContainers" && get_string(container, {"restartPolicy"}) != "Always";
      for (const auto& limit : get_object(container, {"resources", "limits"})) {
        const std::string name = str(limit.key());
        const auto count = kube::parse_quantity(limit.value());
        if (!manages(name) || !count || *count <= 0) continue;
        const std::string who = str(get_string(container, {"name"}));
        // What runs has its devices: only the kubelet was away.
        if (!running.contains(who)) admission->requests.push_back({who, name, *count, plain_init});
      }
    }
  }
  if (admission->requests.empty()) {
    admission->done({});
    return;
  }
  waiting_.push_back(std::move(admission));
  next_admission();
}

void DeviceManager::next_admission() {
  if (current_ || waiting_.empty()) return;
  current_ = waiting_.front();
  waiting_.pop_front();
  step(current_);
}

void DeviceManager::step(std::shared_ptr<Admission> admission) {
  while (admission->next < admission->requests.size()) {
    const Request& request = admission->requests[admission->next];
    const DeviceGrant* held = nullptr;
    for (const DeviceGrant* grant : grants(admission->pod_uid, request.container)) {
      if (grant->resource == request.resource) held = grant;
    }
    const auto ids = held != nullptr ? held->flat() : std::vector<std::string>();
    if (held != nullptr && static_cast<std::int64_t>(ids.size()) != request.count) {
      return finish(admission, fail(Code::kConflict,
                                    "pod \"" + admission->pod_uid + "\" container \"" + request.container +
                                        "\" changed request for resource \"" + request.resource + "\" from " +
                                        std::to_string(ids.size()) + " to " + std::to_string(request.count)));
    }
    if (auto usable = check_usable(request.resource, ids); !usable) return finish(admission, usable);
    if (held == nullptr) {
      if (auto aligned = align(*admission, request.container); !aligned) return finish(admission, aligned);
      return choose(std::move(admission));
    }
    if (request.reusable) admission->reusable[request.resource] = ids;
    ++admission->next;
  }
  finish(admission, {});
}

// What the kubelet asks before it looks at numbers: after a reboot pods come before the plugin does.
Result<> DeviceManager::check_usable(const std::string& name, const std::vector<std::string>& held) const {
  const auto resource = resources_.find(name);
  if (resource == resources_.end()) {
    return fail(Code::kUnavailable, "cannot allocate unregistered device " + name);
  }
  std::set<std::string> healthy;
  for (const Device& device : resource->second->devices) {
    if (device.healthy) healthy.insert(device.id);
  }
  if (healthy.empty()) {
    return fail(Code::kUnavailable, "no healthy devices present; cannot allocate unhealthy devices " + name);
  }
  if (!std::ranges::all_of(held, [&](const std::string& id) { return healthy.contains(id); })) {
    return fail(
        Code::kUnavailable,
        "previously allocated devices are no longer healthy; cannot allocate unhealthy devices " + name);
  }
  return {};
}

std::set<std::string> DeviceManager::in_use(const std::string& resource) const {
  std::set<std::string> out;
  auto add = [&](const DeviceGrant& grant) {
    if (grant.resource != resource) return;
    for (const auto& [node, list] : grant.ids) out.insert(list.begin(), list.end());
  };
  for (const auto& grant : grants_) add(*grant);
  if (current_) {
    for (const auto& grant : current_->made) add(*grant);
  }
  return out;
}

void DeviceManager::set_topology(TopologyPolicy policy, int numa_nodes) {
  topology_ = policy;
  numa_nodes_ = std::clamp(numa_nodes, 1, 8);
}

// Looks at all that the container asks for, once.
Result<> DeviceManager::align(Admission& admission, const std::string& container) {
  if (topology_ == TopologyPolicy::kNone || admission.nodes.contains(container)) return {};
  std::vector<TopologyHints> resources;
  for (const Request& request : admission.requests) {
    if (request.container != container) continue;
    const auto known = resources_.find(request.resource);
    if (known == resources_.end()) continue;
    const std::set<std::string> used = in_use(request.resource);
    const auto& reusable = admission.reusable[request.resource];
    std::set<std::string> available;
    for (const Device& device : known->second->devices) {
      if (device.healthy && !used.contains(device.id)) available.insert(device.id);
    }
    resources.push_back(device_hints(known->second->devices, available, {reusable.begin(), reusable.end()},
                                     static_cast<std::size_t>(request.count), numa_nodes_));
  }
  const TopologyDecision decision = decide_topology(topology_, resources, numa_nodes_);
  admission.nodes[container] = decision.nodes;
  if (decision.admitted) return {};
  return fail(Code::kBusy, "Resources cannot be allocated with Topology locality");
}

// What init containers held goes first, then what lies on the right NUMA nodes; the plugin may say which of
// the rest it prefers.
void DeviceManager::choose(std::shared_ptr<Admission> admission) {
  const Request& request = admission->requests[admission->next];
  const Resource& resource = *resources_[request.resource];
  const auto count = static_cast<std::size_t>(request.count);
  std::vector<std::string> given = admission->reusable[request.resource];
  if (given.size() > count) given.resize(count);
  const std::set<std::string> used = in_use(request.resource);
  const std::uint64_t nodes = admission->nodes[request.container];
  std::vector<std::string> aligned, rest, anywhere;
  for (const Device& device : resource.devices) {
    if (!device.healthy || used.contains(device.id)) continue;
    const bool inside = std::ranges::any_of(
        device.numa, [&](std::int64_t node) { return node >= 0 && node < 64 && (nodes >> node & 1) != 0; });
    (nodes == 0 || device.numa.empty() ? anywhere : inside ? aligned : rest).push_back(device.id);
  }
  rest.insert(rest.end(), anywhere.begin(), anywhere.end());
  const std::size_t needed = count - given.size();
  const std::size_t free = resource.plugin ? aligned.size() + rest.size() : 0;
  if (!resource.plugin || free < needed) {
    return finish(admission,
                  fail(Code::kUnavailable, "requested number of devices unavailable for " + request.resource +
                                               ". Requested: " + std::to_string(needed) +
                                               ", Available: " + std::to_string(free)));
  }
  if (needed < aligned.size()) return prefer(admission, std::move(given), aligned);
  given.insert(given.end(), aligned.begin(), aligned.end());
  prefer(admission, std::move(given), rest);
}

// Fills `given` up from `pool`: what the plugin prefers first, as far as it may be had, then in order.
void DeviceManager::prefer(const std::shared_ptr<Admission>& admission, std::vector<std::string> given,
                           const std::vector<std::string>& pool) {
  const Request& request = admission->requests[admission->next];
  const auto count = static_cast<std::size_t>(request.count);
  std::vector<std::string> available = given;
  available.insert(available.end(), pool.begin(), pool.end());
  const auto plugin = resources_[request.resource]->plugin;
  if (!plugin->preferred_available() || given.size() == count) {
    available.resize(count);
    return allocate(admission, available);
  }
  std::weak_ptr<bool> alive = alive_;
  plugin->preferred(
      available, given, static_cast<int>(count),
      [this, alive, admission, available, given, count](Result<std::vector<std::string>> answer) {
        if (alive.expired()) return;
        if (!answer) return finish(admission, fail(std::move(answer).error()));
        std::vector<std::string> chosen = given;
        auto take = [&](const std::string& id) {
          if (chosen.size() < count && std::ranges::find(available, id) != available.end() &&
              std::ranges::find(chosen, id) == chosen.end()) {
            chosen.push_back(id);
          }
        };
        for (const std::string& id : *answer) take(id);
        for (const std::string& id : available) take(id);
        allocate(admission, chosen);
      });
}

void DeviceManager::allocate(const std::shared_ptr<Admission>& admission,
                             const std::vector<std::string>& ids) {
  const Request& request = admission->requests[admission->next];
  const auto plugin = resources_[request.resource]->plugin;
  if (!plugin) {
    return finish(admission, fail(Code::kUnavailable, "the plugin of " + request.resource + " is gone"));
  }
  std::weak_ptr<bool> alive = alive_;
  plugin->allocate(ids, [this, alive, admission, ids](Result<DeviceAnswer> answer) {
    if (alive.expired()) return;
    if (!answer) return finish(admission, fail(std::move(answer).error()));
    const Request& done = admission->requests[admission->next];
    auto grant = std::make_unique<DeviceGrant>();
    *grant = {admission->pod_uid, done.container, done.resource, {}, std::move(*answer)};
    for (const std::string& id : ids) {
      const auto numa = numa_of(done.resource, id);
      if (numa.empty()) grant->ids[-1].push_back(id);
      for (std::int64_t node : numa) grant->ids[node].push_back(id);
    }
    auto& reusable = admission->reusable[done.resource];
    if (done.reusable) {
      reusable = ids;
    } else {
      std::erase_if(reusable, [&](const std::string& id) { return std::ranges::find(ids, id) != ids.end(); });
    }
    admission->made.push_back(std::move(grant));
    ++admission->next;
    step(admission);
  });
}

void DeviceManager::finish(const std::shared_ptr<Admission>& admission, Result<> how) {
  if (current_ == admission) current_ = nullptr;
  if (how && !admission->cancelled && !admission->made.empty()) {
    for (auto& grant : admission->made) grants_.push_back(std::move(grant));
    note_change();
  }
  if (!how && how.error().code() != Code::kBusy) {
    how = fail(how.error().code(), "Allocate failed due to " + how.error().text() + ", which is unexpected");
  }
  auto done = std::move(admission->done);
  next_admission();
  if (done && !admission->cancelled) done(std::move(how));
}

void DeviceManager::release(const std::string& pod_uid) {
  if (current_ && current_->pod_uid == pod_uid) current_->cancelled = true;
  std::erase_if(waiting_, [&](const auto& admission) { return admission->pod_uid == pod_uid; });
  if (std::erase_if(grants_, [&](const auto& grant) { return grant->pod_uid == pod_uid; }) > 0) note_change();
}

void DeviceManager::keep_only(const std::set<std::string>& pods) {
  if (std::erase_if(grants_, [&](const auto& grant) { return !pods.contains(grant->pod_uid); }) > 0)
    note_change();
}

std::vector<const DeviceGrant*> DeviceManager::grants(const std::string& pod_uid,
                                                      const std::string& container) const {
  std::vector<const DeviceGrant*> out;
  for (const auto& grant : grants_) {
    if (grant->pod_uid == pod_uid && grant->container == container) out.push_back(grant.get());
  }
  return out;
}

void DeviceManager::pre_start(const std::string& pod_uid, const std::string& container,
                              std::function<void(Result<>)> done) {
  auto left = std::make_shared<int>(1);
  auto first_error = std::make_shared<Result<>>();
  auto one = [left, first_error, done = std::move(done)](Result<> how) {
    if (!how && *first_error) *first_error = how;
    if (--*left == 0) done(*first_error);
  };
  for (const DeviceGrant* grant : grants(pod_uid, container)) {
    const auto resource = resources_.find(grant->resource);
    if (resource == resources_.end() || !resource->second->plugin) continue;
    if (!resource->second->plugin->pre_start_required()) continue;
    ++*left;
    resource->second->plugin->pre_start(grant->flat(), one);
  }
  one({});
}

std::map<std::string, DeviceCounts> DeviceManager::counts() const {
  std::map<std::string, DeviceCounts> out;
  for (const auto& [name, resource] : resources_) {
    DeviceCounts& counts = out[name];
    counts.capacity = static_cast<std::int64_t>(resource->devices.size());
    counts.allocatable = std::ranges::count_if(resource->devices, &Device::healthy);
  }
  return out;
}

std::map<std::string, std::vector<Device>> DeviceManager::allocatable() const {
  std::map<std::string, std::vector<Device>> out;
  for (const auto& [name, resource] : resources_) {
    for (const Device& device : resource->devices) {
      if (device.healthy) out[name].push_back(device);
    }
  }
  return out;
}

std::vector<std::int64_t> DeviceManager::numa_of(const std::string& resource, const std::string& id) const {
  const auto known = resources_.find(resource);
  if (known == resources_.end()) return {};
  for (const Device& device : known->second->devices) {
    if (device.id == id) return device.numa;
  }
  return {};
}

void DeviceManager::save() {
  if (checkpoint_.empty() && !kept_) return;
  DeviceCheckpoint checkpoint;
  for (const auto& grant : grants_) checkpoint.grants.push_back(*grant);
  for (const auto& [name, resource] : resources_) {
    auto& ids = checkpoint.registered[name];
    for (const Device& device : resource->devices) {
      if (device.healthy) ids.push_back(device.id);
    }
    std::ranges::sort(ids);
  }
  if (kept_) {
    *kept_ = std::move(checkpoint);
    return;
  }
  if (auto wrote = write_file_atomic(checkpoint_, write_checkpoint(checkpoint), 0600); !wrote) {
    log::error("cannot keep the device checkpoint", {{"error", wrote.error()}});
  }
}

void DeviceManager::note_change() {
  save();
  if (changed_) changed_();
}

}  // namespace gpuop::cluster
