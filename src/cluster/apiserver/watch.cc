#include "cluster/apiserver/watch.h"

#include <algorithm>

#include "base/text.h"
#include "kube/object.h"

namespace gpuop::cluster::api {

namespace {

constexpr Duration kBookmarkEvery = 60s;
constexpr std::int64_t kLongestWatch = 86400;  // seconds, whatever the client asks for
constexpr Duration kFutureWait = 3s;

FieldError no_initial_events(std::string_view why) {
  return forbidden_field("sendInitialEvents", why);
}

}  // namespace

WatchStream::WatchStream(std::shared_ptr<Server> server, CallPtr call, Selection selection, View view,
                         bool bookmarks)
    : server_(std::move(server)),
      call_(std::move(call)),
      selection_(std::move(selection)),
      view_(view),
      route_(selection_.route(*call_->type)),
      bookmarks_(bookmarks) {}

WatchStream::~WatchStream() = default;

void WatchStream::open(bool initial, bool end_mark, std::uint64_t since) {
  auto self = shared_from_this();
  Collection& collection = server_->store.collection(call_->type->store);
  Headers headers{{"Content-Type", "application/json"}, {"Cache-Control", "no-cache, private"}};
  call_->out->begin(200, std::move(headers));
  if (!initial && collection.compacted(since)) {
    send_error(expired("too old resource version: " + std::to_string(since) + " (" +
                       std::to_string(collection.oldest()) + ")")
                   .error());
    call_->out->end();
    return;
  }
  open_ = true;
  server_->streams.insert(this);
  if (initial) {
    sent_ = server_->store.version();
    collection.visit(route_, [&](const std::string&, const ObjectPtr& object) {
      if (open_ && selection_.matches(object->value())) send("ADDED", object);
    });
    if (!open_) return;
    if (end_mark) bookmark(true);
  } else {
    sent_ = since;
    collection.since(since, [&](const Change& change) {
      if (open_) changed(change);
    });
  }
  if (!open_) return;
  collection.listen(self, route_);
  call_->out->on_close([weak = weak_from_this()] {
    if (auto alive = weak.lock()) alive->close(false);
  });
  std::int64_t seconds = parse_int(call_->param("timeoutSeconds")).value_or(0);
  seconds = std::min(seconds, kLongestWatch);
  if (seconds <= 0) seconds = 1800 + static_cast<std::int64_t>(server_->random.next() % 1800);
  Duration span = std::chrono::seconds(seconds);
  timeout_ = server_->loop.after(span, [weak = weak_from_this()] {
    if (auto alive = weak.lock()) alive->finish();
  });
  if (!bookmarks_) return;
  arm_bookmarks();
  if (span > 3s)
    last_mark_ = server_->loop.after(span - 2s, [weak = weak_from_this()] {
      if (auto alive = weak.lock()) alive->bookmark(false);
    });
}

void WatchStream::arm_bookmarks() {
  mark_ = server_->loop.after(kBookmarkEvery, [weak = weak_from_this()] {
    if (auto alive = weak.lock(); alive && alive->open_) {
      alive->bookmark(false);
      alive->arm_bookmarks();
    }
  });
}

void WatchStream::changed(const Change& change) {
  if (!open_ || change.version <= sent_) return;
  bool before = change.old && selection_.matches(change.old->value());
  bool after = !change.deleted && selection_.matches(change.now->value());
  sent_ = change.version;
  if (change.deleted) {
    if (before) send("DELETED", change.now);
  } else if (after) {
    send(before ? "MODIFIED" : "ADDED", change.now);
  } else if (before) {
    send("DELETED", change.ceased());
  }
}

void WatchStream::send(std::string_view type, const ObjectPtr& object) {
  std::string line = "{\"type\":\"";
  line.append(type).append("\",\"object\":");
  const ResourceType& resource = *call_->type;
  if (view_.as == View::As::kObject && presented_as_stored(resource, object->value())) {
    line += object->text();
  } else if (view_.as == View::As::kObject) {
    line += to_text(present(resource, object->value()));
  } else if (view_.as == View::As::kMetadata) {
    line += to_text(partial_metadata(object->value()));
  } else {
    Json shown = present(resource, object->value());
    JsonObject table{{"kind", "Table"}, {"apiVersion", "meta.k8s.io/v1"}};
    table["metadata"] = JsonObject{{"resourceVersion", std::to_string(object->version())}};
    table["columnDefinitions"] = columns_sent_ ? Json(nullptr) : table_columns(resource);
    table["rows"] = JsonArray{table_row(resource, shown, view_.include, server_->now())};
    columns_sent_ = true;
    line += to_text(Json(std::move(table)));
  }
  line += "}\n";
  call_->out->write(std::move(line));
}

void WatchStream::send_error(const Status& status) {
  call_->out->write("{\"type\":\"ERROR\",\"object\":" + to_text(status.json()) + "}\n");
}

void WatchStream::bookmark(bool initial_end) {
  if (!open_) return;
  // Everything up to the newest version was looked at, whether it matched or not.
  std::uint64_t version = server_->store.version();
  const ResourceType& type = *call_->type;
  JsonObject metadata{{"resourceVersion", std::to_string(version)}, {"creationTimestamp", nullptr}};
  if (initial_end) metadata["annotations"] = JsonObject{{"k8s.io/initial-events-end", "true"}};
  JsonObject object{
      {"kind", type.kind}, {"apiVersion", type.api_version()}, {"metadata", std::move(metadata)}};
  if (view_.as == View::As::kMetadata) {
    object["kind"] = "PartialObjectMetadata";
    object["apiVersion"] = "meta.k8s.io/v1";
  }
  if (view_.as == View::As::kTable) {
    Json row = object;
    object = JsonObject{{"kind", "Table"}, {"apiVersion", "meta.k8s.io/v1"}};
    object["metadata"] = JsonObject{{"resourceVersion", std::to_string(version)}};
    object["columnDefinitions"] = columns_sent_ ? Json(nullptr) : table_columns(type);
    columns_sent_ = true;
    object["rows"] = JsonArray{JsonObject{{"cells", JsonArray{}}, {"object", std::move(row)}}};
  }
  call_->out->write("{\"type\":\"BOOKMARK\",\"object\":" + to_text(Json(std::move(object))) + "}\n");
  sent_ = version;
}

void WatchStream::finish() {
  close(true);
}

void WatchStream::cut() {
  if (open_) call_->out->abort();
  close(false);
}

void WatchStream::close(bool cleanly) {
  if (!open_) return;
  auto self = shared_from_this();  // the collection may hold the last reference
  open_ = false;
  timeout_.reset();
  mark_.reset();
  last_mark_.reset();
  server_->streams.erase(this);
  server_->store.collection(call_->type->store).forget(this, route_);
  if (cleanly) call_->out->end();
}

void Server::watch(const CallPtr& call) {
  const ResourceType& type = *call->type;
  Answer<Selection> selection =
      Selection::parse(call->ns, call->param("labelSelector"), call->param("fieldSelector"), type);
  if (!selection) return respond_status(call, selection.error());
  Answer<View> view = view_of(*call);
  if (!view) return respond_status(call, view.error());
  bool bookmarks = call->flag("allowWatchBookmarks");
  bool asked = call->has_param("sendInitialEvents");
  bool send_initial = call->flag("sendInitialEvents");
  std::string_view match = call->param("resourceVersionMatch");
  FieldErrors errors;
  if (asked && match != "NotOlderThan")
    errors.push_back(
        no_initial_events("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"));
  if (asked && send_initial && !bookmarks)
    errors.push_back(no_initial_events("sendInitialEvents requires setting allowWatchBookmarks to true"));
  if (!asked && !match.empty())
    errors.push_back(
        forbidden_field("resourceVersionMatch",
                        "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"));
  if (!errors.empty())
    return respond_status(call, invalid_object("meta.k8s.io", "ListOptions", "", errors).error());
  std::string_view text = call->param("resourceVersion");
  std::optional<std::int64_t> version = text.empty() ? std::optional<std::int64_t>(0) : parse_int(text);
  if (!version || *version < 0) {
    FieldErrors bad{invalid("resourceVersion", Json(text), "must be a non-negative number")};
    return respond_status(call, invalid_object("meta.k8s.io", "ListOptions", "", bad).error());
  }
  auto since = static_cast<std::uint64_t>(*version);
  auto stream =
      std::make_shared<WatchStream>(shared_from_this(), call, std::move(*selection), *view, bookmarks);
  if (since > store.version()) {
    // The client has seen another server's future: it must list again.
    std::string current = std::to_string(store.version());
    loop.after(kFutureWait,
               [this, self = shared_from_this(), call, stream, since, current] {
                 if (since <= store.version()) return stream->open(false, false, since);
                 Status late = refuse(504, "Timeout",
                                      "Timeout: Too large resource version: " + std::to_string(since) +
                                          ", current: " + current)
                                   .error();
                 late.causes.push_back({"ResourceVersionTooLarge", "Too large resource version", ""});
                 late.retry_after = 1;
                 respond_status(call, late);
               })
        .detach();
    return;
  }
  bool initial = asked ? send_initial : since == 0;
  stream->open(initial, asked && send_initial,
               asked && !send_initial && since == 0 ? store.version() : since);
}

}  // namespace gpuop::cluster::api
