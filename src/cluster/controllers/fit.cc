#include "cluster/controllers/fit.h"

#include <algorithm>

#include "base/text.h"
#include "kube/object.h"

namespace gpuop::cluster {
namespace {

void add(Amounts& into, const Amounts& more) {
  for (const auto& [name, amount] : more) into[name] += amount;
}

void raise(Amounts& into, const Amounts& least) {
  for (const auto& [name, amount] : least) into[name] = std::max(into[name], amount);
}

Amounts read_amounts(const JsonObject& object) {
  Amounts out;
  for (const auto& [name, value] : object) out[str(name)] = kube::parse_quantity_milli(value).value_or(0);
  return out;
}

Amounts container_requests(const Json& container) {
  Amounts out = read_amounts(get_object(container, {"resources", "limits"}));
  for (const auto& [name, amount] : read_amounts(get_object(container, {"resources", "requests"})))
    out[name] = amount;
  return out;
}

}  // namespace

Amounts pod_requests(const Json& pod) {
  Amounts total;
  for (const Json& container : get_array(pod, {"spec", "containers"}))
    add(total, container_requests(container));
  // Restartable init containers keep running; the others run one after another, beside those started before
  // them.
  Amounts sidecars, largest;
  for (const Json& container : get_array(pod, {"spec", "initContainers"})) {
    Amounts own = container_requests(container);
    if (get_string(container, {"restartPolicy"}) == "Always") {
      add(sidecars, own);
      raise(largest, sidecars);
    } else {
      add(own, sidecars);
      raise(largest, own);
    }
  }
  add(total, sidecars);
  raise(total, largest);
  add(total, read_amounts(get_object(pod, {"spec", "overhead"})));
  return total;
}

std::vector<std::string> host_ports(const Json& pod) {
  std::vector<std::string> out;
  for (const Json& container : get_array(pod, {"spec", "containers"})) {
    for (const Json& port : get_array(container, {"ports"})) {
      const auto number = get_int(port, {"hostPort"});
      if (number > 0)
        out.push_back(str(get_string(port, {"protocol"}, "TCP")) + "/" + std::to_string(number));
    }
  }
  return out;
}

Amounts node_allocatable(const Json& node) {
  return read_amounts(get_object(node, {"status", "allocatable"}));
}

Misfit check_fit(const Json& pod, const Amounts& requests, const Json& node, const NodeRoom& room) {
  const Json none = JsonObject();
  const Json* found = find(pod, {"spec"});
  const Json& spec = found == nullptr ? none : *found;
  const std::string_view wanted = get_string(spec, {"nodeName"});
  if (get_bool(node, {"spec", "unschedulable"})) {
    const Json taint = JsonObject{{"key", "node.kubernetes.io/unschedulable"}, {"effect", "NoSchedule"}};
    if (!kube::tolerates(taint, get_array(spec, {"tolerations"})))
      return {{"node(s) were unschedulable"}, false};
  }
  if (!wanted.empty() && wanted != kube::name_of(node))
    return {{"node(s) didn't match the requested node name"}, false};
  if (const Json* taint = kube::untolerated_taint(node, spec, {"NoSchedule", "NoExecute"})) {
    return {{"node(s) had untolerated taint {" + str(get_string(*taint, {"key"})) + ": " +
             str(get_string(*taint, {"value"})) + "}"},
            false};
  }
  if (!kube::node_matches(node, spec)) return {{"node(s) didn't match Pod's node affinity/selector"}, false};
  for (const std::string& port : host_ports(pod)) {
    const auto taken = room.ports.find(port);
    if (taken != room.ports.end() && taken->second > 0) {
      return {{"node(s) didn't have free ports for the requested pod ports"}, true};
    }
  }
  Misfit out;
  bool could_ever = true;
  const auto pods = room.allocatable.find("pods");
  const __int128 most = pods == room.allocatable.end() ? 0 : pods->second;
  if ((room.pods + 1) * __int128(1000) > most) out.reasons.emplace_back("Too many pods");
  for (const auto& [name, amount] : requests) {
    if (amount == 0) continue;
    const auto has = room.allocatable.find(name);
    const auto used = room.used.find(name);
    const __int128 total = has == room.allocatable.end() ? 0 : has->second;
    if (amount + (used == room.used.end() ? 0 : used->second) <= total) continue;
    out.reasons.push_back("Insufficient " + name);
    could_ever = could_ever && amount <= total;
  }
  out.resolvable = !out.reasons.empty() && could_ever;
  return out;
}

std::string misfit_message(std::size_t nodes, const std::map<std::string, int>& reasons, int resolvable) {
  if (nodes == 0) return "no nodes available to schedule pods";
  const std::string head = "0/" + std::to_string(nodes) + " nodes are available: ";
  std::vector<std::string> parts;
  for (const auto& [reason, count] : reasons) parts.push_back(std::to_string(count) + " " + reason);
  std::ranges::sort(parts);
  std::vector<std::string> preemption;
  if (resolvable > 0)
    preemption.push_back(std::to_string(resolvable) + " No preemption victims found for incoming pod");
  if (const auto rest = nodes - static_cast<std::size_t>(resolvable); rest > 0) {
    preemption.push_back(std::to_string(rest) + " Preemption is not helpful for scheduling");
  }
  std::ranges::sort(preemption);
  return head + join(parts, ", ") + ". no new claims to deallocate, preemption: " + head +
         join(preemption, ", ") + ".";
}

double node_score(const Json& pod, const Amounts& requests, const Json& node, const NodeRoom& room) {
  double score = 0;
  const JsonArray& tolerations = get_array(pod, {"spec", "tolerations"});
  for (const Json& taint : get_array(node, {"spec", "taints"})) {
    if (get_string(taint, {"effect"}) == "PreferNoSchedule" && !kube::tolerates(taint, tolerations))
      score -= 1000;
  }
  for (const Json& preferred : get_array(
           pod, {"spec", "affinity", "nodeAffinity", "preferredDuringSchedulingIgnoredDuringExecution"})) {
    const Json* term = find(preferred, {"preference"});
    if (term == nullptr) continue;
    const Json selector = JsonObject{{"nodeSelectorTerms", JsonArray{*term}}};
    if (kube::node_selector_matches(node, selector))
      score += static_cast<double>(get_int(preferred, {"weight"}));
  }
  // The node that is left with most, as a share, of what the pod asks for (and of cpu and memory in any
  // case).
  double left = 0;
  int counted = 0;
  for (const auto& [name, total] : room.allocatable) {
    const auto asked = requests.find(name);
    if ((asked == requests.end() && name != "cpu" && name != "memory") || total == 0) continue;
    const auto used = room.used.find(name);
    const __int128 taken =
        (asked == requests.end() ? 0 : asked->second) + (used == room.used.end() ? 0 : used->second);
    left += 1.0 - static_cast<double>(taken) / static_cast<double>(total);
    ++counted;
  }
  if (counted > 0) score += left / counted;
  return score - 0.001 * room.pods;
}

}  // namespace gpuop::cluster
