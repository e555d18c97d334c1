// The store's files: a log of changes and now and then a snapshot, each with a checksum on everything.
//
//   log-0000000N       header, then one frame a commit; a commit is written and synced before its frame
//   counts snapshot-0000000N  header, then frames with every object as it was when log N began, then an end
//   record
//
// Either gets its name only when its header (a snapshot: all of it) is on the disk; until then it is log.tmp
// or snapshot.tmp, which the next start removes. At the start the newest snapshot is read and every log from
// its number on. What a crash leaves of the last commit is cut off. Anything else that does not fit was
// damaged after it was written, and is refused with the file, the place in it, and what is wrong there:
// frames are numbered through all logs, and frame N + 1 is only written when frame N is on the disk, so a
// damaged frame that has a successor cannot be a torn one.
//
// Numbers are little-endian. File header (48 bytes): magic, u32 format, u32 0, u64 salt, u64 N, u64 number of
// the first frame, u32 0, u32 CRC-32C of what is before. Frame header (32 bytes): the file's salt, u64
// number, u32 size, u32 CRC-32C of the content, u32 0, u32 CRC-32C of the header; frames begin at multiples
// of 8.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "cluster/apiserver/file_layer.h"

namespace gpuop::cluster::api {

struct JournalRecord {
  enum class Kind : std::uint8_t {
    kPut = 1,
    kErase = 2,    // `text` is the last state, at the deletion's version
    kCompact = 3,  // history before `version` is gone
    kEnd = 4,      // of a snapshot: `version` is the store's, `at` the number of objects
  };
  Kind kind = Kind::kPut;
  std::uint64_t version = 0;
  std::int64_t at = 0;  // nanoseconds since 1970
  std::string_view collection, key;
  std::string_view node;  // spec.nodeName, so that the text need not be read at the start
  std::string_view text;  // JSON
};

void append_record(std::string& out, const JournalRecord& record);
// Takes one record off `bytes`; false when they hold no whole one or something that is none.
bool take_record(std::string_view& bytes, JournalRecord& record);

struct JournalOptions {
  std::shared_ptr<FileLayer> files;
  // A snapshot is due when the logs since the last one hold as much as it did, and at least this.
  std::uint64_t rotate_bytes = 64u << 20;
  // Zeros written ahead of the log's end: a sync of bytes that are there already needs no change of the
  // file's metadata, which makes it several times as fast. 0: none.
  std::uint64_t ahead_bytes = 4u << 20;
  std::uint64_t salt = 0;  // 0: from the operating system
};

class Journal {
 public:
  // Called with each record in order; `live`: a change from a log, not an object of the snapshot.
  using Replay = std::function<void(const JournalRecord& record, bool live)>;

  // kInvalid: damaged, or of a format that this program does not know.
  static Result<std::unique_ptr<Journal>> open(JournalOptions options, const Replay& replay);
  ~Journal();

  // Puts a change into the next commit.
  void add(const JournalRecord& record);
  bool pending() const { return batch_records_ > 0; }
  // Writes and syncs what was added. After an error none of it is in the log, or will be after a restart, as
  // far as anything can be written at all; the same records are not tried again.
  Result<> commit();
  // Whether a commit would work, tried with a commit that holds nothing. For use after a failure.
  Result<> probe();
  bool failed() const { return failed_; }

  bool wants_snapshot() const;
  // Begins the next log; every commit until now is for the snapshot to hold. Not while one is pending.
  Result<> begin_snapshot();
  // About one MiB of records at a time reaches the disk.
  Result<> snapshot(const JournalRecord& record);
  // The snapshot takes the place of everything before it.
  Result<> end_snapshot(std::uint64_t version);
  bool in_snapshot() const { return snapshot_ != nullptr; }
  void drop_snapshot();

  std::uint64_t log_bytes() const { return old_log_bytes_ + end_; }

 private:
  struct Writer;
  explicit Journal(JournalOptions options);
  Result<> load(const Replay& replay);
  Result<std::uint64_t> read_snapshot(std::uint64_t index, const Replay& replay);
  Result<bool> unused_log(const std::string& name);
  Result<> read_log(std::uint64_t index, bool last, const Replay& replay);
  Result<> start_log(std::uint64_t index);
  Result<> make_room(std::uint64_t needed);
  Result<> write_batch();
  Result<> repair();
  Result<> flush_snapshot();
  std::uint64_t next_salt();

  JournalOptions options_;
  std::unique_ptr<StoreFile> log_;
  std::uint64_t index_ = 0;           // of the log that is written
  std::uint64_t salt_ = 0;            // its salt
  std::uint64_t end_ = 0;             // where its next frame goes
  std::uint64_t allocated_ = 0;       // up to here it holds zeros after the last frame
  std::uint64_t next_frame_ = 1;      // number of the next frame
  std::uint64_t old_log_bytes_ = 0;   // in logs that no snapshot holds yet, without the last
  std::uint64_t snapshot_bytes_ = 0;  // size of the last snapshot
  std::uint64_t not_before_ = 0;      // size of the logs at which a snapshot is tried again
  std::uint64_t version_ = 0;         // newest version read
  std::string batch_;                 // room for a frame header, then records
  std::size_t batch_records_ = 0;
  bool failed_ = false;  // the last commit did not work
  bool dirty_ = false;   // beyond end_ may stand what must not be read again
  std::unique_ptr<Writer> snapshot_;
};

}  // namespace gpuop::cluster::api
