#include "kube/object.h"

// What is understood is written back in a form that means the same.
extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using gpuop::kube::LabelSelector;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto selector = LabelSelector::parse(text);
  if (!selector) return 0;
  const auto again = LabelSelector::parse(selector->text());
  if (!again || again->text() != selector->text()) __builtin_trap();
  for (const gpuop::JsonObject& labels :
       {gpuop::JsonObject(), gpuop::JsonObject{{"a", "b"}}, gpuop::JsonObject{{"a", "3"}, {"b", ""}}}) {
    if (selector->matches(labels) != again->matches(labels)) __builtin_trap();
  }
  return 0;
}
