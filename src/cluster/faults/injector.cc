#include "cluster/faults/injector.h"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <random>
#include <set>

#include "base/byte_stream.h"
#include "base/json.h"
#include "base/text.h"

namespace gpuop::cluster {
namespace {

// Versions of the past, for stale lists, are kept so long.
constexpr Duration kPast = 10min;

std::string_view after_slash(std::string_view agent) {
  const auto slash = agent.find('/');
  return slash == std::string_view::npos ? std::string_view() : agent.substr(slash + 1);
}

HttpResponse status_answer(int code, std::string_view reason, std::string_view message) {
  return HttpResponse::json(code, to_text(JsonObject{{"kind", "Status"},
                                                     {"apiVersion", "v1"},
                                                     {"metadata", JsonObject()},
                                                     {"status", "Failure"},
                                                     {"message", message},
                                                     {"reason", reason},
                                                     {"code", code}}));
}

HttpResponse refusal(const Fault& fault) {
  if (*fault.api == ApiFault::kThrottle) {
    HttpResponse answer = status_answer(429, "TooManyRequests",
                                        "the server has received too many requests (" + fault.name + ")");
    const auto seconds = std::chrono::ceil<std::chrono::seconds>(fault.retry_after).count();
    answer.headers["Retry-After"] = std::to_string(std::max<std::int64_t>(1, seconds));
    return answer;
  }
  if (*fault.api == ApiFault::kConflict) {
    return status_answer(409, "Conflict",
                         "the object has been modified; please apply your changes to the latest "
                         "version and try again (" +
                             fault.name + ")");
  }
  if (*fault.api == ApiFault::kExpired) {
    return status_answer(410, "Expired",
                         "The resourceVersion for the provided watch is too old. (" + fault.name + ")");
  }
  return status_answer(fault.status, fault.status == 503 ? "ServiceUnavailable" : "InternalError",
                       "injected: " + fault.name);
}

// The first resourceVersion in an object's text is its own.
std::string version_in(std::string_view body) {
  constexpr std::string_view kKey = "\"resourceVersion\":\"";
  const auto at = body.find(kKey);
  if (at == std::string_view::npos) return {};
  const auto from = at + kKey.size();
  return " rv=" + std::string(body.substr(from, body.find('"', from) - from));
}

std::string title(const ApiRequest& request) {
  std::string out = request.resource;
  if (!request.ns.empty()) out += " " + request.ns + "/" + request.name;
  if (request.ns.empty() && !request.name.empty()) out += " " + request.name;
  return out;
}

// Tells what the answer was, and can cut the connection: the client sees its end, the server that the client
// has gone.
class Tap : public HttpResponder, public UpgradableResponder {
 public:
  Tap(std::shared_ptr<HttpResponder> out, std::function<void(int status, std::string_view body)> answered,
      bool lose)
      : out_(std::move(out)), answered_(std::move(answered)), lose_(lose) {}
  void cut() {
    if (std::exchange(cut_, true)) return;
    out_->abort();
    if (closed_) std::exchange(closed_, nullptr)();
  }
  void send(HttpResponse response) override {
    tell(response.status, response.body);
    if (lose_) return cut();
    if (!cut_) out_->send(std::move(response));
  }
  void begin(int status, Headers headers) override {
    tell(status, {});
    if (lose_) return cut();
    if (!cut_) out_->begin(status, std::move(headers));
  }
  void write(std::string chunk) override {
    if (!cut_) out_->write(std::move(chunk));
  }
  void end() override {
    if (!cut_) out_->end();
  }
  void abort() override {
    if (!cut_) out_->abort();
  }
  std::unique_ptr<ByteStream> take_over() override {
    if (cut_ || lose_) return nullptr;
    tell(101, {});
    return gpuop::take_over(*out_);
  }
  std::size_t buffered() const override { return out_->buffered(); }
  bool closed() const override { return cut_ || out_->closed(); }
  void on_drain(const std::function<void()>& drained) override { out_->on_drain(drained); }
  void on_close(std::function<void()> closed) override {
    closed_ = closed;
    out_->on_close(std::move(closed));
  }

