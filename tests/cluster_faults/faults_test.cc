// Faults files, and what they do to requests.
#include "cluster/faults/faults.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/loop.h"
#include "cluster/faults/injector.h"
#include "kube/transport.h"

namespace gpuop::cluster {
namespace {

std::string why(std::string_view text) {
  const auto plan = parse_faults(text, "f.yaml");
  return plan ? std::string() : plan.error().text();
}

TEST(cluster_faults, a_file_is_read) {
  const auto plan = parse_faults(R"(
seed: 9
faults:
  - name: slow
    at: 12s
    for: 1m
    api: delay
    delay: 250ms
    where: {verb: [create, update], resource: daemonsets, component: gpu-operator}
    probability: 0.5
  - {at: 60s, node: gpu-*, event: reboot, for: 20s}
  - {clock: "-1h"}
)",
                                 "f.yaml");
  ASSERT_TRUE(plan) << plan.error().text();
  EXPECT_EQ(plan->seed, 9u);
  ASSERT_EQ(plan->faults.size(), 3u);
  EXPECT_EQ(plan->faults[0].delay, 250ms);
  EXPECT_EQ(plan->faults[0].where.verbs, (std::vector<std::string>{"create", "update"}));
  EXPECT_EQ(*plan->faults[1].event, NodeFault::kReboot);
  EXPECT_EQ(*plan->faults[2].clock, -1h);
  EXPECT_EQ(plan->over(), 80s);
}

TEST(cluster_faults, what_is_wrong_is_named_with_its_line) {
  const std::pair<const char*, const char*> cases[] = {
      {"faults:\n  - api: trottle\n", "line 2: faults[0].api: must be one of"},
      {"faults:\n  - api: trottle\n", "(did you mean 'throttle'?)"},
      {"faults:\n  - {api: error, stattus: 500}\n",
       "faults[0].stattus: unknown key (did you mean 'status'?)"},
      {"faults:\n  - {api: delay}\n", "faults[0]: delay needs `delay`"},
      {"faults:\n  - {api: error, delay: 1s}\n", "faults[0].delay: is not for api: error"},
      {"faults:\n  - {api: error, status: 404}\n", "must be from 500 to 504"},
      {"faults:\n  - {api: error, event: reboot, node: a}\n", "exactly one of api, event and clock"},
      {"faults:\n  - {event: reboot}\n", "event needs `node`"},
      {"faults:\n  - {event: xid, node: a}\n", "xid needs `xid`"},
      {"faults:\n  - {event: reboot, node: a, where: {verb: get}}\n", "where: is not for event: reboot"},
      {"faults:\n  - {api: error, nth: 3, times: 2}\n", "one request is meant"},
      {"faults:\n  - {api: cut-watch, where: {verb: create}}\n", "cut-watch strikes watch requests only"},
      {"faults:\n  - {api: error, where: {verb: lsit}}\n", "(did you mean 'list'?)"},
      {"faults:\n  - {api: error, at: soon}\n", "must be a span such as 1m30s; got 'soon'"},
      {"faults: {}\n", "faults: must be a list"},
      {"seeds: 1\nfaults: []\n", "seeds: unknown key (did you mean 'seed'?)"},
      {"faults: []\nfaults: []\n", "is given twice"},
      {"faults:\n  - {clock: never}\n", "clock: must be a span such as 1h or -30s"},
  };
  for (const auto& [text, part] : cases) {
    EXPECT_NE(why(text).find(part), std::string::npos) << text << "\n" << why(text);
  }
}

TEST(cluster_faults, requests_are_described) {
  HttpRequest request;
  request.method = "PATCH";
  request.path = "/api/v1/namespaces/ns/pods/p/status";
  request.headers["User-Agent"] = "kubelet/n1";
  ApiRequest what = describe(request);
  EXPECT_EQ(what.verb + " " + what.resource + " " + what.ns + "/" + what.name + " " + what.component,
            "patch pods/status ns/p kubelet");
  request = {};
  request.path = "/apis/apps/v1/daemonsets";
  request.query = "watch=true&resourceVersion=5";
  what = describe(request);
  EXPECT_EQ(what.verb + " " + what.resource, "watch daemonsets");
  request.path = "/api/v1/namespaces/x/status";
  request.query.clear();
  what = describe(request);
  EXPECT_EQ(what.resource + " " + what.name, "namespaces/status x");
}

// A server that answers 200 to everything, behind an injector, on a virtual loop.
class Fixture {
 public:
  explicit Fixture(const std::string& faults)
      : injector(*loop, *parse_faults(faults, "f.yaml"),
                 [this](HttpRequest request, std::shared_ptr<HttpResponder> out) {
                   served.push_back(request.method + " " + request.path + "?" + request.query);
                   if (request.query.find("watch=true") != std::string::npos) {
                     out->on_close([this] { ++closed; });
                     out->begin(200, {});
                     held.push_back(std::move(out));
                     return;
                   }
                   out->send(HttpResponse::json(200, R"({"metadata":{"resourceVersion":"7"}})"));
                 },
                 {.version = [this] { return version; }, .log = &log}) {}

