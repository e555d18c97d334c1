#include "cluster/runtime/line_socket.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>

namespace gpuop::cluster {

namespace {
constexpr std::size_t kLongestLine = 64u << 20;
}

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
      ssize_t n = ::recv(fd.get(), buffer.data(), buffer.size(), 0);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && errno == EAGAIN) return;
      if (n <= 0) return end();
      in.append(buffer.data(), static_cast<std::size_t>(n));
      if (!take_lines() || in.size() > kLongestLine) return end();
    }
  }

  bool take_lines() {
    std::size_t begin = 0;
    for (std::size_t at; (at = in.find('\n', begin)) != std::string::npos; begin = at + 1) {
      auto value = parse_json(std::string_view(in).substr(begin, at - begin));
      if (!value) return false;
      auto keep = shared_from_this();
      if (line) line(std::move(*value));
      if (!fd) return true;  // closed by what the line did
    }
    in.erase(0, begin);
    return true;
  }

  void send(const std::string& text) {
    if (!fd) return;
    out += text;
    flush();
  }

  void flush() {
    while (!out.empty()) {
      ssize_t n = ::send(fd.get(), out.data(), out.size(), MSG_NOSIGNAL);
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
      out.erase(0, static_cast<std::size_t>(n));
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
  std::string in, out;
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
  impl_->send(to_text(value) + "\n");
}

}  // namespace gpuop::cluster
