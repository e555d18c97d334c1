// The collectors file: which families the page has (telemetry.md §2.1).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "telemetry/fields.h"

namespace gpuop::telemetry {

enum class Kind { kGauge, kCounter, kUntyped, kLabel };

struct Counter {
  std::string name;  // as written: the family's or label's name
  int id = 0;
  Kind kind = Kind::kGauge;
  std::string help;
  int line = 0;  // 1-based; 0 where it came from no line
};

struct CounterSet {
  std::vector<Counter> families;
  std::vector<Counter> labels;
  std::vector<std::string> warnings;  // dropped duplicates

  bool has(int id) const;        // as a family
  std::vector<int> ids() const;  // of families and labels, each once, sorted
};

// `file` is for messages. Errors name the file and the line: a wrong number of columns, an unknown name (with
// near ones) or type, bad quoting, no row at all.
Result<CounterSet> parse_counters(std::string_view text, std::string_view file);

// One row, for sources that are not lines.
Result<Counter> make_counter(std::string_view name, std::string_view type, std::string_view help);
// Puts a counter in its list; a name that is there already stays as it was, with a warning.
void add_counter(CounterSet& set, Counter counter);

// Takes out the profiling families where no GPU offers them. Answers one warning for each.
std::vector<std::string> drop_profiling(CounterSet& set);

std::string_view kind_name(Kind kind);  // as TYPE lines have it

}  // namespace gpuop::telemetry
