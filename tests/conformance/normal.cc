#include "normal.h"

#include <algorithm>
#include <functional>
#include <regex>

#include "base/text.h"

namespace gpuop::conformance {

namespace {

// Replaces every match by what `made` says of it.
std::string replace_each(const std::string& text, const std::regex& pattern,
                         const std::function<std::string(const std::smatch&)>& made) {
  std::string out;
  auto from = text.begin();
  for (std::sregex_iterator it(text.begin(), text.end(), pattern), end; it != end; ++it) {
    out.append(from, (*it)[0].first);
    out += made(*it);
    from = (*it)[0].second;
  }
  out.append(from, text.end());
  return out;
}

struct Replacement {
  std::regex pattern;
  std::string by;
};

// Texts that say something else on every run.
const std::vector<Replacement>& replacements() {
  static const std::vector<Replacement> all = {
      {std::regex("(eyJ[A-Za-z0-9_-]+\\.[A-Za-z0-9_-]+\\.[A-Za-z0-9_-]+)"), "<token>"},
      {std::regex("(Too large resource version: \\d+, current: )\\d+"), "$1<version>"},
      {std::regex("(too old resource version: \\d+ )\\(\\d+\\)"), "$1(<version>)"},
      {std::regex("(resourceVersion: ?\"|Resource ?Version: +|resourceVersion\":\")\\d+"), "$1<version>"},
      {std::regex("\\b127\\.96\\.\\d+\\.\\d+\\b|\\b10\\.(9[6-9]|10\\d|11[01])\\.\\d+\\.\\d+\\b"), "<ip>"},
      {std::regex("https://127\\.0\\.0\\.1:\\d+"), "<server>"},
      {std::regex("\\b127\\.0\\.0\\.1:\\d+"), "<server>"},
      {std::regex("(nodePort\"?: ?|:)3[0-2]\\d{3}\\b"), "$1<port>"},
      {std::regex("\\b[A-Z][a-z]{2}, \\d\\d [A-Z][a-z]{2} \\d{4} \\d\\d:\\d\\d:\\d\\d [+-]\\d{4}"), "<time>"},
      // A ReplicaSet's or DaemonSet revision's hash, and a pod's suffix after it.
      {std::regex("(hash[=:\"' ]+ *)[bcdfghjklmnpqrstvwxz2456789]{7,10}\\b"), "$1<hash>"},
      {std::regex("\\bkubectl/v[0-9.]+ \\([^)]*\\)[^\" ]*"), "<agent>"},
      {std::regex("^([EWI])\\d{4} \\d\\d:\\d\\d:\\d\\d\\.\\d+ +\\d+ "), "$1 "},
      {std::regex("\\d{4}-\\d\\d-\\d\\d \\d\\d:\\d\\d:\\d\\d\\.\\d+ [+-]\\d{4}"), "<time>"},
      {std::regex("kube-api-access-[a-z0-9]{5}"), "kube-api-access-<suffix>"},
      {std::regex("(resourceVersion\\\\*\":\\\\*\")\\d+"), "$1<version>"},
      {std::regex("\\b[A-Z][a-z]{2} [A-Z][a-z]{2} +\\d{1,2} \\d\\d:\\d\\d:\\d\\d \\d{4}\\b"), "<time>"}};
  return all;
}

// Before anything else: what a program makes up for the name of a file may look like a hash.
const std::regex& folder_pattern() {
  static const std::regex pattern("/tmp/[A-Za-z0-9._-]+");
  return pattern;
}
const std::regex& uuid_pattern() {
  static const std::regex pattern("\\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\\b");
  return pattern;
}
const std::regex& time_pattern() {
  static const std::regex pattern(
      "\\b\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\d(\\.\\d+)?(Z|[+-]\\d\\d:\\d\\d)");
  return pattern;
}

// "web-" + 5 letters, and a hash of 8 to 10 before it where a Deployment made it.
const std::regex& suffix_pattern() {
  static const std::regex pattern(
      "([a-z0-9]-)[bcdfghjklmnpqrstvwxz2456789]{8,10}(-[bcdfghjklmnpqrstvwxz2456789]{5})?(?![a-z0-9-])");
  return pattern;
}

JsonArray by_owner(JsonArray list) {
  auto key = [](const Json& entry) {
    return str(get_string(entry, {"operation"})) + "\n" + str(get_string(entry, {"manager"})) + "\n" +
           str(get_string(entry, {"apiVersion"})) + "\n" + str(get_string(entry, {"subresource"}));
  };
  std::sort(list.begin(), list.end(), [&](const Json& a, const Json& b) { return key(a) < key(b); });
  return list;
}

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

}  // namespace

std::string Normal::named(const std::string& kind, std::map<std::string, std::string>& known,
                          const std::string& raw) {
  auto [at, made] = known.emplace(raw, "");
  if (made) at->second = "<" + kind + "-" + std::to_string(known.size()) + ">";
  return at->second;
}

std::string Normal::text(std::string_view raw) {
  std::string out = replace_all(replace_all(std::string(raw), unique_, "$NS"), SOURCE_ROOT, "$REPO");
  for (const auto& [name, by] : names_) out = replace_all(std::move(out), name, by);
  out = std::regex_replace(out, folder_pattern(), "<folder>");
  if (out.find('-') != std::string::npos) {
    out = replace_each(out, uuid_pattern(), [&](const std::smatch& m) { return named("uid", uids_, m[0]); });
    out = replace_each(out, time_pattern(), [&](const std::smatch& m) {
      Result<Time> at = parse_time(m[0].str());
      bool near = at && *at > now_ - 24h && *at < now_ + 24h * 400;
      return near ? std::string("<time>") : m[0].str();
    });
  }
  out = replace_each(out, suffix_pattern(), [](const std::smatch& m) {
    return m[1].str() + "<hash>" + (m[2].matched ? "-<suffix>" : "");
  });
  for (const Replacement& one : replacements()) out = std::regex_replace(out, one.pattern, one.by);
  return out;
}

// Names that a server has made up, wherever they are seen later.
void Normal::learn(const Json& value) {
  if (const JsonArray* list = value.if_array()) {
    for (const Json& item : *list) learn(item);
    return;
  }
  const JsonObject* map = value.if_object();
  if (map == nullptr) return;
  std::string base = str(get_string(value, {"generateName"}));
  std::string name = str(get_string(value, {"name"}));
  if (!base.empty() && name.size() == base.size() + 5 && name.starts_with(base) && !names_.contains(name))
    names_[name] = base + "<generated-" + std::to_string(++generated_) + ">";
  for (const auto& [key, child] : *map) learn(child);
}

Json Normal::walk(const Json& value, std::string_view key, const Json* parent) {
  if (const JsonArray* list = value.if_array()) {
    JsonArray out;
    // Who wrote in the same second is told in order of names, on one server or the other.
    for (const Json& item : key.ends_with("managedFields") ? by_owner(*list) : *list)
      out.push_back(walk(item, key == "clusterIPs" ? "clusterIP" : std::string_view(), nullptr));
    return out;
  }
  if (const JsonObject* map = value.if_object()) {
    JsonObject out;
    for (const auto& [name, child] : *map) out[text(name)] = walk(child, name, &value);
    return out;
  }
  if (key == "nodePort" && value.is_int64()) return "<port>";
  if (!value.is_string()) return value;
  std::string raw = str(as_text(value));
  if (key == "ca.crt") return "<certificate>";
  if (key.ends_with("resourceVersion") && is_number(raw) && raw != "0") {
    // Only an object's own version is compared: a list's depends on what else goes on.
    bool own = key != "resourceVersion" || (parent != nullptr && has(*parent, {"uid"}));
    return Json(own ? named("version", versions_, raw) : std::string("<version>"));
  }
  if (key == "continue" && !raw.empty()) return "<continue>";
  if ((key == "pod-template-hash" || key == "controller-revision-hash") && !raw.empty()) return "<hash>";
  if (key == "clusterIP" && raw != "None" && !raw.empty()) return "<ip>";
  return Json(text(raw));
}

Json Normal::transcript(Json steps) {
  learn(steps);
  return walk(steps, "", nullptr);
}

}  // namespace gpuop::conformance
