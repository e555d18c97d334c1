// Objects of collections with many of them, in little memory: what occurs again (keys, texts, whole parts
// such as the status of a pod that is Ready) is kept once for all of them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/json.h"

namespace gpuop::kube {

// The parts that objects share, with a count of who uses each. Not for several threads.
class PartsTable {
 public:
  std::size_t size() const { return ids_.size(); }

 private:
  friend class Compact;
  struct Part {
    std::string bytes;
    std::uint32_t uses = 0;
  };
  // The number of `bytes`, one use of which is the caller's from now on; 0: not worth to be shared, or not
  // seen before. `always`: even so.
  std::uint32_t share(std::string_view bytes, bool always, bool& is_new);
  void release(std::uint32_t id);
  bool is_last_use(std::uint32_t id) const { return parts_[id]->uses == 1; }
  std::string_view bytes_of(std::uint32_t id) const { return parts_[id]->bytes; }

  std::vector<std::unique_ptr<Part>> parts_;  // by number; 0 is nobody
  std::vector<std::uint32_t> free_;
  std::unordered_map<std::string_view, std::uint32_t> ids_;  // views into parts_
  std::vector<std::uint32_t> seen_;                          // hashes of what came once
};

// One value. It is made anew each time that it is asked for.
class Compact {
 public:
  // `table` outlives it.
  Compact(const Json& value, PartsTable& table);
  ~Compact();
  Compact(Compact&& other) noexcept;
  Compact& operator=(Compact&& other) noexcept;
  Compact(const Compact&) = delete;
  Compact& operator=(const Compact&) = delete;

  Json value() const;

 private:
  class Writer;
  static Json read(const PartsTable& table, const char*& at);
  static void release(PartsTable& table, const char*& at);

  std::unique_ptr<char[]> bytes_;  // they tell themselves where they end
  PartsTable* table_;
};

}  // namespace gpuop::kube