 private:
  void tell(int status, std::string_view body) {
    if (answered_) std::exchange(answered_, nullptr)(status, body);
  }
  std::shared_ptr<HttpResponder> out_;
  std::function<void(int, std::string_view)> answered_;
  std::function<void()> closed_;
  bool lose_;
  bool cut_ = false;
};

}  // namespace

ApiRequest describe(const HttpRequest& request) {
  ApiRequest out;
  out.actor = request.header("User-Agent");
  out.component = out.actor.substr(0, out.actor.find('/'));
  std::vector<std::string> parts;
  for (std::string& part : split(request.path, '/')) {
    if (!part.empty()) parts.push_back(url_decode(part));
  }
  const std::size_t at = !parts.empty() && parts[0] == "api"    ? 2
                         : !parts.empty() && parts[0] == "apis" ? 3
                                                                : 0;
  if (at == 0 || parts.size() <= at) {
    out.verb = to_lower(request.method);
    return out;
  }
  std::vector<std::string> rest(parts.begin() + static_cast<std::ptrdiff_t>(at), parts.end());
  const bool own_sub = at == 2 && rest.size() == 3 && (rest[2] == "status" || rest[2] == "finalize");
  if (rest[0] == "namespaces" && rest.size() > 2 && !own_sub) {
    out.ns = rest[1];
    rest.erase(rest.begin(), rest.begin() + 2);
  }
  out.resource = rest[0];
  if (rest.size() > 1) out.name = rest[1];
  if (rest.size() > 2) out.resource += "/" + rest[2];
  const bool named = !out.name.empty();
  if (request.method == "GET") {
    bool watch = false;
    for (const auto& [key, value] : parse_query(request.query)) {
      constexpr std::string_view kByName = "metadata.name=";
      if (key == "watch") watch = value == "true" || value == "1";
      if (!named && key == "fieldSelector" && value.starts_with(kByName) &&
          value.find(',') == std::string::npos)
        out.name = value.substr(kByName.size());
    }
    out.verb = named ? "get" : watch ? "watch" : "list";
  } else if (request.method == "POST") {
    out.verb = "create";
  } else if (request.method == "PUT") {
    out.verb = "update";
  } else if (request.method == "PATCH") {
    out.verb = "patch";
  } else if (request.method == "DELETE") {
    out.verb = named ? "delete" : "deletecollection";
  }
  return out;
}

bool matches(const RequestFilter& filter, const ApiRequest& request) {
  if (!filter.verbs.empty() && std::ranges::find(filter.verbs, request.verb) == filter.verbs.end())
    return false;
  return fits(filter.resource, request.resource) && fits(filter.ns, request.ns) &&
         fits(filter.name, request.name) && fits(filter.component, request.component) &&
         (filter.node.empty() || fits(filter.node, after_slash(request.actor)));
}

namespace {

// The one key of a filter that a request does not fit, with the request's value; nothing where there are none
// or several.
std::optional<std::pair<const char*, std::string>> only_miss(const RequestFilter& filter,
                                                             const ApiRequest& request) {
  std::optional<std::pair<const char*, std::string>> out;
  int misses = 0;
  const auto look = [&](const char* key, const std::string& value, bool fitting) {
    if (fitting) return;
    ++misses;
    out = {key, value};
  };
  const std::string node(after_slash(request.actor));
  look("verb", request.verb,
       filter.verbs.empty() || std::ranges::find(filter.verbs, request.verb) != filter.verbs.end());
  look("resource", request.resource, fits(filter.resource, request.resource));
  look("namespace", request.ns, fits(filter.ns, request.ns));
  look("name", request.name, fits(filter.name, request.name));
  look("component", request.component, fits(filter.component, request.component));
  look("node", node, filter.node.empty() || fits(filter.node, node));
  return misses == 1 ? out : std::nullopt;
}

// The name in a body that is to be created, which its path does not have.
std::string name_in_body(const HttpRequest& request) {
  const auto object = parse_json(request.body);
  return object ? str(get_string(*object, {"metadata", "name"})) : std::string();
}

}  // namespace

struct FaultInjector::Impl : std::enable_shared_from_this<FaultInjector::Impl> {
  struct Active {
    Fault fault;
    std::size_t index = 0;  // in the plan
    int seen = 0, struck = 0;
    std::uint64_t taken = 0;  // see FaultRecord
    std::map<std::string, std::set<std::string>> misses{};
  };
  struct OpenWatch {
    ApiRequest request;
    std::weak_ptr<Tap> tap;
  };

  Impl(Loop& l, const FaultPlan& plan, HttpHandler i, InjectorOptions o)
      : loop(l), inner(std::move(i)), options(std::move(o)), start(l.elapsed()), random(plan.seed) {
    for (std::size_t i = 0; i < plan.faults.size(); ++i) {
      const Fault& fault = plan.faults[i];
      if (!fault.api) continue;
      faults.push_back({.fault = fault, .index = i});
      names_matter = names_matter || !fault.where.name.empty();
    }
    count = plan.faults.size();
  }

