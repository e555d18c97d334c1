#include "sim/faults.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>

#include "base/json.h"
#include "base/text.h"
#include "sim/modules.h"
#include "sim/state/reset.h"
#include "sim/state/telemetry.h"

namespace gpuop::sim {

namespace {

constexpr std::uint64_t kSingleBit = 0x1, kDoubleBit = 0x2, kXidEvent = 0x8;

constexpr std::pair<const char*, int> kCodes[] = {{"SUCCESS", 0},
                                                  {"UNINITIALIZED", 1},
                                                  {"INVALID_ARGUMENT", 2},
                                                  {"NOT_SUPPORTED", 3},
                                                  {"NO_PERMISSION", 4},
                                                  {"ALREADY_INITIALIZED", 5},
                                                  {"NOT_FOUND", 6},
                                                  {"INSUFFICIENT_SIZE", 7},
                                                  {"INSUFFICIENT_POWER", 8},
                                                  {"DRIVER_NOT_LOADED", 9},
                                                  {"TIMEOUT", 10},
                                                  {"IRQ_ISSUE", 11},
                                                  {"LIBRARY_NOT_FOUND", 12},
                                                  {"FUNCTION_NOT_FOUND", 13},
                                                  {"CORRUPTED_INFOROM", 14},
                                                  {"GPU_IS_LOST", 15},
                                                  {"RESET_REQUIRED", 16},
                                                  {"OPERATING_SYSTEM", 17},
                                                  {"LIB_RM_VERSION_MISMATCH", 18},
                                                  {"IN_USE", 19},
                                                  {"MEMORY", 20},
                                                  {"NO_DATA", 21},
                                                  {"VGPU_ECC_NOT_SUPPORTED", 22},
                                                  {"INSUFFICIENT_RESOURCES", 23},
                                                  {"FREQ_NOT_SUPPORTED", 24},
                                                  {"ARGUMENT_VERSION_MISMATCH", 25},
                                                  {"DEPRECATED", 26},
                                                  {"NOT_READY", 27},
                                                  {"GPU_NOT_FOUND", 28},
                                                  {"INVALID_STATE", 29},
                                                  {"RESET_TYPE_NOT_SUPPORTED", 30},
                                                  {"UNKNOWN", 999}};

// What the driver says must be done after an XID (field 230): 0 nothing, 1 reset, 2 reboot.
std::uint32_t recovery_after(std::uint64_t xid) {
  switch (xid) {
    case 79:
      return 2;
    case 48:
    case 62:
    case 64:
    case 74:
    case 95:
    case 109:
    case 119:
    case 120:
    case 140:
    case 143:
      return 1;
    default:
      return 0;
  }
}

void raise_xid(State& s, std::uint32_t gpu, std::uint64_t xid, std::uint32_t gi = kNone,
               std::uint32_t ci = kNone) {
  Live& l = s.gpus[gpu].live;
  l.last_xid = xid;
  push_event(s, gpu, kXidEvent, xid, gi, ci);
  std::uint32_t action = std::max(l.recovery_action, recovery_after(xid));
  if (action != l.recovery_action) push_event(s, gpu, kRecoveryActionEvent, action);
  l.recovery_action = action;
}

// Conditions that last until a reset, or until another is set.
void apply_condition(State& s, std::uint32_t gpu, const Fault& f) {
  Gpu& g = s.gpus[gpu];
  Live& l = g.live;
  auto count = static_cast<std::uint32_t>(f.number);
  switch (f.kind) {
    case Fault::Kind::kThrottle:
      settle_load(g, now_us());
      l.throttle = f.number;
      break;
    case Fault::Kind::kFabric:
      g.board.fabric_state = count;
      g.board.fabric_status = f.after ? 999 : 0;  // UNKNOWN
      l.fabric_health_mask = 0;
      break;
    case Fault::Kind::kFabricSick:
      // Degraded bandwidth, and on later boards an unhealthy route: "true" is 1.
      l.fabric_health_mask = g.board.cc_major >= 10 ? 0x199 : 0x1;
      break;
    case Fault::Kind::kRowRemap:
      l.remapped_uncorrectable += count;
      break;
    case Fault::Kind::kRemapPending:
      l.remap_pending = 1;
      l.recovery_action = std::max(l.recovery_action, 1u);
      break;
    case Fault::Kind::kRemapFailed:
      l.remap_failed = 1;
      raise_xid(s, gpu, 64);
      break;
    case Fault::Kind::kResetRequired:
      l.recovery_action = std::max(l.recovery_action, 1u);
      l.lost = 2;
      break;
    case Fault::Kind::kLinkErrors:
      l.nvlink_replay += count;
      l.nvlink_recovery += count;
      l.nvlink_crc_flit += count;
      l.nvlink_crc_data += count;
      break;
    default:
      break;  // of the node, not of a board
  }
}

void apply_to(State& s, std::uint32_t gpu, const Fault& f) {
  Gpu& g = s.gpus[gpu];
  Live& l = g.live;
  auto count = static_cast<std::uint32_t>(f.number);
  switch (f.kind) {
    case Fault::Kind::kXid:
      raise_xid(s, gpu, f.number, f.gi, f.ci);
      break;
    case Fault::Kind::kEccSingle:
      l.ecc_sbe_volatile += f.number;
      l.ecc_sbe_aggregate += f.number;
      push_event(s, gpu, kSingleBit, 0);
      break;
    case Fault::Kind::kEccDouble:
      l.ecc_dbe_volatile += f.number;
      l.ecc_dbe_aggregate += f.number;
      if (g.board.row_remap_supported) l.remap_pending = 1;
      if (g.board.retired_pages_supported) l.retired_pending = 1, l.retired_dbe += count;
      push_event(s, gpu, kDoubleBit, 0);
      raise_xid(s, gpu, 48);
      break;
    case Fault::Kind::kLost:
      raise_xid(s, gpu, 79);
      l.lost = 1;
      break;
    case Fault::Kind::kRecover:
      l.lost = 0;
      reset_board(s, gpu);
      break;
    case Fault::Kind::kLoad:
      settle_load(g, now_us());
      l.load_percent = count;
      break;
    case Fault::Kind::kHeat:
      settle_load(g, now_us());
      l.temperature_offset = count;
      break;
    case Fault::Kind::kLinkDown:
      l.nvlink_down_mask |= 1u << count;
      l.nvlink_recovery += 1;
      raise_xid(s, gpu, 74);
      break;
    case Fault::Kind::kPcieReplay:
      l.pcie_replays += count;
      break;
    default:
      apply_condition(s, gpu, f);
      break;
  }
}

// Whether the fault makes sense on this board; the reason when not.
std::string refusal(const State& s, std::uint32_t gpu, const Fault& f) {
  const Board& b = s.gpus[gpu].board;
  if ((f.kind == Fault::Kind::kEccSingle || f.kind == Fault::Kind::kEccDouble) && !b.ecc_supported)
    return "has no ECC";
  if (f.kind == Fault::Kind::kLinkDown && f.number >= b.nvlink_count) {
    return "has " + std::to_string(b.nvlink_count) + " NVLinks";
  }
  bool fabric = f.kind == Fault::Kind::kFabric || f.kind == Fault::Kind::kFabricSick;
  if (fabric && !b.fabric_supported) return "takes part in no NVLink fabric";
  bool rows = f.kind == Fault::Kind::kRowRemap || f.kind == Fault::Kind::kRemapPending ||
              f.kind == Fault::Kind::kRemapFailed;
  if (rows && !b.row_remap_supported) return "does not remap rows";
  if (f.kind == Fault::Kind::kLinkErrors && b.nvlink_count == 0) return "has no NVLinks";
  if (f.kind == Fault::Kind::kLoad && f.number > 100) return "cannot have more load than 100 percent";
  if (f.kind == Fault::Kind::kHeat && f.number > 100) return "cannot be that hot";
  return "";
}

void add_fail(State& s, const Fault& f) {
  std::uint32_t at = 0;
  while (at < s.forced_count && f.symbol != s.forced[at].symbol) ++at;
  if (f.number == 0) {  // succeeds again
    if (at < s.forced_count) s.forced[at] = s.forced[--s.forced_count];
    return;
  }
  if (at == s.forced_count) ++s.forced_count;
  s.forced[at] = Forced{};
  std::snprintf(s.forced[at].symbol, sizeof s.forced[at].symbol, "%s", f.symbol.c_str());
  s.forced[at].code = static_cast<std::int32_t>(f.number);
  s.forced[at].after = f.after;
}

// The functions that the fake library has, from its file in the node; empty when it is not there.
std::vector<std::string> known_symbols(const fs::path& kernel_root) {
  std::vector<std::string> out;
  auto file = read_file(kernel_root.parent_path() / "usr/lib/gpuop-sim/lib/libnvidia-ml.so");
  if (!file) return out;
  for (std::size_t at = file->find("\0nvml", 0, 5); at != std::string::npos;
       at = file->find("\0nvml", at + 1, 5)) {
    std::string name = file->c_str() + at + 1;
    if (name.size() < 64) out.push_back(std::move(name));
  }
  return out;
}

Result<std::uint64_t> number_of(const std::string& word, const std::string& what) {
  auto n = parse_int(word);
  if (n && *n >= 0) return static_cast<std::uint64_t>(*n);
  return fail(Code::kInvalid, "fault: " + what + ": must be a whole number; got '" + word + "'");
}

}  // namespace

Result<int> nvml_code(std::string_view given) {
  if (auto n = parse_int(given)) {
    for (const auto& [name, code] : kCodes) {
      if (code == *n) return code;
    }
  }
  std::string_view text = given.starts_with("NVML_ERROR_") ? given.substr(11) : given;
  std::vector<std::string> names;
  for (const auto& [name, code] : kCodes) {
    if (text == name) return code;
    names.emplace_back(name);
  }
  return fail(Code::kInvalid,
              "fault: NVML code '" + std::string(given) + "': no such code" + did_you_mean(text, names));
}

namespace {

// Faults whose one argument is a word of a list, or a count where `counted` is.
struct WordFault {
  const char* fault;
  const char* word;
  Fault::Kind kind;
  std::uint64_t number;
  std::uint32_t after;
};
constexpr WordFault kWordFaults[] = {
    {"throttle", "power", Fault::Kind::kThrottle, kSoftwarePower, 0},
    {"throttle", "heat", Fault::Kind::kThrottle, kSoftwareHeat | kHardwareHeat, 0},
    {"throttle", "brake", Fault::Kind::kThrottle, kPowerBrake, 0},
    {"throttle", "none", Fault::Kind::kThrottle, 0, 0},
    {"fabric", "not-started", Fault::Kind::kFabric, 1, 0},
    {"fabric", "in-progress", Fault::Kind::kFabric, 2, 0},
    {"fabric", "completed", Fault::Kind::kFabric, 3, 0},
    {"fabric", "failed", Fault::Kind::kFabric, 3, 1},
    {"fabric", "unhealthy", Fault::Kind::kFabricSick, 0, 0},
    {"row-remap", "pending", Fault::Kind::kRemapPending, 0, 0},
    {"row-remap", "failed", Fault::Kind::kRemapFailed, 0, 0},
};

bool is_word_fault(const std::string& name) {
  return std::any_of(std::begin(kWordFaults), std::end(kWordFaults),
                     [&](const WordFault& w) { return name == w.fault; });
}

Result<Fault> parse_word_fault(const std::vector<std::string>& words) {
  std::vector<std::string> choices;
  std::string given = words.size() == 2 ? words[1] : "";
  Fault f;
  for (const WordFault& w : kWordFaults) {
    if (words[0] != w.fault) continue;
    choices.emplace_back(w.word);
    if (given != w.word) continue;
    f.kind = w.kind;
    f.number = w.number;
    f.after = w.after;
    return f;
  }
  if (words[0] == "row-remap") {
    auto count = parse_int(given);
    if (count && *count > 0 && *count <= 512) {
      f.kind = Fault::Kind::kRowRemap;
      f.number = static_cast<std::uint64_t>(*count);
      return f;
    }
    choices.emplace_back("a COUNT to 512");
  }
  return fail(Code::kInvalid,
              "fault '" + words[0] + "': write " + words[0] + " " + join(choices, "|") +
                  (given.empty() ? "" : "; got '" + given + "'" + did_you_mean(given, choices)));
}

}  // namespace

Result<Fault> parse_fault(const std::vector<std::string>& words) {
  struct Form {
    Fault::Kind kind;
    std::size_t numbers;  // that must follow
  };
  static const std::map<std::string, Form> forms = {{"xid", {Fault::Kind::kXid, 1}},
                                                    {"lost", {Fault::Kind::kLost, 0}},
                                                    {"recover", {Fault::Kind::kRecover, 0}},
                                                    {"load", {Fault::Kind::kLoad, 1}},
                                                    {"heat", {Fault::Kind::kHeat, 1}},
                                                    {"link-down", {Fault::Kind::kLinkDown, 1}},
                                                    {"pcie-replay", {Fault::Kind::kPcieReplay, 1}},
                                                    {"clear-fails", {Fault::Kind::kClearFails, 0}},
                                                    {"ecc", {Fault::Kind::kEccSingle, 0}},
                                                    {"fail", {Fault::Kind::kFail, 0}},
                                                    {"reset-required", {Fault::Kind::kResetRequired, 0}},
                                                    {"link-errors", {Fault::Kind::kLinkErrors, 1}},
                                                    {"throttle", {Fault::Kind::kThrottle, 0}},
                                                    {"fabric", {Fault::Kind::kFabric, 0}},
                                                    {"row-remap", {Fault::Kind::kRowRemap, 0}}};
  std::vector<std::string> names;
  names.reserve(forms.size());
  for (const auto& [name, form] : forms) names.push_back(name);
  if (words.empty()) return fail(Code::kInvalid, "fault: none given; there are " + join(names, ", "));
  auto form = forms.find(words[0]);
  if (form == forms.end()) {
    return fail(Code::kInvalid, "fault '" + words[0] + "': no such fault; there are " + join(names, ", ") +
                                    did_you_mean(words[0], names));
  }
  if (is_word_fault(words[0])) return parse_word_fault(words);
  Fault f;
  f.kind = form->second.kind;
  if (words[0] == "ecc") {
    const std::vector<std::string> kinds = {"single", "double"};
    if (words.size() < 2 || words.size() > 3 || (words[1] != "single" && words[1] != "double")) {
      return fail(Code::kInvalid, "fault 'ecc': write ecc single|double [COUNT]" +
                                      (words.size() > 1 ? did_you_mean(words[1], kinds) : ""));
    }
    f.kind = words[1] == "double" ? Fault::Kind::kEccDouble : Fault::Kind::kEccSingle;
    f.number = words.size() > 2 ? TRY(number_of(words[2], "COUNT")) : 1;
    return f;
  }
  if (words[0] == "fail") {
    if (words.size() < 3 || words.size() > 4)
      return fail(Code::kInvalid, "fault 'fail': write fail SYMBOL CODE [AFTER]");
    if (!words[1].starts_with("nvml") || words[1].size() >= 64) {
      return fail(Code::kInvalid, "fault 'fail': '" + words[1] + "': not the name of an NVML function");
    }
    f.symbol = words[1];
    f.number = static_cast<std::uint64_t>(TRY(nvml_code(words[2])));
    if (words.size() > 3) f.after = static_cast<std::uint32_t>(TRY(number_of(words[3], "AFTER")));
    return f;
  }
  if (words.size() != 1 + form->second.numbers) {
    return fail(Code::kInvalid,
                "fault '" + words[0] + "': takes " + std::to_string(form->second.numbers) + " number(s)");
  }
  if (form->second.numbers) f.number = TRY(number_of(words[1], words[0]));
  if (f.kind == Fault::Kind::kXid && f.number > 1000)
    return fail(Code::kInvalid, "fault 'xid': must be 0 to 1000");
  return f;
}

Result<> apply_fault(const fs::path& kernel_root, int gpu, const Fault& fault) {
  fs::path path = hardware_state_path(kernel_root);
  StateFile file;
  switch (file.open(path.string())) {
    case StateFault::kNone:
      break;
    case StateFault::kMissing:
      return fail(Code::kNotFound, "apply fault: '" + path.string() + "': no simulated hardware there");
    case StateFault::kPermission:
      return fail(Code::kPermission, "apply fault: '" + path.string() + "': not allowed");
    default:
      return fail(Code::kIo, "apply fault: '" + path.string() + "': not a hardware state, or a damaged one");
  }
  const State& now = *file.read();
  if (now.gpu_count == 0 && fault.kind != Fault::Kind::kFail && fault.kind != Fault::Kind::kClearFails)
    return fail(Code::kInvalid, "apply fault: the node has no GPU");
  if (gpu < -1 || (gpu >= static_cast<int>(now.gpu_count) && now.gpu_count > 0)) {
    return fail(Code::kInvalid, "apply fault: GPU " + std::to_string(gpu) + ": the node has " +
                                    std::to_string(now.gpu_count) + " (0 to " +
                                    std::to_string(now.gpu_count - 1) + ")");
  }
  if (fault.kind == Fault::Kind::kFail) {
    auto symbols = known_symbols(kernel_root);
    if (!symbols.empty() && std::find(symbols.begin(), symbols.end(), fault.symbol) == symbols.end()) {
      return fail(Code::kNotFound, "apply fault: '" + fault.symbol + "': the library has no such function" +
                                       did_you_mean(fault.symbol, symbols));
    }
    if (now.forced_count >= kMaxForced)
      return fail(Code::kNoSpace, "apply fault: too many failing calls; clear-fails first");
  }
  std::uint32_t first = gpu < 0 ? 0 : static_cast<std::uint32_t>(gpu);
  std::uint32_t last = gpu < 0 ? now.gpu_count : std::min(first + 1, now.gpu_count);
  for (std::uint32_t g = first; g < last; ++g) {
    if (std::string why = refusal(now, g, fault); !why.empty()) {
      return fail(Code::kInvalid,
                  "apply fault: GPU " + std::to_string(g) + " (" + now.gpus[g].board.name + "): " + why);
    }
  }
  int code = file.update([&](State& s) {
    if (fault.kind == Fault::Kind::kFail) add_fail(s, fault);
    if (fault.kind == Fault::Kind::kClearFails) s.forced_count = 0;
    for (std::uint32_t g = first; g < last; ++g) apply_to(s, g, fault);
    return 0;
  });
  if (code) return fail(errno_error("apply fault: write '" + path.string() + "'", code));
  return {};
}

namespace {

// Nodes by name, through the root of a process that lives in one.
std::map<std::string, std::vector<FoundNode>> nodes_on_this_machine() {
  std::map<std::string, std::vector<FoundNode>> out;
  std::vector<std::pair<dev_t, ino_t>> seen;
  auto processes = list_dir("/proc");
  if (!processes) return out;
  for (const auto& pid : *processes) {
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    fs::path root = fs::path("/proc") / pid / "root";
    struct stat st{};
    if (::stat((root / ".gpuop-kernel/sim/state").c_str(), &st) != 0) continue;
    std::pair<dev_t, ino_t> id{st.st_dev, st.st_ino};
    if (std::find(seen.begin(), seen.end(), id) != seen.end()) continue;
    // A container has the tree too, but not the node's own name file.
    auto name = read_file(root / "etc/hostname");
    auto config = read_file(root / "etc/gpuop-sim/node.json");
    if (!name || !config) continue;
    seen.push_back(id);
    auto json = parse_json(*config);
    const fs::path folder = json ? fs::path(str(get_string(*json, {"folder"}))) : fs::path();
    out[std::string(trim(*name))].push_back({folder.parent_path().parent_path(), root / ".gpuop-kernel"});
  }
  return out;
}

}  // namespace

std::vector<std::string> running_nodes() {
  std::vector<std::string> names;
  for (const auto& [name, trees] : nodes_on_this_machine()) names.push_back(name);
  return names;
}

Result<fs::path> choose_node(const std::string& node, const fs::path& state_dir,
                             const std::map<std::string, std::vector<FoundNode>>& running) {
  const fs::path wanted = state_dir.empty() ? fs::path() : fs::absolute(state_dir).lexically_normal();
  const auto same = [&wanted](const FoundNode& found) {
    return wanted.empty() || (found.state_dir / "") == (wanted / "");
  };
  std::vector<std::string> names;
  std::vector<FoundNode> fit;
  for (const auto& [name, all] : running) {
    for (const FoundNode& found : all) {
      if (!same(found)) continue;
      if (names.empty() || names.back() != name) names.push_back(name);
      if (name == node) fit.push_back(found);
    }
  }
  if (fit.size() == 1) return fit[0].kernel_tree;
  const std::string doing = "find node '" + node + "': ";
  if (fit.size() > 1) {
    std::vector<std::string> dirs;
    dirs.reserve(fit.size());
    for (const FoundNode& found : fit) dirs.push_back("'" + found.state_dir.string() + "'");
    std::sort(dirs.begin(), dirs.end());
    return fail(Code::kConflict, doing + "the fleets in " + join(dirs, " and ") +
                                     " have one of this name: choose with --state-dir");
  }
  if (!names.empty())
    return fail(Code::kNotFound, doing + "there are " + join(names, ", ") + did_you_mean(node, names));
  return fail(Code::kNotFound, doing +
                                   (wanted.empty() ? std::string("no simulated node runs on this machine")
                                                   : "no fleet runs in '" + wanted.string() + "'") +
                                   " (or root is needed to see it)");
}

Result<fs::path> find_node(const std::string& node, const fs::path& state_dir) {
  return choose_node(node, state_dir, nodes_on_this_machine());
}

}  // namespace gpuop::sim
