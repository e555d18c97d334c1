// A kubelet's end of the pod-resources API for tests: what answers it, served at a socket.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>

#include "base/files.h"
#include "kubeletapi/pod_resources.grpc.pb.h"

namespace gpuop::podresources {

// `Answers`: a v1::PodResourcesLister::Service with the calls that the test's kubelet knows. Served for as
// long as it lives; gRPC's threads call it.
template <class Answers>
class Served final : public Answers {
 public:
  explicit Served(const fs::path& socket) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("unix://" + socket.string(), grpc::InsecureServerCredentials());
    builder.RegisterService(this);
    // Its threads see the end this late.
    builder.SetSyncServerOption(grpc::ServerBuilder::CQ_TIMEOUT_MSEC, 50);
    server_ = builder.BuildAndStart();
  }
  ~Served() override { server_->Shutdown(std::chrono::system_clock::now()); }

 private:
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace gpuop::podresources
