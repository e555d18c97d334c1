// gpuop-generate [DIR]: writes the files that are made from the declarations of our resources (CRDs, field
// references, the chart's list of keys) beneath DIR, the repository; default: the working directory.
#include <cstdio>

#include "base/files.h"
#include "fleet/values.h"
#include "policy/crds.h"

int main(int argc, char** argv) {
  if (argc > 2 || (argc == 2 && argv[1][0] == '-')) {
    std::fputs("usage: gpuop-generate [DIR]\n", stderr);
    return 2;
  }
  gpuop::fs::path root = argc > 1 ? argv[1] : ".";
  std::vector<gpuop::policy::GeneratedFile> files = gpuop::policy::generated_files();
  files.push_back(
      {"deploy/chart/files/keys.txt", gpuop::fleet::keys_file(gpuop::fleet::chart_rules().schema)});
  for (const gpuop::policy::GeneratedFile& file : files) {
    gpuop::fs::path path = root / file.path;
    gpuop::Result<> made = gpuop::make_dirs(path.parent_path());
    gpuop::Result<bool> written =
        made ? gpuop::write_file_atomic(path, file.content) : gpuop::fail(made.error());
    if (!written) {
      std::fprintf(stderr, "gpuop-generate: %s\n", written.error().text().c_str());
      return 1;
    }
    if (*written) std::printf("wrote %s\n", path.c_str());
  }
  return 0;
}
