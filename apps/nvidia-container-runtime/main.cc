#include <string>
#include <string_view>

#include "shim/runtime.h"

int main(int argc, char** argv) {
  std::string_view called = argc > 0 ? argv[0] : "";
  std::string mode;
  if (called.ends_with(".cdi")) mode = "cdi";
  if (called.ends_with(".legacy")) mode = "legacy";
  return gpuop::shim::runtime_main(argc, argv, mode);
}
