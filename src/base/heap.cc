#include "base/heap.h"

#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdint>
#include <memory>
#include <vector>

namespace gpuop {

void expect_heap(std::size_t bytes) {
  // Less than what is mapped by itself, so that it comes from the heap's top.
  constexpr std::size_t kPiece = 96u << 10;
  constexpr std::size_t kMost = std::size_t{1} << 30, kHuge = std::size_t{2} << 20;
  // What comes beyond the first gibibyte is laid out like any other heap.
  bytes = std::min(bytes, kMost);
  const auto top = [] { return static_cast<char*>(::sbrk(0)); };
  char* const before = top();
  if (bytes < kHuge || ::mallopt(M_TOP_PAD, static_cast<int>(bytes)) == 0) return;
  ::mallopt(M_TRIM_THRESHOLD, INT_MAX);
  // Until the top has to grow: by all that was asked for.
  std::vector<std::unique_ptr<char[]>> pieces;
  while (top() == before && pieces.size() < 64)
    pieces.push_back(std::make_unique_for_overwrite<char[]>(kPiece));
  const std::size_t skip = (kHuge - reinterpret_cast<std::uintptr_t>(before) % kHuge) % kHuge;
  const auto grown = static_cast<std::size_t>(top() - before);
  if (grown > skip) ::madvise(before + skip, grown - skip, MADV_HUGEPAGE);
  ::mallopt(M_TOP_PAD, 128 << 10);
}

}  // namespace gpuop
