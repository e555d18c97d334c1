// The client's inside: requests in two lanes with a limit each, retried as kubernetes-api.md §17.4 says.
#pragma once

#include <deque>
#include <memory>
#include <random>
#include <unordered_map>

#include "kube/client.h"

namespace gpuop::kube {

enum class Lane { kRead, kWrite };

struct PendingCall {
  HttpRequest request;
  Lane lane = Lane::kRead;
  bool replayable = false;  // a repeat after an answer that says nothing of what was done does no harm
  std::function<void(ApiResult<HttpResponse>)> done;
  int retries = 0;
  bool refreshed = false;  // credentials were renewed for it once
  bool running = false;    // holds a place in its lane
  bool over = false;
  Handle transfer;  // the transport's
  Handle timer;     // the deadline while running, the delay while waiting
};

struct Client::Impl : std::enable_shared_from_this<Client::Impl> {
  Impl(Loop& l, std::shared_ptr<Transport> t, ClientOptions o, std::shared_ptr<Credentials> c);

  Handle submit(HttpRequest request, Lane lane, bool replayable,
                std::function<void(ApiResult<HttpResponse>)> done);
  Handle call(HttpRequest request, Lane lane, bool replayable, Done done);
  // `cancelled`, where given, becomes true when the handle is dropped or the client goes.
  Handle stream(HttpRequest request, StreamEvents events, std::shared_ptr<bool> cancelled = nullptr);
  void shut();
  // Whether the server is of that minor version of Kubernetes 1 or newer; asked for once. An error when it
  // cannot be asked. `done` may come at once.
  void if_at_least(int minor, std::function<void(ApiResult<bool>)> done);
  std::uint32_t random(std::uint32_t below);

  Loop& loop;
  std::shared_ptr<Transport> transport;
  ClientOptions options;
  std::shared_ptr<Credentials> credentials;
  std::int64_t last_event_stamp = 0;  // names of Events are made of it

 private:
  using CallPtr = std::shared_ptr<PendingCall>;
  struct LaneState {
    int limit = 0;
    int running = 0;
    std::deque<CallPtr> waiting;
  };
  struct StreamCall;

  LaneState& lane_of(const PendingCall& call) { return call.lane == Lane::kRead ? reads_ : writes_; }
  void pump(LaneState& lane);
  void start(const CallPtr& call);
  void answered(const CallPtr& call, Result<HttpResponse> response);
  void again(const CallPtr& call, Duration delay);
  void leave_lane(PendingCall& call);
  void finish(const CallPtr& call, ApiResult<HttpResponse> result);
  void cancel(const CallPtr& call);
  void start_stream(const std::shared_ptr<StreamCall>& call);
  void decorate(HttpRequest& request);
  std::optional<Duration> retry_delay(const PendingCall& call, const ApiError& error) const;

  int server_minor_ = -1;  // unknown
  bool asking_version_ = false;
  std::vector<std::pair<int, std::function<void(ApiResult<bool>)>>> version_waiters_;
  LaneState reads_;
  LaneState writes_;
  std::unordered_map<PendingCall*, CallPtr> calls_;  // every call that is not over
  std::unordered_map<StreamCall*, std::shared_ptr<StreamCall>> streams_;
  std::minstd_rand random_{0x6770756f};
  bool shut_ = false;
};

// What a Status object, an answer or a transport fault says.
ApiError api_error_of(const Json& status);
ApiError api_error_of(const HttpResponse& response);
ApiError api_error_of(const Error& fault);

}  // namespace gpuop::kube
