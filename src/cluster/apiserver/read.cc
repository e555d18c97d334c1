// GET of one object and of collections (kubernetes-api.md §7.1, §7.3).
#include "base/text.h"
#include "cluster/apiserver/server.h"
#include "kube/object.h"

namespace gpuop::cluster::api {

namespace {

constexpr Duration kFutureWait = 3s;

struct Continue {
  std::uint64_t version = 0;  // 0: whatever is newest
  std::string last;           // the last key of the page before
};

std::string token_of(const Continue& at) {
  return base64_encode(
      to_text(Json(JsonObject{{"v", "meta.k8s.io/v1"}, {"rv", at.version}, {"start", at.last}})));
}

std::optional<Continue> read_token(std::string_view text) {
  std::optional<std::string> plain = base64_decode(text);
  if (!plain) return std::nullopt;
  Result<Json> value = parse_json(*plain);
  if (!value || get_string(*value, {"v"}) != "meta.k8s.io/v1" || get_string(*value, {"start"}).empty())
    return std::nullopt;
  return Continue{static_cast<std::uint64_t>(get_int(*value, {"rv"})), str(get_string(*value, {"start"}))};
}

}  // namespace

Answer<std::uint64_t> read_version(std::string_view text) {
  if (text.empty()) return std::uint64_t{0};
  std::optional<std::int64_t> number = parse_int(text);
  if (number && *number >= 0) return static_cast<std::uint64_t>(*number);
  std::string shown = to_text(Json(text));
  return bad_request("invalid resource version: resourceVersion: Invalid value: " + shown +
                     ": strconv.ParseUint: parsing " + shown + ": invalid syntax");
}

Json list_item(const ResourceType& type, Json object) {
  if (type.custom || !object.is_object()) return object;
  for (std::string_view key : {"apiVersion", "kind"}) gpuop::remove(object, {key});
  return object;
}

namespace {

struct ListRequest {
  Selection selection;
  View view;
  std::int64_t limit = 0;
  std::optional<Continue> from;
  std::uint64_t version = 0;
  bool exact = false;
};

// Where Go's decoder stops.
std::string base64_fault(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size() &&
         (std::isalnum(static_cast<unsigned char>(text[at])) != 0 || text[at] == '-' || text[at] == '_'))
    ++at;
  if (at == text.size() && text.size() % 4 != 1) return {};
  return ": illegal base64 data at input byte " + std::to_string(at == text.size() ? at - 1 : at);
}

Answer<ListRequest> read_list_request(const Server& server, const Call& call) {
  ListRequest request;
  request.selection =
      TRY(Selection::parse(call.ns, call.param("labelSelector"), call.param("fieldSelector"), *call.type));
  request.view = TRY(server.view_of(call));
  request.limit = parse_int(call.param("limit")).value_or(0);
  std::string_view version = call.param("resourceVersion");
  std::string_view match = call.param("resourceVersionMatch");
  std::string_view token = call.param("continue");
  FieldErrors errors;
  if (!match.empty() && version.empty())
    errors.push_back(forbidden_field("resourceVersionMatch",
                                     "resourceVersionMatch is forbidden unless resourceVersion is provided"));
  if (!match.empty() && !token.empty())
    errors.push_back(forbidden_field("resourceVersionMatch",
                                     "resourceVersionMatch is forbidden when continue is provided"));
  if (!match.empty() && match != "Exact" && match != "NotOlderThan")
    errors.push_back(unsupported("resourceVersionMatch", Json(match), {"Exact", "NotOlderThan", ""}));
  if (match == "Exact" && version == "0")
    errors.push_back(forbidden_field(
        "resourceVersionMatch", "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\""));
  if (call.has_param("sendInitialEvents"))
    errors.push_back(forbidden_field("sendInitialEvents", "sendInitialEvents is forbidden for list"));
  if (!errors.empty()) return invalid_object("meta.k8s.io", "ListOptions", "", std::move(errors));
  if (!token.empty()) {
    if (!version.empty() && version != "0")
      return bad_request("specifying resource version is not allowed when using continue");
    request.from = read_token(token);
    if (!request.from)
      return bad_request("invalid continue token: continue key is not valid" + base64_fault(token));
    return request;
  }
  request.version = TRY(read_version(version));
  request.exact = match == "Exact" || (match.empty() && request.limit > 0 && request.version > 0);
  return request;
}

Status too_new(std::uint64_t asked, std::uint64_t current) {
  Status status = refuse(504, "Timeout",
                         "Timeout: Too large resource version: " + std::to_string(asked) +
                             ", current: " + std::to_string(current))
                      .error();
  status.causes.push_back({"ResourceVersionTooLarge", "Too large resource version", ""});
  status.retry_after = 1;
  return status;
}

// Text of one item as the list shows it.
void append_item(std::string& out, const ResourceType& type, const View& view, const ObjectPtr& object,
                 Time now) {
  if (view.as == View::As::kObject && presented_as_stored(type, *object)) {
    const std::string& text = object->text();
    // Stored objects begin with what the list says once for all.
    std::string head = "{\"apiVersion\":\"" + type.api_version() + "\",\"kind\":\"" + type.kind + "\",";
    bool cut = !type.custom && text.starts_with(head);
    out += cut ? "{" : "";
    out.append(text, cut ? head.size() : 0);
    return;
  }
  Object::Look look;
  object->look(look);
  Json shown = present(type, *look);
  if (view.as == View::As::kTable) {
    out += to_text(table_row(type, shown, view.include, now));
  } else {
    out +=
        to_text(view.as == View::As::kMetadata ? partial_metadata(shown) : list_item(type, std::move(shown)));
  }
}

struct Page {
  std::string items;  // comma-separated
  std::string next;   // continue token
  std::int64_t remaining = 0;
};

// `narrow`: the live collection, when it can serve a narrow route faster than a walk over all.
Page make_page(const Server& server, const Call& call, const ListRequest& request,
               const Collection::Objects& objects, const Collection* narrow, std::uint64_t version) {
  Page page;
  // Keys of one namespace stand together.
  std::string prefix = request.selection.ns.empty() ? "" : request.selection.ns + "/";
  std::int64_t taken = 0;
  std::string last;
  bool full = false;
  auto take = [&](const std::string& key, const ObjectPtr& object) {
    // Keys begin with the namespace.
    if (full || (request.selection.narrowed && !request.selection.matches(*object, false))) return;
    if (request.limit > 0 && taken == request.limit) {
      if (page.next.empty()) page.next = token_of({version, last});
      full = request.selection.narrowed;
      if (!full) ++page.remaining;
      return;
    }
    if (taken++ > 0) page.items += ',';
    append_item(page.items, *call.type, request.view, object, server.now());
    last = key;
  };
  if (narrow != nullptr && !request.from) {
    narrow->visit(request.selection.route(*call.type), take);
    return page;
  }
  auto it = request.from ? objects.upper_bound(request.from->last) : objects.lower_bound(prefix);
  for (; it != objects.end() && !full; ++it) {
    if (!prefix.empty() && !it->first.starts_with(prefix)) break;
    take(it->first, it->second);
  }
  return page;
}

std::string list_text(const ResourceType& type, const ListRequest& request, const Page& page,
                      std::uint64_t version) {
  JsonObject metadata{{"resourceVersion", std::to_string(version)}};
  if (type.custom && request.view.as == View::As::kObject) metadata["continue"] = "";
  if (!page.next.empty()) {
    metadata["continue"] = page.next;
    if (page.remaining > 0) metadata["remainingItemCount"] = page.remaining;
  }
  std::string kind = type.list_kind;
  std::string api = type.api_version();
  std::string head = "items";
  std::string columns;
  if (request.view.as == View::As::kTable) {
    kind = "Table";
    api = "meta.k8s.io/v1";
    head = "rows";
    columns = ",\"columnDefinitions\":" + to_text(table_columns(type));
  } else if (request.view.as == View::As::kMetadata) {
    kind = "PartialObjectMetadataList";
    api = "meta.k8s.io/v1";
  }
  return "{\"kind\":\"" + kind + "\",\"apiVersion\":\"" + api +
         "\",\"metadata\":" + to_text(Json(std::move(metadata))) + columns + ",\"" + head + "\":[" +
         page.items + "]}\n";
}

}  // namespace

