#include "cluster/kubelet/log_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/files.h"

namespace gpuop::cluster {

std::optional<LogLine> parse_log_line(std::string_view line) {
  const std::size_t first = line.find(' ');
  if (first == std::string_view::npos) return std::nullopt;
  const std::size_t second = line.find(' ', first + 1);
  if (second == std::string_view::npos) return std::nullopt;
  LogLine out;
  out.time = line.substr(0, first);
  out.stream = line.substr(first + 1, second - first - 1);
  if (out.stream != "stdout" && out.stream != "stderr") return std::nullopt;
  const std::size_t third = line.find(' ', second + 1);
  const std::string_view tags = line.substr(second + 1, third - second - 1);
  if (tags.empty()) return std::nullopt;
  out.partial = tags.substr(0, tags.find(':')) == "P";
  out.text = third == std::string_view::npos ? std::string_view() : line.substr(third + 1);
  return out;
}

std::string LogCutter::feed(std::string_view raw) {
  rest_ += raw;
  std::string out;
  std::size_t begin = 0;
  for (std::size_t end = rest_.find('\n'); end != std::string::npos; end = rest_.find('\n', begin)) {
    const auto line = parse_log_line(std::string_view(rest_).substr(begin, end - begin));
    begin = end + 1;
    if (!line) continue;
    if (!inside_ && options_.since) {
      const auto time = parse_time(line->time);
      skipping_ = time && *time < *options_.since;
    }
    const bool starts = !inside_;
    inside_ = line->partial;
    if (skipping_) continue;
    std::string text;
    if (starts && options_.timestamps) text = std::string(line->time) + " ";
    text += line->text;
    if (!line->partial) text += '\n';
    if (left_) {
      if (*left_ <= 0) break;
      if (static_cast<std::int64_t>(text.size()) > *left_) text.resize(static_cast<std::size_t>(*left_));
      *left_ -= static_cast<std::int64_t>(text.size());
    }
    out += text;
  }
  rest_.erase(0, begin);
  return out;
}

Result<std::int64_t> tail_offset(int fd, std::int64_t lines) {
  struct stat info{};
  if (::fstat(fd, &info) != 0) return fail(errno_error("read a log", errno));
  std::int64_t at = info.st_size, found = 0;
  std::string block(64u << 10, '\0');
  // Newlines counted from the end; the one that ends the last line does not count.
  while (at > 0) {
    const std::int64_t size = std::min<std::int64_t>(at, static_cast<std::int64_t>(block.size()));
    at -= size;
    const ssize_t got = ::pread(fd, block.data(), static_cast<std::size_t>(size), at);
    if (got < 0) return fail(errno_error("read a log", errno));
    for (std::int64_t i = got - 1; i >= 0; --i) {
      if (block[static_cast<std::size_t>(i)] != '\n' || at + i + 1 == info.st_size) continue;
      if (++found == lines) return at + i + 1;
    }
  }
  return lines == 0 ? info.st_size : 0;
}

std::string log_tail(const std::filesystem::path& path, std::int64_t lines, std::size_t bytes) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return {};
  const auto offset = tail_offset(fd.get(), lines);
  if (!offset || ::lseek(fd.get(), *offset, SEEK_SET) < 0) return {};
  LogCutter cutter({});
  auto raw = read_fd(fd.get(), 16u << 20);
  std::string text = raw ? cutter.feed(*raw) : std::string();
  if (text.size() > bytes) text.erase(0, text.size() - bytes);
  return text;
}

}  // namespace gpuop::cluster
