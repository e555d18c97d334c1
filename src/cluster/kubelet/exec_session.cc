#include "cluster/kubelet/exec_session.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <optional>

#include "base/json.h"
#include "base/text.h"

namespace gpuop::cluster {

namespace {

enum Channel : unsigned char { kStdin = 0, kStdout = 1, kStderr = 2, kStatus = 3, kResize = 4, kClose = 255 };

constexpr std::size_t kPiece = 32u << 10;

std::string message_of(Channel channel, std::string_view text) {
  std::string out(1, static_cast<char>(channel));
  out += text;
  return out;
}

struct Pipe {
  Fd read, write;
};
Result<Pipe> make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return fail(errno_error("make a pipe", errno));
  return Pipe{Fd(ends[0]), Fd(ends[1])};
}

void unblock(const Fd& fd) {
  ::fcntl(fd.get(), F_SETFL, ::fcntl(fd.get(), F_GETFL) | O_NONBLOCK);
}

// The terminal that a launcher sends, or its words.
Result<Fd> receive_console(int socket) {
  std::array<char, 1024> text{};
  iovec data{text.data(), text.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t n = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  const cmsghdr* header = n > 0 ? CMSG_FIRSTHDR(&message) : nullptr;
  if (header && header->cmsg_type == SCM_RIGHTS && header->cmsg_len == CMSG_LEN(sizeof(int))) {
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
    return Fd(fd);
  }
  return fail(Code::kUnavailable, n > 0 ? std::string(text.data(), static_cast<std::size_t>(n))
                                        : "exec: the program was not started");
}

std::string status_text(JsonObject fields) {
  JsonObject status{{"kind", "Status"}, {"apiVersion", "v1"}, {"metadata", JsonObject()}};
  for (auto& [key, value] : fields) status[key] = std::move(value);
  return to_text(Json(std::move(status)));
}

}  // namespace

Result<ExecRequest> parse_exec_request(const std::string& query) {
  ExecRequest out;
  for (const auto& [key, value] : parse_query(query)) {
    const bool yes = value == "true" || value == "1";
    if (key == "command") out.command.push_back(value);
    if (key == "stdin") out.in = yes;
    if (key == "stdout") out.out = yes;
    if (key == "stderr") out.err = yes;
    if (key == "tty") out.tty = yes;
  }
  // A terminal has one stream for both.
  if (out.tty) out.err = false;
  if (!out.in && !out.out && !out.err)
    return fail(Code::kInvalid, "you must specify at least 1 of stdin, stdout, stderr");
  return out;
}

std::string choose_exec_protocol(const std::vector<std::string>& offered) {
  for (const char* known : {"v5.channel.k8s.io", "v4.channel.k8s.io"}) {
    if (std::find(offered.begin(), offered.end(), known) != offered.end()) return known;
  }
  return {};
}

std::string exec_status(const ExitState& state) {
  if (state.code == 0) return status_text({{"status", "Success"}});
  const std::string code = std::to_string(state.code);
  return status_text(
      {{"status", "Failure"},
       {"message", "command terminated with non-zero exit code: exit status " + code},
       {"reason", "NonZeroExitCode"},
       {"details",
        JsonObject{{"causes", JsonArray{JsonObject{{"reason", "ExitCode"}, {"message", code}}}}}}});
}

std::string exec_failure(const Error& error) {
  return status_text({{"status", "Failure"},
                      {"message", "Internal error occurred: " + error.text()},
                      {"reason", "InternalError"},
                      {"details", JsonObject{{"causes", JsonArray{JsonObject{{"message", error.text()}}}}}},
                      {"code", 500}});
}

Result<TerminalSize> parse_terminal_size(std::string_view text) {
  const auto value = TRY(parse_json(text));
  const std::int64_t columns = get_int(value, {"Width"}, -1), rows = get_int(value, {"Height"}, -1);
  if (columns < 0 || rows < 0 || columns > 65535 || rows > 65535)
    return fail(Code::kInvalid, "size of a terminal: Width and Height must be within 0 and 65535");
  return TerminalSize{static_cast<std::uint16_t>(columns), static_cast<std::uint16_t>(rows)};
}

struct ExecSession::Impl : std::enable_shared_from_this<ExecSession::Impl> {
  Impl(Loop& l, std::unique_ptr<WebSocket> s, std::function<void()> o)
      : loop(l), socket(std::move(s)), over(std::move(o)) {}

  // A stream of the program's that goes to the client.
  struct Source {
    Channel channel = kStdout;
    Fd fd;
    Handle readable;
  };

