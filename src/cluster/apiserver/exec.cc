// Programs in containers and ports of pods (kubernetes-api.md §11): who may and where is decided here; the
// connection itself is the kubelet's, byte for byte, once it has agreed.
#include <algorithm>
#include <optional>

#include "base/byte_stream.h"
#include "base/text.h"
#include "cluster/apiserver/server.h"
#include "kube/object.h"

namespace gpuop::cluster::api {

namespace {

constexpr std::size_t kPiece = 64u << 10;
constexpr std::size_t kLongestHead = 64u << 10;
constexpr std::size_t kLongestFault = 64u << 10;
constexpr Duration kDial = 10s;

// What a kubelet is asked, as the client asked it.
std::string request_text(const Call& call, const std::string& container) {
  const std::string what = call.sub == "portforward" ? "portForward" : call.sub;
  std::string out = call.http.method + " /" + what + "/" + call.ns + "/" + call.name;
  if (!container.empty()) out += "/" + container;
  if (!call.http.query.empty()) out += "?" + call.http.query;
  out += " HTTP/1.1\r\nHost: kubelet\r\n";
  for (const auto& [name, value] : call.http.headers) {
    const bool handshake = to_lower(name).starts_with("sec-websocket-");
    if (handshake || to_lower(name) == "upgrade" || to_lower(name) == "connection")
      out += name + ": " + value + "\r\n";
  }
  return out + "Content-Length: 0\r\n\r\n";
}

struct Head {
  int status = 0;
  std::size_t body = 0;  // where it begins
  std::optional<std::size_t> length;
};

// Of an answer's bytes; nullopt while it is not complete.
std::optional<Head> read_head(const std::string& text) {
  const std::size_t end = text.find("\r\n\r\n");
  if (end == std::string::npos) return std::nullopt;
  Head head{.body = end + 4};
  const auto lines = split(text.substr(0, end), '\n');
  const auto words = split(lines[0], ' ');
  if (words.size() > 1) head.status = static_cast<int>(parse_int(words[1]).value_or(0));
  for (const std::string& line : lines) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos || to_lower(line.substr(0, colon)) != "content-length") continue;
    if (const auto length = parse_int(trim(line.substr(colon + 1))); length && *length >= 0)
      head.length = static_cast<std::size_t>(*length);
  }
  return head;
}

Refusal kubelet_refusal(int status, const std::string& text) {
  const char* reason = status == 400   ? "BadRequest"
                       : status == 401 ? "Unauthorized"
                       : status == 403 ? "Forbidden"
                       : status == 404 ? "NotFound"
                       : status == 405 ? "MethodNotAllowed"
                       : status == 501 ? "NotImplemented"
                                       : "InternalError";
  return refuse(status >= 400 ? status : 500, reason, text);
}

}  // namespace

// One connection on its way to a kubelet and, once that has switched protocols, through it. One piece is
// under way in each direction: whoever does not read holds the other up.
class Tunnel : public std::enable_shared_from_this<Tunnel> {
 public:
  Tunnel(std::shared_ptr<Server> server, CallPtr call) : server_(std::move(server)), call_(std::move(call)) {}

  void begin(const KubeletAddress& at, const std::string& request) {
    TlsTarget target{at.address, at.port, server_->options.kubelet_client_certificate,
                     server_->options.kubelet_client_key};
    call_->out->on_close([weak = weak_from_this()] {
      if (auto self = weak.lock()) self->end();
    });
    dial_ =
        connect_tls(server_->loop, target, kDial,
                    [weak = weak_from_this(), request](Result<std::unique_ptr<ByteStream>> stream) {
                      auto self = weak.lock();
                      if (!self) return;
                      self->dial_.detach();
                      if (!stream)
                        return self->refuse_call(internal("error dialing backend: " + stream.error().text()));
                      self->kubelet_ = std::move(*stream);
                      self->ask(request);
                    });
  }

 private:
  template <class T>
  std::function<void(Result<T>)> then(void (Tunnel::*next)(Result<T>)) {
    return [weak = weak_from_this(), next](Result<T> how) {
      if (auto self = weak.lock()) ((*self).*next)(std::move(how));
    };
  }

