// The transport against base's own server, and over HTTP/2 against nghttpx in front of it.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "base/files.h"
#include "base/http_server.h"
#include "base/process.h"
#include "kube/client.h"
#include "kube/config.h"

namespace gpuop::kube {
namespace {

std::string pem(const std::string& name) {
  return read_file(fs::path(TEST_DATA) / "data" / name).value();
}

struct Served {
  Loop loop;
  std::vector<HttpRequest> seen;
  std::vector<std::shared_ptr<HttpResponder>> streams;
  std::unique_ptr<HttpServer> server;
  Config config;

  explicit Served(std::optional<TlsFiles> tls = std::nullopt) {
    HttpServerOptions options;
    options.tls = tls;
    server = HttpServer::create(
                 loop, options,
                 [this](HttpRequest request, std::shared_ptr<HttpResponder> responder) {
                   seen.push_back(request);
                   if (request.path == "/stream" || request.query.starts_with("watch")) {
                     responder->begin(200, {{"Content-Type", "application/json"}});
                     streams.push_back(responder);
                   } else if (request.path == "/hang") {
                     streams.push_back(responder);
                   } else {
                     responder->send(HttpResponse::json(200, R"({"path":")" + request.path + R"(","bytes":)" +
                                                                 std::to_string(request.body.size()) + "}"));
                   }
                 })
                 .value();
    config.server = std::string(tls ? "https" : "http") + "://127.0.0.1:" + std::to_string(server->port());
  }

