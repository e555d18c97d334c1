// Objects in memory: one version counter, immutable objects, a history per collection for watches and for
// lists of the past (kubernetes-api.md §6, §7).
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/json.h"
#include "base/time.h"

namespace gpuop::cluster::api {

// A stored object. Never changes; its text is made once and shared.
class Object {
 public:
  Object(Json value, std::uint64_t version) : value_(std::move(value)), version_(version) {}
  const Json& value() const { return value_; }
  std::uint64_t version() const { return version_; }
  const std::string& text() const;

 private:
  Json value_;
  std::uint64_t version_;
  mutable std::string text_;
};
using ObjectPtr = std::shared_ptr<const Object>;

struct Change {
  std::uint64_t version = 0;
  std::string key;
  ObjectPtr old;  // null: created
  ObjectPtr now;  // for a deletion the last state, at the deletion's version
  bool deleted = false;
  Time at{};
  // The old state as an object that ceased to match is reported: its content at this version.
  const ObjectPtr& ceased() const;

 private:
  mutable ObjectPtr ceased_;
};

// Told of every change of a collection that its route lets through. Routes keep thousands of narrow watches
// cheap: a pod's change reaches the watches of its own node, not those of all.
class Listener {
 public:
  virtual ~Listener() = default;
  virtual void changed(const Change& change) = 0;
  virtual void gone() = 0;  // the collection's type is no longer served
};

class Collection {
 public:
  using Objects = std::map<std::string, ObjectPtr, std::less<>>;

  // How a route value is read from an object: metadata.name and, for pods, spec.nodeName.
  static std::string route_of(std::string_view field, const Json& object);

  const Objects& objects() const { return objects_; }
  // The objects that a route carries, in key order; every object for "". Cheap for "node=x" of pods.
  void visit(const std::string& route,
             const std::function<void(const std::string&, const ObjectPtr&)>& work) const;
  ObjectPtr get(std::string_view key) const;
  // The objects that existed at `version`; nullopt when that is compacted.
  std::optional<Objects> at(std::uint64_t version) const;
  bool compacted(std::uint64_t version) const { return version < compacted_; }
  std::uint64_t oldest() const { return compacted_; }
  std::uint64_t newest() const { return newest_; }
  // Calls `visit` for each change after `version`, oldest first.
  void since(std::uint64_t version, const std::function<void(const Change&)>& visit) const;

  // `route`: "" for everything, "name=x" or "node=x".
  void listen(const std::shared_ptr<Listener>& listener, const std::string& route);
  void forget(const Listener* listener, const std::string& route);
  // Copies; used to end them all.
  std::vector<std::shared_ptr<Listener>> listeners() const;

 private:
  friend class Store;
  void tell(const Change& change);
  void index(const std::string& key, const ObjectPtr& old, const ObjectPtr& now);

  Objects objects_;
  std::unordered_map<std::string, std::set<std::string>>
      by_node_;  // spec.nodeName to keys, where there is one
  std::deque<Change> history_;
  std::uint64_t compacted_ = 0;  // versions before this one cannot be read any more
  std::uint64_t newest_ = 0;
  std::unordered_map<std::string, std::vector<std::shared_ptr<Listener>>> listeners_;
};

class Store {
 public:
  explicit Store(std::size_t history_events) : history_events_(history_events) {}

  std::uint64_t version() const { return version_; }
  Collection& collection(const std::string& name);
  // Null when nothing was ever stored under that name.
  const Collection* find(std::string_view name) const;
  // Puts metadata.resourceVersion into `value` and stores it. Listeners are told before it answers.
  ObjectPtr put(const std::string& name, const std::string& key, Json value, Time now);
  // Removes; the answer is the last state with the deletion's version; null when it was absent.
  ObjectPtr erase(const std::string& name, const std::string& key, Time now);
  void compact();
  std::size_t object_count() const;
  // Every collection's name, sorted.
  std::vector<std::string> names() const;

 private:
  void record(Collection& in, Change change);

  std::size_t history_events_;
  std::uint64_t version_ = 1;
  std::uint64_t compacted_ = 0;
  std::map<std::string, std::unique_ptr<Collection>, std::less<>> collections_;
};

// "ns/name" or "name".
std::string make_key(std::string_view ns, std::string_view name);

}  // namespace gpuop::cluster::api
