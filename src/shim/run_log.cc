#include "shim/run_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>

#include "base/files.h"
#include "base/json.h"
#include "base/time.h"

namespace gpuop::shim {

namespace {

constexpr const char* kNames[] = {"debug", "info", "warning", "error"};

int threshold_of(const std::string& level, bool& known) {
  known = true;
  if (level == "trace" || level == "debug") return 0;
  if (level == "info") return 1;
  if (level == "warn" || level == "warning") return 2;
  if (level == "error" || level == "fatal" || level == "panic") return 3;
  known = false;
  return 1;
}

void append(const std::string& file, const std::string& line) {
  std::error_code error;
  fs::create_directories(fs::path(file).parent_path(), error);
  Fd fd(open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0644));
  if (fd && ::write(fd.get(), line.data(), line.size()) < 0) return;
}

}  // namespace

RunLog::RunLog(const std::string& debug_file, const std::string& engine_file, bool engine_json,
               const std::string& level, bool debug)
    : debug_file_(debug_file == "/dev/null" ? "" : debug_file),
      engine_file_(engine_file),
      engine_json_(engine_json) {
  bool known = true;
  threshold_ = threshold_of(level, known);
  if (debug) threshold_ = 0;
  if (!known) write(2, "invalid log-level '" + level + "', using info");
}

void RunLog::write(int level, const std::string& text) {
  if (level < threshold_ || (debug_file_.empty() && engine_file_.empty())) return;
  std::string time = format_time(std::chrono::system_clock::now());
  std::string plain = "time=\"" + time + "\" level=" + kNames[level] + " msg=" + to_text(Json(text)) + "\n";
  std::string json = to_text(JsonObject{{"level", kNames[level]}, {"msg", text}, {"time", time}}) + "\n";
  if (!debug_file_.empty()) append(debug_file_, plain);
  if (!engine_file_.empty()) append(engine_file_, engine_json_ ? json : plain);
}

std::string env_text(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

}  // namespace gpuop::shim
