// The store's side of the disk: what goes to the journal, and back from it.
#include <utility>

#include "base/log.h"
#include "cluster/apiserver/store.h"

namespace gpuop::cluster::api {

namespace {

constexpr std::size_t kSnapshotStep = 1u << 20;  // bytes of text

}  // namespace

// Every object as it was when the snapshot began; the objects never change.
struct Store::Snapshot {
  struct Entry {
    const std::string* collection;  // names of collections stay
    std::string key;
    ObjectPtr object;
  };
  std::vector<Entry> entries;
  std::size_t next = 0;
  std::uint64_t version = 0;
};

Result<> Store::open(JournalOptions options) {
  auto journal = Journal::open(std::move(options),
                               [this](const JournalRecord& record, bool live) { replay(record, live); });
  if (!journal) return fail(std::move(journal).error());
  journal_ = std::move(*journal);
  durable_ = version_;
  return {};
}

void Store::note(JournalRecord::Kind kind, const std::string& name, const Change& change) {
  journal_->add(
      {.kind = kind,
       .version = change.version,
       .at = std::chrono::duration_cast<std::chrono::nanoseconds>(change.at.time_since_epoch()).count(),
       .collection = name,
       .key = change.key,
       .node = change.now->node(),
       .text = change.now->text()});
}

void Store::replay(const JournalRecord& record, bool live) {
  using Kind = JournalRecord::Kind;
  if (record.kind == Kind::kEnd || record.kind == Kind::kCompact) {
    // What was before a snapshot cannot be read any more.
    version_ = std::max(version_, record.version);
    compacted_ = version_;
    for (auto& [name, in] : collections_) {
      in->history_.clear();
      in->compacted_ = in->newest_ = version_;
    }
    return;
  }
  Collection& in = collection(std::string(record.collection));
  auto object = std::make_shared<const Object>(record.text, record.version, record.node, hot_);
  Change change;
  change.key = std::string(record.key);
  if (record.kind == Kind::kPut) {
    // Snapshots come in key order.
    auto slot = in.objects_.try_emplace(in.objects_.end(), change.key);
    change.old = std::exchange(slot->second, object);
  } else if (auto found = in.objects_.find(change.key); found != in.objects_.end()) {
    change.old = found->second;
    in.objects_.erase(found);
  }
  in.index(change.key, change.old, record.kind == Kind::kPut ? object : nullptr);
  if (!live) return;
  version_ = change.version = record.version;
  change.now = std::move(object);
  change.deleted = record.kind == Kind::kErase;
  change.at = Time(std::chrono::duration_cast<Time::duration>(std::chrono::nanoseconds(record.at)));
  if (change.old || !change.deleted) keep_history(in, std::move(change));
}

Result<> Store::commit() {
  if (!pending()) return {};
  Result<> done = journal_->commit();
  if (done) {
    durable_ = version_;
  } else {
    undo();
  }
  undo_.clear();
  return done;
}

void Store::undo() {
  for (auto at = undo_.rbegin(); at != undo_.rend(); ++at) {
    Collection& in = *at->in;
    const Change& change = at->change;
    if (change.old) {
      in.objects_[change.key] = change.old;
    } else {
      in.objects_.erase(change.key);
    }
    in.index(change.key, change.deleted ? nullptr : change.now, change.old);
    if (!in.history_.empty() && in.history_.back().version == change.version) in.history_.pop_back();
    in.newest_ = in.history_.empty() ? in.compacted_ : in.history_.back().version;
  }
  version_ = durable_;
  compacted_ = std::min(compacted_, version_);
  for (auto& [name, in] : collections_) in->compacted_ = std::min(in->compacted_, version_);
}

Result<> Store::writable() {
  return journal_ && !journal_->pending() ? journal_->probe() : Result<>();
}

Result<> Store::snapshot_step() {
  auto step = [this]() -> Result<> {
    if (!snapshot_) {
      TRY(journal_->begin_snapshot());
      snapshot_ = std::make_shared<Snapshot>();
      snapshot_->version = version_;
      snapshot_->entries.reserve(object_count());
      for (const auto& [name, in] : collections_)
        for (const auto& [key, object] : in->objects_) snapshot_->entries.push_back({&name, key, object});
      return {};
    }
    Snapshot& from = *snapshot_;
    for (std::size_t bytes = 0; from.next < from.entries.size() && bytes < kSnapshotStep; ++from.next) {
      Snapshot::Entry& entry = from.entries[from.next];
      TRY(journal_->snapshot({.version = entry.object->version(),
                              .collection = *entry.collection,
                              .key = entry.key,
                              .node = entry.object->node(),
                              .text = entry.object->text()}));
      bytes += entry.object->text().size();
      entry.object.reset();
    }
    if (from.next < from.entries.size()) return {};
    TRY(journal_->end_snapshot(from.version));
    snapshot_.reset();
    return {};
  };
  if (!snapshot_ && pending()) return {};  // it begins between two commits
  Result<> done = step();
  if (!done) {
    snapshot_.reset();
    journal_->drop_snapshot();
  }
  return done;
}

}  // namespace gpuop::cluster::api
