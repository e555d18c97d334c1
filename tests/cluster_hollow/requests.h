// What the operator asked of the API server, and the promises on it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace gpuop::cluster::runs {

// "patch nodes" to how often.
using Requests = std::map<std::string, std::uint64_t>;

inline Requests minus(Requests now, const Requests& before) {
  for (const auto& [what, count] : before) now[what] -= count;
  std::erase_if(now, [](const auto& entry) { return entry.second == 0; });
  return now;
}
inline std::uint64_t sum(const Requests& all, std::string_view prefix = "") {
  std::uint64_t out = 0;
  for (const auto& [what, count] : all) out += what.starts_with(prefix) ? count : 0;
  return out;
}
inline std::string text_of(const Requests& all) {
  std::string out;
  for (const auto& [what, count] : all) out += (out.empty() ? "" : ", ") + std::to_string(count) + " " + what;
  return out.empty() ? "none" : out;
}

// Of a first install: what is neither a node's, nor the lease's, nor the one request of an object that was
// made.
struct InstallCost {
  std::uint64_t objects = 0, more = 0;
};
inline InstallCost install_cost(Requests all) {
  InstallCost out;
  std::erase_if(all, [](const auto& entry) {
    return entry.first == "patch nodes" || entry.first == "patch nodes/status" ||
           entry.first.ends_with(" leases");
  });
  for (const auto& [what, count] : all)
    out.objects += what.starts_with("create ") && what != "create events" ? count : 0;
  out.more = sum(all) - out.objects;
  return out;
}

}  // namespace gpuop::cluster::runs
