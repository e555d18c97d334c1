#include "plugin/server.h"

#include <grpcpp/grpcpp.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <mutex>
#include <set>

#include "base/files.h"
#include "base/log.h"
#include "base/text.h"
#include "kubeletapi/call.h"
#include "kubeletapi/device_plugin.grpc.pb.h"
#include "plugin/preferred.h"

namespace gpuop::plugin {
namespace {

constexpr auto kRegisterLimit = std::chrono::seconds(5);

v1beta1::ListAndWatchResponse device_list(const Offer& offer, const std::vector<bool>& healthy) {
  v1beta1::ListAndWatchResponse list;
  for (std::size_t i = 0; i < offer.resource.devices.size(); ++i) {
    const Device& device = offer.resource.devices[i];
    v1beta1::Device* out = list.add_devices();
    out->set_id(device.id);
    out->set_health(i < healthy.size() && !healthy[i] ? kUnhealthy : kHealthy);
    if (device.numa_node) out->mutable_topology()->add_nodes()->set_id(*device.numa_node);
  }
  return list;
}

void fill(const Allocation& allocation, v1beta1::ContainerAllocateResponse& out) {
  for (const auto& [key, value] : allocation.envs) (*out.mutable_envs())[key] = value;
  for (const auto& [key, value] : allocation.annotations) (*out.mutable_annotations())[key] = value;
  for (const Mount& mount : allocation.mounts) {
    auto* to = out.add_mounts();
    to->set_host_path(mount.host_path);
    to->set_container_path(mount.container_path);
    to->set_read_only(mount.read_only);
  }
  for (const DeviceNode& node : allocation.devices) {
    auto* to = out.add_devices();
    to->set_host_path(node.host_path);
    to->set_container_path(node.container_path);
    to->set_permissions(node.permissions);
  }
  for (const std::string& name : allocation.cdi_devices) out.add_cdi_devices()->set_name(name);
}

// One kubelet's open ListAndWatch. Writes follow one another; of lists that pile up only the latest is sent.
class Stream final : public grpc::ServerWriteReactor<v1beta1::ListAndWatchResponse> {
 public:
  explicit Stream(std::function<void(Stream*)> gone) : gone_(std::move(gone)) {}

  void send(std::shared_ptr<const v1beta1::ListAndWatchResponse> list) {
    std::lock_guard lock(mutex_);
    next_ = std::move(list);
    write_next();
  }
  void finish() {
    std::lock_guard lock(mutex_);
    finish_locked();
  }
  void OnWriteDone(bool ok) override {
    std::lock_guard lock(mutex_);
    writing_.reset();
    ok ? write_next() : finish_locked();
  }
  void OnCancel() override { finish(); }
  void OnDone() override {
    gone_(this);
    delete this;
  }

 private:
  void write_next() {
    if (writing_ || finished_ || !next_) return;
    writing_ = std::move(next_);
    next_.reset();
    StartWrite(writing_.get());
  }
  void finish_locked() {
    if (std::exchange(finished_, true)) return;
    Finish(grpc::Status::OK);
  }

  std::function<void(Stream*)> gone_;
  std::mutex mutex_;
  std::shared_ptr<const v1beta1::ListAndWatchResponse> writing_, next_;
  bool finished_ = false;
};

class Service final : public v1beta1::DevicePlugin::CallbackService {
 public:
  Service(std::shared_ptr<const Offer> offer, const std::vector<bool>& healthy) : offer_(std::move(offer)) {
    list_ = std::make_shared<v1beta1::ListAndWatchResponse>(device_list(*offer_, healthy));
  }
  const Offer& offer() const { return *offer_; }

  void update(const std::vector<bool>& healthy) {
    auto list = std::make_shared<v1beta1::ListAndWatchResponse>(device_list(*offer_, healthy));
    std::lock_guard lock(mutex_);
    list_ = list;
    for (Stream* stream : streams_) stream->send(list);
  }
  void close() {
    std::lock_guard lock(mutex_);
    closed_ = true;
    for (Stream* stream : streams_) stream->finish();
  }

  grpc::ServerUnaryReactor* GetDevicePluginOptions(grpc::CallbackServerContext* context,
                                                   const v1beta1::Empty*,
                                                   v1beta1::DevicePluginOptions* out) override {
    out->set_get_preferred_allocation_available(true);
    return done(context, grpc::Status::OK);
  }

  grpc::ServerWriteReactor<v1beta1::ListAndWatchResponse>* ListAndWatch(grpc::CallbackServerContext*,
                                                                        const v1beta1::Empty*) override {
    auto* stream = new Stream([this](Stream* gone) {
      std::lock_guard lock(mutex_);
      streams_.erase(gone);
    });
    std::lock_guard lock(mutex_);
    streams_.insert(stream);
    stream->send(list_);
    if (closed_) stream->finish();
    return stream;
  }

  grpc::ServerUnaryReactor* GetPreferredAllocation(grpc::CallbackServerContext* context,
                                                   const v1beta1::PreferredAllocationRequest* request,
                                                   v1beta1::PreferredAllocationResponse* out) override {
    for (const auto& one : request->container_requests()) {
      std::vector<std::string> available(one.available_deviceids().begin(), one.available_deviceids().end());
      std::vector<std::string> required(one.must_include_deviceids().begin(),
                                        one.must_include_deviceids().end());
      Preference preference = preferred(*offer_, available, required, one.allocation_size());
      if (!preference.problem.empty()) {
        log::warn("preferred allocation: " + preference.problem, {{"resource", offer_->resource.name}});
      }
      auto* answer = out->add_container_responses();
      for (std::string& id : preference.ids) answer->add_deviceids(std::move(id));
    }
    return done(context, grpc::Status::OK);
  }

