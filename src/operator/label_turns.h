// Which nodes are to have their labels decided. Not every look at a node does that: a deploy label that was
// taken away by hand stays away until an event that concerns the node's labels (operator.md §3.5, §4.2). So
// nothing else puts right what such an event was for, and a turn stays until what it led to is written and
// seen.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "base/time.h"

namespace gpuop::op {

// After a write without an answer: for how long it may still come about, and undo what was decided meanwhile.
inline constexpr Duration kUnsure = 2min;

class LabelTurns {
 public:
  void add(const std::string& node) { due_.insert(node); }
  // An event of the node, by its resourceVersion, at the loop's time. Whether it gives the node a turn: it
  // shows what we have written, on top of whatever came in between, or may.
  bool seen(const std::string& node, std::int64_t version, Duration now);
  // Takes the node's turn, of which this version is known. False: it has none, or a later version was written
  // by us: its event comes, and gives the turn.
  bool take(const std::string& node, std::int64_t version);
  // What was decided in a turn is written, as `version`; `known` is the version that is known by now.
  void written(const std::string& node, std::int64_t version, std::int64_t known);
  // It is not, and the turn comes again; `unsure`: no answer came, it may be.
  void failed(const std::string& node, bool unsure, Duration now);
  void forget(const std::string& node);

 private:
  std::set<std::string> due_;
  std::map<std::string, std::int64_t> written_;  // not seen yet
  std::map<std::string, Duration> unsure_;       // until when
};

}  // namespace gpuop::op
