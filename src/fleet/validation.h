// What a validator's pod proves of its steps: driver, toolkit, cuda, plugin. Pure.
#pragma once

#include <optional>
#include <string_view>

#include "base/json.h"
#include "hardware/validation_note.h"

namespace gpuop::fleet {

// The status of a container of the pod, or null.
const Json* status_of(const Json& pod, std::string_view container);
// It has ended well.
bool completed(const Json* status);

struct Proof {
  bool passed = false;
  const Json* status = nullptr;  // of the container that is at it
  std::optional<hardware::ValidationNote> note;
};

// Of `step`. Upstream's pod has an init container for each, ours does all in one. `seen`: where that one does
// not tell its step, something else shows that this one is behind it.
Proof proof_of(const Json& validator, std::string_view step, bool seen);

}  // namespace gpuop::fleet