  grpc::ServerUnaryReactor* Allocate(grpc::CallbackServerContext* context,
                                     const v1beta1::AllocateRequest* request,
                                     v1beta1::AllocateResponse* out) override {
    for (const auto& one : request->container_requests()) {
      std::vector<std::string> ids(one.devices_ids().begin(), one.devices_ids().end());
      auto allocation = allocate(*offer_, ids, random_uuid());
      if (!allocation) {
        log::error("allocate: " + allocation.error().text());
        return done(context, grpc::Status(grpc::StatusCode::UNKNOWN, allocation.error().text()));
      }
      fill(*allocation, *out->add_container_responses());
      log::info("allocated", {{"resource", offer_->resource.name}, {"devices", join(ids, ",")}});
    }
    return done(context, grpc::Status::OK);
  }

  grpc::ServerUnaryReactor* PreStartContainer(grpc::CallbackServerContext* context,
                                              const v1beta1::PreStartContainerRequest*,
                                              v1beta1::PreStartContainerResponse*) override {
    return done(context, grpc::Status::OK);
  }

 private:
  static grpc::ServerUnaryReactor* done(grpc::CallbackServerContext* context, const grpc::Status& status) {
    auto* reactor = context->DefaultReactor();
    reactor->Finish(status);
    return reactor;
  }

  std::shared_ptr<const Offer> offer_;
  std::mutex mutex_;
  std::shared_ptr<const v1beta1::ListAndWatchResponse> list_;
  std::set<Stream*> streams_;
  bool closed_ = false;
};

// gRPC says no more than that it could not bind; connecting tells whether somebody really listens.
Result<> try_connect(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return fail(Code::kInvalid, "serve '" + path + "': a socket's path may have 107 bytes at most");
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) return fail(errno_error("make a socket", errno));
  if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    return fail(errno_error("connect to '" + path + "'", errno));
  }
  return {};
}

}  // namespace

struct PluginServer::Impl {
  std::string path;
  std::unique_ptr<Service> service;
  std::unique_ptr<grpc::Server> server;
};

PluginServer::PluginServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

PluginServer::~PluginServer() {
  // Streams are ended first, so that Shutdown has nothing to wait for; the deadline cancels calls under way.
  impl_->service->close();
  impl_->server->Shutdown(std::chrono::system_clock::now());
  impl_->server->Wait();
  if (const auto removed = remove_file(impl_->path); !removed)
    log::warn("the plugin's socket stays", {{"why", removed.error()}});
}

Result<std::unique_ptr<PluginServer>> PluginServer::create(const std::string& socket_path,
                                                           std::shared_ptr<const Offer> offer,
                                                           std::vector<bool> healthy) {
  TRY_IN(remove_file(socket_path), "remove stale socket");
  auto impl = std::make_unique<Impl>();
  impl->path = socket_path;
  impl->service = std::make_unique<Service>(std::move(offer), healthy);
  grpc::ServerBuilder builder;
  // One kubelet calls, seldom: few threads keep the process small.
  builder.SetResourceQuota(grpc::ResourceQuota("device-plugin").SetMaxThreads(4));
  builder.AddListeningPort("unix://" + socket_path, grpc::InsecureServerCredentials());
  builder.RegisterService(impl->service.get());
  impl->server = builder.BuildAndStart();
  if (!impl->server) {
    auto parent = fs::path(socket_path).parent_path();
    return fail(file_exists(parent) ? Code::kIo : Code::kNotFound,
                "serve '" + socket_path + "': cannot listen there" +
                    (file_exists(parent) ? "" : ": the folder does not exist"));
  }
  std::unique_ptr<PluginServer> server(new PluginServer(std::move(impl)));
  TRY(try_connect(socket_path));
  return server;
}

void PluginServer::update(std::vector<bool> healthy) {
  impl_->service->update(healthy);
}
const std::string& PluginServer::socket_path() const {
  return impl_->path;
}
const Offer& PluginServer::offer() const {
  return impl_->service->offer();
}

namespace {

// The stub holds the channel.
std::unique_ptr<v1beta1::Registration::Stub> connect(const std::string& socket) {
  // A channel of its own: gRPC shares connections by address, and the kubelet behind this one comes and goes.
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return v1beta1::Registration::NewStub(
      grpc::CreateCustomChannel("unix://" + socket, grpc::InsecureChannelCredentials(), arguments));
}

}  // namespace

Handle register_plugin(Loop& loop, const Registration& registration, std::function<void(Result<>)> done) {
  using Call = kubeletapi::Call<v1beta1::RegisterRequest, v1beta1::Empty>;
  std::shared_ptr<v1beta1::Registration::Stub> stub = connect(registration.kubelet_socket);
  auto call = std::make_unique<Call>();
  call->keep = stub;
  call->context.set_wait_for_ready(true);
  call->context.set_deadline(std::chrono::system_clock::now() + kRegisterLimit);
  call->request.set_version("v1beta1");
  call->request.set_endpoint(registration.endpoint);
  call->request.set_resource_name(registration.resource_name);
  call->request.mutable_options()->set_get_preferred_allocation_available(true);
  std::string doing =
      "register '" + registration.resource_name + "' with kubelet '" + registration.kubelet_socket + "'";
  return kubeletapi::start_call<v1beta1::RegisterRequest, v1beta1::Empty>(
      loop, std::move(call),
      [&stub](Call& begun, auto told) {
        stub->async()->Register(&begun.context, &begun.request, &begun.answer, std::move(told));
      },
      [doing, done = std::move(done)](Call&, const grpc::Status& status) {
        if (status.ok()) return done({});
        const Code code =
            status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED ? Code::kTimeout : Code::kUnavailable;
        done(fail(code, doing + ": " + status.error_message()));
      });
}

}  // namespace gpuop::plugin
