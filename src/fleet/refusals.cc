#include "fleet/refusals.h"

#include <optional>

#include "base/text.h"
#include "kube/object.h"

namespace gpuop::fleet {
namespace {

// The text between `before` and the next `after` behind it.
std::optional<std::string> between(std::string_view text, std::string_view before, std::string_view after) {
  const auto at = text.find(before);
  if (at == std::string_view::npos) return std::nullopt;
  const auto start = at + before.size();
  const auto end = text.find(after, start);
  if (end == std::string_view::npos) return std::nullopt;
  return std::string(text.substr(start, end - start));
}

// 'configmaps is forbidden: User "U" cannot create resource "configmaps" in API group "" in the namespace
// "N"'
std::string missing_right(std::string_view message) {
  const auto verb = between(message, "\" cannot ", " resource \"");
  const auto resource = between(message, " resource \"", "\"");
  const auto group = between(message, " in API group \"", "\"");
  if (!verb || !resource || !group) return {};
  const auto ns = between(message, " in the namespace \"", "\"");
  const auto user = between(message, "User \"", "\"");
  return "; give " + (user ? *user : "the operator") + " this right in " +
         (ns ? "a Role of namespace '" + *ns + "'" : std::string("a ClusterRole")) + ": apiGroups: [\"" +
         *group + "\"], resources: [\"" + *resource + "\"], verbs: [\"" + *verb + "\"]";
}

// When an Event was last seen; of a series, of events.k8s.io.
std::string_view last_seen(const Json& event) {
  for (auto time : {get_string(event, {"series", "lastObservedTime"}), get_string(event, {"lastTimestamp"}),
                    get_string(event, {"eventTime"})})
    if (!time.empty()) return time;
  return get_string(event, {"metadata", "creationTimestamp"});
}

}  // namespace

std::string cure_of_refusal(std::string_view message) {
  if (message.find(" is forbidden: User \"") != std::string_view::npos) return missing_right(message);
  if (const auto quota = between(message, "exceeded quota: ", ","))
    return "; raise ResourceQuota '" + *quota + "' of the operator's namespace, or allow its operands there";
  if (const auto webhook = between(message, "admission webhook \"", "\" denied the request"))
    return "; exempt the operator's namespace from webhook '" + *webhook +
           "', or change in the policy what it complains about";
  if (const auto webhook = between(message, "failed calling webhook \"", "\""))
    return "; webhook '" + *webhook + "' does not answer: bring it up, or exempt the operator's namespace";
  if (message.find("violates PodSecurity") != std::string_view::npos)
    return "; label the operator's namespace pod-security.kubernetes.io/enforce=privileged";
  return {};
}

std::map<std::string, std::string> refused_pods(const Objects& events) {
  std::map<std::string, const Json*> last;
  for (const auto& event : events) {
    if (get_string(*event, {"involvedObject", "kind"}) != "DaemonSet" ||
        get_string(*event, {"reason"}) != "FailedCreate")
      continue;
    const Json*& known = last[std::string(get_string(*event, {"involvedObject", "name"}))];
    // RFC 3339 in UTC compares as text.
    if (!known || last_seen(*event) >= last_seen(*known)) known = event.get();
  }
  std::map<std::string, std::string> out;
  for (const auto& [name, event] : last) {
    std::string_view why = get_string(*event, {"message"});
    constexpr std::string_view kStart = "Error creating: ";
    if (why.starts_with(kStart)) why.remove_prefix(kStart.size());
    out[name] = why;
  }
  return out;
}

std::vector<std::string> event_fields() {
  return {"reason",        "message",   "involvedObject.kind",    "involvedObject.name",
          "lastTimestamp", "eventTime", "series.lastObservedTime"};
}

}  // namespace gpuop::fleet
