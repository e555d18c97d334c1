#include <string>
#include <vector>

#include "shim/prestart.h"

int main(int argc, char** argv) {
  return gpuop::shim::prestart_main({argv + (argc > 0 ? 1 : 0), argv + argc});
}
