// Who asks, and what they may do (kubernetes-api.md §13).
#include <algorithm>

#include "base/text.h"
#include "cluster/apiserver/server.h"
#include "kube/object.h"

namespace gpuop::cluster::api {

namespace {

constexpr std::string_view kRbac = "rbac.authorization.k8s.io/";

Refusal unauthorized() {
  return refuse(401, "Unauthorized", "Unauthorized");
}

bool in_list(const JsonArray& list, std::string_view word) {
  return std::any_of(list.begin(), list.end(),
                     [&](const Json& item) { return as_text(item) == word || as_text(item) == "*"; });
}

bool has_group(const ApiUser& user, std::string_view group) {
  return std::find(user.groups.begin(), user.groups.end(), group) != user.groups.end();
}

bool subject_matches(const Json& subject, const ApiUser& user, std::string_view binding_ns) {
  std::string_view kind = get_string(subject, {"kind"});
  std::string_view name = get_string(subject, {"name"});
  if (kind == "User") return user.name == name;
  if (kind == "Group") return has_group(user, name);
  std::string_view ns = get_string(subject, {"namespace"}, binding_ns);
  return kind == "ServiceAccount" &&
         user.name == "system:serviceaccount:" + std::string(ns) + ":" + std::string(name);
}

bool resource_matches(const JsonArray& resources, std::string_view plural, std::string_view sub) {
  std::string full = std::string(plural) + (sub.empty() ? "" : "/" + std::string(sub));
  for (const Json& item : resources) {
    std::string_view word = as_text(item);
    if (word == "*" || word == full) return true;
    if (!sub.empty() && word == "*/" + std::string(sub)) return true;
  }
  return false;
}

bool rule_allows(const Json& rule, std::string_view verb, std::string_view group, std::string_view plural,
                 std::string_view sub, std::string_view name) {
  if (!in_list(get_array(rule, {"verbs"}), verb) || !in_list(get_array(rule, {"apiGroups"}), group))
    return false;
  if (!resource_matches(get_array(rule, {"resources"}), plural, sub)) return false;
  const JsonArray& names = get_array(rule, {"resourceNames"});
  return names.empty() || (!name.empty() && std::any_of(names.begin(), names.end(),
                                                        [&](const Json& n) { return as_text(n) == name; }));
}

}  // namespace

Answer<ApiUser> Server::authenticate(const Call& call) {
  ApiUser user;
  std::string_view header = call.http.header("Authorization");
  if (!call.http.client_cert_cn.empty()) {
    user.name = call.http.client_cert_cn;
    user.groups = call.http.client_cert_orgs;
  } else if (header.size() > 7 && to_lower(header.substr(0, 7)) == "bearer ") {
    std::string token(trim(header.substr(7)));
    auto fixed = options.tokens.find(token);
    if (fixed != options.tokens.end()) {
      user = fixed->second;
    } else {
      Result<Json> claims = signer.verify(token);
      if (!claims || get_string(*claims, {"iss"}) != options.service_account_issuer) return unauthorized();
      auto seconds = std::chrono::duration_cast<std::chrono::seconds>(now().time_since_epoch()).count();
      if (get_int(*claims, {"exp"}) <= seconds) return unauthorized();
      std::string ns = str(get_string(*claims, {"kubernetes.io", "namespace"}));
      std::string name = str(get_string(*claims, {"kubernetes.io", "serviceaccount", "name"}));
      ObjectPtr account = store.collection("/serviceaccounts").get(make_key(ns, name));
      if (!account ||
          kube::uid_of(account->value()) != get_string(*claims, {"kubernetes.io", "serviceaccount", "uid"}))
        return unauthorized();
      // A token bound to a pod dies with it.
      if (std::string pod = str(get_string(*claims, {"kubernetes.io", "pod", "name"})); !pod.empty()) {
        ObjectPtr bound = store.collection("/pods").get(make_key(ns, pod));
        if (!bound || kube::uid_of(bound->value()) != get_string(*claims, {"kubernetes.io", "pod", "uid"}))
          return unauthorized();
      }
      user.name = "system:serviceaccount:" + ns + ":" + name;
      user.uid = str(kube::uid_of(account->value()));
      user.groups = {"system:serviceaccounts", "system:serviceaccounts:" + ns};
    }
  } else if (!header.empty() || !options.anonymous) {
    return unauthorized();
  } else {
    return ApiUser{"system:anonymous", "", {"system:unauthenticated"}};
  }
  user.groups.emplace_back("system:authenticated");
  std::string_view as = call.http.header("Impersonate-User");
  if (as.empty()) return user;
  std::string_view group = call.http.header("Impersonate-Group");
  bool may = allowed(user, "impersonate", nullptr, "", "users", "", "", as) &&
             (group.empty() || allowed(user, "impersonate", nullptr, "", "groups", "", "", group));
  if (!may)
    return refuse(403, "Forbidden",
                  "users \"" + str(as) + "\" is forbidden: User \"" + user.name +
                      "\" cannot impersonate resource \"users\" in API group \"\" at the cluster scope");
  ApiUser other{str(as), "", {}};
  if (!group.empty()) other.groups.push_back(str(group));
  other.groups.emplace_back("system:authenticated");
  return other;
}

std::vector<Json> Server::rules_for(const ApiUser& user, std::string_view ns) const {
  std::vector<Json> rules;
  for (Grant& grant : grants_for(user, ns)) rules.push_back(std::move(grant.rule));
  return rules;
}

// "RoleBinding "r/ns" of Role "r" to User "bob"", as reviews say it.
static std::string grant_text(const Json& binding, std::string_view ns, const Json& subject) {
  const auto place = [&](std::string_view name) {
    return "\"" + str(name) + (ns.empty() ? "" : "/" + str(ns)) + "\"";
  };
  const std::string kind = str(get_string(subject, {"kind"}));
  std::string whom = str(get_string(subject, {"name"}));
  if (kind == "ServiceAccount") whom += "/" + str(get_string(subject, {"namespace"}, ns));
  return (ns.empty() ? "ClusterRoleBinding " : "RoleBinding ") + place(kube::name_of(binding)) + " of " +
         str(get_string(binding, {"roleRef", "kind"})) + " \"" +
         str(get_string(binding, {"roleRef", "name"})) + "\" to " + kind + " \"" + whom + "\"";
}

std::vector<Server::Grant> Server::grants_for(const ApiUser& user, std::string_view ns) const {
  std::vector<Grant> rules;
  auto objects = [&](std::string_view plural) -> const Collection& {
    static const Collection none;
    const Collection* found = store.find(std::string(kRbac) + std::string(plural));
    return found == nullptr ? none : *found;
  };
  auto add_role = [&](const Json& binding, std::string_view binding_ns) {
    const JsonArray& subjects = get_array(binding, {"subjects"});
    const auto subject = std::find_if(subjects.begin(), subjects.end(),
                                      [&](const Json& s) { return subject_matches(s, user, binding_ns); });
    if (subject == subjects.end()) return;
    bool cluster = get_string(binding, {"roleRef", "kind"}) == "ClusterRole";
    ObjectPtr role = objects(cluster ? "clusterroles" : "roles")
                         .get(make_key(cluster ? std::string_view() : binding_ns,
                                       get_string(binding, {"roleRef", "name"})));
    if (!role) return;
    const std::string why = grant_text(binding, binding_ns, *subject);
    for (const Json& rule : get_array(role->value(), {"rules"})) rules.push_back({rule, why});
  };
  for (const auto& [key, binding] : objects("clusterrolebindings").objects()) add_role(binding->value(), "");
  if (ns.empty()) return rules;
  for (const auto& [key, binding] : objects("rolebindings").objects())
    if (kube::namespace_of(binding->value()) == ns) add_role(binding->value(), ns);
  return rules;
}

bool Server::allowed(const ApiUser& user, std::string_view verb, const ResourceType*, std::string_view group,
                     std::string_view plural, std::string_view sub, std::string_view ns,
                     std::string_view name) const {
  if (options.authorization == ApiServerOptions::Authorization::kAlwaysAllow ||
      has_group(user, "system:masters"))
    return true;
  std::vector<Json> rules = rules_for(user, ns);
  return std::any_of(rules.begin(), rules.end(),
                     [&](const Json& rule) { return rule_allows(rule, verb, group, plural, sub, name); });
}

std::string Server::reason_for(const ApiUser& user, const Json& review) const {
  const Json* asked = find(review, {"spec", "resourceAttributes"});
  if (options.authorization == ApiServerOptions::Authorization::kAlwaysAllow ||
      has_group(user, "system:masters") || asked == nullptr)
    return "";
  for (const Grant& grant : grants_for(user, get_string(*asked, {"namespace"})))
    if (rule_allows(grant.rule, get_string(*asked, {"verb"}), get_string(*asked, {"group"}),
                    get_string(*asked, {"resource"}), get_string(*asked, {"subresource"}),
                    get_string(*asked, {"name"})))
      return grant.why;
  return "";
}

bool Server::allowed_path(const ApiUser& user, std::string_view verb, std::string_view path) const {
  if (options.authorization == ApiServerOptions::Authorization::kAlwaysAllow ||
      has_group(user, "system:masters"))
    return true;
  std::vector<Json> rules = rules_for(user, "");
  return std::any_of(rules.begin(), rules.end(), [&](const Json& rule) {
    if (!in_list(get_array(rule, {"verbs"}), verb)) return false;
    for (const Json& item : get_array(rule, {"nonResourceURLs"})) {
      std::string_view url = as_text(item);
      if (url == path || (url.ends_with("*") && path.starts_with(url.substr(0, url.size() - 1)))) return true;
    }
    return false;
  });
}

Answer<> Server::authorize(const Call& call) const {
  if (options.authorization == ApiServerOptions::Authorization::kAlwaysAllow) return {};
  const ResourceType& type = *call.type;
  std::string name = call.name;
  // A list or watch of one name counts as asking for that name.
  if (name.empty() && (call.verb == "list" || call.verb == "watch" || call.verb == "deletecollection")) {
    Answer<FieldSelector> fields = FieldSelector::parse(call.param("fieldSelector"), type);
    if (fields)
      if (const std::string* wanted = fields->required("metadata.name")) name = *wanted;
  }
  std::string_view ns = type.kind == "Namespace" ? std::string_view(call.name) : std::string_view(call.ns);
  if (allowed(call.user, call.verb, &type, type.group, type.plural, call.sub, ns, name)) return {};
  std::string resource = type.plural + (call.sub.empty() ? "" : "/" + call.sub);
  std::string why = "User \"" + call.user.name + "\" cannot " + call.verb + " resource \"" + resource +
                    "\" in API group \"" + type.group + "\" " +
                    (call.ns.empty() ? "at the cluster scope" : "in the namespace \"" + call.ns + "\"");
  return forbidden(type, call.name, why);
}

namespace {

// Those of the review's audiences (the server itself where it names none) that the token is for. What is no
// token of a service account is for everybody.
JsonArray audiences_of(const Json& review, const TokenSigner& signer, const std::string& issuer) {
  JsonArray wanted = get_array(review, {"spec", "audiences"});
  if (wanted.empty()) wanted.push_back(Json(issuer));
  Result<Json> claims = signer.verify(get_string(review, {"spec", "token"}));
  if (!claims) return wanted;
  JsonArray out;
  for (const Json& one : wanted) {
    const JsonArray& has = get_array(*claims, {"aud"});
    if (std::find(has.begin(), has.end(), one) != has.end()) out.push_back(one);
  }
  return out;
}

}  // namespace

// --- reviews
// -----------------------------------------------------------------------------------------------------

void Server::review(const CallPtr& call) {
  const ResourceType& type = *call->type;
  Answer<Json> raw = body_value(*call, type);
  if (!raw) return respond_status(call, raw.error());
  Answer<Json> read = read_object(*call, type, *raw);
  if (!read) return respond_status(call, read.error());
  Json body = std::move(*read);
  const std::string& kind = type.kind;
  if (kind == "Binding") {
    call->name = str(kube::name_of(body));
    call->type = find_type("", "v1", "pods");
    return bind(call);
  }
  if (kind == "SelfSubjectReview") {
    JsonArray groups;
    for (const std::string& group : call->user.groups) groups.push_back(Json(group));
    set(body, {"metadata", "creationTimestamp"}, Json(now_text()));
    set(body, {"status", "userInfo"},
        JsonObject{{"username", call->user.name}, {"groups", std::move(groups)}});
    return respond_json(call, 201, body);
  }
  if (kind == "TokenReview") {
    if (get_string(body, {"spec", "token"}).empty())
      return respond_status(call, bad_request("token is required for TokenReview in authentication").error());
    Call probe;
    probe.http.headers["Authorization"] = "Bearer " + str(get_string(body, {"spec", "token"}));
    Answer<ApiUser> user = authenticate(probe);
    const JsonArray good_for = audiences_of(body, signer, options.service_account_issuer);
    JsonObject status;
    if (user && good_for.empty()) {
      status = {{"user", JsonObject()}, {"error", "the token is for other audiences"}};
    } else if (user) {
      JsonArray groups;
      for (const std::string& group : user->groups) groups.push_back(Json(group));
      status = {
          {"authenticated", true},
          {"user", JsonObject{{"username", user->name}, {"uid", user->uid}, {"groups", std::move(groups)}}}};
      if (Result<Json> claims = signer.verify(get_string(body, {"spec", "token"}))) {
        if (std::string_view id = get_string(*claims, {"jti"}); !id.empty())
          status["user"].get_object()["extra"] =
              JsonObject{{"authentication.kubernetes.io/credential-id", JsonArray{Json("JTI=" + str(id))}}};
        status["audiences"] = good_for;
      } else if (has(body, {"spec", "audiences"})) {
        status["audiences"] = good_for;
      }
    } else {
      status = {{"user", JsonObject()}, {"error", "invalid bearer token"}};
    }
    set(body, {"status"}, std::move(status));
    return respond_json(call, 201, body);
  }
  if (kind == "SelfSubjectRulesReview") {
    if (get_string(body, {"spec", "namespace"}).empty())
      return respond_status(call, bad_request("no namespace on request").error());
    JsonArray resources;
    JsonArray urls;
    bool everything = options.authorization == ApiServerOptions::Authorization::kAlwaysAllow ||
                      has_group(call->user, "system:masters");
    if (everything) {
      resources.push_back(JsonObject{
          {"verbs", JsonArray{"*"}}, {"apiGroups", JsonArray{"*"}}, {"resources", JsonArray{"*"}}});
      urls.push_back(JsonObject{{"verbs", JsonArray{"*"}}, {"nonResourceURLs", JsonArray{"*"}}});
    } else {
      for (const Json& rule : rules_for(call->user, get_string(body, {"spec", "namespace"})))
        (has(rule, {"nonResourceURLs"}) ? urls : resources).push_back(rule);
    }
    set(body, {"status"},
        JsonObject{{"resourceRules", std::move(resources)},
                   {"nonResourceRules", std::move(urls)},
                   {"incomplete", false}});
    return respond_json(call, 201, body);
  }
  FieldErrors faults;
  if (has(body, {"spec", "resourceAttributes"}) == has(body, {"spec", "nonResourceAttributes"}))
    faults.push_back(invalid("spec.resourceAttributes", Json(nullptr),
                             "exactly one of nonResourceAttributes or resourceAttributes must be specified"));
  if (kind != "SelfSubjectAccessReview" && get_string(body, {"spec", "user"}).empty() &&
      get_array(body, {"spec", "groups"}).empty())
    faults.push_back(invalid("spec.user", Json(""), "at least one of user or group must be specified"));
  if (!faults.empty())
    return respond_status(call, invalid_object(type.group, "", "", std::move(faults)).error());
  // The access reviews: of the caller, or of whoever the body names.
  ApiUser user = call->user;
  if (kind != "SelfSubjectAccessReview") {
    user = {str(get_string(body, {"spec", "user"})), "", {}};
    for (const Json& group : get_array(body, {"spec", "groups"})) user.groups.push_back(str(as_text(group)));
  }
  bool may = false;
  if (const Json* found = find(body, {"spec", "resourceAttributes"})) {
    const Json& attributes = *found;
    may = allowed(user, get_string(attributes, {"verb"}), nullptr, get_string(attributes, {"group"}),
                  get_string(attributes, {"resource"}), get_string(attributes, {"subresource"}),
                  get_string(attributes, {"namespace"}), get_string(attributes, {"name"}));
  } else {
    may = allowed_path(user, get_string(body, {"spec", "nonResourceAttributes", "verb"}),
                       get_string(body, {"spec", "nonResourceAttributes", "path"}));
  }
  JsonObject status{{"allowed", may}};
  if (const std::string why = may ? reason_for(user, body) : ""; !why.empty())
    status["reason"] = "RBAC: allowed by " + why;
  set(body, {"status"}, std::move(status));
  respond_json(call, 201, body);
}

}  // namespace gpuop::cluster::api
