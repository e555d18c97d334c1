#include "kube/watch_stream.h"

// However the bytes are cut, the same documents come out.
extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using namespace gpuop;
  if (size == 0) return 0;
  const std::size_t step = data[0] % 7 + 1;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const auto read = [&](std::size_t piece) {
    kube::WatchSplitter splitter(1u << 16);
    std::string out;
    for (std::size_t at = 0; at < text.size(); at += piece) {
      const auto fed = splitter.feed(text.substr(at, piece), [&](Json document) {
        out += to_text(document) + "\n";
        return true;
      });
      if (!fed) return out + "!";
    }
    return out;
  };
  if (read(text.size() + 1) != read(step)) __builtin_trap();
  return 0;
}
