// The garbage collector and the end of namespaces (kubernetes-api.md §10), over one graph of every object
// that the server has: what owns what, by uid. The graph comes from watches, one a resource type, of metadata
// alone.
#include <algorithm>
#include <deque>
#include <set>

#include "base/log.h"
#include "base/text.h"
#include "cluster/controllers/context.h"

namespace gpuop::cluster {
namespace {

struct Owner {
  std::string api_version, kind, name, uid;
  bool blocks = false;
};

// One resource type of the server, with the strings that kube::Resource points into.
struct Type {
  std::string group, version, plural, kind;
  bool namespaced = true;
  std::unique_ptr<kube::Informer> own;  // where no controller follows the type already
  kube::Informer* informer = nullptr;
  kube::Resource resource() const { return {group, version, plural, kind, namespaced}; }
};

struct Node {
  std::shared_ptr<Type> type;
  std::string ns, name, uid;
  std::vector<Owner> owners;
  std::vector<std::string> finalizers;
  bool terminating = false;
  bool has_finalizer(std::string_view one) const {
    return std::ranges::find(finalizers, one) != finalizers.end();
  }
};

std::vector<Owner> read_owners(const Json& object) {
  std::vector<Owner> out;
  for (const Json& owner : get_array(object, {"metadata", "ownerReferences"})) {
    out.push_back({str(get_string(owner, {"apiVersion"})), str(get_string(owner, {"kind"})),
                   str(get_string(owner, {"name"})), str(get_string(owner, {"uid"})),
                   get_bool(owner, {"blockOwnerDeletion"})});
  }
  return out;
}

template <class Test>
void erase_where(JsonArray& list, Test test) {
  list.erase(std::remove_if(list.begin(), list.end(), test), list.end());
}

// Events come and go by themselves; the rest are no collections that are stored.
bool is_followed(std::string_view group, std::string_view plural) {
  return !(plural == "events" && (group.empty() || group == "events.k8s.io"));
}

class GarbageCollector final : public Controller {
 public:
  explicit GarbageCollector(Context& context)
      : context_(context),
        recorder_(context.client, "garbage-collector-controller"),
        crds_(context.client, kube::kCustomResourceDefinitions,
              {.keep = {"status.conditions", "spec.versions.name", "spec.versions.served"}}),
        queue_(context.loop,
               [this](const std::string& uid, auto finished) { look(uid, std::move(finished)); },
               {.base_delay = 5ms, .max_delay = 1000s, .workers = 32, .rate = 0}),
        namespace_queue_(context.loop,
                         [this](const std::string& name, auto finished) { end_namespace(name, finished); },
                         {.base_delay = 5ms, .max_delay = 10s, .workers = 8}),
        discovery_queue_(context.loop, [this](const std::string&, auto finished) { discover(finished); },
                         {.base_delay = 100ms, .max_delay = 30s}) {}

  void start() override {
    crds_.on_change([this](const Object&, const Object&) { discovery_queue_.add("all"); });
    crds_.start();
    context_.namespaces.on_change([this](const Object&, const Object& now) {
      if (now && is_terminating(*now)) namespace_queue_.add(str(kube::name_of(*now)));
    });
    discovery_queue_.add("all");
  }

 private:
  // --- which types there are ---

  void discover(const std::function<void(bool)>& finished) {
    get_json("/apis", [this, finished](std::optional<Json> groups) {
      if (!groups) return finished(false);
      std::vector<std::string> paths{"/api/v1"};
      for (const Json& group : get_array(*groups, {"groups"})) {
        // Each object once: under the version that the server prefers.
        paths.push_back("/apis/" + str(get_string(group, {"preferredVersion", "groupVersion"})));
      }
      auto found = std::make_shared<std::map<std::string, std::shared_ptr<Type>>>();
      Gather gather(context_.loop, [this, found, finished, alive = std::weak_ptr(alive_)](bool ok) {
        if (alive.expired()) return;
        if (ok) adopt(*found);
        finished(ok);
      });
      for (const std::string& path : paths) {
        get_json(path, [found, step = gather.step()](std::optional<Json> list) {
          if (list) read_types(*list, *found);
          step(list.has_value());
        });
      }
      gather.close();
    });
  }