void Server::get(const CallPtr& call) {
  Answer<std::uint64_t> asked = read_version(call->param("resourceVersion"));
  if (!asked) return respond_status(call, asked.error());
  if (*asked > store.version()) {
    loop.after(kFutureWait,
               [this, self = shared_from_this(), call, asked = *asked] {
                 if (asked <= store.version()) return get(call);
                 respond_status(call, too_new(asked, store.version()));
               })
        .detach();
    return;
  }
  ObjectPtr object = stored(*call->type, call->ns, call->name);
  if (!object) return respond_status(call, not_found(*call->type, call->name).error());
  respond_object(call, 200, object);
}

void Server::list(const CallPtr& call) {
  Answer<ListRequest> request = read_list_request(*this, *call);
  if (!request) return respond_status(call, request.error());
  if (request->version > store.version()) {
    loop.after(kFutureWait,
               [this, self = shared_from_this(), call, asked = request->version] {
                 if (asked <= store.version()) return list(call);
                 respond_status(call, too_new(asked, store.version()));
               })
        .detach();
    return;
  }
  const ResourceType& type = *call->type;
  Collection& collection = store.collection(type.store);
  std::uint64_t version = store.version();
  bool past = request->exact || (request->from && request->from->version != 0);
  if (past) version = request->exact ? request->version : request->from->version;
  // Nothing changed since: the past is the present.
  if (!past || version >= collection.newest()) {
    bool narrow = !request->selection.route(type).empty();
    Page page =
        make_page(*this, *call, *request, collection.objects(), narrow ? &collection : nullptr, version);
    HttpResponse response = HttpResponse::json(200, list_text(type, *request, page, version));
    return respond(call, std::move(response));
  }
  std::optional<Collection::Objects> objects = collection.at(version);
  if (!objects) {
    Status gone =
        expired(request->from
                    ? "The provided continue parameter is too old to display a consistent list result. You "
                      "can start a new list without the continue parameter, or use the continue token in "
                      "this response to retrieve the remainder of the results."
                    : "too old resource version: " + std::to_string(version) + " (" +
                          std::to_string(collection.oldest()) + ")")
            .error();
    if (request->from) gone.continue_token = token_of({0, request->from->last});
    return respond_status(call, gone);
  }
  Page page = make_page(*this, *call, *request, *objects, nullptr, version);
  respond(call, HttpResponse::json(200, list_text(type, *request, page, version)));
}

}  // namespace gpuop::cluster::api
