#include "cluster/apiserver/journal.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>
#include <map>
#include <optional>
#include <random>

#include "base/crc32c.h"
#include "base/log.h"

namespace gpuop::cluster::api {

namespace {

static_assert(std::endian::native == std::endian::little, "the files are little-endian");

constexpr std::string_view kLogMagic = "gpuopLOG";
constexpr const char* kNewLog = "log.tmp";  // until its header is on the disk
constexpr std::string_view kSnapshotMagic = "gpuopSNP";
constexpr std::uint32_t kFormat = 1;
constexpr std::size_t kFileHeader = 48;
constexpr std::size_t kFrameHeader = 32;
constexpr std::size_t kRecordHeader = 33;
constexpr std::uint64_t kLargestVersion = 1ull << 62;
constexpr std::size_t kLargestFrame = 1u << 30;
constexpr std::size_t kSnapshotFrame = 1u << 20;
constexpr std::size_t kZeros = 1u << 20;
constexpr std::size_t kProbe = 64u << 10;

template <class T>
void put_number(char* at, T number) {
  std::memcpy(at, &number, sizeof number);
}
template <class T>
T number_at(const char* at) {
  T number{};
  std::memcpy(&number, at, sizeof number);
  return number;
}

std::uint64_t padded(std::uint64_t size) {
  return (size + 7) / 8 * 8;
}

std::string numbered(std::string_view stem, std::uint64_t index) {
  char digits[24];
  std::snprintf(digits, sizeof digits, "%08llx", static_cast<unsigned long long>(index));
  return std::string(stem) + digits;
}

std::optional<std::uint64_t> number_of(std::string_view name, std::string_view stem) {
  if (!name.starts_with(stem) || name.size() != stem.size() + 8) return std::nullopt;
  std::uint64_t index = 0;
  for (char c : name.substr(stem.size())) {
    bool digit = c >= '0' && c <= '9';
    if (!digit && (c < 'a' || c > 'f')) return std::nullopt;
    index = index * 16 + static_cast<std::uint64_t>(digit ? c - '0' : c - 'a' + 10);
  }
  return index;
}

struct FileHeader {
  std::uint64_t salt = 0, index = 0, first_frame = 0;
};

std::string header_text(std::string_view magic, const FileHeader& header) {
  std::string text(kFileHeader, '\0');
  std::memcpy(text.data(), magic.data(), magic.size());
  put_number(text.data() + 8, kFormat);
  put_number(text.data() + 16, header.salt);
  put_number(text.data() + 24, header.index);
  put_number(text.data() + 32, header.first_frame);
  put_number(text.data() + 44, crc32c({text.data(), 44}));
  return text;
}

void seal_frame(char* at, std::uint64_t salt, std::uint64_t number, std::string_view content) {
  std::memset(at, 0, kFrameHeader);
  put_number(at, salt);
  put_number(at + 8, number);
  put_number(at + 16, static_cast<std::uint32_t>(content.size()));
  put_number(at + 20, crc32c(content));
  put_number(at + 28, crc32c({at, 28}));
}

struct FrameHeader {
  std::uint64_t number = 0;
  std::uint32_t size = 0, crc = 0;
};

std::optional<FrameHeader> frame_at(const char* at, std::uint64_t salt) {
  if (number_at<std::uint64_t>(at) != salt) return std::nullopt;
  if (number_at<std::uint32_t>(at + 28) != crc32c({at, 28})) return std::nullopt;
  return FrameHeader{number_at<std::uint64_t>(at + 8), number_at<std::uint32_t>(at + 16),
                     number_at<std::uint32_t>(at + 20)};
}

bool all_zero(std::string_view bytes) {
  return bytes.find_first_not_of('\0') == std::string_view::npos;
}

std::unexpected<Error> damaged(const std::string& path, std::uint64_t at, const std::string& what) {
  return fail(Code::kInvalid, "open store: '" + path + "': at byte " + std::to_string(at) + ": " + what +
                                  "; this was damaged after it was written: put a copy of the data folder in "
                                  "its place, or name another folder to start anew");
}

// One file, frame by frame.
class Reader {
 public:
  Reader(StoreFile& file, std::string path) : file_(file), path_(std::move(path)) {}

