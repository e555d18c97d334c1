// A server that crashes again and again over files that lose what was not synced, and a client that keeps
// book: what was answered must be there, what was shown must be there, versions never go back.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "base/loop.h"
#include "base/text.h"
#include "cluster/apiserver/api_server.h"
#include "crash_files.h"

namespace gpuop::cluster {

class CrashRun {
 public:
  explicit CrashRun(std::uint64_t seed, bool disk_lies = false)
      : random_(seed), seed_(seed), files_(std::make_shared<CrashFiles>()) {
    files_->lies = disk_lies;
  }

  int crashes = 0, faults = 0, acknowledged = 0, shown = 0, resumed = 0;

  // One life of the server, until its machine stops or it has done its work. The text says what went wrong,
  // if anything.
  std::string live() {
    dead_ = false;
    image_.reset();
    bool failing = random_() % 4 == 0;
    ApiServerOptions options;
    options.seed = seed_;
    options.files = files_;
    options.rotate_bytes = 16u << 10;
    options.ahead_bytes = random_() % 3 == 0 ? 0 : 8u << 10;
    auto loop = Loop::make_virtual(*parse_time("2025-01-01T00:00:00Z"));
    std::size_t stop_at = files_->operations + 1 + random_() % 120;
    broken_for_ = 0;
    files_->fault = [this, stop_at, failing](std::string_view operation) -> const Error* {
      if (!dead_ && files_->operations >= stop_at) stop();
      if (!failing || operation == "remove") return nullptr;
      if (broken_for_ == 0 && random_() % 40 == 0) {
        broken_for_ = 1 + random_() % 6;
        ++faults;
      }
      if (broken_for_ == 0) return nullptr;
      --broken_for_;
      static const Error kFull(Code::kNoSpace, "write '/data/log': No space left on device");
      static const Error kBad(Code::kIo, "write '/data/log': Input/output error");
      return operation == "sync" ? &kBad : &kFull;
    };
    auto server = ApiServer::open(*loop, options);
    if (!server && !failing && !dead_) return "it does not start: " + server.error().text();
    if (server) {
      handler_ = (*server)->handler();
      if (std::string bad = check(*loop, failing); !bad.empty()) return bad;
      for (int turn = 0; turn < 40 && !dead_; ++turn)
        if (std::string bad = work(*loop); !bad.empty()) return bad;
    }
    if (!dead_) stop();
    ++crashes;
    handler_ = nullptr;
    server = fail(Code::kUnknown, "gone");
    files_->fault = nullptr;
    files_ = image_;
    return {};
  }

 private:
  struct State {
    std::uint64_t version = 0;  // 0: not there
    std::string data;
  };
  struct Key {
    State known;
    std::vector<std::optional<std::string>> maybe;  // data that an unanswered or refused write would leave
  };

  // What a client gets; nothing any more once the machine stopped.
  class Client : public HttpResponder {
   public:
    explicit Client(const bool& dead) : dead_(dead) {}
    void send(HttpResponse response) override {
      if (dead_) return;
      answer = std::move(response);
      ended = true;
    }
    void begin(int status, Headers) override {
      if (!dead_) answer.status = status;
    }
    void write(std::string chunk) override {
      if (!dead_) answer.body += chunk;
    }
    void end() override { ended = true; }
    void abort() override { ended = cut = true; }
    std::size_t buffered() const override { return 0; }
    bool closed() const override { return false; }
    void on_close(std::function<void()>) override {}
    HttpResponse answer;
    bool ended = false, cut = false;

   private:
    const bool& dead_;
  };

  void stop() {
    image_ = files_->after_crash(random_());
    dead_ = true;
  }

  std::shared_ptr<Client> ask(std::string method, std::string path, std::string query = {},
                              std::string body = {}) {
    HttpRequest request;
    request.method = std::move(method);
    request.path = std::move(path);
    request.query = std::move(query);
    request.body = std::move(body);
    auto client = std::make_shared<Client>(dead_);
    handler_(std::move(request), client);
    return client;
  }

