#include "base/log.h"
#include "cluster/controllers/context.h"

namespace gpuop::cluster {
namespace {

// What the watch has not shown after this time will not come: it was made and removed while the watch was
// down.
constexpr Duration kForgotten = 5min;

}  // namespace

struct PodControl::Impl : std::enable_shared_from_this<PodControl::Impl> {
  struct Made {
    Object pod;
    std::string uid;  // empty while the request is under way
    Duration at;
  };

  explicit Impl(Context& c) : context(c) {}

  void seen(const Object& old, const Object& now) {
    const Json& pod = now ? *now : *old;
    const Json* owner = kube::controller_of(pod);
    if (owner == nullptr) return;
    const std::string uid = str(kube::uid_of(pod));
    const auto found = made.find(str(get_string(*owner, {"uid"})));
    if (found != made.end()) {
      bool pending = false;
      for (auto it = found->second.begin(); it != found->second.end();) {
        pending = pending || it->second.uid.empty();
        it = it->second.uid == uid ? found->second.erase(it) : std::next(it);
      }
      // The watch may be faster than the answer to the request.
      if (pending) early[found->first].insert(uid);
      if (found->second.empty()) made.erase(found);
    }
    if (!now) removing.erase(uid);
  }

  void created(const std::string& owner, int token, kube::ApiResult<> result) {
    const auto found = made.find(owner);
    if (found == made.end()) return;
    const auto entry = found->second.find(token);
    if (entry == found->second.end()) return;
    const std::string uid = result ? str(kube::uid_of(*result)) : "";
    const bool known = early.contains(owner) && early[owner].contains(uid);
    if (!result || known) {
      found->second.erase(entry);
    } else {
      entry->second.pod = std::make_shared<const Json>(std::move(*result));
      entry->second.uid = uid;
    }
    bool pending = false;
    for (const auto& [other, value] : found->second) pending = pending || value.uid.empty();
    if (!pending) early.erase(owner);
    if (found->second.empty()) made.erase(found);
  }

  Context& context;
  std::unordered_map<std::string, std::map<int, Made>> made;     // by owner's uid
  std::unordered_map<std::string, std::set<std::string>> early;  // seen before the answer came
  std::set<std::string, std::less<>> removing;                   // uids
  std::map<std::string, std::unique_ptr<kube::EventRecorder>> recorders;
  int tokens = 0;

  void event(const Json& owner, std::string_view type, std::string_view reason, const std::string& message) {
    std::string component = str(get_string(owner, {"kind"})) + "-controller";
    for (char& c : component) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    auto& recorder = recorders[component];
    if (!recorder) recorder = std::make_unique<kube::EventRecorder>(context.client, component);
    recorder->event(owner, type, reason, message);
  }
};

PodControl::PodControl(Context& context) : impl_(std::make_shared<Impl>(context)) {}
PodControl::~PodControl() = default;

void PodControl::start() {
  impl_->context.pods.on_change([weak = std::weak_ptr(impl_)](const Object& old, const Object& now) {
    if (const auto self = weak.lock()) self->seen(old, now);
  });
}

std::vector<OwnedPod> PodControl::pods_of(std::string_view owner_uid) {
  std::vector<OwnedPod> out;
  for (const Object& pod : impl_->context.pods.by_index("owner", owner_uid)) {
    out.push_back({pod, is_terminating(*pod) || impl_->removing.contains(kube::uid_of(*pod)), false});
  }
  const auto found = impl_->made.find(str(owner_uid));
  if (found == impl_->made.end()) return out;
  const Duration now = impl_->context.loop.elapsed();
  for (const auto& [token, entry] : found->second) {
    if (!entry.uid.empty() && now - entry.at > kForgotten) continue;
    out.push_back({entry.pod, impl_->removing.contains(entry.uid), true});
  }
  return out;
}

void PodControl::create(const Json& owner, Json pod, std::function<void(bool)> done) {
  const std::string owner_uid = str(kube::uid_of(owner));
  const int token = ++impl_->tokens;
  const std::string ns = str(kube::namespace_of(owner));
  auto shared = std::make_shared<const Json>(std::move(pod));
  impl_->made[owner_uid][token] = {shared, "", impl_->context.loop.elapsed()};
  impl_->context.client
      .create(kube::kPods, ns, *shared, {},
              [weak = std::weak_ptr(impl_), owner_uid, token, owner,
               done = std::move(done)](kube::ApiResult<> result) {
                const auto self = weak.lock();
                if (!self) return;
                const bool ok = result.has_value();
                if (ok) {
                  self->event(owner, "Normal", "SuccessfulCreate",
                              "Created pod: " + str(kube::name_of(*result)));
                } else {
                  self->event(owner, "Warning", "FailedCreate", "Error creating: " + result.error().message);
                }
                self->created(owner_uid, token, std::move(result));
                done(ok);
              })
      .detach();
}

void PodControl::remove(const Json& owner, const Json& pod, std::function<void(bool)> done) {
  const std::string uid = str(kube::uid_of(pod));
  const std::string name = str(kube::name_of(pod));
  if (uid.empty() || !impl_->removing.insert(uid).second)
    return impl_->context.loop.post([done] { done(true); });
  impl_->context.client
      .remove(
          kube::kPods, kube::namespace_of(pod), name, {.precondition_uid = uid},
          [weak = std::weak_ptr(impl_), uid, owner, name, done = std::move(done)](kube::ApiResult<> result) {
            const auto self = weak.lock();
            if (!self) return;
            const bool gone = !result && result.error().not_found();
            if (result) {
              self->event(owner, "Normal", "SuccessfulDelete", "Deleted pod: " + name);
            } else if (!gone) {
              self->removing.erase(uid);
              if (!result.error().conflict())
                self->event(owner, "Warning", "FailedDelete", "Error deleting: " + result.error().message);
            }
            done(result || gone);
          })
      .detach();
}

}  // namespace gpuop::cluster
