#include "kube/http_transport.h"

#include <curl/curl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cstring>
#include <map>
#include <unordered_map>
#include <vector>

#include "base/files.h"
#include "base/log.h"
#include "base/text.h"

namespace gpuop::kube {
namespace {

constexpr Duration kCaAge = 60s;
// A peer that vanished without a word is noticed after 30 s of silence and three probes, 5 s apart; sent
// bytes that nobody acknowledges give a connection up after 45 s.
constexpr int kKeepIdle = 30, kKeepInterval = 5, kKeepProbes = 3, kUserTimeoutMs = 45'000;
constexpr long kConnectTimeoutMs = 10'000;

int tune_socket(void*, curl_socket_t fd, curlsocktype) {
  const auto set = [fd](int level, int name, int value) {
    ::setsockopt(fd, level, name, &value, sizeof value);
  };
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, kKeepIdle);
  set(IPPROTO_TCP, TCP_KEEPINTVL, kKeepInterval);
  set(IPPROTO_TCP, TCP_KEEPCNT, kKeepProbes);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, kUserTimeoutMs);
  return CURL_SOCKOPT_OK;
}

// "https://host:8443/prefix" in its parts.
struct ServerUrl {
  std::string scheme, host, port, prefix;  // host with brackets where it is an IPv6 address
};

Result<ServerUrl> parse_server(const std::string& text) {
  const auto bad = [&](const std::string& why) {
    return fail(Code::kInvalid, "connect to API server '" + text + "': " + why);
  };
  const std::size_t colons = text.find("://");
  if (colons == std::string::npos) return bad("must start with https:// or http://");
  ServerUrl out;
  out.scheme = text.substr(0, colons);
  if (out.scheme != "https" && out.scheme != "http") return bad("must start with https:// or http://");
  std::string rest = text.substr(colons + 3);
  const std::size_t slash = std::min(rest.find('/'), rest.size());
  out.prefix = rest.substr(slash);
  while (!out.prefix.empty() && out.prefix.back() == '/') out.prefix.pop_back();
  rest.resize(slash);
  std::size_t colon = rest.rfind(':');
  if (colon != std::string::npos && rest.find(']', colon) != std::string::npos) colon = std::string::npos;
  out.host = rest.substr(0, colon);
  out.port = colon == std::string::npos ? (out.scheme == "https" ? "443" : "80") : rest.substr(colon + 1);
  const auto port = parse_int(out.port);
  if (out.host.empty()) return bad("there is no host in it");
  if (!port || *port < 1 || *port > 65535) return bad("'" + out.port + "' is not a port");
  return out;
}

Code code_of(CURLcode code) {
  switch (code) {
    case CURLE_OPERATION_TIMEDOUT:
      return Code::kTimeout;
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_ISSUER_ERROR:
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_URL_MALFORMAT:
      return Code::kInvalid;
    default:
      return Code::kUnavailable;
  }
}

// One request under way.
struct Transfer {
  CURL* easy = nullptr;
  curl_slist* headers = nullptr;
  curl_slist* connect_to = nullptr;
  HttpRequest request;
  StreamEvents events;
  char error[CURL_ERROR_SIZE] = {};
  // What libcurl said and has not been handed on yet: callbacks run only outside of libcurl.
  int status = 0;
  Headers response_headers;
  bool header_ready = false, begun = false;
  std::string data;
  std::optional<CURLcode> result;
  bool dirty = false;
  bool over = false;

  ~Transfer() {
    if (easy != nullptr) curl_easy_cleanup(easy);
    curl_slist_free_all(headers);
    curl_slist_free_all(connect_to);
  }
};

class HttpTransport final : public Transport, public std::enable_shared_from_this<HttpTransport> {
 public:
  HttpTransport(Loop& loop, const Config& config, ServerUrl server, std::shared_ptr<TlsMaterial> tls)
      : loop_(loop),
        config_(config),
        server_(std::move(server)),
        tls_(std::move(tls)),
        multi_(curl_multi_init()) {
    curl_multi_setopt(multi_, CURLMOPT_SOCKETFUNCTION, &HttpTransport::on_socket);
    curl_multi_setopt(multi_, CURLMOPT_SOCKETDATA, this);
    curl_multi_setopt(multi_, CURLMOPT_TIMERFUNCTION, &HttpTransport::on_timer);
    curl_multi_setopt(multi_, CURLMOPT_TIMERDATA, this);
    curl_multi_setopt(multi_, CURLMOPT_PIPELINING, CURLPIPE_MULTIPLEX);
    curl_multi_setopt(multi_, CURLMOPT_MAX_CONCURRENT_STREAMS, 250L);
    // Over HTTP/1.1 each watch holds a connection, and these count here too: a small number would close every
    // connection after one request as soon as there are so many watches.
    curl_multi_setopt(multi_, CURLMOPT_MAXCONNECTS, 1000L);
  }

