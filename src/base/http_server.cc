#include "base/http_server.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/buffers_to_string.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <set>

#include "base/asio_byte_stream.h"
#include "base/files.h"
#include "base/text.h"

namespace gpuop {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using Socket = asio::generic::stream_protocol::socket;
using TlsStream = asio::ssl::stream<Socket>;
using boost::system::error_code;

namespace {

std::string reason_of(int status) {
  return std::string(http::obsolete_reason(static_cast<http::status>(status)));
}

std::string render_head(int status, const Headers& headers) {
  std::string head = "HTTP/1.1 " + std::to_string(status) + " " + reason_of(status) + "\r\n";
  for (const auto& [name, value] : headers) {
    head += name;
    head += ": ";
    for (char c : value) {
      if (c != '\r' && c != '\n') head += c;  // a value must not start a header of its own
    }
    head += "\r\n";
  }
  return head;
}

std::string chunk_of(const std::string& data) {
  char size[24];
  std::snprintf(size, sizeof size, "%zx\r\n", data.size());
  return size + data + "\r\n";
}

// Answers go out at once; a peer that vanished (no power, no route) is noticed.
void set_options(int socket, Duration silence) {
  ::fcntl(socket, F_SETFD, FD_CLOEXEC);  // a program that is run must not hold it open
  const auto set = [socket](int level, int option, int value) {
    ::setsockopt(socket, level, option, &value, sizeof value);
  };
  const int seconds =
      std::max(1, static_cast<int>(std::chrono::duration_cast<std::chrono::seconds>(silence).count()));
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, seconds);
  set(IPPROTO_TCP, TCP_KEEPINTVL, std::max(1, seconds / 4));
  set(IPPROTO_TCP, TCP_KEEPCNT, 4);
  // The same for bytes that nobody acknowledges, which keep-alive does not look at.
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, seconds * 2 * 1000);
}

struct ClientCertificate {
  std::string cn;
  std::vector<std::string> orgs;
};

ClientCertificate read_certificate(SSL* ssl) {
  ClientCertificate out;
  X509* certificate = SSL_get_peer_certificate(ssl);
  if (!certificate) return out;
  if (SSL_get_verify_result(ssl) == X509_V_OK) {
    X509_NAME* name = X509_get_subject_name(certificate);
    const auto text_at = [name](int index) {
      const ASN1_STRING* data = X509_NAME_ENTRY_get_data(X509_NAME_get_entry(name, index));
      return std::string(reinterpret_cast<const char*>(ASN1_STRING_get0_data(data)),
                         static_cast<std::size_t>(ASN1_STRING_length(data)));
    };
    if (const int at = X509_NAME_get_index_by_NID(name, NID_commonName, -1); at >= 0) out.cn = text_at(at);
    for (int at = -1; (at = X509_NAME_get_index_by_NID(name, NID_organizationName, at)) >= 0;) {
      out.orgs.push_back(text_at(at));
    }
  }
  X509_free(certificate);
  return out;
}

// A body of no more than `limit` bytes and one: the next is an error, what is there already stays. What the
// client announces is not believed: nothing is set aside for it.
struct LimitedBody {
  struct value_type {
    std::string text;
    std::size_t limit = 0;
  };
  static std::uint64_t size(const value_type& body) { return body.text.size(); }
  class reader {
   public:
    template <bool kRequest, class Fields>
    reader(http::header<kRequest, Fields>&, value_type& body) : body_(body) {}
    void init(const boost::optional<std::uint64_t>& length, error_code& error) {
      error = {};
      body_.text.reserve(static_cast<std::size_t>(std::min<std::uint64_t>(length.value_or(0), body_.limit)));
    }
    template <class Buffers>
    std::size_t put(const Buffers& buffers, error_code& error) {
      error = {};
      for (auto it = asio::buffer_sequence_begin(buffers); it != asio::buffer_sequence_end(buffers); ++it) {
        const asio::const_buffer part(*it);
        const std::size_t room = body_.limit + 1 - body_.text.size();
        body_.text.append(static_cast<const char*>(part.data()), std::min(room, part.size()));
      }
      if (body_.text.size() > body_.limit) error = http::error::body_limit;
      return asio::buffer_size(buffers);
    }
    void finish(error_code& error) { error = {}; }

