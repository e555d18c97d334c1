// A vector addition on the GPU through the CUDA driver API, with its PTX embedded: the proof that a container
// can compute. Needs libcuda.so.1 and nothing of the CUDA toolkit (architecture §5).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace gpuop::validate {

struct VectorAddOptions {
  std::string library = "libcuda.so.1";
  std::uint32_t elements = 50'000;
  int device = 0;
};

struct VectorAddResult {
  std::string device_name;
  int driver_version = 0;  // 13000 is CUDA 13.0
  int devices = 0;
};

// Adds two vectors on the device and compares each element with the CPU's sum. Errors name the call that
// failed with CUDA's own name and text for it, or the first element that differs.
Result<VectorAddResult> vector_add(const VectorAddOptions& options);

// The program that is given to the driver.
std::string_view vector_add_ptx();

}  // namespace gpuop::validate
