// Unary calls over gRPC's callback interface, answered on the loop. Heavy: for .cc files only.
//
// One law for every client: gRPC's threads never drop the last reference to a channel. The end of a process's
// last channel joins the threads of the callback queue. On one of those threads that is a join of itself,
// which fails unnoticed (gRPC 1.51, CallbackAlternativeCQ::Unref): the queue is freed while the thread goes
// on with it, and the process dies by "ref_counted.h: assertion failed: prior > 0" or a double free. A stub
// and a ClientContext hold their channel too. So all that a call holds is dropped on the loop's thread: by
// what was posted there, or by the handle.
#pragma once

#include <grpcpp/grpcpp.h>

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include "base/loop.h"

namespace gpuop::kubeletapi {

template <class Request, class Answer>
struct Call {
  std::shared_ptr<const void> keep;  // the stub, and what else must outlive the call
  grpc::ClientContext context;
  Request request;
  Answer answer;
};

template <class Request, class Answer>
using CallDone = std::function<void(Call<Request, Answer>& call, const grpc::Status& status)>;

// Begins the call by `begin(call, told)`, which hands `told` to the stub. `done` is called once on the loop,
// not after the handle was dropped. Dropping the handle cancels a call that is under way and waits until gRPC
// has let go of it: some 100 ms at most, usually none.
template <class Request, class Answer, class Begin>
Handle start_call(Loop& loop, std::unique_ptr<Call<Request, Answer>> call, Begin begin,
                  CallDone<Request, Answer> done) {
  struct Flight {
    std::mutex mutex;
    std::condition_variable landed;
    bool over = false, dropped = false;
    // Both go to the loop's thread when the call is over.
    std::shared_ptr<Call<Request, Answer>> call;
    CallDone<Request, Answer> done;
  };
  auto flight = std::make_shared<Flight>();
  flight->call = std::move(call);
  flight->done = std::move(done);
  begin(*flight->call, [&loop, flight](const grpc::Status& status) {
    const std::scoped_lock lock(flight->mutex);
    flight->over = true;
    flight->landed.notify_all();
    if (flight->dropped) return;
    loop.post([flight, call = std::move(flight->call), done = std::move(flight->done), status] {
      if (!flight->dropped) done(*call, status);
    });
  });
  return Handle([flight] {
    std::unique_lock lock(flight->mutex);
    flight->dropped = true;
    if (flight->call) flight->call->context.TryCancel();
    flight->landed.wait(lock, [&] { return flight->over; });
    const auto last = std::pair(std::move(flight->call), std::move(flight->done));
    lock.unlock();
  });
}

}  // namespace gpuop::kubeletapi