  static void settle(Loop& loop) { loop.run_for(1ms); }
  static std::string name_of(int key) { return "k" + std::to_string(key); }
  static std::uint64_t version_of(const Json& object) {
    return static_cast<std::uint64_t>(
        parse_int(get_string(object, {"metadata", "resourceVersion"})).value_or(0));
  }
  static std::string data_of(const Json& object) { return str(get_string(object, {"data", "v"})); }

  static constexpr const char* kPath = "/api/v1/namespaces/default/configmaps";

  // What a start must find.
  std::string check(Loop& loop, bool failing) {
    settle(loop);
    watch_.reset();
    auto list = ask("GET", kPath);
    settle(loop);
    if (dead_ || !list->ended) return dead_ ? "" : "no answer to a list";
    if (failing && list->answer.status == 503) return {};
    auto body = parse_json(list->answer.body);
    if (!body || list->answer.status != 200) return "a list answers " + std::to_string(list->answer.status);
    std::uint64_t version = version_of(*body);
    if (version < newest_)
      return "the version went back from " + std::to_string(newest_) + " to " + std::to_string(version);
    std::map<std::string, State> found;
    for (const Json& item : get_array(*body, {"items"}))
      found[str(get_string(item, {"metadata", "name"}))] = {version_of(item), data_of(item)};
    found.erase("kube-root-ca.crt");
    for (auto& [name, key] : keys_) {
      const State now = found.contains(name) ? found[name] : State{};
      found.erase(name);
      bool same = now.version == key.known.version && now.data == key.known.data;
      for (const auto& other : key.maybe)
        same = same || (other ? now.version > 0 && now.data == *other : now.version == 0);
      if (!same)
        return "object " + name + " was '" + key.known.data + "' at " + std::to_string(key.known.version) +
               " and is '" + now.data + "' at " + std::to_string(now.version);
      key.known = now;
      key.maybe.clear();
    }
    if (!found.empty()) return "object " + found.begin()->first + " came from nowhere";
    std::string bad = newest_ > 0 ? check_resume(loop) : "";
    newest_ = std::max(newest_, version);
    watch_ = ask("GET", kPath, "watch=true&resourceVersion=" + std::to_string(version));
    watched_ = 0;
    return bad;
  }

  // A watch from before the crash goes on, or is told to list again.
  std::string check_resume(Loop& loop) {
    auto watch = ask("GET", kPath, "watch=true&resourceVersion=" + std::to_string(newest_));
    settle(loop);
    if (dead_) return {};
    std::map<std::string, std::uint64_t> last;
    for (const std::string& line : split(watch->answer.body, '\n')) {
      if (line.empty()) continue;
      auto event = parse_json(line);
      if (!event) return "an event is not JSON";
      if (get_string(*event, {"type"}) == "ERROR")
        return get_int(*event, {"object", "code"}) == 410 ? "" : "a resumed watch answers " + line;
      std::uint64_t version = version_of(*find(*event, {"object"}));
      if (version <= newest_) return "a resumed watch goes back";
      last[str(get_string(*event, {"object", "metadata", "name"}))] =
          get_string(*event, {"type"}) == "DELETED" ? 0 : version;
    }
    ++resumed;
    for (const auto& [name, version] : last)
      if (keys_[name].known.version != version) return "a resumed watch tells another story of " + name;
    for (const auto& [name, key] : keys_)
      if (key.known.version > newest_ && !last.contains(name)) return "a resumed watch leaves out " + name;
    return {};
  }

