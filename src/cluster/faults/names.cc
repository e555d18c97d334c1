#include "cluster/faults/names.h"

#include <algorithm>

#include "base/text.h"

namespace gpuop::cluster {
namespace {

using Resource = FaultNames::Resource;

bool has_star(std::string_view text) {
  return text.find('*') != std::string_view::npos;
}

// Names, or how many where they are too many for a message.
std::string shown(const std::vector<std::string>& names) {
  constexpr std::size_t kMost = 16;
  return names.size() <= kMost ? join(names, ", ") : std::to_string(names.size()) + " names";
}

// " (did you mean 'x'?)": the nearest spelling, else the name that begins alike for longest, to the end of a
// word.
std::string near_hint(const std::string& word, const std::vector<std::string>& names) {
  std::string spelt = did_you_mean(word, names);
  if (!spelt.empty() || has_star(word)) return spelt;
  constexpr std::size_t kLeast = 4;
  std::string best;
  std::size_t most = kLeast;
  for (const std::string& name : names) {
    std::size_t same = 0, whole = 0;
    while (same < word.size() && same < name.size() && word[same] == name[same]) {
      ++same;
      const bool ends =
          (same == word.size() || word[same] == '-') && (same == name.size() || name[same] == '-');
      if (ends) whole = same;
    }
    // "nvidia" alone says nothing.
    if (whole <= most || word.substr(0, whole) == "nvidia") continue;
    most = whole;
    best = name;
  }
  return best.empty() ? std::string() : " (did you mean '" + best + "'?)";
}

// Plurals, with the subresources of that one which the pattern names.
std::vector<std::string> near_names(const std::vector<Resource>& resources, std::string_view pattern) {
  std::vector<std::string> out;
  const bool sub = pattern.find('/') != std::string_view::npos;
  for (const Resource& resource : resources) {
    if (sub || resource.name.find('/') == std::string::npos) out.push_back(resource.name);
  }
  return out;
}

// The resource that people mean by another name for it: "Pod", "po", "pods.v1", "apps/v1/daemonsets".
std::string meant(const std::vector<Resource>& resources, const std::string& given) {
  const std::string word = to_lower(given);
  std::vector<std::string> forms{word, word.substr(0, word.find('.'))};
  if (const auto slash = word.rfind('/'); slash != std::string::npos) forms.push_back(word.substr(slash + 1));
  for (const std::string& form : forms) {
    for (const Resource& resource : resources) {
      if (resource.name == form || std::ranges::find(resource.also, form) != resource.also.end())
        return resource.name;
    }
  }
  // "pod/status"
  const auto slash = word.find('/');
  if (slash == std::string::npos) return {};
  const std::string whole = meant(resources, word.substr(0, slash));
  const std::string sub = whole + word.substr(slash);
  return std::ranges::find(resources, sub, &Resource::name) != resources.end() ? sub : std::string();
}

Result<> check_resource(const FaultPlan& plan, std::size_t index, const FaultNames& names) {
  const RequestFilter& where = plan.faults[index].where;
  if (where.resource.empty() || names.resources.empty()) return {};
  std::vector<const Resource*> fitting;
  for (const Resource& resource : names.resources) {
    if (fits(where.resource, resource.name)) fitting.push_back(&resource);
  }
  if (fitting.empty()) {
    const std::string other =
        has_star(where.resource) ? std::string() : meant(names.resources, where.resource);
    if (other.empty() && names.more_resources) return {};
    const std::string hint =
        other.empty() ? did_you_mean(to_lower(where.resource), near_names(names.resources, where.resource))
                      : " (did you mean '" + other + "'?)";
    return plan.wrong(index, "where.resource",
                      "must be the plural name of a resource that the API server has, such as pods or "
                      "nodes/status; got '" +
                          where.resource + "'" + hint);
  }
  if (!where.ns.empty() && std::ranges::none_of(fitting, &Resource::namespaced)) {
    return plan.wrong(index, "where.namespace",
                      where.resource + " are in no namespace, so no request fits; leave it out");
  }
  const auto able = [&](const std::string& verb) {
    return std::ranges::any_of(fitting, [&](const Resource* resource) {
      return std::ranges::find(resource->verbs, verb) != resource->verbs.end();
    });
  };
  if (where.verbs.empty() || std::ranges::any_of(where.verbs, able)) return {};
  std::set<std::string> verbs;
  for (const Resource* resource : fitting) verbs.insert(resource->verbs.begin(), resource->verbs.end());
  return plan.wrong(index, "where",
                    "no request fits: the verbs of " + where.resource + " are " +
                        join(std::vector<std::string>(verbs.begin(), verbs.end()), ", ") + "; got " +
                        join(where.verbs, ", "));
}

// The nodes that a pattern is for; an error when there are none.
Result<std::vector<const FaultNames::Node*>> aimed_at(const FaultPlan& plan, std::size_t index,
                                                      std::string_view key, const std::string& pattern,
                                                      const FaultNames& names) {
  std::vector<const FaultNames::Node*> out;
  std::vector<std::string> all;
  for (const FaultNames::Node& node : names.nodes) {
    all.push_back(node.name);
    if (fits(pattern, node.name)) out.push_back(&node);
  }
  if (!out.empty()) return out;
  return plan.wrong(index, key,
                    "the fleet has no node " + std::string(has_star(pattern) ? "that fits '" : "'") +
                        pattern + "'; there are " + shown(all) + did_you_mean(pattern, all));
}

Result<> check_event(const FaultPlan& plan, std::size_t index, const FaultNames& names) {
  const Fault& fault = plan.faults[index];
  const auto aimed = TRY(aimed_at(plan, index, "node", fault.node, names));
  if (std::ranges::all_of(aimed, &FaultNames::Node::light)) {
    return plan.wrong(
        index, "node",
        "node '" + aimed[0]->name + "' is light, and nothing happens on light nodes; write `mode: hollow`",
        Code::kUnsupported);
  }
  int most = 0;
  for (const FaultNames::Node* node : aimed) most = node->light ? most : std::max(most, node->gpus);
  const std::string who =
      aimed.size() == 1 ? "node '" + aimed[0]->name + "' has " : "none of the nodes has more than ";
  const bool gpu = *fault.event == NodeFault::kGpuLost || *fault.event == NodeFault::kXid ||
                   *fault.event == NodeFault::kEcc;
  if (gpu && fault.gpu >= most) {
    return plan.wrong(index, "gpu",
                      who + std::to_string(most) + " GPUs" +
                          (most > 0 ? ", with indexes 0 to " + std::to_string(most - 1) : std::string()) +
                          "; got index " + std::to_string(fault.gpu));
  }
  if (*fault.event == NodeFault::kPluginCrash && most == 0)
    return plan.wrong(index, "node", "no device plugin runs on a node without GPUs");
  if (fault.container.empty() || names.containers.empty()) return {};
  if (std::ranges::any_of(names.containers, [&](const auto& name) { return fits(fault.container, name); }))
    return {};
  return plan.wrong(index, "container",
                    "no pod has a container " + std::string(has_star(fault.container) ? "that fits '" : "'") +
                        fault.container + "'; there are " + shown(names.containers) +
                        near_hint(fault.container, names.containers));
}

Result<> check_request_node(const FaultPlan& plan, std::size_t index, const FaultNames& names) {
  const std::string& pattern = plan.faults[index].where.node;
  if (pattern.empty()) return {};
  const auto aimed = TRY(aimed_at(plan, index, "where.node", pattern, names));
  if (std::ranges::any_of(aimed, [](const auto* node) { return !node->light; })) return {};
  return plan.wrong(index, "where.node",
                    "node '" + aimed[0]->name +
                        "' is light, and light nodes' requests are not told apart; write `mode: hollow`",
                    Code::kUnsupported);
}

// What an API fault is for, in a sentence about what did not come.
std::string request_words(const Fault& fault) {
  switch (*fault.api) {
    case ApiFault::kCutWatch:
      return "no watch";
    case ApiFault::kStaleList:
      return "no list with resourceVersion=0";
    case ApiFault::kExpired:
      return "no list or watch that goes on from a version";
    case ApiFault::kConflict:
      return "no update or patch";
    default:
      return "no request";
  }
}

std::string selector(const RequestFilter& where, const std::string& key) {
  if (key == "verb") return join(where.verbs, ", ");
  if (key == "resource") return where.resource;
  if (key == "namespace") return where.ns;
  if (key == "name") return where.name;
  return key == "node" ? where.node : where.component;
}

std::string why_idle_request(const Fault& fault, const FaultRecord& record) {
  if (record.fitted > 0) {
    const std::string fitted =
        std::to_string(record.fitted) + (record.fitted == 1 ? " request" : " requests");
    if (fault.nth > 0)
      return "struck nothing: " + fitted + " fitted, and nth is " + std::to_string(fault.nth);
    return "struck nothing: " + fitted + " fitted, none by chance";
  }
  if (record.taken > 0) return "struck nothing: an earlier fault of the file took every request that fitted";
  std::string out = "struck nothing: " + request_words(fault) + " fitted it";
  if (fault.span) out += " in its " + format_go_duration(*fault.span);
  std::string but;
  for (const std::string key : {"name", "component", "namespace", "node", "resource", "verb"}) {
    const auto found = record.misses.find(key);
    // Verbs that a fault is for by itself are not the file's.
    if (found == record.misses.end() || (key == "verb" && request_words(fault) != "no request")) continue;
    const std::string got = selector(fault.where, key);
    const std::string near =
        near_hint(got, std::vector<std::string>(found->second.begin(), found->second.end()));
    if (!but.empty() && near.empty()) continue;
    but = "; some would but for where." + key + " '" + got + "'" + near;
    if (!near.empty()) break;
  }
  return out + but;
}

std::string why_idle_event(const Fault& fault, const FaultRecord& record) {
  switch (*fault.event) {
    case NodeFault::kPluginCrash:
      return "struck nothing: no device plugin ran there then";
    case NodeFault::kContainerCrash: {
      const auto ran = record.misses.find("container");
      const std::vector<std::string> values =
          ran == record.misses.end() ? std::vector<std::string>()
                                     : std::vector<std::string>(ran->second.begin(), ran->second.end());
      return "struck nothing: no container '" + fault.container + "' ran there then" +
             (values.empty() ? std::string() : "; those that did: " + shown(values));
    }
    case NodeFault::kPullDelay:
    case NodeFault::kPullFailure:
      return "struck nothing: no image was pulled there then";
    case NodeFault::kXid:
    case NodeFault::kEcc:
      return "struck nothing: no driver was loaded there then, to report it";
    default:
      return "struck nothing";
  }
}

}  // namespace

Result<> check_faults(const FaultPlan& plan, const FaultNames& names) {
  for (std::size_t i = 0; i < plan.faults.size(); ++i) {
    const Fault& fault = plan.faults[i];
    if (fault.api) {
      TRY(check_resource(plan, i, names));
      if (!names.nodes.empty()) TRY(check_request_node(plan, i, names));
    }
    if (fault.event && !names.nodes.empty()) TRY(check_event(plan, i, names));
  }
  return {};
}

std::vector<IdleFault> idle_faults(const FaultPlan& plan, const std::vector<FaultRecord>& records,
                                   Duration ended) {
  std::vector<IdleFault> out;
  for (std::size_t i = 0; i < plan.faults.size(); ++i) {
    const Fault& fault = plan.faults[i];
    if (records.at(i).struck > 0) continue;
    const bool late = fault.at > ended;
    const std::string why =
        late ? "did not come: it begins at " + format_go_duration(fault.at) + ", and the run ended at " +
                   format_go_duration(std::chrono::floor<std::chrono::milliseconds>(ended))
        : fault.api   ? why_idle_request(fault, records[i])
        : fault.event ? why_idle_event(fault, records[i])
                      : std::string("struck nothing");
    out.push_back({i, late, plan.place(i) + ": " + why});
  }
  return out;
}

std::vector<std::string> endless_faults(const FaultPlan& plan, const std::vector<FaultRecord>& records,
                                        Duration ended) {
  std::vector<std::string> out;
  for (std::size_t i = 0; i < plan.faults.size(); ++i) {
    const Fault& fault = plan.faults[i];
    const std::uint64_t struck = records.at(i).struck;
    const bool spent =
        (fault.times > 0 && struck >= static_cast<std::uint64_t>(fault.times)) || fault.nth > 0;
    if (duration_of(fault) || fault.at > ended || struck == 0 || spent) continue;
    out.push_back(plan.place(i) + ": has no end, and is still on");
  }
  return out;
}

}  // namespace gpuop::cluster