  ~HttpTransport() override {
    for (auto& [key, transfer] : transfers_) {
      transfer->over = true;
      curl_multi_remove_handle(multi_, transfer->easy);
    }
    transfers_.clear();
    sockets_.clear();
    timer_.reset();
    curl_multi_cleanup(multi_);
  }

  Handle stream(HttpRequest request, StreamEvents events) override {
    auto transfer = std::make_shared<Transfer>();
    transfer->request = std::move(request);
    transfer->events = std::move(events);
    transfer->easy = curl_easy_init();
    transfers_.emplace(transfer->easy, transfer);
    configure(*transfer);
    // libcurl calls on_timer inside, which only sets a timer.
    curl_multi_add_handle(multi_, transfer->easy);
    return Handle([weak = weak_from_this(), weak_transfer = std::weak_ptr(transfer)] {
      const auto self = weak.lock();
      const auto target = weak_transfer.lock();
      if (self && target) self->drop(*target);
    });
  }

 private:
  void configure(Transfer& t);
  void configure_tls(Transfer& t);

  static int on_socket(CURL*, curl_socket_t fd, int what, void* user, void*) {
    static_cast<HttpTransport*>(user)->watch_socket(fd, what);
    return 0;
  }
  static int on_timer(CURLM*, long ms, void* user) {
    auto& self = *static_cast<HttpTransport*>(user);
    if (ms < 0) {
      self.timer_.reset();
    } else {
      self.timer_ = self.loop_.after(std::chrono::milliseconds(ms), [weak = self.weak_from_this()] {
        if (const auto live = weak.lock()) live->drive(CURL_SOCKET_TIMEOUT, 0);
      });
    }
    return 0;
  }
  static std::size_t on_header(char* bytes, std::size_t, std::size_t size, void* user) {
    read_header(*static_cast<Transfer*>(user), std::string_view(bytes, size));
    return size;
  }
  static std::size_t on_data(char* bytes, std::size_t, std::size_t size, void* user) {
    static_cast<Transfer*>(user)->data.append(bytes, size);
    static_cast<Transfer*>(user)->dirty = true;
    return size;
  }

  static void read_header(Transfer& t, std::string_view line) {
    line = trim(line);
    if (line.starts_with("HTTP/")) {
      const auto fields = split_fields(line);
      t.status = fields.size() > 1 ? static_cast<int>(parse_int(fields[1]).value_or(0)) : 0;
      t.response_headers.clear();
      t.header_ready = false;
    } else if (line.empty()) {
      // 1xx answers are followed by the real one.
      t.header_ready = t.status >= 200;
      t.dirty = t.dirty || t.header_ready;
    } else if (const std::size_t colon = line.find(':'); colon != std::string_view::npos && !t.begun) {
      std::string& value = t.response_headers[std::string(line.substr(0, colon))];
      if (!value.empty()) value += ", ";
      value += trim(line.substr(colon + 1));
    }
  }

  void watch_socket(curl_socket_t fd, int what) {
    Socket& socket = sockets_[fd];
    const auto act = [this, fd](int events) {
      return [weak = weak_from_this(), fd, events] {
        if (const auto self = weak.lock()) self->drive(fd, events);
      };
    };
    const bool read = what == CURL_POLL_IN || what == CURL_POLL_INOUT;
    const bool write = what == CURL_POLL_OUT || what == CURL_POLL_INOUT;
    if (read != static_cast<bool>(socket.readable)) {
      socket.readable = read ? loop_.on_readable(fd, act(CURL_CSELECT_IN)) : Handle();
    }
    if (write != static_cast<bool>(socket.writable)) {
      socket.writable = write ? loop_.on_writable(fd, act(CURL_CSELECT_OUT)) : Handle();
    }
    if (what == CURL_POLL_REMOVE) sockets_.erase(fd);
  }

  void drive(curl_socket_t fd, int events) {
    const auto keep = shared_from_this();
    int running = 0;
    curl_multi_socket_action(multi_, fd, events, &running);
    int left = 0;
    while (CURLMsg* message = curl_multi_info_read(multi_, &left)) {
      if (message->msg != CURLMSG_DONE) continue;
      const auto found = transfers_.find(message->easy_handle);
      if (found == transfers_.end()) continue;
      found->second->result = message->data.result;
      found->second->dirty = true;
    }
    std::vector<std::shared_ptr<Transfer>> dirty;
    for (const auto& [key, transfer] : transfers_) {
      if (transfer->dirty) dirty.push_back(transfer);
    }
    for (const auto& transfer : dirty) deliver(*transfer);
  }

