#include "kube/client.h"

#include <deque>
#include <random>
#include <set>

#include "base/json_arena.h"
#include "base/text.h"
#include "kube/calls.h"
#include "kube/watch_stream.h"

namespace gpuop::kube {
namespace {

using Query = std::vector<std::pair<std::string, std::string>>;

Query write_query(const WriteOptions& options, const std::string& manager) {
  Query query;
  if (!manager.empty()) query.emplace_back("fieldManager", manager);
  if (options.dry_run) query.emplace_back("dryRun", "All");
  if (!options.field_validation.empty()) query.emplace_back("fieldValidation", options.field_validation);
  return query;
}

void select(Query& query, const std::string& labels, const std::string& fields) {
  if (!labels.empty()) query.emplace_back("labelSelector", labels);
  if (!fields.empty()) query.emplace_back("fieldSelector", fields);
}

HttpRequest make_request(std::string method, std::string path, const Query& query) {
  HttpRequest request;
  request.method = std::move(method);
  request.path = std::move(path);
  request.query = build_query(query);
  request.headers["Accept"] = "application/json";
  return request;
}

void set_body(HttpRequest& request, const Json& body, std::string type = "application/json") {
  request.headers["Content-Type"] = std::move(type);
  request.body = to_text(body);
}

const char* patch_type(Patch how) {
  switch (how) {
    case Patch::kJson:
      return "application/json-patch+json";
    case Patch::kMerge:
      return "application/merge-patch+json";
    case Patch::kStrategic:
      return "application/strategic-merge-patch+json";
    case Patch::kApply:
      return "application/apply-patch+yaml";
  }
  return "application/json";
}

std::string_view reason_for(int status) {
  switch (status) {
    case 400:
      return "BadRequest";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "NotFound";
    case 405:
      return "MethodNotAllowed";
    case 406:
      return "NotAcceptable";
    case 409:
      return "Conflict";
    case 410:
      return "Expired";
    case 413:
      return "RequestEntityTooLarge";
    case 415:
      return "UnsupportedMediaType";
    case 422:
      return "Invalid";
    case 429:
      return "TooManyRequests";
    case 500:
      return "InternalError";
    case 503:
      return "ServiceUnavailable";
    case 504:
      return "Timeout";
    default:
      return "Unknown";
  }
}

ApiResult<> to_json(ApiResult<HttpResponse> response) {
  if (!response) return std::unexpected(std::move(response).error());
  if (response->body.empty()) return Json();
  auto value = parse_json_packed(response->body);
  if (value) return std::move(*value);
  ApiError error;
  error.fault = Code::kInvalid;
  error.reason = "InvalidAnswer";
  error.message = "the server's answer is not JSON: " + value.error().text();
  return std::unexpected(std::move(error));
}

}  // namespace

Error ApiError::error(std::string_view doing) const {
  Code code = Code::kUnknown;
  if (status == 0) {
    code = fault;
  } else if (not_found()) {
    code = Code::kNotFound;
  } else if (already_exists()) {
    code = Code::kExists;
  } else if (conflict() || expired()) {
    code = Code::kConflict;
  } else if (status == 401 || forbidden()) {
    code = Code::kPermission;
  } else if (status == 400 || status == 413 || invalid()) {
    code = Code::kInvalid;
  } else if (status == 405 || status == 406 || status == 415) {
    code = Code::kUnsupported;
  } else if (status == 504) {
    code = Code::kTimeout;
  } else if (unavailable()) {
    code = Code::kUnavailable;
  }
  Error out(code, message.empty() ? "HTTP status " + std::to_string(status) : message);
  return doing.empty() ? out : std::move(out).in(doing);
}

ApiError api_error_of(const Error& fault) {
  ApiError out;
  out.fault = fault.code();
  out.reason = fault.code() == Code::kTimeout ? "Timeout" : "Unreachable";
  out.message = fault.text();
  return out;
}

ApiError api_error_of(const Json& status) {
  ApiError out;
  out.status = static_cast<int>(get_int(status, {"code"}, 500));
  out.reason = get_string(status, {"reason"}, reason_for(out.status));
  out.message = get_string(status, {"message"});
  if (const Json* details = find(status, {"details"})) out.details = *details;
  if (const auto seconds = get_int(status, {"details", "retryAfterSeconds"}); seconds > 0) {
    out.retry_after = std::chrono::seconds(seconds);
  }
  return out;
}

ApiError api_error_of(const HttpResponse& response) {
  ApiError out;
  const auto parsed = parse_json(response.body);
  if (parsed && get_string(*parsed, {"kind"}) == "Status") {
    out = api_error_of(*parsed);
  } else {
    out.message = trim(std::string_view(response.body).substr(0, 512));
    if (out.message.empty()) out.message = "HTTP status " + std::to_string(response.status);
  }
  out.status = response.status;
  if (out.reason.empty()) out.reason = reason_for(response.status);
  if (const auto header = response.headers.find("Retry-After"); header != response.headers.end()) {
    if (const auto seconds = parse_int(trim(header->second)); seconds && *seconds >= 0) {
      out.retry_after = std::chrono::seconds(*seconds);
    }
  }
  return out;
}

Client::Client(Loop& loop, std::shared_ptr<Transport> transport, ClientOptions options,
               std::shared_ptr<Credentials> credentials)
    : impl_(std::make_shared<Impl>(loop, std::move(transport), std::move(options), std::move(credentials))) {}

Client::~Client() {
  impl_->shut();
}

Loop& Client::loop() const {
  return impl_->loop;
}
const ClientOptions& Client::options() const {
  return impl_->options;
}

Handle Client::get(const Resource& type, std::string_view ns, std::string_view name, Done done) {
  return impl_->call(make_request("GET", type.path(ns, name), {}), Lane::kRead, true, std::move(done));
}

Handle Client::list(const Resource& type, std::string_view ns, const ListOptions& options, Done done) {
  Query query;
  select(query, options.label_selector, options.field_selector);
  if (options.limit > 0) query.emplace_back("limit", std::to_string(options.limit));
  if (!options.continue_token.empty()) query.emplace_back("continue", options.continue_token);
  if (!options.resource_version.empty()) query.emplace_back("resourceVersion", options.resource_version);
  return impl_->call(make_request("GET", type.path(ns), query), Lane::kRead, true, std::move(done));
}

Handle Client::create(const Resource& type, std::string_view ns, const Json& object,
                      const WriteOptions& options, Done done) {
  // A subresource is made on the object that the body names ("binding", "eviction", "token").
  std::string path = options.subresource.empty()
                         ? type.path(ns)
                         : type.path(ns, get_string(object, {"metadata", "name"}), options.subresource);
  HttpRequest request =
      make_request("POST", std::move(path), write_query(options, impl_->options.field_manager));
  set_body(request, object);
  return impl_->call(std::move(request), Lane::kWrite, false, std::move(done));
}

Handle Client::update(const Resource& type, std::string_view ns, std::string_view name, const Json& object,
                      const WriteOptions& options, Done done) {
  HttpRequest request = make_request("PUT", type.path(ns, name, options.subresource),
                                     write_query(options, impl_->options.field_manager));
  set_body(request, object);
  return impl_->call(std::move(request), Lane::kWrite, false, std::move(done));
}

Handle Client::patch(const Resource& type, std::string_view ns, std::string_view name, Patch how,
                     const Json& body, const WriteOptions& options, Done done) {
  Query query = write_query(options, impl_->options.field_manager);
  if (how == Patch::kApply && options.force) query.emplace_back("force", "true");
  HttpRequest request = make_request("PATCH", type.path(ns, name, options.subresource), query);
  set_body(request, body, patch_type(how));
  const bool guarded = how != Patch::kJson && !get_string(body, {"metadata", "resourceVersion"}).empty();
  return impl_->call(std::move(request), Lane::kWrite, guarded, std::move(done));
}

Handle Client::remove(const Resource& type, std::string_view ns, std::string_view name,
                      const DeleteOptions& options, Done done) {
  HttpRequest request = make_request("DELETE", type.path(ns, name), {});
  JsonObject body;
  body["apiVersion"] = "v1";
  body["kind"] = "DeleteOptions";
  if (!options.propagation.empty()) body["propagationPolicy"] = options.propagation;
  if (options.grace_seconds) body["gracePeriodSeconds"] = *options.grace_seconds;
  if (!options.precondition_uid.empty())
    body["preconditions"] = JsonObject{{"uid", options.precondition_uid}};
  set_body(request, body);
  return impl_->call(std::move(request), Lane::kWrite, false, std::move(done));
}

Handle Client::raw(HttpRequest request, std::function<void(ApiResult<HttpResponse>)> done) {
  const bool read = request.method == "GET" || request.method == "HEAD";
  return impl_->submit(std::move(request), read ? Lane::kRead : Lane::kWrite, read, std::move(done));
}

Handle Client::raw_stream(HttpRequest request, StreamEvents events) {
  return impl_->stream(std::move(request), std::move(events));
}

namespace {

// The callbacks of one watch, kept alive while the stream runs.
struct WatchCall {
  WatchEvents events;
  WatchSplitter splitter;
  HttpResponse refusal;  // an answer that is not 200
  std::shared_ptr<bool> over = std::make_shared<bool>(false);

