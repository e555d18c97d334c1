// `gpuctl preflight` against those whom it foretells: helm with the same chart, the definitions of our kinds,
// and an API server that is given what comes of the values.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/loop.h"
#include "base/text.h"
#include "cluster/apiserver/api_server.h"
#include "fleet/manifests.h"
#include "fleet/umbrella.h"
#include "fleet/value_schema.h"
#include "fleet/values.h"
#include "helm.h"
#include "kube/client.h"
#include "kube/object.h"
#include "operator/render.h"
#include "policy/crds.h"
#include "preflight/config_texts.h"

namespace gpuop {
namespace {

using Kind = fleet::ValuesFinding::Kind;

std::vector<fleet::ValuesFinding> findings(const std::string& values) {
  const auto document = parse_yaml_one(values, "values.yaml");
  if (!document) {
    ADD_FAILURE() << document.error().text();
    return {};
  }
  return fleet::check_values({&*document, 1}, fleet::chart_rules(), preflight::value_faults);
}

std::string shown(const std::vector<fleet::ValuesFinding>& findings) {
  std::string out;
  for (const auto& one : findings) out += one.path + ": " + one.text + "\n";
  return out;
}

bool has_kind(const std::vector<fleet::ValuesFinding>& findings, Kind kind) {
  return std::ranges::any_of(findings, [kind](const auto& one) { return one.kind == kind; });
}

// --- helm ---

TEST(preflight, helm_agrees_in_refusing_or_taking) {
  const std::vector<std::string> cases = {
      // Refused.
      "fleet: {startupTaint: {kay: a/b}}", "fleet: {startTaint: {}}",
      "driver: {upgradePolicy: {maxParallelUpgrades: -1}}", "driver: {resources: {limits: {cpu: abc}}}",
      "toolkit: {resources: {limits: {cpu: 0.5}}}", "daemonsets: {tolerations: [{key: a, operator: Exist}]}",
      "daemonsets: {labels: {'bad key': x}}", "daemonsets: {labels: {a: 'bad value!'}}",
      "driver: {env: [{name: 'A=B'}]}", "driver: {env: [{nmae: A}]}", "operator: {imagePullPolicy: Allways}",
      "ccManager: {defaultMode: on}", "driver: {startupProbe: {failureThreshold: 99999999999}}",
      "hostPaths: {driverInstallDir: /run/../etc}", "daemonsets: {rollingUpdate: {maxUnavailable: 0}}",
      "node-feature-discovery: {worker: {port: 0}}", "node-feature-discovery: {worker: null}",
      "driver:", "operator:", "driver: {nvidiaDriverCRD: null}",
      "operator: {affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {}}}}",
      // Taken, many in one run.
      "fleet:", R"(
mig: {strategy: null}
fleet: {startupTaint: {key: null}}
ccManager:
daemonsets: {labels: {a: null}}
driver:
  startupProbe: {periodSeconds: 3.0, failureThreshold: 1e2}
  upgradePolicy: {maxUnavailable: 0}
  imagePullPolicy: Allways
operator: {resources: {limits: {cpu: 0.5}}}
nonsense: {a: 1}
node-feature-discovery: {worker: {config: 'core: {}'}}
toolkit: {env: [{name: 1A, value: ''}]}
)"};
  const auto theirs = refusals(cases);
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const auto ours = findings(cases[i]);
    EXPECT_EQ(!theirs[i].empty(), has_kind(ours, Kind::kRefused))
        << cases[i] << "\nhelm: " << theirs[i].substr(0, 400) << "\npreflight: " << shown(ours);
  }
  // Below an alias the same is said as of the values alone, which helm just judged so.
  const auto all = parse_yaml_one(Umbrella(cases).values(), "values.yaml");
  ASSERT_TRUE(all) << all.error().text();
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const auto below = fleet::values_below({&*all, 1}, Umbrella::alias(i));
    ASSERT_TRUE(below) << below.error().text();
    EXPECT_EQ(shown(fleet::check_values(*below, fleet::chart_rules(), preflight::value_faults)),
              shown(findings(cases[i])));
  }
}

// --- definitions ---

// Values that the definition of a field does not take.
std::vector<Json> wrong_values(const Json& schema) {
  std::vector<Json> out;
  const auto type = get_string(schema, {"type"});
  if (type == "string") out.emplace_back(JsonObject{});
  if (type == "boolean" || type == "integer" || type == "array" || type == "object") out.emplace_back("x");
  if (get_bool(schema, {"x-kubernetes-int-or-string"})) out.emplace_back(JsonArray{});
  if (has(schema, {"enum"}) || has(schema, {"pattern"})) out.emplace_back("no such thing!");
  if (has(schema, {"minimum"})) out.emplace_back(get_int(schema, {"minimum"}) - 1);
  if (has(schema, {"maximum"})) out.emplace_back(get_int(schema, {"maximum"}) + 1);
  return out;
}