  void arm() {
    for (std::size_t i = 0; i < faults.size(); ++i) {
      if (*faults[i].fault.api != ApiFault::kCutWatch) continue;
      timers.push_back(loop.after(faults[i].fault.at, [this, i] { cut(faults[i]); }));
    }
  }

  Duration now() const { return loop.elapsed() - start; }

  void log_fault(const Fault& fault, const ApiRequest& request) {
    ++struck;
    if (options.log) {
      options.log->line(request.actor, request.verb, title(request),
                        "FAULT " + std::string(fault_word(*fault.api)) + " (" + fault.name + ")");
    }
  }

  bool chance(double probability) {
    if (probability >= 1) return true;
    // Not a standard distribution: those may differ from library to library.
    return static_cast<double>(random() >> 11) * 0x1.0p-53 < probability;
  }

  bool is_on(const Fault& fault) const {
    return now() >= fault.at && (!fault.span || now() < fault.at + *fault.span);
  }
  // Those behind one that refused a request do not see it.
  void note_taken(std::size_t by, const ApiRequest& request) {
    for (std::size_t i = by + 1; i < faults.size(); ++i) {
      if (faults[i].seen == 0 && is_on(faults[i].fault) && matches(faults[i].fault.where, request))
        ++faults[i].taken;
    }
  }

  // Whether the fault strikes this request; counts it.
  bool strikes(Active& active, const ApiRequest& request) {
    const Fault& fault = active.fault;
    if (!is_on(fault)) return false;
    if (*fault.api == ApiFault::kCutWatch && !fault.span) return false;  // only those that were open
    if (fault.times > 0 && active.struck >= fault.times) return false;
    if (request.resource.empty()) return false;
    if (!matches(fault.where, request)) {
      if (active.seen == 0) note_miss(active, request);
      return false;
    }
    ++active.seen;
    if (fault.nth > 0 && active.seen != fault.nth) return false;
    if (!chance(fault.probability)) return false;
    ++active.struck;
    return true;
  }

  // For who wonders why nothing fitted.
  static void note_miss(Active& active, const ApiRequest& request) {
    constexpr std::size_t kMost = 200;
    const auto miss = only_miss(active.fault.where, request);
    if (!miss || miss->second.empty()) return;
    std::set<std::string>& values = active.misses[miss->first];
    if (values.size() < kMost) values.insert(miss->second);
  }

  void cut(Active& active) {
    std::erase_if(watches, [](const auto& item) { return item.second.tap.expired(); });
    const auto open = watches;
    for (const auto& [id, watch] : open) {
      const auto tap = watch.tap.lock();
      if (!tap || tap->closed()) continue;
      if (!matches(active.fault.where, watch.request)) {
        if (active.seen == 0) note_miss(active, watch.request);
        continue;
      }
      ++active.seen;
      if (active.fault.times > 0 && active.struck >= active.fault.times) return;
      if (!chance(active.fault.probability)) continue;
      ++active.struck;
      log_fault(active.fault, watch.request);
      tap->cut();
    }
  }

  // The version that was newest `behind` ago; 0: not known.
  std::uint64_t past_version(Duration behind) {
    std::uint64_t found = 0;
    for (const auto& [at, version] : versions) {
      if (at <= now() - behind) found = version;
    }
    return found;
  }

  bool make_stale(const Fault& fault, HttpRequest& request) {
    auto query = parse_query(request.query);
    const auto version =
        std::ranges::find(query, "resourceVersion", &std::pair<std::string, std::string>::first);
    // Only what may come from a cache may be old.
    if (version == query.end() || version->second != "0" || !options.version) return false;
    const std::uint64_t past = past_version(fault.behind);
    if (past == 0) return false;
    version->second = std::to_string(past);
    query.emplace_back("resourceVersionMatch", "Exact");
    request.query = build_query(query);
    return true;
  }

  void note_version() {
    if (!options.version) return;
    const std::uint64_t version = options.version();
    if (!versions.empty() && versions.back().second == version) return;
    versions.emplace_back(now(), version);
    while (versions.size() > 1 && versions[1].first < now() - kPast) versions.pop_front();
  }

