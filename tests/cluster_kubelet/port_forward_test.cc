// SPDY/3.1 frames, and ports that are forwarded with them.
#include "cluster/kubelet/port_forward.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "base/http_server.h"
#include "base/websocket.h"
#include "cluster/kubelet/certificate.h"
#include "cluster/kubelet/spdy.h"

namespace gpuop::cluster {
namespace {

TEST(spdy, frames_survive_the_wire_in_any_pieces) {
  SpdyWriter writer;
  std::string all = writer.syn_stream(1, {{"streamtype", "error"}, {"port", "80"}, {"requestid", "0"}});
  all += writer.syn_reply(1);
  all += writer.syn_stream(3, {{"streamtype", "data"}, {"port", "80"}});
  all += SpdyWriter::data(3, "hello", false) + SpdyWriter::data(3, "", true) + SpdyWriter::ping(7);
  all += SpdyWriter::reset(3, 5);
  for (std::size_t piece : {all.size(), std::size_t{1}, std::size_t{7}}) {
    SpdyReader reader;
    std::vector<SpdyFrame> frames;
    for (std::size_t at = 0; at < all.size(); at += piece) {
      auto more = reader.feed(std::string_view(all).substr(at, piece));
      ASSERT_TRUE(more) << more.error().text();
      frames.insert(frames.end(), more->begin(), more->end());
    }
    ASSERT_EQ(frames.size(), 7u);
    EXPECT_EQ(frames[0].kind, SpdyFrame::Kind::kSynStream);
    EXPECT_EQ(frames[0].stream, 1u);
    EXPECT_EQ(frames[0].headers.at("streamtype"), "error");
    EXPECT_EQ(frames[1].kind, SpdyFrame::Kind::kOther);
    EXPECT_EQ(frames[2].headers.at("streamtype"), "data");
    EXPECT_EQ(frames[3].data, "hello");
    EXPECT_FALSE(frames[3].last);
    EXPECT_TRUE(frames[4].last);
    EXPECT_EQ(frames[5].kind, SpdyFrame::Kind::kPing);
    EXPECT_EQ(frames[5].stream, 7u);
    EXPECT_EQ(frames[6].kind, SpdyFrame::Kind::kReset);
  }
}

TEST(spdy, what_is_no_spdy_is_refused) {
  const auto refused = [](std::string_view bytes) {
    SpdyReader reader;
    return !reader.feed(bytes);
  };
  EXPECT_TRUE(refused(std::string_view("\x80\x02\x00\x01\x00\x00\x00\x00", 8)));     // SPDY/2
  EXPECT_TRUE(refused(std::string_view("\x00\x00\x00\x01\x00\xff\xff\xff", 8)));     // 16 MiB
  EXPECT_TRUE(refused(std::string_view("\x80\x03\x00\x01\x00\x00\x00\x02zz", 10)));  // too short
  EXPECT_TRUE(
      refused(std::string_view("\x80\x03\x00\x01\x00\x00\x00\x0c\0\0\0\1\0\0\0\0\0\0zz", 20)));  // no zlib
}

// A server that says what it was asked, and a WebSocket to a node that forwards its ports.
class port_forward : public ::testing::Test {
 protected:
  void SetUp() override {
    target_ = std::move(HttpServer::create(loop_, {}, [](const HttpRequest& request, const auto& out) {
                out->send(HttpResponse::text(200, std::string(kBody, 'x') + " asked " + request.path));
              })).value();
    HttpServerOptions options;
    options.tls = *make_self_signed("n1", "127.0.0.1");
    const auto serve = [this](const HttpRequest& request, const std::shared_ptr<HttpResponder>& out) {
      WebSocket::accept(loop_, take_over(*out), request, kPortForwardProtocol, 1u << 20, [this](auto socket) {
        session_ = PortForward::begin(loop_, std::move(*socket), "", "default/p", [this] { over_ = true; });
      });
    };
    gate_ = std::move(HttpServer::create(loop_, options, serve)).value();
    Handle dial = connect_tls(loop_, {"127.0.0.1", gate_->port(), "", ""}, 5s, [this](auto stream) {
      WebSocket::connect(loop_, std::move(*stream), "n1", "/", kPortForwardProtocol, 1u << 20,
                         [this](auto made) {
                           ASSERT_TRUE(made) << made.error().text();
                           socket_ = std::move(*made);
                           read();
                         });
    });
    ASSERT_TRUE(loop_.run_until([&] { return socket_ != nullptr; }, 5s));
  }

