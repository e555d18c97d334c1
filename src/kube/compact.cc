#include "kube/compact.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace gpuop::kube {
namespace {

// What follows is a count or a number in groups of seven bits, and then what is said here. No text begins
// like that, so that a key is never taken for a value.
enum class Tag : unsigned char {
  kNull = 0xf6,
  kFalse,
  kTrue,
  kInt,     // nothing: the number is it, with the sign in the lowest bit
  kUint,    // nothing
  kDouble,  // eight bytes instead of a number
  kText,    // so many bytes
  kObject,  // so many pairs of a part's number and a value
  kArray,   // so many values
  kPart,    // nothing: a value that is a part
};

// Less is not worth an entry of the table.
constexpr std::size_t kLeastPart = 6;
constexpr std::size_t kSeen = 1u << 14;

void put_number(std::string& out, std::uint64_t number) {
  while (number >= 0x80) {
    out += static_cast<char>((number & 0x7f) | 0x80);
    number >>= 7;
  }
  out += static_cast<char>(number);
}

std::uint64_t take_number(const char*& at) {
  std::uint64_t out = 0;
  for (unsigned shift = 0;; shift += 7) {
    const auto byte = static_cast<unsigned char>(*at++);
    out |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return out;
  }
}

std::uint32_t take_id(const char*& at) {
  return static_cast<std::uint32_t>(take_number(at));
}

std::string_view take(const char*& at, std::size_t count) {
  at += count;
  return {at - count, count};
}

Tag take_tag(const char*& at) {
  return static_cast<Tag>(static_cast<unsigned char>(*at++));
}

// Texts that no two objects have in common, although one object comes again and again with them.
bool is_unique(std::string_view key) {
  return key == "name" || key == "uid" || key == "resourceVersion";
}

}  // namespace

std::uint32_t PartsTable::share(std::string_view bytes, bool always, bool& is_new) {
  is_new = false;
  if (const auto found = ids_.find(bytes); found != ids_.end()) {
    ++parts_[found->second]->uses;
    return found->second;
  }
  if (!always) {
    const auto hash = static_cast<std::uint32_t>(std::hash<std::string_view>{}(bytes)) | 1u;
    if (seen_.empty()) seen_.resize(kSeen);
    auto& seen = seen_[(hash >> 1) % kSeen];
    if (std::exchange(seen, hash) != hash) return 0;
  }
  auto part = std::make_unique<Part>(Part{std::string(bytes), 1});
  std::uint32_t id = 0;
  if (free_.empty()) {
    if (parts_.empty()) parts_.emplace_back();
    id = static_cast<std::uint32_t>(parts_.size());
    parts_.emplace_back();
    free_.reserve(parts_.size());
  } else {
    id = free_.back();
    free_.pop_back();
  }
  ids_.emplace(part->bytes, id);
  parts_[id] = std::move(part);
  is_new = true;
  return id;
}

void PartsTable::release(std::uint32_t id) {
  if (--parts_[id]->uses > 0) return;
  ids_.erase(parts_[id]->bytes);
  parts_[id].reset();
  free_.push_back(id);
}

class Compact::Writer {
 public:
  explicit Writer(PartsTable& table) : table_(table) {}

  void put(const Json& value, bool alone) {
    switch (value.kind()) {
      case boost::json::kind::null:
        return tag(Tag::kNull);
      case boost::json::kind::bool_:
        return tag(value.get_bool() ? Tag::kTrue : Tag::kFalse);
      case boost::json::kind::int64: {
        const auto number = static_cast<std::uint64_t>(value.get_int64());
        return numbered(Tag::kInt, (number << 1) ^ (0 - (number >> 63)));
      }
      case boost::json::kind::uint64:
        return numbered(Tag::kUint, value.get_uint64());
      case boost::json::kind::double_: {
        const auto bits = std::bit_cast<std::uint64_t>(value.get_double());
        tag(Tag::kDouble);
        out.append(reinterpret_cast<const char*>(&bits), sizeof bits);
        return;
      }
      case boost::json::kind::string: {
        const std::size_t from = out.size();
        numbered(Tag::kText, value.get_string().size());
        out += std::string_view(value.get_string());
        if (!alone) share(from);
        return;
      }
      case boost::json::kind::array: {
        const std::size_t from = out.size();
        numbered(Tag::kArray, value.get_array().size());
        for (const Json& item : value.get_array()) put(item, false);
        return share(from);
      }
      case boost::json::kind::object: {
        const std::size_t from = out.size();
        numbered(Tag::kObject, value.get_object().size());
        for (const auto& [key, item] : value.get_object()) {
          bool is_new = false;
          put_number(out, table_.share(key, true, is_new));
          put(item, is_unique(key));
        }
        return share(from);
      }
    }
  }

