// Device selectors, device ids, job files and label values of any bytes.
#include <string_view>

#include "telemetry/jobs.h"
#include "telemetry/page.h"
#include "telemetry/pods.h"
#include "telemetry/selector.h"

using namespace gpuop::telemetry;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view text(reinterpret_cast<const char*>(data), size);
  static const std::vector<GpuFacts> gpus = [] {
    std::vector<GpuFacts> all(2);
    all[1].index = 1;
    all[1].instances = {{1, 8, "3g.40gb"}};
    return all;
  }();
  if (auto selector = parse_selector(text)) {
    if (select(*selector, gpus).entities.size() > 3) __builtin_trap();
  }
  (void)parse_device_id(text);
  (void)job_file_entity(text);
  (void)parse_jobs(text);
  (void)label_name(text);
  if (escape_label(escape_label(text)).find('\n') != std::string::npos) __builtin_trap();
  return 0;
}