   private:
    value_type& body_;
  };
};

// What an API server says without having looked at the request.
std::string status_body(int code, const std::string& reason, const std::string& message) {
  std::string text = R"({"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":")";
  text += message + "\"";
  if (!reason.empty()) text += R"(,"reason":")" + reason + "\"";
  return text + ",\"code\":" + std::to_string(code) + "}\n";
}

}  // namespace

class Connection;

struct HttpServer::Impl : std::enable_shared_from_this<HttpServer::Impl> {
  Impl(Loop& l, HttpServerOptions o, HttpHandler h)
      : loop(l), options(std::move(o)), handler(std::move(h)), acceptor(l.io()) {}
  Result<> open();
  Result<> open_tls();
  void accept();
  void close();

  Loop& loop;
  HttpServerOptions options;
  HttpHandler handler;
  asio::basic_socket_acceptor<asio::generic::stream_protocol> acceptor;
  std::optional<asio::ssl::context> tls;
  std::set<std::shared_ptr<Connection>> connections;
  std::uint16_t port = 0;
  Handle retry;
  bool closed = false;
};

// One client's connection: reads a request, hands it over, writes the answer, reads the next.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(std::shared_ptr<HttpServer::Impl> server, Socket socket) : server_(std::move(server)) {
    if (server_->tls) {
      tls_ = std::make_unique<TlsStream>(std::move(socket), *server_->tls);
    } else {
      plain_ = std::make_unique<Socket>(std::move(socket));
    }
  }

  void begin() {
    if (!tls_) return read();
    arm_timeout(server_->options.header_timeout);
    tls_->async_handshake(asio::ssl::stream_base::server, [self = shared_from_this()](error_code error) {
      if (error) return self->refuse_handshake(error);
      self->certificate_ = read_certificate(self->tls_->native_handle());
      self->read();
    });
  }

  // A client that speaks plain HTTP to a TLS port is told so in its own language.
  void refuse_handshake(error_code error) {
    if (error.category() != asio::error::get_ssl_category() ||
        ERR_GET_REASON(static_cast<unsigned long>(error.value())) != SSL_R_HTTP_REQUEST)
      return close();
    static const std::string kAnswer =
        "HTTP/1.0 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n"
        "This is a TLS port: use https://\n";
    asio::async_write(raw(), asio::buffer(kAnswer),
                      [self = shared_from_this()](error_code, std::size_t) { self->close(); });
  }

  void close() {
    if (closed_) return;
    closed_ = true;
    on_drain_ = nullptr;
    timeout_.reset();
    error_code ignored;
    raw().close(ignored);
    if (auto gone = std::exchange(on_close_, nullptr)) server_->loop.post(std::move(gone));
    server_->connections.erase(shared_from_this());
  }

  // Leaves HTTP: the connection is somebody else's from here on.
  std::unique_ptr<ByteStream> hand_over() {
    if (closed_ || writing_ || !waiting_.empty()) return nullptr;
    closed_ = true;
    on_close_ = on_drain_ = nullptr;
    timeout_.reset();
    error_code ignored;
    if (watching_) raw().cancel(ignored);
    std::string ahead = boost::beast::buffers_to_string(buffer_.data());
    server_->connections.erase(shared_from_this());
    if (tls_) return std::make_unique<AsioByteStream<TlsStream>>(std::move(tls_), std::move(ahead));
    return std::make_unique<AsioByteStream<Socket>>(std::move(plain_), std::move(ahead));
  }

  bool closed() const { return closed_; }
  std::size_t buffered() const { return waiting_.size() + (writing_ ? sent_.size() : 0); }
  void set_on_drain(const std::function<void()>& drained) { on_drain_ = drained; }
  void set_on_close(std::function<void()> gone) {
    if (closed_) {
      server_->loop.post(std::move(gone));
    } else {
      on_close_ = std::move(gone);
    }
  }
  bool head_only() const { return head_only_; }
  bool keep_alive() const { return keep_alive_; }

  void enqueue(std::string bytes) {
    if (closed_) return;
    if (streaming_ && buffered() + bytes.size() > server_->options.write_limit) return close();
    // What is said while a write is under way goes out together in the next one.
    if (waiting_.empty()) {
      waiting_ = std::move(bytes);
    } else {
      waiting_ += bytes;
    }
    if (!writing_) write();
  }

  void begin_stream() {
    streaming_ = true;
    watch_peer();
  }

  // The answer is complete; `keep` says whether the connection may be used again.
  void answered(bool keep) {
    if (closed_) return;
    on_close_ = on_drain_ = nullptr;
    finished_ = true;
    keep_alive_ = keep_alive_ && keep;
    if (!writing_) next();
  }

 private:
  Socket& raw() { return tls_ ? tls_->next_layer() : *plain_; }

  template <class F>
  void with_stream(F&& f) {
    if (tls_) {
      f(*tls_);
    } else {
      f(*plain_);
    }
  }

  void arm_timeout(Duration limit) {
    timeout_ = server_->loop.after(limit, [weak = weak_from_this()] {
      if (auto self = weak.lock()) self->close();
    });
  }

  void read() {
    parser_.emplace();
    parser_->header_limit(static_cast<std::uint32_t>(server_->options.header_limit));
    parser_->body_limit(boost::none);
    parser_->get().body().limit = server_->options.body_limit;
    streaming_ = finished_ = false;
    // Waiting for the first byte may take long; once a request began its head has to come soon.
    arm_timeout(buffer_.size() ? server_->options.header_timeout : server_->options.idle_timeout);
    if (buffer_.size()) return read_head();
    with_stream([this](auto& stream) {
      stream.async_read_some(buffer_.prepare(8192),
                             [self = shared_from_this()](error_code error, std::size_t n) {
                               if (error) return self->close();
                               self->buffer_.commit(n);
                               self->arm_timeout(self->server_->options.header_timeout);
                               self->read_head();
                             });
    });
  }

  void read_head() {
    with_stream([this](auto& stream) {
      http::async_read_header(
          stream, buffer_, *parser_, [self = shared_from_this()](error_code error, std::size_t) {
            if (error) return self->refuse(error);
            if (boost::beast::iequals(self->parser_->get()[http::field::expect], "100-continue")) {
              self->enqueue("HTTP/1.1 100 Continue\r\n\r\n");
            }
            self->wait_for_body();
            self->read_body();
          });
    });
  }

  void read_body() {
    with_stream([this](auto& stream) {
      http::async_read(stream, buffer_, *parser_, [self = shared_from_this()](error_code error, std::size_t) {
        if (self->finished_ || self->closed_) return;  // its time was over
        const bool large = error == http::error::body_limit;
        if (error && !(large && self->server_->options.hand_over_large_bodies)) return self->refuse(error);
        self->timeout_.reset();
        self->linger_ = large;
        self->dispatch();
      });
    });
  }

  // A client that does not get its body across is told so.
  void wait_for_body() {
    timeout_ = server_->loop.after(server_->options.body_timeout, [weak = weak_from_this()] {
      auto self = weak.lock();
      if (!self || self->closed_) return;
      self->refuse_with(504, "application/json",
                        status_body(504, "Timeout",
                                    "Timeout: request did not complete within requested "
                                    "timeout - context deadline exceeded"));
    });
  }

  // Answers what can be answered to a request that could not be read.
  void refuse(error_code error) {
    if (error == http::error::end_of_stream || error == http::error::partial_message || closed_)
      return close();
    if (error == http::error::body_limit) {
      const std::string text =
          "Request entity too large: limit is " + std::to_string(server_->options.body_limit);
      return refuse_with(413, "application/json", status_body(413, "RequestEntityTooLarge", text));
    }
    if (error.category() != http::make_error_code(http::error::bad_target).category()) return close();
    if (error == http::error::bad_chunk || error == http::error::bad_chunk_extension)
      return refuse_with(500, "application/json", status_body(500, "", "invalid byte in chunk length"));
    const int status = error == http::error::header_limit  ? 431
                       : error == http::error::bad_version ? 505
                                                           : 400;
    std::string text = std::to_string(status) + " " + reason_of(status);
    if (status == 505) text += ": unsupported protocol version";
    refuse_with(status, "text/plain; charset=utf-8", text);
  }

  void refuse_with(int status, const std::string& type, const std::string& body) {
    keep_alive_ = false;
    finished_ = linger_ = true;
    enqueue(render_head(status, {{"Content-Type", type},
                                 {"Content-Length", std::to_string(body.size())},
                                 {"Connection", "close"}}) +
            "\r\n" + body);
  }

  void dispatch();

  // Notices a peer that leaves while its answer is streamed or still being made.
  void watch_peer() {
    if (watching_ || closed_) return;
    watching_ = true;
    raw().async_wait(Socket::wait_read, [self = shared_from_this()](error_code error) {
      self->watching_ = false;
      if (error || self->closed_ || self->finished_) return;
      char byte = 0;
      const ssize_t n = ::recv(self->raw().native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
      if (n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR))
        return self->close();
      // Bytes: a pipelined request, or the end of the TLS session. The latter can only be the peer's
      // farewell, since nothing else comes before the answer is there.
      if (self->tls_ && n > 0) self->close();
    });
  }

  void write() {
    if (waiting_.empty()) return;
    writing_ = true;
    sent_ = std::exchange(waiting_, {});
    with_stream([this](auto& stream) {
      asio::async_write(stream, asio::buffer(sent_),
                        [self = shared_from_this()](error_code error, std::size_t) {
                          self->writing_ = false;
                          if (self->sent_.capacity() > kLittle) std::string().swap(self->sent_);
                          if (error || self->closed_) return self->close();
                          if (!self->waiting_.empty()) self->write();
                          // Half of what a careful writer lets pile up is on its way already, at most.
                          if (self->on_drain_ && self->buffered() < kLittle)
                            std::function<void()>(self->on_drain_)();
                          if (self->finished_ && !self->writing_) self->next();
                        });
    });
  }

  void next() {
    if (!waiting_.empty() || closed_) return;
    if (!keep_alive_) {
      if (tls_) SSL_shutdown(tls_->native_handle());
      error_code ignored;
      if (linger_) {
        raw().shutdown(Socket::shutdown_send, ignored);
        arm_timeout(kLinger);
        return discard();
      }
      raw().shutdown(Socket::shutdown_both, ignored);
      return close();
    }
    error_code ignored;
    if (watching_) raw().cancel(ignored);
    read();
  }

  // A peer still sends what was refused: closing now would reset the connection, and it might never read why.
  void discard() {
    raw().async_wait(Socket::wait_read, [self = shared_from_this()](error_code error) {
      if (error || self->closed_) return self->close();
      std::array<char, 65536> bytes;
      const ssize_t n = ::recv(self->raw().native_handle(), bytes.data(), bytes.size(), MSG_DONTWAIT);
      const bool none = n < 0 && (errno == EAGAIN || errno == EINTR);
      if (n == 0 || (n < 0 && !none)) return self->close();
      self->discard();
    });
  }

  static constexpr std::size_t kLittle = 512u << 10;
  static constexpr Duration kLinger = 2s;

  std::shared_ptr<HttpServer::Impl> server_;
  std::unique_ptr<TlsStream> tls_;
  std::unique_ptr<Socket> plain_;
  boost::beast::flat_buffer buffer_;
  std::optional<http::request_parser<LimitedBody>> parser_;
  ClientCertificate certificate_;
  std::string waiting_;  // to be sent
  std::string sent_;     // being sent
  std::function<void()> on_close_, on_drain_;
  Handle timeout_;
  bool writing_ = false;
  bool closed_ = false;
  bool streaming_ = false;
  bool finished_ = false;
  bool watching_ = false;
  bool keep_alive_ = true;
  bool linger_ = false;
  bool head_only_ = false;
};