  void get_json(const std::string& path, std::function<void(std::optional<Json>)> done) {
    HttpRequest request;
    request.path = path;
    request.headers["Accept"] = "application/json";
    context_.client
        .raw(std::move(request),
             [alive = std::weak_ptr(alive_), done = std::move(done)](kube::ApiResult<HttpResponse> response) {
               if (alive.expired()) return;
               auto parsed = response ? parse_json(response->body) : fail(Code::kUnavailable, "");
               done(parsed ? std::optional(std::move(*parsed)) : std::nullopt);
             })
        .detach();
  }

  static void read_types(const Json& list, std::map<std::string, std::shared_ptr<Type>>& into) {
    const std::string group_version = str(get_string(list, {"groupVersion"}));
    const std::size_t slash = group_version.find('/');
    const std::string group = slash == std::string::npos ? "" : group_version.substr(0, slash);
    const std::string version = slash == std::string::npos ? group_version : group_version.substr(slash + 1);
    for (const Json& entry : get_array(list, {"resources"})) {
      const std::string plural = str(get_string(entry, {"name"}));
      std::set<std::string_view> verbs;
      for (const Json& verb : get_array(entry, {"verbs"})) verbs.insert(as_text(verb));
      if (plural.find('/') != std::string::npos || !is_followed(group, plural)) continue;
      if (!verbs.contains("list") || !verbs.contains("watch") || !verbs.contains("delete")) continue;
      auto type = std::make_shared<Type>();
      type->group = group;
      type->version = version;
      type->plural = plural;
      type->kind = get_string(entry, {"kind"});
      type->namespaced = get_bool(entry, {"namespaced"});
      into[group + "/" + plural] = std::move(type);
    }
  }

  void adopt(const std::map<std::string, std::shared_ptr<Type>>& found) {
    bool fewer = false;
    for (auto it = types_.begin(); it != types_.end();) {
      if (found.contains(it->first)) {
        ++it;
        continue;
      }
      fewer = true;
      // The definition is gone, and its objects with it.
      std::vector<std::string> gone;
      for (const auto& [uid, node] : nodes_) {
        if (node.type == it->second) gone.push_back(uid);
      }
      it = types_.erase(it);
      for (const std::string& uid : gone) forget(uid);
    }
    for (const auto& [key, type] : found) {
      if (types_.contains(key)) continue;
      types_[key] = type;
      follow(type);
    }
    const bool first = !std::exchange(settled_, true);
    // What was looked at while a kind went was put off, for that kind could not be listed any more.
    if (first || fewer) check_settled();
  }

  void follow(const std::shared_ptr<Type>& type) {
    type->informer = context_.informer_of(type->group, type->plural);
    if (type->informer == nullptr) {
      type->own = std::make_unique<kube::Informer>(
          context_.client, type->resource(),
          kube::InformerOptions{.drop = {"metadata.annotations", "metadata.labels"}});
      type->informer = type->own.get();
    }
    std::weak_ptr<Type> weak = type;
    type->informer->on_change([this, weak](const Object& old, const Object& now) {
      const auto live = weak.lock();
      if (!live) return;
      if (now) {
        remember(live, *now);
      } else {
        forget(str(kube::uid_of(*old)));
      }
    });
    type->informer->on_synced([this, weak] {
      if (weak.lock()) check_settled();
    });
    if (type->own) type->own->start();
  }

  // Absence means something only when every type is known.
  bool all_synced() const {
    return settled_ &&
           std::ranges::all_of(types_, [](const auto& entry) { return entry.second->informer->synced(); });
  }
  void check_settled() {
    if (!all_synced()) return;
    for (const auto& [uid, node] : nodes_) {
      if (!node.owners.empty() || node.terminating) queue_.add(uid);
    }
    context_.namespaces.for_each([this](const Object& ns) {
      if (is_terminating(*ns)) namespace_queue_.add(str(kube::name_of(*ns)));
    });
  }

  // --- the graph ---

  void remember(const std::shared_ptr<Type>& type, const Json& object) {
    const std::string uid = str(kube::uid_of(object));
    if (uid.empty()) return;
    unlink(uid);
    Node& node = nodes_[uid];
    node.type = type;
    node.ns = kube::namespace_of(object);
    node.name = kube::name_of(object);
    node.uid = uid;
    node.owners = read_owners(object);
    node.terminating = is_terminating(object);
    node.finalizers.clear();
    for (const Json& one : get_array(object, {"metadata", "finalizers"}))
      node.finalizers.push_back(str(as_text(one)));
    for (const Owner& owner : node.owners) dependents_[owner.uid].insert(uid);
    if (node.terminating) queue_.add(uid);
    if (node.owners.empty()) return;
    queue_.add(uid);
    for (const Owner& owner : node.owners) {
      const auto found = nodes_.find(owner.uid);
      if (found != nodes_.end() && found->second.terminating) queue_.add(owner.uid);
    }
  }

