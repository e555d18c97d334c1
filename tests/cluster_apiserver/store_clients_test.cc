// Clients that read slowly, not at all, or send too much.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "api.h"
#include "base/files.h"
#include "base/http_server.h"

namespace gpuop::cluster {
namespace {

constexpr const char* kMaps = "/api/v1/namespaces/default/configmaps";

// Takes what was written only when told to.
class SlowClient : public Recorder {
 public:
  void write(std::string chunk) override {
    waiting += chunk;
    most = std::max(most, waiting.size());
  }
  std::size_t buffered() const override { return waiting.size(); }
  void on_drain(const std::function<void()>& drained) override { drained_ = drained; }
  void take(std::size_t bytes) {
    answer.body += waiting.substr(0, bytes);
    waiting.erase(0, bytes);
    auto drained = drained_;
    if (drained) drained();
  }
  std::string waiting;
  std::size_t most = 0;

 private:
  std::function<void()> drained_;
};

std::string body(const std::string& name, std::size_t size) {
  return R"({"metadata":{"name":")" + name + R"("},"data":{"v":")" + std::string(size, 'x') + "\"}}";
}

std::shared_ptr<SlowClient> open_watch(Api& api, const std::string& query) {
  auto client = std::make_shared<SlowClient>();
  api.handler(Api::request("GET " + std::string(kMaps) + "?watch=true" + query), client);
  return client;
}

TEST(store, a_watcher_that_does_not_read_costs_little_and_is_cut) {
  Api api;
  auto client = open_watch(api, "&resourceVersion=" + std::to_string(api.server->resource_version()));
  ASSERT_EQ(api.post(kMaps, body("m", 10)).status, 201);
  for (int i = 0; i < 3000; ++i)
    ASSERT_EQ(api.put(std::string(kMaps) + "/m", body("m", 2000 + static_cast<std::size_t>(i))).status, 200);
  EXPECT_LT(client->most, (1u << 20) + 8192);
  EXPECT_FALSE(client->aborted);
  api.loop->run_for(6s);
  EXPECT_TRUE(client->aborted);
  EXPECT_EQ(api.server->watch_count(), 0u);
}

TEST(store, a_watcher_that_falls_behind_little_is_not_cut) {
  Api api;
  auto client = open_watch(api, "&resourceVersion=" + std::to_string(api.server->resource_version()));
  ASSERT_EQ(api.post(kMaps, body("m", 10)).status, 201);
  for (std::size_t i = 0; i < 40; ++i)
    ASSERT_EQ(api.put(std::string(kMaps) + "/m", body("m", 100000 + i)).status, 200);
  api.loop->run_for(60s);
  EXPECT_FALSE(client->aborted);
  while (!client->waiting.empty()) client->take(300000);
  std::vector<Json> events = Api::events(*client);
  ASSERT_EQ(events.size(), 41u);
  // Nothing was said about versions that had not been sent.
  for (std::size_t i = 0; i < events.size(); ++i)
    EXPECT_EQ(text_at(events[i], {"type"}), i == 0 ? "ADDED" : "MODIFIED");
}

TEST(store, a_slow_watcher_sees_everything_once_and_in_order) {
  Api api;
  for (int i = 0; i < 100; ++i)
    ASSERT_EQ(api.post(kMaps, body("m" + std::to_string(100 + i), 50000)).status, 201);
  auto client =
      open_watch(api, "&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan");
  // Changes while the first objects are still on their way: the client sees the old state first.
  for (int i = 0; i < 50; ++i)
    ASSERT_EQ(api.put(std::string(kMaps) + "/m" + std::to_string(100 + i),
                      body("m" + std::to_string(100 + i), 60000))
                  .status,
              200);
  ASSERT_EQ(api.del(std::string(kMaps) + "/m199").status, 200);
  while (!client->waiting.empty()) {
    client->take(200000);
    api.loop->run_for(1s);
  }
  EXPECT_LT(client->most, (1u << 20) + 70000);
  std::vector<Json> events = Api::events(*client);
  ASSERT_EQ(events.size(), 101u + 1u + 51u);
  EXPECT_EQ(text_at(events[101], {"object", "metadata", "annotations", "k8s.io/initial-events-end"}), "true");
  std::int64_t last = *parse_int(text_at(events[101], {"object", "metadata", "resourceVersion"}));
  for (std::size_t i = 102; i < events.size(); ++i) {
    std::int64_t version = *parse_int(text_at(events[i], {"object", "metadata", "resourceVersion"}));
    EXPECT_GT(version, last);
    last = version;
  }
  EXPECT_EQ(text_at(events.back(), {"type"}), "DELETED");
}

TEST(store, a_watcher_behind_the_history_is_cut) {
  ApiServerOptions options;
  options.history_events = 50;
  Api api(std::move(options));
  auto client = open_watch(api, "&resourceVersion=" + std::to_string(api.server->resource_version()));
  ASSERT_EQ(api.post(kMaps, body("m", 10)).status, 201);
  for (std::size_t i = 0; i < 100; ++i)
    ASSERT_EQ(api.put(std::string(kMaps) + "/m", body("m", 100000 + i)).status, 200);
  client->take(2 << 20);
  EXPECT_TRUE(client->aborted) << "what it would have seen next is forgotten";
}

// --- over sockets

class Socket {
 public:
  explicit Socket(int port, int receive_buffer = 0) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    if (receive_buffer > 0)
      ::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    sockaddr_in where{};
    where.sin_family = AF_INET;
    where.sin_port = htons(static_cast<std::uint16_t>(port));
    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(fd_.get(), reinterpret_cast<sockaddr*>(&where), sizeof where), 0);
  }
  void send(std::string_view text) const {
    while (!text.empty()) {
      ssize_t n = ::send(fd_.get(), text.data(), text.size(), MSG_NOSIGNAL);
      if (n <= 0) return;
      text.remove_prefix(static_cast<std::size_t>(n));
    }
  }
  // Until the end, or until `enough` says so.
  std::string read(const std::function<bool(const std::string&)>& enough = {}) const {
    std::string text;
    char bytes[65536];
    for (ssize_t n = 0; (n = ::recv(fd_.get(), bytes, sizeof bytes, 0)) > 0;) {
      text.append(bytes, static_cast<std::size_t>(n));
      if (enough && enough(text)) break;
    }
    return text;
  }
  int fd() const { return fd_.get(); }
  void close() { fd_.reset(); }

 private:
  Fd fd_;
};