// Calls `each` with every field of a definition and its path; lists are entered at [0], maps at "k".
void every_field(const Json& schema, const std::vector<std::string>& path,
                 const std::function<void(const std::vector<std::string>&, const Json&)>& each) {
  if (!path.empty()) each(path, schema);
  const auto deeper = [&](const std::string& key, const Json& inner) {
    std::vector<std::string> longer = path;
    longer.push_back(key);
    every_field(inner, longer, each);
  };
  for (const auto& [key, inner] : get_object(schema, {"properties"}))
    deeper(key == "podDeletion" ? "gpuPodDeletion" : str(key), inner);
  if (const Json* items = find(schema, {"items"})) deeper("[0]", *items);
  if (const Json* others = find(schema, {"additionalProperties"}); others && others->is_object())
    deeper("k", *others);
}

Json nested(const std::vector<std::string>& path, Json value) {
  for (auto key = path.rbegin(); key != path.rend(); ++key)
    value = *key == "[0]" ? Json(JsonArray{std::move(value)}) : Json(JsonObject{{*key, std::move(value)}});
  return value;
}

// Where a value is not the field of the same path: the chart changes it, or does not pass it on.
bool means_something_else(const std::string& path, const Json& wrong) {
  if (path.ends_with(".version")) return wrong.is_number();  // written as text
  if (path == "operator.labels" || path == "operator.annotations") return false;
  if (path == "driver") return true;                        // the whole of another kind
  if (path.starts_with("kataManager.config")) return true;  // not deployed by anybody
  // An image of what the defaults leave switched off is asked of no registry.
  static const std::set<std::string> kOff = {"ccManager",
                                             "dcgm",
                                             "gdrcopy",
                                             "gds",
                                             "kataManager",
                                             "vgpuManager",
                                             "nodeStatusExporter",
                                             "sandboxDevicePlugin",
                                             "vfioManager",
                                             "vgpuDeviceManager",
                                             "kataSandboxDevicePlugin"};
  if (path.ends_with(".image") && wrong.is_string() && kOff.contains(path.substr(0, path.find('.'))))
    return true;
  return path.starts_with("operator.initContainer") || path.starts_with("psp");  // ignored by the operator
}

// How many wrong values of a definition's fields were tried; `under`: where the values have them.
int try_definition(const Json& crd, const std::vector<std::string>& under) {
  const auto known = fleet::schema_keys(fleet::chart_rules().schema);
  const Json& version = get_array(crd, {"spec", "versions"}).front();
  const Json* spec = find(version, {"schema", "openAPIV3Schema", "properties", "spec"});
  int tried = 0;
  every_field(*spec, under, [&](const std::vector<std::string>& path, const Json& schema) {
    std::string plain;
    for (const auto& key : path) {
      if (key == "[0]" || key == "k") break;
      plain = fleet::below(plain, key);
    }
    if (!known.contains(plain) && !known.contains(plain + ".*")) return;
    for (const Json& wrong : wrong_values(schema)) {
      if (means_something_else(join(path, "."), wrong)) continue;
      ++tried;
      YamlDocument document;
      document.value = nested(path, wrong);
      const auto found = fleet::check_values({&document, 1}, fleet::chart_rules());
      EXPECT_FALSE(fleet::installable(found)) << to_text(document.value);
    }
  });
  return tried;
}

TEST(preflight, refuses_what_the_definitions_refuse) {
  for (const Json& crd : policy::crds()) {
    const bool driver = get_string(crd, {"metadata", "name"}) == "nvidiadrivers.nvidia.com";
    EXPECT_GT(try_definition(crd, driver ? std::vector<std::string>{"driver"} : std::vector<std::string>{}),
              90)
        << kube::name_of(crd);
  }
}

// --- what is documented ---

// The YAML examples of a page.
std::vector<std::string> examples(const std::string& page) {
  std::vector<std::string> out;
  bool inside = false;
  for (const auto& line : split(read_file(fs::path(SOURCE_ROOT) / "docs" / page).value(), '\n')) {
    if (line.starts_with("```")) {
      inside = line == "```yaml";
      if (inside) out.emplace_back();
    } else if (inside) {
      out.back() += line + "\n";
    }
  }
  return out;
}

