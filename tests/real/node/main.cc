// real_node: one node of the real cluster. tests/real/cluster starts it.
#include <cstdio>

#include "base/log.h"
#include "base/version.h"
#include "cli.h"
#include "node/machine.h"

int main(int argc, char** argv) {
  using namespace gpuop;
  real::NodeOptions options;
  options.image = "ghcr.io/gpu-operator/gpu-operator:" GPUOP_VERSION;
  CLI::App app("A node: real containerd and kubelet over simulated hardware.", "real_node");
  app.add_option("--cluster", options.cluster)->required();
  app.add_option("--name", options.name)->required();
  app.add_option("--fleet", options.fleet)->required();
  app.add_option("--stage", options.stage)->required();
  app.add_option("--tools", options.tools)->required();
  app.add_option("--folder", options.folder)->required();
  app.add_option("--address", options.address)->required();
  app.add_option("--api-port", options.api_port)->required();
  if (auto code = parse_command_line(app, argc, argv)) return *code;
  log::setup("node");
  if (const auto ran = real::run_node(options); !ran) {
    std::fprintf(stderr, "real_node: %s\n", ran.error().text().c_str());
    return 1;
  }
  return 0;
}
