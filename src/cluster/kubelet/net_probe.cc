#include "cluster/kubelet/net_probe.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/files.h"
#include "base/text.h"

namespace gpuop::cluster {

namespace {

constexpr std::size_t kAnswerLimit = 10u << 10;  // what a probe reads of an answer

struct SslContextFree {
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
};
struct SslFree {
  void operator()(SSL* ssl) const { SSL_free(ssl); }
};

}  // namespace

// This thread visits the namespace for the length of one call.
Result<Fd> socket_in(const std::string& netns_path, int family) {
  const int type = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;
  if (netns_path.empty()) {
    Fd made(::socket(family, type, 0));
    if (!made) return fail(errno_error("make a socket", errno));
    return made;
  }
  const Fd home(::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
  if (!home) return fail(errno_error("open '/proc/thread-self/ns/net'", errno));
  const Fd there(::open(netns_path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!there) return fail(errno_error("open '" + netns_path + "'", errno));
  if (::setns(there.get(), CLONE_NEWNET) != 0) return fail(errno_error("enter '" + netns_path + "'", errno));
  Fd made(::socket(family, type, 0));
  const int error = errno;
  if (::setns(home.get(), CLONE_NEWNET) != 0) std::abort();  // in the wrong network there is no going on
  if (!made) return fail(errno_error("make a socket", error));
  return made;
}

namespace {

struct Address {
  sockaddr_storage storage{};
  socklen_t length = 0;
};

Result<Address> address_of(std::string host, int port) {
  if (host == "localhost") host = "127.0.0.1";
  Address out;
  auto* v4 = reinterpret_cast<sockaddr_in*>(&out.storage);
  if (::inet_pton(AF_INET, host.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(static_cast<std::uint16_t>(port));
    out.length = sizeof(sockaddr_in);
    return out;
  }
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&out.storage);
  if (::inet_pton(AF_INET6, host.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(static_cast<std::uint16_t>(port));
    out.length = sizeof(sockaddr_in6);
    return out;
  }
  return fail(Code::kInvalid, "dial tcp: lookup " + host + ": no such host");
}

class Attempt : public std::enable_shared_from_this<Attempt> {
 public:
  Attempt(Loop& loop, NetProbe probe, std::function<void(Result<>)> done)
      : loop_(loop), probe_(std::move(probe)), done_(std::move(done)) {}

  void start(const std::string& netns_path) {
    auto address = address_of(probe_.host, probe_.port);
    if (!address) return later(fail(std::move(address).error()));
    auto made = socket_in(netns_path, address->storage.ss_family);
    if (!made) return later(fail(std::move(made).error()));
    socket_ = std::move(*made);
    deadline_ = loop_.after(probe_.timeout, [self = shared_from_this()] { self->timed_out(); });
    if (::connect(socket_.get(), reinterpret_cast<sockaddr*>(&address->storage), address->length) == 0) {
      return connected();
    }
    if (errno != EINPROGRESS) return later(dial_error(errno));
    on_write([](Attempt& self) {
      int error = 0;
      socklen_t size = sizeof error;
      ::getsockopt(self.socket_.get(), SOL_SOCKET, SO_ERROR, &error, &size);
      if (error != 0) return self.finish(self.dial_error(error));
      self.connected();
    });
  }
  void cancel() {
    done_ = nullptr;
    close();
  }

 private:
  std::string target() const { return probe_.host + ":" + std::to_string(probe_.port); }
  std::string url() const {
    return (probe_.kind == NetProbe::Kind::kHttps ? "https://" : "http://") + target() + probe_.path;
  }
  // As the real probes word it.
  std::string doing() const { return probe_.kind == NetProbe::Kind::kTcp ? "" : "Get \"" + url() + "\": "; }
  Result<> dial_error(int error) const {
    std::string why = errno_error("", error).text();
    if (error == ECONNREFUSED) why = "connection refused";
    return fail(Code::kUnavailable, doing() + "dial tcp " + target() + ": connect: " + why);
  }
  void timed_out() {
    if (probe_.kind == NetProbe::Kind::kTcp) {
      return finish(fail(Code::kTimeout, "dial tcp " + target() + ": i/o timeout"));
    }
    finish(fail(Code::kTimeout,
                doing() + "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"));
  }

  void on_write(void (*next)(Attempt&)) {
    reads_.reset();
    writes_ = loop_.on_writable(socket_.get(), [self = shared_from_this(), next] {
      self->writes_.reset();
      next(*self);
    });
  }
  void on_read(void (*next)(Attempt&)) {
    writes_.reset();
    reads_ = loop_.on_readable(socket_.get(), [self = shared_from_this(), next] {
      self->reads_.reset();
      next(*self);
    });
  }

  void connected() {
    if (probe_.kind == NetProbe::Kind::kTcp) return finish({});
    out_ = request();
    if (probe_.kind == NetProbe::Kind::kHttp) return send();
    context_.reset(SSL_CTX_new(TLS_client_method()));
    SSL_CTX_set_verify(context_.get(), SSL_VERIFY_NONE, nullptr);
    ssl_.reset(SSL_new(context_.get()));
    SSL_set_fd(ssl_.get(), socket_.get());
    SSL_set_connect_state(ssl_.get());
    send();
  }

  std::string request() const {
    std::string text = "GET " + (probe_.path.empty() ? "/" : probe_.path) + " HTTP/1.1\r\n";
    bool host = false, agent = false, accept = false;
    for (const auto& [name, value] : probe_.headers) {
      const std::string lower = to_lower(name);
      host = host || lower == "host";
      agent = agent || lower == "user-agent";
      accept = accept || lower == "accept";
      text += name + ": " + value + "\r\n";
    }
    if (!host) text += "Host: " + target() + "\r\n";
    if (!agent) text += "User-Agent: kube-probe/1.34\r\n";
    if (!accept) text += "Accept: */*\r\n";
    return text + "Connection: close\r\n\r\n";
  }

  // One write or read; negative: again later (the wait is set) or failed (finished).
  ssize_t transfer(bool write, char* buffer, std::size_t size, void (*again)(Attempt&)) {
    if (ssl_) {
      ERR_clear_error();
      const int count = write ? SSL_write(ssl_.get(), buffer, static_cast<int>(size))
                              : SSL_read(ssl_.get(), buffer, static_cast<int>(size));
      if (count > 0) return count;
      switch (SSL_get_error(ssl_.get(), count)) {
        case SSL_ERROR_WANT_READ:
          on_read(again);
          return -1;
        case SSL_ERROR_WANT_WRITE:
          on_write(again);
          return -1;
        case SSL_ERROR_ZERO_RETURN:
          return 0;
        default:
          break;
      }
      if (!write && !in_.empty()) return 0;
      finish(fail(Code::kIo, doing() + "tls: the handshake or the connection failed"));
      return -1;
    }
    const ssize_t count =
        write ? ::send(socket_.get(), buffer, size, MSG_NOSIGNAL) : ::recv(socket_.get(), buffer, size, 0);
    if (count >= 0) return count;
    if (errno == EAGAIN || errno == EINTR) {
      write ? on_write(again) : on_read(again);
      return -1;
    }
    finish(fail(Code::kIo, doing() + (write ? "write" : "read") + " tcp " + target() + ": " +
                               errno_error("", errno).text()));
    return -1;
  }

  void send() {
    while (!out_.empty()) {
      const ssize_t count = transfer(true, out_.data(), out_.size(), [](Attempt& self) { self.send(); });
      if (count < 0) return;
      out_.erase(0, static_cast<std::size_t>(count));
    }
    receive();
  }

  void receive() {
    char buffer[4096];
    while (true) {
      const ssize_t count = transfer(false, buffer, sizeof buffer, [](Attempt& self) { self.receive(); });
      if (count < 0) return;
      in_.append(buffer, static_cast<std::size_t>(count));
      // The status line and the end of the headers say all; the body matters only for a failure's text.
      const bool over = count == 0 || in_.size() >= kAnswerLimit;
      if (in_.find("\r\n\r\n") != std::string::npos || over) return answered();
    }
  }

  void answered() {
    const auto words = split_fields(std::string_view(in_).substr(0, in_.find("\r\n")));
    const auto status =
        words.size() >= 2 && words[0].starts_with("HTTP/") ? parse_int(words[1]) : std::nullopt;
    if (!status) {
      return finish(fail(Code::kIo, doing() + (in_.empty() ? "EOF" : "malformed HTTP response")));
    }
    if (*status >= 200 && *status < 400) return finish({});
    finish(fail(Code::kUnavailable, "HTTP probe failed with statuscode: " + std::to_string(*status)));
  }

  void later(Result<> how) {
    loop_.post([self = shared_from_this(), how] { self->finish(how); });
  }
  void finish(Result<> how) {
    close();
    if (auto done = std::exchange(done_, nullptr)) done(std::move(how));
  }
  void close() {
    reads_.reset();
    writes_.reset();
    deadline_.reset();
    ssl_.reset();
    context_.reset();
    socket_.reset();
  }

  Loop& loop_;
  NetProbe probe_;
  std::function<void(Result<>)> done_;
  Fd socket_;
  Handle reads_, writes_, deadline_;
  std::unique_ptr<SSL_CTX, SslContextFree> context_;
  std::unique_ptr<SSL, SslFree> ssl_;
  std::string out_, in_;
};

}  // namespace

NetProber make_net_prober(Loop& loop, std::string netns_path) {
  return
      [&loop, netns_path = std::move(netns_path)](const NetProbe& probe, std::function<void(Result<>)> done) {
        auto attempt = std::make_shared<Attempt>(loop, probe, std::move(done));
        attempt->start(netns_path);
        return Handle([weak = std::weak_ptr<Attempt>(attempt)] {
          if (const auto self = weak.lock()) self->cancel();
        });
      };
}

}  // namespace gpuop::cluster
