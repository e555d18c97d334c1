#include "cluster/kubelet/http_endpoint.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/files.h"
#include "base/inotify.h"
#include "base/text.h"
#include "base/websocket.h"
#include "cluster/kubelet/attach_session.h"
#include "cluster/kubelet/certificate.h"
#include "cluster/kubelet/exec_session.h"
#include "cluster/kubelet/port_forward.h"

namespace gpuop::cluster {

namespace {

constexpr std::size_t kPiece = 256u << 10;
constexpr std::size_t kBuffered = 1u << 20;  // unread by the peer: wait
constexpr Duration kDrain = std::chrono::milliseconds(5);

// One log being sent.
class LogStream : public std::enable_shared_from_this<LogStream> {
 public:
  LogStream(Loop& loop, LogSource source, LogOptions options, std::shared_ptr<HttpResponder> peer,
            std::function<void(const std::shared_ptr<LogStream>&)> over)
      : loop_(loop),
        source_(std::move(source)),
        options_(options),
        cutter_(options),
        peer_(std::move(peer)),
        over_(std::move(over)) {}

  Result<> begin() {
    file_ = Fd(::open(source_.path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!file_ && !(errno == ENOENT && options_.follow)) {
      return fail(errno_error("read the log '" + source_.path.string() + "'", errno));
    }
    TRY(seek());
    peer_->begin(200, {{"Content-Type", "text/plain"}});
    peer_->on_close([weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->finish();
    });
    pump();
    return {};
  }

  // Something was written, or the container ended.
  void pump() {
    if (done_) return;
    drain_.reset();
    // Whether more may come is asked before reading: what is written up to the end is then read after it.
    const bool more = options_.follow && source_.running();
    if (!file_) {
      file_ = Fd(::open(source_.path.c_str(), O_RDONLY | O_CLOEXEC));
    }
    while (file_) {
      if (peer_->closed()) return finish();
      if (peer_->buffered() > kBuffered) {
        // The peer reads slowly; it does not tell when it has caught up.
        drain_ = loop_.after(kDrain, [weak = weak_from_this()] {
          if (const auto self = weak.lock()) self->pump();
        });
        return;
      }
      std::string raw(kPiece, '\0');
      const ssize_t got = ::read(file_.get(), raw.data(), raw.size());
      if (got <= 0) break;
      raw.resize(static_cast<std::size_t>(got));
      if (std::string text = cutter_.feed(raw); !text.empty()) peer_->write(std::move(text));
      if (cutter_.full()) return end();
    }
    if (!more) return end();
    if (!watch_) {
      auto watch = DirWatch::create(loop_, source_.path.parent_path(), [weak = weak_from_this()] {
        if (const auto self = weak.lock()) self->pump();
      });
      if (!watch) return end();
      watch_ = std::move(*watch);
    }
  }

 private:
  Result<> seek() {
    if (!options_.tail_lines || !file_) return {};
    const std::int64_t offset = TRY(tail_offset(file_.get(), *options_.tail_lines));
    if (::lseek(file_.get(), offset, SEEK_SET) < 0) return fail(errno_error("read a log", errno));
    return {};
  }
  void end() {
    if (done_) return;
    peer_->end();
    finish();
  }
  void finish() {
    if (std::exchange(done_, true)) return;
    drain_.reset();
    file_.reset();
    // The watch may be what called; it goes with this object, on a later turn.
    loop_.post([self = shared_from_this()] { self->over_(self); });
  }

  Loop& loop_;
  LogSource source_;
  LogOptions options_;
  LogCutter cutter_;
  std::shared_ptr<HttpResponder> peer_;
  std::function<void(const std::shared_ptr<LogStream>&)> over_;
  Fd file_;
  Handle drain_;
  std::unique_ptr<DirWatch> watch_;
  bool done_ = false;
};

Result<std::int64_t> number(const std::string& key, const std::string& value) {
  const auto parsed = parse_int(value);
  if (!parsed || *parsed < 0)
    return fail(Code::kInvalid, key + ": must be a number of at least 0; got '" + value + "'");
  return *parsed;
}

}  // namespace

Result<LogOptions> parse_log_options(const std::string& query, Time now) {
  LogOptions out;
  for (const auto& [key, value] : parse_query(query)) {
    const bool yes = value != "false" && value != "0";
    if (key == "tailLines") {
      out.tail_lines = TRY(number(key, value));
    } else if (key == "limitBytes") {
      out.limit_bytes = TRY(number(key, value));
    } else if (key == "sinceSeconds") {
      out.since = now - std::chrono::seconds(TRY(number(key, value)));
    } else if (key == "sinceTime") {
      out.since = TRY_IN(parse_time(value), key);
    } else if (key == "timestamps") {
      out.timestamps = yes;
    } else if (key == "follow") {
      out.follow = yes;
    } else if (key == "previous") {
      out.previous = yes;
    }
  }
  return out;
}

struct HttpEndpoint::Impl : std::enable_shared_from_this<HttpEndpoint::Impl> {
  Impl(Loop& l, HttpEndpointFacts f) : loop(l), facts(std::move(f)) {}

