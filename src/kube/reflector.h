// Follows one collection of the API server: a list and a watch, or one stream that is both; and comes back
// after every fault (kubernetes-api.md §17.1).
#pragma once

#include <map>
#include <memory>
#include <random>
#include <string>

#include "kube/client.h"
#include "kube/informer.h"
#include "kube/projection.h"

namespace gpuop::kube {

// What a reflector feeds. A call may destroy the reflector's owner.
class ReflectorSink {
 public:
  virtual ~ReflectorSink() = default;
  // The whole collection, in place of what was known.
  virtual void replace(std::map<std::string, Kept> objects) = 0;
  virtual void upsert(std::string key, Kept object) = 0;
  virtual void removed(const std::string& key) = 0;
};

class Reflector : public std::enable_shared_from_this<Reflector> {
 public:
  // `sink` outlives every call up to stop().
  Reflector(Client& client, const Resource& type, InformerOptions options, ReflectorSink& sink);
  void start();
  void stop();

  int lists() const { return lists_; }
  int watches() const { return watches_; }
  const std::string& fault() const { return fault_; }

 private:
  enum class Step { kSync, kWatch };

  void sync();
  void list(std::string version, std::string continue_token);
  void listed(const std::string& version, ApiResult<> page);
  void open_initial_stream();
  void open_watch();
  void open(const WatchOptions& options);
  void guard_silence(Duration span);
  Kept kept(Json object);
  void event(std::string_view type, Json object);
  void ended(ApiResult<void> how);
  void initial_stream_failed(const ApiError& error);
  void watch_failed(const ApiError& error);
  void complete(std::string version);
  void failed(const ApiError& error, Step next);
  void retry(Step next, std::optional<Duration> at_least = std::nullopt);
  void run(Step step);
  Duration next_delay();

  Client& client_;
  Resource type_;
  InformerOptions options_;
  Projection projection_;
  PartsTable parts_;
  ReflectorSink* sink_;
  std::minstd_rand random_;

  std::map<std::string, Kept> collected_;  // a list or initial stream under way
  bool collecting_ = false;                // the open stream has not sent its initial-events-end bookmark yet
  bool may_stream_ = true;                 // the server takes sendInitialEvents, as far as we know
  bool list_from_quorum_ = false;          // the cache's version was refused; ask for the newest
  std::string version_;                    // the last one seen; empty before the first list
  Duration heard_{0};                      // when the initial stream last said something
  int events_ = 0;                         // of the open watch
  Duration opened_{0};
  Duration synced_at_{-1h};                // when the cache was last known to be whole
  std::optional<Duration> failing_since_;  // 5xx answers to the watch, on end

  Duration delay_{0};  // of the last back-off
  Duration last_backoff_{0};
  Handle call_;
  Handle timer_;
  Handle silence_;
  int lists_ = 0;
  int watches_ = 0;
  std::string fault_;
  bool told_ = false;  // that the collection is not there any more
};

}  // namespace gpuop::kube
