#include "operator/server.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "kube/object.h"
#include "operator/refusals.h"
#include "policy/crds.h"

namespace gpuop::op {
namespace {

constexpr std::string_view kPolicies = "clusterpolicies.nvidia.com";
// Definitions on which the answers depend.
constexpr std::array<std::string_view, 5> kAskedFor = {
    kPolicies, "nvidiadrivers.nvidia.com", "gpuclusters.nvidia.com", "servicemonitors.monitoring.coreos.com",
    "prometheusrules.monitoring.coreos.com"};

constexpr Duration kAgain = 1s;
constexpr int kMostAgain = 5;

bool established(const std::shared_ptr<const Json>& definition) {
  const Json* condition = definition ? kube::condition(*definition, "Established") : nullptr;
  return condition && get_string(*condition, {"status"}) == "True";
}

}  // namespace

void Server::ask(std::function<void(Result<>)> done) {
  asked_.push_back(std::move(done));
  if (asked_.size() > 1) return;
  HttpRequest version;
  version.path = "/version";
  asking_ = client_.raw(version, [this](kube::ApiResult<HttpResponse> answer) {
    if (!answer) return answered(fail(answer.error().error("read the API server's version")));
    const auto body = parse_json(answer->body);
    if (!body) return answered(fail(body.error().in("read the API server's version")));
    facts_.kubernetes_version = get_string(*body, {"gitVersion"});
    ask_groups();
  });
}

// All groups at once, so that nobody asks for those that are not there.
void Server::ask_groups() {
  HttpRequest request;
  request.path = "/apis";
  asking_ = client_.raw(request, [this](kube::ApiResult<HttpResponse> found) {
    if (!found) return answered(fail(found.error().error("discover the API groups")));
    const auto list = parse_json(found->body);
    if (!list) return answered(fail(list.error().in("discover the API groups")));
    groups_.clear();
    found_.clear();
    for (const auto& group : get_array(*list, {"groups"})) groups_.insert(str(get_string(group, {"name"})));
    ask_kinds();
  });
}

void Server::ask_kinds() {
  discover("monitoring.coreos.com/v1", [this](const Kinds& kinds) {
    facts_.has_service_monitors = kinds.contains("servicemonitors");
    facts_.has_prometheus_rules = kinds.contains("prometheusrules");
    if (facts_.has_service_monitors) cache_.watch(kube::kServiceMonitors, cache_.ns(), {"spec"});
    discover("nvidia.com/v1alpha1", [this](const Kinds& ours) {
      if (ours.contains("nvidiadrivers")) cache_.watch(kube::kNvidiaDrivers);
      if (ours.contains("gpuclusters")) cache_.watch(kube::kGpuClusters);
      ask_openshift();
    });
  });
}

// The plural names of the kinds of a group version; none where it is not served.
void Server::discover(const std::string& group_version, const std::function<void(const Kinds&)>& then) {
  if (!groups_.contains(group_version.substr(0, group_version.find('/')))) return then({});
  HttpRequest request;
  request.path = "/apis/" + group_version;
  asking_ = client_.raw(request, [this, group_version, then](kube::ApiResult<HttpResponse> found) {
    Kinds kinds;
    if (!found && !found.error().not_found())
      return answered(fail(found.error().error("discover " + group_version)));
    if (found) {
      const auto list = parse_json(found->body);
      if (!list) return answered(fail(list.error().in("discover " + group_version)));
      const std::string group = group_version.substr(0, group_version.find('/'));
      for (const auto& resource : get_array(*list, {"resources"})) {
        const std::string name = str(get_string(resource, {"name"}));
        found_.insert(name + "." + group);
        kinds.insert(name);
      }
    }
    then(kinds);
  });
}

void Server::ask_openshift() {
  if (!groups_.contains("config.openshift.io")) {
    facts_.openshift_version.clear();
    return ask_definition();
  }
  HttpRequest request;
  request.path = "/apis/config.openshift.io/v1/clusterversions/version";
  asking_ = client_.raw(request, [this](kube::ApiResult<HttpResponse> cluster) {
    if (!cluster && !cluster.error().not_found())
      return answered(fail(cluster.error().error("read OpenShift's version")));
    if (!cluster) return ask_definition();
    const auto object = parse_json(cluster->body);
    if (!object) return answered(fail(object.error().in("read OpenShift's version")));
    facts_.openshift_version.clear();
    for (const auto& entry : get_array(*object, {"status", "history"})) {
      if (get_string(entry, {"state"}) != "Completed") continue;
      const auto parts = split(get_string(entry, {"version"}), '.');
      if (parts.size() >= 2) facts_.openshift_version = parts[0] + "." + parts[1];
      break;
    }
    if (facts_.openshift_version.empty())
      return answered(
          fail(Code::kUnavailable, "read OpenShift's version: no completed update in its history"));
    ask_openshift_kinds();
  });
}

// What rendering reads and makes on OpenShift alone.
void Server::ask_openshift_kinds() {
  if (facts_.has_prometheus_rules) cache_.watch(kPrometheusRules, cache_.ns(), {"spec"});
  discover("security.openshift.io/v1", [this](const Kinds& security) {
    if (security.contains("securitycontextconstraints")) cache_.watch(kSecurityContextConstraints, "", {"*"});
    discover("config.openshift.io/v1", [this](const Kinds& config) {
      if (config.contains("proxies")) cache_.watch(kProxies, "", {"spec"});
      discover("image.openshift.io/v1", [this](const Kinds& image) {
        if (image.contains("imagestreams")) cache_.watch(kImageStreams, "openshift", {"spec.tags"});
        ask_definition();
      });
    });
  });
}

// Whether the API server keeps every field that we know. Not to be allowed to look is no reason to do
// nothing.
void Server::ask_definition() {
  asking_ = client_.get(
      kube::kCustomResourceDefinitions, "", std::string(kPolicies), [this](kube::ApiResult<> live) {
        dropped_.clear();
        if (live) {
          static const Json kOurs = policy::crds().front();
          dropped_ = dropped_fields(*live, kOurs, "v1");
        } else {
          log::info("the definition of ClusterPolicies was not read", {{"error", live.error().message}});
        }
        known_ = true;
        ask_again_if_behind();
        answered({});
      });
}

// An API server lists a kind some time after its definition says that it is established, and no watch tells
// when. One that is never listed (of another version) is not asked for for ever.
void Server::ask_again_if_behind() {
  const bool behind = definitions_ && std::ranges::any_of(kAskedFor, [this](std::string_view name) {
                        return name != kPolicies && established(definitions_->get(name)) &&
                               !found_.contains(std::string(name));
                      });
  if (!behind || asked_again_ == kMostAgain) return;
  ++asked_again_;
  again_ = client_.loop().after(kAgain, [this] {
    known_ = false;
    changed_();
  });
}

void Server::answered(const Result<>& result) {
  for (const auto& done : std::exchange(asked_, {})) done(result);
}

void Server::watch_definitions(std::function<void()> changed) {
  kube::InformerOptions options;
  options.keep = {"status.conditions.type", "status.conditions.status"};
  options.paged = true;
  definitions_ =
      std::make_unique<kube::Informer>(client_, kube::kCustomResourceDefinitions, std::move(options));
  changed_ = std::move(changed);
  definitions_->on_change([this](const auto& old, const auto& now) {
    if (std::ranges::find(kAskedFor, kube::name_of(now ? *now : *old)) == kAskedFor.end()) return;
    const bool same = established(old) == established(now);
    const bool edited =
        old && now && kube::name_of(*now) == kPolicies &&
        get_int(*old, {"metadata", "generation"}) != get_int(*now, {"metadata", "generation"});
    // The first list tells nothing new to who has asked already.
    if ((same && !edited) || (!old && !definitions_->synced())) return;
    known_ = false;
    asked_again_ = 0;
    changed_();
  });
  definitions_->start();
}

}  // namespace gpuop::op
