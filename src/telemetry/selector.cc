#include "telemetry/selector.h"

#include <algorithm>
#include <set>

#include "base/text.h"

namespace gpuop::telemetry {
namespace {

constexpr std::size_t kMaxIndices = 1024;

Result<unsigned> parse_number(std::string_view text) {
  auto number = parse_int(text);
  if (!number || *number < 0 || *number > 0xFFFF)
    return fail(Code::kInvalid, "'" + std::string(text) + "' is no index");
  return static_cast<unsigned>(*number);
}

Result<std::vector<unsigned>> parse_list(std::string_view text) {
  std::vector<unsigned> indices;
  for (const std::string& item : split(text, ',')) {
    if (item.empty()) return fail(Code::kInvalid, "an index is empty");
    auto dash = item.find('-');
    unsigned first = TRY(parse_number(item.substr(0, dash)));
    unsigned last = dash == std::string::npos ? first : TRY(parse_number(item.substr(dash + 1)));
    if (first > last) return fail(Code::kInvalid, "range '" + item + "': its start exceeds its end");
    if (indices.size() + (last - first) + 1 > kMaxIndices)
      return fail(Code::kInvalid, "more than " + std::to_string(kMaxIndices) + " indices");
    for (unsigned i = first; i <= last; ++i) indices.push_back(i);
  }
  std::ranges::sort(indices);
  indices.erase(std::ranges::unique(indices).begin(), indices.end());
  return indices;
}

Result<> parse_part(std::string_view part, Selector& selector) {
  if (part.empty()) return fail(Code::kInvalid, "a part is empty");
  auto colon = part.find(':');
  std::string_view letter = part.substr(0, colon);
  if (letter == "f") {
    return fail(Code::kInvalid, colon == std::string_view::npos
                                    ? "flex ('f') cannot be combined with other parts"
                                    : "no range can be given with flex ('f')");
  }
  if (letter != "g" && letter != "i")
    return fail(Code::kInvalid, "'" + std::string(letter) + "' is none of f, g, i");
  auto& list = letter == "g" ? selector.majors : selector.minors;
  if (list) return fail(Code::kInvalid, "'" + std::string(letter) + "' is given twice");
  list.emplace();
  if (colon == std::string_view::npos) return {};
  std::string_view rest = part.substr(colon + 1);
  if (rest.find(':') != std::string_view::npos) return fail(Code::kInvalid, "more than one ':' in a part");
  list = TRY(parse_list(rest));
  return {};
}

}  // namespace

Result<Selector> parse_selector(std::string_view text) {
  Selector selector;
  if (text == "f") return selector;
  selector.flexible = false;
  for (const std::string& part : split(text, '+'))
    TRY_IN(parse_part(part, selector), "device selector '" + std::string(text) + "'");
  return selector;
}

Selection select(const Selector& selector, const std::vector<GpuFacts>& gpus) {
  std::set<EntityKey> chosen;
  Selection selection;
  if (selector.flexible) {
    for (const GpuFacts& gpu : gpus) {
      if (gpu.instances.empty()) chosen.insert({gpu.index, {}});
      for (const InstanceFacts& instance : gpu.instances) chosen.insert({gpu.index, instance.gi});
    }
  }
  if (selector.majors) {
    for (const GpuFacts& gpu : gpus) {
      if (selector.majors->empty() || std::ranges::binary_search(*selector.majors, gpu.index))
        chosen.insert({gpu.index, {}});
    }
    for (unsigned index : *selector.majors) {
      if (std::ranges::find(gpus, index, &GpuFacts::index) == gpus.end())
        selection.missing.push_back("couldn't find requested GPU ID '" + std::to_string(index) + "'");
    }
  }
  if (selector.minors) {
    std::set<unsigned> left(selector.minors->begin(), selector.minors->end());
    for (const GpuFacts& gpu : gpus) {
      for (const InstanceFacts& instance : gpu.instances) {
        if (!selector.minors->empty() && !std::ranges::binary_search(*selector.minors, instance.entity))
          continue;
        chosen.insert({gpu.index, instance.gi});
        left.erase(instance.entity);
      }
    }
    for (unsigned id : left)
      selection.missing.push_back("couldn't find requested GPU instance ID '" + std::to_string(id) + "'");
  }
  selection.entities.assign(chosen.begin(), chosen.end());
  return selection;
}

}  // namespace gpuop::telemetry
