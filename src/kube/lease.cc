#include "kube/lease.h"

#include <random>

#include "base/log.h"
#include "base/text.h"
#include "kube/informer.h"
#include "kube/object.h"

namespace gpuop::kube {
namespace {

constexpr double kJitterFactor = 1.2;

Result<> check(const LeaseOptions& options) {
  const auto bad = [&](const std::string& why) {
    return fail(Code::kInvalid, "elect a leader: '" + object_key(options.ns, options.name) + "': " + why);
  };
  const auto shown = [](Duration d) { return format_go_duration(d); };
  if (options.identity.empty()) return bad("identity: required");
  for (const auto& [name, value] : {std::pair{"leaseDuration", options.lease_duration},
                                    {"renewDeadline", options.renew_deadline},
                                    {"retryPeriod", options.retry_period}}) {
    if (value < 1s) return bad(std::string(name) + " " + shown(value) + ": must be at least 1s");
  }
  if (options.lease_duration <= options.renew_deadline) {
    return bad("leaseDuration " + shown(options.lease_duration) + ": must be longer than renewDeadline " +
               shown(options.renew_deadline));
  }
  const auto least = std::chrono::duration_cast<Duration>(options.retry_period * kJitterFactor);
  if (options.renew_deadline <= least) {
    return bad("renewDeadline " + shown(options.renew_deadline) +
               ": must be longer than 1.2 times retryPeriod " + shown(options.retry_period));
  }
  return {};
}

}  // namespace

// A candidate follows the lease by a watch and acts when it is free or has not changed for its whole
// duration, by our own clock; the times that are written in it are never compared with ours.
struct LeaderElector::Impl : std::enable_shared_from_this<LeaderElector::Impl> {
  enum class State { kIdle, kFollowing, kLeading, kOver };

  Impl(Client& c, LeaseOptions o, std::function<void()> s, std::function<void()> l)
      : client(c),
        options(std::move(o)),
        started(std::move(s)),
        lost(std::move(l)),
        random(fnv1a32(options.identity)) {}

  Loop& loop() { return client.loop(); }

  void start() {
    state = State::kFollowing;
    InformerOptions follow;
    follow.ns = options.ns;
    follow.field_selector = "metadata.name=" + options.name;
    follow.keep = {"spec"};
    informer = std::make_unique<Informer>(client, kLeases, std::move(follow));
    informer->on_change([this](const auto&, const auto& now) { observe(now); });
    informer->on_synced([this] {
      if (!record) consider();
    });
    informer->start();
  }

  void observe(const std::shared_ptr<const Json>& now) {
    if (state != State::kFollowing) return;
    const Json none;
    const Json* before = record ? find(*record, {"spec"}) : nullptr;
    const Json* after = now ? find(*now, {"spec"}) : nullptr;
    const bool same = record && now && (before ? *before : none) == (after ? *after : none);
    record = now;
    if (!same) observed_at = loop().elapsed();
    consider();
  }

  // How long others' record still holds; zero when the lease may be taken.
  Duration held_for() const {
    if (!record) return Duration::zero();
    const std::string_view holder = get_string(*record, {"spec", "holderIdentity"});
    if (holder.empty() || holder == options.identity) return Duration::zero();
    const auto seconds = get_int(*record, {"spec", "leaseDurationSeconds"});
    const Duration span = seconds > 0 ? Duration(std::chrono::seconds(seconds)) : options.lease_duration;
    return std::max(Duration::zero(), observed_at + span - client.loop().elapsed());
  }

  void consider() {
    if (state != State::kFollowing || call) return;
    const Duration wait = held_for();
    if (wait > Duration::zero()) return consider_after(wait);
    timer.reset();
    acquire();
  }

  void consider_after(Duration wait) {
    timer = loop().after(wait, [weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->consider();
    });
  }

