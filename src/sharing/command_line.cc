#include "sharing/command_line.h"

#include <algorithm>

#include "base/text.h"

namespace gpuop::sharing {
namespace {

const Option* find_option(Program program, std::string_view name) {
  for (const Option& option : options(program)) {
    if (option.name == name || std::ranges::find(option.aliases, name) != option.aliases.end())
      return &option;
  }
  return nullptr;
}

std::unexpected<Error> unknown(Program program, const std::string& argument, std::string_view name) {
  std::vector<std::string> names = {"--help", "--version"};
  for (const Option& option : options(program)) {
    names.push_back("--" + std::string(option.name));
    for (std::string_view alias : option.aliases) names.push_back("--" + std::string(alias));
  }
  return fail(Code::kInvalid, "flag provided but not defined: '" + argument + "'" +
                                  did_you_mean("--" + std::string(name), names));
}

}  // namespace

Result<CommandLine> parse_command_line(Program program, std::span<const std::string> arguments) {
  CommandLine out;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    std::string_view rest = argument;
    if (rest == "--" || !rest.starts_with('-') || rest == "-") {
      if (rest == "--" && i + 1 == arguments.size()) break;
      return fail(Code::kInvalid,
                  "unexpected argument '" + (rest == "--" ? arguments[i + 1] : argument) + "'");
    }
    rest.remove_prefix(rest.starts_with("--") ? 2 : 1);
    auto equals = rest.find('=');
    std::string_view name = rest.substr(0, equals);
    if (name == "help" || name == "h") {
      out.help = true;
      continue;
    }
    if (name == "version" || name == "v") {
      out.version = true;
      continue;
    }
    const Option* option = find_option(program, name);
    if (!option) return unknown(program, argument, name);
    auto& values = out.flags[std::string(option->name)];
    if (equals != std::string_view::npos) {
      values.emplace_back(rest.substr(equals + 1));
    } else if (option->type == OptionType::kBool) {
      values.emplace_back("true");
    } else if (i + 1 < arguments.size()) {
      values.push_back(arguments[++i]);
    } else {
      return fail(Code::kInvalid, "flag needs an argument: '" + argument + "'");
    }
  }
  return out;
}

std::string help_text(Program program, std::string_view name) {
  std::string text = std::string(name) + " [OPTIONS]\n\n";
  for (const Option& option : options(program)) {
    text += "  --" + std::string(option.name);
    for (std::string_view alias : option.aliases) {
      text += ", " + std::string(alias.size() == 1 ? "-" : "--") + std::string(alias);
    }
    text += "\n      " + std::string(option.help);
    if (!option.fallback.empty()) text += " (default: " + std::string(option.fallback) + ")";
    text += " [";
    for (std::size_t i = 0; i < option.envs.size(); ++i)
      text += (i ? ", $" : "$") + std::string(option.envs[i]);
    text += "]\n";
  }
  return text;
}

}  // namespace gpuop::sharing
