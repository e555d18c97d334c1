// What every cluster has from the start (kubernetes-api.md §2).
#include "cluster/apiserver/server.h"

namespace gpuop::cluster::api {

namespace {

JsonObject named(std::string_view api, std::string_view kind, std::string_view name) {
  return JsonObject{{"apiVersion", api}, {"kind", kind}, {"metadata", JsonObject{{"name", name}}}};
}

JsonObject rule(JsonArray groups, JsonArray resources, JsonArray verbs) {
  return JsonObject{
      {"apiGroups", std::move(groups)}, {"resources", std::move(resources)}, {"verbs", std::move(verbs)}};
}

Json cluster_role(std::string_view name, JsonArray rules) {
  JsonObject role = named("rbac.authorization.k8s.io/v1", "ClusterRole", name);
  role["rules"] = std::move(rules);
  return role;
}

Json binding(std::string_view name, std::string_view role, std::string_view kind, std::string_view subject) {
  JsonObject out = named("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", name);
  out["roleRef"] =
      JsonObject{{"apiGroup", "rbac.authorization.k8s.io"}, {"kind", "ClusterRole"}, {"name", role}};
  out["subjects"] =
      JsonArray{JsonObject{{"kind", kind}, {"apiGroup", "rbac.authorization.k8s.io"}, {"name", subject}}};
  return out;
}

JsonArray reading() {
  return JsonArray{"get", "list", "watch"};
}
JsonArray writing() {
  return JsonArray{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"};
}

std::vector<Json> roles() {
  std::vector<Json> all;
  JsonObject everything = rule(JsonArray{"*"}, JsonArray{"*"}, JsonArray{"*"});
  JsonObject all_paths{{"nonResourceURLs", JsonArray{"*"}}, {"verbs", JsonArray{"*"}}};
  JsonArray admin_rules;
  admin_rules.push_back(everything);
  admin_rules.push_back(all_paths);
  all.push_back(cluster_role("cluster-admin", std::move(admin_rules)));
  JsonObject paths{
      {"nonResourceURLs", JsonArray{"/api", "/api/*", "/apis", "/apis/*", "/healthz", "/livez", "/openapi",
                                    "/openapi/*", "/readyz", "/version", "/version/"}},
      {"verbs", JsonArray{"get"}}};
  JsonArray discovery;
  discovery.push_back(paths);
  all.push_back(cluster_role("system:discovery", std::move(discovery)));
  JsonArray info;
  info.push_back(
      JsonObject{{"nonResourceURLs", JsonArray{"/healthz", "/livez", "/readyz", "/version", "/version/"}},
                 {"verbs", JsonArray{"get"}}});
  all.push_back(cluster_role("system:public-info-viewer", std::move(info)));
  JsonArray self;
  self.push_back(rule(JsonArray{"authorization.k8s.io"},
                      JsonArray{"selfsubjectaccessreviews", "selfsubjectrulesreviews"}, JsonArray{"create"}));
  self.push_back(
      rule(JsonArray{"authentication.k8s.io"}, JsonArray{"selfsubjectreviews"}, JsonArray{"create"}));
  all.push_back(cluster_role("system:basic-user", std::move(self)));
  JsonArray core{"configmaps",
                 "endpoints",
                 "events",
                 "persistentvolumeclaims",
                 "pods",
                 "pods/log",
                 "pods/status",
                 "replicationcontrollers",
                 "serviceaccounts",
                 "services"};
  JsonArray apps{"controllerrevisions", "daemonsets",         "daemonsets/status", "deployments",
                 "deployments/scale",   "deployments/status", "replicasets",       "statefulsets"};
  JsonArray batch{"cronjobs", "jobs", "jobs/status"};
  for (std::string_view name : {"view", "edit", "admin"}) {
    bool view = name == "view";
    JsonArray rules;
    JsonArray mine = core;
    if (!view) mine.push_back("secrets");
    rules.push_back(rule(JsonArray{""}, std::move(mine), view ? reading() : writing()));
    rules.push_back(rule(JsonArray{"apps"}, apps, view ? reading() : writing()));
    rules.push_back(rule(JsonArray{"batch"}, batch, view ? reading() : writing()));
    rules.push_back(rule(JsonArray{""}, JsonArray{"namespaces"}, reading()));
    if (name == "admin")
      rules.push_back(
          rule(JsonArray{"rbac.authorization.k8s.io"}, JsonArray{"rolebindings", "roles"}, writing()));
    all.push_back(cluster_role(name, std::move(rules)));
  }
  JsonArray node;
  node.push_back(
      rule(JsonArray{""}, JsonArray{"nodes", "nodes/status", "pods", "pods/status", "events"}, writing()));
  node.push_back(
      rule(JsonArray{""}, JsonArray{"configmaps", "secrets", "services", "serviceaccounts"}, reading()));
  node.push_back(rule(JsonArray{""}, JsonArray{"serviceaccounts/token"}, JsonArray{"create"}));
  node.push_back(rule(JsonArray{"coordination.k8s.io"}, JsonArray{"leases"}, writing()));
  node.push_back(rule(JsonArray{"node.k8s.io"}, JsonArray{"runtimeclasses"}, reading()));
  all.push_back(cluster_role("system:node", std::move(node)));
  return all;
}

}  // namespace

void Server::bootstrap() {
  auto add = [&](std::string_view group, std::string_view plural, std::string_view ns, Json object) {
    Call call = internal_call(find_type(group, "v1", plural), ns, "");
    (void)create(call, std::move(object));
  };
  for (std::string_view name : {"default", "kube-system", "kube-public", "kube-node-lease"})
    add("", "namespaces", "", named("v1", "Namespace", name));
  auto priority = [&](std::string_view name, std::int64_t value, std::string_view text) {
    JsonObject object = named("scheduling.k8s.io/v1", "PriorityClass", name);
    object["value"] = value;
    object["description"] = text;
    add("scheduling.k8s.io", "priorityclasses", "", std::move(object));
  };
  priority("system-cluster-critical", 2000000000,
           "Used for system critical pods that must run in the cluster, but can be moved to another node if "
           "necessary.");
  priority("system-node-critical", 2000001000,
           "Used for system critical pods that must not be moved from their current node.");
  for (Json& role : roles()) add("rbac.authorization.k8s.io", "clusterroles", "", std::move(role));
  auto bind_group = [&](std::string_view role, std::string_view group) {
    add("rbac.authorization.k8s.io", "clusterrolebindings", "", binding(role, role, "Group", group));
  };
  bind_group("cluster-admin", "system:masters");
  bind_group("system:discovery", "system:authenticated");
  bind_group("system:public-info-viewer", "system:authenticated");
  bind_group("system:basic-user", "system:authenticated");
  bind_group("system:node", "system:nodes");
  JsonObject service = named("v1", "Service", "kubernetes");
  service["metadata"].get_object()["labels"] =
      JsonObject{{"component", "apiserver"}, {"provider", "kubernetes"}};
  service["spec"] =
      JsonObject{{"clusterIP", "10.96.0.1"},
                 {"ports", JsonArray{JsonObject{{"name", "https"}, {"port", 443}, {"targetPort", 6443}}}}};
  add("", "services", "default", std::move(service));
}

}  // namespace gpuop::cluster::api
