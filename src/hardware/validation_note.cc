#include "hardware/validation_note.h"

#include "base/json.h"

namespace gpuop::hardware {
namespace {

constexpr std::size_t kLongest = 1024;

// Not inside a character: what goes on one in UTF-8 begins with the bits 10.
std::string cut(std::string_view text) {
  if (text.size() <= kLongest) return std::string(text);
  std::size_t end = kLongest;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0U) == 0x80U) --end;
  return std::string(text.substr(0, end)) + "…";
}

}  // namespace

std::string format_validation_note(const ValidationNote& note) {
  JsonObject out{{"step", note.step}};
  if (note.failing) out["failing"] = true;
  if (!note.message.empty()) out["message"] = cut(note.message);
  return to_canonical_text(Json(std::move(out)));
}

std::optional<ValidationNote> parse_validation_note(std::string_view text) {
  if (!text.starts_with('{')) return std::nullopt;
  const auto json = parse_json(text);
  if (!json || get_string(*json, {"step"}).empty()) return std::nullopt;
  return ValidationNote{std::string(get_string(*json, {"step"})), get_bool(*json, {"failing"}),
                        std::string(get_string(*json, {"message"}))};
}

}  // namespace gpuop::hardware
