#include "fleet/compatibility.h"

#include <algorithm>
#include <set>

#include "base/text.h"
#include "base/yaml.h"
#include "fleet/built_in.h"
#include "kube/object.h"

namespace gpuop::fleet {
namespace {

const std::set<std::string_view> kNodeFacts = {"os",      "os.version",      "kernel", "arch",
                                               "runtime", "runtime.version", "gpu",    "node.driver"};
const std::set<std::string_view> kCommonFacts = {"kubernetes",
                                                 "openshift",
                                                 "nri",
                                                 "driver.enabled",
                                                 "driver.version",
                                                 "driver.modules",
                                                 "driver.precompiled",
                                                 "driverManager.version",
                                                 "gds.enabled",
                                                 "gds.version",
                                                 "toolkit.version",
                                                 "migManager.enabled",
                                                 "migManager.version"};

std::vector<std::int64_t> numbers(std::string_view version) {
  if (version.starts_with('v')) version.remove_prefix(1);
  std::vector<std::int64_t> out;
  std::int64_t value = -1;
  for (const char c : version) {
    if (c >= '0' && c <= '9') {
      value = std::min<std::int64_t>((value < 0 ? 0 : value) * 10 + (c - '0'), 1'000'000'000);
    } else if (c == '.' && value >= 0) {
      out.push_back(value);
      value = -1;
    } else {
      break;
    }
  }
  if (value >= 0) out.push_back(value);
  return out;
}

bool holds(const std::string& op, const std::string& operand, const std::string& value) {
  if (op == "~") return to_lower(value).find(to_lower(operand)) != std::string::npos;
  if (op == "=") return value == operand;
  if (op == "!=") return value != operand;
  if (numbers(value).empty()) return false;  // a digest or a name: no version is known
  const int order = compare_versions(value, operand);
  if (op == "<") return order < 0;
  if (op == "<=") return order <= 0;
  if (op == ">") return order > 0;
  return order >= 0;
}

void put(CompatFacts& facts, const std::string& name, std::string_view value) {
  if (!value.empty()) facts[name] = std::string(value);
}
void put_version(CompatFacts& facts, const std::string& name, const Json& block) {
  const Json* version = find(block, {"version"});
  if (version) put(facts, name, plain_text(*version));
}
void put_flag(CompatFacts& facts, const std::string& name, const Json& spec, Keys keys, bool absent) {
  facts[name] = get_bool(spec, keys, absent) ? "true" : "false";
}

// "Ubuntu 24.04.1 LTS", "Red Hat Enterprise Linux 9.4 (Plow)": ID and version as os-release has them.
void os_of_image(std::string_view image, CompatFacts& facts) {
  static const std::pair<std::string_view, std::string_view> kNames[] = {
      {"Red Hat Enterprise Linux CoreOS", "rhcos"},
      {"Red Hat Enterprise Linux", "rhel"},
      {"Ubuntu", "ubuntu"},
      {"Rocky Linux", "rocky"},
      {"SUSE Linux Enterprise Server", "sles"},
      {"Debian", "debian"},
      {"CentOS", "centos"},
      {"Fedora", "fedora"},
      {"Amazon Linux", "amzn"},
      {"Oracle Linux", "ol"},
      {"Flatcar", "flatcar"}};
  for (const auto& [name, id] : kNames) {
    if (!image.starts_with(name)) continue;
    facts["os"] = std::string(id);
    const auto digit = image.find_first_of("0123456789");
    if (digit == std::string_view::npos) return;
    const auto version = numbers(image.substr(digit));
    if (version.empty()) return;
    // "04", not "4": the text counts as well.
    const auto end = image.find_first_not_of("0123456789.", digit);
    const auto parts = split(image.substr(digit, end - digit), '.');
    facts["os.version"] = parts.size() > 1 ? parts[0] + "." + parts[1] : parts[0];
    return;
  }
}

// Each NVIDIADriver says for itself what a policy's driver says otherwise.
void forget_driver(CompatFacts& facts) {
  for (const char* fact : {"driver.version", "driver.precompiled", "driver.modules", "driverManager.version",
                           "gds.enabled", "gds.version"})
    facts.erase(fact);
}

}  // namespace

int compare_versions(std::string_view a, std::string_view b) {
  auto left = numbers(a);
  auto right = numbers(b);
  left.resize(std::max(left.size(), right.size()));
  right.resize(left.size());
  return left < right ? -1 : left > right ? 1 : 0;
}

CompatFacts policy_facts(const Json& spec) {
  CompatFacts facts;
  const auto block = [&spec](Keys keys) -> const Json& {
    static const Json kNone;
    const Json* found = find(spec, keys);
    return found ? *found : kNone;
  };
  put_flag(facts, "nri", spec, {"cdi", "nriPluginEnabled"}, false);
  put_flag(facts, "driver.enabled", spec, {"driver", "enabled"}, true);
  put_flag(facts, "driver.precompiled", spec, {"driver", "usePrecompiled"}, false);
  put(facts, "driver.modules", get_string(spec, {"driver", "kernelModuleType"}, "auto"));
  put_version(facts, "driver.version", block({"driver"}));
  put_version(facts, "driverManager.version", block({"driver", "manager"}));
  put_flag(facts, "gds.enabled", spec, {"gds", "enabled"}, false);
  put_version(facts, "gds.version", block({"gds"}));
  // Images of ours carry our own version.
  if (get_string(spec, {"toolkit", "image"}) == "container-toolkit")
    put_version(facts, "toolkit.version", block({"toolkit"}));
  put_flag(facts, "migManager.enabled", spec, {"migManager", "enabled"}, true);
  put_version(facts, "migManager.version", block({"migManager"}));
  if (get_string(spec, {"driver", "manager", "image"}) != "k8s-driver-manager")
    facts.erase("driverManager.version");
  if (get_bool(spec, {"driver", "useNvidiaDriverCRD"})) forget_driver(facts);
  return facts;
}

CompatFacts values_facts(const Json& values) {
  CompatFacts facts = policy_facts(values);
  // The chart writes the driver's values into the default NVIDIADriver; without it they go nowhere.
  if (get_bool(values, {"driver", "nvidiaDriverCRD", "enabled"}) &&
      !get_bool(values, {"driver", "nvidiaDriverCRD", "deployDefaultCR"}, true))
    forget_driver(facts);
  return facts;
}

CompatFacts node_facts(const Json& node) {
  CompatFacts facts;
  const std::string feature = "feature.node.kubernetes.io/";
  os_of_image(get_string(node, {"status", "nodeInfo", "osImage"}), facts);
  put(facts, "os", kube::label(node, feature + "system-os_release.ID"));
  put(facts, "os.version", kube::label(node, feature + "system-os_release.VERSION_ID"));
  put(facts, "kernel", get_string(node, {"status", "nodeInfo", "kernelVersion"}));
  put(facts, "kernel", kube::label(node, feature + "kernel-version.full"));
  put(facts, "arch", kube::label(node, "kubernetes.io/arch"));
  put(facts, "gpu", kube::label(node, "nvidia.com/gpu.product"));
  put(facts, "node.driver", kube::label(node, "nvidia.com/cuda.driver-version.full"));
  const auto runtime = get_string(node, {"status", "nodeInfo", "containerRuntimeVersion"});
  const auto colon = runtime.find("://");
  if (colon != std::string_view::npos) {
    put(facts, "runtime", runtime.substr(0, colon));
    put(facts, "runtime.version", runtime.substr(colon + 3));
  }
  return facts;
}

std::string CompatFinding::line() const {
  std::string out = rule + ": ";
  if (!nodes.empty()) {
    out += (nodes.size() == 1 ? "node " : "nodes ") + first_few(nodes) + ": ";
  }
  return out + text + " (" + source + ")";
}

Result<Compatibility::Rule> Compatibility::read_rule(const Json& json) {
  static const std::vector<std::string> kKeys = {"id", "severity", "when", "says", "source"};
  Rule rule;
  rule.id = str(get_string(json, {"id"}));
  const auto bad = [&rule](const std::string& why) {
    return fail(Code::kInvalid, "rule '" + rule.id + "': " + why);
  };
  if (!json.is_object()) return bad("must be a map");
  for (const auto& [key, value] : json.get_object()) {
    if (std::ranges::find(kKeys, std::string(key)) == kKeys.end())
      return bad("unknown key '" + std::string(key) + "'" + did_you_mean(key, kKeys));
  }
  rule.says = str(get_string(json, {"says"}));
  rule.source = str(get_string(json, {"source"}));
  if (rule.id.empty() || rule.says.empty() || rule.source.empty()) return bad("needs id, says and source");
  const auto severity = get_string(json, {"severity"});
  if (severity != "error" && severity != "warning") return bad("severity: must be error or warning");
  rule.error = severity == "error";
  for (const auto& [fact, wanted] : get_object(json, {"when"})) {
    Condition condition{std::string(fact), {}};
    rule.of_node = rule.of_node || kNodeFacts.contains(condition.fact);
    if (!kNodeFacts.contains(condition.fact) && !kCommonFacts.contains(condition.fact))
      return bad("when: no fact is called '" + condition.fact + "'");
    const JsonArray one{wanted};
    for (const auto& each : wanted.is_array() ? wanted.get_array() : one) {
      auto& all = condition.any.emplace_back();
      for (const auto& part : split(as_text(each), ',')) {
        const std::string text(trim(part));
        const auto space = text.find(' ');
        const std::string op = text.substr(0, space);
        static const std::set<std::string> kOperators = {"<", "<=", ">", ">=", "=", "!=", "~"};
        if (!kOperators.contains(op) || space == std::string::npos)
          return bad("when " + condition.fact + ": expected an operator and a value; got '" + text + "'");
        all.emplace_back(op, text.substr(space + 1));
      }
    }
    rule.when.push_back(std::move(condition));
  }
  if (rule.when.empty()) return bad("needs when");
  return rule;
}

Result<Compatibility> Compatibility::parse(std::string_view yaml, std::string_view file) {
  const auto document = TRY(parse_yaml_one(yaml, file));
  if (!document.value.is_array())
    return fail(Code::kInvalid, "read '" + std::string(file) + "': must be a list");
  Compatibility out;
  for (const auto& json : document.value.get_array())
    out.rules_.push_back(TRY_IN(read_rule(json), "read '" + std::string(file) + "'"));
  return out;
}

const Compatibility& Compatibility::built_in() {
  static const Compatibility kRules = [] {
    auto rules = parse(kCompatibilityYaml, "compatibility.yaml");
    return rules ? *rules : Compatibility();  // a test reads them too
  }();
  return kRules;
}

bool Compatibility::fits(const Condition& condition, const CompatFacts& facts) {
  const auto value = facts.find(condition.fact);
  if (value == facts.end()) return false;
  return std::ranges::any_of(condition.any, [&](const auto& all) {
    return std::ranges::all_of(
        all, [&](const auto& part) { return holds(part.first, part.second, value->second); });
  });
}

std::vector<CompatFinding> Compatibility::check(const CompatFacts& common,
                                                const std::map<std::string, CompatFacts>& nodes) const {
  std::vector<CompatFinding> out;
  for (const Rule& rule : rules_) {
    CompatFinding finding{rule.id, rule.error, {}, rule.says, rule.source};
    const auto applies = [&rule](const CompatFacts& facts) {
      return std::ranges::all_of(rule.when,
                                 [&](const Condition& condition) { return fits(condition, facts); });
    };
    if (!rule.of_node) {
      if (applies(common)) out.push_back(std::move(finding));
      continue;
    }
    for (const auto& [name, own] : nodes) {
      CompatFacts facts = common;
      facts.insert(own.begin(), own.end());
      if (applies(facts)) finding.nodes.push_back(name);
    }
    if (!finding.nodes.empty()) out.push_back(std::move(finding));
  }
  return out;
}

}  // namespace gpuop::fleet
