#include "telemetry/counters.h"

#include <algorithm>
#include <set>

#include "base/text.h"

namespace gpuop::telemetry {
namespace {

Result<Kind> parse_kind(std::string_view type) {
  if (type == "gauge") return Kind::kGauge;
  if (type == "counter") return Kind::kCounter;
  if (type == "untyped") return Kind::kUntyped;
  if (type == "label") return Kind::kLabel;
  return fail(Code::kInvalid, "unsupported Prometheus metric type \"" + std::string(type) +
                                  "\"; supported types are counter, gauge, untyped, and label");
}

// The columns of a line, trimmed; a quoted one may hold commas, and "" for a quote.
Result<std::vector<std::string>> columns(std::string_view line) {
  std::vector<std::string> out;
  std::size_t at = 0;
  for (;;) {
    while (at < line.size() && (line[at] == ' ' || line[at] == '\t')) ++at;
    std::string column;
    if (at < line.size() && line[at] == '"') {
      bool closed = false;
      for (++at; at < line.size(); ++at) {
        if (line[at] != '"') {
          column += line[at];
        } else if (at + 1 < line.size() && line[at + 1] == '"') {
          column += line[++at];
        } else {
          closed = true;
          ++at;
          break;
        }
      }
      if (!closed) return fail(Code::kInvalid, "a quoted column does not end");
      auto comma = std::min(line.find(',', at), line.size());
      if (!trim(line.substr(at, comma - at)).empty())
        return fail(Code::kInvalid, "text follows a quoted column");
      at = comma;
    } else {
      auto comma = std::min(line.find(',', at), line.size());
      column = line.substr(at, comma - at);
      at = comma;
    }
    out.emplace_back(trim(column));
    if (at >= line.size()) return out;
    ++at;  // the comma
  }
}

}  // namespace

bool CounterSet::has(int id) const {
  return std::ranges::find(families, id, &Counter::id) != families.end();
}

std::vector<int> CounterSet::ids() const {
  std::set<int> all;
  for (const Counter& counter : families) all.insert(counter.id);
  for (const Counter& counter : labels) all.insert(counter.id);
  return {all.begin(), all.end()};
}

Result<Counter> make_counter(std::string_view name, std::string_view type, std::string_view help) {
  Counter counter;
  counter.kind = TRY(parse_kind(type));
  auto id = field_id(name);
  if (!id) {
    std::string text =
        "could not find DCGM field; err: unknown ExporterCounter field '" + std::string(name) + "'";
    auto near = candidates_for(name);
    if (!near.empty()) text += " (did you mean " + join(near, ", ") + "?)";
    return fail(Code::kInvalid, std::move(text));
  }
  if (counter.kind == Kind::kLabel && *id >= kXidCount)
    return fail(Code::kInvalid, "'" + std::string(name) + "' is a family of the exporter's own, not a label");
  counter.name = name;
  counter.id = *id;
  counter.help = help;
  return counter;
}

void add_counter(CounterSet& set, Counter counter) {
  auto same = [&](const Counter& other) { return other.name == counter.name; };
  if (std::ranges::any_of(set.families, same) || std::ranges::any_of(set.labels, same)) {
    set.warnings.push_back("line " + std::to_string(counter.line) + ": '" + counter.name +
                           "' is listed before: this row is left out");
    return;
  }
  (counter.kind == Kind::kLabel ? set.labels : set.families).push_back(std::move(counter));
}

Result<CounterSet> parse_counters(std::string_view text, std::string_view file) {
  CounterSet set;
  const std::string doing = "read collectors '" + std::string(file) + "'";
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  int number = 0;
  for (std::size_t at = 0; at < text.size();) {
    auto end = std::min(text.find('\n', at), text.size());
    std::string_view line = trim(text.substr(at, end - at));
    at = end + 1;
    ++number;
    if (line.empty() || line.front() == '#') continue;
    const std::string where = doing + ": line " + std::to_string(number);
    auto row = TRY_IN(columns(line), where);
    if (row.size() != 3)
      return fail(Code::kInvalid,
                  where + ": 3 fields expected (name, type, help), found " + std::to_string(row.size()));
    Counter counter = TRY_IN(make_counter(row[0], row[1], row[2]), where);
    counter.line = number;
    add_counter(set, std::move(counter));
  }
  if (set.families.empty()) return fail(Code::kInvalid, doing + ": it names no metric");
  return set;
}

std::vector<std::string> drop_profiling(CounterSet& set) {
  std::vector<std::string> warnings;
  auto unsupported = [&](const Counter& counter) {
    if (counter.id < 1000 || counter.id >= 1100) return false;
    warnings.push_back("Skipping line " + std::to_string(counter.line) + " ('" + counter.name +
                       "'): metric not enabled");
    return true;
  };
  std::erase_if(set.families, unsupported);
  std::erase_if(set.labels, unsupported);
  return warnings;
}

std::string_view kind_name(Kind kind) {
  switch (kind) {
    case Kind::kCounter:
      return "counter";
    case Kind::kUntyped:
      return "untyped";
    case Kind::kLabel:
      return "label";
    case Kind::kGauge:
      break;
  }
  return "gauge";
}

}  // namespace gpuop::telemetry
