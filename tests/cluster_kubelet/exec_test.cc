// Programs in containers over WebSockets: client, API server, kubelet; the program itself is run beside the
// test.
#include <deque>

#include "base/websocket.h"
#include "cluster/apiserver/api_server.h"
#include "cluster/apiserver/pki.h"
#include "cluster/kubelet/attach_session.h"
#include "cluster/kubelet/exec_session.h"
#include "cluster/kubelet/http_endpoint.h"
#include "cluster/kubelet/port_forward.h"
#include "fixture.h"

namespace gpuop::cluster {
namespace {

// Runs what is asked for on this machine.
class LocalRuntime : public RecordingRuntime {
 public:
  explicit LocalRuntime(Loop& loop) : RecordingRuntime(loop), loop_(loop) {}
  void exec_stream(const std::string& id, const std::vector<std::string>& argv, ExecStreams streams,
                   Done<ExitState> done) override {
    containers.push_back(id);
    if (refuses) return done(fail(*refuses));
    SpawnOptions options{
        .stdin_fd = streams.in.get(), .stdout_fd = streams.out.get(), .stderr_fd = streams.err.get()};
    auto child = Child::spawn(loop_, {.argv = argv, .env = {"PATH=/bin:/usr/bin"}}, options,
                              [this, done](const ExitState& state) {
                                ++ended;
                                done(state);
                              });
    ASSERT_TRUE(child) << child.error().text();
    children.push_back(std::move(*child));
  }
  std::vector<std::string> containers;
  std::vector<std::unique_ptr<Child>> children;
  std::optional<Error> refuses;
  int ended = 0;

 private:
  Loop& loop_;
};

// A client of a session: what came on each channel.
struct Client {
  std::unique_ptr<WebSocket> socket;
  std::map<int, std::string> got;
  std::optional<Error> refused;
  bool ended = false, reads = true;
  std::deque<std::string> to_send;
  bool sending = false;