  void ask(const std::string& request) { kubelet_->write(request, then(&Tunnel::asked)); }
  void asked(Result<> how) {
    if (!how) return refuse_call(internal("error dialing backend: " + how.error().text()));
    kubelet_->read(kPiece, then(&Tunnel::answered));
  }

  void answered(Result<std::string> bytes) {
    if (!bytes) return refuse_call(internal("error dialing backend: " + bytes.error().text()));
    answer_ += *bytes;
    const auto head = read_head(answer_);
    if (!head && !bytes->empty() && answer_.size() < kLongestHead)
      return kubelet_->read(kPiece, then(&Tunnel::answered));
    if (!head) return refuse_call(internal("error dialing backend: the kubelet's answer is none"));
    if (head->status == 101) return switch_over();
    const std::size_t body = answer_.size() - head->body;
    if (!bytes->empty() && body < std::min(head->length.value_or(kLongestFault), kLongestFault))
      return kubelet_->read(kPiece, then(&Tunnel::answered));
    refuse_call(kubelet_refusal(head->status, str(trim(std::string_view(answer_).substr(head->body)))));
  }

  void switch_over() {
    client_ = take_over(*call_->out);
    if (!client_) return refuse_call(internal("the connection cannot be upgraded"));
    client_->write(std::exchange(answer_, {}), then(&Tunnel::passed_out));
    client_->read(kPiece, then(&Tunnel::came_in));
  }

  void came_out(Result<std::string> bytes) {
    if (!bytes || bytes->empty()) return end();
    client_->write(std::move(*bytes), then(&Tunnel::passed_out));
  }
  void passed_out(Result<> how) { how ? kubelet_->read(kPiece, then(&Tunnel::came_out)) : end(); }
  void came_in(Result<std::string> bytes) {
    if (!bytes || bytes->empty()) return end();
    kubelet_->write(std::move(*bytes), then(&Tunnel::passed_in));
  }
  void passed_in(Result<> how) { how ? client_->read(kPiece, then(&Tunnel::came_in)) : end(); }

  void refuse_call(const Refusal& why) {
    server_->respond_status(call_, why.error());
    end();
  }
  // The streams may be what calls: they go on a later turn.
  void end() {
    server_->loop.post([self = shared_from_this()] {
      self->dial_.reset();
      self->server_->tunnels.erase(self);
    });
  }

  std::shared_ptr<Server> server_;  // it lets go of its tunnels when it stops
  CallPtr call_;
  std::string answer_;
  Handle dial_;
  std::unique_ptr<ByteStream> kubelet_, client_;
};

void Server::exec(const CallPtr& call) {
  ObjectPtr pod = stored(*call->type, call->ns, call->name);
  if (!pod) return respond_status(call, not_found(*call->type, call->name).error());
  Answer<std::string> container = call->sub == "portforward"
                                      ? Answer<std::string>(std::string())
                                      : choose_container(pod->value(), call->param("container"));
  if (!container) return respond_status(call, container.error());
  const std::string node_name = str(get_string(pod->value(), {"spec", "nodeName"}));
  if (node_name.empty())
    return respond_status(call, bad_request("pod " + call->name + " does not have a host assigned").error());
  if (call->sub == "exec" && !call->has_param("command"))
    return respond_status(call,
                          bad_request("you must specify at least one command for the container").error());
  ObjectPtr node = store.collection("/nodes").get(node_name);
  if (!node) return respond_status(call, bad_request("nodes \"" + node_name + "\" not found").error());
  const auto at = kubelet_address(node->value());
  if (!at || loop.mode() != Loop::Mode::kReal)
    return respond_status(
        call,
        bad_request(
            "node \"" + node_name +
            "\" is a hollow one: its pods have no processes, so nothing runs and nothing listens in them")
            .error());
  auto tunnel = std::make_shared<Tunnel>(shared_from_this(), call);
  tunnels.insert(tunnel);
  tunnel->begin(*at, request_text(*call, *container));
}

}  // namespace gpuop::cluster::api