  void read() {
    socket_->read([this](const Result<std::string>& message) {
      if (!message) return;
      auto frames = reader_.feed(*message);
      ASSERT_TRUE(frames) << frames.error().text();
      for (const SpdyFrame& frame : *frames) {
        if (frame.kind == SpdyFrame::Kind::kData) got_[frame.stream] += frame.data;
        if (frame.kind == SpdyFrame::Kind::kPing) ++pings_;
        if (frame.kind == SpdyFrame::Kind::kReset) ++resets_;
        if (frame.last) ended_.insert(frame.stream);
      }
      read();
    });
  }
  void send(std::string bytes) {
    bool sent = false;
    socket_->write(std::move(bytes), [&](const Result<>&) { sent = true; });
    ASSERT_TRUE(loop_.run_until([&] { return sent; }, 5s));
  }
  // Both streams of a connection, in one message as well as any.
  std::string open(std::uint32_t first, int port, const std::string& id) {
    std::map<std::string, std::string> headers{
        {"streamtype", "error"}, {"port", std::to_string(port)}, {"requestid", id}};
    std::string out = writer_.syn_stream(first, headers) + SpdyWriter::data(first, "", true);
    headers["streamtype"] = "data";
    return out + writer_.syn_stream(first + 2, headers);
  }
  bool wait_for_end(std::uint32_t stream) {
    return loop_.run_until([&] { return ended_.contains(stream) && ended_.contains(stream + 2); }, 5s);
  }
  static constexpr std::size_t kBody = 700000;
  static constexpr const char* kAsk = "GET /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

  Loop loop_;
  std::unique_ptr<HttpServer> target_, gate_;
  std::shared_ptr<PortForward> session_;
  std::unique_ptr<WebSocket> socket_;
  SpdyReader reader_;
  SpdyWriter writer_;
  std::map<std::uint32_t, std::string> got_;
  std::set<std::uint32_t> ended_;
  int pings_ = 0, resets_ = 0;
  bool over_ = false;
};

TEST_F(port_forward, connections_beside_each_other) {
  send(open(1, target_->port(), "0"));
  send(open(5, target_->port(), "1") + SpdyWriter::ping(9));
  send(SpdyWriter::data(3, kAsk, false) + SpdyWriter::data(7, kAsk, false));
  ASSERT_TRUE(wait_for_end(1) && wait_for_end(5));
  for (std::uint32_t stream : {3u, 7u}) {
    EXPECT_GT(got_[stream].size(), kBody);
    EXPECT_TRUE(got_[stream].ends_with(" asked /x"));
  }
  EXPECT_EQ(got_[1] + got_[5], "");
  EXPECT_EQ(pings_, 1);
  EXPECT_EQ(resets_, 0);
}

TEST_F(port_forward, nobody_listens) {
  auto gone = std::move(HttpServer::create(loop_, {}, [](const auto&, const auto&) {})).value();
  const int port = gone->port();
  gone.reset();
  send(open(1, port, "0"));
  ASSERT_TRUE(wait_for_end(1));
  EXPECT_EQ(got_[1], "error forwarding port " + std::to_string(port) +
                         " to pod default/p: dial tcp4 127.0.0.1:" + std::to_string(port) +
                         ": connect: connection refused");
  send(open(5, 0, "1"));
  ASSERT_TRUE(loop_.run_until([&] { return resets_ == 2; }, 5s)) << "port 0";
}

TEST_F(port_forward, ends_with_its_client) {
  send(open(1, target_->port(), "0"));
  EXPECT_FALSE(over_);
  socket_.reset();
  EXPECT_TRUE(loop_.run_until([&] { return over_; }, 5s));
}

TEST_F(port_forward, what_is_no_spdy_ends_it) {
  send("GET / HTTP/1.1\r\n\r\nand so on");
  EXPECT_TRUE(loop_.run_until([&] { return over_; }, 5s));
}

}  // namespace
}  // namespace gpuop::cluster
