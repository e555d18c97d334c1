#include "kube/events.h"

#include <algorithm>
#include <cstdio>
#include <deque>
#include <list>
#include <set>
#include <unordered_map>

#include "base/log.h"
#include "kube/calls.h"
#include "kube/object.h"

namespace gpuop::kube {
namespace {

constexpr std::size_t kMaxQueue = 1000;
constexpr std::size_t kMaxRemembered = 4096;
constexpr std::size_t kMaxMessage = 1024;
constexpr std::size_t kSimilar = 10;  // with different messages; the next one is combined
constexpr Duration kSimilarSpan = 600s;
constexpr int kSpamBurst = 25;          // per object
constexpr Duration kSpamRefill = 300s;  // one more
constexpr int kTries = 12;
constexpr Duration kTryGap = 10s;
constexpr std::string_view kCombined = "(combined from similar events): ";

// A map that forgets what was used least recently.
template <class Value>
class Memory {
 public:
  Value& operator[](const std::string& key) {
    const auto found = entries_.find(key);
    if (found != entries_.end()) {
      order_.splice(order_.begin(), order_, found->second);
      return order_.front().second;
    }
    order_.emplace_front(key, Value());
    entries_[key] = order_.begin();
    if (order_.size() > kMaxRemembered) {
      entries_.erase(order_.back().first);
      order_.pop_back();
    }
    return order_.front().second;
  }

 private:
  std::list<std::pair<std::string, Value>> order_;
  std::unordered_map<std::string, typename std::list<std::pair<std::string, Value>>::iterator> entries_;
};

// Cut at a character, not inside one.
std::string cut_message(std::string text) {
  if (text.size() <= kMaxMessage) return text;
  std::size_t end = kMaxMessage;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  text.resize(end);
  return text;
}

}  // namespace

struct EventRecorder::Impl : std::enable_shared_from_this<EventRecorder::Impl> {
  struct Bucket {
    double tokens = kSpamBurst;
    Duration at{0};
  };
  struct Similar {
    std::set<std::string> messages;
    Duration last{0};
  };
  struct Written {
    std::string name;  // of the Event object; empty: none yet
    int count = 0;
  };
  struct Job {
    std::string key, ns;
    Json event;  // as it is created
    int tries = 0;
  };

  Impl(Client& c, std::string comp, std::string h)
      : client(c), component(std::move(comp)), host(std::move(h)) {}

  void record(const Json& object, std::string_view type, std::string_view reason, std::string_view text) {
    const std::string about = str(get_string(object, {"kind"})) + "/" + str(namespace_of(object)) + "/" +
                              str(name_of(object)) + "/" + str(uid_of(object)) + "/" +
                              str(get_string(object, {"apiVersion"}));
    if (is_spam(about)) return log::debug("event dropped: too many for this object", {{"object", about}});
    std::string message(text);
    const std::string similar_key = about + "|" + str(type) + "|" + str(reason);
    std::string key = similar_key + "|" + message;
    if (combines(similar_key, message)) {
      message = std::string(kCombined) + message;
      key = similar_key;
    }
    if (queue.size() >= kMaxQueue) return log::warn("event dropped: the queue is full", {{"reason", reason}});
    const std::string_view ns = namespace_of(object);
    Job job{std::move(key), ns.empty() ? "default" : str(ns), {}, 0};
    job.event = make_event(object, type, reason, cut_message(std::move(message)), job.ns);
    queue.push_back(std::move(job));
    pump();
  }

  bool is_spam(const std::string& about) {
    Bucket& bucket = buckets[about];
    const Duration now = client.loop().elapsed();
    const double refill = std::chrono::duration<double>(now - bucket.at).count() /
                          std::chrono::duration<double>(kSpamRefill).count();
    bucket.tokens = std::min<double>(kSpamBurst, bucket.tokens + refill);
    bucket.at = now;
    if (bucket.tokens < 1) return true;
    bucket.tokens -= 1;
    return false;
  }

  bool combines(const std::string& key, const std::string& message) {
    Similar& similar = similars[key];
    const Duration now = client.loop().elapsed();
    if (now - similar.last > kSimilarSpan) similar.messages.clear();
    similar.last = now;
    if (similar.messages.contains(message)) return false;
    if (similar.messages.size() >= kSimilar) return true;
    similar.messages.insert(message);
    return false;
  }

