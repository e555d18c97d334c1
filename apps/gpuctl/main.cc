// gpuctl (also kubectl-gpu): what an administrator's machine has.
#include <cstdio>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/text.h"
#include "base/version.h"
#include "commands.h"

namespace {

void usage(std::FILE* out) {
  std::fputs("usage: gpuctl COMMAND [ARGUMENT…]\n\n", out);
  for (const auto& command : gpuop::gpuctl_commands()) {
    if (command.summary.empty()) continue;
    std::fprintf(out, "  %-10.*s %.*s\n", static_cast<int>(command.name.size()), command.name.data(),
                 static_cast<int>(command.summary.size()), command.summary.data());
  }
  std::fputs("\n  --version  print the version\n\nEach command tells its own arguments with --help.\n", out);
}

}  // namespace

int main(int argc, char** argv) {
  gpuop::log::setup("gpuctl");
  const std::string word = argc > 1 ? argv[1] : "";
  if (word == "--version" || word == "version") {
    std::puts("gpuctl " GPUOP_VERSION);
    return 0;
  }
  if (word.empty() || word == "--help" || word == "-h" || word == "help") {
    usage(word.empty() ? stderr : stdout);
    return word.empty() ? 2 : 0;
  }
  std::vector<std::string> names;
  for (const auto& command : gpuop::gpuctl_commands()) {
    if (command.name == word) {
      std::string name = "gpuctl " + word;
      argv[1] = name.data();
      return command.main(argc - 1, argv + 1);
    }
    if (!command.summary.empty()) names.emplace_back(command.name);
  }
  std::fprintf(stderr, "gpuctl: unknown command '%s'%s\n", word.c_str(),
               gpuop::did_you_mean(word, names).c_str());
  return 2;
}
