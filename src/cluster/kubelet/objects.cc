#include "cluster/kubelet/objects.h"

#include "kube/informer.h"

namespace gpuop::cluster {

namespace {

std::string cache_key(ObjectKind kind, const std::string& ns, const std::string& name) {
  return (kind == ObjectKind::kSecret ? "s/" : "c/") + ns + "/" + name;
}

}  // namespace

struct ObjectCache::Impl : std::enable_shared_from_this<ObjectCache::Impl> {
  struct Entry {
    std::unique_ptr<kube::Informer> informer;
    std::map<std::uint64_t, std::function<void()>> watchers;
  };
  explicit Impl(kube::Client& c) : client(c) {}

  void tell(const std::string& key) {
    const auto entry = entries.find(key);
    if (entry == entries.end()) return;
    std::vector<std::uint64_t> ids;
    for (const auto& [id, changed] : entry->second.watchers) ids.push_back(id);
    // One watcher may drop itself, another, or all of them: each is looked up when its turn comes.
    for (const std::uint64_t id : ids) call(key, id);
  }

  void call(const std::string& key, std::uint64_t id) {
    const auto entry = entries.find(key);
    if (entry == entries.end()) return;
    const auto watcher = entry->second.watchers.find(id);
    if (watcher == entry->second.watchers.end()) return;
    const auto changed = watcher->second;
    changed();
  }

  void release(const std::string& key, std::uint64_t id) {
    const auto entry = entries.find(key);
    if (entry == entries.end()) return;
    entry->second.watchers.erase(id);
    if (!entry->second.watchers.empty()) return;
    // The informer may be the one that is calling: end it on a later turn, unless somebody came meanwhile.
    client.loop().post([weak = weak_from_this(), key] {
      const auto self = weak.lock();
      if (!self) return;
      const auto idle = self->entries.find(key);
      if (idle != self->entries.end() && idle->second.watchers.empty()) self->entries.erase(idle);
    });
  }

  kube::Client& client;
  std::map<std::string, Entry> entries;
  std::uint64_t next = 1;
};

ObjectCache::ObjectCache(kube::Client& client) : impl_(std::make_shared<Impl>(client)) {}
ObjectCache::~ObjectCache() = default;

Handle ObjectCache::watch(ObjectKind kind, const std::string& ns, const std::string& name,
                          std::function<void()> changed) {
  const std::string key = cache_key(kind, ns, name);
  auto& entry = impl_->entries[key];
  const std::uint64_t id = impl_->next++;
  std::weak_ptr<Impl> weak = impl_;
  if (!entry.informer) {
    entry.informer = std::make_unique<kube::Informer>(
        impl_->client, kind == ObjectKind::kSecret ? kube::kSecrets : kube::kConfigMaps,
        kube::InformerOptions{
            .ns = ns, .label_selector = {}, .field_selector = "metadata.name=" + name, .keep = {"*"}});
    entry.informer->on_change([weak, key](const auto&, const auto&) {
      const auto self = weak.lock();
      if (!self) return;
      const auto found = self->entries.find(key);
      if (found != self->entries.end() && found->second.informer->synced()) self->tell(key);
    });
    entry.informer->on_synced([weak, key] {
      if (const auto self = weak.lock()) self->tell(key);
    });
    entry.informer->start();
  } else if (entry.informer->synced()) {
    impl_->client.loop().post([weak, key, id] {
      if (const auto self = weak.lock()) self->call(key, id);
    });
  }
  entry.watchers[id] = std::move(changed);
  return Handle([weak, key, id] {
    if (const auto self = weak.lock()) self->release(key, id);
  });
}

ObjectView ObjectCache::get(ObjectKind kind, const std::string& ns, const std::string& name) const {
  const auto entry = impl_->entries.find(cache_key(kind, ns, name));
  if (entry == impl_->entries.end() || !entry->second.informer->synced()) return {};
  return {true, entry->second.informer->get(kube::object_key(ns, name))};
}

std::size_t ObjectCache::size() const {
  return impl_->entries.size();
}

}  // namespace gpuop::cluster