  void unlink(const std::string& uid) {
    const auto found = nodes_.find(uid);
    if (found == nodes_.end()) return;
    for (const Owner& owner : found->second.owners) {
      const auto group = dependents_.find(owner.uid);
      if (group == dependents_.end()) continue;
      group->second.erase(uid);
      if (group->second.empty()) dependents_.erase(group);
      // A terminating owner may have waited for this one.
      const auto waiting = nodes_.find(owner.uid);
      if (waiting != nodes_.end() && waiting->second.terminating) queue_.add(owner.uid);
    }
  }

  void forget(const std::string& uid) {
    const auto found = nodes_.find(uid);
    if (found == nodes_.end()) return;
    unlink(uid);
    const std::string ns = found->second.ns;
    nodes_.erase(found);
    if (const auto group = dependents_.find(uid); group != dependents_.end()) {
      note_end(uid);
      for (const std::string& dependent : group->second) queue_.add(dependent);
    }
    if (ns.empty()) return;
    const Object object = context_.namespaces.get(ns);
    if (object && is_terminating(*object)) namespace_queue_.add(ns);
  }

  // Owners that were seen to end, the latest ones: they never come back, whatever becomes of their kind.
  void note_end(const std::string& uid) {
    constexpr std::size_t kMost = 1000;
    if (!ended_.insert(uid).second) return;
    ended_order_.push_back(uid);
    if (ended_order_.size() <= kMost) return;
    ended_.erase(ended_order_.front());
    ended_order_.pop_front();
  }

  // --- decisions about one object ---

  void look(const std::string& uid, std::function<void(bool)> finished) {
    const auto found = nodes_.find(uid);
    if (found == nodes_.end() || !all_synced()) return finished(true);
    const Node& node = found->second;
    if (node.terminating && node.has_finalizer("orphan")) return orphan_dependents(node, finished);
    if (node.terminating && node.has_finalizer("foregroundDeletion"))
      return wait_for_dependents(node, std::move(finished));
    if (node.terminating || node.owners.empty()) return finished(true);
    examine_owners(node, std::move(finished));
  }

  bool reference_is_valid(const Node& node, const Owner& owner) const {
    const auto found = nodes_.find(owner.uid);
    if (found == nodes_.end()) return true;  // nothing is known against it
    return found->second.ns.empty() || found->second.ns == node.ns;
  }

  enum class OwnerState { kSolid, kWaiting, kAbsent, kForeign };
  OwnerState state_of(const Node& node, const Owner& owner) const {
    const auto found = nodes_.find(owner.uid);
    if (found == nodes_.end()) return OwnerState::kAbsent;
    if (!reference_is_valid(node, owner)) return OwnerState::kForeign;
    const Node& other = found->second;
    return other.terminating && other.has_finalizer("foregroundDeletion") ? OwnerState::kWaiting
                                                                          : OwnerState::kSolid;
  }

  void examine_owners(const Node& node, std::function<void(bool)> finished) {
    std::vector<Owner> absent, waiting;
    bool solid = false;
    for (const Owner& owner : node.owners) {
      switch (state_of(node, owner)) {
        case OwnerState::kSolid:
          solid = true;
          break;
        case OwnerState::kWaiting:
          waiting.push_back(owner);
          break;
        case OwnerState::kAbsent:
          absent.push_back(owner);
          break;
        case OwnerState::kForeign:
          recorder_.event(object_of(node), "Warning", "OwnerRefInvalidNamespace",
                          "ownerRef [" + owner.api_version + "/" + owner.kind + ", namespace: " + node.ns +
                              ", name: " + owner.name + ", uid: " + owner.uid +
                              "] does not exist in namespace \"" + node.ns + "\"");
          // A cluster-scoped object is not removed over an owner that it cannot have.
          if (node.ns.empty()) return finished(true);
          absent.push_back(owner);
          break;
      }
    }
    if (absent.empty() && waiting.empty()) return finished(true);
    // The graph may lag behind the server: what it lacks is asked for once more before anything is removed.
    confirm_absent(node.uid, absent, solid, waiting, finished);
  }

