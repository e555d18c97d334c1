// Whatever bytes come, in whatever pieces, the same frames are read, and what is written is read back.
#include <cstdlib>

#include "cluster/kubelet/spdy.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace gpuop::cluster;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  SpdyReader whole, pieces;
  const auto one = whole.feed(text);
  std::size_t count = 0;
  bool good = true;
  for (std::size_t at = 0; good && at < text.size(); at += 5) {
    const auto some = pieces.feed(text.substr(at, 5));
    good = some.has_value();
    if (good) count += some->size();
  }
  if (one.has_value() != good) std::abort();
  if (one && one->size() != count) std::abort();
  SpdyWriter writer;
  SpdyReader reader;
  const auto back = reader.feed(writer.syn_stream(1, {{"port", std::string(text)}}));
  const bool fits = size < 60000;
  if (fits && (!back || back->size() != 1 || (*back)[0].headers.at("port") != text)) std::abort();
  return 0;
}
