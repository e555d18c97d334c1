// gpuctl preflight: what would come of a values file, before helm is run.
#include <cstdio>

#include "base/files.h"
#include "base/yaml.h"
#include "cli.h"
#include "commands.h"
#include "data_dir.h"
#include "fleet/values.h"

namespace gpuop {
namespace {

Result<std::string> read_input(const std::string& file) {
  return read_file(file == "-" ? "/dev/stdin" : file);
}

void print(const std::string& file, const fleet::ValuesFinding& finding) {
  using Kind = fleet::ValuesFinding::Kind;
  const char* word = finding.kind == Kind::kRefused ? "error" : "warning";
  const std::string path = finding.path.empty() ? "" : finding.path + ": ";
  std::printf("%s:%d: %s: %s%s\n", file.c_str(), finding.line, word, path.c_str(), finding.text.c_str());
}

// 0: it installs and everything has an effect, or warnings only; 1: the chart refuses it.
Result<int> check(const std::vector<std::string>& files) {
  const auto rules = TRY(fleet::load_values_rules(TRY(data_dir()) / "deploy/chart"));
  bool good = true;
  std::size_t count = 0;
  for (const auto& file : files) {
    const auto documents = TRY(parse_yaml(TRY(read_input(file)), file));
    if (documents.size() > 1)
      return fail(Code::kInvalid,
                  "read '" + file + "': a values file is one document; helm would read the first alone");
    if (documents.empty()) continue;
    if (!documents.front().value.is_object())
      return fail(Code::kInvalid, "read '" + file + "': a values file is a map of keys");
    const auto findings = fleet::check_values(documents.front(), rules);
    for (const auto& finding : findings) print(file, finding);
    good = good && fleet::installable(findings);
    count += findings.size();
  }
  if (count == 0) std::printf("every value is known and has an effect\n");
  return good ? 0 : 1;
}

}  // namespace

int preflight_main(int argc, char** argv) {
  std::vector<std::string> values;
  CLI::App app(
      "Check before an installation: what each value of a values file does, and what the chart refuses.");
  app.add_option("-f,--values", values,
                 "values file for the Helm chart; - for standard input; may be repeated")
      ->required();
  app.footer(
      "Exit codes: 0 the chart installs (warnings may be printed), 1 it refuses a value, 2 a file cannot be "
      "read.");
  if (auto code = parse_command_line(app, argc, argv, 2)) return *code;
  const auto code = check(values);
  if (code) return *code;
  std::fprintf(stderr, "gpuctl preflight: %s\n", code.error().text().c_str());
  return 2;
}

}  // namespace gpuop
