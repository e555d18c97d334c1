// Which versions of Kubernetes, operating system, runtime, GPU, driver and features do not go together: rules
// from a data file (compatibility.yaml), facts of a cluster and of what a policy asks for, findings in words.
// Pure.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace gpuop::fleet {

// Fact name to its value; one that is not known is not there.
using CompatFacts = std::map<std::string, std::string>;

// What a policy's spec says, as the API server stores it.
CompatFacts policy_facts(const Json& spec);
// What the chart's values say, defaults included: they have the same paths, but for who names the driver.
CompatFacts values_facts(const Json& values);
// What a node says of itself: its labels by feature discovery, else its nodeInfo.
CompatFacts node_facts(const Json& node);

struct CompatFinding {
  std::string rule;
  bool error = false;              // it cannot work; else a warning
  std::vector<std::string> nodes;  // that it is about, sorted; none: the whole cluster
  std::string text;                // what is the case, and what to do
  std::string source;
  std::string line() const;  // "driver-old-gpu: nodes a, b: … (SOURCE)"
};

class Compatibility {
 public:
  // The rules of a file; kInvalid names the rule and what is wrong with it.
  static Result<Compatibility> parse(std::string_view yaml, std::string_view file);
  // Those that are built in.
  static const Compatibility& built_in();

  // `common`: of cluster and policy; `nodes`: name to the facts of each GPU node. In the order of the rules.
  std::vector<CompatFinding> check(const CompatFacts& common,
                                   const std::map<std::string, CompatFacts>& nodes) const;
  std::size_t size() const { return rules_.size(); }

 private:
  struct Condition {
    std::string fact;
    std::vector<std::vector<std::pair<std::string, std::string>>> any;  // of: all of (operator, operand)
  };
  struct Rule {
    std::string id, says, source;
    bool error = false;
    bool of_node = false;  // a fact of nodes is among its conditions
    std::vector<Condition> when;
  };
  static bool fits(const Condition& condition, const CompatFacts& facts);
  static Result<Rule> read_rule(const Json& json);

  std::vector<Rule> rules_;
};

// Number by number: "570.86.15" > "570.9"; a leading "v" and what follows the numbers do not count.
int compare_versions(std::string_view a, std::string_view b);

}  // namespace gpuop::fleet
