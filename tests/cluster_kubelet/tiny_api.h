// Just enough of an API server to test a kubelet against, in memory: objects by path, watches with the two
// field selectors that a kubelet uses, merge and (as far as conditions go) strategic patches, pod deletion
// with grace, and tokens. It records what was written.
#pragma once

#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/http.h"
#include "base/json.h"
#include "base/loop.h"
#include "base/text.h"
#include "kube/object.h"

namespace gpuop::cluster {

class TinyApi {
 public:
  explicit TinyApi(Loop& loop) : loop_(loop) {}

  HttpHandler handler() {
    return [this](const HttpRequest& request, const std::shared_ptr<HttpResponder>& peer) {
      answer(request, peer);
    };
  }

  // Paths as "/api/v1/namespaces/default/pods/p".
  const Json& at(const std::string& path) const {
    static const Json none;
    const auto found = objects_.find(path);
    return found == objects_.end() ? none : found->second;
  }
  bool has(const std::string& path) const { return objects_.contains(path); }
  void put(const std::string& path, Json object) {
    const bool existed = objects_.contains(path);
    Json& stored = objects_[path];
    if (gpuop::get_string(object, {"metadata", "uid"}).empty()) {
      gpuop::set(object, {"metadata", "uid"},
                 existed ? str(get_string(stored, {"metadata", "uid"})) : "uid-" + std::to_string(++uids_));
    }
    gpuop::set(object, {"metadata", "resourceVersion"}, std::to_string(++version_));
    stored = std::move(object);
    tell(path, existed ? "MODIFIED" : "ADDED", stored);
  }
  void merge(const std::string& path, const Json& patch) {
    Json object = at(path);
    kube::merge_apply(object, patch);
    put(path, std::move(object));
  }
  void erase(const std::string& path) {
    const auto found = objects_.find(path);
    if (found == objects_.end()) return;
    const Json gone = std::move(found->second);
    objects_.erase(found);
    ++version_;
    tell(path, "DELETED", gone);
  }
  // What kubectl delete does.
  void delete_pod(const std::string& path, int grace) {
    merge(path, JsonObject{{"metadata", JsonObject{{"deletionTimestamp", format_time(loop_.now())},
                                                   {"deletionGracePeriodSeconds", grace}}}});
  }

  std::vector<std::string> writes;  // "PATCH /api/…", in order
  std::vector<Json> events;
  int tokens = 0;
  std::int64_t token_seconds = 3600;
  bool refuse_writes = false;  // 503
  std::size_t watches() const { return watches_.size(); }

 private:
  struct Watch {
    std::string collection, selector;
    std::shared_ptr<HttpResponder> peer;
  };

  static std::string collection_of(const std::string& path) { return path.substr(0, path.rfind('/')); }
  // "/api/v1/namespaces/x/pods" is in "/api/v1/pods".
  static bool within(const std::string& collection, const std::string& asked) {
    if (collection == asked) return true;
    const auto ns = collection.find("/namespaces/");
    if (ns == std::string::npos) return false;
    const auto after = collection.find('/', ns + 12);
    return after != std::string::npos && collection.substr(0, ns) + collection.substr(after) == asked;
  }
  static bool selected(const Json& object, const std::string& selector) {
    if (selector.empty()) return true;
    const auto equals = selector.find('=');
    const std::string key = selector.substr(0, equals), value = selector.substr(equals + 1);
    if (key == "metadata.name") return get_string(object, {"metadata", "name"}) == value;
    if (key == "spec.nodeName") return get_string(object, {"spec", "nodeName"}) == value;
    return false;
  }
  void tell(const std::string& path, const std::string& type, const Json& object) {
    for (const auto& watch : watches_) {
      if (watch->peer->closed() || !within(collection_of(path), watch->collection)) continue;
      if (!selected(object, watch->selector)) continue;
      watch->peer->write(to_text(JsonObject{{"type", type}, {"object", object}}) + "\n");
    }
    std::erase_if(watches_, [](const auto& watch) { return watch->peer->closed(); });
  }

  static HttpResponse status(int code, const std::string& reason) {
    return HttpResponse::json(code, to_text(JsonObject{{"kind", "Status"},
                                                       {"apiVersion", "v1"},
                                                       {"status", "Failure"},
                                                       {"reason", reason},
                                                       {"message", reason},
                                                       {"code", code}}));
  }
  static std::string query_of(const HttpRequest& request, const std::string& key) {
    for (const auto& [name, value] : parse_query(request.query)) {
      if (name == key) return value;
    }
    return {};
  }

  static void strategic(Json& target, const Json& patch) {
    Json plain = patch;
    for (const char* list : {"conditions", "addresses"}) {
      const Json* items = find(patch, {"status", list});
      if (items == nullptr) continue;
      JsonArray merged = get_array(target, {"status", list});
      for (const Json& item : items->get_array()) {
        bool found = false;
        for (Json& old : merged) {
          if (get_string(old, {"type"}) != get_string(item, {"type"})) continue;
          kube::merge_apply(old, item);
          found = true;
        }
        Json fresh = JsonObject();
        kube::merge_apply(fresh, item);
        if (!found) merged.push_back(std::move(fresh));
      }
      gpuop::set(plain, {"status", list}, std::move(merged));
    }
    kube::merge_apply(target, plain);
  }

