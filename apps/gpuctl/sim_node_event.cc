// gpuctl sim node: what happens to a node of a running fleet.
#include <cstdio>
#include <string>
#include <vector>

#include "base/text.h"
#include "cluster/fleet/control.h"
#include "cluster/fleet/node_events.h"
#include "commands.h"

namespace gpuop {
namespace {

void usage(std::FILE* out) {
  std::fputs(
      "usage: gpuctl sim node NODE EVENT [ARGUMENT…] [--state-dir DIR] [--timeout TIME]\n\n"
      "Make something happen to a node of a fleet that runs (gpuctl demo --keep). Events:\n\n",
      out);
  std::fputs(cluster::node_event_help().c_str(), out);
  std::fputs(
      "\n  --state-dir DIR  the fleet's folder (default: /run/gpuctl-demo)\n"
      "  --timeout TIME   how long the event may take (default: 1m)\n",
      out);
}

struct Arguments {
  fs::path state_dir = default_state_dir();
  Duration timeout = std::chrono::minutes(1);
  std::vector<std::string> words;
  bool help = false;
};

Result<Arguments> parse(const std::vector<std::string>& given) {
  Arguments out;
  for (std::size_t i = 0; i < given.size(); ++i) {
    std::string word = given[i], value;
    if (word == "--help" || word == "-h") out.help = true;
    const std::size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    if (name != "--state-dir" && name != "--timeout") {
      out.words.push_back(word);
      continue;
    }
    if (equals != std::string::npos) {
      value = word.substr(equals + 1);
    } else if (i + 1 < given.size()) {
      value = given[++i];
    }
    if (value.empty()) return fail(Code::kInvalid, "sim node: " + name + ": needs a value");
    if (name == "--state-dir") {
      out.state_dir = value;
    } else {
      out.timeout = TRY_IN(parse_go_duration(value), "sim node: --timeout");
    }
  }
  return out;
}

Result<> run(const Arguments& arguments) {
  if (arguments.words.size() < 2) {
    return fail(Code::kInvalid, "sim node: write gpuctl sim node NODE EVENT (events: --help)");
  }
  const cluster::NodeEvent event =
      TRY(cluster::parse_node_event({arguments.words.begin() + 1, arguments.words.end()}));
  Loop loop;
  return cluster::send_node_event(loop, arguments.state_dir, arguments.words[0], event, arguments.timeout);
}

}  // namespace

int sim_node_event_main(int argc, char** argv) {
  const auto arguments = parse({argv + 1, argv + argc});
  if (arguments && arguments->help) {
    usage(stdout);
    return 0;
  }
  const auto done = arguments ? run(*arguments) : Result<>(std::unexpected(arguments.error()));
  if (done) return 0;
  std::fprintf(stderr, "gpuctl: %s\n", done.error().text().c_str());
  return done.error().code() == Code::kInvalid || done.error().code() == Code::kUnsupported ? 2 : 1;
}

}  // namespace gpuop
