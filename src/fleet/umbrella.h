// Values files of a chart that has this one as a part (an umbrella): our values lie there below the name or
// the alias that its Chart.yaml gives this chart. They are checked as if they stood alone, and told with the
// whole path. Pure.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "base/yaml.h"
#include "fleet/values.h"

namespace gpuop::fleet {

// The key below which the files have our values; "" where they are our values themselves. Two at the top of
// which an operand of ours (driver, toolkit, …) stands are; else the key is that whose name ends in
// gpu-operator, however it is written, and else the one below which two of our operands or more stand, more
// than half of what is there being ours. kInvalid where several are it.
Result<std::string> values_key(std::span<const YamlDocument> files, const Json& schema);

// Of unknown keys at the top that have an operand of ours below them, so few that values_key() did not take
// them: how to have it checked.
void tell_of_values_key(std::vector<ValuesFinding>& findings, std::span<const YamlDocument> files,
                        const Json& schema);

// What lies below `key`, dotted where charts are nested, as files of their own: their paths begin below it,
// their lines are those of the files. A file that has nothing there is empty. kInvalid: none has the key.
Result<std::vector<YamlDocument>> values_below(std::span<const YamlDocument> files, std::string_view key);

// What was found in such files, with the whole paths. That an umbrella switches its parts on and off by
// `enabled` is its own affair.
std::vector<ValuesFinding> told_below(std::vector<ValuesFinding> findings, const std::string& key);

}  // namespace gpuop::fleet
