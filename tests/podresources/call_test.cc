// The law of kubeletapi/call.h: what a call holds never ends on gRPC's threads.
#include "kubeletapi/call.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "base/files.h"
#include "kubeletapi/pod_resources.grpc.pb.h"

namespace gpuop::kubeletapi {
namespace {

using Request = v1::ListPodResourcesRequest;
using Answer = v1::ListPodResourcesResponse;

// What calls keep; counts its ends by where they happen.
struct Ends {
  std::thread::id loop = std::this_thread::get_id();
  std::atomic<int> here{0}, elsewhere{0};

  std::shared_ptr<const void> keep(std::shared_ptr<const void> what) {
    return {this, [this, held = std::move(what)](const void*) {
              ++(std::this_thread::get_id() == loop ? here : elsewhere);
            }};
  }
};

// A call to a socket that nobody listens on, over a channel of its own.
Handle list(Loop& loop, Ends& ends, const fs::path& socket, bool wait_for_ready,
            std::function<void(grpc::Status)> done) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  std::shared_ptr<v1::PodResourcesLister::Stub> stub = v1::PodResourcesLister::NewStub(
      grpc::CreateCustomChannel("unix://" + socket.string(), grpc::InsecureChannelCredentials(), arguments));
  auto call = std::make_unique<Call<Request, Answer>>();
  call->keep = ends.keep(stub);
  call->context.set_wait_for_ready(wait_for_ready);
  return start_call<Request, Answer>(
      loop, std::move(call),
      [&](auto& begun, auto told) {
        stub->async()->List(&begun.context, &begun.request, &begun.answer, std::move(told));
      },
      [done = std::move(done)](auto&, const grpc::Status& status) { done(status); });
}

TEST(podresources, a_call_that_was_answered_ends_on_the_loop) {
  TempDir dir;
  Ends ends;
  Loop loop;
  for (int i = 0; i < 20; ++i) {
    bool answered = false;
    Handle call = list(loop, ends, dir.path() / "absent", false, [&](const grpc::Status& status) {
      EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
      answered = true;
    });
    ASSERT_TRUE(loop.run_until([&] { return answered; }, 5s));
  }
  EXPECT_EQ(ends.here, 20);
  EXPECT_EQ(ends.elsewhere, 0);
}

TEST(podresources, a_call_that_was_dropped_ends_on_the_loop_and_says_nothing) {
  TempDir dir;
  Ends ends;
  {
    Loop loop;
    for (int i = 0; i < 20; ++i) {
      Handle call = list(loop, ends, dir.path() / "absent", true, [](const grpc::Status&) { ADD_FAILURE(); });
      call.reset();
      EXPECT_EQ(ends.here, i + 1);
    }
    loop.run_for(10ms);
  }
  EXPECT_EQ(ends.elsewhere, 0);
}

}  // namespace
}  // namespace gpuop::kubeletapi