  void handle(const HttpRequest& request, const std::shared_ptr<HttpResponder>& peer) {
    const auto parts = split(request.path, '/');
    if (parts.size() == 5 && (parts[1] == "exec" || parts[1] == "attach"))
      return stream(request, parts, peer);
    if (parts.size() == 4 && parts[1] == "portForward") return forward(request, parts, peer);
    if (request.method != "GET") return peer->send(HttpResponse::text(405, "Method Not Allowed\n"));
    if (request.path == "/healthz") return peer->send(HttpResponse::text(200, "ok"));
    if (request.path == "/pods" || request.path == "/pods/")
      return peer->send(HttpResponse::json(200, facts.pods()));
    if (parts.size() == 5 && parts[1] == "containerLogs") {
      return logs(url_decode(parts[2]), url_decode(parts[3]), url_decode(parts[4]), request.query, peer);
    }
    peer->send(HttpResponse::text(404, "404 page not found\n"));
  }

  void logs(const std::string& ns, const std::string& pod, const std::string& container,
            const std::string& query, const std::shared_ptr<HttpResponder>& peer) {
    auto options = parse_log_options(query, loop.now());
    if (!options) return peer->send(HttpResponse::text(400, options.error().text() + "\n"));
    auto source = facts.log(ns, pod, container, options->previous);
    if (!source) {
      const int status = source.error().code() == Code::kNotFound ? 404 : 400;
      return peer->send(HttpResponse::text(status, source.error().text() + "\n"));
    }
    auto stream =
        std::make_shared<LogStream>(loop, std::move(*source), *options, peer,
                                    [weak = weak_from_this()](const std::shared_ptr<LogStream>& over) {
                                      if (const auto self = weak.lock()) self->streams.erase(over);
                                    });
    if (auto begun = stream->begin(); !begun) {
      return peer->send(HttpResponse::text(500, begun.error().text() + "\n"));
    }
    streams.insert(std::move(stream));
  }

  // Who may run a program, and asks in a language that is spoken; what is wrong otherwise.
  struct Refusal {
    int status;
    std::string text;
  };
  std::optional<Refusal> refuse_caller(const HttpRequest& request) const {
    if (request.client_cert_cn.empty()) return Refusal{401, "Unauthorized"};
    const auto& groups = request.client_cert_orgs;
    if (std::find(groups.begin(), groups.end(), "system:masters") == groups.end())
      return Refusal{403, "Forbidden (user=" + request.client_cert_cn +
                              ", verb=create, resource=nodes, subresource(s)=[proxy])"};
    if (!facts.runtime) return Refusal{501, "this node runs no processes"};
    return std::nullopt;
  }
  static std::optional<Refusal> refuse_protocol(const HttpRequest& request,
                                                const std::vector<std::string>& spoken) {
    if (to_lower(request.header("Upgrade")).starts_with("spdy/"))
      return Refusal{400,
                     "SPDY is not spoken here, only WebSocket: use kubectl 1.31 or newer, without "
                     "KUBECTL_REMOTE_COMMAND_WEBSOCKETS=false or KUBECTL_PORT_FORWARD_WEBSOCKETS=false"};
    if (!WebSocket::asked(request) || request.method != "GET")
      return Refusal{400, "Upgrade request required"};
    const auto offered = WebSocket::offered(request);
    const auto known = [&](const std::string& name) {
      return std::find(spoken.begin(), spoken.end(), name) != spoken.end();
    };
    if (std::any_of(offered.begin(), offered.end(), known)) return std::nullopt;
    return Refusal{400, "none of the subprotocols is spoken here: [" + join(offered, " ") + "]; there is " +
                            join(spoken, ", ")};
  }

  void forward(const HttpRequest& request, const std::vector<std::string>& parts,
               const std::shared_ptr<HttpResponder>& peer) {
    const std::string ns = url_decode(parts[2]), pod = url_decode(parts[3]);
    auto refusal = refuse_caller(request);
    const auto there = facts.there(ns, pod);
    if (!refusal && !there) refusal = Refusal{404, there.error().text()};
    if (!refusal) refusal = refuse_protocol(request, {kPortForwardProtocol});
    if (refusal) return peer->send(HttpResponse::text(refusal->status, refusal->text + "\n"));
    auto connection = take_over(*peer);
    if (!connection) return peer->send(HttpResponse::text(500, "the connection cannot be upgraded\n"));
    WebSocket::accept(loop, std::move(connection), request, kPortForwardProtocol, kMessage,
                      [weak = weak_from_this(), title = ns + "/" + pod](auto socket) {
                        const auto self = weak.lock();
                        if (!self || !socket) return;
                        const std::uint64_t number = self->next_session++;
                        self->forwards[number] =
                            PortForward::begin(self->loop, std::move(*socket), self->facts.netns_path, title,
                                               self->ended(number));
                      });
  }

  // Where a program is run, or a running one watched.
  struct Place {
    std::string ns, pod, container;
  };

