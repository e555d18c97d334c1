// Every transformation of operator.md §5 and operands-driver-validator.md §2, field by field:
// transformations.txt says what is set in the policy and what it makes of the objects.
#include <gtest/gtest.h>

#include "base/text.h"
#include "operator/pod.h"
#include "render_fixture.h"

namespace gpuop::op {
namespace {

std::vector<std::string> names_in(const Json& list, const char* name) {
  std::vector<std::string> out;
  for (const Json& each : list.as_array()) out.push_back(str(as_text(*find(each, {name}))));
  return out;
}

// The cluster of the captures with what the case says of it.
ClusterFacts facts_with(const std::string& text) {
  ClusterFacts facts = facts_of_cases();
  if (trim(text).empty()) return facts;
  const Json words = parse_yaml_one(text, "facts").value().value;
  const auto word = [&words](const char* key) { return str(get_string(words, {key})); };
  if (has(words, {"os"}))
    facts.gpu_nodes = {{"n1", word("os"), word("version"), word("kernel"), word("ostree")}};
  if (has(words, {"runtime"})) facts.runtime = word("runtime");
  facts.openshift_version = word("openshift");
  for (const auto& [name, keys] : get_object(words, {"configMaps"}))
    for (const Json& key : keys.as_array()) facts.config_maps[str(name)].push_back(str(as_text(key)));
  for (const Json& name : get_array(words, {"secrets"})) facts.secrets.insert(str(as_text(name)));
  for (const auto& [name, value] : get_object(words, {"env"})) facts.env[str(name)] = str(as_text(value));
  if (has(words, {"toolkitImages"})) {
    facts.driver_toolkit_images.emplace();
    for (const auto& [version, image] : get_object(words, {"toolkitImages"}))
      (*facts.driver_toolkit_images)[str(version)] = str(as_text(image));
  }
  if (has(words, {"proxy"}))
    facts.proxy = {str(get_string(words, {"proxy", "http"})), str(get_string(words, {"proxy", "https"})),
                   str(get_string(words, {"proxy", "no"})), get_bool(words, {"proxy", "ca"})};
  facts.has_service_monitors = get_bool(words, {"monitors"});
  facts.has_prometheus_rules = get_bool(words, {"monitors"});
  return facts;
}

// Walks "containers/nvidia-driver-ctr/env/A/value": keys of objects, names or numbers of list items; a key in
// quotes may hold slashes; "names" and "mountPaths" are those of a list's items.
std::optional<Json> at_path(const Json& root, std::string_view path) {
  Json here = root;
  while (!path.empty()) {
    std::string key;
    if (path.front() == '"') {
      const std::size_t end = path.find('"', 1);
      key = path.substr(1, end - 1);
      path.remove_prefix(std::min(end + 2, path.size()));
    } else {
      const std::size_t end = path.find('/');
      key = path.substr(0, end);
      path.remove_prefix(end == std::string_view::npos ? path.size() : end + 1);
    }
    if (here.is_object()) {
      const Json* next = find(here, {key});
      if (!next) return std::nullopt;
      here = Json(*next);
    } else if (here.is_array() && key == "names") {
      here = Json(join(names_in(here, "name"), " "));
    } else if (here.is_array() && key == "mountPaths") {
      here = Json(join(names_in(here, "mountPath"), " "));
    } else if (here.is_array()) {
      const Json* next = nullptr;
      const auto number = parse_int(key);
      for (std::size_t i = 0; i < here.as_array().size(); ++i)
        if (get_string(here.as_array()[i], {"name"}) == key ||
            (number && static_cast<std::size_t>(*number) == i))
          next = &here.as_array()[i];
      if (!next) return std::nullopt;
      here = Json(*next);
    } else {
      return std::nullopt;
    }
  }
  return here;
}

struct Case {
  std::string set, facts;
  std::vector<std::string> lines;
};

std::vector<Case> cases() {
  std::vector<Case> out;
  for (const std::string& line :
       split(read_file(fs::path(TEST_DATA) / "transformations.txt").value(), '\n')) {
    if (trim(line).empty() || line.starts_with("#")) continue;
    if (!line.starts_with("> ")) {
      out.at(out.size() - 1).lines.push_back(line);
      continue;
    }
    const std::size_t bar = line.find(" | ");
    out.push_back({line.substr(2, bar == std::string::npos ? bar : bar - 2),
                   bar == std::string::npos ? "" : line.substr(bar + 3),
                   {}});
  }
  return out;
}

const Json* object_of(const Plan& plan, const std::string& kind, const std::string& name) {
  for (const State& state : plan.states)
    for (const Json& object : state.objects)
      if (get_string(object, {"kind"}) == kind && get_string(object, {"metadata", "name"}) == name)
        return &object;
  return nullptr;
}

void check_line(const Plan& plan, const std::string& line) {
  // "error STATE: TEXT"
  if (line.starts_with("error ")) {
    const std::size_t colon = line.find(": ");
    const State* state = find_state(plan, line.substr(6, colon - 6));
    ASSERT_NE(state, nullptr) << line;
    ASSERT_TRUE(state->error) << line;
    EXPECT_NE(state->error->text().find(line.substr(colon + 2)), std::string::npos) << state->error->text();
    return;
  }
  const std::size_t space = line.find(' '), equals = line.find(" = ");
  ASSERT_TRUE(space != std::string::npos && equals != std::string::npos) << line;
  std::string name = line.substr(0, space), kind = "DaemonSet";
  if (const std::size_t slash = name.find('/'); slash != std::string::npos) {
    kind = name.substr(0, slash);
    name = name.substr(slash + 1);
  }
  for (const State& state : plan.states)
    ASSERT_FALSE(state.error) << line << ": " << state.name << ": " << state.error->text();
  const std::string path = space < equals ? std::string(trim(line.substr(space, equals - space))) : "";
  const std::string wanted(trim(line.substr(equals + 3)));
  const Json* object = object_of(plan, kind, name);
  if (path.empty()) {
    EXPECT_EQ(object != nullptr, wanted == "there") << line;
    return;
  }
  ASSERT_NE(object, nullptr) << line;
  // A path of a DaemonSet begins at its pods' spec, with "~" at the object.
  const auto found = path.starts_with("~/") ? at_path(*object, path.substr(2))
                     : kind == "DaemonSet"  ? at_path(pod_spec(*object), path)
                                            : at_path(*object, path);
  if (wanted == "-") {
    EXPECT_FALSE(found.has_value()) << line << ": " << (found ? to_text(*found) : "");
    return;
  }
  ASSERT_TRUE(found.has_value()) << line;
  EXPECT_EQ(to_canonical_text(*found), to_canonical_text(parse_yaml_one(wanted, line).value().value)) << line;
}

TEST(operator_transform, every_field_does_to_the_objects_what_the_specification_says) {
  const Assets assets = load_assets(fs::path(SOURCE_ROOT) / "assets").value();
  std::size_t checked = 0;
  for (const Case& each : cases()) {
    SCOPED_TRACE("policy " + each.set + " cluster " + each.facts);
    const Plan plan = render(policy_with(each.set), facts_with(each.facts), assets);
    for (const std::string& line : each.lines) check_line(plan, line);
    checked += each.lines.size();
  }
  EXPECT_GT(checked, 150u);
}

}  // namespace
}  // namespace gpuop::op