TEST(preflight, documented_values_are_good) {
  const auto known = fleet::schema_keys(fleet::chart_rules().schema);
  int values = 0;
  for (const char* page : {"install.md", "metrics.md"}) {
    for (const auto& example : examples(page)) {
      const auto document = parse_yaml_one(example, page);
      ASSERT_TRUE(document) << document.error().text();
      const auto& top = document->value.as_object();
      if (!std::ranges::all_of(top,
                               [&](const auto& entry) { return known.contains(std::string(entry.key())); }))
        continue;
      ++values;
      EXPECT_EQ(shown(findings(example)), "") << example;
    }
  }
  EXPECT_EQ(values, 2);
}

TEST(preflight, documented_metrics_are_served) {
  const auto served = read_file(fs::path(SOURCE_ROOT) / "assets/metrics/dcp-metrics-included.csv").value();
  const auto page = read_file(fs::path(SOURCE_ROOT) / "docs/metrics.md").value();
  int named = 0;
  for (std::size_t at = 0; (at = page.find("DCGM_FI_", at)) != std::string::npos; ++named) {
    const auto end = page.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ_", at);
    const std::string metric = page.substr(at, end - at);
    EXPECT_NE(served.find("\n" + metric + ","), std::string::npos) << metric;
    at = end;
  }
  EXPECT_GT(named, 3);
}

// --- an API server ---

class Server {
 public:
  Server() {
    client_ = std::make_unique<kube::Client>(
        *loop_,
        kube::make_memory_transport(*loop_, [this](HttpRequest request, std::shared_ptr<HttpResponder> out) {
          server_.handler()(std::move(request), std::move(out));
        }));
    make(*parse_json(R"({"apiVersion":"v1","kind":"Namespace","metadata":{"name":"gpu-operator"}})"), false);
    const auto objects = fleet::load_manifests(kChart / "crds");
    EXPECT_TRUE(objects) << objects.error().text();
    for (const Json& crd : *objects) make(crd, false);
    loop_->run_for(10ms);
    assets_ = *op::load_assets(fs::path(SOURCE_ROOT) / "assets");
  }

  // What it says against the objects that helm makes of the values, and the operator of the policy; "" for
  // nothing.
  std::string refusals(const std::vector<Json>& rendered) {
    std::string out;
    for (const Json& object : rendered) {
      if (holds_values(object)) out += make(object);
      if (out.empty() && get_string(object, {"kind"}) == "ClusterPolicy") out += operands(object);
    }
    return out;
  }

 private:
  // Whether values are written into objects of this kind.
  static bool holds_values(const Json& object) {
    static const std::set<std::string_view> kKinds = {"Deployment", "DaemonSet",    "Service",
                                                      "ConfigMap",  "RuntimeClass", "ClusterPolicy"};
    return kKinds.contains(get_string(object, {"kind"}));
  }

  std::string make(const Json& object, bool dry = true) {
    const auto type = fleet::resource_of(object);
    if (!type) return "";  // a kind of OpenShift or of Prometheus
    kube::WriteOptions options;
    options.dry_run = dry;
    const std::string ns = type->namespaced ? "gpu-operator" : "";
    const auto made = kube::await(
        *loop_, [&](const auto& done) { return client_->create(*type, ns, object, options, done); });
    return made ? "" : made.error().message + "\n";
  }

  std::string operands(Json object) {
    set(object, {"metadata", "uid"}, "11111111-2222-3333-4444-555555555555");
    const auto policy = policy::parse_cluster_policy(object);
    if (!policy) return policy.error().text() + "\n";
    op::ClusterFacts facts;
    facts.operator_namespace = "gpu-operator";
    facts.env = {{"VALIDATOR_IMAGE", "a/b:c"}, {"DRIVER_MANAGER_IMAGE", "a/b:c"}};
    facts.kubernetes_version = "v1.34.0";
    facts.gpu_nodes = {{"n", "ubuntu", "22.04", "5.15.0-91-generic", ""}};
    std::string out;
    for (const auto& state : op::render(*policy, facts, assets_).states) {
      if (state.error) out += state.error->text() + "\n";
      for (const Json& one : state.objects) {
        if (holds_values(one)) out += make(one);
      }
    }
    return out;
  }

  std::unique_ptr<Loop> loop_ = Loop::make_virtual(*parse_time("2026-01-01T00:00:00Z"));
  cluster::ApiServer server_{*loop_};
  std::unique_ptr<kube::Client> client_;
  op::Assets assets_;
};

