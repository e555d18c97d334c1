#include <cstdio>
#include <string>
#include <vector>

#include "base/text.h"
#include "base/version.h"
#include "roles.h"

namespace {

using namespace gpuop;

void print_help(std::FILE* to) {
  std::fputs("gpu-node ROLE [ARGUMENTS…]: the work of one operand on one node.\n\nRoles:\n", to);
  for (const Role& role : roles()) {
    std::string name(role.name);
    for (std::string_view alias : role.aliases) name += ", " + std::string(alias);
    std::fprintf(to, "  %s\n      %.*s\n", name.c_str(), static_cast<int>(role.summary.size()),
                 role.summary.data());
  }
  std::fputs("\ngpu-node ROLE --help shows a role's own options.\n", to);
}

int unknown_role(std::string_view name) {
  std::vector<std::string> names;
  for (const Role& role : roles()) {
    names.emplace_back(role.name);
    names.insert(names.end(), role.aliases.begin(), role.aliases.end());
  }
  std::string text = "gpu-node: choose role '" + std::string(name) + "': there is no such role" +
                     did_you_mean(name, names) + "; 'gpu-node --help' lists them\n";
  std::fputs(text.c_str(), stderr);
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  std::string_view called = argc > 0 ? argv[0] : "gpu-node";
  called.remove_prefix(called.rfind('/') + 1);  // npos + 1 is 0
  if (const Role* role = find_role(called)) return role->main(argc, argv);
  if (argc < 2) {
    print_help(stderr);
    return 1;
  }
  std::string_view name = argv[1];
  if (name == "--help" || name == "-h" || name == "help") {
    print_help(stdout);
    return 0;
  }
  if (name == "--version") {
    std::puts("gpu-node " GPUOP_VERSION);
    return 0;
  }
  if (name == "--names") {
    // What an image links to this program, one a line.
    for (const Role& role : roles()) {
      std::printf("%s\n", std::string(role.name).c_str());
      for (std::string_view alias : role.aliases) std::printf("%s\n", std::string(alias).c_str());
    }
    return 0;
  }
  if (const Role* role = find_role(name)) return role->main(argc - 1, argv + 1);
  return unknown_role(name);
}
