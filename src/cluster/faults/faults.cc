#include "cluster/faults/faults.h"

#include <algorithm>
#include <array>

#include "base/text.h"
#include "base/wildcard.h"
#include "base/yaml_place.h"

namespace gpuop::cluster {
namespace {

constexpr std::array<std::string_view, 8> kApiWords{"delay",       "throttle",  "error",      "conflict",
                                                    "lost-answer", "cut-watch", "stale-list", "expired"};
constexpr std::array<std::string_view, 11> kNodeWords{
    "lost", "reboot", "kubelet-restart", "plugin-crash", "container-crash", "gpu-lost",
    "xid",  "ecc",    "pull-delay",      "pull-failure", "kernel-upgrade"};
const std::vector<std::string> kVerbs{"get",    "list",  "watch",  "create",
                                      "update", "patch", "delete", "deletecollection"};
constexpr Duration kLongest = 24h * 365;

template <std::size_t N>
std::vector<std::string> words(const std::array<std::string_view, N>& list) {
  return {list.begin(), list.end()};
}
template <class Enum, std::size_t N>
Enum value_of(const std::array<std::string_view, N>& list, std::string_view word) {
  return static_cast<Enum>(std::ranges::find(list, word) - list.begin());
}

// Of a span that is written as one.
Result<> no_longer_than_a_year(const YamlPlace& place, std::string_view key) {
  if (!place.has(key) || !place.at(key).is_string()) return {};
  const std::string_view text = as_text(place.at(key));
  const auto given = parse_go_duration(text);
  const bool longer =
      given ? *given > kLongest || *given < -kLongest : given.error().code() == Code::kUnsupported;
  if (!longer) return {};
  return place.wrong(key, "must not be longer than a year (8760h); got '" + std::string(text) + "'");
}
Result<Duration> span(const YamlPlace& place, std::string_view key, Duration fallback) {
  TRY(no_longer_than_a_year(place, key));
  return place.span(key, fallback);
}
// One that would do nothing at zero.
Result<Duration> some_span(const YamlPlace& place, std::string_view key, Duration fallback) {
  const Duration out = TRY(span(place, key, fallback));
  if (place.has(key) && out == Duration::zero()) return place.wrong(key, "must be longer than 0s");
  return out;
}

// A text that is not empty where its key is given: an empty one would stand for anything.
Result<std::string> some_text(const YamlPlace& place, std::string_view key) {
  std::string out = TRY(place.text(key, ""));
  if (!place.has(key)) return out;
  if (out.empty()) return place.wrong(key, "must not be empty; leave it out for any");
  if (out.find_first_of(" \t\r\n") != std::string::npos)
    return place.wrong(key, "must be one word; got '" + out + "'");
  return out;
}

Result<> needs(const YamlPlace& place, const std::vector<std::string>& keys, std::string_view what) {
  for (const std::string& key : keys) {
    if (!place.has(key)) return place.wrong("", std::string(what) + " needs `" + key + "`");
  }
  return {};
}

// Keys that only some faults have.
Result<> no_others(const YamlPlace& place, std::vector<std::string> keys, std::string_view what) {
  keys.insert(keys.end(), {"name", "at"});
  static const std::vector<std::string> kAll{
      "for",   "api",    "node",       "event",  "clock", "where", "nth",    "times",    "probability",
      "delay", "behind", "retryAfter", "status", "gpu",   "xid",   "kernel", "container"};
  for (const std::string& key : kAll) {
    if (place.has(key) && std::ranges::find(keys, key) == keys.end()) {
      return place.wrong(key, "is not for " + std::string(what));
    }
  }
  return {};
}

// The verb of a request with this method, or the word itself.
std::string api_verb(const std::string& word) {
  const std::string method = to_lower(word);
  return method == "post" ? "create" : method == "put" ? "update" : method;
}

Result<> read_verbs(const YamlPlace& where, RequestFilter& out) {
  out.verbs = TRY(where.texts("verb"));
  if (where.has("verb") && out.verbs.empty())
    return where.wrong("verb", "must not be empty; leave it out for any");
  for (const std::string& verb : out.verbs) {
    if (std::ranges::find(kVerbs, verb) != kVerbs.end()) continue;
    return where.wrong("verb", "must be of " + join(kVerbs, ", ") + "; got '" + verb + "'" +
                                   did_you_mean(api_verb(verb), kVerbs));
  }
  return {};
}

Result<> read_where(const YamlPlace& fault, Fault& out) {
  if (fault.has("where")) {
    const YamlPlace where = fault.child("where", fault.at("where"));
    TRY(where.only({"verb", "resource", "namespace", "name", "component", "node"}));
    TRY(read_verbs(where, out.where));
    out.where.resource = TRY(some_text(where, "resource"));
    out.where.ns = TRY(some_text(where, "namespace"));
    if (out.where.ns.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-*") != std::string::npos)
      return where.wrong("namespace",
                         "must be lower-case letters, digits, '-' and '*'; got '" + out.where.ns + "'");
    out.where.name = TRY(some_text(where, "name"));
    out.where.component = TRY(some_text(where, "component"));
    if (out.where.component.find('/') != std::string::npos)
      return where.wrong("component", "is the part of User-Agent before its '/': got '" +
                                          out.where.component + "'; what follows it is `node`");
    out.where.node = TRY(some_text(where, "node"));
  }
  // What a fault cannot strike is said, not ignored.
  std::vector<std::string> able;
  if (out.api == ApiFault::kConflict) able = {"update", "patch"};
  if (out.api == ApiFault::kCutWatch) able = {"watch"};
  if (out.api == ApiFault::kStaleList) able = {"list"};
  if (out.api == ApiFault::kExpired) able = {"list", "watch"};
  if (able.empty()) return {};
  for (const std::string& verb : out.where.verbs) {
    if (std::ranges::find(able, verb) != able.end()) continue;
    return fault.wrong("where", std::string(fault_word(*out.api)) + " strikes " + join(able, " and ") +
                                    " requests only; got verb '" + verb + "'");
  }
  if (out.where.verbs.empty()) out.where.verbs = able;
  return {};
}

Result<> read_api(const YamlPlace& place, Fault& out) {
  const std::string word = TRY(place.choice("api", "", words(kApiWords)));
  out.api = value_of<ApiFault>(kApiWords, word);
  std::vector<std::string> keys{"api", "for", "where", "nth", "times", "probability"};
  switch (*out.api) {
    case ApiFault::kDelay:
      keys.emplace_back("delay");
      TRY(needs(place, {"delay"}, word));
      break;
    case ApiFault::kThrottle:
      keys.emplace_back("retryAfter");
      break;
    case ApiFault::kError:
      keys.emplace_back("status");
      break;
    case ApiFault::kStaleList:
      keys.emplace_back("behind");
      TRY(needs(place, {"behind"}, word));
      break;
    default:
      break;
  }
  TRY(no_others(place, keys, "api: " + word));
  out.delay = TRY(some_span(place, "delay", 0s));
  out.behind = TRY(some_span(place, "behind", 0s));
  out.retry_after = TRY(some_span(place, "retryAfter", 1s));
  out.status = static_cast<int>(TRY(place.number("status", 500, 500, 504)));
  out.nth = static_cast<int>(TRY(place.number("nth", 0, 1, 1000000000)));
  out.times = static_cast<int>(TRY(place.number("times", 0, 1, 1000000000)));
  out.probability = TRY(place.fraction("probability", 1, 0, 1));
  if (out.probability <= 0) return place.wrong("probability", "must be more than 0, or it never strikes");
  if (place.has("nth") && (place.has("probability") || place.has("times"))) {
    return place.wrong("nth", "one request is meant: neither probability nor times goes with it");
  }
  return read_where(place, out);
}

Result<> read_event(const YamlPlace& place, Fault& out) {
  TRY(needs(place, {"node"}, "event"));
  const std::string word = TRY(place.choice("event", "", words(kNodeWords)));
  out.event = value_of<NodeFault>(kNodeWords, word);
  std::vector<std::string> keys{"node", "event"};
  std::vector<std::string> must;
  const bool gpu =
      *out.event == NodeFault::kGpuLost || *out.event == NodeFault::kXid || *out.event == NodeFault::kEcc;
  if (gpu) keys.emplace_back("gpu");
  switch (*out.event) {
    case NodeFault::kXid:
      must = {"xid"};
      break;
    case NodeFault::kContainerCrash:
      must = {"container"};
      break;
    case NodeFault::kPullDelay:
      must = {"delay", "for"};
      break;
    case NodeFault::kKernelUpgrade:
      must = {"kernel"};
      keys.emplace_back("for");
      break;
    case NodeFault::kPluginCrash:
    case NodeFault::kEcc:
      break;
    default:
      keys.emplace_back("for");
      break;
  }
  keys.insert(keys.end(), must.begin(), must.end());
  TRY(needs(place, must, word));
  TRY(no_others(place, keys, "event: " + word));
  out.node = TRY(place.text("node", ""));
  if (out.node.empty())
    return place.wrong("node", "must be a node's name; * stands for any run of characters");
  out.gpu = static_cast<int>(TRY(place.number("gpu", 0, 0, 15)));
  out.xid = static_cast<int>(TRY(place.number("xid", 0, 1, 1000)));
  out.delay = TRY(some_span(place, "delay", 0s));
  out.kernel = TRY(some_text(place, "kernel"));
  if (out.kernel.find('/') != std::string::npos)
    return place.wrong("kernel",
                       "must be a kernel release such as 6.8.0-61-generic; got '" + out.kernel + "'");
  out.container = TRY(some_text(place, "container"));
  return {};
}

Result<> read_clock(const YamlPlace& place, Fault& out) {
  TRY(no_others(place, {"clock"}, "clock"));
  TRY(no_longer_than_a_year(place, "clock"));
  const std::string text = TRY(place.text("clock", ""));
  const auto by = parse_go_duration(text);
  if (!by || *by == Duration::zero()) {
    return place.wrong("clock", "must be a span such as 1h or -30s; got '" + text + "'");
  }
  out.clock = *by;
  return {};
}

Result<Fault> read_fault(const YamlPlace& place, std::size_t index) {
  TRY(place.only({"name", "at", "for", "api", "node", "event", "clock", "where", "nth", "times",
                  "probability", "delay", "behind", "retryAfter", "status", "gpu", "xid", "kernel",
                  "container"}));
  Fault out;
  out.name = TRY(place.text("name", "fault " + std::to_string(index + 1)));
  if (out.name.empty() || out.name.find('\n') != std::string::npos)
    return place.wrong("name", "must be one line of text");
  out.at = TRY(span(place, "at", 0s));
  if (place.has("for")) out.span = TRY(some_span(place, "for", 0s));
  const int kinds = static_cast<int>(place.has("api")) + static_cast<int>(place.has("event")) +
                    static_cast<int>(place.has("clock"));
  if (kinds != 1) return place.wrong("", "must have exactly one of api, event and clock");
  if (place.has("api")) TRY(read_api(place, out));
  if (place.has("event")) TRY(read_event(place, out));
  if (place.has("clock")) TRY(read_clock(place, out));
  return out;
}

void write_where(const RequestFilter& where, JsonObject& out) {
  JsonObject filter;
  if (!where.verbs.empty()) {
    JsonArray verbs;
    for (const std::string& verb : where.verbs) verbs.emplace_back(verb);
    filter["verb"] = std::move(verbs);
  }
  for (const auto& [key, value] : {std::pair{"resource", &where.resource}, std::pair{"namespace", &where.ns},
                                   std::pair{"name", &where.name}, std::pair{"component", &where.component},
                                   std::pair{"node", &where.node}}) {
    if (!value->empty()) filter[key] = *value;
  }
  if (!filter.empty()) out["where"] = std::move(filter);
}

void write_api(const Fault& fault, JsonObject& out) {
  out["api"] = fault_word(*fault.api);
  if (*fault.api == ApiFault::kDelay) out["delay"] = format_go_duration(fault.delay);
  if (*fault.api == ApiFault::kThrottle) out["retryAfter"] = format_go_duration(fault.retry_after);
  if (*fault.api == ApiFault::kError) out["status"] = fault.status;
  if (*fault.api == ApiFault::kStaleList) out["behind"] = format_go_duration(fault.behind);
  if (fault.nth > 0) out["nth"] = fault.nth;
  if (fault.times > 0) out["times"] = fault.times;
  if (fault.probability < 1) out["probability"] = fault.probability;
  write_where(fault.where, out);
}

void write_event(const Fault& fault, JsonObject& out) {
  out["node"] = fault.node;
  out["event"] = fault_word(*fault.event);
  const NodeFault event = *fault.event;
  if (event == NodeFault::kGpuLost || event == NodeFault::kXid || event == NodeFault::kEcc)
    out["gpu"] = fault.gpu;
  if (event == NodeFault::kXid) out["xid"] = fault.xid;
  if (event == NodeFault::kPullDelay) out["delay"] = format_go_duration(fault.delay);
  if (event == NodeFault::kKernelUpgrade) out["kernel"] = fault.kernel;
  if (event == NodeFault::kContainerCrash) out["container"] = fault.container;
}

}  // namespace

std::string_view fault_word(ApiFault fault) {
  return kApiWords.at(static_cast<std::size_t>(fault));
}
std::string_view fault_word(NodeFault fault) {
  return kNodeWords.at(static_cast<std::size_t>(fault));
}

bool fits(std::string_view pattern, std::string_view text) {
  return pattern.empty() || matches_pattern(pattern, text);
}

std::optional<Duration> duration_of(const Fault& fault) {
  constexpr Duration kBoot = 30s, kKubeletRestart = 1s, kAtOnce = 0s;
  if (fault.span) return fault.span;
  if (fault.api) return *fault.api == ApiFault::kCutWatch ? std::optional(kAtOnce) : std::nullopt;
  if (!fault.event) return kAtOnce;
  switch (*fault.event) {
    case NodeFault::kReboot:
    case NodeFault::kKernelUpgrade:
      return kBoot;
    case NodeFault::kKubeletRestart:
      return kKubeletRestart;
    case NodeFault::kPluginCrash:
    case NodeFault::kContainerCrash:
    case NodeFault::kXid:
    case NodeFault::kEcc:
      return kAtOnce;
    case NodeFault::kLost:
    case NodeFault::kGpuLost:
    case NodeFault::kPullDelay:
    case NodeFault::kPullFailure:
      break;
  }
  return std::nullopt;
}

Duration FaultPlan::over() const {
  Duration last{0};
  for (const Fault& fault : faults) {
    last = std::max(last, fault.at + duration_of(fault).value_or(Duration::zero()));
  }
  return last;
}

std::string FaultPlan::place(std::size_t fault) const {
  const std::string at =
      file.empty()
          ? ""
          : file + ":" + std::to_string(lines.line_of("faults[" + std::to_string(fault) + "]")) + ": ";
  return at + "fault '" + faults.at(fault).name + "'";
}

std::unexpected<Error> FaultPlan::wrong(std::size_t fault, std::string_view key, const std::string& why,
                                        Code code) const {
  if (file.empty()) {
    return fail(code, "use fault '" + faults.at(fault).name +
                          "': " + (key.empty() ? "" : std::string(key) + ": ") + why);
  }
  const std::string path =
      "faults[" + std::to_string(fault) + "]" + (key.empty() ? "" : ".") + std::string(key);
  return fail(code, "read faults '" + file + "': line " + std::to_string(lines.line_of(path)) + ": " + path +
                        ": " + why);
}

Result<FaultPlan> parse_faults(std::string_view text, std::string_view file) {
  YamlDocument document = TRY_IN(parse_yaml_one(text, file), "read faults");
  const YamlPlace root(document, "read faults '" + std::string(file) + "'");
  if (!document.duplicate_keys.empty()) return root.wrong(document.duplicate_keys.front(), "is given twice");
  TRY(root.only({"seed", "faults"}));
  FaultPlan plan;
  plan.seed = static_cast<std::uint64_t>(TRY(root.number("seed", 1, 0, INT64_MAX)));
  if (!root.has("faults") || !root.at("faults").is_array()) return root.wrong("faults", "must be a list");
  std::size_t index = 0;
  for (const Json& item : root.at("faults").get_array()) {
    const YamlPlace place = root.item("faults", index, item);
    plan.faults.push_back(TRY(read_fault(place, index)));
    ++index;
  }
  plan.file = file;
  plan.lines.lines = std::move(document.lines);
  return plan;
}

std::string faults_text(const FaultPlan& plan) {
  JsonArray faults;
  for (const Fault& fault : plan.faults) {
    JsonObject out{{"name", fault.name}, {"at", format_go_duration(fault.at)}};
    if (fault.span) out["for"] = format_go_duration(*fault.span);
    if (fault.api) write_api(fault, out);
    if (fault.event) write_event(fault, out);
    if (fault.clock) out["clock"] = format_go_duration(*fault.clock);
    faults.push_back(std::move(out));
  }
  return to_yaml(JsonObject{{"seed", plan.seed}, {"faults", std::move(faults)}});
}

}  // namespace gpuop::cluster
