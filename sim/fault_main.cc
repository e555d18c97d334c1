// `sim fault`: the command line of faults.h.
#include <cstdio>

#include "base/text.h"
#include "sim/faults.h"

namespace gpuop::sim {

namespace {

constexpr const char* kUsage =
    "usage: gpuctl sim fault --node NAME [--state-dir DIR] [--gpu N|all] FAULT\n"
    "  --state-dir DIR                the fleet's folder, where several fleets run\n"
    "  xid CODE [--gi N] [--ci N]     an XID event\n"
    "  ecc single|double [COUNT]      ECC errors (double: with XID 48)\n"
    "  lost                           off the bus (XID 79)\n"
    "  recover                        healthy again, as after a reset\n"
    "  load PERCENT                   work that is no process's\n"
    "  heat DEGREES                   on top of what the load makes\n"
    "  link-down LINK                 an NVLink fails (XID 74)\n"
    "  pcie-replay COUNT              PCIe replays\n"
    "  link-errors COUNT              NVLink replays, recoveries and CRC errors\n"
    "  throttle power|heat|brake|none what holds the clocks back\n"
    "  fabric not-started|in-progress|completed|failed|unhealthy\n"
    "                                 the NVLink fabric, of boards that are in one\n"
    "  row-remap COUNT|pending|failed memory rows\n"
    "  reset-required                 unusable until a reset\n"
    "  fail SYMBOL CODE [AFTER]       an NVML call fails (CODE 0: works again), after AFTER good calls\n"
    "  clear-fails                    all calls work again\n";

struct Arguments {
  std::string node, state_dir, kernel_root;
  int gpu = 0;
  std::uint32_t gi = 0xFFFFFFFFu, ci = 0xFFFFFFFFu;
  std::vector<std::string> words;
  bool help = false;
};

Result<int> gpu_index(const std::string& text) {
  constexpr long long kMost = 1 << 16;
  if (text == "all") return -1;
  const auto n = parse_int(text);
  if (n && *n >= 0 && *n <= kMost) return static_cast<int>(*n);
  return fail(Code::kInvalid, "--gpu: must be a GPU's index (0, 1, …) or 'all'; got '" + text + "'");
}

Result<Arguments> parse(const std::vector<std::string>& given) {
  Arguments a;
  const std::vector<std::string> options = {"--node", "--state-dir",   "--gpu", "--gi",
                                            "--ci",   "--kernel-root", "--help"};
  for (std::size_t i = 0; i < given.size(); ++i) {
    std::string word = given[i], value;
    if (word == "-h" || word == "--help") {
      a.help = true;
      return a;
    }
    if (!word.starts_with("--")) {
      a.words.push_back(word);
      continue;
    }
    if (std::size_t equals = word.find('='); equals != std::string::npos) {
      value = word.substr(equals + 1);
      word = word.substr(0, equals);
    } else if (i + 1 < given.size()) {
      value = given[++i];
    }
    constexpr long long kHighest = 1 << 16;
    auto number = [&](long long low) -> Result<long long> {
      auto n = parse_int(value);
      if (n && *n >= low && *n <= kHighest) return *n;
      return fail(Code::kInvalid, word + ": must be a whole number, not negative; got '" + value + "'");
    };
    if (word == "--node")
      a.node = value;
    else if (word == "--state-dir")
      a.state_dir = value;
    else if (word == "--kernel-root")
      a.kernel_root = value;
    else if (word == "--gpu")
      a.gpu = TRY(gpu_index(value));
    else if (word == "--gi")
      a.gi = static_cast<std::uint32_t>(TRY(number(0)));
    else if (word == "--ci")
      a.ci = static_cast<std::uint32_t>(TRY(number(0)));
    else
      return fail(Code::kInvalid, "'" + word + "': unknown option" + did_you_mean(word, options));
  }
  if (a.node.empty() == a.kernel_root.empty()) return fail(Code::kInvalid, "--node is needed");
  return a;
}

Result<> run(const Arguments& a) {
  Fault fault = TRY(parse_fault(a.words));
  fault.gi = a.gi;
  fault.ci = a.ci;
  fs::path root = a.kernel_root.empty() ? TRY(find_node(a.node, a.state_dir)) : fs::path(a.kernel_root);
  return apply_fault(root, a.gpu, fault);
}

}  // namespace

int sim_fault_main(int argc, char** argv) {
  std::vector<std::string> given;
  for (int i = 1; i < argc; ++i) given.emplace_back(argv[i]);
  auto arguments = parse(given);
  if (arguments && arguments->help) {
    std::fputs(kUsage, stdout);
    return 0;
  }
  auto done = arguments ? run(*arguments) : Result<>(std::unexpected(arguments.error()));
  if (done) return 0;
  std::fprintf(stderr, "gpuctl sim fault: %s\n", done.error().text().c_str());
  // What the words say is explained by the words that there are; a board that refuses needs no lesson.
  if (!arguments) std::fputs(kUsage, stderr);
  return done.error().code() == Code::kInvalid ? 2 : 1;
}

}  // namespace gpuop::sim
