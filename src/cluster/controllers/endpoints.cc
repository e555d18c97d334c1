// EndpointSlices: where the pods of a service are reached.
#include <algorithm>

#include "cluster/controllers/context.h"

namespace gpuop::cluster {
namespace {

constexpr kube::Resource kSlices{"discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", true};
constexpr const char* kServiceLabel = "kubernetes.io/service-name";

// A service's pods, as far as this controller reads them.
struct Backend {
  std::string ip, node, pod, uid, ns;
  bool ready = false, terminating = false;
};

Json slice_for(const Json& service, const std::vector<Backend>& backends, const JsonArray& ports) {
  const std::string name = str(kube::name_of(service));
  JsonObject labels{{kServiceLabel, name},
                    {"endpointslice.kubernetes.io/managed-by", "endpointslice-controller.k8s.io"}};
  JsonObject metadata{{"name", name}, {"namespace", str(kube::namespace_of(service))}};
  metadata["labels"] = std::move(labels);
  metadata["ownerReferences"] = JsonArray{kube::owner_reference(service)};
  JsonArray endpoints;
  for (const Backend& one : backends) {
    JsonObject target{{"kind", "Pod"}, {"namespace", one.ns}, {"name", one.pod}, {"uid", one.uid}};
    JsonObject conditions{
        {"ready", one.ready && !one.terminating}, {"serving", one.ready}, {"terminating", one.terminating}};
    JsonObject endpoint{{"addresses", JsonArray{Json(one.ip)}}, {"nodeName", one.node}};
    endpoint["conditions"] = std::move(conditions);
    endpoint["targetRef"] = std::move(target);
    endpoints.push_back(std::move(endpoint));
  }
  JsonObject out{{"apiVersion", "discovery.k8s.io/v1"}, {"kind", "EndpointSlice"}, {"addressType", "IPv4"}};
  out["metadata"] = std::move(metadata);
  out["endpoints"] = std::move(endpoints);
  out["ports"] = ports;
  return out;
}

class EndpointController final : public Controller {
 public:
  explicit EndpointController(Context& context)
      : context_(context),
        services_(context.client, kube::kServices, {.keep = {"spec.selector", "spec.ports"}}),
        slices_(context.client, kSlices, {.keep = {"endpoints", "ports"}}),
        queue_(context.loop,
               [this](const std::string& key, auto finished) { sync(key, std::move(finished)); },
               {.workers = 8}) {}

  void start() override {
    services_.on_change([this](const Object&, const Object& now) {
      if (now) queue_.add(kube::object_key(*now));
    });
    slices_.on_change([this](const Object& old, const Object& now) {
      const Json& slice = now ? *now : *old;
      const std::string_view service = kube::label(slice, kServiceLabel);
      if (!service.empty()) queue_.add(kube::object_key(kube::namespace_of(slice), service));
    });
    kube::when_synced({&services_, &slices_}, [this] {
      synced_ = true;
      services_.for_each([this](const Object& service) { queue_.add(kube::object_key(*service)); });
    });
    context_.pods.on_change([this](const Object& old, const Object& now) {
      const std::string_view ns = kube::namespace_of(now ? *now : *old);
      services_.for_each([&](const Object& service) {
        if (kube::namespace_of(*service) != ns) return;
        if ((old && selects(*service, *old)) || (now && selects(*service, *now)))
          queue_.add(kube::object_key(*service));
      });
    });
    services_.start();
    slices_.start();
  }

 private:
  static bool selects(const Json& service, const Json& pod) {
    const JsonObject& selector = get_object(service, {"spec", "selector"});
    if (selector.empty()) return false;
    return std::ranges::all_of(
        selector, [&](const auto& entry) { return kube::label(pod, entry.key()) == as_text(entry.value()); });
  }

  static JsonArray ports_of(const Json& service, const std::vector<Object>& pods) {
    JsonArray out;
    for (const Json& port : get_array(service, {"spec", "ports"})) {
      const Json* target = find(port, {"targetPort"});
      std::int64_t number =
          target != nullptr && target->is_int64() ? target->get_int64() : get_int(port, {"port"});
      if (target != nullptr && target->is_string()) {
        // A name: the pods say which port it is.
        number = 0;
        for (const Object& pod : pods) {
          for (const Json& container : get_array(*pod, {"spec", "containers"})) {
            for (const Json& own : get_array(container, {"ports"})) {
              if (get_string(own, {"name"}) == as_text(*target)) number = get_int(own, {"containerPort"});
            }
          }
        }
        if (number == 0) continue;
      }
      JsonObject entry{{"name", str(get_string(port, {"name"}))},
                       {"protocol", str(get_string(port, {"protocol"}, "TCP"))},
                       {"port", number}};
      out.push_back(std::move(entry));
    }
    return out;
  }

  void sync(const std::string& key, std::function<void(bool)> finished) {
    const Object service = services_.get(key);
    // Without a selector somebody else keeps the endpoints. A service that is gone takes its slice along.
    if (!synced_ || !service || is_terminating(*service) ||
        get_object(*service, {"spec", "selector"}).empty()) {
      return finished(true);
    }
    std::vector<Object> pods;
    std::vector<Backend> backends;
    context_.pods.for_each([&](const Object& pod) {
      if (kube::namespace_of(*pod) != kube::namespace_of(*service) || is_finished(*pod) ||
          !selects(*service, *pod))
        return;
      const std::string ip = str(get_string(*pod, {"status", "podIP"}));
      if (ip.empty()) return;
      pods.push_back(pod);
      backends.push_back({ip, str(get_string(*pod, {"spec", "nodeName"})), str(kube::name_of(*pod)),
                          str(kube::uid_of(*pod)), str(kube::namespace_of(*pod)), is_ready(*pod),
                          is_terminating(*pod)});
    });
    const Json wanted = slice_for(*service, backends, ports_of(*service, pods));
    const Object there = slices_.get(key);
    const auto done = [finished = std::move(finished)](kube::ApiResult<> result) {
      const bool settled = !result && (result.error().not_found() || result.error().already_exists() ||
                                       result.error().forbidden());
      finished(result || settled);
    };
    const std::string ns = str(kube::namespace_of(*service));
    if (!there) return context_.client.create(kSlices, ns, wanted, {}, done).detach();
    JsonObject patch;
    for (const char* part : {"endpoints", "ports"}) {
      const Json* before = find(*there, {part});
      const Json* after = find(wanted, {part});
      if (before == nullptr || *before != *after) patch[part] = *after;
    }
    if (patch.empty()) return done(Json());
    context_.client.patch(kSlices, ns, kube::name_of(*service), kube::Patch::kMerge, patch, {}, done)
        .detach();
  }

  Context& context_;
  kube::Informer services_, slices_;
  bool synced_ = false;
  kube::WorkQueue queue_;
};

}  // namespace

std::unique_ptr<Controller> make_endpoint_controller(Context& context) {
  return std::make_unique<EndpointController>(context);
}

}  // namespace gpuop::cluster
