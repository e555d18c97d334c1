#include "operator/apply.h"

#include "base/log.h"
#include "base/text.h"
#include "kube/object.h"
#include "operator/refusals.h"

namespace gpuop::op {
namespace {

bool is_empty(const Json& value) {
  switch (value.kind()) {
    case boost::json::kind::null:
      return true;
    case boost::json::kind::bool_:
      return !value.get_bool();
    case boost::json::kind::int64:
      return value.get_int64() == 0;
    case boost::json::kind::uint64:
      return value.get_uint64() == 0;
    case boost::json::kind::double_:
      return value.get_double() == 0;
    case boost::json::kind::string:
      return value.get_string().empty();
    case boost::json::kind::array:
      return value.get_array().empty();
    case boost::json::kind::object: {
      for (const auto& [key, item] : value.get_object()) {
        if (!is_empty(item)) return false;
      }
      return true;
    }
  }
  return false;
}

// Maps that we own whole: a key that is not ours does not stay.
bool same(const Json& live, const Json& wanted, std::string_view field) {
  const Json* a = find(live, {field});
  const Json* b = find(wanted, {field});
  if (!a || !b) return (!a || is_empty(*a)) && (!b || is_empty(*b));
  return covers(*a, *b) && covers(*b, *a);
}

}  // namespace

bool covers(const Json& live, const Json& wanted) {
  if (wanted.is_object()) {
    if (!live.is_object()) return is_empty(wanted);
    for (const auto& [key, item] : wanted.get_object()) {
      const Json* there = live.get_object().if_contains(key);
      if (there ? !covers(*there, item) : !is_empty(item)) return false;
    }
    return true;
  }
  if (wanted.is_array()) {
    if (!live.is_array()) return is_empty(wanted);
    const auto& a = live.get_array();
    const auto& b = wanted.get_array();
    if (a.size() != b.size()) return false;
    for (std::size_t i = 0; i < a.size(); ++i) {
      if (!covers(a[i], b[i])) return false;
    }
    return true;
  }
  return live == wanted || (live.is_null() && is_empty(wanted));
}

Write write_for(const Json& wanted, const Json* live) {
  if (!live) return Write::kCreate;
  const auto kind = get_string(wanted, {"kind"});
  if (kind == "ServiceAccount" || !kube::label(wanted, kInjectCertificates).empty()) return Write::kNothing;
  if (kind == "DaemonSet") {
    const auto hash = kube::annotation(wanted, kHashAnnotation);
    return !hash.empty() && hash == kube::annotation(*live, kHashAnnotation) ? Write::kNothing
                                                                             : Write::kReplace;
  }
  for (std::string_view part : {"labels", "annotations", "ownerReferences"}) {
    const Json* want = find(wanted, {"metadata", part});
    const Json* have = find(*live, {"metadata", part});
    if (want && !(have ? covers(*have, *want) : is_empty(*want))) return Write::kReplace;
  }
  for (std::string_view field : {"data", "rules", "roleRef", "subjects", "handler"}) {
    if (!same(*live, wanted, field)) return Write::kReplace;
  }
  if (kind == "SecurityContextConstraints") {
    // Its fields are all at the top.
    for (const auto& [field, value] : wanted.get_object()) {
      if (field != "metadata" && !same(*live, wanted, field)) return Write::kReplace;
    }
  }
  if (const Json* spec = find(wanted, {"spec"})) {
    const Json* have = find(*live, {"spec"});
    if (!have || !covers(*have, *spec)) return Write::kReplace;
  }
  return Write::kNothing;
}

std::shared_ptr<const Json> Applier::live(const ObjectRef& ref) const {
  const auto found = written_.find(ref);
  return found == written_.end() ? cache_.live(ref) : found->second;
}

void Applier::seen(const Json& object, bool gone) {
  const auto found = written_.find(ref_of(object));
  if (found == written_.end()) return;
  if (gone || version_of(object) >= version_of(*found->second)) written_.erase(found);
}

struct Applier::Pass {
  std::function<void(Report)> done;
  Report report;
  int open = 0;                                     // requests of the present wave
  std::vector<std::pair<std::string, Json>> later;  // DaemonSets
  bool second = false;
};

void Applier::apply(const Plan& plan, std::string_view policy_uid, std::function<void(Report)> done) {
  auto pass = std::make_shared<Pass>();
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
  client_.loop().post([pass] { std::exchange(pass->done, nullptr)(std::move(pass->report)); });
}

void Applier::write(const std::shared_ptr<Pass>& pass, const std::string& state, const Json& object) {
  const ObjectRef ref = ref_of(object);
  const kube::Resource* type = cache_.type_of(ref.api_version, ref.kind);
  if (!type) {
    pass->report.errors.emplace(state,
                                "apply " + ref.kind + " '" + ref.name + "': the cluster has no such type");
    return;
  }
  const auto there = live(ref);
  const Write what = write_for(object, there.get());
  if (what == Write::kNothing) return;
  ++pass->open;
  ++pass->report.writes;
  const auto done = [this, pass, state, ref, what](kube::ApiResult<> result) {
    // The cache may lag behind our own write of a moment ago: then it is there already, and its event
    // follows.
    const bool raced = !result && (result.error().already_exists() || result.error().conflict());
    if (!result && !raced) {
      const std::string doing =
          (what == Write::kCreate ? "create " : "replace ") + ref.kind + " '" + ref.name + "'";
      pass->report.errors.emplace(
          state, result.error().error(doing).text() + cure_of_refusal(result.error().message));
    } else if (raced) {
      pass->report.raced = true;
      written_.erase(ref);
    } else {
      // The watch may have been quicker than the answer; then there is nothing to remember.
      const auto seen = cache_.live(ref);
      if (!seen || version_of(*seen) < version_of(*result)) {
        written_[ref] = std::make_shared<const Json>(std::move(*result));
      }
      log::info(what == Write::kCreate ? "created" : "replaced", {{"kind", ref.kind}, {"name", ref.name}});
    }
    if (--pass->open == 0) wave(pass);
  };
  if (what == Write::kCreate) {
    client_.create(*type, ref.namespace_name, object, {}, done).detach();
    return;
  }
  Json body = object;
  set(body, {"metadata", "resourceVersion"}, get_string(*there, {"metadata", "resourceVersion"}));
  if (ref.kind == "Service") {
    for (std::string_view kept : {"clusterIP", "clusterIPs"}) {
      if (const Json* value = find(*there, {"spec", kept})) set(body, {"spec", kept}, *value);
    }
  }
  client_.update(*type, ref.namespace_name, ref.name, body, {}, done).detach();
}

void Applier::remove(const std::shared_ptr<Pass>& pass, const std::string& state, const ObjectRef& ref,
                     bool orphan) {
  const kube::Resource* type = cache_.type_of(ref.api_version, ref.kind);
  if (!type) return;
  ++pass->open;
  ++pass->report.writes;
  kube::DeleteOptions options;
  options.propagation = orphan ? "Orphan" : "Background";
  client_
      .remove(*type, ref.namespace_name, ref.name, options,
              [this, pass, state, ref](kube::ApiResult<> result) {
                if (!result && !result.error().not_found()) {
                  pass->report.errors.emplace(
                      state, result.error().error("delete " + ref.kind + " '" + ref.name + "'").text() +
                                 cure_of_refusal(result.error().message));
                } else if (result) {
                  log::info("deleted", {{"kind", ref.kind}, {"name", ref.name}});
                }
                written_.erase(ref);
                if (--pass->open == 0) wave(pass);
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
