// An OCI image as one archive file, made from folders: no registry, no daemon, no root. Container runtimes
// import it (`ctr -n k8s.io images import`, `podman load`, `skopeo copy oci-archive:…`).
//
// The same folders give the same bytes: entries are sorted, owned by root, dated by `time`, and nothing of
// the building machine is in them but content, permission bits and links. Formats: OCI image-spec 1.1
// (layout, index, manifest, config), POSIX tar (ustar, pax where names are long).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/result.h"

namespace gpuop::ociimage {

struct Image {
  std::string reference;         // "ghcr.io/gpu-operator/gpu-operator:v0.1.0"
  std::vector<fs::path> layers;  // folders, the lowest layer first
  std::vector<std::string> entrypoint, command, env;
  std::string architecture;                                      // "amd64", "arm64"; empty: this machine's
  std::vector<std::pair<std::string, std::string>> labels = {};  // org.opencontainers.image.…
  std::int64_t time = 0;                                         // seconds since 1970, of every entry
};

struct Written {
  std::string digest;          // of the manifest: "sha256:…"
  std::uint64_t size = 0;      // bytes of the archive
  std::uint64_t unpacked = 0;  // bytes of the layers as they are unpacked
};

// Replaces `out` atomically. kInvalid: a reference without a tag, no layer, or something in a folder that an
// image cannot hold (a device, a socket).
Result<Written> write_image(const Image& image, const fs::path& out);

}  // namespace gpuop::ociimage
