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

std::string file_tail(const std::filesystem::path& path, std::size_t bytes) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat info{};
  if (!fd || ::fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode)) return {};
  const auto size = static_cast<std::size_t>(info.st_size);
  std::string out(std::min(size, bytes), '\0');
  const ssize_t got = ::pread(fd.get(), out.data(), out.size(), static_cast<off_t>(size - out.size()));
  out.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  return out;
}

std::string valid_utf8(std::string_view text) {
  std::string out;
  std::size_t at = 0;
  while (at < text.size()) {
    const auto lead = static_cast<unsigned char>(text[at]);
    const std::size_t length = lead < 0x80                   ? 1
                               : lead >= 0xc2 && lead < 0xe0 ? 2
                               : lead >= 0xe0 && lead < 0xf0 ? 3
                               : lead >= 0xf0 && lead < 0xf5 ? 4
                                                             : 0;
    bool good = length > 0 && at + length <= text.size();
    for (std::size_t i = 1; good && i < length; ++i)
      good = (static_cast<unsigned char>(text[at + i]) & 0xc0) == 0x80;
    if (good && length > 2) {
      // Overlong forms, surrogates and what lies beyond U+10FFFF.
      const auto second = static_cast<unsigned char>(text[at + 1]);
      if ((lead == 0xe0 && second < 0xa0) || (lead == 0xed && second >= 0xa0) ||
          (lead == 0xf0 && second < 0x90) || (lead == 0xf4 && second >= 0x90)) {
        good = false;
      }
    }
    if (good) {
      out += text.substr(at, length);
      at += length;
    } else {
      out += "\xef\xbf\xbd";
      ++at;
    }
  }
  return out;
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
