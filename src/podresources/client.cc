#include "podresources/client.h"

#include <grpcpp/grpcpp.h>

#include "base/text.h"
#include "kubeletapi/call.h"
#include "kubeletapi/pod_resources.grpc.pb.h"

namespace gpuop::podresources {
namespace {

constexpr int kMaxAnswer = 64 << 20;  // bytes; a node with many pods exceeds gRPC's own limit of 4 MiB

std::vector<Use> uses_of(const v1::ListPodResourcesResponse& answer) {
  std::vector<Use> out;
  for (const auto& pod : answer.pod_resources()) {
    for (const auto& container : pod.containers()) {
      Use base;
      base.ns = pod.namespace_();
      base.pod = pod.name();
      base.container = container.name();
      for (const auto& devices : container.devices()) {
        for (const std::string& id : devices.device_ids()) {
          Use use = base;
          use.resource = devices.resource_name();
          use.id = id;
          std::tie(use.device, use.replica) = split_replica(id);
          out.push_back(std::move(use));
        }
      }
      for (const auto& claim : container.dynamic_resources()) {
        for (const auto& resource : claim.claim_resources()) {
          Use use = base;
          use.resource = resource.driver_name();
          use.id = use.device = resource.device_name();
          use.claim_ns = claim.claim_namespace();
          use.claim = claim.claim_name();
          use.pool = resource.pool_name();
          for (const auto& device : resource.cdi_devices()) use.cdi_devices.push_back(device.name());
          out.push_back(std::move(use));
        }
      }
    }
  }
  return out;
}

std::vector<Allocatable> allocatable_of(const v1::AllocatableResourcesResponse& answer) {
  std::vector<Allocatable> out;
  for (const auto& devices : answer.devices()) {
    out.push_back({devices.resource_name(), {devices.device_ids().begin(), devices.device_ids().end()}});
  }
  return out;
}

Error error_of(const std::string& doing, const grpc::Status& status) {
  Code code = Code::kUnavailable;
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) code = Code::kTimeout;
  if (status.error_code() == grpc::StatusCode::UNIMPLEMENTED) code = Code::kUnsupported;
  return {code, doing + ": " + status.error_message()};
}

}  // namespace

struct Client::Impl {
  Impl(Loop& l, std::string s) : loop(l), socket(std::move(s)) {
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(kMaxAnswer);
    // Kubelets come back on the same path: a connection is tried again soon.
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
    stub = v1::PodResourcesLister::NewStub(
        grpc::CreateCustomChannel("unix://" + socket, grpc::InsecureChannelCredentials(), arguments));
  }

  template <class Request, class Answer, class Begin, class Convert, class Done>
  Handle start(const char* name, Duration limit, Begin begin, Convert convert, Done done) {
    using Call = kubeletapi::Call<Request, Answer>;
    auto call = std::make_unique<Call>();
    call->keep = stub;
    call->context.set_deadline(std::chrono::system_clock::now() +
                               std::chrono::duration_cast<std::chrono::system_clock::duration>(limit));
    std::string doing = std::string(name) + " of kubelet '" + socket + "'";
    return kubeletapi::start_call<Request, Answer>(
        loop, std::move(call),
        [&](Call& begun, auto told) {
          begin(stub->async(), &begun.context, &begun.request, &begun.answer, std::move(told));
        },
        [doing, convert, done = std::move(done)](Call& over, const grpc::Status& status) {
          status.ok() ? done(convert(over.answer)) : done(fail(error_of(doing, status)));
        });
  }

  Loop& loop;
  std::string socket;
  std::shared_ptr<v1::PodResourcesLister::Stub> stub;  // holds the channel
};

std::pair<std::string, int> split_replica(std::string_view id) {
  auto at = id.rfind("::");
  if (at == std::string_view::npos) return {std::string(id), -1};
  auto number = parse_int(id.substr(at + 2));
  if (!number || *number < 0 || *number > 1'000'000) return {std::string(id), -1};
  return {std::string(id.substr(0, at)), static_cast<int>(*number)};
}

Client::Client(Loop& loop, const std::string& socket) : impl_(std::make_unique<Impl>(loop, socket)) {}
Client::~Client() = default;

Handle Client::list(Duration limit, std::function<void(Result<std::vector<Use>>)> done) {
  return impl_->start<v1::ListPodResourcesRequest, v1::ListPodResourcesResponse>(
      "list pod resources", limit, [](auto* async, auto&&... rest) { async->List(std::move(rest)...); },
      uses_of, std::move(done));
}

Handle Client::allocatable(Duration limit, std::function<void(Result<std::vector<Allocatable>>)> done) {
  return impl_->start<v1::AllocatableResourcesRequest, v1::AllocatableResourcesResponse>(
      "get allocatable resources", limit,
      [](auto* async, auto&&... rest) { async->GetAllocatableResources(std::move(rest)...); }, allocatable_of,
      std::move(done));
}

}  // namespace gpuop::podresources
