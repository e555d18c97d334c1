#include "cluster/kubelet/device_sockets.h"

#include <fcntl.h>
#include <grpcpp/grpcpp.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <condition_variable>
#include <mutex>

#include "base/files.h"
#include "base/log.h"
#include "cluster/kubelet/device_codec.h"
#include "kubeletapi/device_plugin.grpc.pb.h"
#include "kubeletapi/pod_resources.grpc.pb.h"

namespace gpuop::cluster {

namespace {

// Calls that gRPC's threads still work on; the edge ends only after the last.
class Pending {
 public:
  void begin() {
    const std::scoped_lock lock(mutex_);
    ++count_;
  }
  void end() {
    const std::scoped_lock lock(mutex_);
    if (--count_ == 0) idle_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    idle_.wait(lock, [this] { return count_ == 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable idle_;
  int count_ = 0;
};

// A socket's address that fits sun_path: a long folder is reached through its descriptor.
struct SocketPath {
  Fd dir;
  std::string path;
};

Result<SocketPath> socket_path(const std::filesystem::path& folder, const std::string& name) {
  SocketPath out;
  out.path = (folder / name).string();
  if (out.path.size() < sizeof(sockaddr_un::sun_path)) return out;
  out.dir = Fd(::open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!out.dir) return fail(errno_error("open '" + folder.string() + "'", errno));
  out.path = "/proc/self/fd/" + std::to_string(out.dir.get()) + "/" + name;
  if (out.path.size() >= sizeof(sockaddr_un::sun_path)) {
    return fail(Code::kInvalid, "use socket '" + name + "': its name is too long");
  }
  return out;
}

std::string_view code_word(grpc::StatusCode code) {
  switch (code) {
    case grpc::StatusCode::CANCELLED:
      return "Canceled";
    case grpc::StatusCode::INVALID_ARGUMENT:
      return "InvalidArgument";
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return "DeadlineExceeded";
    case grpc::StatusCode::NOT_FOUND:
      return "NotFound";
    case grpc::StatusCode::UNIMPLEMENTED:
      return "Unimplemented";
    case grpc::StatusCode::INTERNAL:
      return "Internal";
    case grpc::StatusCode::UNAVAILABLE:
      return "Unavailable";
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
      return "ResourceExhausted";
    case grpc::StatusCode::FAILED_PRECONDITION:
      return "FailedPrecondition";
    case grpc::StatusCode::PERMISSION_DENIED:
      return "PermissionDenied";
    default:
      return "Unknown";
  }
}

Error to_error(const grpc::Status& status) {
  const Code code =
      status.error_code() == grpc::StatusCode::UNAVAILABLE ? Code::kUnavailable : Code::kUnknown;
  return {code, "rpc error: code = " + std::string(code_word(status.error_code())) +
                    " desc = " + status.error_message()};
}

// What a plugin's calls share; outlives the plugin object until the last call is over.
struct PluginCore {
  SocketPath socket;
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<v1beta1::DevicePlugin::Stub> stub;
};

// Written and read on the loop only; gRPC's threads merely hold it.
struct StreamState {
  bool stopped = false;
  std::function<void(std::vector<Device>)> devices;
  std::function<void(Error)> ended;
};

class ListStream : public grpc::ClientReadReactor<v1beta1::ListAndWatchResponse> {
 public:
  ListStream(Loop& loop, std::shared_ptr<Pending> pending, std::shared_ptr<PluginCore> core,
             std::shared_ptr<StreamState> state, std::shared_ptr<grpc::ClientContext> context)
      : loop_(loop),
        pending_(std::move(pending)),
        core_(std::move(core)),
        state_(std::move(state)),
        context_(std::move(context)) {}

  void begin() {
    pending_->begin();
    core_->stub->async()->ListAndWatch(context_.get(), &request_, this);
    StartRead(&message_);
    StartCall();
  }
  void OnReadDone(bool ok) override {
    if (!ok) return;
    loop_.post([state = state_, devices = from_proto(message_)]() mutable {
      if (!state->stopped) state->devices(std::move(devices));
    });
    message_.Clear();
    StartRead(&message_);
  }
  void OnDone(const grpc::Status& status) override {
    Error why = status.ok() ? Error(Code::kUnavailable, "the plugin ended ListAndWatch") : to_error(status);
    const auto pending = pending_;
    // This holds the channel, so it ends on the loop's thread (kubeletapi/call.h).
    loop_.post([self = std::shared_ptr<ListStream>(this), why = std::move(why)] {
      if (!std::exchange(self->state_->stopped, true)) self->state_->ended(why);
    });
    pending->end();
  }

 private:
  Loop& loop_;
  std::shared_ptr<Pending> pending_;
  std::shared_ptr<PluginCore> core_;
  std::shared_ptr<StreamState> state_;
  std::shared_ptr<grpc::ClientContext> context_;
  v1beta1::Empty request_;
  v1beta1::ListAndWatchResponse message_;
};

class SocketPlugin : public DevicePlugin {
 public:
  SocketPlugin(Loop& loop, std::shared_ptr<Pending> pending, SocketPath socket, bool preferred,
               bool pre_start)
      : loop_(loop),
        pending_(std::move(pending)),
        core_(std::make_shared<PluginCore>()),
        preferred_(preferred),
        pre_start_(pre_start) {
    core_->socket = std::move(socket);
    grpc::ChannelArguments args;
    args.SetMaxReceiveMessageSize(-1);
    // A plugin that comes back on the same path must not wait out the back-off of the one before it.
    args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    args.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    core_->channel =
        grpc::CreateCustomChannel("unix:" + core_->socket.path, grpc::InsecureChannelCredentials(), args);
    core_->stub = v1beta1::DevicePlugin::NewStub(core_->channel);
  }
  ~SocketPlugin() override { SocketPlugin::stop(); }

  bool preferred_available() const override { return preferred_; }
  bool pre_start_required() const override { return pre_start_; }

  void watch(std::function<void(std::vector<Device>)> devices, std::function<void(Error)> ended) override {
    stream_ = std::make_shared<StreamState>();
    stream_->devices = std::move(devices);
    stream_->ended = std::move(ended);
    stream_context_ = std::make_shared<grpc::ClientContext>();
    (new ListStream(loop_, pending_, core_, stream_, stream_context_))->begin();
  }

  void preferred(const std::vector<std::string>& available, const std::vector<std::string>& must_include,
                 int size, Done<std::vector<std::string>> done) override {
    v1beta1::PreferredAllocationRequest request;
    auto* one = request.add_container_requests();
    one->mutable_available_deviceids()->Assign(available.begin(), available.end());
    one->mutable_must_include_deviceids()->Assign(must_include.begin(), must_include.end());
    one->set_allocation_size(size);
    call<v1beta1::PreferredAllocationResponse>(
        std::move(request), [](auto* async, auto&&... rest) { async->GetPreferredAllocation(rest...); },
        [done = std::move(done)](Result<v1beta1::PreferredAllocationResponse> answer) {
          if (!answer) return done(fail(std::move(answer).error()));
          std::vector<std::string> ids;
          if (answer->container_responses_size() > 0) {
            const auto& list = answer->container_responses(0).deviceids();
            ids.assign(list.begin(), list.end());
          }
          done(std::move(ids));
        });
  }

  void allocate(const std::vector<std::string>& ids, Done<DeviceAnswer> done) override {
    v1beta1::AllocateRequest request;
    request.add_container_requests()->mutable_devices_ids()->Assign(ids.begin(), ids.end());
    call<v1beta1::AllocateResponse>(
        std::move(request), [](auto* async, auto&&... rest) { async->Allocate(rest...); },
        [done = std::move(done)](Result<v1beta1::AllocateResponse> answer) {
          if (!answer) return done(fail(std::move(answer).error()));
          if (answer->container_responses_size() == 0) {
            return done(fail(Code::kInvalid, "no containers return in allocation response"));
          }
          done(from_proto(answer->container_responses(0)));
        });
  }

  void pre_start(const std::vector<std::string>& ids, Done<void> done) override {
    v1beta1::PreStartContainerRequest request;
    request.mutable_devices_ids()->Assign(ids.begin(), ids.end());
    call<v1beta1::PreStartContainerResponse>(
        std::move(request), [](auto* async, auto&&... rest) { async->PreStartContainer(rest...); },
        [done = std::move(done)](Result<v1beta1::PreStartContainerResponse> answer) {
          if (!answer) return done(fail(std::move(answer).error()));
          done({});
        },
        std::chrono::seconds(30));
  }

  void stop() override {
    if (stream_) stream_->stopped = true;
    if (stream_context_) stream_context_->TryCancel();
    for (const auto& weak : calls_) {
      if (const auto context = weak.lock()) context->TryCancel();
    }
    calls_.clear();
  }

 private:
  template <class Answer, class Request, class Method>
  void call(Request request, Method method, std::function<void(Result<Answer>)> done, Duration limit = {}) {
    struct Call {
      std::shared_ptr<Call> self;  // until it is over
      std::shared_ptr<PluginCore> core;
      grpc::ClientContext context;
      Request request;
      Answer answer;
      std::function<void(Result<Answer>)> done;
    };
    auto made = std::make_shared<Call>();
    Call* call = made.get();
    call->core = core_;
    call->request = std::move(request);
    call->done = std::move(done);
    if (limit > Duration::zero()) {
      call->context.set_deadline(std::chrono::system_clock::now() +
                                 std::chrono::duration_cast<std::chrono::system_clock::duration>(limit));
    }
    std::erase_if(calls_, [](const auto& weak) { return weak.expired(); });
    calls_.push_back(std::shared_ptr<grpc::ClientContext>(made, &call->context));
    call->self = std::move(made);
    pending_->begin();
    method(core_->stub->async(), &call->context, &call->request, &call->answer,
           [&loop = loop_, call, pending = pending_](const grpc::Status& status) {
             // The answer is told even after stop(): an admission waits for it. Only the manager's own end
             // drops it. The call goes with it: it holds the channel, which must not end on gRPC's threads
             // (kubeletapi/call.h).
             loop.post([call = std::move(call->self), status] {
               if (status.ok()) {
                 call->done(std::move(call->answer));
               } else {
                 call->done(fail(to_error(status)));
               }
             });
             pending->end();
           });
  }

  Loop& loop_;
  std::shared_ptr<Pending> pending_;
  std::shared_ptr<PluginCore> core_;
  bool preferred_, pre_start_;
  std::shared_ptr<StreamState> stream_;
  std::shared_ptr<grpc::ClientContext> stream_context_;
  std::vector<std::weak_ptr<grpc::ClientContext>> calls_;
};

// "domain/name", which no resource of Kubernetes itself is.
bool is_extended_resource(const std::string& name) {
  const std::size_t slash = name.find('/');
  if (slash == std::string::npos || slash == 0 || slash + 1 == name.size()) return false;
  if (name.find('/', slash + 1) != std::string::npos) return false;
  const std::string domain = name.substr(0, slash);
  return domain != "kubernetes.io" && !domain.ends_with(".kubernetes.io") && !domain.starts_with("requests.");
}

struct Registration : v1beta1::Registration::CallbackService {
  std::function<void(v1beta1::RegisterRequest)> accepted;  // on gRPC's threads

  grpc::ServerUnaryReactor* Register(grpc::CallbackServerContext* context,
                                     const v1beta1::RegisterRequest* request, v1beta1::Empty*) override {
    auto* reactor = context->DefaultReactor();
    if (request->version() != "v1beta1") {
      reactor->Finish({grpc::StatusCode::UNKNOWN, "requested API version \"" + request->version() +
                                                      "\" is not supported by kubelet. Supported version is "
                                                      "\"v1beta1\""});
    } else if (!is_extended_resource(request->resource_name())) {
      reactor->Finish(
          {grpc::StatusCode::UNKNOWN, "the ResourceName \"" + request->resource_name() + "\" is invalid"});
    } else if (request->endpoint().empty() || request->endpoint().find('/') != std::string::npos) {
      reactor->Finish({grpc::StatusCode::UNKNOWN,
                       "the endpoint \"" + request->endpoint() + "\" must be a file name without a folder"});
    } else {
      accepted(*request);
      reactor->Finish(grpc::Status::OK);
    }
    return reactor;
  }
};

void add_devices(google::protobuf::RepeatedPtrField<v1::ContainerDevices>& out, const std::string& resource,
                 const std::vector<Device>& devices) {
  auto add = [&](const Device& device) {
    auto* entry = out.Add();
    entry->set_resource_name(resource);
    entry->add_device_ids(device.id);
    return entry;
  };
  for (const Device& device : devices) {
    if (device.numa.empty()) add(device);
    for (std::int64_t node : device.numa) add(device)->mutable_topology()->add_nodes()->set_id(node);
  }
}

void fill_pod(v1::PodResources& out, const PodResourcesView::Pod& pod) {
  out.set_name(pod.name);
  out.set_namespace_(pod.ns);
  for (const auto& container : pod.containers) {
    auto* added = out.add_containers();
    added->set_name(container.name);
    for (const auto& [resource, devices] : container.devices) {
      add_devices(*added->mutable_devices(), resource, devices);
    }
  }
}

struct Lister : v1::PodResourcesLister::CallbackService {
  std::mutex mutex;
  std::shared_ptr<const PodResourcesView> view = std::make_shared<PodResourcesView>();

  std::shared_ptr<const PodResourcesView> now() {
    const std::scoped_lock lock(mutex);
    return view;
  }
  grpc::ServerUnaryReactor* List(grpc::CallbackServerContext* context, const v1::ListPodResourcesRequest*,
                                 v1::ListPodResourcesResponse* answer) override {
    for (const auto& pod : now()->pods) fill_pod(*answer->add_pod_resources(), pod);
    auto* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
  grpc::ServerUnaryReactor* Get(grpc::CallbackServerContext* context,
                                const v1::GetPodResourcesRequest* request,
                                v1::GetPodResourcesResponse* answer) override {
    auto* reactor = context->DefaultReactor();
    for (const auto& pod : now()->pods) {
      if (pod.name != request->pod_name() || pod.ns != request->pod_namespace()) continue;
      fill_pod(*answer->mutable_pod_resources(), pod);
      reactor->Finish(grpc::Status::OK);
      return reactor;
    }
    reactor->Finish({grpc::StatusCode::UNKNOWN, "pod " + request->pod_name() + " in namespace " +
                                                    request->pod_namespace() + " not found"});
    return reactor;
  }
  grpc::ServerUnaryReactor* GetAllocatableResources(grpc::CallbackServerContext* context,
                                                    const v1::AllocatableResourcesRequest*,
                                                    v1::AllocatableResourcesResponse* answer) override {
    const auto snapshot = now();
    for (const auto& [resource, devices] : snapshot->allocatable) {
      add_devices(*answer->mutable_devices(), resource, devices);
    }
    for (std::int64_t cpu = 0; cpu < snapshot->cpus; ++cpu) answer->add_cpu_ids(cpu);
    auto* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
};

Result<> remove_sockets(const std::filesystem::path& folder) {
  for (const std::string& name : TRY(list_dir(folder))) {
    struct stat info{};
    const auto path = folder / name;
    if (::lstat(path.c_str(), &info) == 0 && S_ISSOCK(info.st_mode)) TRY(remove_file(path));
  }
  return {};
}

Result<std::unique_ptr<grpc::Server>> serve(const SocketPath& socket, grpc::Service& service) {
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("unix:" + socket.path, grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  auto server = builder.BuildAndStart();
  if (!server) return fail(Code::kIo, "listen on '" + socket.path + "': the socket cannot be made");
  return server;
}

}  // namespace

struct DeviceSockets::Impl {
  std::shared_ptr<Pending> pending = std::make_shared<Pending>();
  SocketPath registry, lister_path;
  Registration registration;
  Lister lister;
  std::shared_ptr<bool> alive = std::make_shared<bool>(true);
  std::unique_ptr<grpc::Server> registration_server, lister_server;
};

DeviceSockets::DeviceSockets(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Result<std::unique_ptr<DeviceSockets>> DeviceSockets::create(Loop& loop,
                                                             const std::filesystem::path& kubelet_dir,
                                                             Registered registered) {
  auto impl = std::make_unique<Impl>();
  const auto plugins = kubelet_dir / "device-plugins";
  const auto resources = kubelet_dir / "pod-resources";
  TRY(make_dirs(plugins));
  TRY(make_dirs(resources));
  TRY_IN(remove_sockets(plugins), "clear '" + plugins.string() + "'");
  TRY_IN(remove_sockets(resources), "clear '" + resources.string() + "'");
  impl->registry = TRY(socket_path(plugins, "kubelet.sock"));
  impl->lister_path = TRY(socket_path(resources, "kubelet.sock"));
  impl->registration.accepted = [&loop, plugins, registered = std::move(registered), pending = impl->pending,
                                 alive = std::weak_ptr<bool>(impl->alive)](v1beta1::RegisterRequest request) {
    loop.post([&loop, plugins, registered, pending, alive, request = std::move(request)] {
      if (alive.expired()) return;
      auto socket = socket_path(plugins, request.endpoint());
      if (!socket) {
        log::error("cannot reach a device plugin",
                   {{"resource", request.resource_name()}, {"error", socket.error()}});
        return;
      }
      registered(request.resource_name(),
                 std::make_shared<SocketPlugin>(loop, pending, std::move(*socket),
                                                request.options().get_preferred_allocation_available(),
                                                request.options().pre_start_required()));
    });
  };
  impl->lister_server = TRY(serve(impl->lister_path, impl->lister));
  impl->registration_server = TRY(serve(impl->registry, impl->registration));
  return std::unique_ptr<DeviceSockets>(new DeviceSockets(std::move(impl)));
}

DeviceSockets::~DeviceSockets() {
  impl_->registration_server->Shutdown(std::chrono::system_clock::now());
  impl_->lister_server->Shutdown(std::chrono::system_clock::now());
  impl_->pending->wait();
}

void DeviceSockets::publish(PodResourcesView view) {
  auto shared = std::make_shared<const PodResourcesView>(std::move(view));
  const std::scoped_lock lock(impl_->lister.mutex);
  impl_->lister.view = std::move(shared);
}

}  // namespace gpuop::cluster