  std::string out;

 private:
  void tag(Tag tag) { out += static_cast<char>(tag); }
  void numbered(Tag what, std::uint64_t number) {
    tag(what);
    put_number(out, number);
  }
  // What was written since `from` becomes a part, where others have it too.
  void share(std::size_t from) {
    const std::string_view written = std::string_view(out).substr(from);
    if (written.size() < kLeastPart) return;
    bool is_new = false;
    const std::uint32_t id = table_.share(written, false, is_new);
    if (id == 0) return;
    // The part that is there uses its own parts.
    if (const char* at = written.data(); !is_new) Compact::release(table_, at);
    out.resize(from);
    numbered(Tag::kPart, id);
  }

  PartsTable& table_;
};

Json Compact::read(const PartsTable& table, const char*& at) {
  switch (take_tag(at)) {
    case Tag::kNull:
      return nullptr;
    case Tag::kFalse:
      return false;
    case Tag::kTrue:
      return true;
    case Tag::kInt: {
      const std::uint64_t number = take_number(at);
      return static_cast<std::int64_t>((number >> 1) ^ (0 - (number & 1)));
    }
    case Tag::kUint:
      return take_number(at);
    case Tag::kDouble: {
      double out = 0;
      std::memcpy(&out, take(at, sizeof out).data(), sizeof out);
      return out;
    }
    case Tag::kText:
      return Json(take(at, take_number(at)));
    case Tag::kArray: {
      JsonArray out;
      const std::size_t count = take_number(at);
      out.reserve(count);
      for (std::size_t i = 0; i < count; ++i) out.push_back(read(table, at));
      return out;
    }
    case Tag::kObject: {
      JsonObject out;
      const std::size_t count = take_number(at);
      out.reserve(count);
      for (std::size_t i = 0; i < count; ++i) {
        const std::string_view key = table.bytes_of(take_id(at));
        out.emplace(key, read(table, at));
      }
      return out;
    }
    case Tag::kPart: {
      const char* part = table.bytes_of(take_id(at)).data();
      return read(table, part);
    }
  }
  return nullptr;
}

// Gives back every part that a value uses, and those that these use where nobody else does.
void Compact::release(PartsTable& table, const char*& at) {
  switch (take_tag(at)) {
    case Tag::kNull:
    case Tag::kFalse:
    case Tag::kTrue:
      return;
    case Tag::kInt:
    case Tag::kUint:
      take_number(at);
      return;
    case Tag::kDouble:
      take(at, sizeof(double));
      return;
    case Tag::kText:
      take(at, take_number(at));
      return;
    case Tag::kArray:
      for (std::size_t left = take_number(at); left > 0; --left) release(table, at);
      return;
    case Tag::kObject:
      for (std::size_t left = take_number(at); left > 0; --left) {
        table.release(take_id(at));
        release(table, at);
      }
      return;
    case Tag::kPart: {
      const std::uint32_t id = take_id(at);
      if (table.is_last_use(id)) {
        const char* part = table.bytes_of(id).data();
        release(table, part);
      }
      table.release(id);
      return;
    }
  }
}

Compact::Compact(const Json& value, PartsTable& table) : table_(&table) {
  Writer writer(table);
  writer.put(value, false);
  bytes_ = std::make_unique_for_overwrite<char[]>(writer.out.size());
  std::ranges::copy(writer.out, bytes_.get());
}

Compact::~Compact() {
  if (!bytes_) return;
  const char* at = bytes_.get();
  release(*table_, at);
}

Compact::Compact(Compact&& other) noexcept : bytes_(std::move(other.bytes_)), table_(other.table_) {}

Compact& Compact::operator=(Compact&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  std::swap(table_, other.table_);
  return *this;
}

Json Compact::value() const {
  const char* at = bytes_.get();
  return read(*table_, at);
}

}  // namespace gpuop::kube
