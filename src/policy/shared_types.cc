// The declarations of shared field groups, and of the Kubernetes types that our resources embed.
#include "policy/schema.h"

namespace gpuop::policy {

namespace {

constexpr std::string_view kDurationPattern =
    "^(0|(([0-9]+)y)?(([0-9]+)w)?(([0-9]+)d)?(([0-9]+)h)?(([0-9]+)m)?(([0-9]+)s)?(([0-9]+)ms)?)$";

bool is_letter_or_digit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

bool matches_prometheus_label(std::string_view text) {
  if (text.empty() || (text[0] >= '0' && text[0] <= '9')) return false;
  for (char c : text)
    if (!is_letter_or_digit(c) && c != '_') return false;
  return true;
}

Schema object_schema() {
  Schema s;
  s.kind = Kind::kObject;
  return s;
}

const Schema& quantity_schema() {
  static const Schema schema = [] {
    Schema s;
    s.kind = Kind::kQuantity;
    return s;
  }();
  return schema;
}

const Schema& int64_schema() {
  static const Schema schema = [] {
    Schema s;
    s.kind = Kind::kInt64;
    return s;
  }();
  return schema;
}

const Schema& quantities_schema() {
  static const Schema schema = [] {
    Schema s;
    s.kind = Kind::kMap;
    s.items = &quantity_schema();
    return s;
  }();
  return schema;
}

const Schema& strings_schema() {
  static const Schema schema = [] {
    Schema s;
    s.kind = Kind::kArray;
    s.items = &detail::string_schema();
    return s;
  }();
  return schema;
}

const Schema& sysctl_schema() {
  static const Schema schema = [] {
    Schema s = object_schema();
    add_json(s, "name", Kind::kString, "Name of the sysctl.").required();
    add_json(s, "value", Kind::kString, "Its value.").required();
    return s;
  }();
  return schema;
}

const Schema& selector_term_schema() {
  static const Schema expression = [] {
    Schema s = object_schema();
    add_json(s, "key", Kind::kString, "Label or field.").required();
    add_json(s, "operator", Kind::kString, "In, NotIn, Exists, DoesNotExist, Gt or Lt.").required();
    add_json(s, "values", Kind::kArray, "Values to compare with.").as(strings_schema());
    return s;
  }();
  static const Schema term = [] {
    Schema s = object_schema();
    add_json(s, "matchExpressions", Kind::kArray, "Requirements on labels.").items(expression);
    add_json(s, "matchFields", Kind::kArray, "Requirements on fields.").items(expression);
    return s;
  }();
  return term;
}

}  // namespace

bool matches_image_name(std::string_view text) {
  for (char c : text)
    if (is_letter_or_digit(c) || c == '-') return true;
  return false;
}

bool matches_image_name_whole(std::string_view text) {
  for (char c : text)
    if (!is_letter_or_digit(c) && c != '-') return false;
  return !text.empty();
}

bool matches_duration(std::string_view text) {
  if (text == "0") return true;
  static constexpr std::string_view kUnits[] = {"y", "w", "d", "h", "m", "s", "ms"};
  std::size_t unit = 0;
  while (!text.empty()) {
    std::size_t n = 0;
    while (n < text.size() && text[n] >= '0' && text[n] <= '9') ++n;
    if (n == 0) return false;
    text.remove_prefix(n);
    std::size_t length = text.starts_with("ms") ? 2 : 1;
    std::string_view have = text.substr(0, length);
    while (unit < std::size(kUnits) && kUnits[unit] != have) ++unit;
    if (unit++ == std::size(kUnits)) return false;
    text.remove_prefix(length);
  }
  return true;
}

const Schema& resources_schema() {
  static const Schema schema = [] {
    Schema s = object_schema();
    add_json(s, "limits", Kind::kMap, "The most that the container may use.").as(quantities_schema());
    add_json(s, "requests", Kind::kMap, "What the container is promised.").as(quantities_schema());
    return s;
  }();
  return schema;
}

const Schema& toleration_schema() {
  static const Schema schema = [] {
    Schema s = object_schema();
    add_json(s, "key", Kind::kString, "Taint key; empty with Exists matches every key.");
    add_json(s, "operator", Kind::kString, "Equal (default) or Exists.");
    add_json(s, "value", Kind::kString, "Taint value.");
    add_json(s, "effect", Kind::kString, "NoSchedule, PreferNoSchedule or NoExecute; empty matches all.");
    add_json(s, "tolerationSeconds", Kind::kInt64, "How long a NoExecute taint is tolerated.");
    return s;
  }();
  return schema;
}

const Schema& pod_security_context_schema() {
  static const Schema schema = [] {
    Schema s = object_schema();
    Schema app_armor = object_schema();
    add_json(app_armor, "localhostProfile", Kind::kString, "Profile on the node.");
    add_json(app_armor, "type", Kind::kString, "Localhost, RuntimeDefault or Unconfined.").required();
    Schema se_linux = object_schema();
    for (std::string_view name : {"level", "role", "type", "user"})
      add_json(se_linux, name, Kind::kString, "SELinux label part.");
    Schema seccomp = object_schema();
    add_json(seccomp, "localhostProfile", Kind::kString, "Profile file on the node.");
    add_json(seccomp, "type", Kind::kString, "Localhost, RuntimeDefault or Unconfined.").required();
    Schema windows = object_schema();
    add_json(windows, "gmsaCredentialSpec", Kind::kString, "GMSA credential spec.");
    add_json(windows, "gmsaCredentialSpecName", Kind::kString, "Name of the GMSA credential spec.");
    add_json(windows, "hostProcess", Kind::kBool, "Run as a host process.");
    add_json(windows, "runAsUserName", Kind::kString, "Windows user.");

    add_json(s, "appArmorProfile", Kind::kObject, "AppArmor profile of the containers.").as(app_armor);
    add_json(s, "fsGroup", Kind::kInt64, "Group that owns volumes.");
    add_json(s, "fsGroupChangePolicy", Kind::kString, "OnRootMismatch or Always.");
    add_json(s, "runAsGroup", Kind::kInt64, "Group of the containers' first process.");
    add_json(s, "runAsNonRoot", Kind::kBool, "Refuse to run as user 0.");
    add_json(s, "runAsUser", Kind::kInt64, "User of the containers' first process.");
    add_json(s, "seLinuxChangePolicy", Kind::kString, "MountOption or Recursive.");
    add_json(s, "seLinuxOptions", Kind::kObject, "SELinux label of the containers.").as(se_linux);
    add_json(s, "seccompProfile", Kind::kObject, "Seccomp profile of the containers.").as(seccomp);
    add_json(s, "supplementalGroups", Kind::kArray, "More groups of the first process.")
        .items(int64_schema());
    add_json(s, "supplementalGroupsPolicy", Kind::kString, "Merge or Strict.");
    add_json(s, "sysctls", Kind::kArray, "Namespaced sysctls.").items(sysctl_schema());
    add_json(s, "windowsOptions", Kind::kObject, "Settings for Windows.").as(windows);
    return s;
  }();
  return schema;
}

const Schema& relabel_config_schema() {
  static const Schema label_name = [] {
    Schema s;
    s.kind = Kind::kString;
    s.pattern = "^[a-zA-Z_][a-zA-Z0-9_]*$";
    s.matches = matches_prometheus_label;
    s.must = "be a Prometheus label name";
    return s;
  }();
  static const Schema schema = [] {
    Schema s = object_schema();
    add_json(s, "action", Kind::kString, "What to do on a match.")
        .one_of({"replace",   "Replace",   "keep",      "Keep",      "drop",      "Drop",
                 "hashmod",   "HashMod",   "labelmap",  "LabelMap",  "labeldrop", "LabelDrop",
                 "labelkeep", "LabelKeep", "lowercase", "Lowercase", "uppercase", "Uppercase",
                 "keepequal", "KeepEqual", "dropequal", "DropEqual"})
        .default_value("replace");
    add_json(s, "modulus", Kind::kInt64, "Modulus of the hash of the source labels.");
    add_json(s, "regex", Kind::kString, "Expression that the source must match.");
    add_json(s, "replacement", Kind::kString, "Replacement text, with $1 and so on.");
    add_json(s, "separator", Kind::kString, "Between source labels; ';' when absent.");
    add_json(s, "sourceLabels", Kind::kArray, "Labels whose values are joined.").items(label_name);
    add_json(s, "targetLabel", Kind::kString, "Label that gets the result.");
    return s;
  }();
  return schema;
}

const Schema& node_affinity_schema() {
  static const Schema preferred = [] {
    Schema s = object_schema();
    add_json(s, "weight", Kind::kInt32, "1 to 100.").required();
    add_json(s, "preference", Kind::kObject, "The term.").as(selector_term_schema()).required();
    return s;
  }();
  static const Schema schema = [] {
    Schema s = object_schema();
    add_json(s, "preferredDuringSchedulingIgnoredDuringExecution", Kind::kArray, "Preferred terms.")
        .items(preferred);
    Schema required = object_schema();
    add_json(required, "nodeSelectorTerms", Kind::kArray, "Terms, one of which must hold.")
        .items(selector_term_schema())
        .required();
    add_json(s, "requiredDuringSchedulingIgnoredDuringExecution", Kind::kObject, "Required terms.")
        .as(required);
    return s;
  }();
  return schema;
}

const Schema& condition_schema() {
  static const Schema schema = [] {
    Schema s = object_schema();
    add_json(s, "lastTransitionTime", Kind::kString, "When the status last changed (RFC 3339).").required();
    add_json(s, "message", Kind::kString, "For people.").required();
    add_json(s, "observedGeneration", Kind::kInt64, "Generation of the object that the condition speaks of.")
        .min(0);
    add_json(s, "reason", Kind::kString, "For programs, in CamelCase.").required();
    add_json(s, "status", Kind::kString, "True, False or Unknown.")
        .one_of({"True", "False", "Unknown"})
        .required();
    add_json(s, "type", Kind::kString, "Name of the condition.").required();
    return s;
  }();
  return schema;
}

void describe(Fields<EnvVar>& f) {
  f.add("name", &EnvVar::name, "Name of the variable.").required();
  f.add("value", &EnvVar::value, "Its value.");
}
void describe(Fields<ImageSpec>& f) {
  add_image(f);
}
void describe(Fields<Manager>& f) {
  add_image(f);
  add_env(f);
}
void describe(Fields<NamedConfig>& f) {
  f.add("name", &NamedConfig::name, "Name of the ConfigMap in the operator's namespace.");
}
void describe(Fields<Toggle>& f) {
  f.add("enabled", &Toggle::enabled, "On or off.");
}

void describe(Fields<Probe>& f) {
  f.add("initialDelaySeconds", &Probe::initial_delay_seconds, "Seconds before the first probe.").int32();
  f.add("timeoutSeconds", &Probe::timeout_seconds, "Seconds that one probe may take.").int32().min(1);
  f.add("periodSeconds", &Probe::period_seconds, "Seconds between probes.").int32().min(1);
  f.add("successThreshold", &Probe::success_threshold, "Successes in a row that count.").int32().min(1);
  f.add("failureThreshold", &Probe::failure_threshold, "Failures in a row that count.").int32().min(1);
}

void describe(Fields<ServiceMonitor>& f) {
  f.add("enabled", &ServiceMonitor::enabled, "Create a Prometheus ServiceMonitor.");
  f.add("interval", &ServiceMonitor::interval, "Scrape interval, e.g. 15s.")
      .pattern(std::string(kDurationPattern), matches_duration,
               "be a Prometheus duration such as 15s or 1m30s");
  f.add("scrapeTimeout", &ServiceMonitor::scrape_timeout, "Scrape timeout, e.g. 10s.")
      .pattern(std::string(kDurationPattern), matches_duration,
               "be a Prometheus duration such as 15s or 1m30s");
  f.add("honorLabels", &ServiceMonitor::honor_labels,
        "Keep the exporter's labels where they collide with the target's.");
  f.add("additionalLabels", &ServiceMonitor::additional_labels, "Labels put on the ServiceMonitor.");
  f.add("relabelings", &ServiceMonitor::relabelings, "Prometheus RelabelConfig entries.")
      .items(relabel_config_schema());
}

void describe(Fields<Rdma>& f) {
  f.add("enabled", &Rdma::enabled, "Load nvidia-peermem in a container beside the driver.");
  f.add("useHostMofed", &Rdma::use_host_mofed, "Build against the MOFED that is installed on the host.");
}

}  // namespace gpuop::policy
