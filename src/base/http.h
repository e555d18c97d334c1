// HTTP messages, shared by the server, the client's transports and the embedded control plane, so that
// a request can travel in memory exactly as it does on the wire.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gpuop {

// Header names compare without case.
struct HeaderLess {
  using is_transparent = void;
  bool operator()(std::string_view a, std::string_view b) const;
};
using Headers = std::map<std::string, std::string, HeaderLess>;

struct HttpRequest {
  std::string method = "GET";
  std::string path;   // decoded no further than the wire: "/api/v1/pods"
  std::string query;  // raw, without '?'
  Headers headers;
  std::string body;
  std::string peer;            // "127.0.0.1:4242", empty in memory
  std::string client_cert_cn;  // verified client certificate, if any
  std::vector<std::string> client_cert_orgs;

  std::string_view header(std::string_view name) const;  // "" when absent
};

// Query text to decoded pairs, in order, and the first value of a key.
std::vector<std::pair<std::string, std::string>> parse_query(std::string_view query);
std::string build_query(const std::vector<std::pair<std::string, std::string>>& pairs);

struct HttpResponse {
  int status = 200;
  Headers headers;
  std::string body;

  static HttpResponse text(int status, std::string body,
                           std::string content_type = "text/plain; charset=utf-8");
  static HttpResponse json(int status, std::string body);
};

// Where a handler answers. Exactly one of: send(); or begin(), any write()s, end().
// May be kept and used later, on the loop's thread. Writes after the peer went away are dropped.
class HttpResponder {
 public:
  virtual ~HttpResponder() = default;
  virtual void send(HttpResponse response) = 0;
  // Starts a streamed answer (chunked on the wire).
  virtual void begin(int status, Headers headers) = 0;
  virtual void write(std::string chunk) = 0;
  virtual void end() = 0;
  // Ends the connection without the terminating chunk.
  virtual void abort() = 0;
  // Bytes handed to write() that the peer has not taken yet.
  virtual std::size_t buffered() const = 0;
  virtual bool closed() const = 0;
  // Called once when the peer goes away before the answer ended.
  virtual void on_close(std::function<void()> closed) = 0;
  // Called each time that the peer took something and little or nothing is left in buffered(); for writers
  // that hold back while it is much. Never called by a responder that buffers nothing.
  virtual void on_drain(const std::function<void()>& /*drained*/) {}
};

using HttpHandler = std::function<void(HttpRequest, std::shared_ptr<HttpResponder>)>;

}  // namespace gpuop