namespace {

class WireResponder final : public HttpResponder, public UpgradableResponder {
 public:
  explicit WireResponder(std::shared_ptr<Connection> connection) : connection_(std::move(connection)) {}
  ~WireResponder() override {
    if (!done_) {
      HttpResponse lost = HttpResponse::text(500, "the request was dropped\n");
      if (begun_) {
        connection_->close();
      } else {
        send(std::move(lost));
      }
    }
  }

  void send(HttpResponse response) override {
    if (std::exchange(done_, true)) return;
    const bool bodyless = response.status == 204 || response.status == 304;
    if (!bodyless) response.headers["Content-Length"] = std::to_string(response.body.size());
    if (!connection_->keep_alive()) response.headers["Connection"] = "close";
    std::string bytes = render_head(response.status, response.headers) + "\r\n";
    if (!bodyless && !connection_->head_only()) bytes += response.body;
    connection_->enqueue(std::move(bytes));
    connection_->answered(true);
  }

  void begin(int status, Headers headers) override {
    if (done_ || std::exchange(begun_, true)) return;
    headers["Transfer-Encoding"] = "chunked";
    connection_->begin_stream();
    connection_->enqueue(render_head(status, headers) + "\r\n");
  }

  void write(std::string chunk) override {
    if (!done_ && begun_ && !chunk.empty()) connection_->enqueue(chunk_of(chunk));
  }

