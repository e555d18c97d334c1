#include "kube/informer.h"

#include <algorithm>

#include "kube/reflector.h"

namespace gpuop::kube {

std::string object_key(std::string_view ns, std::string_view name) {
  std::string out(ns);
  if (!out.empty()) out += "/";
  out += name;
  return out;
}

std::string object_key(const Json& object) {
  return object_key(get_string(object, {"metadata", "namespace"}), get_string(object, {"metadata", "name"}));
}

std::pair<std::string, std::string> split_key(std::string_view key) {
  const std::size_t slash = key.find('/');
  if (slash == std::string_view::npos) return {"", std::string(key)};
  return {std::string(key.substr(0, slash)), std::string(key.substr(slash + 1))};
}

void when_synced(const std::vector<Informer*>& informers, std::function<void()> ready) {
  auto left = std::make_shared<std::size_t>(informers.size());
  const auto shared = std::make_shared<std::function<void()>>(std::move(ready));
  for (Informer* informer : informers) {
    informer->on_synced([left, shared] {
      if (--*left == 0) (*shared)();
    });
  }
}

// The cache with its handlers; the reflector (reflector.h) feeds it.
struct Informer::Impl : ReflectorSink, std::enable_shared_from_this<Informer::Impl> {
  using Object = std::shared_ptr<const Json>;
  using Cache = std::map<std::string, Kept, std::less<>>;
  using Entry = const Cache::value_type*;
  struct Index {
    std::function<std::vector<std::string>(const Json&)> values;
    std::map<std::string, std::vector<Entry>, std::less<>> entries;  // in key order
  };
  struct Handler {
    Changed call;
    bool primed;  // has been told of what is there
  };

  Impl(Client& client, const Resource& type, InformerOptions options)
      : loop(client.loop()),
        reflector(std::make_shared<Reflector>(client, type, std::move(options), *this)) {}

  void replace(std::map<std::string, Kept> objects) override {
    const auto keep = shared_from_this();
    // Whole objects only one at a time: there may be very many.
    std::vector<std::pair<std::string, Kept>> changes;  // what it was before
    for (auto it = cache.begin(); it != cache.end();) {
      const auto next = std::next(it);
      if (!objects.contains(it->first)) {
        const Object old = it->second.get();
        unindex(it, *old);
        changes.emplace_back(it->first, std::move(it->second));
        cache.erase(it);
      }
      it = next;
    }
    for (auto& [key, object] : objects) {
      const auto [it, fresh] = cache.try_emplace(key);
      const Object old = it->second.get(), now = object.get();
      if (old && version_of(*old) == version_of(*now)) continue;
      if (old) unindex(it, *old);
      std::swap(it->second, object);
      index(it, *now);
      changes.emplace_back(key, std::move(object));
    }
    objects.clear();
    for (const auto& [key, before] : changes) {
      const auto found = cache.find(key);
      notify(before.get(), found == cache.end() ? nullptr : found->second.get());
      if (stopped) return;
    }
    if (stopped || is_synced) return;
    is_synced = true;
    for (auto& call : std::exchange(sync_waiters, {})) {
      if (!stopped) call();
    }
  }

  void upsert(std::string key, Kept object) override {
    const auto keep = shared_from_this();
    const auto it = cache.try_emplace(std::move(key)).first;
    const Object old = it->second.get(), now = object.get();
    if (old) unindex(it, *old);
    it->second = std::move(object);
    index(it, *now);
    notify(old, now);
  }

  void removed(const std::string& key) override {
    const auto keep = shared_from_this();
    const auto found = cache.find(key);
    if (found == cache.end()) return;
    const Object old = found->second.get();
    unindex(found, *old);
    cache.erase(found);
    notify(old, nullptr);
  }

  static std::string_view version_of(const Json& object) {
    return get_string(object, {"metadata", "resourceVersion"});
  }

  static std::vector<Entry>::iterator place_of(std::vector<Entry>& entries, const std::string& key) {
    return std::ranges::lower_bound(entries, key, {},
                                    [](Entry entry) -> const auto& { return entry->first; });
  }

  void index(Cache::iterator it, const Json& object) {
    for (auto& [name, index] : indices) {
      for (const std::string& value : index.values(object)) {
        auto& entries = index.entries[value];
        const auto place = place_of(entries, it->first);
        if (place == entries.end() || *place != &*it) entries.insert(place, &*it);
      }
    }
  }

