// How requests reach an API server: over HTTP/2 (libcurl), or in memory to the embedded control plane.
// Authentication, retries and typing live above it (client.h); tests put scripted transports below.
#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "base/http.h"
#include "base/loop.h"
#include "base/result.h"

namespace gpuop::kube {

// The pieces of a streamed answer. `begin` once, `data` any number of times, `end` once (also after an error
// before `begin`). Nothing is called after the stream's handle was dropped.
struct StreamEvents {
  std::function<void(int status, const Headers& headers)> begin;
  std::function<void(std::string_view bytes)> data;
  std::function<void(Result<> how)> end;
};

class Transport {
 public:
  virtual ~Transport() = default;
  // `done` is called once, later, on the loop; never when the handle was dropped before (the request is
  // then cancelled). Errors are transport faults only (kUnavailable, kTimeout, kInvalid for TLS):
  // an HTTP error status is an answer.
  virtual Handle send(HttpRequest request, std::function<void(Result<HttpResponse>)> done);
  // The same in pieces; send() collects them where it is not overridden.
  virtual Handle stream(HttpRequest request, StreamEvents events) = 0;
};

// In memory: calls `handler` as the HTTP server would. Works under a virtual loop.
std::shared_ptr<Transport> make_memory_transport(Loop& loop, HttpHandler handler);

}  // namespace gpuop::kube
