#include <algorithm>

#include "cdigen/generate.h"

namespace gpuop::cdigen {

namespace {

template <class T>
void deduplicate(std::vector<T>& list) {
  std::vector<T> unique;
  for (auto& item : list) {
    if (std::ranges::find(unique, item) == unique.end()) unique.push_back(std::move(item));
  }
  list = std::move(unique);
}

void deduplicate(cdi::Edits& edits) {
  deduplicate(edits.env);
  deduplicate(edits.device_nodes);
  deduplicate(edits.net_devices);
  deduplicate(edits.hooks);
  deduplicate(edits.mounts);
  std::ranges::sort(edits.additional_gids);
  deduplicate(edits.additional_gids);
}

template <class T>
void subtract(std::vector<T>& list, const std::vector<T>& common) {
  std::erase_if(list, [&](const T& item) { return std::ranges::find(common, item) != common.end(); });
}

cdi::Edits without(cdi::Edits edits, const cdi::Edits& common) {
  subtract(edits.env, common.env);
  subtract(edits.device_nodes, common.device_nodes);
  subtract(edits.net_devices, common.net_devices);
  subtract(edits.hooks, common.hooks);
  subtract(edits.mounts, common.mounts);
  subtract(edits.additional_gids, common.additional_gids);
  if (edits.intel_rdt == common.intel_rdt) edits.intel_rdt.reset();
  return edits;
}

auto by_depth(const std::string& path, const std::string& host) {
  return std::make_tuple(std::ranges::count(path, '/'), path, host);
}

void sort(cdi::Edits& edits) {
  std::ranges::stable_sort(edits.device_nodes, {},
                           [](const auto& node) { return by_depth(node.path, node.host_path); });
  std::ranges::stable_sort(edits.mounts, {},
                           [](const auto& mount) { return by_depth(mount.container_path, mount.host_path); });
}

std::string transform_arg(const std::string& arg, std::string_view from, std::string_view to) {
  auto colons = arg.find("::");
  if (colons == std::string::npos) return transform_path(arg, from, to);
  return transform_path(arg.substr(0, colons), from, to) +
         "::" + transform_path(arg.substr(colons + 2), from, to);
}

void transform(cdi::Edits& edits, std::string_view from, std::string_view to, bool host) {
  for (auto& node : edits.device_nodes) {
    if (!host) {
      node.path = transform_path(node.path, from, to);
      continue;
    }
    std::string now = transform_path(node.host_path.empty() ? node.path : node.host_path, from, to);
    node.host_path = now == node.path ? std::string() : now;
  }
  for (auto& mount : edits.mounts) {
    std::string& path = host ? mount.host_path : mount.container_path;
    path = transform_path(path, from, to);
  }
  for (auto& hook : edits.hooks) {
    bool inside = hook.name == "startContainer";
    if (inside != host) hook.path = transform_path(hook.path, from, to);
    bool inside_args = inside || hook.name == "createContainer";
    if (inside_args == host) continue;
    for (auto& arg : hook.args) arg = transform_arg(arg, from, to);
  }
}

}  // namespace

std::string transform_path(std::string_view path, std::string_view from, std::string_view to) {
  while (from.size() > 1 && from.ends_with('/')) from.remove_suffix(1);
  if (from.empty()) from = "/";
  if (from == to || !path.starts_with('/')) return std::string(path);
  std::string_view rest;
  if (from == "/") {
    rest = path;
  } else if (path == from) {
    rest = "";
  } else if (path.starts_with(from) && path[from.size()] == '/') {
    rest = path.substr(from.size());
  } else {
    return std::string(path);
  }
  std::string result = (to == "/" || to.empty() ? std::string() : std::string(to)) + std::string(rest);
  return result.empty() ? "/" : result;
}

void transform_root(cdi::Spec& spec, std::string_view from, std::string_view to, bool host) {
  if (from == to) return;
  transform(spec.edits, from, to, host);
  for (auto& device : spec.devices) transform(device.edits, from, to, host);
}

void simplify(cdi::Spec& spec) {
  deduplicate(spec.edits);
  for (auto& device : spec.devices) {
    deduplicate(device.edits);
    auto rest = without(device.edits, spec.edits);
    if (!rest.empty()) device.edits = std::move(rest);
    sort(device.edits);
  }
  sort(spec.edits);
  std::ranges::stable_sort(spec.devices, {}, &cdi::Device::name);
}

}  // namespace gpuop::cdigen