  void stream(const HttpRequest& request, const std::vector<std::string>& parts,
              const std::shared_ptr<HttpResponder>& peer) {
    auto refusal = refuse_caller(request);
    if (!refusal) refusal = refuse_protocol(request, {"v5.channel.k8s.io", "v4.channel.k8s.io"});
    if (refusal) return peer->send(HttpResponse::text(refusal->status, refusal->text + "\n"));
    auto wanted = parse_exec_request(request.query);
    if (!wanted) return peer->send(HttpResponse::text(400, wanted.error().text() + "\n"));
    auto connection = take_over(*peer);
    if (!connection) return peer->send(HttpResponse::text(500, "the connection cannot be upgraded\n"));
    const std::string protocol = choose_exec_protocol(WebSocket::offered(request));
    const Place place{url_decode(parts[2]), url_decode(parts[3]), url_decode(parts[4])};
    WebSocket::accept(
        loop, std::move(connection), request, protocol, kMessage,
        [weak = weak_from_this(), place, wanted = std::move(*wanted), attach = parts[1] == "attach",
         closes = protocol.starts_with("v5")](Result<std::unique_ptr<WebSocket>> socket) {
          const auto self = weak.lock();
          if (!self || !socket) return;
          attach ? self->attach(std::move(*socket), place, wanted)
                 : self->exec(std::move(*socket), place, wanted, closes);
        });
  }

  void exec(std::unique_ptr<WebSocket> socket, const Place& place, const ExecRequest& wanted, bool closes) {
    const auto container = facts.running(place.ns, place.pod, place.container);
    if (!container) return refuse(std::move(socket), container.error());
    const std::uint64_t number = next_session++;
    sessions[number] = ExecSession::begin(loop, std::move(socket), closes, *facts.runtime, *container, wanted,
                                          ended(number));
  }

  void attach(std::unique_ptr<WebSocket> socket, const Place& place, const ExecRequest& wanted) {
    if (wanted.in)
      return refuse(std::move(socket),
                    Error(Code::kUnsupported,
                          "containers of this node have no stdin to attach to; kubectl exec -it runs a shell "
                          "in one"));
    const auto container = facts.running(place.ns, place.pod, place.container);
    if (!container) return refuse(std::move(socket), container.error());
    auto source = facts.log(place.ns, place.pod, place.container, false);
    if (!source) return refuse(std::move(socket), source.error());
    const std::uint64_t number = next_session++;
    auto session = AttachSession::begin(loop, std::move(socket), std::move(*source), wanted.out, wanted.err,
                                        ended(number));
    if (session) attached[number] = std::move(*session);
  }

  void refuse(std::unique_ptr<WebSocket> socket, const Error& why) {
    const std::uint64_t number = next_session++;
    sessions[number] = ExecSession::refuse(loop, std::move(socket), why, ended(number));
  }

  std::function<void()> ended(std::uint64_t number) {
    return [weak = weak_from_this(), number] {
      const auto self = weak.lock();
      if (!self) return;
      self->sessions.erase(number);
      self->attached.erase(number);
      self->forwards.erase(number);
    };
  }

  static constexpr std::size_t kMessage = 16u << 20;  // the longest of a client's

  Loop& loop;
  HttpEndpointFacts facts;
  std::map<std::uint64_t, std::shared_ptr<ExecSession>> sessions;
  std::map<std::uint64_t, std::shared_ptr<AttachSession>> attached;
  std::map<std::uint64_t, std::shared_ptr<PortForward>> forwards;
  std::uint64_t next_session = 0;
  std::set<std::shared_ptr<LogStream>> streams;
  std::unique_ptr<HttpServer> server;
};

HttpEndpoint::HttpEndpoint(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpEndpoint::~HttpEndpoint() {
  impl_->server.reset();
  impl_->sessions.clear();
  impl_->attached.clear();
  impl_->forwards.clear();
}

Result<std::unique_ptr<HttpEndpoint>> HttpEndpoint::create(Loop& loop, const std::string& name,
                                                           const std::string& address, std::uint16_t port,
                                                           HttpEndpointFacts facts) {
  HttpServerOptions options;
  options.address = address;
  options.port = port;
  options.tls = TRY(make_self_signed(name, address));
  options.tls->client_ca = facts.client_ca;
  auto impl = std::make_shared<Impl>(loop, std::move(facts));
  impl->server =
      TRY(HttpServer::create(loop, options,
                             [weak = std::weak_ptr<Impl>(impl)](const HttpRequest& request,
                                                                const std::shared_ptr<HttpResponder>& peer) {
                               if (const auto self = weak.lock()) self->handle(request, peer);
                             }));
  return std::unique_ptr<HttpEndpoint>(new HttpEndpoint(std::move(impl)));
}

std::uint16_t HttpEndpoint::port() const {
  return impl_->server->port();
}

void HttpEndpoint::containers_changed() {
  const auto streams = impl_->streams;
  for (const auto& stream : streams) stream->pump();
  for (const auto& [number, session] : impl_->attached) session->pump();
}

}  // namespace gpuop::cluster
