#include <algorithm>

#include "base/text.h"
#include "cluster/hollow/program.h"
#include "configmanager/select.h"
#include "kube/informer.h"
#include "kube/object.h"

namespace gpuop::cluster {
namespace {

constexpr Duration kRetry = 1s;

const Json* find_env(const Json& container, std::string_view name) {
  for (const Json& entry : get_array(container, {"env"})) {
    if (get_string(entry, {"name"}) == name) return &entry;
  }
  return nullptr;
}

std::string env_value(const Json& container, std::string_view name) {
  const Json* entry = find_env(container, name);
  return entry == nullptr ? std::string() : str(get_string(*entry, {"value"}));
}

}  // namespace

std::string mounted_config_map(const Json& pod, std::string_view path) {
  for (const Json& container : get_array(pod, {"spec", "containers"})) {
    for (const Json& mount : get_array(container, {"volumeMounts"})) {
      if (get_string(mount, {"mountPath"}) != path) continue;
      for (const Json& volume : get_array(pod, {"spec", "volumes"})) {
        if (get_string(volume, {"name"}) == get_string(mount, {"name"})) {
          return str(get_string(volume, {"configMap", "name"}));
        }
      }
    }
  }
  return {};
}

struct SelectedConfig::Impl : std::enable_shared_from_this<SelectedConfig::Impl> {
  Impl(Loop& l, kube::Client& c, std::string n, std::string p, std::string o, std::function<void()> f)
      : loop(l), client(c), ns(std::move(n)), pod(std::move(p)), node(std::move(o)), changed(std::move(f)) {}

  void start() {
    call = client.get(kube::kPods, ns, pod, [this](kube::ApiResult<> found) {
      if (!found) {
        timer = loop.after(kRetry, [this] { start(); });
        return;
      }
      begin(*found);
    });
  }

  void begin(const Json& object) {
    const std::string map = mounted_config_map(object, "/available-configs");
    const Json* manager = nullptr;
    for (const Json& container : get_array(object, {"spec", "containers"})) {
      if (find_env(container, "NODE_LABEL") != nullptr) manager = &container;
    }
    if (map.empty() || manager == nullptr) return tell("");
    label = env_value(*manager, "NODE_LABEL");
    fallback = env_value(*manager, "DEFAULT_CONFIG");
    for (const std::string& word : split(env_value(*manager, "FALLBACK_STRATEGIES"), ',')) {
      if (!word.empty()) fallbacks.push_back(word);
    }
    files = follow(kube::kConfigMaps, ns, map, {"data"});
    nodes = follow(kube::kNodes, "", node, {});
  }

  std::unique_ptr<kube::Informer> follow(const kube::Resource& type, const std::string& in,
                                         const std::string& name, std::vector<std::string> keep) {
    kube::InformerOptions options;
    options.ns = in;
    options.field_selector = "metadata.name=" + name;
    options.keep = std::move(keep);
    auto informer = std::make_unique<kube::Informer>(client, type, options);
    informer->on_change([this](const auto&, const auto&) { select(); });
    informer->on_synced([this] { select(); });
    informer->start();
    return informer;
  }

  void select() {
    if (!files || !nodes || !files->synced() || !nodes->synced()) return;
    configmanager::SelectFacts facts;
    const Json* map = nullptr;
    std::shared_ptr<const Json> held;
    files->for_each([&](const auto& object) { held = object; });
    if (held) map = held.get();
    nodes->for_each([&](const auto& object) { facts.label = str(kube::label(*object, label)); });
    if (map != nullptr) {
      for (const auto& [name, text] : get_object(*map, {"data"})) facts.candidates.push_back(str(name));
    }
    const auto chosen = configmanager::select_config(facts, fallback, fallbacks);
    // An unknown label leaves what is in force.
    if (!chosen) return known ? void() : tell("");
    tell(chosen->empty() || map == nullptr ? std::string() : str(get_string(*map, {"data", *chosen})));
  }

  void tell(std::string now) {
    if (known && now == text) return;
    known = true;
    text = std::move(now);
    // The informer that calls may go with its owner.
    loop.post([weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->changed();
    });
  }

  Loop& loop;
  kube::Client& client;
  std::string ns, pod, node;
  std::function<void()> changed;
  std::string label, fallback, text;
  std::vector<std::string> fallbacks;
  bool known = false;
  std::unique_ptr<kube::Informer> files, nodes;
  Handle call, timer;
};

SelectedConfig::SelectedConfig(Loop& loop, kube::Client& client, std::string ns, std::string pod,
                               std::string node, std::function<void()> changed)
    : impl_(std::make_shared<Impl>(loop, client, std::move(ns), std::move(pod), std::move(node),
                                   std::move(changed))) {}
SelectedConfig::~SelectedConfig() = default;
void SelectedConfig::start() {
  impl_->start();
}
const std::string& SelectedConfig::text() const {
  return impl_->text;
}

}  // namespace gpuop::cluster
