// What the validator's pod says of the step that it is at, where one takes long: an annotation of the pod, so
// that it lives as long as the pod does, whoever starts anew meanwhile, and needs no right beyond the pod's.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace gpuop::hardware {

inline constexpr std::string_view kValidationAnnotation = "nvidia.com/gpu-validation";

struct ValidationNote {
  std::string step;      // a component of the validator: driver, toolkit, cuda, plugin
  bool failing = false;  // it was tried and failed, and is tried again; else it runs, or waits for something
  std::string message;   // why it failed last, or what it waits for; "" while it runs
  bool operator==(const ValidationNote&) const = default;
};

// JSON in one line; a long message is cut.
std::string format_validation_note(const ValidationNote& note);
// nullopt for what is no such text.
std::optional<ValidationNote> parse_validation_note(std::string_view text);

}  // namespace gpuop::hardware
