// The images that a simulated node has (architecture §8): the operator's own, the NVIDIA driver's, no other.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace gpuop::cluster {

// An image that containers can be made from.
struct Image {
  std::string id;                   // "sha256:…"
  std::vector<std::string> layers;  // folders, uppermost first
  std::vector<std::string> entrypoint;
  std::vector<std::string> env;
  bool operator==(const Image&) const = default;
};

// A row of a node's image table.
struct ImageRow {
  std::string reference;  // "REGISTRY/NAME:TAG", or "*/NAME" for any registry and tag
  std::vector<std::string> layers;
  std::vector<std::string> entrypoint;
  std::vector<std::string> env;
  // For a driver's image: tags are VERSION-OS, or VERSION-KERNEL-OS for a precompiled one. The tag must fit
  // the node, and VERSION becomes DRIVER_VERSION in the image's environment.
  bool driver = false;
};

struct ImageTable {
  std::vector<ImageRow> rows;
  std::string os_tag;  // "ubuntu22.04"
  std::string kernel;  // "5.15.0-91-generic"

  // kInvalid: no image reference. kNotFound: in containerd's words, with the reason after them.
  Result<Image> resolve(const std::string& reference) const;
};

// "busybox" is docker.io/library/busybox:latest. kInvalid in the kubelet's words.
Result<std::string> normal_reference(const std::string& reference);

Json to_json(const ImageTable& table);
// kInvalid with the path of the field.
Result<ImageTable> image_table_from_json(const Json& json);

}  // namespace gpuop::cluster