  void opened(Result<std::unique_ptr<WebSocket>> how) {
    if (!how) {
      refused = how.error();
      return;
    }
    socket = std::move(*how);
    if (reads) read();
  }
  void read() {
    socket->read([this](Result<std::string> message) {
      if (!message) {
        ended = true;
        return;
      }
      if (!message->empty()) got[static_cast<unsigned char>((*message)[0])] += message->substr(1);
      read();
    });
  }
  void send(int channel, const std::string& text) {
    to_send.push_back(std::string(1, static_cast<char>(channel)) + text);
    pass();
  }
  void pass() {
    if (sending || to_send.empty()) return;
    sending = true;
    std::string next = std::move(to_send.front());
    to_send.pop_front();
    socket->write(std::move(next), [this](const Result<>&) {
      sending = false;
      pass();
    });
  }
  Json status() const { return got.contains(3) ? parse_json(got.at(3)).value_or(Json()) : Json(); }
};

class exec_over_websocket : public ::testing::Test {
 protected:
  void SetUp() override {
    keys_ = *make_cluster_credentials(loop_.now());
    HttpEndpointFacts facts;
    facts.pods = [] { return std::string("{}"); };
    facts.running = [](const std::string& ns, const std::string& pod,
                       const std::string& container) -> Result<std::string> {
      if (container == "gone") return fail(Code::kNotFound, "container not found (\"gone\")");
      return ns + "/" + pod + "/" + container;
    };
    facts.log = [this](const auto&, const auto&, const auto&, bool) -> Result<LogSource> {
      return LogSource{dir_.path() / "0.log", [this] { return running_; }};
    };
    facts.there = [this](const auto&, const auto& pod) -> Result<> {
      if (there_) return {};
      return fail(Code::kNotFound, "pod not found (\"" + pod + "\")");
    };
    facts.runtime = &runtime_;
    facts.client_ca = keys_.ca.certificate;
    endpoint_ = std::move(HttpEndpoint::create(loop_, "n1", "127.0.0.1", 0, std::move(facts))).value();
    ApiServerOptions options;
    options.kubelet_client_certificate = keys_.admin.certificate;
    options.kubelet_client_key = keys_.admin.key;
    api_ = std::make_unique<ApiServer>(loop_, options);
    HttpServerOptions how = api_http_options();
    how.tls = TlsFiles{keys_.server.certificate, keys_.server.key, keys_.ca.certificate};
    http_ = std::move(HttpServer::create(loop_, how, api_->handler())).value();
    memory_ = std::make_unique<kube::Client>(loop_, kube::make_memory_transport(loop_, api_->handler()));
    make("POST /api/v1/nodes", R"({"metadata":{"name":"n1"}})");
    make("PATCH /api/v1/nodes/n1/status",
         R"({"status":{"addresses":[{"type":"InternalIP","address":"127.0.0.1"}],)"
         R"("daemonEndpoints":{"kubeletEndpoint":{"Port":)" +
             std::to_string(endpoint_->port()) + "}}}}");
    make("POST /api/v1/nodes", R"({"metadata":{"name":"hollow"}})");
    for (const char* name : {"p", "h", "none"}) {
      make("POST /api/v1/namespaces/default/pods",
           R"({"metadata":{"name":")" + std::string(name) +
               R"("},"spec":{"containers":[{"name":"c","image":"i"},{"name":"gone","image":"i"}]}})");
    }
    make("POST /api/v1/namespaces/default/pods/p/binding", R"({"target":{"name":"n1"}})");
    make("POST /api/v1/namespaces/default/pods/h/binding", R"({"target":{"name":"hollow"}})");
  }

  void make(const std::string& line, std::string body) {
    HttpRequest request;
    request.method = line.substr(0, line.find(' '));
    request.path = line.substr(line.find(' ') + 1);
    request.headers["Content-Type"] =
        request.method == "PATCH" ? "application/merge-patch+json" : "application/json";
    request.body = std::move(body);
    auto out = std::make_shared<Answer>();
    api_->handler()(std::move(request), out);
    ASSERT_TRUE(loop_.run_until([&] { return out->response.has_value(); }, 5s));
    ASSERT_LT(out->response->status, 300) << out->response->body;
  }

  struct Answer : HttpResponder {
    void send(HttpResponse given) override { response = std::move(given); }
    void begin(int, Headers) override {}
    void write(std::string) override {}
    void end() override {}
    void abort() override {}
    std::size_t buffered() const override { return 0; }
    bool closed() const override { return false; }
    void on_close(std::function<void()>) override {}
    std::optional<HttpResponse> response;
  };

  static std::string target(const std::string& pod, const std::vector<std::string>& argv,
                            const std::string& streams = "stdin=true&stdout=true&stderr=true",
                            const std::string& container = "c") {
    std::vector<std::pair<std::string, std::string>> words;
    words.reserve(argv.size());
    for (const std::string& word : argv) words.emplace_back("command", word);
    return "/api/v1/namespaces/default/pods/" + pod + "/exec?" + build_query(words) + "&" + streams +
           "&container=" + container;
  }

  void open(Client& client, const std::string& target, const std::string& protocol = "v5.channel.k8s.io",
            std::uint16_t port = 0, const KeyPair& as = {}) {
    bool answered = false;
    const KeyPair& pair = as.certificate.empty() ? keys_.admin : as;
    Handle dial = connect_tls(loop_, {"127.0.0.1", port ? port : http_->port(), pair.certificate, pair.key},
                              5s, [&](Result<std::unique_ptr<ByteStream>> stream) {
                                ASSERT_TRUE(stream) << stream.error().text();
                                WebSocket::connect(loop_, std::move(*stream), "localhost", target, protocol,
                                                   64u << 20, [&](auto socket) {
                                                     client.opened(std::move(socket));
                                                     answered = true;
                                                   });
                              });
    ASSERT_TRUE(loop_.run_until([&] { return answered; }, 5s));
  }
  bool wait(const std::function<bool()>& what) { return loop_.run_until(what, 10s); }

  // One request over TLS: the whole answer.
  std::string ask(const std::string& text) {
    std::string got;
    std::unique_ptr<ByteStream> stream;
    bool over = false;
    std::function<void()> read = [&] {
      stream->read(65536, [&](Result<std::string> bytes) {
        if (!bytes || bytes->empty()) {
          over = true;
          return;
        }
        got += *bytes;
        read();
      });
    };
    Handle dial = connect_tls(loop_, {"127.0.0.1", http_->port(), keys_.admin.certificate, keys_.admin.key},
                              5s, [&](Result<std::unique_ptr<ByteStream>> made) {
                                ASSERT_TRUE(made) << made.error().text();
                                stream = std::move(*made);
                                stream->write(text, [&](const Result<>&) { read(); });
                              });
    loop_.run_until([&] { return over; }, 5s);
    return got;
  }

  TempDir dir_{"exec"};
  bool running_ = true;  // the container that is attached to
  bool there_ = true;    // the pod whose ports are forwarded
  Loop loop_;
  ClusterCredentials keys_;
  LocalRuntime runtime_{loop_};
  std::unique_ptr<HttpEndpoint> endpoint_;
  std::unique_ptr<ApiServer> api_;
  std::unique_ptr<HttpServer> http_;
  std::unique_ptr<kube::Client> memory_;
};

