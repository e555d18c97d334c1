// A Kubernetes API client: typed errors, authentication, retries with Retry-After (kubernetes-api.md §17).
// Everything is asynchronous on the loop's thread; await() turns one call into a blocking one for programs
// whose next step is that call's answer.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/loop.h"
#include "base/result.h"
#include "kube/resource.h"
#include "kube/transport.h"

namespace gpuop::kube {

// A Status answer of the API server, or a transport fault (status 0).
struct ApiError {
  int status = 0;       // HTTP status code; 0: no answer came
  std::string reason;   // "NotFound", "AlreadyExists", "Conflict", "Invalid", "Forbidden", "Expired", …
  std::string message;  // the server's sentence, or the transport's
  Json details;         // Status.details or null
  Code fault = Code::kUnavailable;  // what kind of transport fault, when status is 0
  std::optional<Duration> retry_after;

  bool not_found() const { return status == 404; }
  bool already_exists() const { return status == 409 && reason == "AlreadyExists"; }
  bool conflict() const { return status == 409 && reason != "AlreadyExists"; }
  bool expired() const { return status == 410; }
  bool invalid() const { return status == 422; }
  bool forbidden() const { return status == 403; }
  bool unavailable() const { return status == 0 || status == 429 || status >= 500; }
  // As an Error: "DOING: message", with the code that fits.
  Error error(std::string_view doing) const;
};
template <class T = Json>
using ApiResult = std::expected<T, ApiError>;

enum class Patch { kJson, kMerge, kStrategic, kApply };

struct ListOptions {
  std::string label_selector;
  std::string field_selector;
  int limit = 0;
  std::string continue_token;
  std::string resource_version;
};
struct WriteOptions {
  bool dry_run = false;
  bool force = false;            // Patch::kApply only
  std::string subresource;       // "status", …
  std::string field_validation;  // "Strict", "Warn", "Ignore"; empty: the server's default
};
struct DeleteOptions {
  std::string propagation;  // "Background", "Foreground", "Orphan"; empty: the server's default
  std::optional<int> grace_seconds;
  std::string precondition_uid;
};
struct WatchOptions {
  std::string label_selector;
  std::string field_selector;
  std::string resource_version;
  bool bookmarks = true;
  bool send_initial_events = false;
  int timeout_seconds = 0;  // 0: random 300 to 600
};
// One watch event: "ADDED", "MODIFIED", "DELETED", "BOOKMARK".
struct WatchEvents {
  std::function<void(std::string_view type, Json object)> event;
  // Once. An ERROR event's Status or an HTTP error arrives here; a clean close is a value.
  std::function<void(ApiResult<void>)> end;
};

// Puts credentials on requests; may have to fetch or re-read them.
class Credentials {
 public:
  virtual ~Credentials() = default;
  virtual void apply(HttpRequest& request) = 0;
  // After a 401. True when something changed and one retry makes sense.
  virtual bool refresh() = 0;
};

struct ClientOptions {
  std::string user_agent = "gpu-operator";
  std::string field_manager = "gpu-operator";
  int max_reads = 16;  // requests under way at once; more wait in order
  int max_writes = 8;
  Duration timeout = 30s;  // a request without an answer
};

class Client {
 public:
  using Done = std::function<void(ApiResult<>)>;

  Client(Loop& loop, std::shared_ptr<Transport> transport, ClientOptions options = {},
         std::shared_ptr<Credentials> credentials = nullptr);
  ~Client();  // cancels what is under way; no callback comes after
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  Loop& loop() const;
  const ClientOptions& options() const;

  // The returned handle cancels; use .detach() to let a call run by itself.
  Handle get(const Resource& type, std::string_view ns, std::string_view name, Done done);
  // Answers the List object of one page.
  Handle list(const Resource& type, std::string_view ns, const ListOptions& options, Done done);
  Handle create(const Resource& type, std::string_view ns, const Json& object, const WriteOptions& options,
                Done done);
  Handle update(const Resource& type, std::string_view ns, std::string_view name, const Json& object,
                const WriteOptions& options, Done done);
  Handle patch(const Resource& type, std::string_view ns, std::string_view name, Patch how, const Json& body,
               const WriteOptions& options, Done done);
  Handle remove(const Resource& type, std::string_view ns, std::string_view name,
                const DeleteOptions& options, Done done);
  Handle watch(const Resource& type, std::string_view ns, const WatchOptions& options, WatchEvents events);
  // Any other path: "/version", "/api/v1/…/log". The answer's body, whatever its type.
  Handle raw(HttpRequest request, std::function<void(ApiResult<HttpResponse>)> done);
  Handle raw_stream(HttpRequest request, StreamEvents events);

  struct Impl;
  const std::shared_ptr<Impl>& impl() const { return impl_; }

 private:
  std::shared_ptr<Impl> impl_;
};

// Runs the loop until `start`'s callback has come; for programs with nothing else to do meanwhile.
//   auto pod = await(loop, [&](auto done) { return client.get(kPods, ns, name, done); });
ApiResult<> await(Loop& loop, const std::function<Handle(Client::Done)>& start);
ApiResult<HttpResponse> await_raw(
    Loop& loop, const std::function<Handle(std::function<void(ApiResult<HttpResponse>)>)>& start);

}  // namespace gpuop::kube
