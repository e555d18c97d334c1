#include "cluster/controllers/claims.h"

#include <algorithm>

namespace gpuop::cluster {
namespace {

constexpr std::size_t kBurst = 250;  // taken at a time

const Json& selector_of(const Json& controller) {
  static const Json kNone;
  const Json* found = find(controller, {"spec", "selector"});
  return found == nullptr ? kNone : *found;
}

std::string place_of(const Json& object, std::string_view key, std::string_view value) {
  return str(kube::namespace_of(object)) + "/" + str(key) + "=" + str(value);
}

// All orphans that the selector can pick are under this value of index "orphan".
std::string narrowest(const Json& controller) {
  std::string out;
  // The longest: where there is a template's hash or a controller's uid, hardly anything else has it.
  for (const auto& [key, value] : get_object(selector_of(controller), {"matchLabels"})) {
    std::string place = place_of(controller, key, as_text(value));
    if (place.size() > out.size()) out = std::move(place);
  }
  return out.empty() ? str(kube::namespace_of(controller)) + "/" : out;
}

bool fits(const Result<kube::LabelSelector>& selector, const Json& object) {
  return selector && !selector->empty() && selector->matches(get_object(object, {"metadata", "labels"}));
}

void patch_owners(kube::Client& client, const kube::Resource& type, const Json& object, Json reference,
                  std::function<void(bool)> done) {
  JsonObject metadata{{"uid", str(kube::uid_of(object))}};  // never another of the same name
  metadata["ownerReferences"] = JsonArray{std::move(reference)};
  JsonObject patch;
  patch["metadata"] = std::move(metadata);
  client
      .patch(
          type, kube::namespace_of(object), kube::name_of(object), kube::Patch::kStrategic, patch, {},
          [done = std::move(done)](kube::ApiResult<> result) { done(result || result.error().not_found()); })
      .detach();
}

void adopt(Context& context, const kube::Resource& controllers, const Json& controller,
           const kube::Resource& type, std::vector<Object> orphans, std::function<void(bool)> done) {
  // The cache may be behind: by now it may be going, or another of the same name.
  context.client
      .get(controllers, kube::namespace_of(controller), kube::name_of(controller),
           [&context, alive = std::weak_ptr(context.alive), reference = kube::owner_reference(controller),
            type, orphans = std::move(orphans), done = std::move(done)](kube::ApiResult<> result) {
             if (alive.expired()) return;
             if (!result) return done(result.error().not_found());
             if (kube::uid_of(*result) != get_string(reference, {"uid"}) || is_terminating(*result))
               return done(true);
             Gather gather(context.loop, done);
             for (const Object& orphan : orphans)
               patch_owners(context.client, type, *orphan, reference, gather.step());
             gather.close();
           })
      .detach();
}

bool same_labels(const Json& a, const Json& b) {
  return get_object(a, {"metadata", "labels"}) == get_object(b, {"metadata", "labels"});
}

}  // namespace

std::vector<std::string> orphan_index(const Json& object) {
  if (kube::controller_of(object) != nullptr) return {};
  std::vector<std::string> out{str(kube::namespace_of(object)) + "/"};
  for (const auto& [key, value] : get_object(object, {"metadata", "labels"}))
    out.push_back(place_of(object, key, as_text(value)));
  return out;
}

std::vector<std::string> selector_index(const Json& controller) {
  return {narrowest(controller)};
}

bool picks(const Json& controller, const Json& object) {
  return fits(kube::LabelSelector::from_object(selector_of(controller)), object);
}

Claims claims_of(const kube::Informer& objects, const Json& controller, bool (*counts)(const Json&)) {
  Claims out;
  if (is_terminating(controller)) return out;
  const auto selector = kube::LabelSelector::from_object(selector_of(controller));
  const auto matters = [&](const Object& object) { return counts == nullptr || counts(*object); };
  for (const Object& object : objects.by_index("owner", kube::uid_of(controller))) {
    if (!fits(selector, *object) && matters(object)) out.release.push_back(object);
  }
  for (const Object& object : objects.by_index("orphan", narrowest(controller))) {
    if (is_terminating(*object) || !fits(selector, *object) || !matters(object)) continue;
    out.adopt.push_back(object);
    if (out.adopt.size() == kBurst) break;
  }
  return out;
}

void write_claims(Context& context, const kube::Resource& controllers, const Json& controller,
                  const kube::Resource& type, const Claims& claims, std::function<void(bool)> done) {
  Gather gather(context.loop, std::move(done));
  for (const Object& object : claims.release) {
    patch_owners(context.client, type, *object,
                 JsonObject{{"$patch", "delete"}, {"uid", str(kube::uid_of(controller))}}, gather.step());
  }
  if (!claims.adopt.empty()) adopt(context, controllers, controller, type, claims.adopt, gather.step());
  gather.close();
}

std::vector<std::string> concerned(const kube::Informer& controllers, const kube::Resource& type,
                                   const Object& old, const Object& now) {
  std::vector<std::string> out;
  const Json* before = old ? kube::controller_of(*old) : nullptr;
  const Json* after = now ? kube::controller_of(*now) : nullptr;
  const auto add = [&](const Json& owner, const Json& object) {
    if (get_string(owner, {"kind"}) != type.kind) return;
    out.push_back(kube::object_key(kube::namespace_of(object), get_string(owner, {"name"})));
  };
  if (after != nullptr) add(*after, *now);
  const bool let_go = before != nullptr && (after == nullptr || *before != *after);
  if (let_go) add(*before, *old);
  if (!now || after != nullptr || is_terminating(*now)) return out;
  if (old && !let_go && same_labels(*old, *now)) return out;
  for (const std::string& place : orphan_index(*now)) {
    for (const Object& controller : controllers.by_index("selector", place)) {
      if (picks(*controller, *now)) out.push_back(kube::object_key(*controller));
    }
  }
  return out;
}

}  // namespace gpuop::cluster
