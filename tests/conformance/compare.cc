#include "compare.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/text.h"

namespace gpuop::conformance {

namespace {

std::string shown(const Json* value) {
  if (value == nullptr) return "(absent)";
  std::string text = to_canonical_text(*value);
  constexpr std::size_t kLongest = 1500;
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "…";
  return text;
}

class Walk {
 public:
  Walk(std::string scenario, std::vector<Difference>& out) : scenario_(std::move(scenario)), out_(out) {}

  void values(const std::string& at, const Json* real, const Json* ours) {
    if (real != nullptr && ours != nullptr && *real == *ours) return;
    if (real != nullptr && ours != nullptr && real->is_object() && ours->is_object())
      return maps(at, real->get_object(), ours->get_object());
    if (real != nullptr && ours != nullptr && real->is_array() && ours->is_array() &&
        real->get_array().size() == ours->get_array().size())
      return lists(at, real->get_array(), ours->get_array());
    out_.push_back({scenario_, at, shown(real), shown(ours)});
  }

 private:
  void maps(const std::string& at, const JsonObject& real, const JsonObject& ours) {
    std::set<std::string> keys;
    for (const auto& [key, value] : real) keys.insert(std::string(key));
    for (const auto& [key, value] : ours) keys.insert(std::string(key));
    for (const std::string& key : keys) {
      std::string below = at.ends_with(" ") ? at + key : at + "." + key;
      values(below, real.if_contains(key), ours.if_contains(key));
    }
  }
  void lists(const std::string& at, const JsonArray& real, const JsonArray& ours) {
    for (std::size_t i = 0; i < real.size(); ++i)
      values(at + "[" + std::to_string(i) + "]", &real[i], &ours[i]);
  }

  std::string scenario_;
  std::vector<Difference>& out_;
};

}  // namespace

std::vector<Difference> compare(const std::string& scenario, const Json& real, const Json& ours) {
  std::vector<Difference> found;
  const JsonArray& left = real.get_array();
  const JsonArray& right = ours.get_array();
  Walk walk(scenario, found);
  for (std::size_t i = 0; i < std::max(left.size(), right.size()); ++i)
    walk.values(std::to_string(i + 1) + " ", i < left.size() ? &left[i] : nullptr,
                i < right.size() ? &right[i] : nullptr);
  return found;
}

bool glob_matches(std::string_view pattern, std::string_view text) {
  std::size_t star = pattern.find('*');
  if (star == std::string_view::npos) return pattern == text;
  if (!text.starts_with(pattern.substr(0, star))) return false;
  std::string_view rest = pattern.substr(star + 1);
  for (std::size_t from = star; from <= text.size(); ++from)
    if (glob_matches(rest, text.substr(from))) return true;
  return false;
}

bool Kept::covers(const Difference& difference) const {
  return glob_matches(scenario, difference.scenario) &&
         std::any_of(at.begin(), at.end(),
                     [&](const std::string& place) { return glob_matches(place, difference.at); });
}

Result<std::vector<Kept>> parse_kept(std::string_view text, const std::filesystem::path& file) {
  std::vector<Kept> all;
  Kept block;
  int number = 0;
  auto wrong = [&](const std::string& why) {
    return fail(Code::kInvalid, "read '" + file.string() + "': line " + std::to_string(number) + ": " + why);
  };
  auto finish = [&]() -> Result<> {
    if (block.line == 0) return {};
    if (block.scenario.empty() || block.at.empty() || block.what.empty() || block.why.empty())
      return wrong("a block has scenario, at, what and why");
    std::size_t slash = block.scenario.find('/');
    if (slash == std::string::npos) return wrong("a scenario is AREA/NAME");
    block.area = block.scenario.substr(0, slash);
    all.push_back(std::exchange(block, {}));
    return {};
  };
  std::vector<std::string> lines = split(text, '\n');
  lines.emplace_back();
  for (const std::string& line : lines) {
    ++number;
    if (line.starts_with("#")) continue;
    if (trim(line).empty()) {
      TRY(finish());
      continue;
    }
    std::size_t colon = line.find(": ");
    if (colon == std::string::npos) return wrong("not 'word: text'");
    std::string word = line.substr(0, colon);
    std::string rest(trim(line.substr(colon + 2)));
    if (block.line == 0) block.line = number;
    if (word == "scenario") {
      block.scenario = rest;
    } else if (word == "at") {
      block.at.push_back(rest);
    } else if (word == "what") {
      block.what = rest;
    } else if (word == "why") {
      block.why = rest;
    } else {
      return wrong("no word '" + word + "'; there are scenario, at, what, why");
    }
  }
  return all;
}

std::string conformance_tables(const std::vector<std::string>& scenarios, const std::vector<Kept>& kept) {
  std::map<std::string, AreaCount> areas;
  int same = 0;
  for (const std::string& id : scenarios) {
    AreaCount& count = areas[id.substr(0, id.find('/'))];
    bool differs = std::any_of(kept.begin(), kept.end(),
                               [&](const Kept& one) { return glob_matches(one.scenario, id); });
    ++(differs ? count.different : count.same);
    same += differs ? 0 : 1;
  }
  std::string out = "| area | scenarios | same | different |\n|---|---|---|---|\n";
  for (const auto& [area, count] : areas)
    out += "| " + area + " | " + std::to_string(count.same + count.different) + " | " +
           std::to_string(count.same) + " | " + std::to_string(count.different) + " |\n";
  out += "| all | " + std::to_string(scenarios.size()) + " | " + std::to_string(same) + " | " +
         std::to_string(static_cast<int>(scenarios.size()) - same) + " |\n";
  out += "\n| scenarios | what differs | why no GPU stack can notice |\n|---|---|---|\n";
  // Blocks of one difference stand in one line.
  std::vector<std::pair<std::string, std::pair<std::string, std::string>>> rows;
  for (const Kept& one : kept) {
    auto found = std::find_if(rows.begin(), rows.end(),
                              [&](const auto& row) { return row.second == std::pair(one.what, one.why); });
    if (found == rows.end()) {
      rows.emplace_back(one.scenario, std::pair(one.what, one.why));
    } else {
      found->first += ", " + one.scenario;
    }
  }
  for (const auto& [where, texts] : rows)
    out += "| " + replace_all(where, "*", "\\*") + " | " + texts.first + " | " + texts.second + " |\n";
  return out;
}

}  // namespace gpuop::conformance
