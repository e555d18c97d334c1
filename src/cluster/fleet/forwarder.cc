#include "cluster/fleet/forwarder.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <map>

namespace gpuop::cluster {
namespace {

constexpr std::size_t kMostBuffered = 256u << 10;

// One connection and its other half.
struct Relay : std::enable_shared_from_this<Relay> {
  struct End {
    Fd fd;
    Handle readable, writable;
    std::string out;  // bytes for this end that it has not taken yet
    bool read_ended = false;
    bool closed_for_write = false;
  };

  Relay(Loop& l, Fd one, Fd other, std::function<void()> ended) : loop(l), done(std::move(ended)) {
    ends[0].fd = std::move(one);
    ends[1].fd = std::move(other);
  }

  void begin() {
    // The far end is still connecting: it becomes writable when it is there, readable with an error
    // otherwise.
    watch_read(0);
    watch_read(1);
  }

  void watch_read(int from) {
    End& end = ends[static_cast<std::size_t>(from)];
    if (end.readable || end.read_ended || !end.fd) return;
    auto weak = weak_from_this();
    end.readable = loop.on_readable(end.fd.get(), [weak, from] {
      if (auto self = weak.lock()) self->read(from);
    });
  }

  void read(int from) {
    auto keep = shared_from_this();
    End& end = ends[static_cast<std::size_t>(from)];
    End& other = ends[static_cast<std::size_t>(1 - from)];
    std::array<char, 65536> buffer;
    ssize_t n = ::recv(end.fd.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n < 0) return close();
    if (n == 0) {
      end.read_ended = true;
      end.readable.reset();
      if (other.out.empty()) shut_write(1 - from);
      return;
    }
    other.out.append(buffer.data(), static_cast<std::size_t>(n));
    if (other.out.size() > kMostBuffered) end.readable.reset();  // until it is taken
    write(1 - from);
  }

  void write(int to) {
    auto keep = shared_from_this();
    End& end = ends[static_cast<std::size_t>(to)];
    while (!end.out.empty()) {
      ssize_t n = ::send(end.fd.get(), end.out.data(), end.out.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && (errno == EAGAIN || errno == ENOTCONN)) {
        if (end.writable) return;
        auto weak = weak_from_this();
        end.writable = loop.on_writable(end.fd.get(), [weak, to] {
          if (auto self = weak.lock()) self->write(to);
        });
        return;
      }
      if (n < 0) return close();
      end.out.erase(0, static_cast<std::size_t>(n));
    }
    end.writable.reset();
    if (ends[static_cast<std::size_t>(1 - to)].read_ended) {
      shut_write(to);
    } else {
      watch_read(1 - to);
    }
  }

  void shut_write(int to) {
    End& end = ends[static_cast<std::size_t>(to)];
    if (!end.closed_for_write) ::shutdown(end.fd.get(), SHUT_WR);
    end.closed_for_write = true;
    if (ends[0].closed_for_write && ends[1].closed_for_write) close();
  }

  void close() {
    for (End& end : ends) {
      end.readable.reset();
      end.writable.reset();
      end.fd.reset();
    }
    if (auto call = std::exchange(done, nullptr)) call();
  }

  Loop& loop;
  std::array<End, 2> ends;
  std::function<void()> done;
};

}  // namespace

struct Forwarder::Impl : std::enable_shared_from_this<Forwarder::Impl> {
  Impl(Loop& l, Fd fd) : loop(l), listening(std::move(fd)) {}

  void begin() {
    ::fcntl(listening.get(), F_SETFL, O_NONBLOCK);
    auto weak = weak_from_this();
    acceptable = loop.on_readable(listening.get(), [weak] {
      if (auto self = weak.lock()) self->accept();
    });
  }

  void accept() {
    Fd near(::accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!near) return;
    Fd far(::socket(target.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!far) return;
    int one = 1;
    ::setsockopt(near.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    ::setsockopt(far.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (::connect(far.get(), reinterpret_cast<sockaddr*>(&target), target_size) != 0 && errno != EINPROGRESS)
      return;
    std::uint64_t number = next++;
    auto weak = weak_from_this();
    auto relay = std::make_shared<Relay>(loop, std::move(near), std::move(far), [weak, number] {
      auto self = weak.lock();
      if (!self) return;
      auto gone = std::move(self->relays[number]);
      self->relays.erase(number);
      self->loop.post([gone] {});
    });
    relays[number] = relay;
    relay->begin();
  }

  Loop& loop;
  Fd listening;
  Handle acceptable;
  sockaddr_storage target{};
  socklen_t target_size = 0;
  std::map<std::uint64_t, std::shared_ptr<Relay>> relays;
  std::uint64_t next = 0;
};

Forwarder::Forwarder(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
Forwarder::~Forwarder() {
  impl_->acceptable.reset();
  for (auto& [number, relay] : impl_->relays) {
    relay->done = nullptr;
    relay->close();
  }
}

Result<std::unique_ptr<Forwarder>> Forwarder::create(Loop& loop, Fd listening, const std::string& host,
                                                     int port) {
  auto impl = std::make_shared<Impl>(loop, std::move(listening));
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  int rc = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (rc != 0 || !found) {
    return fail(Code::kNotFound,
                "forward to '" + host + ":" + std::to_string(port) + "': " + ::gai_strerror(rc));
  }
  std::memcpy(&impl->target, found->ai_addr, found->ai_addrlen);
  impl->target_size = found->ai_addrlen;
  ::freeaddrinfo(found);
  impl->begin();
  return std::unique_ptr<Forwarder>(new Forwarder(std::move(impl)));
}

Result<Fd> listen_here(const std::string& address, int port) {
  std::string doing = "listen on '" + address + ":" + std::to_string(port) + "'";
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_port = htons(static_cast<std::uint16_t>(port));
  if (::inet_pton(AF_INET, address.c_str(), &where.sin_addr) != 1)
    return fail(Code::kInvalid, doing + ": not an IPv4 address");
  Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  int one = 1;
  if (socket) ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (!socket || ::bind(socket.get(), reinterpret_cast<sockaddr*>(&where), sizeof where) != 0 ||
      ::listen(socket.get(), 512) != 0) {
    return fail(errno_error(doing, errno));
  }
  return socket;
}

Result<Fd> listen_in_namespace(int netns, const std::string& address, int port) {
  Fd home(::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
  if (!home || ::setns(netns, CLONE_NEWNET) != 0) return fail(errno_error("enter network namespace", errno));
  auto socket = listen_here(address, port);
  if (::setns(home.get(), CLONE_NEWNET) != 0) return fail(errno_error("leave network namespace", errno));
  return socket;
}

Result<int> port_of(int socket) {
  sockaddr_in where{};
  socklen_t size = sizeof where;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&where), &size) != 0) {
    return fail(errno_error("ask for a socket's port", errno));
  }
  return ntohs(where.sin_port);
}

}  // namespace gpuop::cluster
