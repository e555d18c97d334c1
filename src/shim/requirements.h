// NVIDIA_REQUIRE_* expressions (container-toolkit-cdi.md §3.6): space is OR, comma is AND and binds tighter.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "shim/config.h"
#include "shim/request.h"

namespace gpuop::shim {

// What requirements are compared with; an empty text is unknown, and what is unknown satisfies.
struct RequirementFacts {
  std::string cuda;    // "12.4"
  std::string driver;  // "550.54.14"
  struct Device {
    std::string arch;  // "8.0"
    std::string brand;
  };
  std::vector<Device> devices;  // the visible ones; none: arch and brand are satisfied
};

// Component by component as integers, missing ones are 0: <0, 0, >0.
int compare_versions(std::string_view a, std::string_view b);

// All NVIDIA_REQUIRE_* variables of the container. Errors: "unsatisfied condition: …" with advice, or
// "invalid expression" naming variable and token.
Result<> check_requirements(const Container& container, const Config& config, const RequirementFacts& facts);

}  // namespace gpuop::shim
