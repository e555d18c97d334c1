// Endpoints and EndpointSlices: where the pods of a service are reached.
#include <algorithm>

#include "cluster/controllers/context.h"

namespace gpuop::cluster {
namespace {

constexpr kube::Resource kSlices{"discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", true};
constexpr kube::Resource kEndpoints{"", "v1", "endpoints", "Endpoints", true};
constexpr const char* kServiceLabel = "kubernetes.io/service-name";
constexpr const char* kHeadlessLabel = "service.kubernetes.io/headless";
constexpr std::size_t kMostAddresses = 1000;  // in Endpoints; slices have all
constexpr Duration kRestPerBackend = 200us;
constexpr const char* kKeptByLabel = "endpoints.kubernetes.io/managed-by";

// A service's pods, as far as this controller reads them.
struct Backend {
  Object pod;
  std::string ip;
  bool serving = false, ready = false, terminating = false;

  Json target() const {
    return JsonObject{{"kind", "Pod"},
                      {"namespace", kube::namespace_of(*pod)},
                      {"name", kube::name_of(*pod)},
                      {"uid", kube::uid_of(*pod)}};
  }
  void place(JsonObject& into) const {
    const std::string_view node = get_string(*pod, {"spec", "nodeName"});
    if (!node.empty()) into["nodeName"] = node;
    into["targetRef"] = target();
  }
};

JsonObject labels_of(const Json& service) {
  JsonObject labels(get_object(service, {"metadata", "labels"}));
  if (get_string(service, {"spec", "clusterIP"}) == "None") labels[kHeadlessLabel] = "";
  return labels;
}

// The number of the pod's own port that a service's port leads to; 0 for none.
std::int64_t port_on(const Json& port, const Json& pod) {
  const Json* target = find(port, {"targetPort"});
  if (target == nullptr || !target->is_string())
    return target != nullptr && target->is_int64() ? target->get_int64() : get_int(port, {"port"});
  for (const Json& container : get_array(pod, {"spec", "containers"}))
    for (const Json& own : get_array(container, {"ports"}))
      if (get_string(own, {"name"}) == as_text(*target)) return get_int(own, {"containerPort"});
  return 0;
}

// `named`: also ports without a name say so.
JsonArray ports_on(const Json& service, const Json& pod, bool named) {
  JsonArray out;
  for (const Json& port : get_array(service, {"spec", "ports"})) {
    const std::int64_t number = port_on(port, pod);
    if (number == 0) continue;
    JsonObject entry;
    const std::string_view name = get_string(port, {"name"});
    if (named || !name.empty()) entry["name"] = name;
    entry["port"] = number;
    entry["protocol"] = get_string(port, {"protocol"}, "TCP");
    if (const Json* protocol = find(port, {"appProtocol"})) entry["appProtocol"] = *protocol;
    out.push_back(std::move(entry));
  }
  return out;
}

Json slice_for(const Json& service, const std::vector<Backend>& backends) {
  const std::string name = str(kube::name_of(service));
  JsonObject labels = labels_of(service);
  labels[kServiceLabel] = name;
  labels["endpointslice.kubernetes.io/managed-by"] = "endpointslice-controller.k8s.io";
  JsonObject metadata{{"generateName", name + "-"}, {"namespace", str(kube::namespace_of(service))}};
  metadata["labels"] = std::move(labels);
  metadata["ownerReferences"] = JsonArray{kube::owner_reference(service)};
  JsonArray endpoints;
  for (const Backend& one : backends) {
    JsonObject endpoint{{"addresses", JsonArray{Json(one.ip)}}};
    endpoint["conditions"] =
        JsonObject{{"ready", one.ready}, {"serving", one.serving}, {"terminating", one.terminating}};
    one.place(endpoint);
    endpoints.push_back(std::move(endpoint));
  }
  JsonObject out{{"apiVersion", "discovery.k8s.io/v1"}, {"kind", "EndpointSlice"}, {"addressType", "IPv4"}};
  out["metadata"] = std::move(metadata);
  const bool none = endpoints.empty();
  out["endpoints"] = none ? Json(nullptr) : Json(std::move(endpoints));
  out["ports"] = none ? Json(nullptr) : Json(ports_on(service, *backends[0].pod, true));
  return out;
}

// Pods with the same ports share a subset.
JsonArray subsets_for(const Json& service, const std::vector<Backend>& backends) {
  const bool all_ready = get_bool(service, {"spec", "publishNotReadyAddresses"});
  JsonArray subsets;
  std::size_t count = 0;
  for (const Backend& one : backends) {
    if (count == kMostAddresses) break;
    if (one.terminating && !all_ready) continue;
    const JsonArray ports = ports_on(service, *one.pod, false);
    if (ports.empty() && !get_array(service, {"spec", "ports"}).empty()) continue;
    auto found = std::ranges::find_if(
        subsets, [&](const Json& subset) { return get_array(subset, {"ports"}) == ports; });
    if (found == subsets.end()) {
      JsonObject subset;
      if (!ports.empty()) subset["ports"] = ports;
      subsets.push_back(std::move(subset));
      found = subsets.end() - 1;
    }
    JsonObject address{{"ip", one.ip}};
    one.place(address);
    Json& list = found->get_object()[one.ready ? "addresses" : "notReadyAddresses"];
    if (!list.is_array()) list = JsonArray();
    list.get_array().push_back(std::move(address));
    ++count;
  }
  return subsets;
}

Json endpoints_for(const Json& service, const std::vector<Backend>& backends) {
  JsonObject labels = labels_of(service);
  labels[kKeptByLabel] = "endpoint-controller";
  JsonObject metadata{{"name", kube::name_of(service)}, {"namespace", kube::namespace_of(service)}};
  metadata["labels"] = std::move(labels);
  if (backends.size() > kMostAddresses)
    metadata["annotations"] = JsonObject{{"endpoints.kubernetes.io/over-capacity", "truncated"}};
  JsonObject out{{"apiVersion", "v1"}, {"kind", "Endpoints"}, {"metadata", std::move(metadata)}};
  if (JsonArray subsets = subsets_for(service, backends); !subsets.empty())
    out["subsets"] = std::move(subsets);
  return out;
}

// What `wanted` has otherwise than `there`, of those parts and of the labels.
JsonObject changes(const Json& there, const Json& wanted, std::initializer_list<const char*> parts) {
  JsonObject patch;
  static const Json none(nullptr);
  for (const char* part : parts) {
    const Json* before = find(there, {part});
    const Json* after = find(wanted, {part});
    if ((before == nullptr ? none : *before) != (after == nullptr ? none : *after))
      patch[part] = after == nullptr ? none : *after;
  }
  const JsonObject& labels = get_object(wanted, {"metadata", "labels"});
  if (get_object(there, {"metadata", "labels"}) == labels) return patch;
  JsonObject changed(labels);
  for (const auto& [key, value] : get_object(there, {"metadata", "labels"}))
    if (!labels.contains(key)) changed[key] = nullptr;
  patch["metadata"] = JsonObject{{"labels", std::move(changed)}};
  return patch;
}

class EndpointController final : public Controller {
 public:
  explicit EndpointController(Context& context)
      : context_(context),
        services_(
            context.client, kube::kServices,
            {.keep = {"spec.selector", "spec.ports", "spec.clusterIP", "spec.publishNotReadyAddresses"}}),
        slices_(context.client, kSlices, {.keep = {"endpoints", "ports"}}),
        endpoints_(context.client, kEndpoints, {.keep = {"subsets"}}),
        queue_(context.loop,
               [this](const std::string& key, auto finished) { sync(key, std::move(finished)); },
               {.workers = 8}) {}