  Result<FileHeader> header(std::string_view magic, std::uint64_t index) {
    size_ = TRY(file_.size());
    std::string text = TRY(file_.read(0, kFileHeader));
    if (text.size() < kFileHeader || number_at<std::uint32_t>(text.data() + 44) != crc32c({text.data(), 44}))
      return damaged(path_, 0, "its header is damaged");
    if (!std::string_view(text).starts_with(magic)) return damaged(path_, 0, "it is another kind of file");
    if (auto format = number_at<std::uint32_t>(text.data() + 8); format != kFormat)
      return fail(Code::kUnsupported, "open store: '" + path_ + "': written in format " +
                                          std::to_string(format) + "; this program knows format " +
                                          std::to_string(kFormat));
    FileHeader header{number_at<std::uint64_t>(text.data() + 16), number_at<std::uint64_t>(text.data() + 24),
                      number_at<std::uint64_t>(text.data() + 32)};
    if (header.index != index)
      return damaged(path_, 24, "it says that its number is " + std::to_string(header.index));
    salt_ = header.salt;
    next_ = header.first_frame;
    at_ = kFileHeader;
    return header;
  }

  // The content of the next frame; nullopt where no whole one is.
  Result<std::optional<std::string_view>> next() {
    if (at_ + kFrameHeader > size_) return std::nullopt;
    TRY(have(kFrameHeader));
    const char* at = window();
    std::optional<FrameHeader> frame = frame_at(at, salt_);
    if (!frame || frame->number != next_ || frame->size > kLargestFrame ||
        at_ + kFrameHeader + frame->size > size_) {
      why_ = frame && frame->number != next_ ? "a frame has number " + std::to_string(frame->number)
                                             : "no frame begins here";
      return std::nullopt;
    }
    TRY(have(kFrameHeader + frame->size));
    std::string_view content(window() + kFrameHeader, frame->size);
    if (crc32c(content) != frame->crc) {
      why_ = "the content of a frame differs from its checksum";
      return std::nullopt;
    }
    frame_start_ = at_;
    at_ += padded(kFrameHeader + frame->size);
    ++next_;
    return content;
  }

  // Whether a frame stands anywhere after the place where next() stopped.
  Result<bool> later_frame() {
    constexpr std::size_t kStep = 1u << 20;
    for (std::uint64_t from = at_; from < size_; from += kStep) {
      std::string bytes = TRY(file_.read(from, kStep + kFrameHeader));
      if (all_zero(bytes)) continue;
      for (std::size_t i = 0; i + kFrameHeader <= bytes.size() && i < kStep; i += 8) {
        std::optional<FrameHeader> frame = frame_at(bytes.data() + i, salt_);
        if (frame && (from + i > at_ || frame->number != next_)) return true;
      }
    }
    return false;
  }
  Result<bool> only_zeros_left() {
    constexpr std::size_t kStep = 1u << 20;
    for (std::uint64_t from = at_; from < size_; from += kStep)
      if (!all_zero(TRY(file_.read(from, kStep)))) return false;
    return true;
  }

  std::uint64_t at() const { return at_; }
  std::uint64_t frame_start() const { return frame_start_; }
  std::uint64_t size() const { return size_; }
  std::uint64_t next_number() const { return next_; }
  const std::string& why() const { return why_; }

 private:
  // At least `size` bytes from at_ in the buffer, which the caller knows to be in the file.
  Result<> have(std::size_t size) {
    if (at_ >= from_ && at_ + size <= from_ + buffer_.size()) return {};
    from_ = at_;
    buffer_ = TRY(file_.read(at_, std::max<std::size_t>(size, 4u << 20)));
    if (buffer_.size() < size) return damaged(path_, at_, "the file is shorter than it was a moment ago");
    return {};
  }
  const char* window() const { return buffer_.data() + (at_ - from_); }

