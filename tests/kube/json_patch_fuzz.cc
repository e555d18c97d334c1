#include "kube/object.h"

// A JSON document, a zero byte, a patch: both kinds of patch are tried on it.
extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using namespace gpuop;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::size_t cut = text.find('\0');
  if (cut == std::string_view::npos) return 0;
  const auto target = parse_json(text.substr(0, cut));
  const auto patch = parse_json(text.substr(cut + 1));
  if (!target || !patch) return 0;
  Json patched = *target;
  if (!kube::json_patch_apply(patched, *patch) && patched != *target) __builtin_trap();
  Json merged = *target;
  kube::merge_apply(merged, *patch);
  // What a merge made, a difference finds again.
  Json again = *target;
  kube::merge_apply(again, kube::merge_diff(*target, merged));
  if (merged.is_object() && target->is_object()) {
    Json once = merged;
    kube::merge_apply(once, kube::merge_diff(merged, merged));
    if (once != merged) __builtin_trap();
  }
  return 0;
}
