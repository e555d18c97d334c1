#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <boost/asio/buffer.hpp>
#include <boost/beast/http.hpp>
#include <cstring>

#include "base/files.h"
#include "base/http_server.h"
#include "base/text.h"

namespace gpuop {
namespace {

namespace http = boost::beast::http;

struct Target {
  std::string unix_path;
  std::string host;
  std::uint16_t port = 80;
  std::string path = "/";
};

Result<Target> parse_url(const std::string& url) {
  Target target;
  std::string_view rest = url;
  if (rest.starts_with("unix://")) {
    rest.remove_prefix(7);
    const auto colon = rest.find(':');
    target.unix_path = std::string(rest.substr(0, colon));
    if (colon != std::string_view::npos) target.path = std::string(rest.substr(colon + 1));
    target.host = "localhost";
    return target;
  }
  if (!rest.starts_with("http://"))
    return fail(Code::kInvalid, "get '" + url + "': must start with http:// or unix://");
  rest.remove_prefix(7);
  const auto slash = std::min(rest.find('/'), rest.size());
  std::string_view authority = rest.substr(0, slash);
  if (slash < rest.size()) target.path = std::string(rest.substr(slash));
  const auto colon = authority.rfind(':');
  target.host = std::string(authority.substr(0, colon));
  if (colon != std::string_view::npos) {
    const auto port = parse_int(authority.substr(colon + 1));
    if (!port || *port < 1 || *port > 65535) return fail(Code::kInvalid, "get '" + url + "': bad port");
    target.port = static_cast<std::uint16_t>(*port);
  }
  return target;
}

Result<Fd> connect_to(const Target& target, const std::string& doing) {
  sockaddr_storage address{};
  socklen_t size = 0;
  if (!target.unix_path.empty()) {
    auto* unix_address = reinterpret_cast<sockaddr_un*>(&address);
    unix_address->sun_family = AF_UNIX;
    if (target.unix_path.size() >= sizeof unix_address->sun_path)
      return fail(Code::kInvalid, doing + ": path too long");
    std::memcpy(unix_address->sun_path, target.unix_path.c_str(), target.unix_path.size() + 1);
    size = sizeof *unix_address;
  } else {
    auto* ip = reinterpret_cast<sockaddr_in*>(&address);
    ip->sin_family = AF_INET;
    ip->sin_port = htons(target.port);
    const std::string host = target.host == "localhost" ? "127.0.0.1" : target.host;
    if (::inet_pton(AF_INET, host.c_str(), &ip->sin_addr) != 1) {
      return fail(Code::kInvalid, doing + ": host must be an IPv4 address or localhost");
    }
    size = sizeof *ip;
  }
  Fd fd(::socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) return fail(errno_error(doing, errno));
  if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), size) != 0)
    return fail(errno_error(doing, errno));
  return fd;
}

}  // namespace

Result<HttpResponse> http_get(const std::string& url, Duration limit) {
  const std::string doing = "get '" + url + "'";
  const Target target = TRY(parse_url(url));
  const auto deadline = std::chrono::steady_clock::now() + limit;
  Fd fd = TRY(connect_to(target, doing));
  const std::string request = "GET " + target.path + " HTTP/1.1\r\nHost: " + target.host +
                              "\r\nConnection: close\r\nAccept: */*\r\n\r\n";
  if (::send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(request.size())) {
    return fail(errno_error(doing, errno));
  }
  http::response_parser<http::string_body> parser;
  parser.body_limit(64u << 20);
  parser.eager(true);
  std::string pending;
  while (!parser.is_done()) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    pollfd wait{fd.get(), POLLIN, 0};
    const int ready = left.count() > 0 ? ::poll(&wait, 1, static_cast<int>(left.count()) + 1) : 0;
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return fail(Code::kTimeout, doing + ": no answer after " + format_go_duration(limit));
    char buffer[16384];
    const ssize_t n = ::recv(fd.get(), buffer, sizeof buffer, 0);
    if (n < 0) return fail(errno_error(doing, errno));
    boost::system::error_code error;
    if (n == 0) {
      parser.put_eof(error);
      if (error) return fail(Code::kUnavailable, doing + ": the connection ended early");
      break;
    }
    pending.append(buffer, static_cast<std::size_t>(n));
    pending.erase(0, parser.put(boost::asio::buffer(pending), error));
    if (error == http::error::need_more) error = {};
    if (error) return fail(Code::kInvalid, doing + ": " + error.message());
  }
  HttpResponse response;
  response.status = static_cast<int>(parser.get().result_int());
  for (const auto& field : parser.get())
    response.headers[std::string(field.name_string())] = std::string(field.value());
  response.body = std::move(parser.get().body());
  return response;
}

}  // namespace gpuop
