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

constexpr Duration kWordsGap = 10s;
constexpr Duration kOnItsWay = 2s;
constexpr Duration kLasting = 10s;

bool tells_readiness(const Json& condition) {
  const auto type = get_string(condition, {"type"});
  return type == "Ready" || type == "Error";
}

// The status without what changes while pods come up: with `words`, the words of the conditions that tell it
// are left out, else these conditions and the state.
std::string steady_part(Json status, bool words) {
  JsonArray kept;
  for (Json condition : get_array(status, {"conditions"})) {
    const bool readiness = tells_readiness(condition);
    if (readiness && !words) continue;
    if (readiness) remove(condition, {"message"});
    remove(condition, {"lastTransitionTime"});
    kept.push_back(std::move(condition));
  }
  set(status, {"conditions"}, std::move(kept));
  if (!words) remove(status, {"state"});
  return to_canonical_text(status);
}

// It was ready because every operand was.
bool was_whole(const Json& status) {
  for (const Json& condition : get_array(status, {"conditions"}))
    if (get_string(condition, {"type"}) == "Ready")
      return get_string(status, {"state"}) == "ready" && get_string(condition, {"reason"}) == "Reconciled";
  return false;
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

// For how long `wanted` is not written yet, if at all.
std::optional<Duration> StatusWriter::hold(Entry& entry, const Json& present, const Json& wanted) const {
  const Duration now = client_.loop().elapsed();
  std::optional<Duration> from;
  Duration span = kWordsGap;
  if (!entry.wish->outcome.on_its_way) {
    entry.on_its_way.reset();
  } else if (was_whole(present) && get_int(present, {"observedGeneration"}) == entry.wish->generation &&
             steady_part(present, false) == steady_part(wanted, false)) {
    if (!entry.on_its_way) entry.on_its_way = now;
    from = entry.on_its_way;
    span = kOnItsWay;
  } else {
    entry.on_its_way.reset();
    if (steady_part(present, true) == steady_part(wanted, true)) from = entry.sent;
  }
  if (!from || now - *from >= span) return std::nullopt;
  return span - (now - *from);
}

void StatusWriter::send(const std::string& key, std::function<void(bool)> done) {
  Entry& entry = objects_[key];
  if (!entry.wish) return done(true);
  const auto before = live(entry);
  if (!before) {
    objects_.erase(key);
    return done(true);
  }
  Json status = status_of(*before, entry.wish->outcome, entry.wish->notes, cache_.ns(), client_.loop().now());
  set(status, {"observedGeneration"}, entry.wish->generation);
  const Json* present = find(*before, {"status"});
  if (!entry.unsure && present) {
    if (same_status(*present, status)) {
      entry.wish.reset();
      entry.on_its_way.reset();
      return done(true);
    }
    if (const auto wait = hold(entry, *present, status)) {
      writes_.add_after(key, *wait);
      return done(true);
    }
  }
  const Wish wish = *std::exchange(entry.wish, std::nullopt);
  entry.on_its_way.reset();
  entry.sent = client_.loop().elapsed();
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

void StatusWriter::tell(Entry& entry, const Json& object, const Outcome& outcome) {
  log::info(
      std::string(get_string(object, {"kind"})) + " state",
      {{"name", std::string(kube::name_of(object))}, {"state", outcome.state}, {"reason", outcome.reason}});
  // That pods are coming up is told by the conditions alone.
  if (outcome.on_its_way || outcome.reason == "Reconciling") return;
  if (is_normal(outcome)) return events_.event(object, "Normal", outcome.reason, outcome.message);
  entry.warning = client_.loop().after(kLasting, [this, object, outcome] {
    events_.event(object, "Warning", outcome.reason, outcome.message);
  });
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
  if (is_normal(wish.outcome)) entry.warning = {};
  if (get_string(before, {"status", "state"}) != wish.outcome.state) tell(entry, before, wish.outcome);
  done(true);
}

}  // namespace gpuop::op
