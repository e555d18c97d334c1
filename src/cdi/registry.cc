#include "cdi/registry.h"

#include <algorithm>
#include <set>

#include "base/files.h"
#include "base/text.h"

namespace gpuop::cdi {

std::vector<fs::path> default_spec_dirs() {
  return {"/etc/cdi", "/var/run/cdi"};
}

Registry Registry::load(const std::vector<fs::path>& dirs) {
  Registry registry;
  registry.dirs_ = dirs;
  for (std::size_t priority = 0; priority < dirs.size(); ++priority) {
    auto names = list_dir(dirs[priority]);
    if (!names) {
      if (names.error().code() != Code::kNotFound)
        registry.errors_[dirs[priority].string()].push_back(names.error().text());
      continue;
    }
    for (const auto& name : *names) {
      fs::path file = dirs[priority] / name;
      if (file.extension() != ".json" && file.extension() != ".yaml") continue;
      std::error_code error;
      if (fs::is_directory(file, error)) continue;
      auto spec = read_spec(file);
      if (spec) {
        registry.add(std::move(*spec), file, priority);
      } else {
        registry.errors_[file.string()].push_back(spec.error().text());
      }
    }
  }
  registry.drop_conflicts();
  return registry;
}

Registry Registry::of(std::vector<Spec> specs) {
  Registry registry;
  for (auto& spec : specs) registry.add(std::move(spec), {}, 0);
  registry.drop_conflicts();
  return registry;
}

void Registry::add(Spec spec, fs::path file, std::size_t priority) {
  specs_.push_back({std::move(spec), std::move(file)});
  std::size_t index = specs_.size() - 1;
  const Spec& added = specs_.back().spec;
  for (std::size_t i = 0; i < added.devices.size(); ++i) {
    std::string name = added.qualified(added.devices[i]);
    auto [it, fresh] = devices_.try_emplace(name, Entry{index, i, priority});
    if (fresh) continue;
    if (it->second.priority == priority) {
      conflicts_[name] = priority;
      for (std::size_t spec_index : {it->second.spec, index}) {
        errors_[specs_[spec_index].file.string()].push_back("conflicting device \"" + name + "\" (specs " +
                                                            specs_[it->second.spec].file.string() + ", " +
                                                            specs_[index].file.string() + ")");
      }
    } else {
      it->second = Entry{index, i, priority};
    }
  }
}

void Registry::drop_conflicts() {
  for (const auto& [name, priority] : conflicts_) {
    // A spec of higher priority that came later settles the matter.
    if (devices_.at(name).priority == priority) devices_.erase(name);
  }
}

std::vector<std::string> Registry::device_names() const {
  std::vector<std::string> names;
  for (const auto& [name, entry] : devices_) names.push_back(name);
  return names;
}

bool Registry::has(std::string_view qualified) const {
  return devices_.find(qualified) != devices_.end();
}

fs::path Registry::file_of(std::string_view qualified) const {
  auto it = devices_.find(qualified);
  return it == devices_.end() ? fs::path() : specs_[it->second.spec].file;
}

Result<Edits> Registry::edits_for(const std::vector<std::string>& qualified) const {
  std::vector<std::string> unknown;
  for (const auto& name : qualified) {
    if (!has(name)) unknown.push_back(name);
  }
  if (!unknown.empty()) return fail(Code::kNotFound, "unresolvable CDI devices " + join(unknown, ", "));
  Edits edits;
  std::set<std::size_t> met;
  for (const auto& name : qualified) {
    const Entry& entry = devices_.find(name)->second;
    const Spec& spec = specs_[entry.spec].spec;
    if (met.insert(entry.spec).second) edits.append(spec.edits);
    edits.append(spec.devices[entry.device].edits);
  }
  return edits;
}

Result<> Registry::inject(Json& oci, const std::vector<std::string>& qualified) const {
  Edits edits = TRY(edits_for(qualified));
  Json changed = oci;
  TRY_IN(apply(changed, edits), "inject CDI devices");
  oci = std::move(changed);
  return {};
}

namespace {

bool is_alnum(char c) {
  return isalnum(static_cast<unsigned char>(c)) != 0;
}

}  // namespace

Result<> annotate(Annotations& annotations, std::string_view plugin, std::string_view device_id,
                  const std::vector<std::string>& qualified) {
  auto doing = "annotate CDI devices of plugin '" + std::string(plugin) + "'";
  if (plugin.empty()) return fail(Code::kInvalid, doing + ": the plugin's name is empty");
  if (device_id.empty()) return fail(Code::kInvalid, doing + ": the device id is empty");
  std::string name = std::string(plugin) + "_" + replace_all(std::string(device_id), "/", "_");
  bool inner =
      std::ranges::all_of(name, [](char c) { return is_alnum(c) || c == '_' || c == '-' || c == '.'; });
  if (name.size() > 63 || !is_alnum(name.front()) || !is_alnum(name.back()) || !inner) {
    return fail(Code::kInvalid, doing + ": invalid annotation key '" + name + "'");
  }
  for (const auto& device : qualified) TRY_IN(parse_qualified_name(device), doing);
  std::string key = "cdi.k8s.io/" + name;
  if (annotations.contains(key))
    return fail(Code::kExists, doing + ": annotation '" + key + "' is there already");
  annotations.emplace(key, join(qualified, ","));
  return {};
}

}  // namespace gpuop::cdi