  void start() override {
    services_.on_change(
        [this](const Object& old, const Object& now) { queue_.add(kube::object_key(now ? *now : *old)); });
    slices_.on_change([this](const Object& old, const Object& now) { note_slice(old, now); });
    endpoints_.on_change(
        [this](const Object& old, const Object& now) { queue_.add(kube::object_key(now ? *now : *old)); });
    kube::when_synced({&services_, &slices_, &endpoints_}, [this] {
      synced_ = true;
      services_.for_each([this](const Object& service) { queue_.add(kube::object_key(*service)); });
      endpoints_.for_each([this](const Object& one) { queue_.add(kube::object_key(*one)); });
    });
    context_.pods.on_change([this](const Object& old, const Object& now) {
      const std::string_view ns = kube::namespace_of(now ? *now : *old);
      services_.for_each([&](const Object& service) {
        if (kube::namespace_of(*service) != ns) return;
        if ((old && selects(*service, *old)) || (now && selects(*service, *now))) {
          // The more there are, the more come together: else each pod of thousands costs a look at them all.
          const std::string key = kube::object_key(*service);
          queue_.add_after(key, kRestPerBackend * backends_[key]);
        }
      });
    });
    services_.start();
    slices_.start();
    endpoints_.start();
  }

 private:
  static bool selects(const Json& service, const Json& pod) {
    const JsonObject& selector = get_object(service, {"spec", "selector"});
    if (selector.empty()) return false;
    return std::ranges::all_of(
        selector, [&](const auto& entry) { return kube::label(pod, entry.key()) == as_text(entry.value()); });
  }