  void end() override {
    if (std::exchange(done_, true)) return;
    connection_->enqueue("0\r\n\r\n");
    connection_->answered(true);
  }

  void abort() override {
    done_ = true;
    connection_->close();
  }

  std::unique_ptr<ByteStream> take_over() override {
    if (done_ || begun_) return nullptr;
    auto stream = connection_->hand_over();
    done_ = stream != nullptr;
    return stream;
  }

  std::size_t buffered() const override { return connection_->buffered(); }
  bool closed() const override { return connection_->closed(); }
  void on_close(std::function<void()> gone) override { connection_->set_on_close(std::move(gone)); }
  void on_drain(const std::function<void()>& drained) override { connection_->set_on_drain(drained); }

 private:
  std::shared_ptr<Connection> connection_;
  bool done_ = false;
  bool begun_ = false;
};

}  // namespace

void Connection::dispatch() {
  auto message = parser_->release();
  HttpRequest request;
  request.method = std::string(message.method_string());
  const std::string_view target(message.target().data(), message.target().size());
  const auto mark = target.find('?');
  request.path = std::string(target.substr(0, mark));
  if (mark != std::string_view::npos) request.query = std::string(target.substr(mark + 1));
  for (const auto& field : message) {
    auto& value = request.headers[std::string(field.name_string())];
    if (!value.empty()) value += ",";
    value += std::string_view(field.value().data(), field.value().size());
  }
  request.body = std::move(message.body().text);
  request.client_cert_cn = certificate_.cn;
  request.client_cert_orgs = certificate_.orgs;
  keep_alive_ = message.keep_alive() && !linger_;
  head_only_ = message.method() == http::verb::head;
  if (!linger_) watch_peer();  // else what comes is the rest of the body
  server_->handler(std::move(request), std::make_shared<WireResponder>(shared_from_this()));
}