  // Hands on what libcurl said. Each callback may drop this transfer, start others, or destroy everything.
  void deliver(Transfer& t) {
    if (t.over) return;
    t.dirty = false;
    if (t.header_ready && !t.begun) {
      t.begun = true;
      const auto begin = t.events.begin;
      if (begin) begin(t.status, t.response_headers);
      if (t.over) return;
    }
    if (!t.data.empty() && t.begun) {
      const std::string bytes = std::exchange(t.data, {});
      const auto data = t.events.data;
      if (data) data(bytes);
      if (t.over) return;
    }
    if (!t.result) return;
    Result<> how;
    if (*t.result != CURLE_OK || !t.begun) {
      std::string why = t.error[0] != '\0' ? t.error : curl_easy_strerror(*t.result);
      long os_error = 0;
      curl_easy_getinfo(t.easy, CURLINFO_OS_ERRNO, &os_error);
      if (os_error != 0) why += std::string(": ") + std::strerror(static_cast<int>(os_error));
      how = fail(code_of(*t.result), t.request.method + " '" + config_.server + t.request.path + "': " + why);
    }
    const auto end = std::move(t.events.end);
    drop(t);
    if (end) end(std::move(how));
  }

  void drop(Transfer& t) {
    if (std::exchange(t.over, true)) return;
    t.events = {};
    const auto found = transfers_.find(t.easy);
    const auto keep = found == transfers_.end() ? nullptr : found->second;
    curl_multi_remove_handle(multi_, t.easy);
    if (keep) transfers_.erase(found);
  }

  struct Socket {
    Handle readable, writable;
  };

  Loop& loop_;
  Config config_;
  ServerUrl server_;
  std::shared_ptr<TlsMaterial> tls_;
  CURLM* multi_;
  std::unordered_map<CURL*, std::shared_ptr<Transfer>> transfers_;
  std::map<curl_socket_t, Socket> sockets_;
  Handle timer_;
};

curl_blob blob_of(const std::string& text) {
  return {const_cast<char*>(text.data()), text.size(), CURL_BLOB_COPY};
}

void HttpTransport::configure_tls(Transfer& t) {
  tls_->refresh();
  CURL* easy = t.easy;
  if (config_.insecure) {
    curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, 0L);
    curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, 0L);
  }
  if (!tls_->ca().empty()) {
    const curl_blob ca = blob_of(tls_->ca());
    curl_easy_setopt(easy, CURLOPT_CAINFO_BLOB, &ca);
  }
  if (!tls_->certificate().empty()) {
    const curl_blob certificate = blob_of(tls_->certificate());
    const curl_blob key = blob_of(tls_->key());
    curl_easy_setopt(easy, CURLOPT_SSLCERTTYPE, "PEM");
    curl_easy_setopt(easy, CURLOPT_SSLCERT_BLOB, &certificate);
    curl_easy_setopt(easy, CURLOPT_SSLKEYTYPE, "PEM");
    curl_easy_setopt(easy, CURLOPT_SSLKEY_BLOB, &key);
  }
}

void HttpTransport::configure(Transfer& t) {
  CURL* easy = t.easy;
  std::string host = server_.host;
  // Another name in the certificate: the URL carries that name, the connection goes to the server all the
  // same.
  if (!config_.tls_server_name.empty() && server_.scheme == "https") {
    host = config_.tls_server_name;
    const std::string to = host + ":" + server_.port + ":" + server_.host + ":" + server_.port;
    t.connect_to = curl_slist_append(nullptr, to.c_str());
    curl_easy_setopt(easy, CURLOPT_CONNECT_TO, t.connect_to);
    t.request.headers["Host"] = server_.host + ":" + server_.port;
  }
  std::string url = server_.scheme + "://" + host + ":" + server_.port + server_.prefix + t.request.path;
  if (!t.request.query.empty()) url += "?" + t.request.query;
  curl_easy_setopt(easy, CURLOPT_URL, url.c_str());
  curl_easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L);
  curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
  // Requests wait for the first handshake, which tells whether they can share its connection. Without TLS
  // there is nothing to wait for.
  const bool secure = server_.scheme == "https";
  curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, secure ? CURL_HTTP_VERSION_2TLS : CURL_HTTP_VERSION_1_1);
  curl_easy_setopt(easy, CURLOPT_PIPEWAIT, secure ? 1L : 0L);
  curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, kConnectTimeoutMs);
  curl_easy_setopt(easy, CURLOPT_SOCKOPTFUNCTION, tune_socket);
  curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, t.error);
  curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, &HttpTransport::on_header);
  curl_easy_setopt(easy, CURLOPT_HEADERDATA, &t);
  curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, &HttpTransport::on_data);
  curl_easy_setopt(easy, CURLOPT_WRITEDATA, &t);
  // An empty setting would switch the environment's proxies off.
  if (!config_.proxy_url.empty()) curl_easy_setopt(easy, CURLOPT_PROXY, config_.proxy_url.c_str());
  // A proxy's answer to CONNECT is none of the server's.
  curl_easy_setopt(easy, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);

  if (t.request.method == "HEAD") {
    curl_easy_setopt(easy, CURLOPT_NOBODY, 1L);
  } else if (t.request.method != "GET" || !t.request.body.empty()) {
    curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(t.request.body.size()));
    curl_easy_setopt(easy, CURLOPT_POSTFIELDS, t.request.body.data());
    curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, t.request.method.c_str());
    // libcurl asks "Expect: 100-continue" for large bodies, and calls any body a form.
    t.headers = curl_slist_append(t.headers, "Expect:");
    if (!t.request.headers.contains("Content-Type"))
      t.headers = curl_slist_append(t.headers, "Content-Type:");
  }
  for (const auto& [name, value] : t.request.headers) {
    // A header that occurs several times has its values on lines of their own.
    for (const std::string& one : split(value, '\n')) {
      const std::string line = name + (one.empty() ? ";" : ": " + one);
      t.headers = curl_slist_append(t.headers, line.c_str());
    }
  }
  curl_easy_setopt(easy, CURLOPT_HTTPHEADER, t.headers);
  if (server_.scheme == "https") configure_tls(t);
}

