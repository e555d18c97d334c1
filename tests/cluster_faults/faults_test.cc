// Faults files, and what they do to requests.
#include "cluster/faults/faults.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/files.h"
#include "base/loop.h"
#include "cluster/faults/injector.h"
#include "kube/transport.h"

namespace gpuop::cluster {
namespace {

std::string why(std::string_view text) {
  const auto plan = parse_faults(text, "f.yaml");
  return plan ? std::string() : plan.error().text();
}

// What docs/simulator.md shows.
TEST(cluster_faults, the_documented_file_is_one) {
  const std::string page = read_file(fs::path(SOURCE_ROOT) / "docs/simulator.md").value();
  const auto faults = page.find("\nfaults:");
  ASSERT_NE(faults, std::string::npos);
  const auto begin = page.rfind("```yaml", faults) + 8;
  EXPECT_EQ(why(page.substr(begin, page.find("```", begin) - begin)), "");
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
      {"faults:\n  - {clock: 1000000h}\n", "clock: must not be longer than a year (8760h); got '1000000h'"},
      {"faults:\n  - {clock: -9999999999h}\n", "clock: must not be longer than a year (8760h)"},
      {"faults:\n  - {api: error, at: 9999999999h}\n",
       "at: must not be longer than a year (8760h); got '9999999999h'"},
      {"faults:\n  - {api: error, for: 8761h}\n", "for: must not be longer than a year (8760h)"},
      {"faults:\n  - {api: error, where: {verb: PUT}}\n", "got 'PUT' (did you mean 'update'?)"},
      {"faults:\n  - {api: error, where: {verb: []}}\n", "verb: must not be empty"},
      {"faults:\n  - {api: error, where: {resource: ''}}\n", "resource: must not be empty"},
      {"faults:\n  - {api: error, where: {name: 'a b'}}\n", "name: must be one word"},
      {"faults:\n  - {api: error, where: {namespace: GPU}}\n", "namespace: must be lower-case letters"},
      {"faults:\n  - {api: error, where: {component: kubelet/a}}\n", "what follows it is `node`"},
      {"faults:\n  - {api: error, for: 0s}\n", "for: must be longer than 0s"},
      {"faults:\n  - {api: delay, delay: 0s}\n", "delay: must be longer than 0s"},
      {"faults:\n  - {api: error, probability: 0}\n", "must be more than 0"},
      {"faults:\n  - {api: error, probability: 2}\n", "must be from 0 to 1; got 2"},
      {"faults:\n  - {api: error, for: 5}\n", "for: must be a span such as 1m30s; got 5"},
      {"faults:\n  - {event: kernel-upgrade, node: a, kernel: a/b}\n", "must be a kernel release"},
  };
  for (const auto& [text, part] : cases) {
    EXPECT_NE(why(text).find(part), std::string::npos) << text << "\n" << why(text);
  }
}

FaultNames names() {
  FaultNames out;
  const std::vector<std::string> all{"create", "delete", "get", "list", "patch", "update", "watch"};
  out.nodes = {{"gpu-0", 8}, {"gpu-1", 2}, {"cpu", 0}, {"small", 4, true}};
  out.resources = {{"pods", all, true, {"pod", "po"}},
                   {"pods/status", {"get", "patch", "update"}, true, {}},
                   {"pods/eviction", {"create"}, true, {}},
                   {"nodes", all, false, {"node", "no"}},
                   {"nodes/status", {"get", "patch", "update"}, false, {}},
                   {"daemonsets", all, true, {"daemonset", "ds"}}};
  out.containers = {"driver-validation", "gpu-operator", "nvidia-device-plugin"};
  return out;
}
std::string refusal(const std::string& fault, const FaultNames& known = names()) {
  const auto plan = parse_faults("faults:\n  - {api: error}\n  - " + fault + "\n", "f.yaml");
  if (!plan) return plan.error().text();
  const auto good = check_faults(*plan, known);
  return good ? std::string() : good.error().text();
}

TEST(cluster_faults, selectors_that_no_name_fits_are_refused_with_the_nearest) {
  const std::pair<const char*, const char*> cases[] = {
      {"{api: error, where: {resource: pod}}",
       "read faults 'f.yaml': line 3: faults[1].where.resource: must be the plural name of a resource that "
       "the API "
       "server has, such as pods or nodes/status; got 'pod' (did you mean 'pods'?)"},
      {"{api: error, where: {resource: Pod}}", "got 'Pod' (did you mean 'pods'?)"},
      {"{api: error, where: {resource: ds}}", "(did you mean 'daemonsets'?)"},
      {"{api: error, where: {resource: PODS}}", "(did you mean 'pods'?)"},
      {"{api: error, where: {resource: apps/v1/daemonsets}}", "(did you mean 'daemonsets'?)"},
      {"{api: error, where: {resource: daemonsets.apps}}", "(did you mean 'daemonsets'?)"},
      {"{api: error, where: {resource: pod/status}}", "(did you mean 'pods/status'?)"},
      {"{api: error, where: {resource: pods/stats}}", "(did you mean 'pods/status'?)"},
      {"{api: error, where: {resource: podz*}}", "where.resource: must be the plural name"},
      {"{api: error, where: {resource: nodes, namespace: x}}", "where.namespace: nodes are in no namespace"},
      {"{api: error, where: {resource: nodes/status, verb: [list, watch]}}",
       "where: no request fits: the verbs of nodes/status are get, patch, update; got list, watch"},
      {"{api: conflict, where: {resource: pods/eviction}}", "the verbs of pods/eviction are create"},
      {"{api: error, where: {node: gpu-7}}", "the fleet has no node 'gpu-7'; there are gpu-0"},
      {"{api: error, where: {node: gqu-*}}", "the fleet has no node that fits 'gqu-*'"},
      {"{api: error, where: {node: small}}", "requests are not told apart"},
      {"{event: reboot, node: gpu0}",
       "faults[1].node: the fleet has no node 'gpu0'; there are gpu-0, gpu-1, cpu, "
       "small (did you mean 'gpu-0'?)"},
      {"{event: reboot, node: small}", "node 'small' is light"},
      {"{event: gpu-lost, node: gpu-1, gpu: 2}",
       "faults[1].gpu: node 'gpu-1' has 2 GPUs, with indexes 0 to 1; got index 2"},
      {"{event: ecc, node: '*', gpu: 8}", "none of the nodes has more than 8 GPUs"},
      {"{event: xid, xid: 79, node: cpu}", "node 'cpu' has 0 GPUs; got index 0"},
      {"{event: plugin-crash, node: cpu}", "no device plugin runs on a node without GPUs"},
      {"{event: container-crash, node: cpu, container: gpu-operatr}",
       "faults[1].container: no pod has a container 'gpu-operatr'; there are driver-validation, "
       "gpu-operator, "
       "nvidia-device-plugin (did you mean 'gpu-operator'?)"},
      {"{event: container-crash, node: cpu, container: nvidia-device-plugin-ctr}",
       "(did you mean 'nvidia-device-plugin'?)"},
      {"{event: container-crash, node: cpu, container: nvidea-*}",
       "no pod has a container that fits 'nvidea-*'"},
  };
  for (const auto& [fault, part] : cases) {
    EXPECT_NE(refusal(fault).find(part), std::string::npos) << fault << "\n" << refusal(fault);
  }
  for (const char* good :
       {"{api: error, where: {resource: pods, verb: [get, list]}}",
        "{api: error, where: {resource: '*/status'}}", "{api: conflict, where: {resource: nodes}}",
        "{event: reboot, node: '*'}", "{event: gpu-lost, node: 'gpu-*', gpu: 7}",
        "{event: container-crash, node: cpu, container: '*-operator'}"}) {
    EXPECT_EQ(refusal(good), "") << good;
  }
}

TEST(cluster_faults, where_more_resources_may_be_only_other_names_of_known_ones_are_refused) {
  FaultNames known = names();
  known.more_resources = true;
  EXPECT_NE(refusal("{api: error, where: {resource: Pod}}", known).find("(did you mean 'pods'?)"),
            std::string::npos);
  EXPECT_EQ(refusal("{api: error, where: {resource: widgets}}", known), "");
  EXPECT_EQ(refusal("{api: error, where: {resource: wid*}}", known), "");
}

TEST(cluster_faults, what_has_to_be_waited_for_counts_faults_without_an_end_from_their_beginning) {
  EXPECT_EQ(parse_faults("faults: [{api: error, at: 10m}, {api: cut-watch, at: 5m}]", "f.yaml")->over(),
            10min);
  EXPECT_EQ(parse_faults("faults: [{node: a, at: 10m, event: reboot}, {node: a, at: 10m, event: lost}]", "f")
                ->over(),
            10min + 30s)
      << "a boot takes its time";
}

TEST(cluster_faults, what_has_no_end_is_told_while_it_is_on) {
  const auto plan = parse_faults(R"(faults:
  - {api: error}
  - {api: error, for: 1m}
  - {api: error, times: 2}
  - {api: error, nth: 2}
  - {api: cut-watch}
  - {api: error, at: 10m}
  - {node: a, event: lost}
  - {node: a, event: reboot}
  - {node: a, event: xid, xid: 79}
  - {clock: 1h}
  - {api: throttle}
)",
                                 "f.yaml");
  ASSERT_TRUE(plan) << plan.error().text();
  std::vector<FaultRecord> records(plan->faults.size());
  for (FaultRecord& record : records) record.struck = 2;
  records.back().struck = 0;  // told as one that struck nothing
  EXPECT_EQ(endless_faults(*plan, records, 5min),
            (std::vector<std::string>{"f.yaml:2: fault 'fault 1': has no end, and is still on",
                                      "f.yaml:8: fault 'fault 7': has no end, and is still on"}));
  records[2].struck = 1;
  EXPECT_EQ(endless_faults(*plan, records, 5min).size(), 3u);
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
  request.path = "/api/v1/nodes";
  request.query = "fieldSelector=metadata.name%3Dgpu-1&watch=true";
  what = describe(request);
  EXPECT_EQ(what.verb + " " + what.resource + " " + what.name, "watch nodes gpu-1");
}

