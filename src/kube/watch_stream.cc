#include "kube/watch_stream.h"

#include "base/json_arena.h"

namespace gpuop::kube {

// How many of `bytes` belong to the document under way; depth_ is 0 after it when they complete it.
std::size_t WatchSplitter::scan(std::string_view bytes) {
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const char c = bytes[i];
    if (in_string_) {
      if (escaped_) {
        escaped_ = false;
      } else if (c == '\\') {
        escaped_ = true;
      } else if (c == '"') {
        in_string_ = false;
      }
    } else if (c == '"') {
      in_string_ = true;
    } else if (c == '{' || c == '[') {
      ++depth_;
    } else if ((c == '}' || c == ']') && --depth_ == 0) {
      return i + 1;
    }
  }
  return bytes.size();
}

Result<> WatchSplitter::feed(std::string_view bytes, const std::function<bool(Json)>& document) {
  while (true) {
    if (depth_ == 0) {
      const std::size_t start = bytes.find_first_not_of(" \t\r\n");
      if (start == std::string_view::npos) return {};
      bytes.remove_prefix(start);
      if (bytes[0] != '{') return fail(Code::kInvalid, "read watch stream: expected an object");
    }
    if (bytes.empty()) return {};
    const std::size_t used = scan(bytes);
    if (pending_.size() + used > limit_) {
      return fail(Code::kInvalid,
                  "read watch stream: a document of more than " + std::to_string(limit_) + " bytes");
    }
    std::string_view text = bytes.substr(0, used);
    if (depth_ != 0 || !pending_.empty()) {
      pending_ += text;
      if (depth_ != 0) return {};
      text = pending_;
    }
    JsonArena arena(text.size());
    Json value = TRY_IN(parse_json_into(arena.storage(), text), "read watch stream");
    std::string().swap(pending_);
    bytes.remove_prefix(used);
    const bool goes_on = document(std::move(value));
    arena.seal();
    if (!goes_on) return {};
  }
}

}  // namespace gpuop::kube