bool read_into(const std::string& path, std::string& text, std::string& fault) {
  auto read = read_file(path, 4u << 20);
  if (!read) {
    if (fault.empty()) fault = read.error().text();
    return false;
  }
  text = std::move(*read);
  return true;
}

}  // namespace

TlsMaterial::TlsMaterial(Loop& loop, const Config& config)
    : loop_(loop),
      ca_file_(config.ca_pem.empty() ? config.ca_file : ""),
      certificate_file_(config.client_cert_pem.empty() ? config.client_cert_file : ""),
      key_file_(config.client_key_pem.empty() ? config.client_key_file : ""),
      ca_(config.ca_pem),
      certificate_(config.client_cert_pem),
      key_(config.client_key_pem) {}

void TlsMaterial::refresh() {
  std::string fault;
  const Duration now = loop_.elapsed();
  if (!ca_file_.empty() && (!ca_read_ || now - *ca_read_ >= kCaAge)) {
    ca_read_ = now;
    read_into(ca_file_, ca_, fault);
  }
  // The pair is read together, so that a certificate never meets another's key for longer than its writer
  // takes.
  std::error_code none;
  if (!certificate_file_.empty() || !key_file_.empty()) {
    const auto certificate_changed = fs::last_write_time(certificate_file_, none);
    const auto key_changed = fs::last_write_time(key_file_, none);
    if (certificate_changed != certificate_changed_ || key_changed != key_changed_) {
      const bool certificate_read =
          certificate_file_.empty() || read_into(certificate_file_, certificate_, fault);
      const bool key_read = key_file_.empty() || read_into(key_file_, key_, fault);
      if (certificate_read && key_read) {
        certificate_changed_ = certificate_changed;
        key_changed_ = key_changed;
      }
    }
  }
  if (!fault.empty() && fault != fault_) log::warn("TLS files cannot be read", {{"why", fault}});
  fault_ = std::move(fault);
}

void TlsMaterial::set_client_certificate(std::string certificate, std::string key) {
  certificate_ = std::move(certificate);
  key_ = std::move(key);
}

Result<std::shared_ptr<Transport>> make_http_transport(Loop& loop, const Config& config,
                                                       std::shared_ptr<TlsMaterial> tls) {
  if (loop.mode() != Loop::Mode::kReal) {
    return fail(Code::kUnsupported,
                "connect to API server '" + config.server + "': the loop's clock is virtual");
  }
  static const CURLcode started = curl_global_init(CURL_GLOBAL_DEFAULT);
  if (started != CURLE_OK)
    return fail(Code::kUnknown, std::string("start libcurl: ") + curl_easy_strerror(started));
  ServerUrl server = TRY(parse_server(config.server));
  if (server.scheme == "https") {
    tls->refresh();
    if (!tls->fault().empty())
      return fail(Code::kInvalid, "connect to API server '" + config.server + "': " + tls->fault());
  }
  return std::make_shared<HttpTransport>(loop, config, std::move(server), std::move(tls));
}

Result<std::shared_ptr<Transport>> make_http_transport(Loop& loop, const Config& config) {
  return make_http_transport(loop, config, std::make_shared<TlsMaterial>(loop, config));
}

}  // namespace gpuop::kube
