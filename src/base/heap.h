// The heap of a process that is about to become large.
#pragma once

#include <cstddef>

namespace gpuop {

// Lays out the heap for `bytes` more, on huge pages where the kernel has them: what is scattered over a heap
// of a gibibyte is else mostly waiting for page tables. Costs no memory until it is used. Best effort; call
// it before other threads are started.
void expect_heap(std::size_t bytes);

}  // namespace gpuop
