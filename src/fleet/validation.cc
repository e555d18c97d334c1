#include "fleet/validation.h"

#include <algorithm>
#include <array>
#include <string>

#include "kube/object.h"

namespace gpuop::fleet {
namespace {

constexpr std::string_view kValidator = "nvidia-operator-validator";

// What the validator does, in its order.
constexpr std::array<std::string_view, 4> kSteps = {"driver", "toolkit", "cuda", "plugin"};
using hardware::ValidationNote;

std::size_t step_of(std::string_view text) {
  const auto step = std::ranges::find(kSteps, text.substr(0, text.find(": ")));
  return static_cast<std::size_t>(step - kSteps.begin());
}

// The step that a validator which does all of them in one container is at.
struct Position {
  std::size_t step = kSteps.size();  // kSteps.size(): not known
  std::optional<ValidationNote> note;
};

// A running container says by the pod's annotation where it is, if it takes long; one that ended, by the
// message that it left.
Position position_of(const Json& validator, const Json& status) {
  Position out;
  out.note = hardware::parse_validation_note(kube::annotation(validator, hardware::kValidationAnnotation));
  const std::size_t told = out.note ? step_of(out.note->step) : kSteps.size();
  if (told == kSteps.size()) out.note.reset();
  if (out.note && has(status, {"state", "running"})) return {told, out.note};
  for (std::string_view state : {"state", "lastState"}) {
    const std::size_t failed = step_of(get_string(status, {state, "terminated", "message"}));
    if (failed < kSteps.size()) return {failed, std::nullopt};
  }
  return {told, out.note};
}

}  // namespace

const Json* status_of(const Json& pod, std::string_view container) {
  for (std::string_view list : {"initContainerStatuses", "containerStatuses"}) {
    for (const auto& status : get_array(pod, {"status", list})) {
      if (get_string(status, {"name"}) == container) return &status;
    }
  }
  return nullptr;
}

bool completed(const Json* status) {
  return status && has(*status, {"state", "terminated"}) &&
         get_int(*status, {"state", "terminated", "exitCode"}, -1) == 0;
}

Proof proof_of(const Json& validator, std::string_view name, bool seen) {
  Proof proof;
  if (!get_array(validator, {"status", "initContainerStatuses"}).empty()) {
    proof.status = status_of(validator, std::string(name) + "-validation");
    proof.passed = completed(proof.status);
    return proof;
  }
  const Json* status = status_of(validator, kValidator);
  if (status == nullptr) return proof;
  const Position at = position_of(validator, *status);
  const std::size_t step = step_of(name);
  proof.passed = at.step == kSteps.size() ? seen : step < at.step;
  if (at.step == kSteps.size() || at.step == step) proof.status = status;
  if (at.step == step) proof.note = at.note;
  return proof;
}

}  // namespace gpuop::fleet
