// What must not be compared between two control planes: moments, uids, versions, generated names, addresses.
// They are replaced by names that still tell equal from different.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/time.h"

namespace gpuop::conformance {

class Normal {
 public:
  // `unique`: the text that this run made for $NS. `now`: times near it are moments of the run.
  Normal(std::string unique, Time now) : unique_(std::move(unique)), now_(now) {}

  // Takes note of the names in `value` that a server has made up.
  void learn(const Json& value);
  // A whole transcript, so that one uid has one name throughout.
  Json transcript(Json steps);

 private:
  Json walk(const Json& value, std::string_view key, const Json* parent);
  std::string text(std::string_view raw);
  std::string named(const std::string& kind, std::map<std::string, std::string>& known,
                    const std::string& raw);

  std::string unique_;
  Time now_;
  std::map<std::string, std::string> uids_, versions_;
  std::map<std::string, std::string> names_;  // generated ones, to what replaces them
  int generated_ = 0;
};

}  // namespace gpuop::conformance