  void answer(const HttpRequest& request, const std::shared_ptr<HttpResponder>& peer) {
    if (request.method != "GET") {
      if (refuse_writes) return peer->send(status(503, "ServiceUnavailable"));
      if (request.path.find("/events") == std::string::npos)
        writes.push_back(request.method + " " + request.path);
    }
    if (request.method == "GET") return read(request, peer);
    const auto body = parse_json(request.body.empty() ? "{}" : request.body);
    if (!body) return peer->send(status(400, "BadRequest"));
    if (request.method == "POST") return create(request, *body, peer);
    std::string path = request.path;
    if (path.ends_with("/status")) path.resize(path.size() - 7);
    if (!has(path)) return peer->send(status(404, "NotFound"));
    if (request.method == "DELETE") {
      const std::string_view uid = get_string(*body, {"preconditions", "uid"});
      if (!uid.empty() && uid != get_string(at(path), {"metadata", "uid"}))
        return peer->send(status(409, "Conflict"));
      const Json gone = at(path);
      erase(path);
      return peer->send(HttpResponse::json(200, to_text(gone)));
    }
    Json object = at(path);
    if (request.method == "PATCH") {
      const std::string_view uid = get_string(*body, {"metadata", "uid"});
      if (!uid.empty() && uid != get_string(object, {"metadata", "uid"}))
        return peer->send(status(409, "Conflict"));
      if (request.header("Content-Type").starts_with("application/strategic")) {
        strategic(object, *body);
      } else {
        kube::merge_apply(object, *body);
      }
    } else {
      object = *body;
    }
    if (object != at(path)) put(path, std::move(object));
    peer->send(HttpResponse::json(200, to_text(at(path))));
  }

  void create(const HttpRequest& request, Json body, const std::shared_ptr<HttpResponder>& peer) {
    if (request.path.ends_with("/token")) {
      ++tokens;
      gpuop::set(body, {"status", "token"}, "token-" + std::to_string(tokens));
      gpuop::set(body, {"status", "expirationTimestamp"},
                 format_time(loop_.now() + std::chrono::seconds(token_seconds)));
      return peer->send(HttpResponse::json(201, to_text(body)));
    }
    if (request.path.ends_with("/events")) {
      events.push_back(body);
      return peer->send(HttpResponse::json(201, to_text(body)));
    }
    const std::string path = request.path + "/" + str(get_string(body, {"metadata", "name"}));
    if (has(path)) return peer->send(status(409, "AlreadyExists"));
    put(path, std::move(body));
    peer->send(HttpResponse::json(201, to_text(at(path))));
  }

  void read(const HttpRequest& request, const std::shared_ptr<HttpResponder>& peer) {
    if (has(request.path)) return peer->send(HttpResponse::json(200, to_text(at(request.path))));
    const std::string selector = query_of(request, "fieldSelector");
    if (!query_of(request, "sendInitialEvents").empty()) return peer->send(status(422, "Invalid"));
    if (!query_of(request, "watch").empty()) {
      peer->begin(200, {{"Content-Type", "application/json"}});
      // What changed between the list and this watch.
      const auto since = parse_int(query_of(request, "resourceVersion")).value_or(0);
      for (const auto& [path, object] : objects_) {
        if (!within(collection_of(path), request.path) || !selected(object, selector)) continue;
        if (parse_int(get_string(object, {"metadata", "resourceVersion"})).value_or(0) <= since) continue;
        peer->write(to_text(JsonObject{{"type", "ADDED"}, {"object", object}}) + "\n");
      }
      watches_.push_back(std::make_shared<Watch>(Watch{request.path, selector, peer}));
      return;
    }
    static const std::vector<std::string> collections{"pods",    "nodes",          "configmaps",
                                                      "secrets", "runtimeclasses", "leases"};
    const std::string last = request.path.substr(request.path.rfind('/') + 1);
    if (std::ranges::find(collections, last) == collections.end()) return peer->send(status(404, "NotFound"));
    JsonArray items;
    for (const auto& [path, object] : objects_) {
      if (within(collection_of(path), request.path) && selected(object, selector)) items.push_back(object);
    }
    peer->send(HttpResponse::json(
        200, to_text(JsonObject{{"kind", "List"},
                                {"apiVersion", "v1"},
                                {"metadata", JsonObject{{"resourceVersion", std::to_string(version_)}}},
                                {"items", std::move(items)}})));
  }

  Loop& loop_;
  std::map<std::string, Json> objects_;
  std::list<std::shared_ptr<Watch>> watches_;
  std::uint64_t version_ = 100, uids_ = 0;
};

}  // namespace gpuop::cluster
