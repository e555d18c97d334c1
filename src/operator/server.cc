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

constexpr std::string_view kNodeFeatures = "nodefeatures.nfd.k8s-sigs.io";
constexpr Duration kAgain = 1s;
constexpr int kMostAgain = 5;

bool established(const std::shared_ptr<const Json>& definition) {
  const Json* condition = definition ? kube::condition(*definition, "Established") : nullptr;
  return condition && get_string(*condition, {"status"}) == "True";
}

// "v1.34.4", with or without more behind it: "v1.31.2-eks-7f9249a", "v1.33.1+k3s1".
bool is_version(std::string_view text) {
  if (!text.starts_with('v')) return false;
  const auto parts = split(text.substr(1, text.find_first_of("-+") - 1), '.');
  return parts.size() == 3 && std::ranges::all_of(parts, [](const std::string& part) {
           return !part.empty() && part.find_first_not_of("0123456789") == std::string::npos;
         });
}

}  // namespace

// One JSON document of the API server; nothing where it has none. `doing`: for the sentence of an error,
// which ends the round.
void Server::read(const std::string& path, const std::string& doing,
                  std::function<void(std::optional<Json>)> then) {
  HttpRequest request;
  request.path = path;
  asking_ = client_.raw(request, [this, doing, then = std::move(then)](kube::ApiResult<HttpResponse> answer) {
    if (!answer && answer.error().not_found()) return then(std::nullopt);
    if (!answer) return answered(fail(answer.error().error(doing)));
    auto body = parse_json(answer->body);
    if (!body) return answered(fail(body.error().in(doing)));
    then(std::move(*body));
  });
}

void Server::ask(std::function<void(Result<>)> done) {
  asked_.push_back(std::move(done));
  if (asked_.size() > 1) return;
  constexpr const char* kDoing = "read the API server's version";
  read("/version", kDoing, [this](const std::optional<Json>& version) {
    const std::string text = version ? str(get_string(*version, {"gitVersion"})) : "";
    if (!is_version(text))
      return answered(fail(Code::kInvalid,
                           std::string(kDoing) + ": '" + text + "': must be a version of the form vX.Y.Z"));
    facts_.kubernetes_version = text;
    ask_groups();
  });
}

// All groups at once, so that nobody asks for those that are not there.
void Server::ask_groups() {
  read("/apis", "discover the API groups", [this](const std::optional<Json>& list) {
    groups_.clear();
    kinds_.clear();
    if (list)
      for (const auto& group : get_array(*list, {"groups"})) groups_.insert(str(get_string(group, {"name"})));
    ask_kinds();
  });
}

void Server::ask_kinds() {
  discover("monitoring.coreos.com/v1", [this] {
    facts_.has_service_monitors = kinds_.contains("servicemonitors.monitoring.coreos.com");
    facts_.has_prometheus_rules = kinds_.contains("prometheusrules.monitoring.coreos.com");
    if (facts_.has_service_monitors) cache_.watch(kube::kServiceMonitors, cache_.ns(), {"spec"});
    discover("nvidia.com/v1alpha1", [this] {
      if (kinds_.contains("nvidiadrivers.nvidia.com")) cache_.watch(kube::kNvidiaDrivers);
      if (kinds_.contains("gpuclusters.nvidia.com")) cache_.watch(kube::kGpuClusters);
      ask_openshift();
    });
  });
}

// Adds the kinds of a group version to kinds_; none where it is not served.
void Server::discover(const std::string& group_version, std::function<void()> then) {
  const std::string group = group_version.substr(0, group_version.find('/'));
  if (!groups_.contains(group)) return then();
  read("/apis/" + group_version, "discover " + group_version,
       [this, group, then = std::move(then)](const std::optional<Json>& list) {
         if (list)
           for (const auto& kind : get_array(*list, {"resources"}))
             kinds_.insert(str(get_string(kind, {"name"})) + "." + group);
         then();
       });
}

void Server::ask_openshift() {
  if (!groups_.contains("config.openshift.io")) {
    facts_.openshift_version.clear();
    return ask_definition();
  }
  constexpr const char* kDoing = "read OpenShift's version";
  read("/apis/config.openshift.io/v1/clusterversions/version", kDoing,
       [this](const std::optional<Json>& cluster) {
         facts_.openshift_version.clear();
         if (!cluster) return ask_definition();
         for (const auto& entry : get_array(*cluster, {"status", "history"})) {
           if (get_string(entry, {"state"}) != "Completed") continue;
           const auto parts = split(get_string(entry, {"version"}), '.');
           if (parts.size() >= 2) facts_.openshift_version = parts[0] + "." + parts[1];
           break;
         }
         if (facts_.openshift_version.empty())
           return answered(
               fail(Code::kUnavailable, std::string(kDoing) + ": no completed update in its history"));
         ask_openshift_kinds();
       });
}

// What rendering reads and makes on OpenShift alone.
void Server::ask_openshift_kinds() {
  if (facts_.has_prometheus_rules) cache_.watch(kPrometheusRules, cache_.ns(), {"spec"});
  discover("security.openshift.io/v1", [this] {
    if (kinds_.contains("securitycontextconstraints.security.openshift.io"))
      cache_.watch(kSecurityContextConstraints, "", {"*"});
    discover("config.openshift.io/v1", [this] {
      if (kinds_.contains("proxies.config.openshift.io")) cache_.watch(kProxies, "", {"spec"});
      discover("image.openshift.io/v1", [this] {
        if (kinds_.contains("imagestreams.image.openshift.io"))
          cache_.watch(kImageStreams, "openshift", {"spec.tags"});
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
                               !kinds_.contains(std::string(name));
                      });
  if (!behind || asked_again_ == kMostAgain) return;
  ++asked_again_;
  again_ = client_.loop().after(kAgain, [this] {
    known_ = false;
    changed_();
  });
}

bool Server::lacks_node_features() const {
  return definitions_ && definitions_->synced() && !established(definitions_->get(kNodeFeatures));
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
    const std::string_view name = kube::name_of(now ? *now : *old);
    if (name == kNodeFeatures && established(old) != established(now) && definitions_->synced())
      return changed_();
    if (std::ranges::find(kAskedFor, name) == kAskedFor.end()) return;
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
