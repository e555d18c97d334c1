#include "cluster/apiserver/server.h"

#include <algorithm>
#include <random>

#include "base/text.h"
#include "base/yaml.h"
#include "cluster/apiserver/crd.h"
#include "cluster/apiserver/watch.h"
#include "kube/object.h"

namespace gpuop::cluster::api {

static constexpr std::size_t kBodyLimit = 3145728;

namespace {

std::uint64_t start_seed(std::uint64_t asked) {
  if (asked != 0) return asked;
  std::random_device device;
  return (static_cast<std::uint64_t>(device()) << 32) ^ device();
}

bool is_health(std::string_view path) {
  for (std::string_view root : {"/healthz", "/livez", "/readyz"})
    if (path == root || (path.starts_with(root) && path[root.size()] == '/')) return true;
  return false;
}

std::string warning_header(const std::vector<std::string>& warnings) {
  std::string text;
  for (const std::string& warning : warnings) {
    if (!text.empty()) text += ", ";
    text += "299 - \"" + replace_all(replace_all(warning, "\\", "\\\\"), "\"", "\\\"") + "\"";
  }
  return text;
}

}  // namespace

std::string_view Call::param(std::string_view key) const {
  for (const auto& [name, value] : query)
    if (name == key) return value;
  return {};
}
bool Call::has_param(std::string_view key) const {
  return std::any_of(query.begin(), query.end(), [&](const auto& pair) { return pair.first == key; });
}
bool Call::flag(std::string_view key) const {
  return has_param(key) && param(key) != "false" && param(key) != "0";
}

// splitmix64: small, and good enough for names that must differ.
std::uint64_t Random::next() {
  state_ += 0x9e3779b97f4a7c15ULL;
  std::uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

std::string Random::uuid() {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string text = "xxxxxxxx-xxxx-4xxx-yxxx-xxxxxxxxxxxx";
  std::uint64_t bits = 0;
  int left = 0;
  for (char& c : text) {
    if (c != 'x' && c != 'y') continue;
    if (left == 0) {
      bits = next();
      left = 16;
    }
    c = c == 'x' ? kHex[bits & 15] : kHex[8 + (bits & 3)];
    bits >>= 4;
    --left;
  }
  return text;
}

std::string Random::suffix(int length) {
  static constexpr std::string_view kLetters = "bcdfghjklmnpqrstvwxz2456789";
  std::string text;
  for (int i = 0; i < length; ++i) text.push_back(kLetters[next() % kLetters.size()]);
  return text;
}

Server::Server(Loop& on, ApiServerOptions with)
    : loop(on),
      options(std::move(with)),
      store(options.history_events),
      random(start_seed(options.seed)),
      signer(options.service_account_key_pem) {
  builtins = builtin_types();
  for (const TypePtr& type : builtins) types[{type->group, type->version, type->plural}] = type;
}

void Server::start() {
  bool fresh = store.object_count() == 0;
  bootstrap();
  if (fresh) store.compact();  // nobody has seen what was before the first answer
  commit_store();
}

void Server::stop() {
  close_store();
  stopped = true;
  std::vector<WatchStream*> open(streams.begin(), streams.end());
  for (WatchStream* stream : open) stream->finish();
  tunnels.clear();
}

std::string Server::now_text() const {
  return format_time(now());
}

TypePtr Server::find_type(std::string_view group, std::string_view version, std::string_view plural) const {
  auto found = types.find({str(group), str(version), str(plural)});
  return found == types.end() ? nullptr : found->second;
}

TypePtr Server::find_kind(std::string_view group, std::string_view kind) const {
  for (const auto& [key, type] : types)
    if (key.group == group && type->kind == kind) return type;
  return nullptr;
}

std::vector<TypePtr> Server::all_types() const {
  std::vector<TypePtr> all = builtins;
  for (const auto& [key, type] : types)
    if (type->custom) all.push_back(type);
  return all;
}

// --- answers
// -------------------------------------------------------------------------------------------------

// The client's first choice that can be served is YAML.
bool wants_yaml(const Call& call) {
  for (const std::string& choice : split(call.http.header("Accept"), ',')) {
    std::string_view media = trim(choice);
    media = trim(media.substr(0, media.find(';')));
    if (media == "application/yaml") return true;
    if (media.starts_with("application/json") || media.starts_with("*/*")) return false;
  }
  return false;
}

namespace {

void make_yaml(HttpResponse& response) {
  Result<Json> value = parse_json(response.body);
  Result<Json> sorted = value ? parse_json(to_canonical_text(*value)) : std::move(value);
  if (!sorted) return;
  response.headers["Content-Type"] = replace_all(response.headers["Content-Type"], "json", "yaml");
  response.body = to_yaml(*sorted);
}

}  // namespace

void Server::respond(const CallPtr& call, HttpResponse response) {
  auto content = response.headers.find("Content-Type");
  if (content != response.headers.end() && content->second.starts_with("application/json") &&
      wants_yaml(*call))
    make_yaml(response);
  response.headers.emplace("Cache-Control", "no-cache, private");
  response.headers.emplace("Audit-Id", std::to_string(++audit));
  if (!call->warnings.empty()) response.headers["Warning"] = warning_header(call->warnings);
  call->out->send(std::move(response));
}

void Server::respond_json(const CallPtr& call, int code, const Json& body) {
  HttpResponse response;
  response.status = code;
  response.headers["Content-Type"] = "application/json";
  response.body = to_text(body);
  respond(call, std::move(response));
}

void Server::respond_status(const CallPtr& call, const Status& status) {
  HttpResponse response;
  response.status = status.code;
  response.headers["Content-Type"] = "application/json";
  if (status.retry_after > 0) response.headers["Retry-After"] = std::to_string(status.retry_after);
  if (status.code == 401 && options.authorization == ApiServerOptions::Authorization::kRbac)
    response.headers["WWW-Authenticate"] = "Bearer realm=\"kubernetes\"";
  response.body = to_text(status.json());
  respond(call, std::move(response));
}

void Server::respond_object(const CallPtr& call, int code, const ObjectPtr& object) {
  Answer<View> view = view_of(*call);
  if (!view) return respond_status(call, view.error());
  if (view->as == View::As::kObject && (!call->type || presented_as_stored(*call->type, *object))) {
    HttpResponse response;
    response.status = code;
    response.headers["Content-Type"] = "application/json";
    response.body = object->text();
    return respond(call, std::move(response));
  }
  respond_value(call, code, object->value());
}

void Server::respond_value(const CallPtr& call, int code, const Json& value) {
  Answer<View> view = view_of(*call);
  if (!view) return respond_status(call, view.error());
  const ResourceType& type = *call->type;
  Json shown = present(type, value);
  if (view->as == View::As::kMetadata) return respond_json(call, code, partial_metadata(shown));
  if (view->as == View::As::kObject || get_string(shown, {"kind"}) == "Status" ||
      (!call->sub.empty() && call->sub != "status"))
    return respond_json(call, code, shown);
  JsonObject table{{"kind", "Table"}, {"apiVersion", "meta.k8s.io/v1"}};
  table["metadata"] = JsonObject{{"resourceVersion", get_string(shown, {"metadata", "resourceVersion"})}};
  table["columnDefinitions"] = table_columns(type);
  table["rows"] = JsonArray{table_row(type, shown, view->include, now())};
  respond_json(call, code, std::move(table));
}

Answer<View> Server::view_of(const Call& call) const {
  View view;
  std::string_view include = call.param("includeObject");
  bool known = include.empty() || include == "Object" || include == "None" || include == "Metadata";
  view.include = include == "Object" ? View::Include::kObject
                 : include == "None" ? View::Include::kNone
                                     : View::Include::kMetadata;
  std::string_view accept = call.http.header("Accept");
  if (accept.empty()) return view;
  // The first choice that can be served wins.
  bool refused_as = false;
  for (const std::string& choice : split(accept, ',')) {
    std::vector<std::string> parts = split(trim(choice), ';');
    std::string_view media = trim(parts[0]);
    if (media != "application/json" && media != "*/*" && media != "application/*" &&
        media != "application/yaml")
      continue;
    std::string as;
    for (const std::string& part : parts)
      if (trim(part).starts_with("as=")) as = std::string(trim(part).substr(3));
    if (as.empty()) return view;
    if (as == "Table" && !known)
      return bad_request("Unable to convert to Table as requested: includeObject: Invalid value: " +
                         to_text(Json(include)) + ": must be 'Metadata', 'Object', 'None', or empty");
    if (as == "Table") view.as = View::As::kTable;
    if (as == "PartialObjectMetadata" || as == "PartialObjectMetadataList") view.as = View::As::kMetadata;
    if (view.as != View::As::kObject) return view;
    refused_as = true;
  }
  constexpr std::string_view kOffered =
      "application/json, application/yaml, application/vnd.kubernetes.protobuf";
  Refusal no = refuse(406, "NotAcceptable",
                      (refused_as ? "only the following media types are accepted: "
                                  : "406: Not Acceptable\n\nAvailable representations: ") +
                          std::string(kOffered));
  no.error().has_details = !refused_as;
  return no;
}

// --- the way of a request
// ------------------------------------------------------------------------------------

void Server::handle(HttpRequest request, std::shared_ptr<HttpResponder> out) {
  ++requests;
  if (store.hot().full()) cool_soon();
  auto call = std::make_shared<Call>();
  call->query = parse_query(request.query);
  call->http = std::move(request);
  call->out = gate ? gate->wrap(std::move(out), call->http.method != "GET") : std::move(out);
  if (stopped) {
    auto away = refuse(503, "ServiceUnavailable", "the server is shutting down");
    return respond_status(call, away.error());
  }
  route(call);
}

void Server::route(const CallPtr& call) {
  const std::string& path = call->http.path;
  bool served = false;
  serve_fixed(call, served);
  if (served) return;
  Answer<ApiUser> user = authenticate(*call);
  if (!user) return respond_status(call, user.error());
  call->user = std::move(*user);
  bool parsed = parse_path(*call, path);
  if (!parsed || !call->type) {
    if (!allowed_path(call->user, to_lower(call->http.method), path)) {
      auto no = refuse(403, "Forbidden",
                       "forbidden: User \"" + call->user.name + "\" cannot " + to_lower(call->http.method) +
                           " path \"" + path + "\"");
      no.error().has_details = true;
      return respond_status(call, no.error());
    }
    if (path == "/metrics") return serve_metrics(call);
    return path.starts_with("/openapi/") ? openapi(call) : discover(call);
  }
  Answer<> may = authorize(*call);
  if (!may) return respond_status(call, may.error());
  if (call->http.body.size() > kBodyLimit && call->http.method != "GET") {
    auto big = refuse(413, "RequestEntityTooLarge", "Request entity too large: limit is 3145728");
    return respond_status(call, big.error());
  }
  if (Answer<> can = can_store(*call); !can) return respond_status(call, can.error());
  if (call->type->custom) call->warnings = call->type->custom->warnings();
  if (call->type->store == "/endpoints")
    call->warnings.emplace_back(
        "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice");
  dispatch(call);
}

// What needs no credentials.
void Server::serve_fixed(const CallPtr& call, bool& served) {
  const std::string& path = call->http.path;
  if (is_health(path)) {
    served = true;
    const std::size_t check = path.find('/', 1);
    if (check != std::string::npos && path.substr(check) != "/ping" && path.substr(check) != "/store")
      return respond(call, HttpResponse::text(404, "404 page not found\n"));
    std::string text = "ok";
    if (call->has_param("verbose"))
      text = "[+]ping ok\n[+]store ok\n" + path.substr(1, path.find('/', 1) - 1) + " check passed\n";
    return respond(call, HttpResponse::text(200, std::move(text)));
  }
  if (path != "/version" && !path.starts_with("/version/")) return;
  served = true;
  if (path.size() > 9) return respond_status(call, no_such_path().error());
  if (call->http.method != "GET") return respond_status(call, method_not_allowed().error());
  if (Answer<View> view = view_of(*call); !view) return respond_status(call, view.error());
  serve_version(call);
}

void Server::serve_metrics(const CallPtr& call) {
  std::string text =
      "# TYPE apiserver_request_total counter\napiserver_request_total " + std::to_string(requests) +
      "\n# TYPE apiserver_longrunning_requests gauge\napiserver_longrunning_requests{verb=\"WATCH\"} " +
      std::to_string(streams.size()) + "\n# TYPE apiserver_storage_objects gauge\n";
  for (const std::string& name : store.names())
    text += "apiserver_storage_objects{resource=\"" + name.substr(name[0] == '/' ? 1 : 0) + "\"} " +
            std::to_string(store.collection(name).objects().size()) + "\n";
  respond(call, HttpResponse::text(200, std::move(text)));
}

void Server::serve_version(const CallPtr& call) {
  std::vector<std::string> parts = split(options.git_version, '.');
  std::string major = parts[0].starts_with("v") ? parts[0].substr(1) : parts[0];
#if defined(__aarch64__)
  constexpr std::string_view kPlatform = "linux/arm64";
#else
  constexpr std::string_view kPlatform = "linux/amd64";
#endif
  respond_json(call, 200,
               JsonObject{{"major", major},
                          {"minor", parts.size() > 1 ? parts[1] : "0"},
                          {"gitVersion", options.git_version},
                          {"gitCommit", "embedded"},
                          {"gitTreeState", "clean"},
                          {"buildDate", "2025-01-01T00:00:00Z"},
                          {"goVersion", "none"},
                          {"compiler", "gc"},
                          {"platform", kPlatform}});
}

bool Server::parse_path(Call& call, std::string_view path) const {
  std::vector<std::string> parts;
  for (std::string& part : split(path, '/'))
    if (!part.empty()) parts.push_back(url_decode(part));
  if (parts.empty()) return false;
  std::string group;
  std::string version;
  std::size_t at = 0;
  if (parts[0] == "api" && parts.size() > 2) {
    version = parts[1];
    at = 2;
  } else if (parts[0] == "apis" && parts.size() > 3) {
    group = parts[1];
    version = parts[2];
    at = 3;
  } else {
    return false;
  }
  std::vector<std::string> rest(parts.begin() + static_cast<std::ptrdiff_t>(at), parts.end());
  // The old way to ask for a watch.
  bool old_watch = rest[0] == "watch" && rest.size() > 1 && call.http.method == "GET";
  if (old_watch) rest.erase(rest.begin());
  bool own_sub = group.empty() && rest.size() == 3 && (rest[2] == "status" || rest[2] == "finalize");
  if (rest[0] == "namespaces" && rest.size() > 2 && !own_sub) {
    call.ns = rest[1];
    rest.erase(rest.begin(), rest.begin() + 2);
  }
  if (rest.size() > 3 && !(rest.size() > 2 && rest[2] == "proxy")) return false;
  call.type = find_type(group, version, rest[0]);
  if (!call.type || (!call.type->namespaced && !call.ns.empty())) {
    call.type = nullptr;
    return false;
  }
  if (rest.size() > 1) call.name = rest[1];
  if (rest.size() > 2) call.sub = rest[2];
  if (call.type->kind == "Namespace") call.ns = "";
  // One namespace's object needs the namespace.
  if (call.type->namespaced && !call.name.empty() && call.ns.empty()) {
    call.type = nullptr;
    return false;
  }
  if (old_watch) {
    if (!call.sub.empty()) return false;
    if (!call.name.empty()) call.query.emplace_back("fieldSelector", "metadata.name=" + call.name);
    call.query.emplace_back("watch", "true");
    call.name.clear();
  }
  const std::string& method = call.http.method;
  bool named = !call.name.empty();
  if (method == "GET") call.verb = named ? "get" : call.flag("watch") ? "watch" : "list";
  if (method == "POST") call.verb = "create";
  if (method == "PUT") call.verb = "update";
  if (method == "PATCH") call.verb = "patch";
  if (method == "DELETE") call.verb = named ? "delete" : "deletecollection";
  call.manager = str(call.param("fieldManager"));
  if (call.manager.empty()) call.manager = user_agent_manager(call.http.header("User-Agent"));
  std::string_view validation = call.param("fieldValidation");
  call.validation = validation == "Strict"   ? FieldValidation::kStrict
                    : validation == "Ignore" ? FieldValidation::kIgnore
                                             : FieldValidation::kWarn;
  return true;
}

namespace {

void check_manager(std::string_view manager, FieldErrors& errors) {
  if (manager.size() > 128) errors.push_back(too_long("fieldManager", 128));
  for (std::size_t i = 0; i < manager.size(); ++i) {
    auto c = static_cast<unsigned char>(manager[i]);
    if (c >= 0x20 && c != 0x7f) continue;
    char code[8];
    std::snprintf(code, sizeof code, "%04X", c);
    errors.push_back(
        invalid("fieldManager", Json(manager),
                "invalid character U+" + std::string(code) + " (at position " + std::to_string(i) + ")"));
  }
}

// The parameters that every write takes.
Answer<> check_write_options(const Call& call) {
  static const std::map<std::string_view, std::string_view> kinds = {{"create", "CreateOptions"},
                                                                     {"update", "UpdateOptions"},
                                                                     {"patch", "PatchOptions"},
                                                                     {"delete", "DeleteOptions"},
                                                                     {"deletecollection", "DeleteOptions"}};
  auto kind = kinds.find(call.verb);
  if (kind == kinds.end()) return {};
  FieldErrors errors;
  std::string_view dry = call.param("dryRun");
  if (call.has_param("dryRun") && dry != "All")
    errors.push_back(unsupported("dryRun", JsonArray{Json(dry)}, {"All"}));
  if (kind->second != "DeleteOptions") {
    check_manager(call.param("fieldManager"), errors);
    std::string_view validation = call.param("fieldValidation");
    if (!validation.empty() && validation != "Strict" && validation != "Warn" && validation != "Ignore")
      errors.push_back(unsupported("fieldValidation", Json(validation), {"", "Ignore", "Strict", "Warn"}));
  }
  if (!errors.empty()) return invalid_object("meta.k8s.io", kind->second, "", std::move(errors));
  return {};
}

// Parameters that are whole numbers.
Answer<> check_numbers(const Call& call) {
  for (std::string_view name : {"limit", "timeoutSeconds", "gracePeriodSeconds"}) {
    std::string_view value = call.param(name);
    if (!value.empty() && !parse_int(value))
      return bad_request("strconv.ParseInt: parsing " + to_text(Json(value)) + ": invalid syntax");
  }
  return {};
}

}  // namespace

void Server::dispatch(const CallPtr& call) {
  if (Answer<> good = check_numbers(*call); !good) return respond_status(call, good.error());
  if (Answer<> good = check_write_options(*call); !good) return respond_status(call, good.error());
  call->dry_run = call->has_param("dryRun");
  if (call->type->create_only) {
    if (call->verb != "create" || !call->name.empty())
      return respond_status(call, method_not_allowed().error());
    return review(call);
  }
  if (!call->sub.empty() && call->sub != "status") return subresource(call);
  // Nothing is written for a caller who could not read the answer.
  if (Answer<View> view = view_of(*call); !view) return respond_status(call, view.error());
  if (call->sub == "status") {
    if (!call->type->has_status) {
      auto none = call->type->custom ? not_found(*call->type, call->name) : no_such_path();
      return respond_status(call, none.error());
    }
    if (call->verb != "get" && call->verb != "update" && call->verb != "patch")
      return respond_status(call, method_not_allowed().error());
  }
  bool named = !call->name.empty();
  if (call->verb == "get") return get(call);
  if (call->verb == "list") return list(call);
  if (call->verb == "watch") return watch(call);
  if (call->verb == "create" && !named && call->type->namespaced == !call->ns.empty())
    return create_request(call);
  if (call->verb == "update" && named) return update_request(call);
  if (call->verb == "patch" && named) return patch_request(call);
  if (call->verb == "delete") return delete_request(call);
  if (call->verb == "deletecollection" && call->type->kind != "Namespace" &&
      call->type->namespaced == !call->ns.empty())
    return delete_collection_request(call);
  respond_status(call, method_not_allowed().error());
}

Call Server::internal_call(const TypePtr& type, std::string_view ns, std::string_view name) const {
  Call call;
  call.type = type;
  call.ns = std::string(ns);
  call.name = std::string(name);
  call.user = {"system:apiserver", "", {"system:masters"}};
  call.manager = "kube-apiserver";
  call.validation = FieldValidation::kIgnore;
  return call;
}

ObjectPtr Server::stored(const ResourceType& type, std::string_view ns, std::string_view name) {
  return store.collection(type.store).get(make_key(type.namespaced ? ns : std::string_view(), name));
}

}  // namespace gpuop::cluster::api

namespace gpuop::cluster {

struct ApiServer::Impl {
  std::shared_ptr<api::Server> server;
};

HttpServerOptions api_http_options() {
  HttpServerOptions out;
  out.body_limit = api::kBodyLimit;
  out.hand_over_large_bodies = true;
  out.header_limit = 1u << 20;
  out.header_timeout = 32s;
  out.body_timeout = 60s;
  out.idle_timeout = 90s;
  return out;
}

ApiServer::ApiServer(Loop& loop, ApiServerOptions options)
    : impl_(new Impl{std::make_shared<api::Server>(loop, std::move(options))}) {
  impl_->server->start();
}
Result<std::unique_ptr<ApiServer>> ApiServer::open(Loop& loop, ApiServerOptions options) {
  std::unique_ptr<Impl> impl(new Impl{std::make_shared<api::Server>(loop, std::move(options))});
  api::Server& server = *impl->server;
  TRY(server.open_store());
  server.bootstrap();
  const std::uint64_t made = server.store.version();
  server.commit_store();
  TRY(server.store.writable());
  // The disk failed and works again: what was made is undone, and a cluster without it is none.
  if (server.store.version() != made)
    return fail(Code::kUnavailable,
                "open store: the disk failed for a moment while the first objects were written; "
                "start again");
  return std::unique_ptr<ApiServer>(new ApiServer(std::move(impl)));
}
ApiServer::ApiServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

ApiServer::~ApiServer() {
  impl_->server->stop();
}

HttpHandler ApiServer::handler() {
  return [server = std::weak_ptr<api::Server>(impl_->server)](HttpRequest request,
                                                              std::shared_ptr<HttpResponder> out) {
    if (auto alive = server.lock()) return alive->handle(std::move(request), std::move(out));
    out->send(HttpResponse::text(503, "the API server is gone\n"));
  };
}
std::uint64_t ApiServer::resource_version() const {
  return impl_->server->store.version();
}
void ApiServer::compact() {
  impl_->server->store.compact();
}
void ApiServer::cut_watches() {
  std::vector<api::WatchStream*> open(impl_->server->streams.begin(), impl_->server->streams.end());
  for (api::WatchStream* stream : open) stream->cut();
}
std::size_t ApiServer::object_count() const {
  return impl_->server->store.object_count();
}
std::size_t ApiServer::watch_count() const {
  return impl_->server->streams.size();
}
std::uint64_t ApiServer::request_count() const {
  return impl_->server->requests;
}

}  // namespace gpuop::cluster
