#include "kube/reflector.h"

#include <algorithm>

#include "base/log.h"
#include "base/text.h"
#include "kube/calls.h"

namespace gpuop::kube {
namespace {

constexpr Duration kFirstDelay = 800ms;
constexpr Duration kLongestDelay = 30s;
constexpr Duration kQuiet = 2min;         // a fault after this much peace starts with the first delay again
constexpr Duration kShortWatch = 1500ms;  // ended so soon, with nothing sent, it counts as a fault
constexpr Duration kSilence = 30s;        // of an initial stream, before it is given up
constexpr Duration kRewatchSpan = 1min;   // 5xx answers to a watch are not worth a new list for so long
constexpr int kPage = 500;
constexpr const char* kInitialEnd = "k8s.io/initial-events-end";

bool version_is_ahead(const ApiError& error) {
  if (error.status != 504) return false;
  for (const Json& cause : get_array(error.details, {"causes"})) {
    if (get_string(cause, {"reason"}) == "ResourceVersionTooLarge") return true;
  }
  return error.message.find("Too large resource version") != std::string::npos;
}

}  // namespace

Reflector::Reflector(Client& client, const Resource& type, InformerOptions options, ReflectorSink& sink)
    : client_(client),
      type_(type),
      options_(std::move(options)),
      projection_(type_, options_.keep, options_.drop),
      sink_(&sink),
      random_(fnv1a32(type_.path(options_.ns) + options_.label_selector + options_.field_selector)) {}

void Reflector::start() {
  run(Step::kSync);
}

void Reflector::stop() {
  sink_ = nullptr;
  call_.reset();
  timer_.reset();
  silence_.reset();
}

void Reflector::run(Step step) {
  if (sink_ == nullptr) return;
  if (step == Step::kSync) {
    sync();
  } else {
    open_watch();
  }
}

void Reflector::sync() {
  collected_.clear();
  if (!may_stream_ || !options_.watch_list.value_or(true)) {
    return list(list_from_quorum_ || options_.paged ? "" : (version_.empty() ? "0" : version_), "");
  }
  if (options_.watch_list) return open_initial_stream();
  client_.impl()->if_at_least(34, [weak = weak_from_this()](ApiResult<bool> can_stream) {
    const auto self = weak.lock();
    if (!self || self->sink_ == nullptr) return;
    // A server that does not tell its version may still list.
    if (!can_stream && can_stream.error().unavailable()) return self->failed(can_stream.error(), Step::kSync);
    self->options_.watch_list = can_stream.value_or(false);
    self->sync();
  });
}

void Reflector::list(std::string version, std::string continue_token) {
  if (continue_token.empty()) ++lists_;
  ListOptions options;
  options.label_selector = options_.label_selector;
  options.field_selector = options_.field_selector;
  options.continue_token = std::move(continue_token);
  if (options.continue_token.empty()) options.resource_version = version;
  // From the server's cache everything comes at once; only a read of the store itself is paged.
  if (version.empty()) options.limit = kPage;
  call_ = client_.list(type_, options_.ns, options, [weak = weak_from_this(), version](ApiResult<> page) {
    const auto self = weak.lock();
    if (self && self->sink_ != nullptr) self->listed(version, std::move(page));
  });
}

void Reflector::listed(const std::string& version, ApiResult<> page) {
  if (!page) {
    const ApiError& error = page.error();
    const bool stale = error.expired() || version_is_ahead(error);
    if (!stale) return failed(error, Step::kSync);
    const bool first = !list_from_quorum_;
    list_from_quorum_ = true;
    // The snapshot that the pages were read from is gone, or the cache is behind: at once from the store.
    return first ? sync() : failed(error, Step::kSync);
  }
  if (Json* items = find_mutable(*page, {"items"}); items != nullptr && items->is_array()) {
    for (Json& item : items->get_array()) {
      std::string key = object_key(item);
      collected_.insert_or_assign(std::move(key), kept(std::move(item)));
    }
  }
  std::string more = str(get_string(*page, {"metadata", "continue"}));
  if (!more.empty()) return list(version, std::move(more));
  list_from_quorum_ = false;
  complete(str(get_string(*page, {"metadata", "resourceVersion"})));
  run(Step::kWatch);
}

// Everything that was collected becomes the cache's content.
void Reflector::complete(std::string version) {
  version_ = std::move(version);
  fault_.clear();
  synced_at_ = client_.loop().elapsed();
  if (std::exchange(told_, false)) log::info("collection is followed again", {{"resource", type_.plural}});
  sink_->replace(std::exchange(collected_, {}));
}

void Reflector::open_initial_stream() {
  ++lists_;
  collecting_ = true;
  WatchOptions options;
  options.send_initial_events = true;
  open(options);
  if (sink_ == nullptr) return;
  heard_ = client_.loop().elapsed();
  guard_silence(kSilence);
}

void Reflector::guard_silence(Duration span) {
  silence_ = client_.loop().after(span, [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (!self || self->sink_ == nullptr || !self->collecting_) return;
    const Duration silent = self->client_.loop().elapsed() - self->heard_;
    if (silent < kSilence) return self->guard_silence(kSilence - silent);
    self->call_.reset();
    self->initial_stream_failed(api_error_of(Error(
        Code::kTimeout, "the initial stream was silent for 30s: this server ignores sendInitialEvents")));
  });
}

void Reflector::open_watch() {
  collecting_ = false;
  WatchOptions options;
  options.resource_version = version_;
  open(options);
}

void Reflector::open(const WatchOptions& options) {
  ++watches_;
  events_ = 0;
  opened_ = client_.loop().elapsed();
  WatchOptions all = options;
  all.label_selector = options_.label_selector;
  all.field_selector = options_.field_selector;
  WatchEvents events;
  events.event = [weak = weak_from_this()](std::string_view type, Json object) {
    const auto self = weak.lock();
    if (self && self->sink_ != nullptr) self->event(type, std::move(object));
  };
  events.end = [weak = weak_from_this()](ApiResult<void> how) {
    const auto self = weak.lock();
    if (self && self->sink_ != nullptr) self->ended(std::move(how));
  };
  call_ = client_.watch(type_, options_.ns, all, std::move(events));
}

Kept Reflector::kept(Json object) {
  if (!options_.compact) return Kept(projection_.apply(std::move(object)));
  return Kept(Compact(projection_.cut_down(std::move(object)), parts_));
}

void Reflector::event(std::string_view type, Json object) {
  ++events_;
  failing_since_.reset();
  std::string version = str(get_string(object, {"metadata", "resourceVersion"}));
  if (type == "BOOKMARK") {
    if (!collecting_) {
      version_ = std::move(version);
      fault_.clear();
    } else if (get_string(object, {"metadata", "annotations", kInitialEnd}) == "true") {
      collecting_ = false;
      silence_.reset();
      complete(std::move(version));
    }
    return;
  }
  std::string key = object_key(object);
  if (collecting_) {
    heard_ = client_.loop().elapsed();
    if (type == "DELETED") {
      collected_.erase(key);
    } else {
      collected_.insert_or_assign(std::move(key), kept(std::move(object)));
    }
    return;
  }
  version_ = std::move(version);
  fault_.clear();
  if (type == "DELETED") {
    sink_->removed(key);
  } else if (type == "ADDED" || type == "MODIFIED") {
    sink_->upsert(std::move(key), kept(std::move(object)));
  }
}

void Reflector::ended(ApiResult<void> how) {
  silence_.reset();
  call_.detach();
  if (collecting_) {
    return initial_stream_failed(
        how ? api_error_of(Error(Code::kUnavailable, "the initial stream ended early")) : how.error());
  }
  if (!how) return watch_failed(how.error());
  failing_since_.reset();
  if (events_ == 0 && client_.loop().elapsed() - opened_ <= kShortWatch) {
    fault_ = "watch " + std::string(type_.plural) + ": closed at once, with nothing sent";
    return retry(Step::kWatch);
  }
  run(Step::kWatch);
}

void Reflector::initial_stream_failed(const ApiError& error) {
  collecting_ = false;
  collected_.clear();
  const bool refused = error.status >= 400 && error.status < 500 && error.status != 429 && !error.expired();
  const bool silent = error.status == 0 && error.fault == Code::kTimeout;
  if (refused || silent) {
    // A kind that is not there is no matter of how it is read.
    if (!error.not_found())
      log::info("watch-list is not offered, listing instead",
                {{"resource", type_.plural}, {"why", error.message}});
    may_stream_ = false;
    return sync();
  }
  failed(error, Step::kSync);
}

void Reflector::watch_failed(const ApiError& error) {
  if (error.expired()) {
    fault_ = error.error("watch " + std::string(type_.plural)).text();
    // The history that we need is gone: list again, at once unless that has just been done.
    list_from_quorum_ = true;
    if (client_.loop().elapsed() - synced_at_ <= kShortWatch) return retry(Step::kSync);
    return sync();
  }
  if (error.status == 0 && events_ > 0) {
    // A connection that worked was cut: try the next one at once.
    fault_ = error.message;
    return run(Step::kWatch);
  }
  if (error.status >= 500) {
    const Duration now = client_.loop().elapsed();
    if (!failing_since_) failing_since_ = now;
    if (now - *failing_since_ >= kRewatchSpan) {
      failing_since_.reset();
      return failed(error, Step::kSync);
    }
    return failed(error, Step::kWatch);
  }
  failed(error, error.status == 0 || error.status == 429 ? Step::kWatch : Step::kSync);
}

void Reflector::failed(const ApiError& error, Step next) {
  collected_.clear();
  const std::string doing = std::string(next == Step::kSync ? "list " : "watch ") + std::string(type_.plural);
  fault_ = error.error(doing).text();
  // A kind or a right that was there and was taken away does not come back by itself.
  const bool taken = synced_at_ >= Duration::zero() && (error.status == 403 || error.status == 404);
  if (taken && !std::exchange(told_, true)) {
    log::error("collection is not followed any more, what it holds stands still",
               {{"resource", type_.plural}, {"why", fault_}});
  } else {
    log::debug("collection is not followed", {{"resource", type_.plural}, {"why", fault_}});
  }
  retry(next, error.retry_after);
}

Duration Reflector::next_delay() {
  const Duration now = client_.loop().elapsed();
  if (delay_ == Duration::zero() || now - last_backoff_ - delay_ >= kQuiet) {
    delay_ = kFirstDelay;
  } else {
    delay_ = std::min(delay_ * 2, kLongestDelay);
  }
  last_backoff_ = now;
  const double jitter = 1.0 + static_cast<double>(random_() % 1000) / 1000.0;
  return std::min<Duration>(std::chrono::duration_cast<Duration>(delay_ * jitter), kLongestDelay);
}

void Reflector::retry(Step next, std::optional<Duration> at_least) {
  const Duration delay = std::max(next_delay(), at_least.value_or(Duration::zero()));
  timer_ = client_.loop().after(delay, [weak = weak_from_this(), next] {
    if (const auto self = weak.lock()) self->run(next);
  });
}

}  // namespace gpuop::kube
