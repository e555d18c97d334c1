#include "cli.h"

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "base/text.h"

namespace gpuop {
namespace {

// Everything that may stand on the command line, of subcommands too.
void collect(const CLI::App& app, std::vector<std::string>& known) {
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
  }
  for (const CLI::App* sub : app.get_subcommands(nullptr)) {
    known.push_back(sub->get_name());
    collect(*sub, known);
  }
}

// The argument that no option took, and the option that it may have meant; `flags`: words that are no flags
// may be values.
std::string suggestion(const CLI::App& app, int argc, char** argv, bool flags) {
  std::vector<std::string> known;
  collect(app, known);
  for (int i = 1; i < argc; ++i) {
    std::string_view word = argv[i];
    word = word.substr(0, word.find('='));
    if (std::ranges::find(known, word) != known.end() || (flags && !word.starts_with("--"))) continue;
    std::string text = did_you_mean(word, known);
    if (!text.empty()) return text;
  }
  return {};
}

}  // namespace

std::optional<int> parse_command_line(CLI::App& app, int argc, char** argv, int wrong) {
  if (app.get_name().empty()) app.name(argc > 0 ? argv[0] : "gpu-node");
  try {
    app.parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::Success& wanted) {  // --help, --version
    return app.exit(wanted);
  } catch (const CLI::ExtrasError& error) {
    std::string text = app.get_name() + ": " + error.what() + suggestion(app, argc, argv, false) + "\n";
    std::fputs(text.c_str(), stderr);
  } catch (const CLI::Error& error) {
    // A misspelt flag may show as something else that is missing.
    std::string text = app.get_name() + ": " + error.what() + suggestion(app, argc, argv, true) + "\n";
    std::fputs(text.c_str(), stderr);
  }
  return wrong;
}

}  // namespace gpuop