TEST_F(exec_over_websocket, streams_and_exit_code) {
  Client client;
  open(client, target("p", {"/bin/sh", "-c", "cat; echo warn >&2; exit 7"}));
  client.send(0, "one ");
  client.send(0, "two");
  client.send(255, std::string(1, '\0'));
  ASSERT_TRUE(wait([&] { return client.ended; }));
  EXPECT_EQ(client.got[1], "one two");
  EXPECT_EQ(client.got[2], "warn\n");
  EXPECT_EQ(runtime_.containers, std::vector<std::string>{"default/p/c"});
  EXPECT_EQ(get_string(client.status(), {"status"}), "Failure");
  EXPECT_EQ(get_string(client.status(), {"reason"}), "NonZeroExitCode");
  EXPECT_EQ(get_string(get_array(client.status(), {"details", "causes"})[0], {"message"}), "7");
  EXPECT_EQ(get_string(get_array(client.status(), {"details", "causes"})[0], {"reason"}), "ExitCode");
}

TEST_F(exec_over_websocket, v4_has_no_half_close) {
  Client client;
  open(client, target("p", {"/bin/true"}), "v4.channel.k8s.io");
  ASSERT_TRUE(wait([&] { return client.ended; }));
  EXPECT_EQ(get_string(client.status(), {"status"}), "Success");
  Client other;
  open(other, target("p", {"/bin/cat"}), "v4.channel.k8s.io");
  other.send(255, std::string(1, '\0'));
  other.send(0, "still open");
  ASSERT_TRUE(wait([&] { return other.got[1] == "still open"; }));
  EXPECT_FALSE(other.got.contains(3));
}

TEST_F(exec_over_websocket, large_output_both_ways) {
  Client client;
  open(client, target("p", {"/bin/cat"}));
  std::string sent;
  for (int i = 0; i < 160; ++i) {
    const std::string piece(32768, static_cast<char>('a' + i % 26));
    client.send(0, piece);
    sent += piece;
  }
  client.send(255, std::string(1, '\0'));
  ASSERT_TRUE(wait([&] { return client.ended; }));
  EXPECT_TRUE(client.got[1] == sent) << client.got[1].size();
  EXPECT_EQ(get_string(client.status(), {"status"}), "Success");
}

TEST_F(exec_over_websocket, a_reader_that_stops_holds_the_program_up) {
  Client client;
  client.reads = false;
  open(client, target("p", {"/bin/sh", "-c", "head -c 30000000 /dev/zero"}, "stdout=true"));
  loop_.run_for(300ms);
  EXPECT_EQ(runtime_.ended, 0) << "30 MB went somewhere";
  client.read();
  ASSERT_TRUE(wait([&] { return client.ended; }));
  EXPECT_EQ(client.got[1].size(), 30000000u);
}

