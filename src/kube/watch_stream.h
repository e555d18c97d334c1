// Splits the body of a watch into its JSON documents. They come one a line, but any white space between them,
// and any cut of the bytes, is fine. A document is handed on with its closing brace, not with what follows
// it.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace gpuop::kube {

class WatchSplitter {
 public:
  // No document may be larger than `limit` bytes.
  explicit WatchSplitter(std::size_t limit = 64u << 20) : limit_(limit) {}
  // Calls `document` for each that `bytes` completes; it answers false to stop (the rest is dropped).
  // kInvalid for text that is not a JSON object; the splitter is of no use then.
  Result<> feed(std::string_view bytes, const std::function<bool(Json)>& document);
  // True between documents: an end here cuts nothing.
  bool at_boundary() const { return depth_ == 0; }

 private:
  std::size_t scan(std::string_view bytes);

  std::size_t limit_;
  std::string pending_;  // the document under way, as far as earlier bytes had it
  int depth_ = 0;
  bool in_string_ = false;
  bool escaped_ = false;
};

}  // namespace gpuop::kube
