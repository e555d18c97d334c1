#include "cluster/kubelet/attach_session.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>

#include "base/files.h"
#include "base/inotify.h"
#include "base/text.h"
#include "cluster/kubelet/exec_session.h"

namespace gpuop::cluster {

LogRecord parse_log_record(std::string_view line) {
  const auto word = [&line] {
    const std::size_t end = line.find(' ');
    const std::string_view out = line.substr(0, end);
    line.remove_prefix(end == std::string_view::npos ? line.size() : end + 1);
    return out;
  };
  word();  // the moment
  const std::string_view stream = word(), tag = word();
  LogRecord out;
  if ((stream != "stdout" && stream != "stderr") || (tag != "F" && tag != "P")) return out;
  out.channel = stream == "stdout" ? 1 : 2;
  out.text = line;
  if (tag == "F") out.text += '\n';
  return out;
}

struct AttachSession::Impl : std::enable_shared_from_this<AttachSession::Impl> {
  Impl(Loop& l, std::unique_ptr<WebSocket> s, LogSource f, std::function<void()> o)
      : loop(l), socket(std::move(s)), source(std::move(f)), over(std::move(o)) {}

  Result<> begin() {
    file.reset(::open(source.path.c_str(), O_RDONLY | O_CLOEXEC));
    if (file && ::lseek(file.get(), 0, SEEK_END) < 0) return fail(errno_error("read a log", errno));
    watch = TRY(DirWatch::create(loop, source.path.parent_path(), [weak = weak_from_this()] {
      if (auto self = weak.lock()) self->pump();
    }));
    read_client();
    pump();
    return {};
  }

  // One piece; the next when the client's side has taken it.
  void pump() {
    if (!socket || sending || told) return;
    // Asked before reading: what is written up to the end is then read after it.
    const bool more = source.running();
    if (!file) file.reset(::open(source.path.c_str(), O_RDONLY | O_CLOEXEC));
    std::array<char, 32768> buffer;
    ssize_t n = 0;
    while (file && (n = ::read(file.get(), buffer.data(), buffer.size())) > 0) {
      rest.append(buffer.data(), static_cast<std::size_t>(n));
      if (take_records()) return;
    }
    if (more) return;
    told = true;
    queue = {std::string("\x03") + exec_status({})};
    send();
  }

  // Whether there was something to send.
  bool take_records() {
    std::array<std::string, 3> text;
    std::size_t begin = 0;
    for (std::size_t end = 0; (end = rest.find('\n', begin)) != std::string::npos; begin = end + 1) {
      const LogRecord record = parse_log_record(std::string_view(rest).substr(begin, end - begin));
      if ((record.channel == 1 && out) || (record.channel == 2 && err))
        text[static_cast<std::size_t>(record.channel)] += record.text;
    }
    rest.erase(0, begin);
    for (int channel : {1, 2}) {
      std::string& piece = text[static_cast<std::size_t>(channel)];
      if (!piece.empty()) queue.push_back(std::string(1, static_cast<char>(channel)) + piece);
    }
    if (queue.empty()) return false;
    send();
    return true;
  }

  void send() {
    sending = true;
    std::string next = std::move(queue.front());
    queue.erase(queue.begin());
    socket->write(std::move(next), [weak = weak_from_this()](const Result<>& how) {
      auto self = weak.lock();
      if (!self) return;
      self->sending = false;
      if (!how) return self->end();
      if (!self->queue.empty()) return self->send();
      self->told ? self->say_goodbye() : self->pump();
    });
  }

  void say_goodbye() {
    socket->close([weak = weak_from_this()] {
      if (auto self = weak.lock()) self->end();
    });
  }

  // Only its end is of interest.
  void read_client() {
    socket->read([weak = weak_from_this()](const Result<std::string>& message) {
      auto self = weak.lock();
      if (!self || !self->socket) return;
      if (message) return self->read_client();
      if (!self->told) self->end();
    });
  }

  // What calls may be the socket or the watch: they go on a later turn.
  void end() {
    told = true;
    loop.post([self = shared_from_this()] {
      self->watch.reset();
      self->socket.reset();
      if (auto call = std::exchange(self->over, nullptr)) call();
    });
  }

  Loop& loop;
  std::unique_ptr<WebSocket> socket;
  LogSource source;
  std::function<void()> over;
  bool out = true, err = true, sending = false, told = false;
  Fd file;
  std::string rest;  // of a line that is not complete
  std::vector<std::string> queue;
  std::unique_ptr<DirWatch> watch;
};

AttachSession::AttachSession(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
AttachSession::~AttachSession() {
  impl_->over = nullptr;
  impl_->watch.reset();
  impl_->socket.reset();
}

void AttachSession::pump() {
  impl_->pump();
}

Result<std::shared_ptr<AttachSession>> AttachSession::begin(Loop& loop, std::unique_ptr<WebSocket> socket,
                                                            LogSource source, bool out, bool err,
                                                            std::function<void()> over) {
  auto impl = std::make_shared<Impl>(loop, std::move(socket), std::move(source), std::move(over));
  impl->out = out;
  impl->err = err;
  TRY(impl->begin());
  return std::shared_ptr<AttachSession>(new AttachSession(std::move(impl)));
}

}  // namespace gpuop::cluster