  StoreFile& file_;
  std::string path_;
  std::string buffer_;
  std::uint64_t from_ = 0, at_ = 0, size_ = 0, salt_ = 0, next_ = 1, frame_start_ = 0;
  std::string why_ = "no frame begins here";
};

}  // namespace

void append_record(std::string& out, const JournalRecord& record) {
  char head[kRecordHeader];
  head[0] = static_cast<char>(record.kind);
  put_number(head + 1, record.version);
  put_number(head + 9, record.at);
  put_number(head + 17, static_cast<std::uint32_t>(record.collection.size()));
  put_number(head + 21, static_cast<std::uint32_t>(record.key.size()));
  put_number(head + 25, static_cast<std::uint32_t>(record.node.size()));
  put_number(head + 29, static_cast<std::uint32_t>(record.text.size()));
  out.append(head, sizeof head);
  for (std::string_view part : {record.collection, record.key, record.node, record.text}) out.append(part);
}

bool take_record(std::string_view& bytes, JournalRecord& record) {
  if (bytes.size() < kRecordHeader) return false;
  const char* at = bytes.data();
  auto kind = static_cast<std::uint8_t>(at[0]);
  if (kind < 1 || kind > 4) return false;
  record.kind = static_cast<JournalRecord::Kind>(kind);
  record.version = number_at<std::uint64_t>(at + 1);
  record.at = number_at<std::int64_t>(at + 9);
  std::size_t sizes[4];
  std::size_t total = kRecordHeader;
  for (std::size_t i = 0; i < 4; ++i) {
    sizes[i] = number_at<std::uint32_t>(at + 17 + 4 * i);
    total += sizes[i];
  }
  if (total > bytes.size()) return false;
  std::size_t from = kRecordHeader;
  std::string_view* parts[] = {&record.collection, &record.key, &record.node, &record.text};
  for (std::size_t i = 0; i < 4; ++i) {
    *parts[i] = bytes.substr(from, sizes[i]);
    from += sizes[i];
  }
  bytes.remove_prefix(total);
  return true;
}

struct Journal::Writer {
  std::unique_ptr<StoreFile> file;
  std::uint64_t salt = 0, index = 0, end = kFileHeader, next_frame = 1;
  std::int64_t objects = 0;
  std::string batch = std::string(kFrameHeader, '\0');
};

Journal::Journal(JournalOptions options) : options_(std::move(options)) {}
Journal::~Journal() = default;

std::uint64_t Journal::next_salt() {
  if (options_.salt != 0)
    return options_.salt = options_.salt * 0x9e3779b97f4a7c15ULL + 0x2545f4914f6cdd1dULL;
  std::random_device device;
  return (static_cast<std::uint64_t>(device()) << 32) ^ device();
}

Result<std::unique_ptr<Journal>> Journal::open(JournalOptions options, const Replay& replay) {
  std::unique_ptr<Journal> journal(new Journal(std::move(options)));
  journal->batch_.assign(kFrameHeader, '\0');
  TRY(journal->load(replay));
  return journal;
}

Result<> Journal::load(const Replay& replay) {
  FileLayer& files = *options_.files;
  std::map<std::uint64_t, std::string> logs, snapshots;
  std::vector<std::string> names = TRY(files.list());
  for (const std::string& name : names) {
    if (auto log = number_of(name, "log-")) logs[*log] = name;
    if (auto snapshot = number_of(name, "snapshot-")) snapshots[*snapshot] = name;
    if (name == "snapshot.tmp" || name == kNewLog) TRY(files.remove(name));
  }
  std::uint64_t first = 1;
  if (!snapshots.empty()) {
    first = snapshots.rbegin()->first;
    snapshot_bytes_ = TRY(read_snapshot(first, replay));
  }
  std::uint64_t last = logs.empty() ? 0 : logs.rbegin()->first;
  if (last < first && (!snapshots.empty() || !logs.empty()))
    return damaged(files.path(numbered("log-", first)), 0, "the file is missing");
  // One that was begun and not used, because the disk or the machine failed; its predecessor may have gone
  // on.
  for (; last > first && logs.contains(last) && TRY(unused_log(logs[last])); --last)
    TRY(files.remove(logs[last]));
  for (std::uint64_t index = first; index <= last; ++index) {
    if (!logs.contains(index)) return damaged(files.path(numbered("log-", index)), 0, "the file is missing");
    TRY(read_log(index, index == last, replay));
  }
  if (log_ == nullptr) TRY(start_log(std::max(first, last)));
  // What a crash kept from being removed.
  for (const auto& [index, name] : snapshots)
    if (index < first) TRY(files.remove(name));
  for (const auto& [index, name] : logs)
    if (index < first) TRY(files.remove(name));
  return {};
}

Result<bool> Journal::unused_log(const std::string& name) {
  std::unique_ptr<StoreFile> file = TRY(options_.files->open(name));
  std::uint64_t size = TRY(file->size());
  if (size < kFileHeader) return false;
  // Frames begin right after the header.
  return all_zero(TRY(file->read(kFileHeader, size - kFileHeader)));
}

Result<std::uint64_t> Journal::read_snapshot(std::uint64_t index, const Replay& replay) {
  std::string name = numbered("snapshot-", index), path = options_.files->path(name);
  std::unique_ptr<StoreFile> file = TRY(options_.files->open(name));
  Reader reader(*file, path);
  FileHeader header = TRY(reader.header(kSnapshotMagic, index));
  std::int64_t objects = 0;
  while (true) {
    std::optional<std::string_view> frame = TRY(reader.next());
    if (!frame) return damaged(path, reader.at(), reader.why());
    std::string_view rest = *frame;
    JournalRecord record;
    while (!rest.empty()) {
      if (!take_record(rest, record)) return damaged(path, reader.frame_start(), "a frame holds no records");
      if (record.kind == JournalRecord::Kind::kEnd) {
        if (record.at != objects || record.version > kLargestVersion)
          return damaged(
              path, reader.frame_start(),
              "it holds " + std::to_string(objects) + " objects, not " + std::to_string(record.at));
        version_ = record.version;
        next_frame_ = header.first_frame;
        replay(record, false);
        return reader.size();
      }
      if (record.kind != JournalRecord::Kind::kPut)
        return damaged(path, reader.frame_start(), "a snapshot holds a change");
      ++objects;
      replay(record, false);
    }
  }
}

Result<> Journal::read_log(std::uint64_t index, bool last, const Replay& replay) {
  std::string name = numbered("log-", index), path = options_.files->path(name);
  std::unique_ptr<StoreFile> file = TRY(options_.files->open(name));
  Reader reader(*file, path);
  // A log gets its name when its header is on the disk: one without a whole header is damaged.
  const FileHeader header = TRY(reader.header(kLogMagic, index));
  if (header.first_frame != next_frame_)
    return damaged(path, 32,
                   "it begins with frame " + std::to_string(header.first_frame) +
                       "; the log before ended with " + std::to_string(next_frame_ - 1));
  index_ = index;
  while (std::optional<std::string_view> frame = TRY(reader.next())) {
    std::string_view rest = *frame;
    JournalRecord record;
    while (!rest.empty()) {
      if (all_zero(rest)) break;  // a probe
      if (!take_record(rest, record) || record.kind == JournalRecord::Kind::kEnd)
        return damaged(path, reader.frame_start(), "a frame holds no changes");
      bool change = record.kind != JournalRecord::Kind::kCompact;
      if (record.version > kLargestVersion || record.version < version_ ||
          (change && record.version == version_))
        return damaged(
            path, reader.frame_start(),
            "version " + std::to_string(record.version) + " comes after version " + std::to_string(version_));
      version_ = record.version;
      replay(record, true);
    }
  }
  if (TRY(reader.later_frame())) return damaged(path, reader.at(), reader.why());
  next_frame_ = reader.next_number();
  if (!last) {
    old_log_bytes_ += reader.at();
    return {};
  }
  log_ = std::move(file);
  salt_ = header.salt;
  end_ = reader.at();
  allocated_ = reader.size();
  if (TRY(reader.only_zeros_left()) && allocated_ >= end_) return {};
  // The rest of a commit that a crash cut short.
  dirty_ = true;
  return repair();
}

Result<> Journal::start_log(std::uint64_t index) {
  FileLayer& files = *options_.files;
  std::string name = numbered("log-", index);
  (void)files.remove(kNewLog);
  std::uint64_t salt = next_salt();
  std::unique_ptr<StoreFile> file;
  auto ready = [&]() -> Result<> {
    file = TRY(files.create(kNewLog));
    TRY(file->write(0, header_text(kLogMagic, {salt, index, next_frame_})));
    TRY(file->sync());
    TRY(files.rename(kNewLog, name));
    TRY(files.sync_dir());
    file = TRY(files.open(name));
    return {};
  }();
  if (!ready) {
    (void)files.remove(kNewLog);
    (void)files.remove(name);
    return ready;
  }
  if (log_ != nullptr) old_log_bytes_ += end_;
  log_ = std::move(file);
  salt_ = salt;
  index_ = index;
  end_ = allocated_ = kFileHeader;
  dirty_ = false;
  return {};
}

void Journal::add(const JournalRecord& record) {
  append_record(batch_, record);
  ++batch_records_;
}

Result<> Journal::make_room(std::uint64_t needed) {
  if (end_ + needed <= allocated_) return {};
  std::uint64_t ahead = options_.ahead_bytes;
  if (ahead == 0) return {};
  std::uint64_t to = (end_ + needed + ahead) / ahead * ahead;
  static const std::string zeros(kZeros, '\0');
  for (std::uint64_t from = std::max(allocated_, end_); from < to; from += kZeros) {
    Result<> wrote =
        log_->write(from, std::string_view(zeros).substr(0, std::min<std::uint64_t>(kZeros, to - from)));
    // A disk that is nearly full may still hold this commit: written without room ahead.
    if (!wrote && wrote.error().code() == Code::kNoSpace) return {};
    if (!wrote) return wrote;
  }
  TRY(log_->sync());
  allocated_ = to;
  return {};
}

Result<> Journal::write_batch() {
  TRY(repair());
  std::string_view content = std::string_view(batch_).substr(kFrameHeader);
  if (content.size() > kLargestFrame) return fail(Code::kInvalid, "too much was written at once");
  seal_frame(batch_.data(), salt_, next_frame_, content);
  std::uint64_t size = padded(batch_.size());
  dirty_ = true;
  TRY(make_room(size));
  TRY(log_->write(end_, batch_));
  TRY(log_->sync());
  dirty_ = false;
  end_ += size;
  allocated_ = std::max(allocated_, end_);
  ++next_frame_;
  return {};
}

Result<> Journal::commit() {
  if (batch_records_ == 0) return {};
  Result<> wrote = write_batch();
  batch_.resize(kFrameHeader);
  if (batch_.capacity() > (8u << 20)) batch_.shrink_to_fit();
  batch_records_ = 0;
  failed_ = !wrote;
  // At once, while a crash has not had time to happen; else before the next commit.
  if (!wrote) {
    if (const auto mended = repair(); !mended)
      log::warn("what was half written stays in the journal until the next commit",
                {{"why", mended.error()}});
  }
  return wrote;
}

Result<> Journal::probe() {
  if (!failed_) return {};
  batch_.resize(kFrameHeader + kProbe, '\0');
  batch_records_ = 1;
  return commit();
}

Result<> Journal::repair() {
  if (!dirty_) return {};
  TRY(log_->truncate(end_));
  TRY(log_->sync());
  allocated_ = end_;
  dirty_ = false;
  return {};
}

bool Journal::wants_snapshot() const {
  return snapshot_ == nullptr && !failed_ &&
         log_bytes() >= std::max({options_.rotate_bytes, snapshot_bytes_, not_before_});
}

Result<> Journal::begin_snapshot() {
  // A failure is not met again with each commit.
  not_before_ = log_bytes() + options_.rotate_bytes / 2;
  TRY(start_log(index_ + 1));
  FileLayer& files = *options_.files;
  auto writer = std::make_unique<Writer>();
  (void)files.remove("snapshot.tmp");
  writer->file = TRY(files.create("snapshot.tmp"));
  writer->salt = next_salt();
  writer->index = index_;
  writer->next_frame = next_frame_;  // where the log goes on
  TRY(writer->file->write(0, header_text(kSnapshotMagic, {writer->salt, writer->index, next_frame_})));
  snapshot_ = std::move(writer);
  return {};
}

Result<> Journal::flush_snapshot() {
  Writer& to = *snapshot_;
  if (to.batch.size() == kFrameHeader) return {};
  seal_frame(to.batch.data(), to.salt, to.next_frame++, std::string_view(to.batch).substr(kFrameHeader));
  TRY(to.file->write(to.end, to.batch));
  to.end += padded(to.batch.size());
  to.batch.resize(kFrameHeader);
  return to.file->sync();
}

Result<> Journal::snapshot(const JournalRecord& record) {
  append_record(snapshot_->batch, record);
  ++snapshot_->objects;
  return snapshot_->batch.size() < kSnapshotFrame ? Result<>() : flush_snapshot();
}

Result<> Journal::end_snapshot(std::uint64_t version) {
  Writer& to = *snapshot_;
  append_record(to.batch, {.kind = JournalRecord::Kind::kEnd, .version = version, .at = to.objects});
  TRY(flush_snapshot());
  FileLayer& files = *options_.files;
  TRY(files.rename("snapshot.tmp", numbered("snapshot-", to.index)));
  TRY(files.sync_dir());
  std::uint64_t index = to.index;
  snapshot_bytes_ = to.end;
  old_log_bytes_ = not_before_ = 0;
  snapshot_.reset();
  // From now on they are not looked at; one that stays is removed at the next start.
  std::vector<std::string> names = TRY(files.list());
  for (const std::string& name : names) {
    std::uint64_t number = number_of(name, "log-").value_or(number_of(name, "snapshot-").value_or(index));
    if (number < index) (void)files.remove(name);
  }
  return {};
}

void Journal::drop_snapshot() {
  snapshot_.reset();
  (void)options_.files->remove("snapshot.tmp");
}

}  // namespace gpuop::cluster::api
