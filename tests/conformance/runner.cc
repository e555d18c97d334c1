#include "runner.h"

#include <algorithm>
#include <regex>

#include "base/text.h"
#include "base/yaml.h"
#include "cluster/apiserver/crd.h"
#include "kube/config.h"

namespace gpuop::conformance {

namespace {

constexpr Duration kLimit = 30s;  // for anything that a step waits for

using cluster::api::by_json_path;

// Where a path ends, for changing what is there; null when absent.
Json* at_path(Json& body, std::string_view path) {
  return const_cast<Json*>(by_json_path(body, path));
}

// The path without its last step, and that step: ".a.b[0].c" → ".a.b[0]", "c".
void drop_path(Json& body, const std::string& path) {
  std::size_t dot = path.rfind('.');
  if (dot == std::string::npos) return;
  while (dot > 0 && path[dot - 1] == '\\') dot = path.rfind('.', dot - 1);
  std::string last = replace_all(path.substr(dot + 1), "\\", "");
  std::size_t star = path.find("[*]");
  if (star != std::string::npos) {  // of every item
    Json* list = star == 0 ? &body : at_path(body, path.substr(0, star));
    if (list == nullptr || !list->is_array()) return;
    for (Json& item : list->get_array()) drop_path(item, path.substr(star + 3));
    return;
  }
  Json* parent = dot == 0 ? &body : at_path(body, path.substr(0, dot));
  if (parent != nullptr && parent->is_object()) parent->get_object().erase(last);
}

void sort_list(Json& body, const std::string& path) {
  Json* list = at_path(body, path);
  if (list == nullptr || !list->is_array()) return;
  std::vector<std::pair<std::string, Json>> items;
  for (Json& item : list->get_array()) {
    std::string key = str(get_string(item, {"metadata", "name"}));
    items.emplace_back(key + to_canonical_text(item), item);
  }
  std::sort(items.begin(), items.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  JsonArray sorted;
  for (auto& [key, item] : items) sorted.push_back(std::move(item));
  *list = std::move(sorted);
}

void sort_lines(JsonArray& lines) {
  std::sort(lines.begin(), lines.end(), [](const Json& a, const Json& b) { return as_text(a) < as_text(b); });
}

Json shaped(const Step& step, Json body) {
  for (const std::string& path : step.sorts) sort_list(body, path);
  for (const std::string& path : step.drops) drop_path(body, path);
  if (step.picks.empty()) return body;
  JsonObject picked;
  for (const std::string& path : step.picks) {
    const Json* found = by_json_path(body, path);
    picked[path] = found == nullptr ? Json("<absent>") : *found;
  }
  return picked;
}

JsonArray lines_of(std::string_view text) {
  JsonArray lines;
  std::vector<std::string> parts = split(text, '\n');
  if (!parts.empty() && parts.back().empty()) parts.pop_back();
  for (const std::string& part : parts) lines.emplace_back(part);
  return lines;
}

// Tables: an age is an age, and how wide a column is follows from it.
std::string table_line(const std::string& raw) {
  static const std::regex age("(^|[ (/])([0-9]+[smhdy])+(?=$|[ )]|/)");
  std::string line = std::regex_replace(raw, age, "$1<age>");
  std::string out;
  std::size_t start = line.find_first_not_of(' ');
  if (start == std::string::npos) return "";
  out = line.substr(0, start);
  for (std::size_t i = start; i < line.size(); ++i) {
    if (line[i] == ' ' && out.ends_with("  ") && out.size() > start) continue;
    out.push_back(line[i]);
  }
  while (out.ends_with(" ")) out.pop_back();
  return out;
}

// What a client logs of its own watch when its time is over depends on which end was faster.
bool is_watch_log(const std::string& line) {
  static const std::regex log("^[IWE]\\d{4} .* reflector\\.go:\\d+\\] .*");
  return std::regex_match(line, log);
}

JsonArray output_lines(std::string_view text) {
  JsonArray lines;
  for (const Json& line : lines_of(text)) {
    const std::string one = str(as_text(line));
    if (!is_watch_log(one)) lines.emplace_back(table_line(one));
  }
  return lines;
}

// "299 - "a", 299 - "b"" → the texts.
JsonArray warnings_of(std::string_view header) {
  JsonArray texts;
  static const std::regex one("299 - \"((?:[^\"\\\\]|\\\\.)*)\"");
  std::string text(header);
  for (std::sregex_iterator it(text.begin(), text.end(), one), end; it != end; ++it)
    texts.emplace_back((*it)[1].str());
  return texts;
}

void note_headers(JsonObject& seen, const Headers& headers) {
  auto value = [&](std::string_view name) {
    auto found = headers.find(name);
    return found == headers.end() ? std::string() : found->second;
  };
  if (std::string type = value("Content-Type"); type != "application/json") seen["type"] = type;
  if (std::string warning = value("Warning"); !warning.empty()) seen["warnings"] = warnings_of(warning);
  if (std::string after = value("Retry-After"); !after.empty()) seen["retryAfter"] = after;
  if (std::string where = value("Location"); !where.empty()) seen["location"] = where;
  if (std::string how = value("WWW-Authenticate"); !how.empty()) seen["authenticate"] = how;
}

std::string media_type(const Step& step, const std::string& method) {
  if (method == "MERGE") return "application/merge-patch+json";
  if (method == "JSONPATCH") return "application/json-patch+json";
  if (method == "STRATEGIC") return "application/strategic-merge-patch+json";
  if (method == "APPLY") return "application/apply-patch+yaml";
  if (step.body.empty()) return "";
  return step.body[0] == '{' || step.body[0] == '[' ? "application/json" : "application/yaml";
}

bool holds(const Json& object, const std::string& condition) {
  std::size_t equals = condition.rfind('=');
  // "[?(@.type==…)]" has signs of its own.
  if (equals != std::string::npos && condition.find(']', equals) != std::string::npos)
    equals = std::string::npos;
  bool unequal = equals != std::string::npos && equals > 0 && condition[equals - 1] == '!';
  const Json* found = by_json_path(object, condition.substr(0, equals - (unequal ? 1 : 0)));
  if (equals == std::string::npos) return found != nullptr;
  std::string value = condition.substr(equals + 1);
  std::string is = found == nullptr ? "" : found->is_string() ? str(as_text(*found)) : to_text(*found);
  return (is == value) != unequal;
}

std::unexpected<Error> at_line(const Step& step, const std::string& why) {
  return fail(Code::kInvalid, "line " + std::to_string(step.line) + ": '" + step.title + "': " + why);
}

// A body that YAML writes more readably than JSON travels as JSON where only that is taken.
Result<std::string> patch_body(const std::string& method, const std::string& body) {
  bool json = method == "MERGE" || method == "JSONPATCH" || method == "STRATEGIC";
  if (!json || body.empty() || body[0] == '{' || body[0] == '[') return body;
  YamlDocument document = TRY(parse_yaml_one(body, "body"));
  return to_text(document.value);
}

}  // namespace

std::string kubectl_path() {
  std::string given = env_or("GPUOP_KUBECTL");
  if (!given.empty()) return given;
  return env_or("XDG_CACHE_HOME", env_or("HOME") + "/.cache") + "/gpu-operator/kubectl/kubectl";
}

std::string Runner::filled(std::string_view text) const {
  std::string out(text);
  for (const auto& [name, value] : variables_) out = replace_all(std::move(out), "$" + name, value);
  std::size_t from = 0;
  while ((from = out.find("@{", from)) != std::string::npos) {
    std::size_t close = out.find('}', from);
    std::size_t star = out.rfind('*', close);
    if (close == std::string::npos || star == std::string::npos || star < from) break;
    std::string part = out.substr(from + 2, star - from - 2);
    std::int64_t count = parse_int(out.substr(star + 1, close - star - 1)).value_or(0);
    std::string many;
    for (std::int64_t i = 0; i < count; ++i) many += part;
    out.replace(from, close - from + 1, many);
    from += many.size();
  }
  return out;
}

Result<Json> Runner::run(const Scenario& scenario) {
  TRY(prepare(scenario));
  Result<> outcome;
  for (const Step& step : scenario.steps) {
    if (!outcome && !step.cleanup) continue;
    Result<> done = one(step);
    if (!done && outcome && !step.cleanup) outcome = std::move(done);
  }
  streams_.clear();
  HttpRequest away;
  away.method = "DELETE";
  away.path = "/api/v1/namespaces/" + variables_["NS"];
  (void)call(away);
  if (!outcome) return fail(outcome.error());
  return normal_->transcript(std::move(seen_));
}

// A namespace of its own, ready for pods, and a folder for kubectl.
Result<> Runner::prepare(const Scenario& scenario) {
  std::string unique = "t-" + random_uuid().substr(0, 8);
  variables_ = {{"NS", unique}, {"REPO", SOURCE_ROOT}};
  streams_.clear();
  seen_.clear();
  normal_ = std::make_unique<Normal>(unique, loop_.now());
  kube::Config config = TRY(kube::parse_kubeconfig(kubeconfig_, "kubeconfig"));
  transport_ = TRY(kube::make_http_transport(loop_, config));
  folder_ = std::make_unique<TempDir>();
  YamlDocument document = TRY(parse_yaml_one(kubeconfig_, "kubeconfig"));
  for (Json& context : find_mutable(document.value, {"contexts"})->get_array())
    set(context, {"context", "namespace"}, Json(unique));
  TRY(write_file_atomic(folder_->path() / "config", to_yaml(document.value)));
  HttpRequest make;
  make.method = "POST";
  make.path = "/api/v1/namespaces";
  make.headers["Content-Type"] = "application/json";
  make.body = R"({"metadata":{"name":")" + unique + R"("}})";
  HttpResponse made = TRY(call(make));
  if (made.status != 201) return fail(Code::kUnavailable, "make a namespace: " + made.body);
  (void)scenario;
  std::vector<std::string> conditions = {".metadata.name"};
  TRY(wait_for("/api/v1/namespaces/" + unique + "/serviceaccounts/default", conditions));
  return wait_for("/api/v1/namespaces/" + unique + "/configmaps/kube-root-ca.crt", conditions);
}

Result<> Runner::one(const Step& step) {
  switch (step.kind) {
    case Step::Kind::kRequest:
      return request(step);
    case Step::Kind::kWatch:
      return watch(step);
    case Step::Kind::kEvents:
      return events(step);
    case Step::Kind::kUntil:
      return until(step);
    case Step::Kind::kFile:
      return file(step);
    case Step::Kind::kProgram:
      return program(step);
  }
  return {};
}

HttpRequest Runner::make_request(const Step& step, const std::string& method,
                                 const std::string& target) const {
  HttpRequest out;
  bool patch = method == "MERGE" || method == "JSONPATCH" || method == "STRATEGIC" || method == "APPLY";
  out.method = patch ? "PATCH" : method;
  std::string filled_target = filled(target);
  std::size_t mark = filled_target.find('?');
  out.path = filled_target.substr(0, mark);
  if (mark != std::string::npos) out.query = filled_target.substr(mark + 1);
  out.headers["User-Agent"] = "conformance/1.0";
  out.headers["Accept"] = "application/json";
  if (std::string type = media_type(step, method); !type.empty()) out.headers["Content-Type"] = type;
  for (const auto& [name, value] : step.headers) out.headers[name] = filled(value);
  if (out.headers.contains("Accept") && out.headers["Accept"] == "-") out.headers.erase("Accept");
  return out;
}

Result<HttpResponse> Runner::call(HttpRequest request) {
  std::optional<Result<HttpResponse>> answer;
  Handle running =
      transport_->send(std::move(request), [&](Result<HttpResponse> done) { answer = std::move(done); });
  loop_.run_until([&] { return answer.has_value(); }, kLimit);
  if (!answer) return fail(Code::kTimeout, "no answer within 30s");
  return std::move(*answer);
}

void Runner::record(const Step& step, JsonObject seen) {
  if (step.quiet || step.cleanup) return;
  JsonObject entry{{"step", step.title}};
  for (auto& [key, value] : seen) entry[key] = std::move(value);
  seen_.push_back(std::move(entry));
}

Result<> Runner::remember(const Step& step, const Json& body) {
  for (const auto& [name, path] : step.sets) {
    const Json* found = by_json_path(body, path);
    if (found == nullptr) return at_line(step, "nothing at '" + path + "' in " + to_text(body));
    variables_[name] = found->is_string() ? str(as_text(*found)) : to_text(*found);
  }
  return {};
}

Result<> Runner::request(const Step& step) {
  HttpRequest request = make_request(step, step.words[0], step.words[1]);
  request.body = filled(TRY(patch_body(step.words[0], step.body)));
  HttpResponse response = TRY(call(std::move(request)));
  if (step.quiet && response.status >= 400) return at_line(step, response.body);
  JsonObject seen{{"status", response.status}};
  note_headers(seen, response.headers);
  Result<Json> body = parse_json(response.body);
  if (body && !body->is_number()) {
    TRY(remember(step, *body));
    normal_->learn(*body);
    seen["body"] = shaped(step, std::move(*body));
  } else if (step.words[1].find("watch=") != std::string::npos) {
    JsonArray lines;
    for (const Json& line : lines_of(response.body))
      if (Result<Json> event = parse_json(as_text(line))) lines.push_back(shaped(step, std::move(*event)));
    seen["events"] = std::move(lines);
  } else if (!response.body.empty()) {
    seen["text"] = lines_of(response.body);
  }
  record(step, std::move(seen));
  return {};
}

void Runner::open_stream(HttpRequest request, const std::shared_ptr<Stream>& stream) {
  kube::StreamEvents events;
  events.begin = [stream](int status, const Headers&) { stream->status = status; };
  events.data = [stream](std::string_view bytes) {
    stream->pending += bytes;
    std::size_t end = 0;
    while ((end = stream->pending.find('\n')) != std::string::npos) {
      if (Result<Json> event = parse_json(stream->pending.substr(0, end)))
        stream->events.push_back(std::move(*event));
      stream->pending.erase(0, end + 1);
    }
  };
  events.end = [stream](const Result<>&) { stream->ended = true; };
  stream->handle = transport_->stream(std::move(request), std::move(events));
}

Result<> Runner::watch(const Step& step) {
  auto stream = std::make_shared<Stream>();
  open_stream(make_request(step, "GET", step.words[2]), stream);
  loop_.run_until([&] { return stream->status != 0 || stream->ended; }, kLimit);
  streams_[step.words[1]] = stream;
  record(step, {{"status", stream->status}});
  return {};
}

Result<> Runner::events(const Step& step) {
  auto found = streams_.find(step.words[1]);
  if (found == streams_.end()) return at_line(step, "no watch '" + step.words[1] + "'");
  Stream& stream = *found->second;
  bool to_end = step.words[2] == "end";
  std::size_t want = stream.read + static_cast<std::size_t>(parse_int(step.words[2]).value_or(0));
  loop_.run_until([&] { return stream.ended || (!to_end && stream.events.size() >= want); }, kLimit);
  JsonArray taken;
  while (stream.read < stream.events.size() && (to_end || stream.read < want)) {
    const Json& event = stream.events[stream.read++];
    normal_->learn(event);
    TRY(remember(step, event));
    taken.push_back(shaped(step, event));
  }
  JsonObject seen{{"events", std::move(taken)}};
  if (to_end || stream.ended) seen["ended"] = stream.ended;
  record(step, std::move(seen));
  return {};
}

// Follows one object by a watch until every condition holds, or, with "gone", until it is no more.
Result<> Runner::wait_for(const std::string& path, std::span<const std::string> conditions) {
  std::size_t slash = path.rfind('/');
  HttpRequest request;
  request.path = path.substr(0, slash);
  request.query =
      "watch=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan"
      "&fieldSelector=metadata.name%3D" +
      path.substr(slash + 1);
  auto stream = std::make_shared<Stream>();
  open_stream(std::move(request), stream);
  bool met = false;
  bool there = false;
  std::string last;
  auto look = [&] {
    for (; stream->read < stream->events.size() && !met; ++stream->read) {
      const Json& event = stream->events[stream->read];
      std::string_view type = get_string(event, {"type"});
      const Json* object = find(event, {"object"});
      normal_->learn(event);
      if (type == "BOOKMARK" || object == nullptr) {
        met = conditions[0] == "gone" && !there;
        continue;
      }
      there = type != "DELETED";
      last = to_text(*object);
      if (conditions[0] == "gone") {
        met = !there;
      } else {
        met = there && std::all_of(conditions.begin(), conditions.end(),
                                   [&](const std::string& one) { return holds(*object, one); });
      }
    }
    return met || stream->ended;
  };
  loop_.run_until(look, kLimit);
  if (met) return {};
  return fail(Code::kTimeout,
              "wait for '" + path + "': not so within 30s; last seen: " + last + stream->pending);
}

// Whether the custom resource at /apis/GROUP/VERSION/PLURAL answers and stands in both lists of what is
// served. The real server's parts learn of a definition one after the other, some only after its condition
// Established is to be seen, and no watch tells when.
Result<bool> Runner::is_served(const std::string& path) {
  std::vector<std::string> parts = split(path, '/');
  if (parts.size() != 5 || parts[1] != "apis")
    return fail(Code::kInvalid, "'" + path + "' is no /apis/GROUP/VERSION/PLURAL");
  auto answer = [&](const std::string& target, const std::string& accept) {
    HttpRequest request;
    request.path = target;
    request.headers["Accept"] = accept;
    return call(std::move(request));
  };
  HttpResponse objects = TRY(answer(path, "application/json"));
  HttpResponse resources = TRY(answer("/apis/" + parts[2] + "/" + parts[3], "application/json"));
  HttpResponse groups =
      TRY(answer("/apis", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"));
  return objects.status == 200 && resources.body.find("\"" + parts[4] + "\"") != std::string::npos &&
         groups.body.find("\"" + parts[2] + "\"") != std::string::npos;
}

Result<> Runner::wait_until_served(const std::string& path) {
  Time end = loop_.now() + kLimit;
  while (!TRY(is_served(path))) {
    if (loop_.now() > end) return fail(Code::kTimeout, "'" + path + "' is not served after 30s");
    loop_.run_until([] { return false; }, 20ms);
  }
  return {};
}

Result<> Runner::until(const Step& step) {
  std::vector<std::string> conditions;
  for (std::size_t i = 2; i < step.words.size(); ++i) conditions.push_back(filled(step.words[i]));
  std::string path = filled(step.words[1]);
  Result<> met = conditions[0] == "served" ? wait_until_served(path) : wait_for(path, conditions);
  if (!met) return at_line(step, met.error().text());
  record(step, {{"until", "met"}});
  return {};
}

Result<> Runner::file(const Step& step) {
  fs::path path = folder_->path() / step.words[1];
  TRY(make_dirs(path.parent_path()));
  TRY(write_file_atomic(path, filled(step.body), step.executable ? 0755 : 0644));
  return {};
}

Result<> Runner::program(const Step& step) {
  Command command;
  command.env = {"HOME=" + folder_->path().string(), "PATH=/usr/bin:/bin",
                 "KUBECONFIG=" + (folder_->path() / "config").string()};
  std::size_t i = 0;
  for (; i < step.words.size() && step.words[i] != "kubectl" && step.words[i] != "helm"; ++i)
    command.env.push_back(filled(step.words[i]));
  if (i == step.words.size()) return at_line(step, "no command");
  // helm lies beside kubectl.
  command.argv = {fs::path(kubectl_path()).replace_filename(step.words[i]).string()};
  if (step.words[i] == "kubectl") command.argv[0] = kubectl_path();
  for (++i; i < step.words.size(); ++i) command.argv.push_back(filled(step.words[i]));
  command.cwd = folder_->path();
  command.input = filled(step.body);
  command.output_limit = 4u << 20;
  std::optional<Result<ExitState>> state;
  Handle running =
      run_command(loop_, command, kLimit, [&](Result<ExitState> done) { state = std::move(done); });
  loop_.run_until([&] { return state.has_value(); }, kLimit + 5s);
  if (!state) return at_line(step, "did not end");
  ExitState ended = TRY(std::move(*state));
  if (step.quiet && ended.code != 0) return at_line(step, ended.err + ended.out);
  JsonObject seen{{"code", ended.code}};
  Result<Json> body = parse_json(ended.out);
  if (body && body->is_object()) {
    TRY(remember(step, *body));
    normal_->learn(*body);
    seen["body"] = shaped(step, std::move(*body));
  } else {
    seen["out"] = output_lines(ended.out);
  }
  if (JsonArray err = output_lines(ended.err); !err.empty()) seen["err"] = std::move(err);
  for (const std::string& path : step.sorts) {
    if (Json* lines = seen.if_contains(path)) sort_lines(lines->get_array());
  }
  record(step, std::move(seen));
  return {};
}

}  // namespace gpuop::conformance