  Json desired(const Json* old, bool take_over) {
    JsonObject object{{"apiVersion", "coordination.k8s.io/v1"}, {"kind", "Lease"}};
    JsonObject metadata{{"name", options.name}, {"namespace", options.ns}};
    JsonObject spec;
    const std::string now = format_micro_time(loop().now());
    std::int64_t transitions = 0;
    std::string acquired = now;
    if (old != nullptr) {
      metadata["resourceVersion"] = get_string(*old, {"metadata", "resourceVersion"});
      for (const auto& [key, value] : get_object(*old, {"metadata"})) {
        if (key == "labels" || key == "annotations" || key == "ownerReferences") metadata[key] = value;
      }
      spec = get_object(*old, {"spec"});
      transitions = get_int(*old, {"spec", "leaseTransitions"});
      if (take_over) {
        ++transitions;
      } else {
        acquired = get_string(*old, {"spec", "acquireTime"}, now);
      }
    }
    if (options.owner) own(metadata);
    spec["holderIdentity"] = options.identity;
    spec["leaseDurationSeconds"] =
        std::chrono::duration_cast<std::chrono::seconds>(options.lease_duration).count();
    spec["acquireTime"] = acquired;
    spec["renewTime"] = now;
    spec["leaseTransitions"] = transitions;
    object["metadata"] = std::move(metadata);
    object["spec"] = std::move(spec);
    return object;
  }

  // Adds our owner to those that the record has.
  void own(JsonObject& metadata) const {
    JsonArray owners;
    if (const Json* there = metadata.if_contains("ownerReferences"); there && there->is_array())
      owners = there->get_array();
    for (const Json& each : owners) {
      if (get_string(each, {"uid"}) == get_string(*options.owner, {"uid"})) return;
    }
    owners.push_back(*options.owner);
    metadata["ownerReferences"] = std::move(owners);
  }

  void acquire() {
    const Duration began = loop().elapsed();
    const bool ours = record && get_string(*record, {"spec", "holderIdentity"}) == options.identity;
    const Json object = desired(record.get(), record && !ours);
    const auto done = [weak = weak_from_this(), began](ApiResult<> result) {
      const auto self = weak.lock();
      if (!self) return;
      self->call.reset();
      if (self->state != State::kFollowing) return;
      if (result) return self->lead(std::move(*result), began);
      // Somebody else was faster: the watch shows it. Otherwise once more a little later.
      if (!result.error().conflict() && !result.error().already_exists()) {
        log::warn("leadership cannot be asked for",
                  {{"lease", self->options.name}, {"why", result.error().message}});
      }
      const double jitter = 1.0 + (kJitterFactor - 1.0) * static_cast<double>(self->random() % 1000) / 1000.0;
      self->consider_after(std::chrono::duration_cast<Duration>(self->options.retry_period * jitter));
    };
    call = record ? client.update(kLeases, options.ns, options.name, object, {}, done)
                  : client.create(kLeases, options.ns, object, {}, done);
  }

  void lead(Json object, Duration renewed) {
    const auto keep = shared_from_this();
    state = State::kLeading;
    held = std::move(object);
    informer.reset();
    timer.reset();
    renewed_at(renewed);
    renew_later();
    log::info("leading", {{"lease", options.name}, {"identity", options.identity}});
    if (started) started();
  }

  void renewed_at(Duration at) {
    deadline = loop().after(at + options.renew_deadline - loop().elapsed(), [weak = weak_from_this()] {
      if (const auto self = weak.lock())
        self->lose("was not renewed within " + format_go_duration(self->options.renew_deadline));
    });
  }

  void renew_later() {
    timer = loop().after(options.retry_period, [weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->renew();
    });
  }

