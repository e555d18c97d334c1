#include "telemetry/pod_resources.h"

#include <grpcpp/grpcpp.h>

#include <condition_variable>
#include <map>
#include <mutex>

#include "base/files.h"
#include "kubeletapi/pod_resources.grpc.pb.h"

namespace gpuop::telemetry {
namespace {

// Big nodes' lists pass gRPC's default of 4 MiB.
constexpr int kMaxAnswer = 64 << 20;

std::vector<PodDevice> flatten(const v1::ListPodResourcesResponse& answer) {
  std::vector<PodDevice> devices;
  for (const auto& pod : answer.pod_resources()) {
    for (const auto& container : pod.containers()) {
      for (const auto& resource : container.devices()) {
        for (const auto& id : resource.device_ids())
          devices.push_back({pod.namespace_(), pod.name(), container.name(), resource.resource_name(), id});
      }
    }
  }
  return devices;
}

struct ListCall {
  grpc::ClientContext context;
  v1::ListPodResourcesRequest request;
  v1::ListPodResourcesResponse answer;
  std::unique_ptr<v1::PodResourcesLister::Stub> stub;
};

}  // namespace

// gRPC's threads call back; what they bring is posted to the loop unless we are gone. A call, and the channel
// with it, is destroyed on the loop's thread only: a channel must not end on one of gRPC's own.
struct PodResources::Shared {
  std::mutex mutex;
  std::condition_variable ended;
  Loop* loop = nullptr;  // nullptr: gone
  std::map<ListCall*, std::unique_ptr<ListCall>> calls;
  std::size_t running = 0;
  std::string socket;
};

PodResources::PodResources(Loop& loop, std::string socket) : shared_(std::make_shared<Shared>()) {
  shared_->loop = &loop;
  shared_->socket = std::move(socket);
}

PodResources::~PodResources() {
  std::unique_lock lock(shared_->mutex);
  shared_->loop = nullptr;
  for (auto& [call, owned] : shared_->calls) call->context.TryCancel();
  // A cancelled call ends at once, whatever the kubelet does.
  shared_->ended.wait(lock, [this] { return shared_->running == 0; });
  auto over = std::move(shared_->calls);
  lock.unlock();
}

void PodResources::list(Duration limit, std::function<void(Result<std::vector<PodDevice>>)> done) {
  const std::string doing = "list pod resources of '" + shared_->socket + "'";
  if (!file_exists(shared_->socket)) return done(fail(Code::kNotFound, doing + ": there is no such socket"));
  auto owned = std::make_unique<ListCall>();
  ListCall* call = owned.get();
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxAnswer);
  // A socket has no host name; some kubelets refuse what gRPC would make of the path.
  arguments.SetString(GRPC_ARG_DEFAULT_AUTHORITY, "localhost");
  // Each call connects anew: the kubelet restarts, and its socket with it.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  call->stub = v1::PodResourcesLister::NewStub(
      grpc::CreateCustomChannel("unix://" + shared_->socket, grpc::InsecureChannelCredentials(), arguments));
  call->context.set_deadline(std::chrono::system_clock::now() +
                             std::chrono::duration_cast<std::chrono::system_clock::duration>(limit));
  {
    std::lock_guard lock(shared_->mutex);
    shared_->calls[call] = std::move(owned);
    ++shared_->running;
  }
  auto finished = [shared = shared_, call, doing, done = std::move(done)](grpc::Status status) {
    using Answer = Result<std::vector<PodDevice>>;
    Answer answer = status.ok() ? Answer(flatten(call->answer))
                                : Answer(fail(Code::kUnavailable, doing + ": " + status.error_message()));
    std::lock_guard lock(shared->mutex);
    --shared->running;
    shared->ended.notify_all();
    if (!shared->loop) return;
    shared->loop->post([shared, call, done, answer = std::move(answer)]() mutable {
      std::unique_ptr<ListCall> over;
      {
        std::lock_guard inner(shared->mutex);
        if (!shared->loop) return;
        over = std::move(shared->calls.extract(call).mapped());
      }
      done(std::move(answer));
    });
  };
  call->stub->async()->List(&call->context, &call->request, &call->answer, std::move(finished));
}

}  // namespace gpuop::telemetry