Result<> HttpServer::Impl::open_tls() {
  const auto bad = [](const char* what, const error_code& error) {
    return fail(Code::kInvalid, std::string("TLS ") + what + ": " + error.message());
  };
  const TlsFiles& files = *options.tls;
  asio::ssl::context context(asio::ssl::context::tls_server);
  error_code error;
  context.set_options(asio::ssl::context::no_tlsv1 | asio::ssl::context::no_tlsv1_1, error);
  if (files.tls13_only) context.set_options(asio::ssl::context::no_tlsv1_2, error);
  context.use_certificate_chain(asio::buffer(files.certificate), error);
  if (error) return bad("certificate", error);
  context.use_private_key(asio::buffer(files.key), asio::ssl::context::pem, error);
  if (error) return bad("key", error);
  if (!files.client_ca.empty()) {
    context.add_certificate_authority(asio::buffer(files.client_ca), error);
    if (error) return bad("client CA", error);
    auto mode = asio::ssl::verify_peer;
    if (files.client_required) mode |= asio::ssl::verify_fail_if_no_peer_cert;
    context.set_verify_mode(mode, error);
  }
  static const unsigned char kSession[] = "gpuop";
  SSL_CTX_set_session_id_context(context.native_handle(), kSession, sizeof kSession - 1);
  // Clients that offer HTTP/2 first fall back by ALPN.
  SSL_CTX_set_alpn_select_cb(
      context.native_handle(),
      [](SSL*, const unsigned char** out, unsigned char* out_size, const unsigned char* in,
         unsigned int in_size, void*) {
        static const unsigned char kHttp11[] = "\x08http/1.1";
        unsigned char* chosen = nullptr;
        if (SSL_select_next_proto(&chosen, out_size, kHttp11, sizeof kHttp11 - 1, in, in_size) !=
            OPENSSL_NPN_NEGOTIATED) {
          return SSL_TLSEXT_ERR_NOACK;
        }
        *out = chosen;
        return SSL_TLSEXT_ERR_OK;
      },
      nullptr);
  // Open connections hold what they need of the context before.
  tls.emplace(std::move(context));
  return {};
}

