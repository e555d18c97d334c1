// Service accounts with the cluster's CA in each namespace, and the end of events.
#include "base/log.h"
#include "cluster/controllers/context.h"

namespace gpuop::cluster {
namespace {

// Every namespace has a ServiceAccount "default" and, where the CA is known, a ConfigMap "kube-root-ca.crt".
class ServiceAccounts final : public Controller {
 public:
  explicit ServiceAccounts(Context& context)
      : context_(context),
        queue_(context.loop, [this](const std::string& ns, auto finished) { sync(ns, std::move(finished)); },
               {.workers = 4}) {}

  void start() override {
    context_.namespaces.on_change([this](const Object&, const Object& now) {
      if (now) queue_.add(str(kube::name_of(*now)));
    });
    const auto gone = [this](const Object& old, const Object& now) {
      if (!now) queue_.add(str(kube::namespace_of(*old)));
    };
    context_.service_accounts.on_change(gone);
    context_.root_cas.on_change([this](const Object& old, const Object& now) {
      queue_.add(str(kube::namespace_of(now ? *now : *old)));
    });
  }

 private:
  void sync(const std::string& name, std::function<void(bool)> finished) {
    const Object ns = context_.namespaces.get(name);
    if (!ns || is_terminating(*ns)) return finished(true);
    Gather gather(context_.loop, std::move(finished));
    if (!context_.service_accounts.get(kube::object_key(name, "default"))) {
      make(kube::kServiceAccounts, name, JsonObject{{"metadata", JsonObject{{"name", "default"}}}},
           gather.step());
    }
    publish_ca(name, gather);
    gather.close();
  }

  // Whatever somebody has made of it.
  void publish_ca(const std::string& ns, Gather& gather) {
    const std::string& ca = context_.options.ca_pem;
    if (ca.empty()) return;
    const Object there = context_.root_cas.get(kube::object_key(ns, "kube-root-ca.crt"));
    if (!there) {
      JsonObject object{{"metadata", JsonObject{{"name", "kube-root-ca.crt"}}}};
      object["data"] = JsonObject{{"ca.crt", ca}};
      make(kube::kConfigMaps, ns, std::move(object), gather.step());
    } else if (get_string(*there, {"data", "ca.crt"}) != ca) {
      Json patch = JsonObject{{"data", JsonObject{{"ca.crt", ca}}}};
      context_.client
          .patch(kube::kConfigMaps, ns, "kube-root-ca.crt", kube::Patch::kMerge, patch, {},
                 [done = gather.step()](kube::ApiResult<> result) {
                   done(result || result.error().forbidden() || result.error().not_found());
                 })
          .detach();
    }
  }

  void make(const kube::Resource& type, const std::string& ns, JsonObject object,
            std::function<void(bool)> done) {
    object["apiVersion"] = type.api_version();
    object["kind"] = type.kind;
    context_.client
        .create(type, ns, object, {},
                [done = std::move(done)](kube::ApiResult<> result) {
                  // A namespace that has begun to end takes nothing more.
                  done(result || result.error().already_exists() || result.error().forbidden() ||
                       result.error().not_found());
                })
        .detach();
  }

  Context& context_;
  kube::WorkQueue queue_;
};

// Removes events that nobody has renewed for their time to live.
class EventReaper final : public Controller {
 public:
  explicit EventReaper(Context& context)
      : context_(context),
        events_(context.client, kube::kEvents,
                {.keep = {"lastTimestamp", "eventTime", "series.lastObservedTime"},
                 .drop = {"metadata.annotations", "metadata.labels"}}),
        queue_(context.loop,
               [this](const std::string& key, auto finished) { look(key, std::move(finished)); },
               {.base_delay = 1s, .max_delay = 5min, .workers = 4}) {}

  void start() override {
    events_.on_change([this](const Object&, const Object& now) {
      if (now) queue_.add_after(kube::object_key(*now), left(*now));
    });
    events_.start();
  }

 private:
  Duration left(const Json& event) const {
    Time latest{};
    const auto consider = [&latest](std::string_view text) {
      if (const auto at = parse_time(text)) latest = std::max(latest, *at);
    };
    consider(get_string(event, {"metadata", "creationTimestamp"}));
    consider(get_string(event, {"lastTimestamp"}));
    consider(get_string(event, {"eventTime"}));
    consider(get_string(event, {"series", "lastObservedTime"}));
    return latest + context_.options.event_ttl - context_.loop.now();
  }

  void look(const std::string& key, std::function<void(bool)> finished) {
    const Object event = events_.get(key);
    if (!event) return finished(true);
    if (const Duration rest = left(*event); rest > Duration::zero()) {
      queue_.add_after(key, rest);
      return finished(true);
    }
    context_.client
        .remove(kube::kEvents, kube::namespace_of(*event), kube::name_of(*event), {},
                [finished = std::move(finished)](kube::ApiResult<> result) {
                  finished(result || result.error().not_found());
                })
        .detach();
  }

  Context& context_;
  kube::Informer events_;
  kube::WorkQueue queue_;
};

}  // namespace

std::unique_ptr<Controller> make_service_account_controller(Context& context) {
  return std::make_unique<ServiceAccounts>(context);
}
std::unique_ptr<Controller> make_event_reaper(Context& context) {
  return std::make_unique<EventReaper>(context);
}

}  // namespace gpuop::cluster
