// gpuctl preflight: what would come of a values file, before helm is run, and whether a cluster's versions
// and what the values ask for go together.
#include <array>
#include <cstdio>

#include "base/files.h"
#include "base/loop.h"
#include "base/text.h"
#include "base/yaml.h"
#include "cli.h"
#include "commands.h"
#include "fleet/compatibility.h"
#include "fleet/umbrella.h"
#include "fleet/values.h"
#include "kube/config.h"
#include "kube/object.h"
#include "preflight/config_texts.h"

namespace gpuop {
namespace {

Result<std::string> read_input(const std::string& file) {
  return read_file(file == "-" ? "/dev/stdin" : file);
}

// One line, whatever stands in a key.
std::string printable(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\n') {
      out += "\\n";
    } else if (static_cast<unsigned char>(c) < ' ' || c == '\x7f') {
      std::array<char, 8> code{};
      std::snprintf(code.data(), code.size(), "\\x%02x",
                    static_cast<unsigned>(static_cast<unsigned char>(c)));
      out += code.data();
    } else {
      out += c;
    }
  }
  return out;
}

void print(const std::string& file, const fleet::ValuesFinding& finding) {
  using Kind = fleet::ValuesFinding::Kind;
  const char* word = finding.kind == Kind::kRefused || finding.kind == Kind::kBroken ? "error" : "warning";
  const std::string path = finding.path.empty() ? "" : finding.path + ": ";
  std::printf("%s:%d: %s: %s\n", file.c_str(), finding.line, word, printable(path + finding.text).c_str());
}

struct Checked {
  bool good = true;
  std::size_t count = 0;
  Json values;  // the chart's defaults with those of the files
};

Result<YamlDocument> read_values(const std::string& file) {
  const std::string text = TRY(read_input(file));
  auto read = parse_yaml(text, file);
  if (!read && text.contains("{{"))
    return fail(Code::kInvalid,
                read.error().text() + " (helm puts no values file through templates: '{{' needs quotes)");
  auto documents = TRY(std::move(read));
  if (documents.size() > 1)
    return fail(Code::kInvalid,
                "read '" + file + "': a values file is one document; helm would read the first alone");
  YamlDocument nothing;
  nothing.value = JsonObject{};
  if (documents.empty()) return nothing;
  if (!documents.front().value.is_object())
    return fail(Code::kInvalid, "read '" + file + "': a values file is a map of keys");
  if (const auto other = fleet::no_values_file(documents.front().value); !other.empty())
    return fail(Code::kInvalid, "read '" + file + "': " + other);
  return std::move(documents.front());
}

// `key`: below which the values are, "" where the files say so themselves.
Result<Checked> check(const std::vector<std::string>& files, std::string key) {
  std::vector<YamlDocument> documents;
  documents.reserve(files.size());
  for (const auto& file : files) documents.push_back(TRY(read_values(file)));
  const auto& rules = fleet::chart_rules();
  const std::string doing = "read '" + join(files, "', '") + "'";
  if (key.empty()) key = TRY_IN(fleet::values_key(documents, rules.schema), doing);
  if (!key.empty()) {
    documents = TRY_IN(fleet::values_below(documents, key), doing);
    std::printf("%s: what lies below '%s' is checked, as the values of this chart within another\n",
                join(files, ", ").c_str(), key.c_str());
  }
  auto findings = fleet::check_values(documents, rules, preflight::value_faults);
  if (key.empty()) fleet::tell_of_values_key(findings, documents, rules.schema);
  if (!key.empty()) findings = fleet::told_below(std::move(findings), key);
  for (const auto& finding : findings) print(files.empty() ? "values" : files[finding.file], finding);
  return Checked{.good = fleet::installable(findings),
                 .count = findings.size(),
                 .values = fleet::merged_values(documents, rules.defaults)};
}

// Before feature discovery has run nothing tells GPU nodes from others.
bool may_have_gpus(const Json& node) {
  if (kube::label(node, "nvidia.com/gpu.present") == "true" || kube::label(node, "nvidia.com/gpu") == "true")
    return true;
  for (const auto& [key, value] : get_object(node, {"metadata", "labels"})) {
    const std::string_view name = key;
    if (name.starts_with("feature.node.kubernetes.io/pci-") && name.find("10de") != std::string_view::npos)
      return true;
  }
  return false;
}