Result<> HttpServer::Impl::open() {
  if (options.tls) TRY(open_tls());
  error_code error;
  if (options.listen_fd >= 0) {
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    ::getsockname(options.listen_fd, reinterpret_cast<sockaddr*>(&address), &size);
    acceptor.assign(asio::generic::stream_protocol(address.ss_family, 0), options.listen_fd, error);
    if (error) return fail(errno_error("take over the listening socket", error.value()));
  } else if (!options.unix_path.empty()) {
    const std::string doing = "listen on '" + options.unix_path + "'";
    if (options.unix_path.size() > 107) return fail(Code::kInvalid, doing + ": path longer than 107 bytes");
    ::unlink(options.unix_path.c_str());
    acceptor.open(asio::generic::stream_protocol(AF_UNIX, 0), error);
    if (!error) acceptor.bind(asio::local::stream_protocol::endpoint(options.unix_path), error);
    if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
    if (error) return fail(errno_error(doing, error.value()));
  } else {
    const std::string doing = "listen on '" + options.address + ":" + std::to_string(options.port) + "'";
    const auto address = asio::ip::make_address(options.address, error);
    if (error) return fail(Code::kInvalid, doing + ": not an IP address");
    const asio::ip::tcp::endpoint endpoint(address, options.port);
    acceptor.open(asio::generic::stream_protocol(endpoint.protocol()), error);
    if (!error) acceptor.set_option(asio::socket_base::reuse_address(true), error);
    if (!error) acceptor.bind(endpoint, error);
    if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
    if (error) return fail(errno_error(doing, error.value()));
  }
  if (options.unix_path.empty()) {
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    ::getsockname(acceptor.native_handle(), reinterpret_cast<sockaddr*>(&address), &size);
    if (address.ss_family == AF_INET) port = ntohs(reinterpret_cast<sockaddr_in*>(&address)->sin_port);
    if (address.ss_family == AF_INET6) port = ntohs(reinterpret_cast<sockaddr_in6*>(&address)->sin6_port);
  }
  accept();
  return {};
}

void HttpServer::Impl::accept() {
  acceptor.async_accept(loop.io(), [self = shared_from_this()](error_code error, Socket socket) {
    if (self->closed) return;
    if (!error) {
      set_options(socket.native_handle(), self->options.peer_silence);
      auto connection = std::make_shared<Connection>(self, std::move(socket));
      self->connections.insert(connection);
      connection->begin();
    } else if (error == asio::error::operation_aborted) {
      return;
    } else if (error.value() == EMFILE || error.value() == ENFILE || error.value() == ENOMEM) {
      // Out of descriptors: accepting at once again would spin.
      self->retry = self->loop.after(100ms, [self] { self->accept(); });
      return;
    }
    self->accept();
  });
}

void HttpServer::Impl::close() {
  closed = true;
  retry.reset();
  error_code ignored;
  acceptor.close(ignored);
  while (!connections.empty()) {
    auto connection = *connections.begin();
    connection->close();
    connections.erase(connection);
  }
  if (!options.unix_path.empty()) ::unlink(options.unix_path.c_str());
}

HttpServer::HttpServer(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() {
  impl_->close();
}
std::uint16_t HttpServer::port() const {
  return impl_->port;
}

Result<> HttpServer::set_tls(TlsFiles files) {
  auto before = std::exchange(impl_->options.tls, std::move(files));
  auto opened = impl_->open_tls();
  if (!opened) impl_->options.tls = std::move(before);
  return opened;
}

Result<std::unique_ptr<HttpServer>> HttpServer::create(Loop& loop, HttpServerOptions options,
                                                       HttpHandler handler) {
  auto impl = std::make_shared<Impl>(loop, std::move(options), std::move(handler));
  TRY(impl->open());
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

}  // namespace gpuop