  void finish(ApiResult<void> how) {
    if (std::exchange(*over, true)) return;
    const auto end = std::move(events.end);
    events = {};
    if (end) end(std::move(how));
  }

  // Answers whether the stream goes on.
  bool take(Json document) {
    const std::string type = str(get_string(document, {"type"}));
    Json* object = find_mutable(document, {"object"});
    if (type.empty() || object == nullptr) {
      finish(std::unexpected(
          api_error_of(Error(Code::kInvalid, "read watch stream: an event without type or object"))));
    } else if (type == "ERROR") {
      finish(std::unexpected(api_error_of(*object)));
    } else {
      const auto event = events.event;
      if (event) event(type, std::move(*object));
    }
    return !*over;
  }
};

}  // namespace

Handle Client::watch(const Resource& type, std::string_view ns, const WatchOptions& options,
                     WatchEvents events) {
  const int seconds =
      options.timeout_seconds > 0 ? options.timeout_seconds : 300 + static_cast<int>(impl_->random(301));
  Query query{{"watch", "1"}, {"timeoutSeconds", std::to_string(seconds)}};
  select(query, options.label_selector, options.field_selector);
  if (!options.resource_version.empty()) query.emplace_back("resourceVersion", options.resource_version);
  if (options.bookmarks) query.emplace_back("allowWatchBookmarks", "true");
  if (options.send_initial_events) {
    query.emplace_back("sendInitialEvents", "true");
    query.emplace_back("resourceVersionMatch", "NotOlderThan");
  }

  auto call = std::make_shared<WatchCall>();
  call->events = std::move(events);
  StreamEvents stream;
  stream.begin = [call](int status, const Headers& headers) {
    call->refusal.status = status;
    call->refusal.headers = headers;
  };
  stream.data = [call](std::string_view bytes) {
    if (*call->over) return;
    if (call->refusal.status != 200) {
      if (call->refusal.body.size() < (1u << 20)) call->refusal.body += bytes;
      return;
    }
    const auto fed =
        call->splitter.feed(bytes, [&](Json document) { return call->take(std::move(document)); });
    if (!fed) call->finish(std::unexpected(api_error_of(fed.error())));
  };
  stream.end = [call](Result<> how) {
    if (!how) return call->finish(std::unexpected(api_error_of(how.error())));
    if (call->refusal.status != 200) return call->finish(std::unexpected(api_error_of(call->refusal)));
    if (!call->splitter.at_boundary()) {
      return call->finish(
          std::unexpected(api_error_of(Error(Code::kUnavailable, "the watch was cut inside an event"))));
    }
    call->finish({});
  };
  return impl_->stream(make_request("GET", type.path(ns), query), std::move(stream), call->over);
}

Handle Client::Impl::call(HttpRequest request, Lane lane, bool replayable, Done done) {
  return submit(
      std::move(request), lane, replayable,
      [done = std::move(done)](ApiResult<HttpResponse> response) { done(to_json(std::move(response))); });
}

namespace {

template <class T>
ApiResult<T> await_any(Loop& loop, const std::function<Handle(std::function<void(ApiResult<T>)>)>& start) {
  std::optional<ApiResult<T>> out;
  const Handle handle = start([&](ApiResult<T> result) { out = std::move(result); });
  // Requests bound themselves; the span only has to be longer than ten waits of Retry-After.
  loop.run_until([&] { return out.has_value(); }, 24h);
  if (out) return std::move(*out);
  ApiError error;
  error.fault = Code::kCancelled;
  error.reason = "Cancelled";
  error.message = "the loop was stopped before an answer came";
  return std::unexpected(std::move(error));
}

}  // namespace

ApiResult<> await(Loop& loop, const std::function<Handle(Client::Done)>& start) {
  return await_any<Json>(loop, start);
}

ApiResult<HttpResponse> await_raw(
    Loop& loop, const std::function<Handle(std::function<void(ApiResult<HttpResponse>)>)>& start) {
  return await_any<HttpResponse>(loop, start);
}

}  // namespace gpuop::kube
