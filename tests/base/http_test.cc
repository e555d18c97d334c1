#include <gtest/gtest.h>

#include <thread>

#include "base/files.h"
#include "base/http_server.h"
#include "base/process.h"

namespace gpuop {
namespace {

// Calls http_get beside the loop, which has to serve it.
Result<HttpResponse> get_beside(Loop& loop, const std::string& url, Duration limit = 5s) {
  std::optional<Result<HttpResponse>> result;
  std::thread caller([&] {
    auto r = http_get(url, limit);
    loop.post([&, r = std::move(r)]() mutable { result = std::move(r); });
  });
  loop.run_until([&] { return result.has_value(); }, limit + 5s);
  caller.join();
  return std::move(*result);
}

std::string url_of(const HttpServer& server, std::string_view path) {
  return "http://127.0.0.1:" + std::to_string(server.port()) + std::string(path);
}

TEST(base, http_server_answers_and_streams) {
  Loop loop;
  std::vector<Handle> timers;
  auto server = HttpServer::create(loop, {}, [&](HttpRequest request, std::shared_ptr<HttpResponder> out) {
    if (request.path == "/stream") {
      out->begin(200, {{"Content-Type", "text/plain"}});
      out->write("one ");
      timers.push_back(loop.after(2ms, [out] {
        out->write("two");
        out->end();
      }));
    } else if (request.path == "/drop") {
      // The responder goes without an answer.
    } else {
      out->send(HttpResponse::text(404, request.method + " " + request.path + " " + request.query));
    }
  });
  ASSERT_TRUE(server) << server.error().text();
  const auto plain = get_beside(loop, url_of(**server, "/a?b=c"));
  ASSERT_TRUE(plain) << plain.error().text();
  EXPECT_EQ(plain->status, 404);
  EXPECT_EQ(plain->body, "GET /a b=c");
  EXPECT_EQ(get_beside(loop, url_of(**server, "/stream"))->body, "one two");
  EXPECT_EQ(get_beside(loop, url_of(**server, "/drop"))->status, 500);
}

TEST(base, http_server_on_a_unix_socket) {
  Loop loop;
  TempDir dir;
  HttpServerOptions options;
  options.unix_path = (dir.path() / "s.sock").string();
  auto server = HttpServer::create(loop, options, [](HttpRequest, std::shared_ptr<HttpResponder> out) {
    out->send(HttpResponse::text(200, "here"));
  });
  ASSERT_TRUE(server);
  EXPECT_EQ(get_beside(loop, "unix://" + options.unix_path + ":/x")->body, "here");
}

TEST(base, http_server_refuses_a_taken_port_in_plain_words) {
  Loop loop;
  const HttpHandler nothing = [](HttpRequest, std::shared_ptr<HttpResponder>) {};
  auto first = HttpServer::create(loop, {}, nothing);
  HttpServerOptions options;
  options.port = (*first)->port();
  const auto second = HttpServer::create(loop, options, nothing);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code(), Code::kBusy);
  EXPECT_EQ(second.error().text(),
            "listen on '127.0.0.1:" + std::to_string(options.port) + "': Address already in use");
}

TEST(base, http_server_limits_bodies_and_sees_clients_leave) {
  Loop loop;
  HttpServerOptions options;
  options.body_limit = 100;
  bool gone = false;
  std::shared_ptr<HttpResponder> held;
  auto server =
      HttpServer::create(loop, options, [&](HttpRequest request, std::shared_ptr<HttpResponder> out) {
        if (request.path != "/hang") return out->send(HttpResponse::text(200, request.body));
        held = out;
        out->on_close([&] { gone = true; });
      });
  ASSERT_TRUE(server);
  const auto curl = [&](std::vector<std::string> args) {
    args.insert(args.begin(), {"/usr/bin/curl", "-s", "-m", "5"});
    std::optional<Result<ExitState>> result;
    Handle handle = run_command(loop, {args}, 10s, [&](Result<ExitState> r) { result = std::move(r); });
    loop.run_until([&] { return result.has_value(); }, 15s);
    return std::move(*result);
  };
  const auto big =
      curl({"-w", "%{http_code}", "-o", "/dev/null", "-d", std::string(200, 'x'), url_of(**server, "/")});
  ASSERT_TRUE(big);
  EXPECT_EQ(big->out, "413");
  EXPECT_EQ(curl({"-d", "ok", url_of(**server, "/")})->out, "ok");
  Handle hanging = run_command(loop, {{"/usr/bin/curl", "-s", url_of(**server, "/hang")}}, 1min, [](auto) {});
  ASSERT_TRUE(loop.run_until([&] { return held != nullptr; }, 20s));
  EXPECT_FALSE(held->closed());
  hanging.reset();
  EXPECT_TRUE(loop.run_until([&] { return gone; }, 20s));
  EXPECT_TRUE(held->closed());
}

}  // namespace
}  // namespace gpuop
