// gpuop-runc: the low-level runtime of a simulated node, under the command line of runc. `runc` on a node's
// PATH is a link to it. Options are read by hand: the program is started for every container, and runc's
// global options come from callers that we do not choose.
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/text.h"
#include "base/time.h"
#include "base/version.h"
#include "cluster/launcher/container.h"
#include "cluster/launcher/cri_log.h"
#include "cluster/launcher/shim.h"

namespace {

using namespace gpuop;
using namespace gpuop::cluster;

constexpr const char* kUsage =
    "gpuop-runc [--root DIR] [--log FILE] [--log-format text|json] COMMAND\n"
    "  create [--bundle DIR] [--pid-file FILE] ID    start a container up to its program\n"
    "  start ID                                      let its program run\n"
    "  run [--bundle DIR] ID                         create and start\n"
    "  state ID                                      print its state\n"
    "  kill ID [SIGNAL]                              signal it\n"
    "  delete [--force] ID                           forget it\n"
    "  exec --pid PID --bundle DIR [--console-fd N] -- PROGRAM…\n"
    "                                                run a program inside, with a terminal\n"
    "                                                whose master goes to socket N\n"
    "  pause --pid-file FILE                         start the holder of a PID namespace\n"
    "  shim …                                        keep a container (for the node's runtime)\n";

struct Arguments {
  std::map<std::string, std::string> values;
  std::set<std::string> switches;
  std::vector<std::string> rest;
};

// Options of runc that take a value; every other one is a switch.
bool takes_value(const std::string& name) {
  static const std::set<std::string> names{
      "root",           "log",          "log-format", "bundle",   "b",         "pid-file",
      "console-socket", "preserve-fds", "id",         "runtime",  "exit-file", "report-fd",
      "container-log",  "name",         "pid",        "rootless", "criu",      "console-fd"};
  return names.contains(name);
}

Result<Arguments> parse(const std::vector<std::string>& args) {
  Arguments out;
  for (std::size_t i = 0; i < args.size(); ++i) {
    const std::string& arg = args[i];
    if (arg == "--") {
      out.rest.insert(out.rest.end(), args.begin() + static_cast<std::ptrdiff_t>(i) + 1, args.end());
      break;
    }
    if (arg.size() < 2 || arg[0] != '-') {
      out.rest.push_back(arg);
      continue;
    }
    std::string name = arg.substr(arg[1] == '-' ? 2 : 1);
    std::size_t equals = name.find('=');
    if (equals != std::string::npos) {
      std::string key = name.substr(0, equals);
      out.values[key == "b" ? "bundle" : key] = name.substr(equals + 1);
    } else if (takes_value(name)) {
      if (i + 1 == args.size()) return fail(Code::kInvalid, "option '" + arg + "': needs a value");
      out.values[name == "b" ? "bundle" : name] = args[++i];
    } else {
      out.switches.insert(name);
    }
  }
  return out;
}

std::string value(const Arguments& args, const std::string& name, const std::string& fallback = {}) {
  auto found = args.values.find(name);
  return found == args.values.end() ? fallback : found->second;
}

std::string bundle_of(const Arguments& args) {
  std::error_code ignored;
  return fs::absolute(value(args, "bundle", "."), ignored).lexically_normal().string();
}

Result<int> parse_signal(std::string name) {
  static const std::map<std::string, int> names{{"TERM", SIGTERM}, {"KILL", SIGKILL}, {"INT", SIGINT},
                                                {"HUP", SIGHUP},   {"QUIT", SIGQUIT}, {"USR1", SIGUSR1},
                                                {"USR2", SIGUSR2}, {"STOP", SIGSTOP}, {"CONT", SIGCONT}};
  if (auto number = parse_int(name)) return static_cast<int>(*number);
  if (name.starts_with("SIG")) name.erase(0, 3);
  auto found = names.find(name);
  if (found == names.end()) return fail(Code::kInvalid, "unknown signal \"" + name + "\"");
  return found->second;
}

Result<std::string> id_of(const Arguments& args) {
  if (args.rest.size() < 2) return fail(Code::kInvalid, "a container id is needed");
  return args.rest[1];
}

Result<int> run_command_line(const Arguments& args) {
  fs::path root = value(args, "root", kLauncherStateRoot);
  const std::string& command = args.rest[0];
  if (command == "create" || command == "run") {
    std::string id = TRY(id_of(args));
    TRY(create_container({root, id, bundle_of(args), value(args, "pid-file")}));
    if (command == "run") TRY(start_container(root, id));
    return 0;
  }
  if (command == "start") {
    TRY(start_container(root, TRY(id_of(args))));
    return 0;
  }
  if (command == "state") {
    std::fputs(to_pretty_text(TRY(container_state(root, TRY(id_of(args))))).c_str(), stdout);
    return 0;
  }
  if (command == "kill") {
    int signal = TRY(parse_signal(args.rest.size() > 2 ? args.rest[2] : "TERM"));
    TRY(kill_container(root, TRY(id_of(args)), signal));
    return 0;
  }
  if (command == "delete") {
    bool force = args.switches.contains("force") || args.switches.contains("f");
    TRY(delete_container(root, TRY(id_of(args)), force));
    return 0;
  }
  if (command == "exec") {
    ExecOptions options;
    options.pid = static_cast<pid_t>(parse_int(value(args, "pid")).value_or(0));
    options.bundle = bundle_of(args);
    options.args.assign(args.rest.begin() + 1, args.rest.end());
    options.console_fd = static_cast<int>(parse_int(value(args, "console-fd")).value_or(-1));
    options.streams_are_the_programs = true;
    return exec_in_container(options);
  }
  if (command == "shim") {
    return run_shim({value(args, "id"), bundle_of(args), value(args, "runtime"), root,
                     value(args, "container-log"), value(args, "exit-file"),
                     static_cast<int>(parse_int(value(args, "report-fd")).value_or(-1))});
  }
  if (command == "pause") {
    TRY(start_pause(value(args, "pid-file")));
    return 0;
  }
  return fail(Code::kInvalid, "choose command '" + command + "': there is no such command");
}

// The engine that called us reads the last error from here.
void log_error(const Arguments& args, const Error& error) {
  std::string path = value(args, "log");
  if (path.empty() || value(args, "log-format") != "json") return;
  std::FILE* file = std::fopen(path.c_str(), "ae");
  if (!file) return;
  Time now = std::chrono::time_point_cast<Duration>(std::chrono::system_clock::now());
  JsonObject line{{"level", "error"},
                  {"msg", "runc " + args.rest[0] + " failed: " + error.text()},
                  {"time", format_nano_time(now)}};
  std::fprintf(file, "%s\n", to_text(Json(std::move(line))).c_str());
  std::fclose(file);
}

}  // namespace

int main(int argc, char** argv) {
  auto args = parse(std::vector<std::string>(argv + 1, argv + argc));
  if (!args) {
    std::fprintf(stderr, "gpuop-runc: %s\n", args.error().text().c_str());
    return 1;
  }
  if (args->switches.contains("version") || args->switches.contains("v")) {
    std::puts("runc version 1.2.0 (gpuop-runc " GPUOP_VERSION ")\nspec: 1.2.0");
    return 0;
  }
  if (args->rest.empty() || args->switches.contains("help") || args->switches.contains("h")) {
    std::fputs(kUsage, args->rest.empty() ? stderr : stdout);
    return args->rest.empty() ? 1 : 0;
  }
  auto result = run_command_line(*args);
  if (!result) {
    log_error(*args, result.error());
    std::fprintf(stderr, "runc %s failed: %s\n", args->rest[0].c_str(), result.error().text().c_str());
  }
  std::fflush(stdout);
  // Some commands have joined namespaces of a container: nothing more is run there.
  ::_exit(result ? *result : 1);
}