TEST(preflight, says_what_an_api_server_says) {
  const std::vector<std::string> good = {R"(
daemonsets:
  tolerations: [{operator: Exists}]
  labels: {a.b/c: D_1.2}
  annotations: {A.b/C: '!'}
  podSecurityContext: {runAsUser: 0, seccompProfile: {type: RuntimeDefault}}
driver: {imagePullPolicy: Allways, env: [{name: 1A.b-c, value: x}]}
toolkit: {resources: {limits: {cpu: 2, memory: 1.5Gi}, requests: {cpu: 500m}}}
operator:
  resources: {limits: {cpu: 0.5}, requests: {cpu: 0.5}}
  tolerations: [{key: a, effect: NoExecute, tolerationSeconds: 3}]
dcgmExporter: {service: {type: NodePort, internalTrafficPolicy: Local}}
extraObjects:
  - {apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {a.b_c: x}}
  - {apiVersion: nvidia.com/v1alpha1, kind: NVIDIADriver, metadata: {name: b}, spec: {driverType: gpu}}
)"};
  const std::vector<std::string> bad = {
      "daemonsets: {tolerations: [{key: a, operator: Exist}]}",
      "daemonsets: {tolerations: [{operator: Equal}]}",
      "daemonsets: {tolerations: [{key: a, operator: Exists, value: b}]}",
      "daemonsets: {tolerations: [{key: a, operator: Exists, tolerationSeconds: 3}]}",
      "operator: {tolerations: [{key: a, effect: NoShedule}]}",
      "operator: {tolerations: [{key: 'a b', operator: Exists}]}",
      "daemonsets: {labels: {'bad key': x}}",
      "daemonsets: {labels: {a: 'bad value!'}}",
      "daemonsets: {annotations: {'bad key': x}}",
      "operator: {labels: {a: 'bad value!'}}",
      "operator: {nodeSelector: {a: '-x'}}",
      "operator: {annotations: {'a b': x}}",
      "driver: {resources: {limits: {cpu: abc}}}",
      "operator: {resources: {limits: {cpu: abc}}}",
      "toolkit: {resources: {limits: {cpu: 1}, requests: {cpu: 2}}}",
      "toolkit: {resources: {requests: {nvidia.com/gpu: 1}}}",
      "toolkit: {resources: {limits: {memry: 1}}}",
      "driver: {env: [{name: 'A=B', value: x}]}",
      "operator: {env: [{name: '', value: x}]}",
      "operator: {imagePullPolicy: Allways}",
      "driver: {upgradePolicy: {maxParallelUpgrades: -1}}",
      "driver: {startupProbe: {periodSeconds: -1}}",
      "driver: {livenessProbe: {successThreshold: 2}}",
      "daemonsets: {rollingUpdate: {maxUnavailable: 0}}",
      "daemonsets: {rollingUpdate: {maxUnavailable: x}}",
      "dcgmExporter: {service: {type: ClusterIp}}",
      "dcgmExporter: {service: {internalTrafficPolicy: Node}}",
      "dcgmExporter: {serviceMonitor: {interval: 15 s}}",
      "migManager: {config: {default: all-balanced}}",
      "operator: {runtimeClass: Nvidia}",
      "operator: {priorityClassName: 'A B'}",
      "daemonsets: {podSecurityContext: {seccompProfile: {type: Runtime}}}",
      "hostPaths: {driverInstallDir: /run/../etc}",
      "driver: {version: 'not a version!'}",
      "devicePlugin: {config: {create: true, name: a, data: {'a b': x}}}",
      "devicePlugin: {config: {create: true, name: A_b, data: {a: x}}}",
      "extraObjects: [{apiVersion: v1, kind: ConfigMap, metadata: {}}]",
      "extraObjects: [{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {a: 1}}]",
      "extraObjects: [{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {a b: x}}]",
      "extraObjects: [{apiVersion: nvidia.com/v1, kind: ClusterPolicy, metadata: {name: b}, spec: 5}]",
      "extraObjects: [{apiVersion: nvidia.com/v1, kind: ClusterPolicy, metadata: {name: b}}]"};
  std::vector<std::string> cases = good;
  cases.insert(cases.end(), bad.begin(), bad.end());
  const auto objects = Umbrella(cases).rendered({"--skip-schema-validation"});
  Server server;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const bool refused = i >= good.size();
    const auto ours = findings(cases[i]);
    const std::string theirs = server.refusals(objects[i]);
    EXPECT_EQ(!fleet::installable(ours), refused) << cases[i] << "\npreflight: " << shown(ours);
    EXPECT_EQ(!theirs.empty(), refused) << cases[i] << "\nserver: " << theirs;
  }
}

}  // namespace
}  // namespace gpuop