TEST_F(exec_over_websocket, a_client_that_vanishes_ends_stdin) {
  Client client;
  open(client, target("p", {"/bin/cat"}));
  client.send(0, "x");
  ASSERT_TRUE(wait([&] { return client.got[1] == "x"; }));
  EXPECT_EQ(runtime_.ended, 0);
  client.socket.reset();
  EXPECT_TRUE(wait([&] { return runtime_.ended == 1; }));
}

TEST_F(exec_over_websocket, faults_of_the_node_come_as_a_status) {
  Client gone;
  open(gone, target("p", {"x"}, "stdout=true", "gone"));
  ASSERT_TRUE(wait([&] { return gone.ended; }));
  EXPECT_EQ(get_string(gone.status(), {"message"}),
            "Internal error occurred: container not found (\"gone\")");
  EXPECT_EQ(get_int(gone.status(), {"code"}), 500);
  runtime_.refuses = Error(Code::kConflict, "container is not in running state");
  Client stopped;
  open(stopped, target("p", {"x"}, "stdout=true"));
  ASSERT_TRUE(wait([&] { return stopped.ended; }));
  EXPECT_EQ(get_string(stopped.status(), {"message"}),
            "Internal error occurred: container is not in running state");
}

TEST_F(exec_over_websocket, refusals_before_the_connection_is_upgraded) {
  const auto refusal = [&](const std::string& where, const std::string& upgrade) {
    const std::string answer =
        ask("POST " + where + " HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, close\r\nUpgrade: " + upgrade +
            "\r\nContent-Length: 0\r\n\r\n");
    const auto body = parse_json(answer.substr(std::min(answer.size(), answer.find("\r\n\r\n") + 4)));
    return body ? std::to_string(get_int(*body, {"code"})) + " " + str(get_string(*body, {"message"}))
                : answer;
  };
  const std::string streams = "stdout=true";
  EXPECT_EQ(refusal(target("absent", {"x"}), "websocket"), "404 pods \"absent\" not found");
  EXPECT_EQ(refusal(target("p", {"x"}, streams, "z"), "websocket"), "400 container z is not valid for pod p");
  EXPECT_EQ(refusal(target("p", {"x"}, streams, ""), "websocket"),
            "400 a container name must be specified for pod p, choose one of: [c gone]");
  EXPECT_EQ(refusal(target("none", {"x"}), "websocket"), "400 pod none does not have a host assigned");
  EXPECT_EQ(refusal(target("p", {}), "websocket"),
            "400 you must specify at least one command for the container");
  EXPECT_NE(refusal(target("h", {"x"}), "websocket").find("400 node \"hollow\" is a hollow one"),
            std::string::npos);
  EXPECT_NE(refusal(target("p", {"x"}), "SPDY/3.1").find("400 SPDY is not spoken here, only WebSocket"),
            std::string::npos);
  Client none;
  open(none, target("p", {"x"}, "tty=false"));
  ASSERT_TRUE(none.refused);
  EXPECT_NE(none.refused->text().find("HTTP status 400"), std::string::npos);
  Client unknown;
  open(unknown, target("p", {"x"}), "v1.channel.k8s.io");
  EXPECT_TRUE(unknown.refused);
}

TEST_F(exec_over_websocket, attach_shows_what_is_written_from_now_on) {
  std::string log = "2026-01-02T03:04:05.000000000Z stdout F before\n";
  const auto write = [&](const std::string& more) {
    ASSERT_TRUE(write_in_place(dir_.path() / "0.log", log += more));
  };
  ASSERT_TRUE(write_file_atomic(dir_.path() / "0.log", log));
  const std::string where = "/api/v1/namespaces/default/pods/p/attach?container=c&stdout=1&stderr=1";
  Client client;
  open(client, where);
  loop_.run_for(50ms);
  write("2026-01-02T03:04:06.000000000Z stdout F one\n2026-01-02T03:04:06.000000000Z stderr F odd\n");
  write("2026-01-02T03:04:06.000000000Z stdout P be");
  write("gun\n2026-01-02T03:04:06.000000000Z stdout F  done\n");
  ASSERT_TRUE(wait([&] { return client.got[1] == "one\nbegun done\n" && client.got[2] == "odd\n"; }))
      << client.got[1] << client.got[2];
  EXPECT_FALSE(client.ended);
  running_ = false;
  endpoint_->containers_changed();
  ASSERT_TRUE(wait([&] { return client.ended; }));
  EXPECT_EQ(get_string(client.status(), {"status"}), "Success");
  Client typing;
  open(typing, where + "&stdin=1");
  ASSERT_TRUE(wait([&] { return typing.ended; }));
  EXPECT_NE(get_string(typing.status(), {"message"}).find("have no stdin to attach to"), std::string::npos);
}