  auto guarded(void (Impl::*what)()) {
    return [weak = weak_from_this(), what] {
      if (auto self = weak.lock()) ((*self).*what)();
    };
  }

  // --- the program

  void run(Runtime& runtime, const std::string& container, const ExecRequest& request) {
    auto streams = request.tty ? make_console() : make_pipes(request);
    if (!streams) return end_with(exec_failure(streams.error()));
    runtime.exec_stream(container, request.command, std::move(*streams),
                        [weak = weak_from_this()](Result<ExitState> state) {
                          if (auto self = weak.lock()) self->exited(std::move(state));
                        });
    read_client();
  }

  Result<ExecStreams> make_pipes(const ExecRequest& request) {
    ExecStreams theirs;
    if (request.in) {
      Pipe pipe = TRY(make_pipe());
      theirs.in = std::move(pipe.read);
      input = std::move(pipe.write);
      unblock(input);
    }
    for (const auto& [wanted, channel, fd] :
         {std::tuple(request.out, kStdout, &theirs.out), std::tuple(request.err, kStderr, &theirs.err)}) {
      if (!wanted) continue;
      Pipe pipe = TRY(make_pipe());
      *fd = std::move(pipe.write);
      add_source(channel, std::move(pipe.read));
    }
    return theirs;
  }

  Result<ExecStreams> make_console() {
    std::array<int, 2> ends{};
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0)
      return fail(errno_error("make a socket pair", errno));
    console.reset(ends[0]);
    console_ready = loop.on_readable(console.get(), guarded(&Impl::take_console));
    ExecStreams theirs;
    theirs.console.reset(ends[1]);
    return theirs;
  }

  void take_console() {
    auto terminal = receive_console(console.get());
    console_ready.reset();
    console.reset();
    // No terminal: the program's end, which comes, is told with these words.
    if (!terminal) {
      no_console = terminal.error();
      return finish_if_done();
    }
    unblock(*terminal);
    input.reset(::fcntl(terminal->get(), F_DUPFD_CLOEXEC, 3));
    if (size) resize(*size);
    add_source(kStdout, std::move(*terminal));
    feed();
  }

  void exited(Result<ExitState> state) {
    exit = std::move(state);
    finish_if_done();
  }

  // The end is told when nothing more can come. That may be long after the program's end, where another that
  // it started holds its streams.
  void finish_if_done() {
    if (!exit || console || !sources.empty() || !waiting.empty() || sending) return;
    if (told) return;
    if (!*exit) return end_with(exec_failure(exit->error()));
    end_with(no_console ? exec_failure(*no_console) : exec_status(**exit));
  }

  // --- from the program to the client

  void add_source(Channel channel, Fd fd) {
    unblock(fd);
    auto source = std::make_shared<Source>();
    source->channel = channel;
    source->fd = std::move(fd);
    sources.push_back(source);
    arm(source);
  }

  void arm(const std::shared_ptr<Source>& source) {
    source->readable = loop.on_readable(source->fd.get(), [weak = weak_from_this(), source] {
      if (auto self = weak.lock()) self->pump(source);
    });
  }

  // One piece; the next is read when the client's side has taken it.
  void pump(const std::shared_ptr<Source>& source) {
    std::string text(kPiece, '\0');
    const ssize_t n = ::read(source->fd.get(), text.data(), text.size());
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    source->readable.reset();
    if (n <= 0) {  // a terminal's end is EIO
      std::erase(sources, source);
      return finish_if_done();
    }
    text.resize(static_cast<std::size_t>(n));
    waiting.push_back({message_of(source->channel, text), source});
    send();
  }

  void send() {
    if (sending || waiting.empty() || !socket) return;
    sending = true;
    auto next = std::move(waiting.front());
    waiting.pop_front();
    socket->write(std::move(next.text),
                  [weak = weak_from_this(), source = std::move(next.source)](const Result<>& how) {
                    auto self = weak.lock();
                    if (!self) return;
                    self->sending = false;
                    if (!how) return self->client_gone();
                    if (source) self->arm(source);
                    self->send();
                    self->told ? self->say_goodbye() : self->finish_if_done();
                  });
  }

  void end_with(const std::string& status) {
    if (told) return;
    told = true;
    stop_input();
    waiting.push_back({message_of(kStatus, status), nullptr});
    send();
  }

  void say_goodbye() {
    if (sending || !waiting.empty() || !socket) return;
    socket->close([weak = weak_from_this()] {
      if (auto self = weak.lock()) self->client_gone();
    });
  }

