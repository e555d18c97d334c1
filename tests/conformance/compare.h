// Two control planes' answers beside each other, and the list of differences that are kept (differences.txt).
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace gpuop::conformance {

struct Difference {
  std::string scenario;  // "area/name"
  std::string at;        // "3 body.metadata.labels": the step's number and the place in its answer
  std::string real, ours;
};

std::vector<Difference> compare(const std::string& scenario, const Json& real, const Json& ours);

// A difference that is known and kept.
struct Kept {
  int line = 0;
  std::string area, scenario;   // of the scenarios; `scenario` may hold "*"
  std::vector<std::string> at;  // likewise
  std::string what, why;

  bool covers(const Difference& difference) const;
};

// Blocks of "scenario: …", "at: …" (several), "what: …", "why: …", parted by empty lines.
Result<std::vector<Kept>> parse_kept(std::string_view text, const std::filesystem::path& file);

// "*" stands for any text, everything else for itself.
bool glob_matches(std::string_view pattern, std::string_view text);

// The tables of docs/simulator.md: same and different by area, then the kept ones with their reasons.
struct AreaCount {
  std::string area;
  int same = 0, different = 0;
};
std::string conformance_tables(const std::vector<std::string>& scenarios, const std::vector<Kept>& kept);

}  // namespace gpuop::conformance
