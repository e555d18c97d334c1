#include "cluster/apiserver/store.h"

#include <algorithm>

#include "base/json_arena.h"
#include "kube/object.h"

namespace gpuop::cluster::api {

namespace {

constexpr std::size_t kHotBytes = 8u << 20;
constexpr std::size_t kStoredDepth =
    512;  // deeper than any request may be: the record of owners nests deeper

// What was stored was checked when it came, and its bytes have a checksum.
Json stored_value(std::string_view text) {
  Result<Json> value = parse_json_packed(text, kStoredDepth);
  return value && value->is_object() ? std::move(*value) : Json(JsonObject());
}

void stamp(Json& value, std::uint64_t version) {
  set(value, {"metadata", "resourceVersion"}, Json(std::to_string(version)));
}

}  // namespace

void HotValues::add(const Object& object) {
  std::size_t size = object.text().size();
  objects_.emplace_back(object.weak_from_this(), size);
  bytes_ += size;
}

void HotValues::trim() {
  while (bytes_ > limit_ && !objects_.empty()) {
    auto [object, size] = std::move(objects_.front());
    objects_.pop_front();
    bytes_ -= size;
    if (ObjectPtr alive = object.lock()) alive->value_.reset();
  }
}

Object::Object(std::string_view text, std::uint64_t version, std::string_view node,
               std::shared_ptr<HotValues> hot)
    : version_(version), text_(text), node_(node), hot_(std::move(hot)) {}

const Json& Object::value() const {
  if (!value_) {
    value_ = stored_value(text_);
    if (hot_) hot_->add(*this);
  }
  return *value_;
}

void Object::look(Look& into) const {
  into.own_.reset();
  into.at_ = nullptr;
  if (value_) {
    into.at_ = &*value_;
    return;
  }
  into.own_ = stored_value(text_);
  into.at_ = &*into.own_;
}

const std::string& Object::text() const {
  if (text_.empty()) text_ = to_text(*value_);
  return text_;
}

std::string_view Object::node() const {
  return node_.empty() && value_ ? get_string(*value_, {"spec", "nodeName"}) : std::string_view(node_);
}

bool Object::has_api_version(std::string_view text) const {
  if (value_) return get_string(*value_, {"apiVersion"}) == text;
  // Every stored object begins with it.
  constexpr std::string_view kHead = "{\"apiVersion\":\"";
  std::string_view own = text_;
  if (!own.starts_with(kHead)) return get_string(value(), {"apiVersion"}) == text;
  own.remove_prefix(kHead.size());
  return own.size() > text.size() && own.starts_with(text) && own[text.size()] == '"';
}

void Object::cool(std::shared_ptr<HotValues> hot) const {
  (void)text();
  hot_ = std::move(hot);
  hot_->add(*this);
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
  if (route.starts_with("name=")) return visit_named(std::string_view(route).substr(5), work);
  if (!route.starts_with("node=")) {
    for (const auto& [key, object] : objects_) work(key, object);
    return;
  }
  auto found = by_node_.find(route.substr(5));
  if (found == by_node_.end()) return;
  for (const std::string& key : found->second)
    if (ObjectPtr object = get(key)) work(key, object);
}

void Collection::visit_named(std::string_view name,
                             const std::function<void(const std::string&, const ObjectPtr&)>& work) const {
  // Where there are no namespaces a key is the name, else it ends with it.
  if (const auto found = objects_.find(name); found != objects_.end()) work(found->first, found->second);
  if (objects_.empty() || !objects_.begin()->first.contains('/')) return;
  for (const auto& [key, object] : objects_) {
    if (key.size() > name.size() && key.ends_with(name) && key[key.size() - name.size() - 1] == '/')
      work(key, object);
  }
}

void Collection::index(const std::string& key, const ObjectPtr& old, const ObjectPtr& now) {
  auto node = [](const ObjectPtr& object) { return object ? object->node() : std::string_view(); };
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

namespace {

auto first_after(const std::deque<Change>& history, std::uint64_t version) {
  return std::upper_bound(history.begin(), history.end(), version,
                          [](std::uint64_t v, const Change& change) { return v < change.version; });
}

}  // namespace

void Collection::since(std::uint64_t version, const std::function<bool(const Change&)>& visit) const {
  for (auto at = first_after(history_, version); at != history_.end() && visit(*at);) ++at;
}

std::size_t Collection::count_since(std::uint64_t version) const {
  return static_cast<std::size_t>(history_.end() - first_after(history_, version));
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
  std::string node = "node=" + str(change.now->node());
  std::string before = change.old ? "node=" + str(change.old->node()) : node;
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

Store::Store(std::size_t history_events)
    : history_events_(history_events), hot_(std::make_shared<HotValues>(kHotBytes)) {}

void Store::keep_history(Collection& in, Change change) {
  in.newest_ = change.version;
  in.history_.push_back(std::move(change));
  while (in.history_.size() > history_events_) {
    in.compacted_ = in.history_.front().version;
    in.history_.pop_front();
  }
}

void Store::record(const std::string& name, Collection& in, Change change) {
  // Told from a copy: a listener's own write may grow the history.
  Change told = change;
  if (journal_) {
    bool first = !journal_->pending();
    note(change.deleted ? JournalRecord::Kind::kErase : JournalRecord::Kind::kPut, name, change);
    undo_.push_back({&in, change});
    if (first && on_pending_) on_pending_();
  }
  keep_history(in, std::move(change));
  in.tell(told);
}

ObjectPtr Store::put(const std::string& name, const std::string& key, Json value, Time now) {
  Collection& in = collection(name);
  ++version_;
  stamp(value, version_);
  auto object = std::make_shared<const Object>(std::move(value), version_);
  object->cool(hot_);
  ObjectPtr& slot = in.objects_[key];
  Change change;
  change.version = version_;
  change.key = key;
  change.old = std::exchange(slot, object);
  change.now = object;
  change.at = now;
  in.index(key, change.old, object);
  record(name, in, std::move(change));
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
  auto last = std::make_shared<const Object>(std::move(value), version_);
  last->cool(hot_);
  change.now = last;
  change.deleted = true;
  change.at = now;
  in.objects_.erase(found);
  in.index(key, change.old, nullptr);
  record(name, in, std::move(change));
  return last;
}

void Store::compact() {
  if (journal_) {
    bool first = !journal_->pending();
    journal_->add({.kind = JournalRecord::Kind::kCompact, .version = version_});
    if (first && on_pending_) on_pending_();
  }
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
  all.reserve(collections_.size());
  for (const auto& [name, in] : collections_) all.push_back(name);
  return all;
}

}  // namespace gpuop::cluster::api