class OverSockets {
 public:
  explicit OverSockets(HttpServerOptions options = {}) : server(loop) {
    http = std::move(*HttpServer::create(loop, std::move(options), server.handler()));
  }
  // Runs `client` beside the loop.
  void beside(const std::function<void()>& client) {
    std::thread thread([&] {
      client();
      loop.post([this] { loop.stop(); });
    });
    loop.run();
    thread.join();
  }
  Loop loop;
  ApiServer server;
  std::unique_ptr<HttpServer> http;
};

TEST(store, a_watch_of_more_than_the_buffer_reaches_a_slow_reader) {
  OverSockets api;
  for (int i = 0; i < 300; ++i) {
    auto recorder = std::make_shared<Recorder>();
    api.server.handler()(Api::request("POST " + std::string(kMaps), body("m" + std::to_string(i), 50000)),
                         recorder);
    ASSERT_EQ(recorder->answer.status, 201);
  }
  std::string text;
  api.beside([&] {
    Socket socket(api.http->port(), 16384);
    socket.send(
        "GET " + std::string(kMaps) +
        "?watch=true&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan "
        "HTTP/1.1\r\nHost: x\r\n\r\n");
    text = socket.read([](const std::string& all) {
      return all.find("initial-events-end", all.size() > 70000 ? all.size() - 70000 : 0) != std::string::npos;
    });
  });
  EXPECT_GT(text.size(), 300u * 50000u);
  EXPECT_NE(text.find("initial-events-end"), std::string::npos);
}

TEST(store, a_body_that_is_too_large_is_answered_though_it_is_sent_to_the_end) {
  OverSockets api;
  std::string answer;
  api.beside([&] {
    Socket socket(api.http->port());
    std::string large(5u << 20, 'x');
    socket.send("POST " + std::string(kMaps) + " HTTP/1.1\r\nHost: x\r\nContent-Length: " +
                std::to_string(large.size()) + "\r\n\r\n" + large);
    answer = socket.read();
  });
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 413 ")) << answer.substr(0, 200);
  auto status = parse_json(answer.substr(answer.find("\r\n\r\n") + 4));
  ASSERT_TRUE(status);
  EXPECT_EQ(text_at(*status, {"reason"}), "RequestEntityTooLarge");
  EXPECT_EQ(text_at(*status, {"message"}), "Request entity too large: limit is 3145728");
}

TEST(store, a_body_that_never_ends_is_refused_in_the_middle_of_it) {
  OverSockets api(api_http_options());
  std::string answer;
  api.beside([&] {
    Socket socket(api.http->port());
    socket.send(
        "POST " + std::string(kMaps) +
        " HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n");
    const std::string chunk = "100000\r\n" + std::string(1u << 20, 'x') + "\r\n";
    for (int i = 0; i < 4; ++i) socket.send(chunk);  // and no last one
    answer = socket.read();
  });
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 413 ")) << answer.substr(0, 200);
  EXPECT_NE(answer.find("\"message\":\"Request entity too large: limit is 3145728\""), std::string::npos);
  EXPECT_NE(answer.find("Connection: close"), std::string::npos);
}