  static Json object_of(const Node& node) {
    JsonObject metadata{{"name", node.name}, {"uid", node.uid}};
    if (!node.ns.empty()) metadata["namespace"] = node.ns;
    JsonObject out{{"apiVersion", node.type->resource().api_version()}, {"kind", node.type->kind}};
    out["metadata"] = std::move(metadata);
    return out;
  }

  std::shared_ptr<Type> type_of(const Owner& owner) const {
    for (const auto& [key, type] : types_) {
      const std::string group = owner.api_version.find('/') == std::string::npos
                                    ? ""
                                    : owner.api_version.substr(0, owner.api_version.find('/'));
      if (type->kind == owner.kind && type->group == group) return type;
    }
    return nullptr;
  }

  void confirm_absent(const std::string& uid, const std::vector<Owner>& absent, bool solid,
                      const std::vector<Owner>& waiting, const std::function<void(bool)>& finished) {
    auto still = std::make_shared<std::vector<Owner>>();
    auto found_again = std::make_shared<bool>(false);
    const std::string ns = nodes_.at(uid).ns;
    Gather gather(context_.loop, [this, alive = std::weak_ptr(alive_), uid, still, found_again, solid,
                                  waiting, finished](bool ok) {
      if (alive.expired()) return;
      if (!ok) return finished(false);
      const auto found = nodes_.find(uid);
      if (found == nodes_.end()) return finished(true);
      if (solid || *found_again) {
        // An owner that waits for its dependents need not wait for one that others keep.
        std::vector<Owner> gone = *still;
        gone.insert(gone.end(), waiting.begin(), waiting.end());
        return cut_owners(found->second, gone, finished);
      }
      remove(found->second, finished);
    });
    for (const Owner& owner : absent) {
      const auto type = type_of(owner);
      // A kind that the server does not serve now may only be away for a while; not so an object that has
      // ended.
      if (!type) {
        if (ended_.contains(owner.uid)) {
          still->push_back(owner);
        } else {
          *found_again = true;
        }
        continue;
      }
      const auto step = gather.step();
      context_.client
          .get(type->resource(), ns, owner.name,
               [still, found_again, owner, step](kube::ApiResult<> result) {
                 if (result && kube::uid_of(*result) == owner.uid) {
                   *found_again = true;
                 } else if (result || result.error().not_found()) {
                   still->push_back(owner);
                 } else {
                   return step(false);
                 }
                 step(true);
               })
          .detach();
    }
    gather.close();
  }

  // Deletes in the background; in the foreground when it is itself waited for and has dependents of its own.
  void remove(const Node& node, std::function<void(bool)> finished) {
    bool waited_for = false;
    for (const Owner& owner : node.owners)
      waited_for = waited_for || (owner.blocks && state_of(node, owner) == OwnerState::kWaiting);
    kube::DeleteOptions options{
        .propagation = waited_for && dependents_.contains(node.uid) ? "Foreground" : "Background",
        .precondition_uid = node.uid};
    if (node.has_finalizer("orphan")) options.propagation = "Orphan";
    log::debug("collecting", {{"kind", node.type->kind}, {"object", kube::object_key(node.ns, node.name)}});
    context_.client
        .remove(node.type->resource(), node.ns, node.name, options,
                [finished = std::move(finished)](kube::ApiResult<> result) {
                  finished(result || result.error().not_found());
                })
        .detach();
  }

  // Takes the references to owners that are gone out; the object stays for the sake of the others.
  void cut_owners(const Node& node, const std::vector<Owner>& gone, std::function<void(bool)> finished) {
    if (gone.empty()) return finished(true);
    edit(
        node,
        [gone](Json& object) {
          Json* list = find_mutable(object, {"metadata", "ownerReferences"});
          if (list == nullptr || !list->is_array()) return;
          auto& entries = list->get_array();
          erase_where(entries, [&](const Json& entry) {
            return std::ranges::any_of(
                gone, [&](const Owner& owner) { return get_string(entry, {"uid"}) == owner.uid; });
          });
        },
        std::move(finished));
  }

