#include "cluster/kubelet/port_forward.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <map>
#include <vector>

#include "base/files.h"
#include "base/text.h"
#include "cluster/kubelet/net_probe.h"
#include "cluster/kubelet/spdy.h"

namespace gpuop::cluster {

namespace {

constexpr std::size_t kPiece = 32u << 10;
constexpr std::size_t kMostWaiting = 256u << 10;  // for one connection's socket: the client waits
constexpr std::size_t kMostConnections = 1000;    // of one client
constexpr std::size_t kMostFrames = 1000;         // that the client has not taken: it is not heard meanwhile
constexpr std::uint32_t kRefusedStream = 3;

// One connection to a port, and the streams that it is to the client.
struct Forwarded {
  std::uint32_t error = 0, data = 0;  // streams; 0: not opened yet
  int port = 0;
  Fd socket;
  Handle readable, writable;
  std::string pending;  // for the socket
  bool connected = false;
  bool client_ended = false;  // the client says nothing more
  bool server_ended = false;  // nor does the server
};
using ForwardedPtr = std::shared_ptr<Forwarded>;

}  // namespace

struct PortForward::Impl : std::enable_shared_from_this<PortForward::Impl> {
  Impl(Loop& l, std::unique_ptr<WebSocket> s, std::string n, std::string p, std::function<void()> o)
      : loop(l), socket(std::move(s)), netns(std::move(n)), pod(std::move(p)), over(std::move(o)) {}

  // --- frames from the client

  void read_client() {
    if (!socket || std::exchange(reading, true)) return;
    socket->read([weak = weak_from_this()](const Result<std::string>& message) {
      auto self = weak.lock();
      if (!self) return;
      self->reading = false;
      message ? self->take(*message) : self->end();
    });
  }

  void take(const std::string& message) {
    auto frames = reader.feed(message);
    if (!frames) return end();
    for (const SpdyFrame& frame : *frames) take_frame(frame);
    read_on();
  }

  // Unless a connection has more waiting than it should.
  void read_on() {
    const bool full = std::any_of(connections.begin(), connections.end(), [](const auto& entry) {
      return entry.second->pending.size() > kMostWaiting;
    });
    if (!full && waiting.size() < kMostFrames) read_client();
  }

  void take_frame(const SpdyFrame& frame) {
    switch (frame.kind) {
      case SpdyFrame::Kind::kSynStream:
        return open_stream(frame);
      case SpdyFrame::Kind::kPing:
        return say(SpdyWriter::ping(frame.stream));
      case SpdyFrame::Kind::kGoAway:
        return end();
      case SpdyFrame::Kind::kReset:
        if (auto connection = of_data(frame.stream)) close(connection);
        return;
      case SpdyFrame::Kind::kData:
        if (auto connection = of_data(frame.stream)) {
          connection->pending += frame.data;
          connection->client_ended = connection->client_ended || frame.last;
          feed(connection);
        }
        return;
      default:
        return;
    }
  }

  ForwardedPtr of_data(std::uint32_t stream) const {
    for (const auto& [id, connection] : connections) {
      if (stream != 0 && connection->data == stream) return connection;
    }
    return nullptr;
  }

  void open_stream(const SpdyFrame& frame) {
    const auto header = [&frame](const char* name) {
      const auto found = frame.headers.find(name);
      return found == frame.headers.end() ? std::string() : found->second;
    };
    const std::string type = header("streamtype"), id = header("requestid");
    const auto port = parse_int(header("port"));
    const bool known = connections.contains(id);
    if ((type != "error" && type != "data") || !port || *port < 1 || *port > 65535 ||
        (!known && connections.size() >= kMostConnections))
      return say(SpdyWriter::reset(frame.stream, kRefusedStream));
    ForwardedPtr& connection = connections[id];
    if (!connection) connection = std::make_shared<Forwarded>();
    (type == "error" ? connection->error : connection->data) = frame.stream;
    connection->port = static_cast<int>(*port);
    say(writer.syn_reply(frame.stream));
    const ForwardedPtr held = connection;
    if (held->error != 0 && held->data != 0 && !held->socket) connect(held);
  }

  // --- the port

