// However a log is cut into pieces, the same text comes out, and it never exceeds its limit.
#include <cstdlib>

#include "cluster/kubelet/log_files.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace gpuop::cluster;
  if (size < 2) return 0;
  LogOptions options;
  options.timestamps = (data[0] & 1) != 0;
  if ((data[0] & 2) != 0) options.limit_bytes = data[1];
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  LogCutter whole(options), pieces(options);
  const std::string one = whole.feed(text);
  std::string other;
  for (std::size_t at = 0; at < text.size(); at += 7) other += pieces.feed(text.substr(at, 7));
  if (one != other) std::abort();
  if (options.limit_bytes && static_cast<std::int64_t>(one.size()) > *options.limit_bytes) std::abort();
  if (valid_utf8(valid_utf8(text)) != valid_utf8(text)) std::abort();
  return 0;
}