  void drop_finalizer(const Node& node, const std::string& finalizer, std::function<void(bool)> finished) {
    edit(
        node,
        [finalizer](Json& object) {
          Json* list = find_mutable(object, {"metadata", "finalizers"});
          if (list == nullptr || !list->is_array()) return;
          erase_where(list->get_array(), [&](const Json& entry) { return as_text(entry) == finalizer; });
        },
        std::move(finished));
  }

  // Reads the metadata, changes it, and writes its two lists back if nobody was faster.
  void edit(const Node& node, std::function<void(Json&)> change, std::function<void(bool)> finished) {
    const std::shared_ptr<Type> type = node.type;
    context_.client
        .get(type->resource(), node.ns, node.name,
             [this, alive = std::weak_ptr(alive_), type, node, change = std::move(change),
              finished = std::move(finished)](kube::ApiResult<> result) {
               if (alive.expired()) return;
               if (!result || kube::uid_of(*result) != node.uid) {
                 return finished(result || result.error().not_found());
               }
               Json after = *result;
               change(after);
               Json patch = kube::merge_diff(*result, after);
               if (patch.get_object().empty()) return finished(true);
               set(patch, {"metadata", "resourceVersion"},
                   Json(get_string(*result, {"metadata", "resourceVersion"})));
               context_.client
                   .patch(type->resource(), node.ns, node.name, kube::Patch::kMerge, patch, {},
                          [finished](kube::ApiResult<> written) {
                            finished(written || written.error().not_found());
                          })
                   .detach();
             })
        .detach();
  }

  void orphan_dependents(const Node& node, const std::function<void(bool)>& finished) {
    const std::string uid = node.uid;
    Gather gather(context_.loop, [this, alive = std::weak_ptr(alive_), uid, finished](bool ok) {
      if (alive.expired()) return;
      const auto found = nodes_.find(uid);
      if (!ok || found == nodes_.end()) return finished(ok);
      drop_finalizer(found->second, "orphan", finished);
    });
    if (const auto group = dependents_.find(uid); group != dependents_.end()) {
      for (const std::string& dependent : std::set(group->second)) {
        const auto found = nodes_.find(dependent);
        if (found != nodes_.end()) cut_owners(found->second, {Owner{.uid = uid}}, gather.step());
      }
    }
    gather.close();
  }

  void wait_for_dependents(const Node& node, std::function<void(bool)> finished) {
    bool blocked = false;
    if (const auto group = dependents_.find(node.uid); group != dependents_.end()) {
      for (const std::string& dependent : group->second) {
        const auto found = nodes_.find(dependent);
        if (found == nodes_.end()) continue;
        if (!found->second.terminating) queue_.add(dependent);
        for (const Owner& owner : found->second.owners)
          blocked = blocked || (owner.uid == node.uid && owner.blocks);
      }
    }
    if (blocked) return finished(true);  // the last one's end brings us back
    drop_finalizer(node, "foregroundDeletion", std::move(finished));
  }

  // --- namespaces ---

  void end_namespace(const std::string& name, const std::function<void(bool)>& finished) {
    const Object ns = context_.namespaces.get(name);
    if (!ns || !is_terminating(*ns) || !settled_) return finished(true);
    // What the watches have not shown yet is asked of the server itself, type by type.
    auto left = std::make_shared<Left>();
    Gather gather(context_.loop, [this, alive = std::weak_ptr(alive_), name, ns, left, finished](bool ok) {
      if (alive.expired()) return;
      if (!ok) return finished(false);
      // What stays has finalizers or takes its time; its end brings us back.
      if (!left->counts.empty())
        return patch_status(context_, kube::kNamespaces, *ns,
                            JsonObject{{"conditions", end_conditions(*ns, *left)}}, finished);
      finalize_namespace(*ns, finished);
    });
    std::vector<kube::Resource> types{kube::kEvents};
    for (const auto& [key, type] : types_) {
      if (type->namespaced) types.push_back(type->resource());
    }
    for (const kube::Resource& type : types) empty_type(type, name, left, gather.step());
    gather.close();
  }

  // What a namespace that ends still has in it.
  struct Left {
    std::map<std::string, std::size_t> counts;      // by "plural.group"
    std::map<std::string, std::size_t> finalizers;  // objects that have it
  };

  static std::string counted(const std::map<std::string, std::size_t>& what, std::string_view word) {
    std::string out;
    for (const auto& [name, count] : what)
      out += (out.empty() ? "" : ", ") + name + " " + str(word) + " " + std::to_string(count) +
             " resource instances";
    return out;
  }

