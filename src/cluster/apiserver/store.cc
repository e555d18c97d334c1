#include "cluster/apiserver/store.h"

#include <algorithm>

#include "kube/object.h"

namespace gpuop::cluster::api {

namespace {

void stamp(Json& value, std::uint64_t version) {
  set(value, {"metadata", "resourceVersion"}, Json(std::to_string(version)));
}

}  // namespace

const std::string& Object::text() const {
  if (text_.empty()) text_ = to_text(value_);
  return text_;
}

const ObjectPtr& Change::ceased() const {
  if (!ceased_) {
    Json value = old->value();
    stamp(value, version);
    ceased_ = std::make_shared<const Object>(std::move(value), version);
  }
  return ceased_;
}

std::string make_key(std::string_view ns, std::string_view name) {
  std::string key;
  key.reserve(ns.size() + name.size() + 1);
  if (!ns.empty()) key.append(ns).push_back('/');
  key.append(name);
  return key;
}

std::string Collection::route_of(std::string_view field, const Json& object) {
  if (field == "name") return "name=" + str(get_string(object, {"metadata", "name"}));
  return "node=" + str(get_string(object, {"spec", "nodeName"}));
}

ObjectPtr Collection::get(std::string_view key) const {
  auto found = objects_.find(key);
  return found == objects_.end() ? nullptr : found->second;
}

void Collection::visit(const std::string& route,
                       const std::function<void(const std::string&, const ObjectPtr&)>& work) const {
  if (!route.starts_with("node=")) {
    for (const auto& [key, object] : objects_) work(key, object);
    return;
  }
  auto found = by_node_.find(route.substr(5));
  if (found == by_node_.end()) return;
  for (const std::string& key : found->second)
    if (ObjectPtr object = get(key)) work(key, object);
}

void Collection::index(const std::string& key, const ObjectPtr& old, const ObjectPtr& now) {
  auto node = [](const ObjectPtr& object) {
    return object ? get_string(object->value(), {"spec", "nodeName"}) : std::string_view();
  };
  std::string_view before = node(old);
  std::string_view after = node(now);
  if (before == after) return;
  if (!before.empty()) {
    auto found = by_node_.find(str(before));
    if (found != by_node_.end() && found->second.erase(key) > 0 && found->second.empty())
      by_node_.erase(found);
  }
  if (!after.empty()) by_node_[str(after)].insert(key);
}

std::optional<Collection::Objects> Collection::at(std::uint64_t version) const {
  if (compacted(version)) return std::nullopt;
  Objects past = objects_;
  // Undo what came later, newest first.
  for (auto change = history_.rbegin(); change != history_.rend() && change->version > version; ++change) {
    if (change->old) {
      past[change->key] = change->old;
    } else {
      past.erase(change->key);
    }
  }
  return past;
}

void Collection::since(std::uint64_t version, const std::function<void(const Change&)>& visit) const {
  auto first = std::upper_bound(history_.begin(), history_.end(), version,
                                [](std::uint64_t v, const Change& change) { return v < change.version; });
  for (; first != history_.end(); ++first) visit(*first);
}

void Collection::listen(const std::shared_ptr<Listener>& listener, const std::string& route) {
  listeners_[route].push_back(listener);
}

void Collection::forget(const Listener* listener, const std::string& route) {
  auto found = listeners_.find(route);
  if (found == listeners_.end()) return;
  std::erase_if(found->second, [&](const auto& entry) { return entry.get() == listener; });
  if (found->second.empty()) listeners_.erase(found);
}

std::vector<std::shared_ptr<Listener>> Collection::listeners() const {
  std::vector<std::shared_ptr<Listener>> all;
  for (const auto& [route, entries] : listeners_) all.insert(all.end(), entries.begin(), entries.end());
  return all;
}

void Collection::tell(const Change& change) {
  if (listeners_.empty()) return;
  auto tell_route = [&](const std::string& route) {
    auto found = listeners_.find(route);
    if (found == listeners_.end()) return;
    // A listener may end itself while it is told.
    std::vector<std::shared_ptr<Listener>> copy = found->second;
    for (const auto& listener : copy) listener->changed(change);
  };
  tell_route("");
  if (listeners_.empty()) return;
  tell_route(route_of("name", change.now->value()));
  std::string node = route_of("node", change.now->value());
  std::string before = change.old ? route_of("node", change.old->value()) : node;
  tell_route(node);
  if (before != node) tell_route(before);
}

Collection& Store::collection(const std::string& name) {
  auto found = collections_.find(name);
  if (found == collections_.end()) {
    found = collections_.emplace(name, std::make_unique<Collection>()).first;
    found->second->compacted_ = compacted_;
  }
  return *found->second;
}

const Collection* Store::find(std::string_view name) const {
  auto found = collections_.find(name);
  return found == collections_.end() ? nullptr : found->second.get();
}

void Store::record(Collection& in, Change change) {
  in.newest_ = change.version;
  in.history_.push_back(std::move(change));
  while (in.history_.size() > history_events_) {
    in.compacted_ = in.history_.front().version;
    in.history_.pop_front();
  }
  // Told from a copy: a listener's own write may grow the history.
  Change told = in.history_.empty() ? Change{} : in.history_.back();
  if (told.now) in.tell(told);
}

ObjectPtr Store::put(const std::string& name, const std::string& key, Json value, Time now) {
  Collection& in = collection(name);
  ++version_;
  stamp(value, version_);
  auto object = std::make_shared<const Object>(std::move(value), version_);
  ObjectPtr& slot = in.objects_[key];
  Change change;
  change.version = version_;
  change.key = key;
  change.old = std::exchange(slot, object);
  change.now = object;
  change.at = now;
  in.index(key, change.old, object);
  record(in, std::move(change));
  return object;
}

ObjectPtr Store::erase(const std::string& name, const std::string& key, Time now) {
  Collection& in = collection(name);
  auto found = in.objects_.find(key);
  if (found == in.objects_.end()) return nullptr;
  ++version_;
  Change change;
  change.version = version_;
  change.key = key;
  change.old = found->second;
  Json value = change.old->value();
  stamp(value, version_);
  change.now = std::make_shared<const Object>(std::move(value), version_);
  change.deleted = true;
  change.at = now;
  in.objects_.erase(found);
  in.index(key, change.old, nullptr);
  ObjectPtr last = change.now;
  record(in, std::move(change));
  return last;
}

void Store::compact() {
  compacted_ = version_;
  for (auto& [name, in] : collections_) {
    in->history_.clear();
    in->compacted_ = version_;
  }
}

std::size_t Store::object_count() const {
  std::size_t count = 0;
  for (const auto& [name, in] : collections_) count += in->objects_.size();
  return count;
}

std::vector<std::string> Store::names() const {
  std::vector<std::string> all;
  for (const auto& [name, in] : collections_) all.push_back(name);
  return all;
}

}  // namespace gpuop::cluster::api
