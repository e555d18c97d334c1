#include "kube/calls.h"

#include <algorithm>

#include "base/text.h"

namespace gpuop::kube {
namespace {

constexpr int kMaxRetries = 10;
// A plain 5xx on a read, or on a write whose repeat does no harm, is tried again this often at most: the
// callers' own back-off takes over then.
constexpr int kMaxBlindRetries = 3;

}  // namespace

struct Client::Impl::StreamCall {
  HttpRequest request;
  StreamEvents events;
  Handle transfer;
  std::shared_ptr<bool> cancelled;
  bool refreshed = false;
  bool over = false;

  void cancel() {
    over = true;
    if (cancelled) *cancelled = true;
    transfer.reset();
    events = {};
  }
};

Client::Impl::Impl(Loop& l, std::shared_ptr<Transport> t, ClientOptions o, std::shared_ptr<Credentials> c)
    : loop(l), transport(std::move(t)), options(std::move(o)), credentials(std::move(c)) {
  reads_.limit = std::max(1, options.max_reads);
  writes_.limit = std::max(1, options.max_writes);
}

std::uint32_t Client::Impl::random(std::uint32_t below) {
  return static_cast<std::uint32_t>(random_() % below);
}

void Client::Impl::decorate(HttpRequest& request) {
  request.headers["User-Agent"] = options.user_agent;
  if (credentials) credentials->apply(request);
}

Handle Client::Impl::submit(HttpRequest request, Lane lane, bool replayable,
                            std::function<void(ApiResult<HttpResponse>)> done) {
  auto call = std::make_shared<PendingCall>();
  call->request = std::move(request);
  call->lane = lane;
  call->replayable = replayable || lane == Lane::kRead;
  call->done = std::move(done);
  calls_.emplace(call.get(), call);
  LaneState& state = lane_of(*call);
  state.waiting.push_back(call);
  pump(state);
  return Handle([weak = weak_from_this(), weak_call = std::weak_ptr(call)] {
    const auto self = weak.lock();
    const auto target = weak_call.lock();
    if (self && target) self->cancel(target);
  });
}

void Client::Impl::pump(LaneState& lane) {
  while (!shut_ && lane.running < lane.limit && !lane.waiting.empty()) {
    const CallPtr call = std::move(lane.waiting.front());
    lane.waiting.pop_front();
    if (call->over) continue;
    start(call);
  }
}

void Client::Impl::start(const CallPtr& call) {
  ++lane_of(*call).running;
  call->running = true;
  HttpRequest request = call->request;
  decorate(request);
  const auto weak = weak_from_this();
  const std::weak_ptr<PendingCall> weak_call = call;
  if (options.timeout > Duration::zero()) {
    call->timer = loop.after(options.timeout, [weak, weak_call] {
      const auto self = weak.lock();
      const auto target = weak_call.lock();
      if (!self || !target || target->over) return;
      self->answered(target, fail(Code::kTimeout, target->request.method + " '" + target->request.path +
                                                      "': no answer within " +
                                                      format_go_duration(self->options.timeout)));
    });
  }
  call->transfer = transport->send(std::move(request), [weak, weak_call](Result<HttpResponse> response) {
    const auto self = weak.lock();
    const auto target = weak_call.lock();
    if (self && target && !target->over) self->answered(target, std::move(response));
  });
}

void Client::Impl::leave_lane(PendingCall& call) {
  call.timer.reset();
  call.transfer.reset();
  if (!call.running) return;
  call.running = false;
  --lane_of(call).running;
}

std::optional<Duration> Client::Impl::retry_delay(const PendingCall& call, const ApiError& error) const {
  const bool overloaded = error.status == 429;
  const bool broken = error.status >= 500;
  if ((overloaded || broken) && error.retry_after) {
    return call.retries < kMaxRetries ? std::optional<Duration>(*error.retry_after) : std::nullopt;
  }
  if (overloaded && call.retries < kMaxRetries) {
    return std::min<Duration>(std::chrono::seconds(1LL << call.retries), 30s);
  }
  if (broken && call.replayable && call.retries < kMaxBlindRetries) {
    return std::chrono::milliseconds(100LL << call.retries);
  }
  return std::nullopt;
}

void Client::Impl::answered(const CallPtr& call, Result<HttpResponse> response) {
  const auto keep = shared_from_this();
  leave_lane(*call);
  if (!response) return finish(call, std::unexpected(api_error_of(response.error())));
  if (response->status >= 200 && response->status < 300) return finish(call, std::move(*response));
  ApiError error = api_error_of(*response);
  if (error.status == 401 && !call->refreshed && credentials && credentials->refresh()) {
    call->refreshed = true;
    return again(call, Duration::zero());
  }
  if (const auto delay = retry_delay(*call, error)) {
    ++call->retries;
    return again(call, *delay);
  }
  finish(call, std::unexpected(std::move(error)));
}

void Client::Impl::again(const CallPtr& call, Duration delay) {
  call->timer = loop.after(delay, [weak = weak_from_this(), weak_call = std::weak_ptr(call)] {
    const auto self = weak.lock();
    const auto target = weak_call.lock();
    if (!self || !target || target->over) return;
    LaneState& lane = self->lane_of(*target);
    lane.waiting.push_front(target);
    self->pump(lane);
  });
  pump(lane_of(*call));
}

void Client::Impl::finish(const CallPtr& call, ApiResult<HttpResponse> result) {
  call->over = true;
  calls_.erase(call.get());
  // The next in line goes out before the callback, which may take its time or destroy the client.
  pump(lane_of(*call));
  const auto done = std::move(call->done);
  call->done = nullptr;
  if (done) done(std::move(result));
}

void Client::Impl::cancel(const CallPtr& call) {
  if (call->over) return;
  call->over = true;
  leave_lane(*call);
  call->done = nullptr;
  calls_.erase(call.get());
  pump(lane_of(*call));
}

Handle Client::Impl::stream(HttpRequest request, StreamEvents events, std::shared_ptr<bool> cancelled) {
  auto call = std::make_shared<StreamCall>();
  call->request = std::move(request);
  call->events = std::move(events);
  call->cancelled = std::move(cancelled);
  streams_.emplace(call.get(), call);
  start_stream(call);
  return Handle([weak = weak_from_this(), weak_call = std::weak_ptr(call)] {
    const auto target = weak_call.lock();
    if (!target) return;
    target->cancel();
    if (const auto self = weak.lock()) self->streams_.erase(target.get());
  });
}

void Client::Impl::start_stream(const std::shared_ptr<StreamCall>& call) {
  HttpRequest request = call->request;
  decorate(request);
  const auto weak = weak_from_this();
  const std::weak_ptr<StreamCall> weak_call = call;
  StreamEvents events;
  events.begin = [weak, weak_call](int status, const Headers& headers) {
    const auto self = weak.lock();
    const auto target = weak_call.lock();
    if (!self || !target || target->over) return;
    if (status == 401 && !target->refreshed && self->credentials && self->credentials->refresh()) {
      target->refreshed = true;
      // A new transfer replaces this one; not from inside its own callback.
      self->loop.post([weak, weak_call] {
        const auto again = weak.lock();
        const auto stream = weak_call.lock();
        if (again && stream && !stream->over) again->start_stream(stream);
      });
      target->transfer.reset();
      return;
    }
    const auto begin = target->events.begin;
    if (begin) begin(status, headers);
  };
  events.data = [weak_call](std::string_view bytes) {
    const auto target = weak_call.lock();
    if (!target || target->over) return;
    const auto data = target->events.data;
    if (data) data(bytes);
  };
  events.end = [weak, weak_call](Result<> how) {
    const auto target = weak_call.lock();
    if (!target || target->over) return;
    target->over = true;
    if (const auto self = weak.lock()) self->streams_.erase(target.get());
    const auto end = std::move(target->events.end);
    target->events = {};
    if (end) end(std::move(how));
  };
  call->transfer = transport->stream(std::move(request), std::move(events));
}

void Client::Impl::if_at_least(int minor, std::function<void(ApiResult<bool>)> done) {
  if (server_minor_ >= 0) return done(server_minor_ >= minor);
  version_waiters_.emplace_back(minor, std::move(done));
  if (std::exchange(asking_version_, true)) return;
  HttpRequest request;
  request.path = "/version";
  submit(std::move(request), Lane::kRead, true, [this](ApiResult<HttpResponse> response) {
    const auto keep = shared_from_this();
    asking_version_ = false;
    if (response) {
      // Vendors write "34+".
      const auto parsed = parse_json(response->body);
      std::string digits = parsed ? str(get_string(*parsed, {"minor"})) : std::string();
      digits.resize(std::min(digits.find_first_not_of("0123456789"), digits.size()));
      server_minor_ = static_cast<int>(parse_int(digits).value_or(0));
    }
    for (auto& [wanted, waiter] : std::exchange(version_waiters_, {})) {
      if (shut_) return;
      if (response) {
        waiter(server_minor_ >= wanted);
      } else {
        waiter(std::unexpected(response.error()));
      }
    }
  }).detach();
}

void Client::Impl::shut() {
  shut_ = true;
  version_waiters_.clear();
  for (const auto& [key, call] : std::exchange(calls_, {})) {
    call->over = true;
    call->done = nullptr;
    call->timer.reset();
    call->transfer.reset();
  }
  for (const auto& [key, call] : std::exchange(streams_, {})) {
    call->cancel();
  }
  reads_.waiting.clear();
  writes_.waiting.clear();
}

}  // namespace gpuop::kube