  // Why it does not go, in the words that administrators look for.
  JsonArray end_conditions(const Json& ns, const Left& left) const {
    JsonArray out;
    const auto add = [&](const std::string& type, bool so, const std::string& reason,
                         const std::string& message) {
      const Json* before = kube::condition(ns, type);
      const std::string status = so ? "True" : "False";
      const bool same = before != nullptr && get_string(*before, {"status"}) == status;
      const std::string since =
          same ? str(get_string(*before, {"lastTransitionTime"})) : format_time(context_.loop.now());
      out.push_back(JsonObject{{"type", type},
                               {"status", status},
                               {"lastTransitionTime", since},
                               {"reason", reason},
                               {"message", message}});
    };
    add("NamespaceDeletionDiscoveryFailure", false, "ResourcesDiscovered",
        "All resources successfully discovered");
    add("NamespaceDeletionGroupVersionParsingFailure", false, "ParsedGroupVersions",
        "All legacy kube types successfully parsed");
    add("NamespaceDeletionContentFailure", false, "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization");
    add("NamespaceContentRemaining", true, "SomeResourcesRemain",
        "Some resources are remaining: " + counted(left.counts, "has"));
    const bool held = !left.finalizers.empty();
    add("NamespaceFinalizersRemaining", held, held ? "SomeFinalizersRemain" : "ContentHasNoFinalizers",
        held ? "Some content in the namespace has finalizers remaining: " + counted(left.finalizers, "in")
             : "All content-preserving finalizers finished");
    return out;
  }

  void empty_type(const kube::Resource& type, const std::string& ns, const std::shared_ptr<Left>& left,
                  std::function<void(bool)> done) {
    HttpRequest request;
    request.method = "DELETE";
    request.path = type.path(ns);
    request.headers["Content-Type"] = "application/json";
    request.body = R"({"apiVersion":"v1","kind":"DeleteOptions","propagationPolicy":"Background"})";
    const std::string path = request.path;
    const std::string name = str(type.plural) + "." + str(type.group);
    context_.client
        .raw(std::move(request),
             [this, alive = std::weak_ptr(alive_), path, name, left,
              done = std::move(done)](kube::ApiResult<HttpResponse> result) {
               if (alive.expired()) return;
               const bool unknown = !result && (result.error().not_found() || result.error().status == 405);
               if (unknown) return done(true);
               if (!result) return done(false);
               get_json(path, [name, left, done](std::optional<Json> list) {
                 const Json none = JsonObject();
                 for (const Json& item : get_array(list ? *list : none, {"items"})) {
                   ++left->counts[name];
                   for (const Json& one : get_array(item, {"metadata", "finalizers"}))
                     ++left->finalizers[str(as_text(one))];
                 }
                 done(list.has_value());
               });
             })
        .detach();
  }

  void finalize_namespace(const Json& ns, std::function<void(bool)> finished) {
    const std::string name = str(kube::name_of(ns));
    Json body = ns;
    JsonArray kept;
    for (const Json& one : get_array(ns, {"spec", "finalizers"})) {
      if (as_text(one) != "kubernetes") kept.push_back(one);
    }
    set(body, {"spec", "finalizers"}, kept);
    set(body, {"apiVersion"}, Json("v1"));
    set(body, {"kind"}, Json("Namespace"));
    context_.client
        .update(kube::kNamespaces, "", name, body, {.subresource = "finalize"},
                [finished = std::move(finished)](kube::ApiResult<> result) {
                  finished(result || result.error().not_found());
                })
        .detach();
  }

  Context& context_;
  kube::EventRecorder recorder_;
  std::map<std::string, std::shared_ptr<Type>> types_;                 // "group/plural"
  std::unordered_map<std::string, Node> nodes_;                        // by uid
  std::unordered_map<std::string, std::set<std::string>> dependents_;  // owner's uid -> uids
  std::set<std::string> ended_;                                        // see note_end()
  std::deque<std::string> ended_order_;
  bool settled_ = false;  // discovery has succeeded once
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);
  kube::Informer crds_;
  kube::WorkQueue queue_;
  kube::WorkQueue namespace_queue_;
  kube::WorkQueue discovery_queue_;
};

}  // namespace

std::unique_ptr<Controller> make_garbage_collector(Context& context) {
  return std::make_unique<GarbageCollector>(context);
}

}  // namespace gpuop::cluster
