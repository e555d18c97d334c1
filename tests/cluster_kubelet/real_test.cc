// What needs a real loop: gRPC sockets, probes over sockets, logs over HTTPS.
#include <arpa/inet.h>
#include <grpcpp/grpcpp.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <fstream>
#include <future>
#include <set>
#include <thread>

#include "base/http_server.h"
#include "base/inotify.h"
#include "cluster/kubelet/device_sockets.h"
#include "cluster/kubelet/http_endpoint.h"
#include "fixture.h"
#include "kube/config.h"
#include "kubeletapi/device_plugin.grpc.pb.h"
#include "kubeletapi/pod_resources.grpc.pb.h"

namespace gpuop::cluster {
namespace {

// A plugin as a process of its own would be: a gRPC server behind a socket.
class PluginServer : public v1beta1::DevicePlugin::CallbackService {
 public:
  PluginServer(const fs::path& dir, const std::string& name, std::vector<std::string> ids)
      : dir_(dir), name_(name), ids_(std::move(ids)) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("unix:" + (dir / name).string(), grpc::InsecureServerCredentials());
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~PluginServer() override { server_->Shutdown(std::chrono::system_clock::now()); }

  grpc::Status register_as(const std::string& resource, const std::string& version = "v1beta1") {
    auto stub = v1beta1::Registration::NewStub(
        grpc::CreateChannel("unix:" + (dir_ / "kubelet.sock").string(), grpc::InsecureChannelCredentials()));
    grpc::ClientContext context;
    v1beta1::RegisterRequest request;
    request.set_version(version);
    request.set_endpoint(name_);
    request.set_resource_name(resource);
    request.mutable_options()->set_get_preferred_allocation_available(true);
    request.mutable_options()->set_pre_start_required(true);
    v1beta1::Empty answer;
    return stub->Register(&context, request, &answer);
  }

