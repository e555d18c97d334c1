// gpuop-image: makes image archives. From programs, the operator's image (their install tree); from folders,
// any other. deploy/image is how people call it.
#include <cstdio>

#include "base/files.h"
#include "base/version.h"
#include "cli.h"
#include "cluster/fleet/install_tree.h"
#include "ociimage/image.h"

namespace gpuop {
namespace {

struct Arguments {
  std::string programs, assets, crds, sim, stage, out,
      reference = "ghcr.io/gpu-operator/gpu-operator:" GPUOP_VERSION;
  std::vector<std::string> layers, entrypoint;
};

Result<ociimage::Written> make(const Arguments& arguments) {
  ociimage::Image image;
  image.reference = arguments.reference;
  image.entrypoint = arguments.entrypoint;
  image.env = {"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"};
  if (!arguments.programs.empty()) {
    const auto tree = TRY(cluster::stage_install_tree({.programs = arguments.programs,
                                                       .sim = arguments.sim,
                                                       .assets = arguments.assets,
                                                       .out = arguments.stage,
                                                       .crds = arguments.crds}));
    image.layers.push_back(tree.image);
    image.command = {"gpu-operator"};
    image.labels = {{"org.opencontainers.image.title", "gpu-operator"},
                    {"org.opencontainers.image.version", GPUOP_VERSION}};
  }
  for (const std::string& folder : arguments.layers) image.layers.emplace_back(folder);
  if (arguments.out.empty()) return ociimage::Written{};
  return ociimage::write_image(image, arguments.out);
}

}  // namespace
}  // namespace gpuop

int main(int argc, char** argv) {
  using namespace gpuop;
  Arguments arguments;
  CLI::App app("Write an OCI image archive: the same input gives the same bytes.", "gpuop-image");
  auto* stage = app.add_option("--stage", arguments.stage, "folder that the install tree is staged in");
  app.add_option("--programs", arguments.programs, "folder with the programs of the operator's image")
      ->check(CLI::ExistingDirectory)
      ->needs(stage);
  app.add_option("--crds", arguments.crds, "custom resource definitions, for the operator's image");
  app.add_option("--assets", arguments.assets, "operand manifests, for the operator's image")
      ->check(CLI::ExistingDirectory);
  app.add_option("--sim", arguments.sim,
                 "fake hardware, for the layers of simulated nodes that are staged beside it")
      ->check(CLI::ExistingDirectory);
  app.add_option("--layer", arguments.layers, "a folder that is a layer; several, the lowest first")
      ->check(CLI::ExistingDirectory);
  app.add_option("--entrypoint", arguments.entrypoint, "word of the entry point; several");
  app.add_option("--reference", arguments.reference, "the image's name and tag")->capture_default_str();
  app.add_option("out", arguments.out, "the archive; none: the install tree is staged, and that is all");
  if (auto code = parse_command_line(app, argc, argv)) return *code;
  const auto written = make(arguments);
  if (!written) {
    std::fprintf(stderr, "gpuop-image: %s\n", written.error().text().c_str());
    return 1;
  }
  if (arguments.out.empty()) return 0;
  std::printf("%s %s %.1f MB (%.1f MB unpacked)\n", arguments.reference.c_str(), written->digest.c_str(),
              static_cast<double>(written->size) / 1e6, static_cast<double>(written->unpacked) / 1e6);
  return 0;
}
