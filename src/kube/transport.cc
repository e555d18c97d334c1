#include "kube/transport.h"

#include <memory>
#include <utility>

namespace gpuop::kube {

Handle Transport::send(HttpRequest request, std::function<void(Result<HttpResponse>)> done) {
  auto response = std::make_shared<HttpResponse>();
  StreamEvents events;
  events.begin = [response](int status, const Headers& headers) {
    response->status = status;
    response->headers = headers;
  };
  events.data = [response](std::string_view bytes) { response->body += bytes; };
  events.end = [response, done = std::move(done)](Result<> how) {
    if (!how) return done(fail(std::move(how).error()));
    done(std::move(*response));
  };
  return stream(std::move(request), std::move(events));
}

}  // namespace gpuop::kube