  // Status, or 0 when the connection ended.
  int ask(const std::string& method, const std::string& path, const std::string& query = "",
          HttpResponse* into = nullptr) {
    HttpRequest request;
    request.method = method;
    request.path = path;
    request.query = query;
    request.headers["User-Agent"] = "gpu-operator/v1";
    std::optional<int> status;
    Handle handle = transport->send(request, [&](Result<HttpResponse> answer) {
      status = answer ? answer->status : 0;
      if (answer && into != nullptr) *into = *answer;
    });
    loop->run_until([&] { return status.has_value(); }, 1h);
    return status.value_or(-1);
  }

  std::unique_ptr<Loop> loop = Loop::make_virtual(Time{});
  EventLog log{*loop};
  std::vector<std::string> served;
  std::vector<std::shared_ptr<HttpResponder>> held;
  int closed = 0;
  std::uint64_t version = 1;
  FaultInjector injector;
  std::shared_ptr<kube::Transport> transport = kube::make_memory_transport(*loop, injector.handler());
};

constexpr const char* kPod = "/api/v1/namespaces/n/pods/p";

TEST(cluster_faults, refusals_delays_and_lost_answers) {
  Fixture t(R"(
faults:
  - {api: throttle, retryAfter: 7s, where: {verb: get}, nth: 2}
  - {api: conflict, where: {resource: pods}, times: 1}
  - {api: delay, delay: 3s, where: {verb: delete}}
  - {api: lost-answer, where: {verb: create}, at: 1m, for: 1m}
)");
  HttpResponse answer;
  EXPECT_EQ(t.ask("GET", kPod), 200);
  EXPECT_EQ(t.ask("GET", kPod, "", &answer), 429);
  EXPECT_EQ(answer.headers["Retry-After"], "7");
  EXPECT_EQ(t.ask("GET", kPod), 200);
  EXPECT_EQ(t.ask("PUT", kPod), 409);
  EXPECT_EQ(t.ask("PUT", kPod), 200);
  EXPECT_EQ(t.ask("DELETE", kPod), 200);
  EXPECT_EQ(t.loop->elapsed(), 3s);
  EXPECT_EQ(t.ask("POST", "/api/v1/namespaces/n/pods"), 200);
  t.loop->run_for(1min);
  const auto before = t.served.size();
  EXPECT_EQ(t.ask("POST", "/api/v1/namespaces/n/pods"), 0);
  EXPECT_EQ(t.served.size(), before + 1) << "a lost answer's request was served";
  t.loop->run_for(1min);
  EXPECT_EQ(t.ask("POST", "/api/v1/namespaces/n/pods"), 200);
  EXPECT_EQ(t.injector.struck(), 4u);
  EXPECT_NE(t.log.text().find("gpu-operator/v1 get pods n/p FAULT throttle (fault 1)"), std::string::npos);
  EXPECT_NE(t.log.text().find("gpu-operator/v1 update pods n/p 200 rv=7"), std::string::npos);
}

TEST(cluster_faults, open_watches_are_cut_on_both_sides) {
  Fixture t("faults:\n  - {api: cut-watch, at: 10s, where: {resource: pods}}\n");
  HttpRequest request;
  request.path = "/api/v1/pods";
  request.query = "watch=true";
  bool ended = false;
  kube::StreamEvents events;
  events.end = [&](const Result<>& how) { ended = !how.has_value(); };
  Handle handle = t.transport->stream(request, std::move(events));
  t.loop->run_for(9s);
  EXPECT_FALSE(ended);
  t.loop->run_for(2s);
  EXPECT_TRUE(ended);
  EXPECT_EQ(t.closed, 1);
}

TEST(cluster_faults, stale_lists_and_expired_versions) {
  Fixture t(R"(
faults:
  - {api: stale-list, behind: 10s, at: 30s, for: 10s}
  - {api: expired, at: 50s}
)");
  EXPECT_EQ(t.ask("GET", "/api/v1/pods", "resourceVersion=0"), 200);
  t.loop->run_for(25s);
  t.version = 5;
  EXPECT_EQ(t.ask("GET", "/api/v1/pods", "resourceVersion=0"), 200);
  t.loop->run_for(6s);
  EXPECT_EQ(t.ask("GET", "/api/v1/pods", "resourceVersion=0"), 200);
  EXPECT_EQ(t.served.back(), "GET /api/v1/pods?resourceVersion=1&resourceVersionMatch=Exact");
  EXPECT_EQ(t.ask("GET", "/api/v1/pods", ""), 200);
  EXPECT_EQ(t.served.back(), "GET /api/v1/pods?") << "a list from the store is never old";
  t.loop->run_for(30s);
  EXPECT_EQ(t.ask("GET", "/api/v1/pods", "watch=true&resourceVersion=5"), 410);
  EXPECT_EQ(t.ask("GET", "/api/v1/pods", "resourceVersion=0"), 200);
}

TEST(cluster_faults, chances_replay) {
  const auto outcome = [] {
    Fixture t("seed: 3\nfaults:\n  - {api: error, probability: 0.3}\n");
    std::string out;
    for (int i = 0; i < 200; ++i) out += t.ask("GET", kPod) == 200 ? '.' : 'x';
    return out;
  };
  const std::string once = outcome();
  EXPECT_EQ(once, outcome());
  const auto struck = std::ranges::count(once, 'x');
  EXPECT_GT(struck, 30);
  EXPECT_LT(struck, 90);
}

}  // namespace
}  // namespace gpuop::cluster
