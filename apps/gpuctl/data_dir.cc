#include "data_dir.h"

#include <unistd.h>

#include "base/files.h"
#include "base/process.h"

namespace gpuop {
namespace {

fs::path prefix() {
  return self_path().parent_path().parent_path();
}

Result<fs::path> existing(const fs::path& path, const char* what) {
  if (file_exists(path)) return path;
  return fail(Code::kNotFound, std::string("look for ") + what + ": '" + path.string() + "' is not there");
}

}  // namespace

Result<fs::path> data_dir() {
  return existing(prefix() / "share/gpu-operator", "the program's data files");
}
Result<fs::path> sim_dir() {
  return existing(prefix() / "sim", "the fake hardware");
}

Result<fs::path> install_dir() {
  const fs::path beside = prefix() / "install";
  if (make_dirs(beside) && ::access(beside.c_str(), W_OK) == 0) return beside;
  const fs::path cache =
      fs::path(env_or("XDG_CACHE_HOME", env_or("HOME", "/root") + "/.cache")) / "gpuctl/install";
  TRY(make_dirs(cache));
  return cache;
}

}  // namespace gpuop
