// Which image a block of the Helm values stands for whose program is in our own image: nothing said is ours,
// a registry alone is where a copy of ours is, a version or an image of upstream's means upstream's. The
// chart's templates/_images.tpl decides by the same rules. Pure.
#pragma once

#include <string>

#include "base/json.h"

namespace gpuop::fleet {

struct OwnImage {
  std::string repository;
  std::string image;  // with empty repository and version: the whole reference
  std::string version;
  // Upstream's names stood for ours, since what they name cannot serve here: the key of the block by which
  // they were seen ("repository", "image", "version"). Empty: they did not.
  std::string instead;

  std::string reference() const;  // repository/image:version, or @ and a digest
};

// `images`: the chart's files/images.yaml; `key`: one of its blocks; `values`: the user's over the defaults;
// `app`: the chart's appVersion. A key that is not in the list has an empty reference.
OwnImage own_image(const JsonArray& images, std::string_view key, const Json& values, std::string_view app);

}  // namespace gpuop::fleet
