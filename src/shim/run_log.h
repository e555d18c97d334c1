// The runtime's log: lines to the configured debug file and to the engine's --log file, in the forms that
// engines read. A file that cannot be written is no reason to fail a container.
#pragma once

#include <string>

namespace gpuop::shim {

class RunLog {
 public:
  // `debug_file` "/dev/null" and "" mean none. `level` is a name as in config.toml.
  RunLog(const std::string& debug_file, const std::string& engine_file, bool engine_json,
         const std::string& level, bool debug);
  // 0 debug, 1 info, 2 warning, 3 error.
  void write(int level, const std::string& text);

 private:
  std::string debug_file_;
  std::string engine_file_;
  bool engine_json_;
  int threshold_;
};

// getenv as text, "" when unset.
std::string env_text(const char* name);

}  // namespace gpuop::shim
