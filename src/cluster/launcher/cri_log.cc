#include "cluster/launcher/cri_log.h"

#include <cstdio>

namespace gpuop::cluster {

namespace {
constexpr std::size_t kLongestLine = 16u << 10;
}

std::string format_nano_time(Time t) {
  std::string text = format_time(t);  // whole seconds, ends in Z
  auto nanos = t.time_since_epoch().count() % 1'000'000'000;
  char fraction[16];
  std::snprintf(fraction, sizeof fraction, ".%09lldZ", static_cast<long long>(nanos));
  text.pop_back();
  return text + fraction;
}

std::string CriLogStream::record(std::string_view tag, std::string_view text, Time now) const {
  std::string out = format_nano_time(now);
  out.append(" ").append(name_).append(" ").append(tag).append(" ").append(text).append("\n");
  return out;
}

std::string CriLogStream::add(std::string_view bytes, Time now) {
  std::string out;
  while (!bytes.empty()) {
    std::size_t end = bytes.find('\n');
    bool whole = end != std::string_view::npos;
    std::string_view piece = bytes.substr(0, whole ? end : bytes.size());
    bytes.remove_prefix(piece.size() + (whole ? 1 : 0));
    while (pending_.size() + piece.size() > kLongestLine) {
      std::size_t room = kLongestLine - pending_.size();
      pending_ += piece.substr(0, room);
      piece.remove_prefix(room);
      out += record("P", pending_, now);
      pending_.clear();
    }
    pending_ += piece;
    if (!whole) break;
    out += record("F", pending_, now);
    pending_.clear();
  }
  return out;
}

std::string CriLogStream::finish(Time now) {
  if (pending_.empty()) return {};
  std::string out = record("P", pending_, now);
  pending_.clear();
  return out;
}

}  // namespace gpuop::cluster
