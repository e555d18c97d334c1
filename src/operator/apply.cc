#include "operator/apply.h"

#include <algorithm>

#include "base/log.h"
#include "base/text.h"
#include "kube/object.h"
#include "operator/refusals.h"

namespace gpuop::op {

Write write_for(const Json& wanted, const Json* live) {
  if (!live) return Write::kCreate;
  const auto kind = get_string(wanted, {"kind"});
  if (kind == "ServiceAccount" || !kube::label(wanted, kInjectCertificates).empty()) return Write::kNothing;
  if (kind == "DaemonSet") {
    const auto hash = kube::annotation(wanted, kHashAnnotation);
    return !hash.empty() && hash == kube::annotation(*live, kHashAnnotation) ? Write::kNothing
                                                                             : Write::kReplace;
  }
  return differences(*live, wanted).empty() ? Write::kNothing : Write::kReplace;
}

std::shared_ptr<const Json> Applier::live(const ObjectRef& ref) const {
  const auto found = written_.find(ref);
  return found == written_.end() ? cache_.live(ref) : found->second;
}

void Applier::seen(const Json& object, bool gone) {
  if (gone) kept_.erase(ref_of(object));
  const auto found = written_.find(ref_of(object));
  if (found == written_.end()) return;
  if (gone || version_of(object) >= version_of(*found->second)) written_.erase(found);
}

struct Applier::Pass {
  std::string policy_uid;
  std::function<void(Report)> done;
  Report report;
  int open = 0;                                     // requests of the present wave
  std::vector<std::pair<std::string, Json>> later;  // DaemonSets
  bool second = false;
};

void Applier::apply(const Plan& plan, std::string_view policy_uid, std::function<void(Report)> done) {
  auto pass = std::make_shared<Pass>();
  pass->policy_uid = policy_uid;
  pass->done = std::move(done);
  pass->open = 1;  // held until everything of the wave was asked for
  for (const auto& state : plan.states) {
    if (state.error) {
      pass->report.errors.emplace(state.name, state.error->text());
      continue;
    }
    for (const auto& ref : state.absent) {
      if (live(ref)) remove(pass, state.name, ref, false);
    }
    sweep(pass, state, policy_uid);
    for (const auto& object : state.objects) {
      if (get_string(object, {"kind"}) == "DaemonSet") {
        pass->later.emplace_back(state.name, object);
      } else {
        write(pass, state.name, object);
      }
    }
  }
  if (--pass->open == 0) wave(pass);
}

// The first wave is through: the DaemonSets go; they are through: done.
void Applier::wave(const std::shared_ptr<Pass>& pass) {
  if (!pass->second) {
    pass->second = true;
    pass->open = 1;
    for (const auto& [state, object] : pass->later) {
      if (!pass->report.errors.contains(state)) write(pass, state, object);
    }
    if (--pass->open > 0) return;
  }
  pass->report.changed_by_others = told(pass->policy_uid);
  client_.loop().post([pass] { std::exchange(pass->done, nullptr)(std::move(pass->report)); });
}

namespace {

// Tells one form of a wanted object from another.
std::string form_of(const Json& wanted) {
  const auto hash = kube::annotation(wanted, kHashAnnotation);
  return hash.empty() ? std::to_string(fnv1a64(to_text(wanted))) : std::string(hash);
}

std::string named(const ObjectRef& ref) {
  return ref.kind + " '" + ref.name + "'";
}

// The resource that the object comes from, where its fields are to be changed.
std::string source_of(const Json& object) {
  const Json* owner = kube::controller_of(object);
  if (!owner) return "the ClusterPolicy";
  return std::string(get_string(*owner, {"kind"})) + " '" + std::string(get_string(*owner, {"name"})) + "'";
}

bool same(const std::vector<Difference>& a, const std::vector<Difference>& b) {
  return std::ranges::equal(a, b, [](const auto& x, const auto& y) { return x.same_as(y); });
}

// What was put back, and when; nullopt: nothing that can be read.
struct PutBack {
  Time when;
  std::string what;
};
std::optional<PutBack> last_put_back(const Json& live) {
  const auto text = kube::annotation(live, kPutBackAnnotation);
  const auto space = text.find(' ');
  if (space == std::string_view::npos) return std::nullopt;
  const auto when = parse_time(text.substr(0, space));
  if (!when) return std::nullopt;
  return PutBack{*when, std::string(text.substr(space + 1))};
}

// What others have added to its labels and annotations, and to its pods', stays.
void keep_additions(Json& object, const Json& live) {
  const auto keep = [&](std::initializer_list<std::string_view> path) {
    for (const auto& [key, value] : get_object(live, path)) {
      if (key == kPutBackAnnotation || get_object(object, path).contains(key)) continue;
      Json& into = ensure(object, path);
      if (!into.is_object()) into = JsonObject();
      into.get_object()[key] = value;
    }
  };
  keep({"metadata", "labels"});
  keep({"metadata", "annotations"});
  if (get_string(object, {"kind"}) == "DaemonSet") {
    keep({"spec", "template", "metadata", "labels"});
    keep({"spec", "template", "metadata", "annotations"});
  }
}

// What of `found` is not in `accepted`.
std::vector<Difference> beyond(std::vector<Difference> found, const std::vector<Difference>& accepted) {
  std::erase_if(found, [&](const Difference& one) {
    return std::ranges::any_of(accepted, [&](const Difference& other) { return one.same_as(other); });
  });
  return found;
}

}  // namespace

void Applier::finished(const std::shared_ptr<Pass>& pass) {
  if (--pass->open == 0) wave(pass);
}

void Applier::write(const std::shared_ptr<Pass>& pass, const std::string& state, const Json& object) {
  const ObjectRef ref = ref_of(object);
  const auto there = live(ref);
  const Write what = write_for(object, there.get());
  const bool daemon_set = ref.kind == "DaemonSet";
  const auto kept = kept_.find(ref);
  if (what == Write::kNothing && !daemon_set) {
    if (kept != kept_.end())
      kept->second.standing.clear();
    else if (ref.kind != "ServiceAccount")
      kept_[ref] = {.wanted = form_of(object), .known = true};
    return;
  }
  // Not as it was, while what is wanted of it is: somebody else's doing.
  const bool same_form = kept != kept_.end() && kept->second.wanted == form_of(object);
  if (what == Write::kNothing || (what == Write::kReplace && same_form)) {
    if (drifted(pass, ref, object, *there)) look_closer(pass, state, ref, object);
    return;
  }
  send(pass, state, object, object, there.get(), {});
}

// For how long no change of the object is put back, because one was a moment ago; nullopt: it may be. An
// operator that has just started reads it from the object.
std::optional<Duration> Applier::rest_of_gap(Kept& kept, const Json& there) const {
  const Duration now = client_.loop().elapsed();
  if (const auto last = last_put_back(there); !kept.put_back && last)
    kept.put_back = now - std::max(Duration::zero(), Duration(client_.loop().now() - last->when));
  if (!kept.put_back || now - *kept.put_back >= kPutBackGap) return std::nullopt;
  return *kept.put_back + kPutBackGap - now;
}

// Whether the object is to be looked at: it differs by more than the server's own doing and by what is not
// known yet.
bool Applier::drifted(const std::shared_ptr<Pass>& pass, const ObjectRef& ref, const Json& object,
                      const Json& there) {
  Kept& kept = kept_[ref];
  if (const std::string form = form_of(object); kept.wanted != form) kept = {.wanted = form};
  std::vector<Difference> found;
  if (kept.in_line != version_of(there)) found = beyond(differences(there, object), kept.accepted);
  if (found.empty()) {
    kept.known = true;
    kept.in_line = version_of(there);
    kept.standing.clear();
    return false;
  }
  const auto left = rest_of_gap(kept, there);
  if (!left) return true;
  if (!pass->report.again || *pass->report.again > *left) pass->report.again = left;
  return !same(found, kept.standing);
}

// Asks the server for the whole object, which tells whose the difference is.
void Applier::look_closer(const std::shared_ptr<Pass>& pass, const std::string& state, const ObjectRef& ref,
                          const Json& object) {
  ++pass->open;
  const auto looked = [this, pass, state, ref, object](kube::ApiResult<> there) {
    Kept& kept = kept_[ref];
    if (!there) {
      if (there.error().not_found())
        pass->report.raced = true;
      else
        pass->report.errors.emplace(
            state, there.error().error("read " + named(ref)).text() + cure_of_refusal(there.error().message));
      return finished(pass);
    }
    auto found = beyond(differences(*there, object), kept.accepted);
    const auto theirs = applied_beside(*there, found, client_.options().field_manager);
    kept.accepted.insert(kept.accepted.end(), theirs.begin(), theirs.end());
    found = beyond(std::move(found), theirs);
    const auto by = managers_of(*there, found, client_.options().field_manager);
    // After a restart nobody knows what the server itself made of the object: what nobody else owns is its
    // doing. What is missing has no owner.
    const auto missing = [](const Difference& one) { return one.live.empty(); };
    if (!kept.known && (!by || (by->empty() && std::ranges::none_of(found, missing)))) {
      kept.accepted.insert(kept.accepted.end(), found.begin(), found.end());
      kept.known = true;
      found.clear();
    }
    if (!found.empty()) {
      const std::string who =
          !by || by->empty() ? "another client" : "field manager '" + join(*by, "', '") + "'";
      Change change{found, fields_text(found) + " was changed by " + who};
      if (const auto left = rest_of_gap(kept, *there))
        leave(pass, object, *there, std::move(change), *left);
      else
        put_back(pass, state, ref, object, *there, change);
    }
    finished(pass);
  };
  client_.get(*cache_.type_of(ref.api_version, ref.kind), ref.namespace_name, ref.name, looked).detach();
}

void Applier::put_back(const std::shared_ptr<Pass>& pass, const std::string& state, const ObjectRef& ref,
                       const Json& object, const Json& there, const Change& change) {
  Json body = object;
  keep_additions(body, there);
  set(body, {"metadata", "annotations", kPutBackAnnotation},
      format_time(client_.loop().now()) + " " + change.what);
  send(pass, state, object, std::move(body), &there,
       [this, ref, what = change.what, from = source_of(object)](const Json& answer) {
         kept_[ref].put_back = client_.loop().elapsed();
         log::warn("somebody else's change was put back",
                   {{"kind", ref.kind}, {"name", ref.name}, {"what", what}});
         events_.event(answer, "Warning", "ChangePutBack",
                       what + " and put back: change " + from + " instead");
       });
}

// A change that stays for now, so that nobody fights: whoever made it is told so.
void Applier::leave(const std::shared_ptr<Pass>& pass, const Json& object, const Json& there, Change change,
                    Duration left) {
  const ObjectRef ref = ref_of(object);
  Kept& kept = kept_[ref];
  kept.policy_uid = pass->policy_uid;
  kept.standing = std::move(change.found);
  kept.stands = change.what + " and stays so until " + format_time(client_.loop().now() + left) +
                ", when it is put back: change " + source_of(object) + " instead";
  log::warn("somebody else's change stays for now",
            {{"kind", ref.kind}, {"name", ref.name}, {"what", change.what}});
  events_.event(there, "Warning", "ChangeStaysForNow", kept.stands);
}

// What the objects of a policy say of others' changes.
std::vector<std::string> Applier::told(std::string_view policy_uid) const {
  std::map<ObjectRef, std::string> sentences;
  for (const auto& [ref, kept] : kept_)
    if (!kept.standing.empty() && kept.policy_uid == policy_uid)
      sentences[ref] = named(ref) + ": " + kept.stands;
  cache_.for_each_object([&](const std::shared_ptr<const Json>& cached) {
    const Json* owner = kube::controller_of(*cached);
    if (!owner || get_string(*owner, {"uid"}) != policy_uid) return;
    const ObjectRef ref = ref_of(*cached);
    const auto now = live(ref);
    if (const auto last = now ? last_put_back(*now) : std::nullopt)
      sentences.try_emplace(ref, named(ref) + ": " + last->what + " and put back at " +
                                     format_time(last->when) + ": change " + source_of(*now) + " instead");
  });
  std::vector<std::string> out;
  out.reserve(sentences.size());
  for (auto& [ref, sentence] : sentences) out.push_back(std::move(sentence));
  return out;
}

// Creates the object, or replaces the one that is there. `body`: what is sent, which may hold more than is
// wanted.
void Applier::send(const std::shared_ptr<Pass>& pass, const std::string& state, const Json& object, Json body,
                   const Json* there, std::function<void(const Json& answer)> written) {
  const ObjectRef ref = ref_of(object);
  const kube::Resource* type = cache_.type_of(ref.api_version, ref.kind);
  if (!type) {
    pass->report.errors.emplace(state, "apply " + named(ref) + ": the cluster has no such type");
    return;
  }
  ++pass->open;
  ++pass->report.writes;
  const bool create = there == nullptr;
  const auto done = [this, pass, state, ref, create, object,
                     written = std::move(written)](kube::ApiResult<> result) {
    // The cache may lag behind our own write of a moment ago: then it is there already, and its event
    // follows.
    const bool raced = !result && (result.error().already_exists() || result.error().conflict());
    if (!result && !raced) {
      pass->report.errors.emplace(
          state, result.error().error((create ? "create " : "replace ") + named(ref)).text() +
                     cure_of_refusal(result.error().message));
    } else if (raced) {
      pass->report.raced = true;
      written_.erase(ref);
    } else {
      Kept& kept = kept_[ref];
      kept = {.wanted = form_of(object),
              .known = true,
              .accepted = differences(*result, object),
              .in_line = version_of(*result),
              .put_back = kept.put_back};
      if (written) written(*result);
      // The watch may have been quicker than the answer; then there is nothing to remember.
      const auto seen = cache_.live(ref);
      if (!seen || version_of(*seen) < version_of(*result)) {
        written_[ref] = std::make_shared<const Json>(std::move(*result));
      }
      log::info(create ? "created" : "replaced", {{"kind", ref.kind}, {"name", ref.name}});
    }
    finished(pass);
  };
  if (create) {
    client_.create(*type, ref.namespace_name, body, {}, done).detach();
    return;
  }
  set(body, {"metadata", "resourceVersion"}, get_string(*there, {"metadata", "resourceVersion"}));
  if (ref.kind == "Service") {
    for (std::string_view field : {"clusterIP", "clusterIPs"}) {
      if (const Json* value = find(*there, {"spec", field})) set(body, {"spec", field}, *value);
    }
  }
  client_.update(*type, ref.namespace_name, ref.name, body, {}, done).detach();
}

void Applier::remove(const std::shared_ptr<Pass>& pass, const std::string& state, const ObjectRef& ref,
                     bool orphan) {
  const kube::Resource* type = cache_.type_of(ref.api_version, ref.kind);
  if (!type) return;
  // Whoever has to let it go before it is gone was told.
  if (const auto there = live(ref); there && has(*there, {"metadata", "deletionTimestamp"})) return;
  ++pass->open;
  ++pass->report.writes;
  kube::DeleteOptions options;
  options.propagation = orphan ? "Orphan" : "Background";
  client_
      .remove(*type, ref.namespace_name, ref.name, options,
              [this, pass, state, ref](kube::ApiResult<> result) {
                if (!result && !result.error().not_found()) {
                  pass->report.errors.emplace(state, result.error().error("delete " + named(ref)).text() +
                                                         cure_of_refusal(result.error().message));
                } else if (result) {
                  log::info("deleted", {{"kind", ref.kind}, {"name", ref.name}});
                }
                written_.erase(ref);
                kept_.erase(ref);
                finished(pass);
              })
      .detach();
}

void Applier::sweep(const std::shared_ptr<Pass>& pass, const State& state, std::string_view policy_uid) {
  for (const auto& rule : state.sweeps) {
    std::vector<ObjectRef> gone;
    cache_.of(kube::kDaemonSets).for_each([&](const std::shared_ptr<const Json>& live) {
      const auto name = kube::name_of(*live);
      const Json* owner = kube::controller_of(*live);
      if (!name.starts_with(rule.name_prefix) || !owner || get_string(*owner, {"uid"}) != policy_uid) return;
      for (const auto& object : state.objects) {
        if (get_string(object, {"kind"}) == "DaemonSet" && kube::name_of(object) == name) return;
      }
      gone.push_back({"apps/v1", "DaemonSet", cache_.ns(), std::string(name)});
    });
    for (const auto& ref : gone) remove(pass, state.name, ref, rule.orphan_pods);
  }
}

}  // namespace gpuop::op
