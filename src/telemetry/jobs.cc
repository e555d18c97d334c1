#include "telemetry/jobs.h"

#include <algorithm>

#include "base/files.h"
#include "base/text.h"

namespace gpuop::telemetry {
namespace {

std::optional<unsigned> digits(std::string_view text) {
  if (text.empty() || text.find_first_not_of("0123456789") != std::string_view::npos) return std::nullopt;
  auto number = parse_int(text);
  if (!number || *number > 0xFFFF) return std::nullopt;
  return static_cast<unsigned>(*number);
}

}  // namespace

std::optional<EntityKey> job_file_entity(std::string_view name) {
  auto dot = name.find('.');
  auto gpu = digits(name.substr(0, dot));
  if (!gpu) return std::nullopt;
  if (dot == std::string_view::npos) return EntityKey{*gpu, {}};
  auto gi = digits(name.substr(dot + 1));
  if (!gi) return std::nullopt;
  return EntityKey{*gpu, gi};
}

std::vector<std::string> parse_jobs(std::string_view text) {
  std::vector<std::string> jobs;
  for (const std::string& line : split(text, '\n')) {
    std::string job(trim(line));
    if (!job.empty() && std::ranges::find(jobs, job) == jobs.end()) jobs.push_back(std::move(job));
  }
  return jobs;
}

Result<Jobs> read_jobs(const fs::path& dir) {
  Jobs jobs;
  for (const std::string& name : TRY_IN(list_dir(dir), "read the job mapping")) {
    auto entity = job_file_entity(name);
    std::error_code error;
    if (!entity || !fs::is_regular_file(dir / name, error)) continue;
    auto text = read_file(dir / name, 1u << 20);
    if (!text) continue;
    auto ids = parse_jobs(*text);
    if (!ids.empty()) jobs[*entity] = std::move(ids);
  }
  return jobs;
}

}  // namespace gpuop::telemetry