  Json make_event(const Json& object, std::string_view type, std::string_view reason,
                  const std::string& message, const std::string& ns) {
    const std::string now = format_time(client.loop().now());
    JsonObject involved;
    for (const auto& [key, value] :
         {std::pair<const char*, std::string_view>{"kind", get_string(object, {"kind"})},
          {"namespace", namespace_of(object)},
          {"name", name_of(object)},
          {"uid", uid_of(object)},
          {"apiVersion", get_string(object, {"apiVersion"})},
          {"resourceVersion", get_string(object, {"metadata", "resourceVersion"})}}) {
      if (!value.empty()) involved[key] = value;
    }
    JsonObject metadata{{"name", str(name_of(object)) + "." + stamp()}, {"namespace", ns}};
    JsonObject source{{"component", component}};
    if (!host.empty()) source["host"] = host;
    JsonObject out{{"apiVersion", "v1"}, {"kind", "Event"}};
    out["metadata"] = std::move(metadata);
    out["involvedObject"] = std::move(involved);
    out["reason"] = reason;
    out["message"] = message;
    out["source"] = std::move(source);
    out["firstTimestamp"] = now;
    out["lastTimestamp"] = now;
    out["count"] = 1;
    out["type"] = type;
    out["eventTime"] = nullptr;
    out["reportingComponent"] = component;
    out["reportingInstance"] = host;
    return out;
  }

  // Unique for this client even where the clock stands still.
  std::string stamp() {
    std::int64_t& last = client.impl()->last_event_stamp;
    last = std::max(last + 1, std::int64_t(client.loop().now().time_since_epoch().count()));
    char hex[32];
    std::snprintf(hex, sizeof hex, "%llx", static_cast<unsigned long long>(last));
    return hex;
  }

  // One write at a time: a count must not overtake the creation that it counts on.
  void pump() {
    if (busy || queue.empty()) return;
    busy = true;
    Job& job = queue.front();
    Written& written = memory[job.key];
    const auto done = [weak = weak_from_this()](ApiResult<> result) {
      if (const auto self = weak.lock()) self->answered(std::move(result));
    };
    if (written.name.empty()) {
      call = client.create(kEvents, job.ns, job.event, {}, done);
      return;
    }
    JsonObject patch{{"count", written.count + 1}};
    patch["lastTimestamp"] = get_string(job.event, {"lastTimestamp"});
    patch["message"] = get_string(job.event, {"message"});
    call = client.patch(kEvents, job.ns, written.name, Patch::kMerge, patch, {}, done);
  }

  void answered(ApiResult<> result) {
    Job& job = queue.front();
    Written& written = memory[job.key];
    if (result) {
      if (written.name.empty()) written = {str(get_string(job.event, {"metadata", "name"})), 0};
      ++written.count;
      return next(true);
    }
    const ApiError& error = result.error();
    if (error.not_found() && !written.name.empty()) {
      // Events end after an hour; this one starts anew.
      written = {};
      return next(false);
    }
    if (error.already_exists() && ++job.tries < kTries) {
      // Another client had something to say of the same object in the same instant.
      const std::string about = str(get_string(job.event, {"involvedObject", "name"}));
      set(job.event, {"metadata", "name"}, Json(about + "." + stamp()));
      return next(false);
    }
    if (error.unavailable() && ++job.tries < kTries) {
      timer = client.loop().after(kTryGap, [weak = weak_from_this()] {
        if (const auto self = weak.lock()) self->next(false);
      });
      return;
    }
    log::warn("event is lost", {{"reason", get_string(job.event, {"reason"})}, {"why", error.message}});
    next(true);
  }

  void next(bool drop) {
    if (drop) queue.pop_front();
    busy = false;
    pump();
  }

  Client& client;
  std::string component, host;
  std::deque<Job> queue;
  bool busy = false;
  Memory<Bucket> buckets;
  Memory<Similar> similars;
  Memory<Written> memory;
  Handle call, timer;
};

EventRecorder::EventRecorder(Client& client, std::string component, std::string host)
    : impl_(std::make_shared<Impl>(client, std::move(component), std::move(host))) {}

EventRecorder::~EventRecorder() {
  impl_->call.reset();
  impl_->timer.reset();
}

void EventRecorder::event(const Json& object, std::string_view type, std::string_view reason,
                          std::string_view message) {
  impl_->record(object, type, reason, message);
}

}  // namespace gpuop::kube
