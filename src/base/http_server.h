// An HTTP/1.1 server on the loop (Boost.Beast), plain or TLS, over TCP or a Unix socket.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/http.h"
#include "base/loop.h"
#include "base/result.h"

namespace gpuop {

struct TlsFiles {           // PEM texts, not paths
  std::string certificate;  // chain
  std::string key;
  std::string client_ca;         // empty: client certificates are not asked for
  bool client_required = false;  // with client_ca: refuse clients without a certificate
  bool tls13_only = false;
};

struct HttpServerOptions {
  std::string address = "127.0.0.1";
  std::uint16_t port = 0;  // 0: any free one
  std::string unix_path;   // when set, address and port are ignored
  int listen_fd = -1;      // when set, an already listening socket is taken over
  std::optional<TlsFiles> tls;
  std::size_t body_limit = 3u << 20;  // larger: 413
  // A larger body is the handler's to refuse: it is handed over cut off after body_limit + 1 bytes.
  bool hand_over_large_bodies = false;
  std::size_t header_limit = 64u << 10;  // larger: 431
  Duration header_timeout = 10s;         // slow clients are cut
  Duration body_timeout = 1min;          // a request whose body is not there by then: 504
  Duration idle_timeout = 5min;          // keep-alive
  std::size_t write_limit = 8u << 20;    // a streamed answer that the peer does not read is cut beyond this
  // A peer that has gone without a word is noticed after about two of these (TCP keep-alive); whole seconds.
  Duration peer_silence = 30s;
};

class HttpServer {
 public:
  // Errors: "listen on 'ADDR:PORT': Address already in use" (kBusy), bad certificate (kInvalid).
  static Result<std::unique_ptr<HttpServer>> create(Loop& loop, HttpServerOptions options,
                                                    HttpHandler handler);
  ~HttpServer();  // closes every connection
  std::uint16_t port() const;
  // For connections to come; those that are open keep what they began with. An error changes nothing. Only
  // for a server that was made with TLS.
  Result<> set_tls(TlsFiles files);
  struct Impl;

 private:
  explicit HttpServer(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

// One request to a server on this machine, blocking; for probes, tests and small tools.
// `url`: "http://127.0.0.1:9400/metrics" or "unix:///path.sock:/target", IPv4 only. No TLS.
Result<HttpResponse> http_get(const std::string& url, Duration limit);

}  // namespace gpuop