Result<std::map<std::string, fleet::CompatFacts>> node_facts(Loop& loop, kube::Client& client) {
  std::map<std::string, fleet::CompatFacts> gpu;
  std::map<std::string, fleet::CompatFacts> all;
  kube::ListOptions page;
  page.limit = 500;
  do {
    const auto list =
        kube::await(loop, [&](const auto& done) { return client.list(kube::kNodes, "", page, done); });
    if (!list) return fail(list.error().error("list nodes"));
    for (const auto& node : get_array(*list, {"items"})) {
      auto facts = fleet::node_facts(node);
      if (const auto arch = get_string(node, {"status", "nodeInfo", "architecture"}); !arch.empty())
        facts["arch"] = std::string(arch);
      if (may_have_gpus(node)) gpu.emplace(kube::name_of(node), facts);
      all.emplace(kube::name_of(node), std::move(facts));
    }
    page.continue_token = std::string(get_string(*list, {"metadata", "continue"}));
  } while (!page.continue_token.empty());
  return gpu.empty() ? all : gpu;
}

// Prints what does not go together; answers whether everything can work.
Result<bool> check_cluster(const std::string& kubeconfig, Checked& checked) {
  Loop loop;
  const auto client = TRY(kube::make_client(loop, TRY(kube::find_config(kubeconfig))));
  HttpRequest request;
  request.path = "/version";
  const auto version = kube::await_raw(loop, [&](const auto& done) { return client->raw(request, done); });
  if (!version) return fail(version.error().error("read the API server's version"));
  auto facts = fleet::values_facts(checked.values);
  const Json body = TRY_IN(parse_json(version->body), "read the API server's version");
  facts["kubernetes"] = std::string(get_string(body, {"gitVersion"}));
  const auto nodes = TRY(node_facts(loop, *client));
  bool good = true;
  for (const auto& finding : fleet::Compatibility::built_in().check(facts, nodes)) {
    std::printf("cluster: %s: %s\n", finding.error ? "error" : "warning", finding.line().c_str());
    good = good && !finding.error;
    ++checked.count;
  }
  return good;
}

// 0: it installs and everything has an effect, or warnings only; 1: the chart or the operator refuses it, or
// it cannot work.
Result<int> run(const std::vector<std::string>& files, const std::string& key, bool cluster,
                const std::string& kubeconfig) {
  Checked checked = TRY(check(files, key));
  if (cluster) checked.good = TRY(check_cluster(kubeconfig, checked)) && checked.good;
  if (checked.count == 0)
    std::printf(cluster ? "nothing speaks against it\n" : "every value is known and has an effect\n");
  return checked.good ? 0 : 1;
}

}  // namespace

int preflight_main(int argc, char** argv) {
  std::vector<std::string> values;
  CLI::App app(
      "Check before an installation: what each value of a values file does, what the chart refuses, and what "
      "does not go "
      "together with the cluster.");
  app.add_option("-f,--values", values,
                 "values file for the Helm chart; - for standard input; may be repeated");
  std::string key;
  app.add_option("--values-key", key,
                 "the files are of a chart that has this one as a part, under this name or alias (default: "
                 "found by itself where it can be; dotted where charts are nested)");
  bool cluster = false;
  std::string kubeconfig;
  app.add_flag("--cluster", cluster,
               "check too whether the cluster's versions and what the values ask for go together");
  app.add_option("--kubeconfig", kubeconfig,
                 "that cluster (default: KUBECONFIG, else ~/.kube/config); implies --cluster");
  app.footer(
      "Exit codes: 0 the chart installs (warnings may be printed), 1 it refuses a value or something cannot "
      "work "
      "together, 2 a file or the cluster cannot be read.");
  if (auto code = parse_command_line(app, argc, argv, 2)) return *code;
  cluster = cluster || !kubeconfig.empty();
  if (values.empty() && !cluster) {
    std::fputs("gpuctl preflight: needs --values FILE, --cluster or both\n", stderr);
    return 2;
  }
  const auto code = run(values, key, cluster, kubeconfig);
  if (code) return *code;
  std::fprintf(stderr, "gpuctl preflight: %s\n", code.error().text().c_str());
  return 2;
}

}  // namespace gpuop
