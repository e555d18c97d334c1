// What stands behind the dots of an instruction.
#include <algorithm>
#include <string>

#include "sim/cuda/ptx_ops.h"

namespace gpuop::sim::ptx {

namespace {

bool has_word(std::string_view words, std::string_view wanted) {
  std::size_t at = 0;
  while (at < words.size()) {
    std::size_t end = std::min(words.find(' ', at), words.size());
    if (words.substr(at, end - at) == wanted) return true;
    at = end + 1;
  }
  return false;
}

void choose_way(const OpForm& form, const std::string& m, Instruction& i) {
  if (form.op == Op::kMul24 || form.op == Op::kMad24) {
    if (m == "hi") i.flags |= kHi;
    return;
  }
  if (form.op == Op::kShf && (m == "wrap" || m == "clamp")) {
    i.clamps = m == "clamp";
    return;
  }
  constexpr std::pair<std::string_view, Way> kWays[] = {
      {"l", Way::kLeft},        {"r", Way::kRight},
      {"f4e", Way::kF4e},       {"b4e", Way::kB4e},
      {"rc8", Way::kRc8},       {"ecl", Way::kEcl},
      {"ecr", Way::kEcr},       {"rc16", Way::kRc16},
      {"finite", Way::kFinite}, {"infinite", Way::kInfinite},
      {"number", Way::kNumber}, {"notanumber", Way::kNotANumber},
      {"normal", Way::kNormal}, {"subnormal", Way::kSubnormal},
      {"up", Way::kUp},         {"down", Way::kDown},
      {"bfly", Way::kBfly},     {"idx", Way::kIdx},
      {"any", Way::kAny},       {"all", Way::kAll},
      {"uni", Way::kUni},       {"ballot", Way::kBallot}};
  if (form.op != Op::kShf && form.op != Op::kPrmt && form.op != Op::kTestp && form.op != Op::kShfl &&
      form.op != Op::kVote)
    return;
  for (const auto& [n, way] : kWays) {
    if (n == m) i.way = way;
  }
}

}  // namespace

std::string apply_modifier(const OpForm& form, const std::string& m, Instruction& i, int* types) {
  if (Type t = type_named(m); t != Type::kNone) {
    if (form.kinds.find(kind_of(t)) == std::string_view::npos) {
      return "Unexpected instruction types specified for '" + std::string(form.name) + "': '." + m + "'";
    }
    (*types == 0 ? i.type : i.type2) = t;
    ++*types;
    return {};
  }
  if (!has_word(form.modifiers, m)) {
    return "Illegal modifier '." + m + "' for instruction '" + std::string(form.name) + "'";
  }
  constexpr std::pair<std::string_view, std::uint32_t> kFlags[] = {{"wide", kWide},
                                                                   {"to", kTo},
                                                                   {"sat", kSat},
                                                                   {"cc", kCarry},
                                                                   {"warp", kWarp},
                                                                   {"ftz", kFtz},
                                                                   {"rn", kRn},
                                                                   {"rz", kRz},
                                                                   {"rm", kRm},
                                                                   {"rp", kRp},
                                                                   {"rni", kRn | kInteger},
                                                                   {"rzi", kRz | kInteger},
                                                                   {"rmi", kRm | kInteger},
                                                                   {"rpi", kRp | kInteger}};
  for (const auto& [n, flag] : kFlags) {
    if (n == m) i.flags |= flag;
  }
  if (form.op == Op::kMul || form.op == Op::kMad) {
    if (m == "lo") i.flags |= kLo;
    if (m == "hi") i.flags |= kHi;
  }
  constexpr std::pair<std::string_view, Space> kSpaces[] = {{"global", Space::kGlobal},
                                                            {"shared", Space::kShared},
                                                            {"local", Space::kLocal},
                                                            {"param", Space::kParam},
                                                            {"const", Space::kConst}};
  for (const auto& [n, space] : kSpaces) {
    if (n == m) i.space = space;
  }
  choose_way(form, m, i);
  if (m == "v2") i.vector = 2;
  if (m == "v4") i.vector = 4;
  if (form.op == Op::kSetp) {
    constexpr std::string_view kNames[] = {"",   "eq",  "ne",  "lt",  "le",  "gt",  "ge",  "lo",  "ls", "hi",
                                           "hs", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"};
    for (std::size_t k = 1; k < std::size(kNames); ++k) {
      if (kNames[k] == m) i.compare = static_cast<Compare>(k);
    }
    if (m == "and") i.combine = Combine::kAnd;
    if (m == "or") i.combine = Combine::kOr;
    if (m == "xor") i.combine = Combine::kXor;
  }
  if (form.op == Op::kAtom || form.op == Op::kRed || form.op == Op::kRedux) {
    constexpr std::string_view kNames[] = {"",    "add", "min", "max", "exch", "cas",
                                           "and", "or",  "xor", "inc", "dec"};
    for (std::size_t k = 1; k < std::size(kNames); ++k) {
      if (kNames[k] == m) i.atomic = static_cast<Atomic>(k);
    }
  }
  return {};
}

}  // namespace gpuop::sim::ptx
