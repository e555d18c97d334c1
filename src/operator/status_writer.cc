#include "operator/status_writer.h"

#include <utility>

#include "base/log.h"
#include "kube/object.h"

namespace gpuop::op {
namespace {

// States in which nothing is wrong.
bool is_normal(const Outcome& outcome) {
  return outcome.ready || outcome.state == "ignored" || outcome.state == "disabled" ||
         outcome.reason == "Reconciling" || outcome.reason == "OperandNotReady" ||
         outcome.reason == "DriverNotReady";
}

}  // namespace

StatusWriter::StatusWriter(kube::Client& client, ClusterCache& cache, kube::EventRecorder& events)
    : client_(client),
      cache_(cache),
      events_(events),
      writes_(client.loop(),
              [this](const std::string& key, std::function<void(bool)> done) { send(key, std::move(done)); },
              {.base_delay = 100ms, .max_delay = 3s, .workers = 8}) {}

void StatusWriter::write(const kube::Resource& type, const Json& object, const Outcome& outcome,
                         const StatusNotes& notes) {
  const std::string name(kube::name_of(object));
  const std::string key = std::string(type.kind) + "/" + name;
  objects_[key].wish =
      Wish{type,    name, std::string(kube::uid_of(object)), get_int(object, {"metadata", "generation"}),
           outcome, notes};
  writes_.add(key);
}

// The object that the wish is about as it is now, for all that we know; null when it is gone, or another has
// its name.
std::shared_ptr<const Json> StatusWriter::live(Entry& entry) const {
  auto cached = cache_.of(entry.wish->type).get(entry.wish->name);
  if (!cached || kube::uid_of(*cached) != entry.wish->uid) return nullptr;
  const bool ahead = entry.written && kube::uid_of(*entry.written) == entry.wish->uid &&
                     version_of(*cached) < version_of(*entry.written);
  if (ahead) return entry.written;
  entry.written.reset();
  return cached;
}

void StatusWriter::send(const std::string& key, std::function<void(bool)> done) {
  Entry& entry = objects_[key];
  if (!entry.wish) return done(true);
  const auto before = live(entry);
  if (!before) {
    objects_.erase(key);
    return done(true);
  }
  const Wish wish = *std::exchange(entry.wish, std::nullopt);
  Json status = status_of(*before, wish.outcome, wish.notes, cache_.ns(), client_.loop().now());
  set(status, {"observedGeneration"}, wish.generation);
  const Json* present = find(*before, {"status"});
  if (!entry.unsure && present && same_status(*present, status)) return done(true);
  kube::WriteOptions options;
  options.subresource = "status";
  client_
      .patch(wish.type, "", wish.name, kube::Patch::kMerge, JsonObject{{"status", std::move(status)}},
             options,
             [this, key, wish, before, done = std::move(done)](kube::ApiResult<> result) {
               sent(key, wish, *before, std::move(result), done);
             })
      .detach();
}

void StatusWriter::sent(const std::string& key, const Wish& wish, const Json& before,
                        kube::ApiResult<> result, const std::function<void(bool)>& done) {
  if (!result && result.error().not_found()) {
    objects_.erase(key);
    return done(true);
  }
  Entry& entry = objects_[key];
  entry.unsure = !result;
  if (!result) {
    if (!entry.wish) entry.wish = wish;
    log::warn(
        "status was not written",
        {{"kind", std::string(wish.type.kind)}, {"name", wish.name}, {"error", result.error().message}});
    return done(false);
  }
  entry.written = std::make_shared<const Json>(std::move(*result));
  if (get_string(before, {"status", "state"}) != wish.outcome.state) {
    log::info(std::string(wish.type.kind) + " state",
              {{"name", wish.name}, {"state", wish.outcome.state}, {"reason", wish.outcome.reason}});
    events_.event(before, is_normal(wish.outcome) ? "Normal" : "Warning", wish.outcome.reason,
                  wish.outcome.message);
  }
  done(true);
}

}  // namespace gpuop::op