  void unindex(Cache::iterator it, const Json& object) {
    for (auto& [name, index] : indices) {
      for (const std::string& value : index.values(object)) {
        const auto found = index.entries.find(value);
        if (found == index.entries.end()) continue;
        const auto place = place_of(found->second, it->first);
        if (place != found->second.end() && *place == &*it) found->second.erase(place);
        if (found->second.empty()) index.entries.erase(found);
      }
    }
  }

  void notify(const Object& old, const Object& now) {
    // By number: a handler may add another.
    for (std::size_t i = 0; i < handlers.size() && !stopped; ++i) {
      const std::shared_ptr<Handler> handler = handlers[i];
      if (handler->primed) handler->call(old, now);
    }
  }

  void prime(const std::shared_ptr<Handler>& handler) {
    if (stopped || handler->primed) return;
    handler->primed = true;
    if (!is_synced) return;  // it will hear of everything with the others
    std::vector<std::string> keys;
    keys.reserve(cache.size());
    for (const auto& [key, object] : cache) keys.push_back(key);
    for (const std::string& key : keys) {
      if (stopped) return;
      if (const auto found = cache.find(key); found != cache.end())
        handler->call(nullptr, found->second.get());
    }
  }

  Loop& loop;
  std::shared_ptr<Reflector> reflector;
  Cache cache;
  std::map<std::string, Index, std::less<>> indices;
  std::vector<std::shared_ptr<Handler>> handlers;
  std::vector<std::function<void()>> sync_waiters;
  bool is_synced = false;
  bool stopped = false;
};

Informer::Informer(Client& client, Resource type, InformerOptions options)
    : impl_(std::make_shared<Impl>(client, type, std::move(options))) {}

Informer::~Informer() {
  impl_->stopped = true;
  impl_->sync_waiters.clear();
  impl_->reflector->stop();
}

void Informer::on_change(Changed handler) {
  auto entry = std::make_shared<Impl::Handler>(std::move(handler), !impl_->is_synced);
  impl_->handlers.push_back(entry);
  if (entry->primed) return;
  impl_->loop.post([weak = std::weak_ptr(impl_), entry] {
    if (const auto self = weak.lock()) self->prime(entry);
  });
}

void Informer::start() {
  impl_->reflector->start();
}
bool Informer::synced() const {
  return impl_->is_synced;
}

void Informer::on_synced(std::function<void()> synced) {
  if (!impl_->is_synced) {
    impl_->sync_waiters.push_back(std::move(synced));
    return;
  }
  impl_->loop.post([weak = std::weak_ptr(impl_), synced = std::move(synced)] {
    const auto self = weak.lock();
    if (self && !self->stopped) synced();
  });
}

std::shared_ptr<const Json> Informer::get(std::string_view key) const {
  const auto found = impl_->cache.find(key);
  return found == impl_->cache.end() ? nullptr : found->second.get();
}

void Informer::for_each(const std::function<void(const std::shared_ptr<const Json>&)>& visit) const {
  for (const auto& [key, object] : impl_->cache) visit(object.get());
}

std::size_t Informer::size() const {
  return impl_->cache.size();
}

void Informer::add_index(std::string name, std::function<std::vector<std::string>(const Json&)> values) {
  impl_->indices[std::move(name)].values = std::move(values);
}

std::vector<std::shared_ptr<const Json>> Informer::by_index(std::string_view name, std::string_view value,
                                                            std::size_t most) const {
  std::vector<std::shared_ptr<const Json>> out;
  const auto index = impl_->indices.find(name);
  if (index == impl_->indices.end()) return out;
  const auto entry = index->second.entries.find(value);
  if (entry == index->second.entries.end()) return out;
  const std::size_t count = std::min(most, entry->second.size());
  out.reserve(count);
  for (std::size_t i = 0; i < count; ++i) out.push_back(entry->second[i]->second.get());
  return out;
}

std::vector<std::string> Informer::index_values(std::string_view name, std::string_view prefix) const {
  std::vector<std::string> out;
  const auto index = impl_->indices.find(name);
  if (index == impl_->indices.end()) return out;
  const auto& entries = index->second.entries;
  for (auto at = entries.lower_bound(prefix); at != entries.end() && at->first.starts_with(prefix); ++at)
    out.push_back(at->first);
  return out;
}

int Informer::lists() const {
  return impl_->reflector->lists();
}
int Informer::watches() const {
  return impl_->reflector->watches();
}
const std::string& Informer::fault() const {
  return impl_->reflector->fault();
}

}  // namespace gpuop::kube
