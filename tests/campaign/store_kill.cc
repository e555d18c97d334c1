// 500 kill -9 of a control plane with --data-dir, at random moments under writes over 8 connections: nothing
// is lost
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "base/files.h"
#include "base/json.h"
#include "base/process.h"
#include "base/text.h"
#include "campaign/http_client.h"

namespace gpuop {
namespace {

constexpr const char* kMaps = "/api/v1/namespaces/default/configmaps";
constexpr int kConnections = 8;
constexpr int kNames = 40;  // a connection's own

struct State {
  std::uint64_t version = 0;  // 0: not there
  std::string data;
};
struct Name {
  State known;
  const char* heard = "at the start";  // how `known` is known
  bool open = false;                   // a write without an answer:
  std::optional<std::string> maybe;    // what it would leave
};
using Book = std::map<std::string, Name>;

std::uint64_t version_of(const Json& object) {
  return static_cast<std::uint64_t>(
      parse_int(get_string(object, {"metadata", "resourceVersion"})).value_or(0));
}

// What one connection wrote, and what it heard of it.
struct Writer {
  int number = 0;
  Book book;
  std::mt19937_64 random{};
  std::uint64_t counter = 0, answered = 0, newest = 0;
  std::string bad;

  // Until the connection breaks.
  void run(HttpClient& client) {
    while (client.connected() && bad.empty()) {
      std::string name = "w" + std::to_string(number) + "-" + std::to_string(random() % kNames);
      Name& entry = book[name];
      bool there = entry.known.version > 0;
      entry.maybe =
          std::to_string(number) + "." + std::to_string(++counter) + std::string(900 + random() % 200, 'x');
      std::string body = R"({"metadata":{"name":")" + name + R"("},"data":{"v":")" + *entry.maybe + "\"}}";
      entry.open = true;
      std::optional<HttpClient::Answer> answer;
      if (!there) {
        answer = client.ask("POST", kMaps, body);
      } else if (random() % 4 == 0) {
        entry.maybe.reset();
        answer = client.ask("DELETE", std::string(kMaps) + "/" + name);
      } else {
        answer = client.ask("PUT", std::string(kMaps) + "/" + name, body);
      }
      if (!answer) return;
      auto json = parse_json(answer->body);
      if ((answer->status != 200 && answer->status != 201) || !json) {
        bad = "a write of " + name + " answers " + std::to_string(answer->status) + " " + answer->body;
        return;
      }
      ++answered;
      entry.known = entry.maybe ? State{version_of(*json), *entry.maybe} : State{};
      newest = std::max(newest, entry.known.version);
      entry.heard = "answered";
      entry.open = false;
    }
  }
};

// What was seen to happen.
struct Watcher {
  struct Seen {
    State state;
    std::uint64_t version = 0;  // of the event; a deletion has one too
  };
  std::map<std::string, Seen> seen;
  std::uint64_t newest = 0, events = 0;
  std::string bad;

  void run(HttpClient& client, std::uint64_t since) {
    if (!client.send("GET", std::string(kMaps) + "?watch=true&resourceVersion=" + std::to_string(since)) ||
        !client.take_head())
      return;
    while (std::optional<std::string> line = client.next_line()) {
      auto event = parse_json(*line);
      if (!event) {
        bad = "an event is not JSON";
        return;
      }
      const Json* object = find(*event, {"object"});
      if (get_string(*event, {"type"}) == "ERROR" || object == nullptr) {
        bad = "the watch answers " + *line;
        return;
      }
      std::uint64_t version = version_of(*object);
      if (version <= newest) bad = "a watch went back";
      newest = version;
      ++events;
      bool gone = get_string(*event, {"type"}) == "DELETED";
      seen[str(get_string(*object, {"metadata", "name"}))] = {
          gone ? State{} : State{version, str(get_string(*object, {"data", "v"}))}, version};
    }
  }
};

class Campaign {
 public:
  explicit Campaign(std::uint64_t seed) : random_(seed) {
    for (int i = 0; i < kConnections; ++i) {
      writers_[i].number = i;
      writers_[i].random.seed(seed * 100 + static_cast<std::uint64_t>(i));
    }
  }

