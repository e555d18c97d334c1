// Pod logs, fetched from the node's kubelet (kubernetes-api.md §11).
#include "base/text.h"
#include "cluster/apiserver/server.h"
#include "kube/config.h"
#include "kube/object.h"

namespace gpuop::cluster::api {

namespace {

std::string address_of(const Json& node) {
  for (std::string_view type : {"InternalIP", "Hostname"})
    for (const Json& address : get_array(node, {"status", "addresses"}))
      if (get_string(address, {"type"}) == type) return str(get_string(address, {"address"}));
  return {};
}

}  // namespace

std::optional<KubeletAddress> kubelet_address(const Json& node) {
  const std::int64_t port = get_int(node, {"status", "daemonEndpoints", "kubeletEndpoint", "Port"});
  std::string address = address_of(node);
  if (port <= 0 || port > 65535 || address.empty()) return std::nullopt;
  return KubeletAddress{std::move(address), static_cast<std::uint16_t>(port)};
}

namespace {

std::shared_ptr<kube::Transport> reach_kubelet(Server& server, const Json& node) {
  if (server.options.kubelet) return server.options.kubelet(node);
  const auto at = kubelet_address(node);
  if (!at || server.loop.mode() != Loop::Mode::kReal) return nullptr;
  kube::Config config;
  config.server = "https://" +
                  (at->address.find(':') != std::string::npos ? "[" + at->address + "]" : at->address) + ":" +
                  std::to_string(at->port);
  config.insecure = true;  // kubelets serve with certificates of their own making
  config.client_cert_pem = server.options.kubelet_client_certificate;
  config.client_key_pem = server.options.kubelet_client_key;
  Result<std::shared_ptr<kube::Transport>> transport = kube::make_http_transport(server.loop, config);
  return transport ? *transport : nullptr;
}

struct Containers {
  std::vector<std::string> names, all;
};

Containers containers_of(const Json& pod) {
  Containers out;
  for (std::string_view list : {"containers", "initContainers", "ephemeralContainers"})
    for (const Json& container : get_array(pod, {"spec", list})) {
      std::string name = str(get_string(container, {"name"}));
      if (list == "containers") out.names.push_back(name);
      out.all.push_back(name);
    }
  return out;
}

const Json* container_status(const Json& pod, std::string_view name) {
  for (std::string_view list : {"containerStatuses", "initContainerStatuses"})
    for (const Json& status : get_array(pod, {"status", list}))
      if (get_string(status, {"name"}) == name) return &status;
  return nullptr;
}

}  // namespace

Answer<std::string> choose_container(const Json& pod, std::string_view asked) {
  Containers containers = containers_of(pod);
  std::string name = str(kube::name_of(pod));
  if (asked.empty()) {
    if (containers.names.size() == 1) return containers.names[0];
    return bad_request("a container name must be specified for pod " + name + ", choose one of: [" +
                       join(containers.names, " ") + "]");
  }
  for (const std::string& known : containers.all)
    if (known == asked) return known;
  return bad_request("container " + str(asked) + " is not valid for pod " + name);
}

namespace {

// A container that never started has no log.
Answer<> check_started(const Json& pod, const std::string& container, bool previous) {
  const Json* status = container_status(pod, container);
  std::string name = str(kube::name_of(pod));
  if (previous) {
    if (status != nullptr && has(*status, {"lastState", "terminated"})) return {};
    return bad_request("previous terminated container \"" + container + "\" in pod \"" + name +
                       "\" not found");
  }
  if (status == nullptr) return {};
  if (!has(*status, {"state", "waiting"}) || has(*status, {"lastState", "terminated"})) return {};
  std::string_view reason = get_string(*status, {"state", "waiting", "reason"}, "ContainerCreating");
  return bad_request("container \"" + container + "\" in pod \"" + name +
                     "\" is waiting to start: " + str(reason));
}

// What the kubelet takes of the query.
std::string kubelet_query(const Call& call) {
  std::vector<std::pair<std::string, std::string>> pairs;
  for (const auto& [key, value] : call.query)
    for (std::string_view known : {"follow", "previous", "sinceSeconds", "sinceTime", "timestamps",
                                   "tailLines", "limitBytes", "stream"})
      if (key == known) pairs.emplace_back(key, value);
  return build_query(pairs);
}

// Passes a kubelet's answer on to the client, as it comes.
struct LogStream {
  std::shared_ptr<HttpResponder> out;
  std::shared_ptr<kube::Transport> transport;
  Handle handle;
  bool begun = false;
  int status = 0;
  std::string fault;
};

}  // namespace

void Server::logs(const CallPtr& call) {
  ObjectPtr pod = stored(*call->type, call->ns, call->name);
  if (!pod) return respond_status(call, not_found(*call->type, call->name).error());
  Answer<std::string> container = choose_container(pod->value(), call->param("container"));
  if (!container) return respond_status(call, container.error());
  std::string node_name = str(get_string(pod->value(), {"spec", "nodeName"}));
  if (node_name.empty()) {  // a pod without a node has nothing to say yet
    return respond(call, HttpResponse::text(200, "", "text/plain"));
  }
  Answer<> started = check_started(pod->value(), *container, call->flag("previous"));
  if (!started) return respond_status(call, started.error());
  ObjectPtr node = store.collection("/nodes").get(node_name);
  if (!node) return respond_status(call, bad_request("nodes \"" + node_name + "\" not found").error());
  auto stream = std::make_shared<LogStream>();
  stream->out = call->out;
  stream->transport = reach_kubelet(*this, node->value());
  if (!stream->transport)
    return respond_status(call, internal("the kubelet of node \"" + node_name +
                                         "\" cannot be reached: it serves no address or port")
                                    .error());
  HttpRequest request;
  request.path = "/containerLogs/" + call->ns + "/" + call->name + "/" + *container;
  request.query = kubelet_query(*call);
  kube::StreamEvents events;
  events.begin = [stream](int status, const Headers&) {
    stream->status = status;
    if (status != 200) return;
    stream->begun = true;
    stream->out->begin(200, Headers{{"Content-Type", "text/plain"}, {"Cache-Control", "no-cache, private"}});
  };
  events.data = [stream](std::string_view bytes) {
    if (stream->begun) {
      stream->out->write(std::string(bytes));
    } else {
      stream->fault += bytes;
    }
  };
  events.end = [this, self = shared_from_this(), call, stream, node_name](Result<> how) {
    if (stream->begun) {
      how ? stream->out->end() : stream->out->abort();
    } else if (!how) {
      respond_status(call,
                     internal("Get logs from node \"" + node_name + "\": " + how.error().text()).error());
    } else {
      int code = stream->status >= 400 ? stream->status : 500;
      respond_status(call, refuse(code,
                                  code == 404   ? "NotFound"
                                  : code == 400 ? "BadRequest"
                                                : "InternalError",
                                  str(trim(stream->fault)))
                               .error());
    }
    // Let go of the circle of references once this call has returned.
    loop.post([stream] {
      stream->handle.reset();
      stream->transport.reset();
    });
  };
  call->out->on_close([stream] { stream->handle.reset(); });
  stream->handle = stream->transport->stream(std::move(request), std::move(events));
}

}  // namespace gpuop::cluster::api
