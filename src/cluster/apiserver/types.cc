#include "cluster/apiserver/types.h"

#include <algorithm>
#include <cctype>

#include "base/text.h"

namespace gpuop::cluster::api {

namespace {

struct Tables {
  std::map<std::pair<std::string, std::string>, std::unique_ptr<Message>> messages;
};

// "containerPort+protocol!" → keys and the retainKeys flag.
void read_list_mark(std::string_view mark, Field& field) {
  field.shape = Shape::kList;
  if (mark == "=") {
    field.set = true;
    return;
  }
  if (!mark.empty() && mark.back() == '!') {
    field.retain_keys = true;
    mark.remove_suffix(1);
  }
  if (!mark.empty()) field.merge_keys = split(mark, '+');
}

void read_type(std::string_view type, Field& field) {
  static const std::map<std::string_view, FieldKind> special = {
      {"Time", FieldKind::kTime},         {"MicroTime", FieldKind::kMicroTime},
      {"Quantity", FieldKind::kQuantity}, {"IntOrString", FieldKind::kIntOrString},
      {"RawExtension", FieldKind::kRaw},  {"FieldsV1", FieldKind::kRaw}};
  if (type.empty() || type == "s1") {
    field.keep_zero = !type.empty();
  } else if (type[0] == 'i' && type.size() <= 2) {
    field.kind = FieldKind::kInt;
    field.keep_zero = type == "i";
  } else if (type[0] == 'b' && type.size() <= 2) {
    field.kind = FieldKind::kBool;
    field.keep_zero = type == "b";
  } else if (type == "x") {
    field.kind = FieldKind::kBytes;
  } else {
    field.type_name = std::string(type);
    auto found = special.find(type);
    field.kind = found == special.end() ? FieldKind::kMessage : found->second;
  }
}

// "6 ports[containerPort+protocol]:ContainerPort"
Field read_field(std::string_view text) {
  Field field;
  std::size_t space = text.find(' ');
  field.number = static_cast<int>(parse_int(text.substr(0, space)).value_or(0));
  text.remove_prefix(space + 1);
  std::size_t end = text.find_first_of("[{!:");
  field.name = std::string(text.substr(0, end));
  text.remove_prefix(std::min(end, text.size()));
  if (!text.empty() && text[0] == '[') {
    std::size_t close = text.find(']');
    read_list_mark(text.substr(1, close - 1), field);
    text.remove_prefix(close + 1);
  } else if (!text.empty() && text[0] == '{') {
    std::size_t close = text.find('}');
    field.shape = Shape::kMap;
    field.whole_map = close == 2;
    text.remove_prefix(close + 1);
  } else if (!text.empty() && text[0] == '!') {
    field.retain_keys = true;
    text.remove_prefix(1);
  }
  if (!text.empty()) text.remove_prefix(1);
  read_type(text, field);
  if (field.name == "-") {
    field.inlined = true;
    field.name.clear();
  }
  return field;
}

void read_table(const std::string& package, std::string_view text, Tables& tables) {
  std::string joined = replace_all(std::string(text), "\n  ", " ");
  for (const std::string& line : split(joined, '\n')) {
    if (line.empty()) continue;
    auto message = std::make_unique<Message>();
    std::string_view rest = line;
    if (rest[0] == '!') {
      message->whole = true;
      rest.remove_prefix(1);
    }
    std::size_t colon = rest.find(": ");
    message->name = std::string(rest.substr(0, colon));
    std::string body(rest.substr(colon + 2));
    for (const std::string& part : split(body, ',')) message->fields.push_back(read_field(trim(part)));
    tables.messages[{package, message->name}] = std::move(message);
  }
}

const Message* lookup(const Tables& tables, std::string_view package, std::string_view name) {
  for (std::string_view where : {package, std::string_view("core"), std::string_view("meta")}) {
    auto found = tables.messages.find({std::string(where), std::string(name)});
    if (found != tables.messages.end()) return found->second.get();
  }
  return nullptr;
}

const Tables& tables() {
  static const Tables* all = [] {
    auto* made = new Tables;  // lives as long as the process
    for (const auto& [package, text] : type_tables()) read_table(std::string(package), text, *made);
    for (auto& [key, message] : made->messages) {
      for (Field& field : message->fields) {
        if (field.kind != FieldKind::kMessage) continue;
        field.message = lookup(*made, key.first, field.type_name);
        if (field.message == nullptr) field.kind = FieldKind::kOpen;
      }
    }
    for (auto& [key, message] : made->messages) {
      for (const Field& field : message->fields) {
        if (!field.inlined) {
          message->by_name[field.name] = &field;
        } else if (field.message != nullptr) {
          for (const Field& inner : field.message->fields) message->by_name[inner.name] = &inner;
        }
      }
    }
    return made;
  }();
  return *all;
}

// One row a resource: "plural Kind shortnames flags", parsed below. Flags: n cluster-scoped, s status, c
// scale, g generation, l label names, p path-segment names, a category "all", r review (create only).
struct GroupRows {
  std::string_view group, version, package, rows;
};

constexpr GroupRows kGroups[] = {
    {"", "v1", "core",
     "bindings Binding - r\n"
     "configmaps ConfigMap cm -\n"
     "endpoints Endpoints ep -\n"
     "events Event ev -\n"
     "limitranges LimitRange limits -\n"
     "namespaces Namespace ns nsl\n"
     "nodes Node no ns\n"
     "persistentvolumeclaims PersistentVolumeClaim pvc s\n"
     "persistentvolumes PersistentVolume pv ns\n"
     "pods Pod po sga\n"
     "podtemplates PodTemplate - -\n"
     "replicationcontrollers ReplicationController rc scga\n"
     "resourcequotas ResourceQuota quota s\n"
     "secrets Secret - -\n"
     "serviceaccounts ServiceAccount sa -\n"
     "services Service svc sla\n"},
    {"apps", "v1", "apps",
     "controllerrevisions ControllerRevision - -\n"
     "daemonsets DaemonSet ds sga\n"
     "deployments Deployment deploy scga\n"
     "replicasets ReplicaSet rs scga\n"
     "statefulsets StatefulSet sts scga\n"},
    {"authentication.k8s.io", "v1", "authentication",
     "selfsubjectreviews SelfSubjectReview - nr\n"
     "tokenreviews TokenReview - nr\n"},
    {"authorization.k8s.io", "v1", "authorization",
     "localsubjectaccessreviews LocalSubjectAccessReview - r\n"
     "selfsubjectaccessreviews SelfSubjectAccessReview - nr\n"
     "selfsubjectrulesreviews SelfSubjectRulesReview - nr\n"
     "subjectaccessreviews SubjectAccessReview - nr\n"},
    {"batch", "v1", "batch",
     "cronjobs CronJob cj sga\n"
     "jobs Job - sga\n"},
    {"networking.k8s.io", "v1", "networking",
     "ingressclasses IngressClass - n\n"
     "ingresses Ingress ing sg\n"
     "networkpolicies NetworkPolicy netpol g\n"},
    {"policy", "v1", "policy", "poddisruptionbudgets PodDisruptionBudget pdb sg\n"},
    {"rbac.authorization.k8s.io", "v1", "rbac",
     "clusterrolebindings ClusterRoleBinding - np\n"
     "clusterroles ClusterRole - np\n"
     "rolebindings RoleBinding - p\n"
     "roles Role - p\n"},
    {"storage.k8s.io", "v1", "storage",
     "csinodes CSINode - n\n"
     "storageclasses StorageClass sc n\n"},
    {"admissionregistration.k8s.io", "v1", "admissionregistration",
     "mutatingwebhookconfigurations MutatingWebhookConfiguration - ng\n"
     "validatingwebhookconfigurations ValidatingWebhookConfiguration - ng\n"},
    {"apiextensions.k8s.io", "v1", "apiextensions",
     "customresourcedefinitions CustomResourceDefinition crd,crds nsg\n"},
    {"scheduling.k8s.io", "v1", "scheduling", "priorityclasses PriorityClass pc ng\n"},
    {"coordination.k8s.io", "v1", "coordination", "leases Lease - -\n"},
    {"node.k8s.io", "v1", "node", "runtimeclasses RuntimeClass - n\n"},
    {"discovery.k8s.io", "v1", "discovery", "endpointslices EndpointSlice - g\n"},
    {"events.k8s.io", "v1", "events", "events Event ev -\n"},
};

void add_named_subresources(ResourceType& type) {
  auto add = [&](std::string_view name, std::string_view group, std::string_view version,
                 std::string_view kind, std::vector<std::string> verbs) {
    type.subresources.push_back(
        {std::string(name), std::string(group), std::string(version), std::string(kind), std::move(verbs)});
  };
  if (type.group.empty() && type.plural == "pods") {
    add("attach", "", "v1", "PodAttachOptions", {"create", "get"});
    add("binding", "", "v1", "Binding", {"create"});
    add("eviction", "policy", "v1", "Eviction", {"create"});
    add("exec", "", "v1", "PodExecOptions", {"create", "get"});
    add("log", "", "v1", "Pod", {"get"});
    add("portforward", "", "v1", "PodPortForwardOptions", {"create", "get"});
  } else if (type.group.empty() && type.plural == "serviceaccounts") {
    add("token", "authentication.k8s.io", "v1", "TokenRequest", {"create"});
  } else if (type.group.empty() && type.plural == "namespaces") {
    add("finalize", "", "v1", "Namespace", {"update"});
  }
  if (type.has_scale) add("scale", "autoscaling", "v1", "Scale", {"get", "patch", "update"});
  if (type.has_status) add("status", type.group, type.version, type.kind, {"get", "patch", "update"});
}

TypePtr make_type(const GroupRows& group, const std::string& row) {
  std::vector<std::string> words = split(row, ' ');
  auto type = std::make_shared<ResourceType>();
  type->group = group.group;
  type->version = group.version;
  type->plural = words[0];
  type->kind = words[1];
  type->singular = to_lower(type->kind);
  type->list_kind = type->kind + "List";
  if (words[2] != "-") type->short_names = split(words[2], ',');
  auto flag = [&](char c) { return words[3].find(c) != std::string::npos; };
  type->namespaced = !flag('n');
  type->has_status = flag('s');
  type->has_scale = flag('c');
  type->has_generation = flag('g');
  type->create_only = flag('r');
  type->name_rule = flag('l') ? NameRule::kLabel : flag('p') ? NameRule::kPath : NameRule::kSubdomain;
  if (flag('a')) type->categories = {"all"};
  if (type->kind == "CustomResourceDefinition") type->categories = {"api-extensions"};
  if (group.group == "admissionregistration.k8s.io") type->categories = {"api-extensions"};
  type->verbs = type->create_only ? std::vector<std::string>{"create"}
                                  : std::vector<std::string>{"create", "delete", "deletecollection", "get",
                                                             "list",   "patch",  "update",           "watch"};
  if (type->kind == "Namespace")
    type->verbs = {"create", "delete", "get", "list", "patch", "update", "watch"};
  type->message = find_message(group.package, type->kind);
  if (type->message == nullptr && type->kind == "LocalSubjectAccessReview")
    type->message = find_message(group.package, "SubjectAccessReview");
  // Both kinds of events are one collection; the older shape is the stored one.
  type->store = type->kind == "Event" ? "/events" : type->group + "/" + type->plural;
  add_named_subresources(*type);
  return type;
}

}  // namespace

const Field* Message::by_number(int number) const {
  // Numbers are nearly dense: look near the place first.
  for (const Field& field : fields)
    if (field.number == number) return &field;
  return nullptr;
}

const Message* find_message(std::string_view package, std::string_view name) {
  return lookup(tables(), package, name);
}

const Subresource* ResourceType::subresource(std::string_view sub) const {
  auto found = std::find_if(subresources.begin(), subresources.end(),
                            [&](const Subresource& s) { return s.name == sub; });
  return found == subresources.end() ? nullptr : &*found;
}

std::vector<TypePtr> builtin_types() {
  std::vector<TypePtr> all;
  for (const GroupRows& group : kGroups) {
    for (const std::string& row : split(group.rows, '\n'))
      if (!row.empty()) all.push_back(make_type(group, row));
  }
  return all;
}

}  // namespace gpuop::cluster::api
