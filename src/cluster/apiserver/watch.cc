#include "cluster/apiserver/watch.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "kube/object.h"

namespace gpuop::cluster::api {

namespace {

constexpr Duration kBookmarkEvery = 60s;
constexpr std::int64_t kLongestWatch = 86400;  // seconds, whatever the client asks for
constexpr Duration kFutureWait = 3s;
constexpr std::size_t kEnough = 1u << 20;     // bytes that wait for the client
constexpr Duration kStall = 5s;               // without the client taking anything
constexpr std::size_t kBehindAllowed = 1000;  // events, for a client that stalls

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
  call_->out->on_close([weak = weak_from_this()] {
    if (auto alive = weak.lock()) alive->close(false);
  });
  call_->out->on_drain([weak = weak_from_this()] {
    if (auto alive = weak.lock(); alive && alive->open_ && alive->behind_) alive->pump();
  });
  sent_ = initial ? server_->store.version() : since;
  end_mark_ = initial && end_mark;
  if (initial)
    collection.visit(route_, [&](const std::string&, const ObjectPtr& object) {
      if (selection_.matches(*object, false)) initial_.push_back(object);
    });
  collection.listen(self, route_);
  pump();
  if (!open_) return;
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
      if (auto alive = weak.lock()) alive->mark();
    });
}

void WatchStream::arm_bookmarks() {
  mark_ = server_->loop.after(kBookmarkEvery, [weak = weak_from_this()] {
    if (auto alive = weak.lock(); alive && alive->open_) {
      alive->mark();
      alive->arm_bookmarks();
    }
  });
}

bool WatchStream::full() const {
  return call_->out->buffered() > kEnough;
}

void WatchStream::pump() {
  behind_ = false;
  for (; !initial_.empty(); initial_.pop_front()) {
    if (full()) return fall_behind();
    send("ADDED", initial_.front());
  }
  if (std::exchange(end_mark_, false)) bookmark(true, sent_);
  Collection& collection = server_->store.collection(call_->type->store);
  if (collection.compacted(sent_)) return cut();
  bool more = false;
  collection.since(sent_, [&](const Change& change) {
    more = full();
    if (!more) deliver(change);
    return !more && open_;
  });
  if (more) return fall_behind();
  stall_.reset();
}

void WatchStream::fall_behind() {
  behind_ = true;
  watch_progress();
}

// Armed anew whenever the client has taken something.
void WatchStream::watch_progress() {
  stall_ = server_->loop.after(kStall, [weak = weak_from_this()] {
    auto alive = weak.lock();
    if (!alive || !alive->open_ || !alive->behind_) return;
    const Collection& collection = alive->server_->store.collection(alive->call_->type->store);
    if (alive->initial_.size() + collection.count_since(alive->sent_) > kBehindAllowed ||
        collection.compacted(alive->sent_))
      return alive->cut();
    alive->watch_progress();
  });
}

void WatchStream::changed(const Change& change) {
  if (!open_ || behind_ || change.version <= sent_) return;
  if (full()) return fall_behind();
  deliver(change);
}

void WatchStream::deliver(const Change& change) {
  bool before = change.old && selection_.matches(*change.old, true);
  bool after = !change.deleted && selection_.matches(*change.now, true);
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
  if (view_.as == View::As::kObject && presented_as_stored(resource, *object)) {
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

// Everything up to `version` was looked at, whether it matched or not.
void WatchStream::bookmark(bool initial_end, std::uint64_t version) {
  const ResourceType& type = *call_->type;
  JsonObject metadata{{"resourceVersion", std::to_string(version)}};
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

void WatchStream::mark() {
  if (open_ && !behind_) bookmark(false, server_->store.version());
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
  stall_.reset();
  initial_.clear();
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
  if (wants_yaml(*call)) {  // nobody could tell where one event ends
    Refusal no = refuse(
        406, "NotAcceptable",
        "only the following media types are accepted: application/json, application/json;stream=watch");
    no.error().has_details = false;
    return respond_status(call, no.error());
  }
  bool bookmarks = call->flag("allowWatchBookmarks");
  bool asked = call->has_param("sendInitialEvents");
  bool send_initial = call->flag("sendInitialEvents");
  std::string_view match = call->param("resourceVersionMatch");
  FieldErrors errors;
  if (asked && match != "NotOlderThan")
    errors.push_back(forbidden_field(
        "resourceVersionMatch", "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"));
  if (!asked && !match.empty())
    errors.push_back(
        forbidden_field("resourceVersionMatch",
                        "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"));
  if (!match.empty() && match != "NotOlderThan")
    errors.push_back(unsupported("resourceVersionMatch", Json(match), {"NotOlderThan"}));
  if (!errors.empty())
    return respond_status(call, invalid_object("meta.k8s.io", "ListOptions", "", errors).error());
  Answer<std::uint64_t> version = read_version(call->param("resourceVersion"));
  if (!version) {
    // A watch words it otherwise than a list.
    std::string text = version.error().message.substr(std::string_view("invalid resource version: ").size());
    return respond_status(call, refuse(500, "", std::move(text)).error());
  }
  std::uint64_t since = *version;
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
