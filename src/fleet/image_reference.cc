#include "fleet/image_reference.h"

#include <algorithm>

#include "base/text.h"

namespace gpuop::fleet {
namespace {

bool is_part(std::string_view text, std::string_view extra) {
  if (text.empty()) return false;
  return std::ranges::all_of(text, [extra](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || extra.contains(c);
  });
}

bool is_tag(std::string_view text) {
  return is_part(text, "._-") && text.size() <= 128 && text.front() != '.' && text.front() != '-';
}

}  // namespace

bool is_image_reference(std::string_view text) {
  std::string_view name = text;
  if (const std::size_t at = name.find('@'); at != std::string_view::npos) {
    const std::string_view digest = name.substr(at + 1);
    if (!digest.starts_with("sha256:") || !is_part(digest.substr(7), "")) return false;
    name = name.substr(0, at);
  }
  const std::size_t slash = name.rfind('/');
  const std::size_t colon = name.find(':', slash == std::string_view::npos ? 0 : slash);
  if (colon != std::string_view::npos) {
    if (!is_tag(name.substr(colon + 1))) return false;
    name = name.substr(0, colon);
  }
  return std::ranges::all_of(split(name, '/'), [](const std::string& part) { return is_part(part, "._-:"); });
}

}  // namespace gpuop::fleet