TEST(store, what_is_wrong_with_a_large_request_besides_its_size_comes_first) {
  OverSockets api(api_http_options());
  std::string nowhere;
  api.beside([&] {
    Socket socket(api.http->port());
    socket.send("POST /nothing HTTP/1.1\r\nHost: x\r\nContent-Length: 4000000\r\n\r\n" +
                std::string(4000000, 'x'));
    nowhere = socket.read();
  });
  EXPECT_TRUE(nowhere.starts_with("HTTP/1.1 404 ")) << nowhere.substr(0, 200);
}

TEST(store, a_body_that_does_not_come_is_a_timeout) {
  HttpServerOptions options = api_http_options();
  options.body_timeout = 30ms;
  OverSockets api(options);
  std::string announced;
  std::string begun;
  api.beside([&] {
    const std::string head = "POST " + std::string(kMaps) +
                             " HTTP/1.1\r\nHost: x\r\nContent-Type: "
                             "application/json\r\nContent-Length: ";
    Socket all(api.http->port());
    all.send(head + "99999999999999\r\n\r\n");
    announced = all.read();
    Socket part(api.http->port());
    part.send(head + "100\r\n\r\n{\"a\":");
    begun = part.read();
  });
  for (const std::string& answer : {announced, begun}) {
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 504 ")) << answer.substr(0, 200);
    EXPECT_NE(answer.find("\"reason\":\"Timeout\""), std::string::npos);
  }
}

TEST(store, requests_that_are_none_are_told_so) {
  OverSockets api(api_http_options());
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"GARBAGE\r\n\r\n", "HTTP/1.1 400 Bad Request"},
      {"GET / HTTP/9.9\r\nHost: x\r\n\r\n", "HTTP/1.1 505 "},
      {"GET / HTTP/1.1\r\nHost: x\r\nBad Header: 1\r\n\r\n", "HTTP/1.1 400 "},
      {"POST /api HTTP/1.1\r\nHost: x\r\nContent-Length: abc\r\n\r\n", "HTTP/1.1 400 "},
      {"GET / HTTP/1.1\r\nA: " + std::string(1100000, 'y') + "\r\n\r\n", "HTTP/1.1 431 "},
      {"POST " + std::string(kMaps) + " HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
       "HTTP/1.1 500 "}};
  for (const auto& [request, answer] : cases) {
    std::string got;
    api.beside([&] {
      Socket socket(api.http->port());
      socket.send(request);
      got = socket.read();
    });
    EXPECT_TRUE(got.starts_with(answer)) << request.substr(0, 60) << " -> " << got.substr(0, 200);
  }
}

TEST(store, clients_that_stop_in_a_header_are_let_go) {
  HttpServerOptions options;
  options.header_timeout = 20ms;
  OverSockets api(options);
  std::string answer = "something";
  api.beside([&] {
    Socket socket(api.http->port());
    socket.send("GET /api HTTP/1.1\r\nHo");
    answer = socket.read();
  });
  EXPECT_EQ(answer, "");
}

// A peer that vanishes without a word (its machine lost power): no packet says so.
TEST(store, half_open_connections_are_noticed) {
  HttpServerOptions options;
  options.peer_silence = 1s;
  OverSockets api(options);
  Socket socket(api.http->port());
  int on = 1;
  if (::setsockopt(socket.fd(), IPPROTO_TCP, TCP_REPAIR, &on, sizeof on) != 0)
    GTEST_SKIP() << "a connection can be made to vanish by root only";
  on = 0;
  ::setsockopt(socket.fd(), IPPROTO_TCP, TCP_REPAIR, &on, sizeof on);
  socket.send("GET " + std::string(kMaps) + "?watch=true HTTP/1.1\r\nHost: x\r\n\r\n");
  // Once nothing is on its way, nothing but the server's own asking finds out.
  std::string got(65536, '\0');
  auto first_event = [&] {
    ssize_t n = ::recv(socket.fd(), got.data(), got.size(), MSG_DONTWAIT | MSG_PEEK);
    return n > 0 && std::string_view(got).substr(0, static_cast<std::size_t>(n)).find("ADDED") !=
                        std::string_view::npos;
  };
  ASSERT_TRUE(api.loop.run_until(first_event, 5s));
  api.loop.run_for(50ms);
  on = 1;
  ::setsockopt(socket.fd(), IPPROTO_TCP, TCP_REPAIR, &on, sizeof on);
  socket.close();
  EXPECT_TRUE(api.loop.run_until([&] { return api.server.watch_count() == 0; }, 5s));
}

}  // namespace
}  // namespace gpuop::cluster
