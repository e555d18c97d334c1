// Subresources other than status (kubernetes-api.md §11).
#include "base/text.h"
#include "cluster/apiserver/crd.h"
#include "cluster/apiserver/server.h"
#include "cluster/apiserver/shape.h"
#include "kube/object.h"

namespace gpuop::cluster::api {

namespace {

constexpr std::int64_t kTokenSeconds = 3600;
constexpr std::int64_t kTokenSecondsMin = 600;
constexpr std::int64_t kTokenSecondsMax = 1ll << 32;

// A body of another kind than the resource's: Eviction, Binding, TokenRequest, Scale.
Answer<Json> body_of(Server& server, Call& call, std::string_view package, std::string_view kind,
                     std::string_view api) {
  ResourceType type;
  type.kind = std::string(kind);
  std::size_t slash = api.find('/');
  type.group = slash == std::string_view::npos ? "" : std::string(api.substr(0, slash));
  type.version = std::string(slash == std::string_view::npos ? api : api.substr(slash + 1));
  type.message = find_message(package, kind);
  Json raw = TRY(server.body_value(call, type));
  return server.read_object(call, type, raw);
}

// The place of ".spec.replicas" and the like, made where it is missing; plain keys only, as scale paths must
// be.
Json* place_of(Json& object, const std::string& path) {
  Json* at = &object;
  for (const std::string& key : split(path, '.')) {
    if (key.empty()) continue;
    if (at->is_null()) at->emplace_object();
    JsonObject* map = at->if_object();
    if (map == nullptr) return nullptr;
    at = &(*map)[key];
  }
  return at;
}

std::string selector_of(const ResourceType& type, const Json& object) {
  if (type.custom) {
    const Json* text =
        type.custom->label_selector.empty() ? nullptr : by_json_path(object, type.custom->label_selector);
    return text == nullptr ? "" : str(as_text(*text));
  }
  std::string out;
  for (const auto& [key, value] : get_object(object, {"spec", "selector", "matchLabels"}))
    out += (out.empty() ? "" : ",") + std::string(key) + "=" + str(as_text(value));
  return out;
}

Json scale_of(const ResourceType& type, const Json& object) {
  const Json& meta = *find(object, {"metadata"});
  JsonObject metadata;
  for (std::string_view key : {"name", "namespace", "uid", "resourceVersion", "creationTimestamp"})
    if (const Json* value = find(meta, {key})) metadata[key] = *value;
  auto count = [&](const std::string& path, Keys usual) {
    const Json* value = type.custom ? by_json_path(object, path) : find(object, usual);
    return value != nullptr && value->is_int64() ? value->get_int64() : 0;
  };
  JsonObject spec;
  std::int64_t wanted = count(type.custom ? type.custom->spec_replicas : "", {"spec", "replicas"});
  if (wanted != 0) spec["replicas"] = wanted;
  JsonObject status{
      {"replicas", count(type.custom ? type.custom->status_replicas : "", {"status", "replicas"})}};
  if (std::string selector = selector_of(type, object); !selector.empty()) status["selector"] = selector;
  return JsonObject{{"kind", "Scale"},
                    {"apiVersion", "autoscaling/v1"},
                    {"metadata", std::move(metadata)},
                    {"spec", std::move(spec)},
                    {"status", std::move(status)}};
}

Json success(int code) {
  return JsonObject{{"kind", "Status"},
                    {"apiVersion", "v1"},
                    {"metadata", JsonObject()},
                    {"status", "Success"},
                    {"code", code}};
}

}  // namespace

void Server::subresource(const CallPtr& call) {
  const ResourceType& type = *call->type;
  const std::string& sub = call->sub;
  bool post = call->verb == "create";
  if (type.store == "/pods") {
    if (sub == "log" && call->verb == "get") return logs(call);
    if (sub == "eviction" && post) return evict(call);
    if (sub == "binding" && post) return bind(call);
    const bool streams = sub == "exec" || sub == "attach" || sub == "portforward";
    if (streams && (call->verb == "get" || post)) return exec(call);
    for (std::string_view lacking : {"proxy", "ephemeralcontainers", "resize"})
      if (sub == lacking)
        return respond_status(
            call, method_not_allowed(sub + " is not supported by this simulated API server").error());
  }
  if (sub == "proxy" && (type.store == "/nodes" || type.store == "/services"))
    return respond_status(call,
                          method_not_allowed("proxy is not supported by this simulated API server").error());
  if (type.store == "/serviceaccounts" && sub == "token" && post) return issue_token(call);
  if (type.store == "/namespaces" && sub == "finalize" && call->verb == "update")
    return finalize_namespace(call);
  if (sub == "scale" && type.has_scale) return scale(call);
  if (sub == "scale" && type.custom) return respond_status(call, not_found(type, call->name).error());
  respond_status(call, (type.subresource(sub) != nullptr ? method_not_allowed() : no_such_path()).error());
}

void Server::bind(const CallPtr& call) {
  Answer<Json> body = call->type->kind == "Pod" && !call->http.body.empty()
                          ? body_of(*this, *call, "core", "Binding", "v1")
                          : Answer<Json>(bad_request("the body is empty"));
  if (!body) return respond_status(call, body.error());
  std::string node = str(get_string(*body, {"target", "name"}));
  if (node.empty()) return respond_status(call, refuse(500, "", "target.name: Required value").error());
  ObjectPtr pod = stored(*call->type, call->ns, call->name);
  if (!pod) return respond_status(call, not_found(*call->type, call->name).error());
  std::string_view uid = kube::uid_of(*body);
  if (!uid.empty() && uid != kube::uid_of(pod->value()))
    return respond_status(call, conflict(*call->type, call->name,
                                         "Precondition failed: UID in precondition: " + str(uid) +
                                             ", UID in object meta: " + str(kube::uid_of(pod->value())))
                                    .error());
  ResourceType binding = *call->type;
  binding.plural = "pods/binding";
  std::string_view bound = get_string(pod->value(), {"spec", "nodeName"});
  if (!bound.empty())
    return respond_status(
        call, conflict(binding, call->name,
                       "pod " + call->name + " is already assigned to node \"" + str(bound) + "\"")
                  .error());
  if (has(pod->value(), {"metadata", "deletionTimestamp"}))
    return respond_status(
        call,
        conflict(binding, call->name, "pod " + call->name + " is being deleted, cannot be assigned to a host")
            .error());
  if (!call->dry_run) {
    Json next = pod->value();
    set(next, {"spec", "nodeName"}, Json(node));
    for (const auto& [key, value] : get_object(*body, {"metadata", "annotations"}))
      set(next, {"metadata", "annotations", key}, value);
    kube::set_condition(next, "PodScheduled", "True", "", "", now_text());
    if (Json* conditions = find_mutable(next, {"status", "conditions"});
        conditions != nullptr && conditions->is_array())
      for (Json& condition : conditions->get_array())
        if (get_string(condition, {"type"}) == "PodScheduled") {
          gpuop::remove(condition, {"reason"});
          gpuop::remove(condition, {"message"});
        }
    store.put(call->type->store, make_key(call->ns, call->name), std::move(next), now());
  }
  respond_json(call, 201, success(201));
}

void Server::evict(const CallPtr& call) {
  Answer<Json> body = body_of(*this, *call, "policy", "Eviction", "policy/v1");
  if (!body) return respond_status(call, body.error());
  std::string_view named = kube::name_of(*body);
  if (!named.empty() && named != call->name)
    return respond_status(call, bad_request("name in URL does not match name in Eviction object").error());
  ObjectPtr pod = stored(*call->type, call->ns, call->name);
  if (!pod) return respond_status(call, not_found(*call->type, call->name).error());
  DeleteOptions how;
  how.dry_run = call->dry_run;
  how.uid = str(get_string(*body, {"deleteOptions", "preconditions", "uid"}));
  if (const Json* grace = find(*body, {"deleteOptions", "gracePeriodSeconds"});
      grace != nullptr && grace->is_int64())
    how.grace = grace->get_int64();
  for (const Json& word : get_array(*body, {"deleteOptions", "dryRun"}))
    how.dry_run = how.dry_run || as_text(word) == "All";
  std::string_view phase = get_string(pod->value(), {"status", "phase"});
  bool guarded = phase != "Succeeded" && phase != "Failed" && phase != "Pending" &&
                 !has(pod->value(), {"metadata", "deletionTimestamp"});
  std::vector<ObjectPtr> budgets;
  for (const auto& [key, budget] : store.collection("policy/poddisruptionbudgets").objects()) {
    const Json* selector = find(budget->value(), {"spec", "selector"});
    if (kube::namespace_of(budget->value()) != call->ns || selector == nullptr) continue;
    Result<kube::LabelSelector> labels = kube::LabelSelector::from_object(*selector);
    if (labels && labels->matches(get_object(pod->value(), {"metadata", "labels"})))
      budgets.push_back(budget);
  }
  if (guarded && budgets.size() > 1)
    return respond_status(call, refuse(500, "",
                                       "This pod has more than one PodDisruptionBudget, which the eviction "
                                       "subresource does not support.")
                                    .error());
  if (guarded && budgets.size() == 1) {
    const Json& budget = budgets[0]->value();
    std::int64_t left = get_int(budget, {"status", "disruptionsAllowed"});
    bool current =
        get_int(budget, {"status", "observedGeneration"}) >= get_int(budget, {"metadata", "generation"});
    if (left <= 0 || !current) {
      Status no =
          refuse(429, "TooManyRequests", "Cannot evict pod as it would violate the pod's disruption budget.")
              .error();
      no.causes.push_back({"DisruptionBudget",
                           "The disruption budget " + str(kube::name_of(budget)) + " needs " +
                               std::to_string(get_int(budget, {"status", "desiredHealthy"})) +
                               " healthy pods and has " +
                               std::to_string(get_int(budget, {"status", "currentHealthy"})) + " currently",
                           ""});
      if (!current) no.retry_after = 10;
      return respond_status(call, no);
    }
    if (!how.dry_run) {
      Json next = budget;
      set(next, {"status", "disruptionsAllowed"}, left - 1);
      set(next, {"status", "disruptedPods", call->name}, Json(now_text()));
      store.put("policy/poddisruptionbudgets", make_key(call->ns, kube::name_of(budget)), std::move(next),
                now());
    }
  }
  call->sub.clear();
  Answer<Removed> removed = remove(*call, how);
  if (!removed) return respond_status(call, removed.error());
  respond_json(call, 201, success(201));
}

void Server::finalize_namespace(const CallPtr& call) {
  Answer<Json> raw = body_value(*call, *call->type);
  Answer<Json> body = raw ? read_object(*call, *call->type, *raw) : raw;
  if (!body) return respond_status(call, body.error());
  call->sub.clear();
  Answer<ObjectPtr> made = modify(*call, [&](const Json& current) -> Answer<Json> {
    std::string_view version = get_string(*body, {"metadata", "resourceVersion"});
    if (!version.empty() && version != get_string(current, {"metadata", "resourceVersion"}))
      return stale(*call->type, call->name);
    Json next = current;
    set(next, {"spec"}, JsonObject());
    if (const Json* left = find(*body, {"spec", "finalizers"})) set(next, {"spec", "finalizers"}, *left);
    return next;
  });
  if (!made) return respond_status(call, made.error());
  respond_object(call, 200, *made);
}

void Server::scale(const CallPtr& call) {
  const ResourceType& type = *call->type;
  ObjectPtr object = stored(type, call->ns, call->name);
  if (!object) return respond_status(call, not_found(type, call->name).error());
  if (call->verb == "get") return respond_json(call, 200, scale_of(type, object->value()));
  Json wanted = scale_of(type, object->value());
  if (call->verb == "update") {
    Answer<Json> body = body_of(*this, *call, "autoscaling", "Scale", "autoscaling/v1");
    if (!body) return respond_status(call, body.error());
    wanted = std::move(*body);
  } else if (call->verb == "patch") {
    Result<Json> patch = parse_json(call->http.body);
    if (!patch)
      return respond_status(call, bad_request("error decoding patch: " + patch.error().text()).error());
    if (patch->is_array()) {
      Result<> done = kube::json_patch_apply(wanted, *patch);
      if (!done) return respond_status(call, refuse(422, "Invalid", done.error().text()).error());
    } else {
      kube::merge_apply(wanted, *patch);
    }
  } else {
    return respond_status(call, method_not_allowed().error());
  }
  const Json* replicas = find(wanted, {"spec", "replicas"});
  std::int64_t count = replicas != nullptr && replicas->is_int64() ? replicas->get_int64() : 0;
  if (type.custom && count < 0)
    return respond_status(
        call, invalid_object(type, call->name,
                             {invalid(type.custom->spec_replicas, count, "should be a non-negative integer")})
                  .error());
  if (count < 0 || (replicas != nullptr && !replicas->is_int64()))
    return respond_status(call,
                          invalid_object("autoscaling", "Scale", call->name,
                                         {invalid("spec.replicas", replicas == nullptr ? Json(0) : *replicas,
                                                  "must be greater than or equal to 0")})
                              .error());
  std::string_view version = get_string(wanted, {"metadata", "resourceVersion"});
  Answer<ObjectPtr> made = modify(*call, [&](const Json& current) -> Answer<Json> {
    if (!version.empty() && version != get_string(current, {"metadata", "resourceVersion"}))
      return stale(type, call->name);
    Json next = current;
    if (!type.custom) {
      set(next, {"spec", "replicas"}, count);
    } else if (Json* slot = place_of(next, type.custom->spec_replicas)) {
      *slot = count;
    }
    return next;
  });
  if (!made) return respond_status(call, made.error());
  respond_json(call, 200, scale_of(type, (*made)->value()));
}

void Server::issue_token(const CallPtr& call) {
  ObjectPtr account = stored(*call->type, call->ns, call->name);
  if (!account) return respond_status(call, not_found(*call->type, call->name).error());
  Answer<Json> body = body_of(*this, *call, "authentication", "TokenRequest", "authentication.k8s.io/v1");
  if (!body) return respond_status(call, body.error());
  std::int64_t seconds = get_int(*body, {"spec", "expirationSeconds"}, kTokenSeconds);
  if (seconds < kTokenSecondsMin || seconds > kTokenSecondsMax)
    return respond_status(
        call, invalid_object("authentication.k8s.io", "TokenRequest", "",
                             {invalid("spec.expirationSeconds", seconds,
                                      seconds < kTokenSecondsMin
                                          ? "may not specify a duration less than 10 minutes"
                                          : "may not specify a duration larger than 2^32 seconds")})
                  .error());
  auto start = std::chrono::duration_cast<std::chrono::seconds>(now().time_since_epoch()).count();
  JsonArray audiences = get_array(*body, {"spec", "audiences"});
  if (audiences.empty()) audiences.push_back(Json(options.service_account_issuer));
  JsonObject about{
      {"namespace", call->ns},
      {"serviceaccount", JsonObject{{"name", call->name}, {"uid", kube::uid_of(account->value())}}}};
  std::string_view kind = get_string(*body, {"spec", "boundObjectRef", "kind"});
  if (!kind.empty()) {
    std::string name = str(get_string(*body, {"spec", "boundObjectRef", "name"}));
    TypePtr type = find_kind("", kind);
    if (!type || (kind != "Pod" && kind != "Secret" && kind != "Node"))
      return respond_status(
          call,
          invalid_object("authentication.k8s.io", "TokenRequest", call->name,
                         {unsupported("spec.boundObjectRef.kind", Json(kind), {"Pod", "Secret", "Node"})})
              .error());
    ObjectPtr bound = stored(*type, call->ns, name);
    if (!bound) return respond_status(call, not_found(*type, name).error());
    std::string_view uid = get_string(*body, {"spec", "boundObjectRef", "uid"});
    if (!uid.empty() && uid != kube::uid_of(bound->value()))
      return respond_status(
          call,
          conflict(
              *type, name,
              "the UID in the bound object reference (" + str(uid) +
                  ") does not match the UID in record. The object might have been deleted and then recreated")
              .error());
    about[to_lower(kind)] = JsonObject{{"name", name}, {"uid", kube::uid_of(bound->value())}};
  }
  JsonObject claims{{"aud", audiences},     {"exp", start + seconds},
                    {"iat", start},         {"iss", options.service_account_issuer},
                    {"jti", random.uuid()}, {"kubernetes.io", std::move(about)},
                    {"nbf", start},         {"sub", "system:serviceaccount:" + call->ns + ":" + call->name}};
  set(*body, {"metadata", "name"}, Json(call->name));
  set(*body, {"metadata", "namespace"}, Json(call->ns));
  set(*body, {"metadata", "uid"}, kube::uid_of(account->value()));
  set(*body, {"metadata", "creationTimestamp"}, Json(now_text()));
  if (!has(*body, {"spec", "boundObjectRef"})) set(*body, {"spec", "boundObjectRef"}, Json(nullptr));
  set(*body, {"spec", "audiences"}, std::move(audiences));
  set(*body, {"spec", "expirationSeconds"}, seconds);
  set(*body, {"status"},
      JsonObject{{"token", signer.sign(Json(std::move(claims)))},
                 {"expirationTimestamp", format_time(Time(std::chrono::seconds(start + seconds)))}});
  respond_json(call, 201, *body);
}

}  // namespace gpuop::cluster::api
