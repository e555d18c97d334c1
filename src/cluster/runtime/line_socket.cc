#include "cluster/runtime/line_socket.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <span>

namespace gpuop::cluster {

namespace {

constexpr std::size_t kLongestLine = 64u << 20;
constexpr std::size_t kMostFiles = 16;  // in one message; and 64 that nobody took
constexpr std::size_t kMostWaiting = 64;

// Bytes, and the files that came with them.
ssize_t receive(int socket, std::span<char> buffer, std::deque<Fd>& files) {
  iovec data{buffer.data(), buffer.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMostFiles * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t n = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  if (n < 0) return n;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof fd, sizeof fd);
      files.emplace_back(fd);
    }
  }
  while (files.size() > kMostWaiting) files.pop_front();
  return n;
}

// Takes the files along with the first of the bytes.
ssize_t transmit(int socket, std::string_view text, const std::vector<Fd>& files) {
  iovec data{const_cast<char*>(text.data()), text.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMostFiles * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  const std::size_t count = std::min(files.size(), kMostFiles);
  if (count != 0) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(count * sizeof(int));
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(count * sizeof(int));
    for (std::size_t i = 0; i < count; ++i) {
      const int fd = files[i].get();
      std::memcpy(CMSG_DATA(header) + i * sizeof fd, &fd, sizeof fd);
    }
  }
  return ::sendmsg(socket, &message, MSG_NOSIGNAL);
}

}  // namespace

struct LineSocket::Impl : std::enable_shared_from_this<LineSocket::Impl> {
  Impl(Loop& l, Fd f, std::function<void(Json)> on_line, std::function<void()> on_closed)
      : loop(l), fd(std::move(f)), line(std::move(on_line)), closed(std::move(on_closed)) {}

  void begin() {
    ::fcntl(fd.get(), F_SETFL, O_NONBLOCK);
    auto weak = weak_from_this();
    readable = loop.on_readable(fd.get(), [weak] {
      if (auto self = weak.lock()) self->read();
    });
  }

  void read() {
    std::array<char, 65536> buffer;
    for (;;) {
      ssize_t n = receive(fd.get(), buffer, arrived);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && errno == EAGAIN) return;
      if (n <= 0) return end();
      in.append(buffer.data(), static_cast<std::size_t>(n));
      if (!take_lines() || in.size() > kLongestLine) return end();
    }
  }

  bool take_lines() {
    std::size_t begin = 0;
    for (std::size_t at = 0; (at = in.find('\n', begin)) != std::string::npos; begin = at + 1) {
      auto value = parse_json(std::string_view(in).substr(begin, at - begin));
      if (!value) return false;
      auto keep = shared_from_this();
      if (line) line(std::move(*value));
      if (!fd) return true;  // closed by what the line did
    }
    in.erase(0, begin);
    return true;
  }

  void send(std::string text, std::vector<Fd> files) {
    if (!fd) return;
    out.push_back({std::move(text), std::move(files)});
    flush();
  }

  void flush() {
    while (!out.empty()) {
      Line& next = out.front();
      ssize_t n = transmit(fd.get(), std::string_view(next.text).substr(next.sent), next.files);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && errno == EAGAIN) {
        if (writable) return;
        auto weak = weak_from_this();
        writable = loop.on_writable(fd.get(), [weak] {
          if (auto self = weak.lock()) self->flush();
        });
        return;
      }
      if (n < 0) return;  // the reading side tells of the end
      next.files.clear();
      next.sent += static_cast<std::size_t>(n);
      if (next.sent == next.text.size()) out.pop_front();
    }
    writable.reset();
  }

  void end() {
    readable.reset();
    writable.reset();
    fd.reset();
    line = nullptr;
    if (auto call = std::exchange(closed, nullptr)) call();
  }

  Loop& loop;
  Fd fd;
  std::function<void(Json)> line;
  std::function<void()> closed;
  struct Line {
    std::string text;
    std::vector<Fd> files;
    std::size_t sent = 0;
  };
  std::string in;
  std::deque<Line> out;
  std::deque<Fd> arrived;
  Handle readable, writable;
};

LineSocket::LineSocket(Loop& loop, Fd fd, std::function<void(Json)> line, std::function<void()> closed)
    : impl_(std::make_shared<Impl>(loop, std::move(fd), std::move(line), std::move(closed))) {
  impl_->begin();
}

LineSocket::~LineSocket() {
  impl_->readable.reset();
  impl_->writable.reset();
  impl_->line = nullptr;
  impl_->closed = nullptr;
  impl_->fd.reset();
}

void LineSocket::send(const Json& value) {
  impl_->send(to_text(value) + "\n", {});
}
void LineSocket::send(const Json& value, std::vector<Fd> files) {
  impl_->send(to_text(value) + "\n", std::move(files));
}

std::vector<Fd> LineSocket::take_files(std::size_t count) {
  std::vector<Fd> out;
  while (out.size() < count && !impl_->arrived.empty()) {
    out.push_back(std::move(impl_->arrived.front()));
    impl_->arrived.pop_front();
  }
  return out;
}

}  // namespace gpuop::cluster