  void connect(const ForwardedPtr& connection) {
    auto made = socket_in(netns, AF_INET);
    if (!made) return failed(connection, made.error().text());
    connection->socket = std::move(*made);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(connection->port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(connection->socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0)
      return connected(connection);
    if (errno != EINPROGRESS) return failed(connection, dial_error(*connection, errno));
    connection->writable = loop.on_writable(connection->socket.get(), [weak = weak_from_this(), connection] {
      auto self = weak.lock();
      if (!self) return;
      connection->writable.reset();
      int error = 0;
      socklen_t size = sizeof error;
      ::getsockopt(connection->socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
      error ? self->failed(connection, dial_error(*connection, error)) : self->connected(connection);
    });
  }

  static std::string dial_error(const Forwarded& connection, int error) {
    const std::string why = error == ECONNREFUSED ? "connection refused" : errno_error("", error).text();
    return "dial tcp4 127.0.0.1:" + std::to_string(connection.port) + ": connect: " + why;
  }

  void failed(const ForwardedPtr& connection, const std::string& why) {
    say(SpdyWriter::data(
        connection->error,
        "error forwarding port " + std::to_string(connection->port) + " to pod " + pod + ": " + why, true));
    connection->error = 0;
    close(connection);
  }

  void connected(const ForwardedPtr& connection) {
    connection->connected = true;
    arm(connection);
    feed(connection);
  }

  void arm(const ForwardedPtr& connection) {
    if (!connection->socket || connection->server_ended) return;
    connection->readable = loop.on_readable(connection->socket.get(), [weak = weak_from_this(), connection] {
      if (auto self = weak.lock()) self->pump(connection);
    });
  }

  // One piece; the next is read when the client's side has taken it.
  void pump(const ForwardedPtr& connection) {
    std::string text(kPiece, '\0');
    const ssize_t n = ::recv(connection->socket.get(), text.data(), text.size(), 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    connection->readable.reset();
    connection->server_ended = n <= 0;
    text.resize(static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
    // The client closes its end on the data stream's, and then waits for the error stream's.
    say(SpdyWriter::data(connection->data, text, connection->server_ended), connection);
    if (connection->server_ended) close(connection);
  }

  void feed(const ForwardedPtr& connection) {
    std::string& pending = connection->pending;
    while (connection->connected && !pending.empty()) {
      const ssize_t n = ::send(connection->socket.get(), pending.data(), pending.size(), MSG_NOSIGNAL);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && errno == EAGAIN) {
        if (!connection->writable)
          connection->writable =
              loop.on_writable(connection->socket.get(), [weak = weak_from_this(), connection] {
                auto self = weak.lock();
                if (!self) return;
                self->feed(connection);
                self->read_on();
              });
        return;
      }
      if (n < 0) {
        pending.clear();
        break;
      }
      pending.erase(0, static_cast<std::size_t>(n));
    }
    if (!connection->connected) return;
    connection->writable.reset();
    if (connection->client_ended) ::shutdown(connection->socket.get(), SHUT_WR);
  }

  // Both streams end; what was said on them is still on its way.
  void close(const ForwardedPtr& connection) {
    connection->readable.reset();
    connection->writable.reset();
    connection->socket.reset();
    connection->connected = false;
    if (!connection->server_ended) say(SpdyWriter::data(connection->data, "", true));
    if (connection->error != 0) say(SpdyWriter::data(connection->error, "", true));
    connection->server_ended = true;
    std::erase_if(connections, [&](const auto& entry) { return entry.second == connection; });
  }

  // --- to the client

  void say(std::string frame, ForwardedPtr then = nullptr) {
    waiting.emplace_back(std::move(frame), std::move(then));
    send();
  }

  void send() {
    if (sending || waiting.empty() || !socket) return;
    sending = true;
    auto [frame, then] = std::move(waiting.front());
    waiting.pop_front();
    socket->write(std::move(frame), [weak = weak_from_this(), then = std::move(then)](const Result<>& how) {
      auto self = weak.lock();
      if (!self) return;
      self->sending = false;
      if (!how) return self->end();
      if (then) self->arm(then);
      self->send();
      self->read_on();
    });
  }

  // What calls may be the socket: it goes on a later turn.
  void end() {
    loop.post([self = shared_from_this()] {
      self->drop();
      if (auto call = std::exchange(self->over, nullptr)) call();
    });
  }

  void drop() {
    socket.reset();
    waiting.clear();
    for (const auto& [id, connection] : connections) {
      connection->readable.reset();
      connection->writable.reset();
    }
    connections.clear();
  }

  Loop& loop;
  std::unique_ptr<WebSocket> socket;
  std::string netns, pod;
  std::function<void()> over;
  SpdyReader reader;
  SpdyWriter writer;
  std::map<std::string, ForwardedPtr> connections;  // by requestid
  std::deque<std::pair<std::string, ForwardedPtr>> waiting;
  bool reading = false, sending = false;
};

PortForward::PortForward(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
PortForward::~PortForward() {
  impl_->over = nullptr;
  impl_->drop();
}

std::shared_ptr<PortForward> PortForward::begin(Loop& loop, std::unique_ptr<WebSocket> socket,
                                                std::string netns_path, std::string pod,
                                                std::function<void()> over) {
  auto impl =
      std::make_shared<Impl>(loop, std::move(socket), std::move(netns_path), std::move(pod), std::move(over));
  impl->read_client();
  return std::shared_ptr<PortForward>(new PortForward(std::move(impl)));
}

}  // namespace gpuop::cluster