  Result<HttpResponse> get(const Config& with, std::string path = "/x") {
    const auto transport = make_http_transport(loop, with);
    if (!transport) return fail(transport.error());
    std::optional<Result<HttpResponse>> out;
    HttpRequest request;
    request.path = std::move(path);
    const Handle handle =
        (*transport)->send(request, [&](Result<HttpResponse> result) { out = std::move(result); });
    loop.run_until([&] { return out.has_value(); }, 10s);
    return out ? std::move(*out) : fail(Code::kTimeout, "test: nothing came");
  }
};

TEST(kube, transport_sends_and_receives) {
  Served t;
  const auto client = make_client(t.loop, t.config, {.user_agent = "ua/1"}).value();
  const auto answer = await(t.loop, [&](auto done) { return client->get(kPods, "x", "p", done); });
  ASSERT_TRUE(answer) << answer.error().message;
  EXPECT_EQ(get_string(*answer, {"path"}), "/api/v1/namespaces/x/pods/p");
  EXPECT_EQ(t.seen[0].header("user-agent"), "ua/1");
  JsonObject big{{"text", std::string(300'000, 'x')}};
  const auto made = await(t.loop, [&](auto done) { return client->create(kPods, "x", big, {}, done); });
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_GT(get_int(*made, {"bytes"}), 300'000);
  EXPECT_EQ(t.seen[1].header("content-type"), "application/json");
  EXPECT_EQ(t.seen[1].header("expect"), "");
  EXPECT_TRUE(await(t.loop, [&](auto done) { return client->remove(kPods, "x", "p", {}, done); }));
  EXPECT_EQ(t.seen[2].method, "DELETE");
  const auto patched = await(t.loop, [&](auto done) {
    return client->patch(kPods, "x", "p", Patch::kMerge, Json(JsonObject()), {}, done);
  });
  EXPECT_TRUE(patched);
  EXPECT_EQ(t.seen[3].method, "PATCH");
}

TEST(kube, transport_streams_and_cancels) {
  Served t;
  const auto transport = make_http_transport(t.loop, t.config).value();
  std::string got;
  int status = 0;
  bool ended = false;
  HttpRequest request;
  request.path = "/stream";
  Handle handle = transport->stream(request, {[&](int code, const Headers&) { status = code; },
                                              [&](std::string_view bytes) { got += bytes; },
                                              [&](Result<> how) { ended = how.has_value(); }});
  t.loop.run_until([&] { return status != 0; }, 5s);
  EXPECT_EQ(status, 200);
  t.streams[0]->write("one\n");
  t.loop.run_until([&] { return got == "one\n"; }, 5s);
  t.streams[0]->write("two\n");
  t.streams[0]->end();
  t.loop.run_until([&] { return ended; }, 5s);
  EXPECT_EQ(got, "one\ntwo\n");
  EXPECT_TRUE(ended);

  // Cut: an error. Dropped: the server hears of it.
  std::optional<Result<>> how;
  handle = transport->stream(request, {{}, {}, [&](Result<> result) { how = result; }});
  t.loop.run_until([&] { return t.streams.size() == 2; }, 5s);
  t.streams[1]->write("half");
  t.streams[1]->abort();
  t.loop.run_until([&] { return how.has_value(); }, 5s);
  ASSERT_TRUE(how);
  EXPECT_EQ(how->error().code(), Code::kUnavailable);
  handle = transport->stream(request, {{}, {}, [&](Result<>) { FAIL(); }});
  t.loop.run_until([&] { return t.streams.size() == 3; }, 5s);
  bool closed = false;
  t.streams[2]->on_close([&] { closed = true; });
  handle.reset();
  t.loop.run_until([&] { return closed; }, 5s);
  EXPECT_TRUE(closed);
}

TEST(kube, transport_may_be_destroyed_inside_its_callback) {
  Served t;
  auto transport = make_http_transport(t.loop, t.config).value();
  bool called = false;
  HttpRequest request;
  request.path = "/x";
  Handle other = transport->send(request, [&](auto) {});
  Handle handle = transport->send(request, [&](auto) {
    called = true;
    transport.reset();
  });
  t.loop.run_until([&] { return called; }, 5s);
  t.loop.run_for(Duration::zero());
  EXPECT_TRUE(called);
}

void many_requests(Served& t) {
  const auto client = make_client(t.loop, t.config).value();
  int done = 0, events = 0;
  std::vector<Handle> watches;
  for (int i = 0; i < 20; ++i)
    watches.push_back(client->watch(kPods, "x", {}, {[&](auto, auto) { ++events; }, [](auto) {}}));
  for (int i = 0; i < 200; ++i) {
    client->get(kPods, "x", "p" + std::to_string(i), [&](ApiResult<> result) { done += result.has_value(); })
        .detach();
  }
  t.loop.run_until([&] { return done == 200 && t.streams.size() == 20; }, 10s);
  EXPECT_EQ(done, 200);
  ASSERT_EQ(t.streams.size(), 20u);
  for (const auto& stream : t.streams)
    stream->write(R"({"type":"ADDED","object":{}})"
                  "\n");
  t.loop.run_until([&] { return events == 20; }, 5s);
  EXPECT_EQ(events, 20);
}

TEST(kube, transport_many_requests_at_once) {
  Served plain;
  many_requests(plain);
  Served secure(TlsFiles{pem("server.crt"), pem("server.key"), ""});
  secure.config.ca_pem = pem("ca.crt");
  many_requests(secure);
}

TEST(kube, transport_verifies_tls) {
  Served t(TlsFiles{pem("server.crt"), pem("server.key"), pem("ca.crt")});
  Config config = t.config;
  // The system's certificates do not know this one.
  auto answer = t.get(config);
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code(), Code::kInvalid) << answer.error().text();
  EXPECT_NE(answer.error().text().find("GET 'https://127.0.0.1:"), std::string::npos)
      << answer.error().text();
  config.insecure = true;
  EXPECT_TRUE(t.get(config));
  config.insecure = false;
  config.ca_pem = pem("ca.crt");
  answer = t.get(config);
  ASSERT_TRUE(answer) << answer.error().text();
  EXPECT_EQ(t.seen.back().client_cert_cn, "");
  config.client_cert_pem = pem("client.crt");
  config.client_key_pem = pem("client.key");
  answer = t.get(config);
  ASSERT_TRUE(answer) << answer.error().text();
  EXPECT_EQ(t.seen.back().client_cert_cn, "tester");
  EXPECT_EQ(t.seen.back().client_cert_orgs, std::vector<std::string>{"crew"});
  // From files.
  config.client_cert_pem = config.client_key_pem = config.ca_pem = "";
  config.ca_file = std::string(TEST_DATA) + "/data/ca.crt";
  config.client_cert_file = std::string(TEST_DATA) + "/data/client.crt";
  config.client_key_file = std::string(TEST_DATA) + "/data/client.key";
  answer = t.get(config);
  ASSERT_TRUE(answer) << answer.error().text();
  EXPECT_EQ(t.seen.back().client_cert_cn, "tester");
  config.ca_file = "/nonexistent/ca.crt";
  answer = t.get(config);
  ASSERT_FALSE(answer);
  EXPECT_NE(answer.error().text().find("/nonexistent/ca.crt"), std::string::npos) << answer.error().text();
}

TEST(kube, transport_checks_another_server_name) {
  Served t(TlsFiles{pem("named.crt"), pem("named.key"), ""});
  Config config = t.config;
  config.ca_pem = pem("ca.crt");
  EXPECT_FALSE(t.get(config));
  config.tls_server_name = "api.internal";
  const auto answer = t.get(config);
  ASSERT_TRUE(answer) << answer.error().text();
  EXPECT_EQ(t.seen.back().header("host"), config.server.substr(8));
}

TEST(kube, transport_renews_a_certificate_that_changed) {
  Served t(TlsFiles{pem("server.crt"), pem("server.key"), pem("ca.crt")});
  TempDir dir;
  Config config = t.config;
  config.ca_pem = pem("ca.crt");
  config.client_cert_file = dir.path() / "c.crt";
  config.client_key_file = dir.path() / "c.key";
  ASSERT_TRUE(write_file_atomic(config.client_cert_file, pem("server.crt")));
  ASSERT_TRUE(write_file_atomic(config.client_key_file, pem("server.key")));
  const auto transport = make_http_transport(t.loop, config).value();
  const auto get = [&] {
    std::optional<Result<HttpResponse>> out;
    HttpRequest request;
    request.path = "/x";
    const Handle handle =
        transport->send(request, [&](Result<HttpResponse> result) { out = std::move(result); });
    t.loop.run_until([&] { return out.has_value(); }, 5s);
  };
  get();  // not a client's certificate: whatever comes of it
  ASSERT_TRUE(write_file_atomic(config.client_cert_file, pem("client.crt")));
  ASSERT_TRUE(write_file_atomic(config.client_key_file, pem("client.key")));
  get();
  ASSERT_FALSE(t.seen.empty());
  EXPECT_EQ(t.seen.back().client_cert_cn, "tester");
}

TEST(kube, transport_names_what_is_wrong) {
  Served t;
  Config config;
  for (const auto& [server, why] : {std::pair{"127.0.0.1:80", "must start with https:// or http://"},
                                    {"ftp://x", "must start"},
                                    {"https://", "no host"},
                                    {"https://x:0", "not a port"},
                                    {"https://x:y", "not a port"}}) {
    config.server = server;
    const auto made = make_http_transport(t.loop, config);
    ASSERT_FALSE(made) << server;
    EXPECT_NE(made.error().text().find(why), std::string::npos) << made.error().text();
  }
  // Nobody listens there.
  const std::uint16_t port = t.server->port();
  t.server.reset();
  config.server = "http://127.0.0.1:" + std::to_string(port);
  const auto answer = t.get(config);
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code(), Code::kUnavailable);
  EXPECT_NE(answer.error().text().find("refused"), std::string::npos) << answer.error().text();
  const auto loop = Loop::make_virtual(Time());
  EXPECT_EQ(make_http_transport(*loop, config).error().code(), Code::kUnsupported);
}

// nghttpx is given a listening socket, so that there is nothing to wait for.
TEST(kube, transport_speaks_http2_over_one_connection) {
  if (!file_exists("/usr/sbin/nghttpx")) GTEST_SKIP() << "needs nghttp2-proxy";
  Served t;
  Fd listener(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(::listen(listener.get(), 64), 0);
  ASSERT_EQ(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  const std::string port = std::to_string(ntohs(address.sin_port));
  Command command;
  const std::string data = std::string(TEST_DATA) + "/data/";
  command.argv = {"/usr/sbin/nghttpx",
                  "--conf=/dev/null",
                  "--workers=1",
                  "--single-process",
                  "--errorlog-file=/dev/null",
                  "-f127.0.0.1," + port,
                  "-b127.0.0.1," + std::to_string(t.server->port()),
                  data + "server.key",
                  data + "server.crt"};
  command.env = {"NGHTTPX_ACCEPT_1=tcp,9"};
  SpawnOptions options;
  options.die_with_parent = true;
  options.pass_fds = {{listener.get(), 9}};
  bool exited = false;
  const auto child = Child::spawn(t.loop, command, options, [&](ExitState) { exited = true; }).value();

  Config config;
  config.server = "https://127.0.0.1:" + port;
  config.ca_pem = pem("ca.crt");
  const auto client = make_client(t.loop, config).value();
  int done = 0, events = 0;
  std::string fault;
  std::vector<Handle> watches;
  for (int i = 0; i < 30; ++i)
    watches.push_back(client->watch(kPods, "x", {}, {[&](auto, auto) { ++events; }, [](auto) {}}));
  for (int i = 0; i < 100; ++i) {
    client
        ->get(kPods, "x", "p",
              [&](ApiResult<> result) {
                ++done;
                if (!result) fault = result.error().message;
              })
        .detach();
  }
  t.loop.run_until([&] { return exited || (done == 100 && t.streams.size() == 30); }, 10s);
  EXPECT_FALSE(exited);
  EXPECT_EQ(done, 100);
  EXPECT_EQ(fault, "");
  ASSERT_EQ(t.streams.size(), 30u);
  EXPECT_NE(t.seen[0].header("via").find("2"), std::string::npos) << t.seen[0].header("via");
  // All of it over one connection to the front: what it forwarded came from one client.
  for (const auto& stream : t.streams)
    stream->write(R"({"type":"ADDED","object":{}})"
                  "\n");
  t.loop.run_until([&] { return events == 30; }, 5s);
  EXPECT_EQ(events, 30);
  watches.clear();
  child->kill(9);
  t.loop.run_until([&] { return exited; }, 5s);
}

}  // namespace
}  // namespace gpuop::kube