  // One life of the process; the text says what went wrong.
  std::string live() {
    auto began = std::chrono::steady_clock::now();
    pid_t pid = start();
    std::string bad = [&]() -> std::string {
      HttpClient client(port_, identity());
      auto list = client.connected() ? client.ask("GET", kMaps) : std::nullopt;
      if (!list || list->status != 200)
        return "no answer after a start: " + read_file(dir_.path() / "log").value_or("");
      slowest =
          std::max(slowest, std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
      if (std::string fault = check(*list); !fault.empty()) return fault;
      return load(pid);
    }();
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    return bad;
  }

  std::string prepare() {
    sockaddr_in where{};
    where.sin_family = AF_INET;
    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof where;
    socket_.reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::bind(socket_.get(), reinterpret_cast<sockaddr*>(&where), size) != 0 ||
        ::listen(socket_.get(), 64) != 0 ||
        ::getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&where), &size) != 0)
      return "cannot listen";
    port_ = ntohs(where.sin_port);
    return {};
  }

  std::uint64_t answered() const {
    std::uint64_t sum = 0;
    for (const Writer& writer : writers_) sum += writer.answered;
    return sum;
  }
  std::uint64_t events = 0;
  double slowest = 0;

 private:
  // The socket is ours, so that a client waits in its queue for a process that only starts.
  pid_t start() {
    std::string program =
        env_or("GPUOP_BIN", (self_path().parent_path().parent_path() / "bin").string()) + "/gpuctl";
    std::string state = dir_.path() / "state", data = dir_.path() / "data", log = dir_.path() / "log";
    (void)make_dirs(state);
    const char* argv[] = {program.c_str(), "sim-control-plane", "--state", state.c_str(), "--data-dir",
                          data.c_str(),    "--listen-fd",       "3",       nullptr};
    pid_t pid = ::fork();
    if (pid != 0) return pid;
    int out = ::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    int listening = ::fcntl(socket_.get(), F_DUPFD, 10);
    ::dup2(out, 1);
    ::dup2(out, 2);
    ::dup2(listening, 3);
    ::execv(argv[0], const_cast<char* const*>(argv));
    ::_exit(127);
  }

  // The first connection of the first life finds no keys yet: anybody may ask.
  const TlsIdentity* identity() {
    if (!identity_) {
      auto text = read_file(dir_.path() / "data/pki.json");
      auto json = text ? parse_json(*text) : Result<Json>(fail(text.error()));
      if (!json) return &nobody_;
      identity_.emplace(str(get_string(*json, {"admin", "certificate"})),
                        str(get_string(*json, {"admin", "key"})));
    }
    return &*identity_;
  }

  std::string check(const HttpClient::Answer& list) {
    auto body = parse_json(list.body);
    if (!body) return "a list is not JSON";
    version_ = version_of(*body);
    if (version_ < newest_)
      return "the version went back from " + std::to_string(newest_) + " to " + std::to_string(version_);
    newest_ = version_;
    std::map<std::string, State> found;
    for (const Json& item : get_array(*body, {"items"}))
      found[str(get_string(item, {"metadata", "name"}))] = {version_of(item),
                                                            str(get_string(item, {"data", "v"}))};
    found.erase("kube-root-ca.crt");
    for (Writer& writer : writers_) {
      for (auto& [name, entry] : writer.book) {
        State now = found.contains(name) ? found[name] : State{};
        found.erase(name);
        bool same = now.version == entry.known.version && now.data == entry.known.data;
        bool other =
            entry.open &&
            (entry.maybe ? now.version > entry.known.version && now.data == *entry.maybe : now.version == 0);
        if (!same && !other)
          return name + " (" + entry.heard + (entry.open ? ", and a write open" : "") + ") was '" +
                 entry.known.data.substr(0, 20) + "' at " + std::to_string(entry.known.version) +
                 " and is '" + now.data.substr(0, 20) + "' at " + std::to_string(now.version);
        entry.known = now;
        entry.heard = "at the start";
        entry.open = false;
      }
    }
    return found.empty() ? "" : found.begin()->first + " came from nowhere";
  }

  std::string load(pid_t pid) {
    std::vector<std::unique_ptr<HttpClient>> clients;
    for (int i = 0; i <= kConnections; ++i) {
      clients.push_back(std::make_unique<HttpClient>(port_, identity()));
      if (!clients.back()->connected()) return "a connection was refused";
    }
    Watcher watcher;
    watcher.newest = version_;
    std::vector<std::thread> threads;
    threads.reserve(kConnections + 1);
    for (int i = 0; i < kConnections; ++i) threads.emplace_back([&, i] { writers_[i].run(*clients[i]); });
    threads.emplace_back([&] { watcher.run(*clients[kConnections], version_); });
    // The random moment.
    timespec moment{0, static_cast<long>(random_() % 200'000'000)};
    ::ppoll(nullptr, 0, &moment, nullptr);
    ::kill(pid, SIGKILL);
    for (std::thread& thread : threads) thread.join();
    events += watcher.events;
    if (!watcher.bad.empty()) return watcher.bad;
    newest_ = std::max(newest_, watcher.newest);
    for (Writer& writer : writers_) {
      if (!writer.bad.empty()) return writer.bad;
      newest_ = std::max(newest_, writer.newest);
      // What was shown is there for good, answered or not.
      for (auto& [name, entry] : writer.book) {
        auto shown = watcher.seen.find(name);
        if (shown == watcher.seen.end() || !entry.open) continue;
        const State& state = shown->second.state;
        // An event from before the last answer tells of an earlier write: the watch may be behind.
        if (shown->second.version <= entry.known.version) continue;
        if (entry.maybe ? state.data != *entry.maybe : state.version != 0) continue;
        entry.known = state;
        entry.heard = "shown";
        entry.open = false;
      }
    }
    return {};
  }

  TempDir dir_{"gpuop-kill"};
  Fd socket_;
  int port_ = 0;
  std::mt19937_64 random_;
  TlsIdentity nobody_{"", ""};
  std::optional<TlsIdentity> identity_;
  Writer writers_[kConnections];
  std::uint64_t version_ = 0, newest_ = 0;
};

int run(int kills, std::uint64_t seed) {
  ::signal(SIGPIPE, SIG_IGN);
  Campaign campaign(seed);
  std::string bad = campaign.prepare();
  for (int i = 0; i < kills && bad.empty(); ++i) {
    bad = campaign.live();
    if (!bad.empty())
      std::printf("kill %d, seed %llu: %s\n", i, static_cast<unsigned long long>(seed), bad.c_str());
  }
  if (!bad.empty()) return 1;
  std::printf(
      "%d kills: %llu writes answered, %llu events shown, none lost; slowest start to first answer %.0f ms\n",
      kills, static_cast<unsigned long long>(campaign.answered()),
      static_cast<unsigned long long>(campaign.events), campaign.slowest * 1000);
  return 0;
}

}  // namespace
}  // namespace gpuop

int main(int argc, char** argv) {
  int kills = 500;
  std::uint64_t seed = 1;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--slice") == 0) kills = 30;
    if (std::strcmp(argv[i], "--kills") == 0 && i + 1 < argc) kills = std::atoi(argv[++i]);
    if (std::strcmp(argv[i], "--seed") == 0 && i + 1 < argc) seed = std::strtoull(argv[++i], nullptr, 10);
  }
  return gpuop::run(kills, seed);
}