TEST(attach_session, records_of_a_log) {
  EXPECT_EQ(parse_log_record("T stdout F a b").text, "a b\n");
  EXPECT_EQ(parse_log_record("T stderr P ").channel, 2);
  EXPECT_EQ(parse_log_record("T stderr P ").text, "");
  for (const char* bad : {"", "T", "T stdin F x", "T stdout", "T stdout X y"})
    EXPECT_EQ(parse_log_record(bad).channel, 0) << bad;
}

TEST_F(exec_over_websocket, a_kubelet_runs_programs_for_its_api_server_alone) {
  const std::string where = "/exec/default/p/c?command=/bin/true&stdout=true";
  const KeyPair user = *make_certificate(keys_.ca, {.common_name = "someone"}, loop_.now());
  Client refused;
  open(refused, where, "v5.channel.k8s.io", endpoint_->port(), user);
  ASSERT_TRUE(refused.refused);
  EXPECT_NE(refused.refused->text().find("HTTP status 403"), std::string::npos) << refused.refused->text();
  EXPECT_TRUE(runtime_.containers.empty());
  Client admin;
  open(admin, where, "v5.channel.k8s.io", endpoint_->port());
  EXPECT_TRUE(wait([&] { return admin.ended; }));
  EXPECT_EQ(runtime_.containers.size(), 1u);
}

TEST_F(exec_over_websocket, ports_go_the_same_way) {
  const std::string where = "/api/v1/namespaces/default/pods/";
  Client client;
  open(client, where + "p/portforward", kPortForwardProtocol);
  ASSERT_FALSE(client.refused) << client.refused->text();
  client.to_send.emplace_back("\x80\x03\x00\x06\x00\x00\x00\x04\x00\x00\x00\x01", 12);
  client.pass();
  EXPECT_TRUE(wait([&] { return client.got.contains(0x80); })) << "a ping comes back";
  Client hollow, exec;
  open(hollow, where + "h/portforward", kPortForwardProtocol);
  EXPECT_TRUE(hollow.refused);
  open(exec, where + "p/portforward");
  EXPECT_TRUE(exec.refused) << "another protocol's";
  there_ = false;
  Client gone;
  open(gone, where + "p/portforward", kPortForwardProtocol);
  ASSERT_TRUE(gone.refused);
  EXPECT_NE(gone.refused->text().find("HTTP status 404"), std::string::npos) << gone.refused->text();
}

TEST(exec_session, sizes_of_terminals) {
  const auto size = parse_terminal_size(R"({"Width":120,"Height":40})");
  ASSERT_TRUE(size);
  EXPECT_EQ(size->columns, 120);
  EXPECT_EQ(size->rows, 40);
  for (const char* bad : {"", "{}", "[]", R"({"Width":-1,"Height":2})", R"({"Width":70000,"Height":2})"})
    EXPECT_FALSE(parse_terminal_size(bad)) << bad;
}

TEST(exec_session, the_best_protocol_that_both_speak) {
  EXPECT_EQ(choose_exec_protocol({"v4.channel.k8s.io", "v5.channel.k8s.io"}), "v5.channel.k8s.io");
  EXPECT_EQ(choose_exec_protocol({"channel.k8s.io", "v4.channel.k8s.io"}), "v4.channel.k8s.io");
  EXPECT_EQ(choose_exec_protocol({"base64.channel.k8s.io"}), "");
}

}  // namespace
}  // namespace gpuop::cluster