  void handle(HttpRequest request, const std::shared_ptr<HttpResponder>& out) {
    note_version();
    const ApiRequest what = describe(request);
    ApiRequest named = what;
    if (names_matter && what.verb == "create" && what.name.empty()) named.name = name_in_body(request);
    Duration delay{0};
    bool lose = false, abort = false;
    for (Active& active : faults) {
      const Fault& fault = active.fault;
      if (*fault.api == ApiFault::kStaleList && what.verb == "list" &&
          request.query.find("resourceVersion=0") == std::string::npos)
        continue;
      if (*fault.api == ApiFault::kExpired && !from_version(request)) continue;
      if (!strikes(active, named)) continue;
      switch (*fault.api) {
        case ApiFault::kDelay:
          delay += fault.delay;
          break;
        case ApiFault::kLostAnswer:
          lose = true;
          break;
        case ApiFault::kCutWatch:
          abort = true;
          break;
        case ApiFault::kStaleList:
          if (!make_stale(fault, request)) {
            --active.struck;
            continue;
          }
          break;
        default:
          log_fault(fault, what);
          note_taken(static_cast<std::size_t>(&active - faults.data()), named);
          return out->send(refusal(fault));
      }
      log_fault(fault, what);
    }
    if (delay > Duration::zero()) {
      loop.after(delay,
                 [weak = weak_from_this(), request = std::move(request), out, what, lose, abort]() mutable {
                   if (const auto self = weak.lock()) self->pass(std::move(request), out, what, lose, abort);
                 })
          .detach();
      return;
    }
    pass(std::move(request), out, what, lose, abort);
  }

  // Lists and watches that go on from a version: those may be told that it is gone.
  static bool from_version(const HttpRequest& request) {
    const auto query = parse_query(request.query);
    return std::ranges::any_of(query, [](const auto& pair) {
      return (pair.first == "resourceVersion" && !pair.second.empty() && pair.second != "0") ||
             pair.first == "continue";
    });
  }

  void pass(HttpRequest request, const std::shared_ptr<HttpResponder>& out, const ApiRequest& what, bool lose,
            bool abort) {
    const bool write = what.verb != "get" && what.verb != "list" && what.verb != "watch";
    const bool logged = options.log != nullptr && !what.resource.empty() && (write || options.log_reads);
    std::function<void(int, std::string_view)> answered;
    if (logged || options.answered) {
      answered = [this, what, write, logged](int status, std::string_view body) {
        if (logged) {
          options.log->line(what.actor, what.verb, title(what),
                            std::to_string(status) + (write ? version_in(body) : std::string()));
        }
        if (options.answered) options.answered(what, status);
      };
    }
    auto tap = std::make_shared<Tap>(out, std::move(answered), lose);
    if (what.verb == "watch") {
      const std::uint64_t id = next_watch++;
      watches[id] = {what, tap};
      if (watches.size() > 2 * swept + 64) {
        std::erase_if(watches, [](const auto& item) { return item.second.tap.expired(); });
        swept = watches.size();
      }
    }
    inner(std::move(request), tap);
    if (abort) tap->cut();
  }

  Loop& loop;
  HttpHandler inner;
  InjectorOptions options;
  Duration start;
  std::mt19937_64 random;
  std::vector<Active> faults;
  std::vector<Handle> timers;
  std::map<std::uint64_t, OpenWatch> watches;  // in the order of their opening
  std::uint64_t next_watch = 1;
  std::size_t swept = 0;
  std::deque<std::pair<Duration, std::uint64_t>> versions;
  std::uint64_t struck = 0;
  std::size_t count = 0;      // of the plan's faults
  bool names_matter = false;  // a fault asks for an object's name
};

FaultInjector::FaultInjector(Loop& loop, const FaultPlan& plan, HttpHandler inner, InjectorOptions options)
    : impl_(std::make_shared<Impl>(loop, plan, std::move(inner), std::move(options))) {
  impl_->arm();
}
FaultInjector::~FaultInjector() = default;

HttpHandler FaultInjector::handler() {
  return [weak = std::weak_ptr<Impl>(impl_)](HttpRequest request, const std::shared_ptr<HttpResponder>& out) {
    if (const auto impl = weak.lock()) return impl->handle(std::move(request), out);
    out->abort();
  };
}
std::uint64_t FaultInjector::struck() const {
  return impl_->struck;
}

std::vector<FaultRecord> FaultInjector::records() const {
  std::vector<FaultRecord> out(impl_->count);
  for (const auto& active : impl_->faults) {
    out[active.index] = {static_cast<std::uint64_t>(active.seen), static_cast<std::uint64_t>(active.struck),
                         active.taken, active.misses};
  }
  return out;
}

}  // namespace gpuop::cluster