  grpc::ServerWriteReactor<v1beta1::ListAndWatchResponse>* ListAndWatch(grpc::CallbackServerContext*,
                                                                        const v1beta1::Empty*) override {
    class Writer : public grpc::ServerWriteReactor<v1beta1::ListAndWatchResponse> {
     public:
      explicit Writer(const std::vector<std::string>& ids) {
        for (const std::string& id : ids) {
          auto* device = message_.add_devices();
          device->set_id(id);
          device->set_health("Healthy");
          device->mutable_topology()->add_nodes()->set_id(1);
        }
        StartWrite(&message_);
      }
      void OnCancel() override { Finish(grpc::Status::CANCELLED); }
      void OnDone() override { delete this; }

     private:
      v1beta1::ListAndWatchResponse message_;
    };
    return new Writer(ids_);
  }
  grpc::ServerUnaryReactor* GetPreferredAllocation(grpc::CallbackServerContext* context,
                                                   const v1beta1::PreferredAllocationRequest* request,
                                                   v1beta1::PreferredAllocationResponse* answer) override {
    const auto& available = request->container_requests(0).available_deviceids();
    answer->add_container_responses()->add_deviceids(available.Get(available.size() - 1));
    auto* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
  grpc::ServerUnaryReactor* Allocate(grpc::CallbackServerContext* context,
                                     const v1beta1::AllocateRequest* request,
                                     v1beta1::AllocateResponse* answer) override {
    auto* one = answer->add_container_responses();
    one->add_cdi_devices()->set_name("nvidia.com/gpu=" + request->container_requests(0).devices_ids(0));
    (*one->mutable_envs())["E"] = "x";
    auto* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

  grpc::ServerUnaryReactor* PreStartContainer(grpc::CallbackServerContext* context,
                                              const v1beta1::PreStartContainerRequest* request,
                                              v1beta1::PreStartContainerResponse*) override {
    prepared.set_value(request->devices_ids(0));
    auto* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

  std::promise<std::string> prepared;  // the first device that a container was about to start with

 private:
  fs::path dir_;
  std::string name_;
  std::vector<std::string> ids_;
  std::unique_ptr<grpc::Server> server_;
};

std::string gpus_of(const Node& n, const char* map) {
  return str(get_string(n.node(), {"status", map, "nvidia.com/gpu"}, "absent"));
}

std::unique_ptr<v1::PodResourcesLister::Stub> pod_resources(const fs::path& dir) {
  return v1::PodResourcesLister::NewStub(
      grpc::CreateChannel("unix:" + (dir / "var/lib/kubelet/pod-resources/kubelet.sock").string(),
                          grpc::InsecureChannelCredentials()));
}

v1::ListPodResourcesResponse list_resources(const fs::path& dir) {
  const auto stub = pod_resources(dir);
  grpc::ClientContext context;
  v1::ListPodResourcesResponse answer;
  EXPECT_TRUE(stub->List(&context, {}, &answer).ok());
  return answer;
}

// Of the pod p, of none, and of the node.
void other_pod_resources(const fs::path& dir) {
  const auto stub = pod_resources(dir);
  v1::GetPodResourcesRequest one;
  one.set_pod_name("p");
  one.set_pod_namespace("default");
  grpc::ClientContext first, second, third;
  v1::GetPodResourcesResponse got;
  ASSERT_TRUE(stub->Get(&first, one, &got).ok());
  EXPECT_EQ(got.pod_resources().containers(0).devices(0).device_ids(0), "GPU-b");
  one.set_pod_name("q");
  EXPECT_EQ(stub->Get(&second, one, &got).error_message(), "pod q in namespace default not found");
  v1::AllocatableResourcesResponse all;
  ASSERT_TRUE(stub->GetAllocatableResources(&third, {}, &all).ok());
  std::set<std::string> ids;
  for (const auto& devices : all.devices()) {
    EXPECT_EQ(devices.resource_name(), "nvidia.com/gpu");
    ids.insert(devices.device_ids().begin(), devices.device_ids().end());
  }
  EXPECT_EQ(ids, (std::set<std::string>{"GPU-a", "GPU-b"}));
}

TEST(cluster_kubelet, plugins_behind_sockets) {
  Node n(true, Loop::Mode::kReal);
  n.options.serve_devices = true;
  const fs::path dir = n.dir.path() / "var/lib/kubelet/device-plugins";
  ASSERT_TRUE(make_dirs(dir));
  // A socket that a dead plugin left goes, so that plugins notice the new kubelet.
  const int left = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ASSERT_GE(left, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::snprintf(address.sun_path, sizeof address.sun_path, "%s", (dir / "old.sock").c_str());
  ASSERT_EQ(::bind(left, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ::close(left);
  n.start();
  EXPECT_FALSE(fs::exists(dir / "old.sock"));
  {
    PluginServer plugin(dir, "gpu.sock", {"GPU-a", "GPU-b"});
    EXPECT_NE(plugin.register_as("nvidia.com/gpu", "v1").error_message().find("is not supported by kubelet"),
              std::string::npos);
    EXPECT_FALSE(plugin.register_as("cpu").ok());
    ASSERT_TRUE(plugin.register_as("nvidia.com/gpu").ok());
    ASSERT_TRUE(n.loop->run_until([&] { return gpus_of(n, "allocatable") == "2"; }, 5s));
    n.add_pod("p", "containers: [{name: c, image: 'a:1', resources: {limits: {nvidia.com/gpu: 1}}}]");
    ASSERT_TRUE(n.loop->run_until([&] { return n.phase("p") == "Running"; }, 5s));
    EXPECT_EQ(n.runtime->specs.at(0).cdi_devices, std::vector<std::string>{"nvidia.com/gpu=GPU-b"});
    const auto listed = list_resources(n.dir.path());
    ASSERT_EQ(listed.pod_resources_size(), 1);
    const auto& devices = listed.pod_resources(0).containers(0).devices(0);
    EXPECT_EQ(listed.pod_resources(0).name(), "p");
    EXPECT_EQ(listed.pod_resources(0).namespace_(), "default");
    EXPECT_EQ(devices.resource_name(), "nvidia.com/gpu");
    EXPECT_EQ(devices.device_ids(0), "GPU-b");
    EXPECT_EQ(devices.topology().nodes(0).id(), 1);
    EXPECT_EQ(plugin.prepared.get_future().get(), "GPU-b");
    other_pod_resources(n.dir.path());
  }
  // The plugin died: its devices are unhealthy at once, the pod runs on.
  ASSERT_TRUE(n.loop->run_until([&] { return gpus_of(n, "allocatable") == "0"; }, 5s));
  EXPECT_EQ(gpus_of(n, "capacity"), "2");
  EXPECT_EQ(n.phase("p"), "Running");
  // And comes back on the same path without waiting out a back-off.
  PluginServer again(dir, "gpu.sock", {"GPU-a", "GPU-b"});
  ASSERT_TRUE(again.register_as("nvidia.com/gpu").ok());
  ASSERT_TRUE(n.loop->run_until([&] { return gpus_of(n, "allocatable") == "2"; }, 500ms));
}

TEST(cluster_kubelet, sockets_beneath_a_long_folder) {
  Node n(true, Loop::Mode::kReal);
  n.options.serve_devices = true;
  n.options.kubelet_dir = "/" + std::string(60, 'x') + "/" + std::string(60, 'y');
  n.start();
  EXPECT_TRUE(fs::exists(n.dir.path() / n.options.kubelet_dir.substr(1) / "device-plugins/kubelet.sock"));
}

TEST(cluster_kubelet, from_bound_to_started_takes_milliseconds) {
  Node n(true, Loop::Mode::kReal);
  n.start();
  const Duration begun = n.loop->elapsed();
  n.api->put(
      "/api/v1/namespaces/default/configmaps/cm",
      yaml("{apiVersion: v1, kind: ConfigMap, metadata: {name: cm, namespace: default}, data: {a: b}}"));
  n.api->put(Node::pod_path("p"), yaml(R"(
apiVersion: v1
kind: Pod
metadata: {name: p, namespace: default}
spec:
  nodeName: n1
  volumes: [{name: v, configMap: {name: cm}}, {name: h, hostPath: {path: /x}}, {name: e, emptyDir: {}}]
  containers: [{name: c, image: 'a:1', volumeMounts: [{name: v, mountPath: /v}, {name: h, mountPath: /x}]}]
)"));
  ASSERT_TRUE(n.loop->run_until([&] { return n.phase("p") == "Running"; }, 5s));
  const Duration took = n.loop->elapsed() - begun;
  RecordProperty("microseconds", static_cast<int>(took / 1us));
  EXPECT_LT(took, 100ms);  // a few in fact; a loaded test machine gets some grace
}

TEST(cluster_kubelet, probes_over_sockets) {
  Loop loop;
  std::shared_ptr<HttpResponder> kept;
  auto server = HttpServer::create(
      loop, {}, [&](const HttpRequest& request, const std::shared_ptr<HttpResponder>& peer) {
        kept = peer;
        if (request.path == "/slow") return;
        const bool agent = request.header("User-Agent").starts_with("kube-probe/");
        peer->send(HttpResponse::text(request.path == "/ok" && agent ? 204 : 503, ""));
      });
  ASSERT_TRUE(server);
  const NetProber probe = make_net_prober(loop, "");
  auto ask = [&](const NetProbe& what) {
    std::optional<Result<>> answer;
    const Handle handle = probe(what, [&](Result<> how) { answer = std::move(how); });
    EXPECT_TRUE(loop.run_until([&] { return answer.has_value(); }, 5s));
    return answer ? *answer : fail(Code::kTimeout, "no answer");
  };
  const int port = (*server)->port();
  EXPECT_TRUE(ask({.host = "127.0.0.1", .port = port, .path = "/ok"}));
  EXPECT_TRUE(ask({.kind = NetProbe::Kind::kTcp, .host = "localhost", .port = port}));
  EXPECT_EQ(ask({.host = "127.0.0.1", .port = port, .path = "/bad"}).error().text(),
            "HTTP probe failed with statuscode: 503");
  EXPECT_NE(ask({.host = "127.0.0.1", .port = port, .path = "/slow", .timeout = 20ms})
                .error()
                .text()
                .find("context deadline exceeded"),
            std::string::npos);
  EXPECT_EQ(ask({.kind = NetProbe::Kind::kTcp, .host = "127.0.0.1", .port = 1}).error().text(),
            "dial tcp 127.0.0.1:1: connect: connection refused");
  EXPECT_FALSE(ask({.host = "no.such.host", .port = 1}));
  // Dropped before it answered: never called.
  bool called = false;
  {
    const Handle dropped =
        probe({.host = "127.0.0.1", .port = port}, [&](const Result<>&) { called = true; });
  }
  loop.run_for(20ms);
  EXPECT_FALSE(called);
}

TEST(cluster_kubelet, probes_of_a_nodes_own_network) {
  // A thread with a network namespace of its own, loopback up, listening where nobody else can see it.
  std::promise<std::pair<int, int>> ready;  // (thread id, port); port 0: not allowed
  std::promise<void> over;
  std::thread node([&] {
    if (::unshare(CLONE_NEWNET) != 0) return ready.set_value({0, 0});
    const int control = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    ifreq request{};
    std::snprintf(request.ifr_name, sizeof request.ifr_name, "lo");
    request.ifr_flags = IFF_UP | IFF_RUNNING;
    ::ioctl(control, SIOCSIFFLAGS, &request);
    ::close(control);
    const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(9400);
    ::inet_pton(AF_INET, "127.0.1.7", &address.sin_addr);
    const bool listens = listener >= 0 &&
                         ::bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 &&
                         ::listen(listener, 4) == 0;
    ready.set_value({static_cast<int>(::gettid()), listens ? 9400 : 0});
    over.get_future().wait();
    ::close(listener);
  });
  const auto [tid, port] = ready.get_future().get();
  if (port != 0) {
    Loop loop;
    const NetProbe what{.kind = NetProbe::Kind::kTcp, .host = "127.0.1.7", .port = port};
    auto ask = [&](const std::string& netns) {
      std::optional<Result<>> answer;
      const Handle handle =
          make_net_prober(loop, netns)(what, [&](Result<> how) { answer = std::move(how); });
      loop.run_until([&] { return answer.has_value(); }, 5s);
      return answer ? *answer : fail(Code::kTimeout, "no answer");
    };
    EXPECT_TRUE(ask("/proc/self/task/" + std::to_string(tid) + "/ns/net"));
    EXPECT_FALSE(ask(""));
    EXPECT_FALSE(ask("/no/such/file"));
  }
  over.set_value();
  node.join();
  if (port == 0) GTEST_SKIP() << "network namespaces need root";
}

struct Https {
  explicit Https(Loop& loop, std::uint16_t port) : loop_(loop) {
    kube::Config config;
    config.server = "https://127.0.0.1:" + std::to_string(port);
    config.insecure = true;
    transport = kube::make_http_transport(loop, config).value();
  }
  HttpResponse get(const std::string& path, const std::string& query = {}) {
    HttpRequest request;
    request.path = path;
    request.query = query;
    std::optional<Result<HttpResponse>> answer;
    const Handle handle = transport->send(request, [&](Result<HttpResponse> a) { answer = std::move(a); });
    loop_.run_until([&] { return answer.has_value(); }, 5s);
    EXPECT_TRUE(answer && *answer) << (answer ? answer->error().text() : "no answer");
    return answer && *answer ? **answer : HttpResponse{};
  }
  Loop& loop_;
  std::shared_ptr<kube::Transport> transport;
};

TEST(cluster_kubelet, logs_over_https) {
  Node n(true, Loop::Mode::kReal);
  n.options.serve_http = true;
  n.start();
  const std::string uid = n.add_pod("p", "containers: [{name: c, image: 'a:1'}]");
  ASSERT_TRUE(n.loop->run_until([&] { return n.phase("p") == "Running"; }, 5s));
  EXPECT_EQ(get_int(n.node(), {"status", "daemonEndpoints", "kubeletEndpoint", "Port"}),
            n.kubelet->http_port());
  const fs::path log = n.dir.path() / "var/log/pods" / ("default_p_" + uid) / "c/0.log";
  EXPECT_EQ(n.runtime->specs.at(0).log_path, log.string());
  std::ofstream out(log);
  out << "2026-01-02T03:04:05.000000001Z stdout F one\n"
         "2026-01-02T03:04:06.000000001Z stderr P tw\n"
         "2026-01-02T03:04:06.000000002Z stderr F o\n"
         "2026-01-02T03:04:07.000000001Z stdout F three\n"
      << std::flush;
  Https https(*n.loop, n.kubelet->http_port());
  const std::string path = "/containerLogs/default/p/c";
  EXPECT_EQ(https.get(path).body, "one\ntwo\nthree\n");
  EXPECT_EQ(https.get(path, "tailLines=1").body, "three\n");
  EXPECT_EQ(https.get(path, "tailLines=0").body, "");
  EXPECT_EQ(https.get(path, "limitBytes=5").body, "one\nt");
  EXPECT_EQ(https.get(path, "sinceTime=2026-01-02T03:04:06.5Z").body, "three\n");
  EXPECT_EQ(https.get(path, "timestamps=true&tailLines=1").body, "2026-01-02T03:04:07.000000001Z three\n");
  EXPECT_EQ(https.get(path, "tailLines=x").status, 400);
  EXPECT_EQ(https.get(path, "previous=true").status, 400);
  EXPECT_EQ(https.get("/containerLogs/default/q/c").status, 404);
  EXPECT_EQ(https.get("/containerLogs/default/p/x").status, 404);
  EXPECT_EQ(https.get("/healthz").body, "ok");
  EXPECT_EQ(get_array(parse_json(https.get("/pods").body).value(), {"items"}).size(), 1u);

  std::string followed;
  bool ended = false;
  HttpRequest request;
  request.path = path;
  request.query = "follow=true&tailLines=1";
  const Handle stream = https.transport->stream(
      request, {[](int, const Headers&) {}, [&](std::string_view bytes) { followed += bytes; },
                [&](const Result<>&) { ended = true; }});
  ASSERT_TRUE(n.loop->run_until([&] { return followed == "three\n"; }, 5s));
  out << "2026-01-02T03:04:08.000000001Z stdout F four\n" << std::flush;
  ASSERT_TRUE(n.loop->run_until([&] { return followed == "three\nfour\n"; }, 5s));
  EXPECT_FALSE(ended);
  // The container's end ends the stream, with what was written last.
  out << "2026-01-02T03:04:09.000000001Z stdout F five\n" << std::flush;
  n.runtime->exit(uid, "c", 0);
  ASSERT_TRUE(n.loop->run_until([&] { return ended; }, 5s));
  EXPECT_EQ(followed, "three\nfour\nfive\n");
}

TEST(cluster_kubelet, host_paths_are_waited_for_by_watching) {
  Node n(true, Loop::Mode::kReal);
  n.start();
  n.add_pod("p",
            "{volumes: [{name: d, hostPath: {path: /run/later/dir, type: Directory}}], "
            "containers: [{name: c, image: 'a:1', volumeMounts: [{name: d, mountPath: /d}]}]}");
  // Past the first retries by time, so that only the watch can be what is quick.
  n.loop->run_until([] { return false; }, 800ms);
  EXPECT_EQ(n.phase("p"), "Pending");
  ASSERT_TRUE(make_dirs(n.dir.path() / "run/later/dir"));
  EXPECT_TRUE(n.loop->run_until([&] { return n.phase("p") == "Running"; }, 300ms));
}

}  // namespace
}  // namespace gpuop::cluster