  void note_slice(const Object& old, const Object& now) {
    const Json& slice = now ? *now : *old;
    const std::string_view service = kube::label(slice, kServiceLabel);
    if (service.empty()) return;
    const std::string key = kube::object_key(kube::namespace_of(slice), service);
    if (now) {
      slice_names_[key] = kube::name_of(slice);
    } else if (slice_names_[key] == kube::name_of(slice)) {
      slice_names_.erase(key);
    }
    queue_.add(key);
  }

  std::vector<Backend> backends_of(const Json& service) const {
    std::vector<Backend> out;
    const bool all_ready = get_bool(service, {"spec", "publishNotReadyAddresses"});
    context_.pods.for_each([&](const Object& pod) {
      if (kube::namespace_of(*pod) != kube::namespace_of(service) || is_finished(*pod) ||
          !selects(service, *pod))
        return;
      const std::string ip = str(get_string(*pod, {"status", "podIP"}));
      if (ip.empty()) return;
      const bool serving = is_ready(*pod);
      const bool terminating = is_terminating(*pod);
      out.push_back({pod, ip, serving, all_ready || (serving && !terminating), terminating});
    });
    return out;
  }

  void sync(const std::string& key, std::function<void(bool)> finished) {
    if (!synced_) return finished(true);
    const Object service = services_.get(key);
    if (!service) {
      backends_.erase(key);
      return remove_endpoints(key, std::move(finished));
    }
    // Without a selector somebody else keeps the endpoints. A service that is gone takes its slice along.
    if (is_terminating(*service) || get_object(*service, {"spec", "selector"}).empty()) return finished(true);
    const std::vector<Backend> backends = backends_of(*service);
    backends_[key] = std::ssize(backends);
    Gather gather(context_.loop, std::move(finished));
    write_slice(key, slice_for(*service, backends), gather.step());
    write_endpoints(key, endpoints_for(*service, backends), gather.step());
    gather.close();
  }

  // An answer that trying again would not change.
  static bool settled(const kube::ApiResult<>& result) {
    return result || result.error().not_found() || result.error().already_exists() ||
           result.error().forbidden();
  }

  void write_slice(const std::string& key, const Json& wanted, std::function<void(bool)> done) {
    const std::string ns = str(kube::namespace_of(wanted));
    const auto name = slice_names_.find(key);
    if (name == slice_names_.end()) {
      context_.client
          .create(
              kSlices, ns, wanted, {},
              [this, alive = std::weak_ptr(alive_), key, done = std::move(done)](kube::ApiResult<> result) {
                if (alive.expired()) return;
                if (result) slice_names_[key] = kube::name_of(*result);
                done(settled(result));
              })
          .detach();
      return;
    }
    const Object there = slices_.get(kube::object_key(ns, name->second));
    if (!there) return done(true);  // made, and soon seen: that brings us back
    const JsonObject patch = changes(*there, wanted, {"endpoints", "ports"});
    patch_object(kSlices, ns, name->second, patch, std::move(done));
  }

  void write_endpoints(const std::string& key, const Json& wanted, std::function<void(bool)> done) {
    const std::string ns = str(kube::namespace_of(wanted));
    const Object there = endpoints_.get(key);
    if (there)
      return patch_object(kEndpoints, ns, str(kube::name_of(wanted)), changes(*there, wanted, {"subsets"}),
                          std::move(done));
    context_.client
        .create(kEndpoints, ns, wanted, {},
                [done = std::move(done)](kube::ApiResult<> result) { done(settled(result)); })
        .detach();
  }

  void patch_object(const kube::Resource& type, const std::string& ns, const std::string& name,
                    const JsonObject& patch, std::function<void(bool)> done) {
    if (patch.empty()) return done(true);
    context_.client
        .patch(type, ns, name, kube::Patch::kMerge, patch, {},
               [done = std::move(done)](kube::ApiResult<> result) { done(settled(result)); })
        .detach();
  }

  // Endpoints have no owner that would take them along.
  void remove_endpoints(const std::string& key, std::function<void(bool)> finished) {
    const Object there = endpoints_.get(key);
    if (!there || kube::label(*there, kKeptByLabel).empty()) return finished(true);
    context_.client
        .remove(kEndpoints, kube::namespace_of(*there), kube::name_of(*there),
                {.precondition_uid = str(kube::uid_of(*there))},
                [finished = std::move(finished)](kube::ApiResult<> result) { finished(settled(result)); })
        .detach();
  }

  Context& context_;
  kube::Informer services_, slices_, endpoints_;
  std::map<std::string, std::string, std::less<>> slice_names_;  // by the service's key
  std::map<std::string, std::ptrdiff_t> backends_;               // by the same: how many at the last look
  bool synced_ = false;
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);
  kube::WorkQueue queue_;
};

}  // namespace

std::unique_ptr<Controller> make_endpoint_controller(Context& context) {
  return std::make_unique<EndpointController>(context);
}

}  // namespace gpuop::cluster
