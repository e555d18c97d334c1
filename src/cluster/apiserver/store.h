// Objects in memory: one version counter, immutable objects, a history per collection for watches and for
// lists of the past (kubernetes-api.md §6, §7). With a journal every change is also on the disk (journal.h).
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
#include "base/result.h"
#include "base/time.h"
#include "cluster/apiserver/journal.h"

namespace gpuop::cluster::api {

class Object;

// Objects whose value was read lately. A value takes several times the memory of its text, so most objects
// have only the text; a value is made from it when somebody asks, and dropped again when others were asked
// for since.
class HotValues {
 public:
  // Values of so many bytes of text are kept.
  explicit HotValues(std::size_t limit) : limit_(limit) {}
  void add(const Object& object);
  bool full() const { return bytes_ > limit_; }
  // Drops the oldest. Only where nobody holds a reference to a value: at the top of a loop's turn.
  void trim();

 private:
  std::size_t limit_;
  std::size_t bytes_ = 0;
  std::deque<std::pair<std::weak_ptr<const Object>, std::size_t>> objects_;
};

// A stored object. Never changes; its text is made once and shared.
class Object : public std::enable_shared_from_this<Object> {
 public:
  Object(Json value, std::uint64_t version) : value_(std::move(value)), version_(version) {}
  // From a stored text.
  Object(std::string_view text, std::uint64_t version, std::string_view node, std::shared_ptr<HotValues> hot);

  // Stays where it is until HotValues::trim.
  const Json& value() const;
  // The value for one look, not kept when it was not there before.
  class Look {
   public:
    const Json& operator*() const { return *at_; }

   private:
    friend class Object;
    std::optional<Json> own_;
    const Json* at_ = nullptr;
  };
  void look(Look& into) const;
  std::uint64_t version() const { return version_; }
  const std::string& text() const;
  // spec.nodeName.
  std::string_view node() const;
  // Whether apiVersion is `text`; needs no value.
  bool has_api_version(std::string_view text) const;
  // Keeps the value in `hot` from now on, and no longer than that.
  void cool(std::shared_ptr<HotValues> hot) const;

 private:
  friend class HotValues;
  mutable std::optional<Json> value_;
  std::uint64_t version_;
  mutable std::string text_;
  std::string node_;  // only where there was no value at first
  mutable std::shared_ptr<HotValues> hot_;
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
  // The objects that a route carries, in key order; every object for "". Cheap but for the last: no object is
  // looked into.
  void visit(const std::string& route,
             const std::function<void(const std::string&, const ObjectPtr&)>& work) const;
  ObjectPtr get(std::string_view key) const;
  // The objects that existed at `version`; nullopt when that is compacted.
  std::optional<Objects> at(std::uint64_t version) const;
  bool compacted(std::uint64_t version) const { return version < compacted_; }
  std::uint64_t oldest() const { return compacted_; }
  std::uint64_t newest() const { return newest_; }
  // Calls `visit` for each change after `version`, oldest first, until it answers false.
  void since(std::uint64_t version, const std::function<bool(const Change&)>& visit) const;
  // How many changes came after `version`.
  std::size_t count_since(std::uint64_t version) const;

  // `route`: "" for everything, "name=x" or "node=x".
  void listen(const std::shared_ptr<Listener>& listener, const std::string& route);
  void forget(const Listener* listener, const std::string& route);
  // Copies; used to end them all.
  std::vector<std::shared_ptr<Listener>> listeners() const;

 private:
  friend class Store;
  void tell(const Change& change);
  void index(const std::string& key, const ObjectPtr& old, const ObjectPtr& now);
  void visit_named(std::string_view name,
                   const std::function<void(const std::string&, const ObjectPtr&)>& work) const;

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
  explicit Store(std::size_t history_events);

  // Reads what the files hold and keeps every change there from now on. Only for a store that is empty.
  // Errors are Journal::open's.
  Result<> open(JournalOptions options);
  // `work` is called with the first change after each commit, before anybody hears of it.
  void on_pending(std::function<void()> work) { on_pending_ = std::move(work); }
  // Changes that are not on the disk yet: nothing of them may be seen outside.
  bool pending() const { return journal_ && journal_->pending(); }
  // Puts them on the disk. After an error they are undone, every one.
  Result<> commit();
  // Fails while the last commit did, unless the disk works again.
  Result<> writable();
  // A snapshot in steps of about a MiB, each a moment's work.
  bool wants_snapshot() const { return journal_ && (journal_->in_snapshot() || journal_->wants_snapshot()); }
  Result<> snapshot_step();

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
  HotValues& hot() { return *hot_; }

 private:
  struct Undo {
    Collection* in;
    Change change;
  };
  struct Snapshot;
  void record(const std::string& name, Collection& in, Change change);
  void keep_history(Collection& in, Change change);
  void note(JournalRecord::Kind kind, const std::string& name, const Change& change);
  void replay(const JournalRecord& record, bool live);
  void undo();

  std::size_t history_events_;
  std::uint64_t version_ = 1;
  std::uint64_t compacted_ = 0;
  std::map<std::string, std::unique_ptr<Collection>, std::less<>> collections_;
  std::shared_ptr<HotValues> hot_;
  std::unique_ptr<Journal> journal_;
  std::uint64_t durable_ = 1;  // the version that a restart would find
  std::vector<Undo> undo_;     // changes since the last commit, oldest first
  std::function<void()> on_pending_;
  std::shared_ptr<Snapshot> snapshot_;
};

// "ns/name" or "name".
std::string make_key(std::string_view ns, std::string_view name);

}  // namespace gpuop::cluster::api