  // Some writes at once, as several connections make them; then what came of them.
  std::string work(Loop& loop) {
    struct Sent {
      std::string name;
      std::optional<std::string> data;
      bool known_there;
      std::shared_ptr<Client> client;
    };
    std::vector<Sent> sent;
    std::set<std::string> used;
    for (std::uint64_t i = 0, many = 1 + random_() % 8; i < many; ++i) {
      std::string name = name_of(static_cast<int>(random_() % 30));
      if (!used.insert(name).second) continue;
      Key& key = keys_[name];
      // A name whose write was refused may turn up after a crash; it is left alone until that is settled.
      if (!key.maybe.empty()) continue;
      bool there = key.known.version > 0;
      Sent one{name, std::to_string(++counter_) + std::string(random_() % 1500, 'x'), there, nullptr};
      std::string body = R"({"metadata":{"name":")" + name + R"("},"data":{"v":")" + *one.data + "\"}}";
      if (!there) {
        one.client = ask("POST", kPath, "", body);
      } else if (random_() % 3 == 0) {
        one.data.reset();
        one.client = ask("DELETE", std::string(kPath) + "/" + name);
      } else {
        one.client = ask("PUT", std::string(kPath) + "/" + name, "", body);
      }
      key.maybe.push_back(one.data);
      sent.push_back(std::move(one));
    }
    if (random_() % 50 == 0) ask("GET", kPath);
    settle(loop);
    if (std::string bad = take_events(); !bad.empty()) return bad;
    bool any = false;
    for (Sent& one : sent) {
      if (!one.client->ended) {
        if (!dead_) return "a write got no answer";
        continue;
      }
      Key& key = keys_[one.name];
      int status = one.client->answer.status;
      if (status == 500 || status == 503) continue;  // refused: it may be there after a crash, and not before
      if (status != 200 && status != 201)
        return "a write answers " + std::to_string(status) + one.client->answer.body;
      auto body = parse_json(one.client->answer.body);
      if (!body) return "an answer is not JSON";
      ++acknowledged;
      any = true;
      key.maybe.clear();
      std::uint64_t version = one.data ? version_of(*body) : 0;
      newest_ = std::max(newest_, version);
      key.known = {version, one.data.value_or("")};
      if (one.data && data_of(*body) != *one.data) return "an answer shows other data";
    }
    // A write that works shows that what failed before it is cut off the log.
    if (any)
      for (auto& [name, key] : keys_)
        if (std::none_of(sent.begin(), sent.end(), [&, &n = name](const Sent& one) { return one.name == n; }))
          key.maybe.clear();
    if (!dead_ && !sent.empty()) return look_at(loop, sent[0].name);
    return {};
  }

  // Nothing of a refused write is to be seen.
  std::string look_at(Loop& loop, const std::string& name) {
    auto get = ask("GET", std::string(kPath) + "/" + name);
    settle(loop);
    if (dead_ || !get->ended || get->answer.status == 503) return {};
    const State& known = keys_[name].known;
    if (get->answer.status == 404) return known.version == 0 ? "" : "object " + name + " is away";
    auto body = parse_json(get->answer.body);
    if (!body || version_of(*body) != known.version || data_of(*body) != known.data)
      return "object " + name + " is not as it was answered";
    return {};
  }

  std::string take_events() {
    if (!watch_) return {};
    std::string_view rest = std::string_view(watch_->answer.body).substr(watched_);
    for (std::size_t end = 0; (end = rest.find('\n')) != std::string_view::npos;
         rest.remove_prefix(end + 1)) {
      auto event = parse_json(rest.substr(0, end));
      watched_ += end + 1;
      if (!event) return "an event is not JSON";
      std::string_view type = get_string(*event, {"type"});
      if (type == "ERROR" || type == "BOOKMARK") continue;
      const Json& object = *find(*event, {"object"});
      ++shown;
      newest_ = std::max(newest_, version_of(object));
      // What was shown is there for good, answered or not.
      Key& key = keys_[str(get_string(object, {"metadata", "name"}))];
      key.maybe.clear();
      key.known = type == "DELETED" ? State{} : State{version_of(object), data_of(object)};
    }
    if (watch_->ended) watch_.reset();
    return {};
  }

  std::mt19937_64 random_;
  std::uint64_t seed_;
  std::shared_ptr<CrashFiles> files_, image_;
  HttpHandler handler_;
  std::map<std::string, Key> keys_;
  std::shared_ptr<Client> watch_;
  std::size_t watched_ = 0;
  std::uint64_t newest_ = 0;  // newest version seen in any answer or event
  std::uint64_t counter_ = 0;
  std::size_t broken_for_ = 0;
  bool dead_ = false;
};

}  // namespace gpuop::cluster
