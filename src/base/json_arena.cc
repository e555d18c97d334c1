#include "base/json_arena.h"

#include <algorithm>
#include <boost/json/memory_resource.hpp>
#include <functional>
#include <memory>
#include <new>
#include <vector>

namespace gpuop {

class JsonArena::Blocks final : public boost::json::memory_resource {
 public:
  Blocks(std::size_t size, Blocks*& self) : next_size_(size) { self = this; }
  void seal() { left_ = 0, sealed_ = true; }

 private:
  struct Block {
    std::unique_ptr<std::byte[]> start;
    std::size_t size = 0;
  };

  void* do_allocate(std::size_t size, std::size_t align) override {
    if (sealed_) return ::operator new(size);
    const std::size_t at = (offset() + align - 1) / align * align;
    if (left_ < at - offset() + size) {
      Block& block = blocks_.emplace_back();
      block.size = std::max(next_size_, size);
      block.start = std::make_unique_for_overwrite<std::byte[]>(block.size);
      left_ = block.size - size;
      next_size_ = std::min<std::size_t>(next_size_, 64u << 10);
      return block.start.get();
    }
    left_ = blocks_.back().size - at - size;
    return blocks_.back().start.get() + at;
  }
  void do_deallocate(void* pointer, std::size_t, std::size_t) override {
    const auto* byte = static_cast<const std::byte*>(pointer);
    const auto inside = [byte](const Block& block) {
      return std::less_equal<>()(block.start.get(), byte) &&
             std::less<>()(byte, block.start.get() + block.size);
    };
    if (std::ranges::none_of(blocks_, inside)) ::operator delete(pointer);
  }
  bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }

  std::size_t offset() const { return blocks_.empty() ? 0 : blocks_.back().size - left_; }

  std::vector<Block> blocks_;
  std::size_t next_size_;
  std::size_t left_ = 0;  // of the last block
  bool sealed_ = false;
};

// A value takes some three times its text.
JsonArena::JsonArena(std::size_t text)
    : storage_(boost::json::make_shared_resource<Blocks>(3 * text + 256, blocks_)) {}

void JsonArena::seal() {
  blocks_->seal();
}

Result<Json> parse_json_packed(std::string_view text, std::size_t max_depth) {
  JsonArena arena(text.size());
  auto value = parse_json_into(arena.storage(), text, max_depth);
  arena.seal();
  return value;
}

}  // namespace gpuop