  // `again`: the second attempt of a period, after the record was read anew. There is no third: a server that
  // answers Conflict for a while is asked again at the next period.
  void renew(bool again = false) {
    if (state != State::kLeading) return;
    const Duration began = loop().elapsed();
    renew_later();
    // An unanswered attempt is given up for this one.
    call = client.update(kLeases, options.ns, options.name, desired(&held, false), {},
                         [weak = weak_from_this(), began, again](ApiResult<> result) {
                           const auto self = weak.lock();
                           if (!self || self->state != State::kLeading) return;
                           if (result) {
                             self->held = std::move(*result);
                             self->renewed_at(began);
                           } else if (!again && (result.error().conflict() || result.error().not_found())) {
                             self->look_again();
                           }
                         });
  }

  // The record is not the one that we wrote last: still ours (an answer was lost), or somebody else's.
  void look_again() {
    call = client.get(kLeases, options.ns, options.name, [weak = weak_from_this()](ApiResult<> result) {
      const auto self = weak.lock();
      if (!self || self->state != State::kLeading) return;
      if (!result) return;  // the next renewal tells more, or the deadline
      const std::string holder = str(get_string(*result, {"spec", "holderIdentity"}));
      if (holder != self->options.identity) return self->lose("was taken over by '" + holder + "'");
      self->held = std::move(*result);
      self->renew(true);
    });
  }

  void lose(const std::string& why) {
    const auto keep = shared_from_this();
    stop();
    log::error("leadership is lost", {{"lease", options.name}, {"why", why}});
    if (lost) lost();
  }

  void stop() {
    state = State::kOver;
    call.reset();
    timer.reset();
    deadline.reset();
    informer.reset();
  }

  void release(std::function<void()> done) {
    const bool was_leading = state == State::kLeading;
    stop();
    if (!was_leading) return loop().post(std::move(done));
    give_up(false, std::move(done));
  }

  // `again`: the record was read anew, since a renewal that was under way may have been carried out.
  void give_up(bool again, std::function<void()> done) {
    Json object = desired(&held, false);
    set(object, {"spec", "holderIdentity"}, Json(""));
    set(object, {"spec", "leaseDurationSeconds"}, Json(1));
    call =
        client.update(kLeases, options.ns, options.name, object, {},
                      [weak = weak_from_this(), again, done = std::move(done)](ApiResult<> result) mutable {
                        const auto self = weak.lock();
                        if (self && !result && !again && result.error().conflict())
                          return self->give_up_what_is_there(std::move(done));
                        if (!result)
                          log::warn("the lease was not released", {{"why", result.error().message}});
                        done();
                      });
  }

  void give_up_what_is_there(std::function<void()> done) {
    call = client.get(
        kLeases, options.ns, options.name,
        [weak = weak_from_this(), done = std::move(done)](ApiResult<> result) mutable {
          const auto self = weak.lock();
          if (!self || !result || get_string(*result, {"spec", "holderIdentity"}) != self->options.identity)
            return done();
          self->held = std::move(*result);
          self->give_up(true, std::move(done));
        });
  }

  Client& client;
  LeaseOptions options;
  std::function<void()> started, lost;
  std::minstd_rand random;
  State state = State::kIdle;
  std::unique_ptr<Informer> informer;
  std::shared_ptr<const Json> record;  // as last observed while following
  Duration observed_at{0};
  Json held;  // as we wrote it last
  Handle call, timer, deadline;
};

Result<std::unique_ptr<LeaderElector>> LeaderElector::create(Client& client, LeaseOptions options,
                                                             std::function<void()> started,
                                                             std::function<void()> lost) {
  TRY(check(options));
  return std::unique_ptr<LeaderElector>(new LeaderElector(
      std::make_shared<Impl>(client, std::move(options), std::move(started), std::move(lost))));
}

LeaderElector::LeaderElector(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
LeaderElector::~LeaderElector() {
  impl_->stop();
}
void LeaderElector::start() {
  impl_->start();
}
bool LeaderElector::leading() const {
  return impl_->state == Impl::State::kLeading;
}
void LeaderElector::release(std::function<void()> done) {
  impl_->release(std::move(done));
}

}  // namespace gpuop::kube
