#include "fleet/own_images.h"

#include <algorithm>

#include "base/text.h"

namespace gpuop::fleet {
namespace {

constexpr std::string_view kRepository = "ghcr.io/gpu-operator";
constexpr std::string_view kImage = "gpu-operator";
constexpr std::string_view kOperator = "operator";
constexpr std::string_view kPublic = "nvcr.io/";

std::string text_of(const Json& block, const char* key) {
  const Json* value = find(block, {key});
  return value ? plain_text(*value) : "";
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// 1.x or 2x.y, with or without a v: as upstream numbers its operator.
bool is_operator_version(std::string_view version) {
  if (version.starts_with('v')) version.remove_prefix(1);
  const auto dot = version.find('.');
  if (dot == std::string_view::npos || dot + 1 >= version.size() || !is_digit(version[dot + 1])) return false;
  const auto major = version.substr(0, dot);
  return major == "1" || (major.size() == 2 && major[0] == '2' && is_digit(major[1]));
}

// What runs with the operator's own version only.
void take_own(OwnImage& out) {
  if (is_operator_version(out.version)) {
    out.version.clear();
    out.instead = "version";
  }
  if (out.image == "gpu-operator-validator") {
    out.image.clear();
    out.instead = "image";
  }
  if (out.repository.starts_with(kPublic)) {
    out.repository.clear();
    out.version.clear();
    out.instead = "repository";
  }
}

void take_upstream(OwnImage& out, const Json& entry) {
  const auto gone = get_string(entry, {"gone"});
  if (!gone.empty() && out.image == gone && out.version.empty()) {
    out.image.clear();
    out.instead = "image";
    if (out.repository.starts_with(kPublic)) out.repository.clear();
    return;
  }
  if (out.repository.empty()) out.repository = std::string(get_string(entry, {"repository"}));
  if (out.image.empty()) out.image = std::string(get_string(entry, {"image"}));
  if (out.version.empty()) out.version = std::string(get_string(entry, {"version"}));
}

// An image that is a whole reference by itself.
bool is_whole(const OwnImage& named) {
  return named.repository.empty() && named.version.empty() &&
         named.image.find_first_of("/:@") != std::string::npos;
}

bool means_upstream(const OwnImage& named, std::string_view app) {
  if (named.image == kImage || named.repository.starts_with(kRepository)) return false;
  return named.repository.starts_with(kPublic) || !named.image.empty() ||
         (!named.version.empty() && named.version != app);
}

void fill(OwnImage& out, std::string_view app) {
  if (is_whole(out)) return;
  if (out.repository.empty()) out.repository = kRepository;
  if (out.image.empty()) out.image = kImage;
  if (out.version.empty()) out.version = app;
}

}  // namespace

std::string OwnImage::reference() const {
  if (repository.empty() && version.empty()) return image;
  return repository + "/" + image + (version.starts_with("sha256:") ? "@" : ":") + version;
}

OwnImage own_image(const JsonArray& images, std::string_view key, const Json& values, std::string_view app) {
  const auto entry =
      std::ranges::find_if(images, [&](const Json& each) { return get_string(each, {"key"}) == key; });
  if (entry == images.end()) return {};
  const Json* at = &values;
  for (const auto& part : split(key, '.')) at = at ? find(*at, {part}) : nullptr;
  const Json block = at ? *at : Json();
  OwnImage out{text_of(block, "repository"), text_of(block, "image"), text_of(block, "version"), ""};
  if (is_whole(out)) return out;
  const bool nothing = out.repository.empty() && out.image.empty() && out.version.empty();
  const bool complete = !out.repository.empty() && !out.image.empty() && !out.version.empty();
  if (get_bool(*entry, {"own"})) {
    if (key == kOperator || !complete) take_own(out);
  } else if (means_upstream(out, app)) {
    take_upstream(out, *entry);
  }
  // What nobody named, or named in vain, is the operator's own image, which the cluster has.
  if (key != kOperator && (nothing || !out.instead.empty())) {
    OwnImage same = own_image(images, kOperator, values, app);
    same.instead = out.instead;
    out = same;
  }
  fill(out, app);
  if (const Json* enabled = find(block, {"enabled"}); enabled && enabled->is_bool() && !enabled->get_bool())
    out.instead.clear();
  return out;
}

}  // namespace gpuop::fleet