// A server that answers 200 to everything, behind an injector, on a virtual loop.
class Fixture {
 public:
  explicit Fixture(const std::string& faults)
      : plan(*parse_faults(faults, "f.yaml")),
        injector(*loop, plan,
                 [this](const HttpRequest& request, std::shared_ptr<HttpResponder> out) {
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
          HttpResponse* into = nullptr, const std::string& body = "") {
    HttpRequest request;
    request.body = body;
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
  FaultPlan plan;
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

TEST(cluster_faults, an_object_that_is_created_has_its_name_in_the_body) {
  Fixture t("faults:\n  - {api: error, where: {verb: create, name: nvidia-*}}\n");
  EXPECT_EQ(t.ask("POST", "/api/v1/namespaces/n/pods", "", nullptr, R"({"metadata":{"name":"nvidia-x"}})"),
            500);
  EXPECT_EQ(t.ask("POST", "/api/v1/namespaces/n/pods", "", nullptr, R"({"metadata":{"name":"other"}})"), 200);
  EXPECT_EQ(t.ask("POST", "/api/v1/namespaces/n/pods", "", nullptr, "no JSON"), 200);
}

TEST(cluster_faults, faults_that_struck_nothing_are_told_with_the_reason) {
  Fixture t(R"(
faults:
  - {api: error, where: {verb: get}, nth: 1}
  - {api: error, where: {resource: pods, verb: get, name: q}}
  - {api: error, where: {component: gpu-operatr}}
  - {api: error, at: 5m, name: later}
  - {api: error, nth: 9, where: {verb: delete}}
  - {api: stale-list, behind: 1m, for: 10s}
  - {api: error, status: 503, where: {verb: get}, nth: 1, name: behind the first}
)");
  EXPECT_EQ(t.ask("GET", kPod), 500);
  EXPECT_EQ(t.ask("GET", "/api/v1/namespaces/n/configmaps/q"), 503);
  EXPECT_EQ(t.ask("GET", kPod), 200);
  EXPECT_EQ(t.ask("DELETE", kPod), 200);
  t.loop->run_for(1min);
  std::string told;
  for (const IdleFault& fault : idle_faults(t.plan, t.injector.records(), t.loop->elapsed()))
    told += fault.text + "\n";
  EXPECT_EQ(
      told,
      "f.yaml:4: fault 'fault 2': struck nothing: no request fitted it; some would but for where.name 'q' "
      "(did you mean 'p'?)\n"
      "f.yaml:5: fault 'fault 3': struck nothing: no request fitted it; some would but for where.component "
      "'gpu-operatr' (did you mean 'gpu-operator'?)\n"
      "f.yaml:6: fault 'later': did not come: it begins at 5m0s, and the run ended at 1m0s\n"
      "f.yaml:7: fault 'fault 5': struck nothing: 1 request fitted, and nth is 9\n"
      "f.yaml:8: fault 'fault 6': struck nothing: no list with resourceVersion=0 fitted it in its 10s\n");
}

TEST(cluster_faults, a_fault_that_an_earlier_one_leaves_nothing_to_is_told_so) {
  Fixture t("faults:\n  - {api: error, where: {verb: get}}\n  - {api: throttle, where: {verb: get}}\n");
  EXPECT_EQ(t.ask("GET", kPod), 500);
  const auto idle = idle_faults(t.plan, t.injector.records(), t.loop->elapsed());
  ASSERT_EQ(idle.size(), 1u);
  EXPECT_EQ(idle[0].text,
            "f.yaml:3: fault 'fault 2': struck nothing: an earlier fault of the file took every request that "
            "fitted");
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