  // --- from the client to the program

  void read_client() {
    if (!socket || std::exchange(reading, true)) return;
    socket->read([weak = weak_from_this()](Result<std::string> message) {
      auto self = weak.lock();
      if (!self) return;
      self->reading = false;
      // After the end was told the client's own end is the goodbye's business.
      if (!message) return self->told ? void() : self->client_gone();
      self->take(*message);
    });
  }

  void take(const std::string& message) {
    if (message.empty()) return read_client();
    const std::string_view rest = std::string_view(message).substr(1);
    switch (static_cast<unsigned char>(message[0])) {
      case kStdin:
        pending = rest;
        return feed();
      case kResize:
        if (auto asked = parse_terminal_size(rest)) resize(*asked);
        break;
      case kClose:
        if (can_close && rest == std::string_view("\0", 1)) close_stdin();
        break;
      default:
        break;
    }
    read_client();
  }

  // Writes what came; the next message is read when all of it is with the program.
  void feed() {
    if (console) return;  // the terminal is still to come
    while (!pending.empty() && input) {
      const ssize_t n = ::write(input.get(), pending.data(), pending.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && errno == EAGAIN) {
        if (!writable) writable = loop.on_writable(input.get(), guarded(&Impl::feed));
        return;
      }
      if (n < 0) {  // nobody reads any more: what comes is dropped
        stop_input();
        break;
      }
      pending.erase(0, static_cast<std::size_t>(n));
    }
    pending.clear();
    writable.reset();
    read_client();
  }

  // A terminal has no half that could be closed: its end of input is a character.
  void close_stdin() {
    if (!tty) stop_input();
  }

  void stop_input() {
    writable.reset();
    input.reset();
  }

  void resize(TerminalSize to) {
    size = to;
    if (!tty || !input) return;
    winsize window{};
    window.ws_col = to.columns;
    window.ws_row = to.rows;
    ::ioctl(input.get(), TIOCSWINSZ, &window);
  }

  // --- the end

  void client_gone() {
    if (!over) return;
    told = true;
    stop_input();
    console_ready.reset();
    for (const auto& source : sources) source->readable.reset();
    // What calls may be the socket; everything goes on a later turn.
    loop.post([self = shared_from_this()] {
      self->sources.clear();
      self->waiting.clear();
      self->console.reset();
      self->socket.reset();
      if (auto call = std::exchange(self->over, nullptr)) call();
    });
  }

  struct Message {
    std::string text;
    std::shared_ptr<Source> source;  // what is read on when it has gone
  };

  Loop& loop;
  std::unique_ptr<WebSocket> socket;
  std::function<void()> over;
  bool can_close = false, tty = false;
  std::vector<std::shared_ptr<Source>> sources;
  std::deque<Message> waiting;
  bool reading = false, sending = false, told = false;
  Fd input, console;  // the program's stdin or terminal; where a terminal comes from
  std::string pending;
  Handle writable, console_ready;
  std::optional<TerminalSize> size;
  std::optional<Error> no_console;
  std::optional<Result<ExitState>> exit;
};

ExecSession::ExecSession(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
ExecSession::~ExecSession() {
  impl_->over = nullptr;
  impl_->writable.reset();
  impl_->console_ready.reset();
  for (const auto& source : impl_->sources) source->readable.reset();
  impl_->sources.clear();
  impl_->waiting.clear();
  impl_->socket.reset();
}

std::shared_ptr<ExecSession> ExecSession::begin(Loop& loop, std::unique_ptr<WebSocket> socket,
                                                bool can_close_stdin, Runtime& runtime,
                                                const std::string& container, const ExecRequest& request,
                                                std::function<void()> over) {
  auto impl = std::make_shared<Impl>(loop, std::move(socket), std::move(over));
  impl->can_close = can_close_stdin;
  impl->tty = request.tty;
  impl->run(runtime, container, request);
  return std::shared_ptr<ExecSession>(new ExecSession(std::move(impl)));
}

std::shared_ptr<ExecSession> ExecSession::refuse(Loop& loop, std::unique_ptr<WebSocket> socket,
                                                 const Error& why, std::function<void()> over) {
  auto impl = std::make_shared<Impl>(loop, std::move(socket), std::move(over));
  impl->end_with(exec_failure(why));
  return std::shared_ptr<ExecSession>(new ExecSession(std::move(impl)));
}

}  // namespace gpuop::cluster
