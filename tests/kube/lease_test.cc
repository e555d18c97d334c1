#include "kube/lease.h"

#include <gtest/gtest.h>

#include <set>

#include "fake_server.h"
#include "kube/events.h"
#include "kube/informer.h"
#include "kube/object.h"

namespace gpuop::kube {
namespace {

using test::FakeServer;
using test::json;
using test::kStart;
using test::status_answer;

// One Lease with optimistic concurrency, and its watchers.
struct LeaseStore {
  Json lease;  // null: absent
  int version = 0;
  std::vector<std::shared_ptr<HttpResponder>> watchers;
  std::set<std::string> cut;                                // user agents that get no answer
  std::vector<std::pair<std::string, std::string>> writes;  // user agent, holder

  void handle(const HttpRequest& request, const std::shared_ptr<HttpResponder>& responder) {
    const std::string agent = std::string(request.header("user-agent"));
    if (cut.contains(agent)) {
      kept.push_back(responder);
      return;
    }
    if (request.path == "/version") return responder->send(HttpResponse::json(200, R"({"minor":"30"})"));
    if (request.method == "GET" && request.query.find("watch=1") != std::string::npos) {
      responder->begin(200, {});
      watchers.push_back(responder);
      return;
    }
    if (request.method == "GET" && request.path.ends_with("/leases")) {
      return responder->send(test::list_answer(
          lease.is_null() ? std::vector<std::string>() : std::vector{to_text(lease)}, version));
    }
    if (request.method == "GET") return responder->send(HttpResponse::json(200, to_text(lease)));
    Json next = json(request.body);
    if (request.method == "POST" && !lease.is_null())
      return responder->send(status_answer(409, "AlreadyExists"));
    if (request.method == "PUT" && get_string(next, {"metadata", "resourceVersion"}) !=
                                       get_string(lease, {"metadata", "resourceVersion"})) {
      return responder->send(status_answer(409, "Conflict"));
    }
    const bool fresh = lease.is_null();
    set(next, {"metadata", "resourceVersion"}, Json(std::to_string(++version)));
    lease = next;
    writes.emplace_back(agent, str(get_string(lease, {"spec", "holderIdentity"})));
    for (const auto& watcher : watchers)
      watcher->write(test::event_line(fresh ? "ADDED" : "MODIFIED", to_text(lease)));
    responder->send(HttpResponse::json(200, to_text(lease)));
  }
  std::vector<std::shared_ptr<HttpResponder>> kept;
};

struct Candidate {
  Client client;
  int started = 0, lost = 0;
  Duration started_at{0}, lost_at{0};
  std::unique_ptr<LeaderElector> elector;

  Candidate(Loop& loop, std::shared_ptr<Transport> transport, const std::string& name,
            std::optional<Json> owner = std::nullopt)
      : client(loop, std::move(transport), {.user_agent = name}) {
    LeaseOptions options{.ns = "x", .name = "l", .identity = name, .owner = std::move(owner)};
    elector = LeaderElector::create(
                  client, options, [this, &loop] { ++started, started_at = loop.elapsed(); },
                  [this, &loop] { ++lost, lost_at = loop.elapsed(); })
                  .value();
    elector->start();
  }
};

struct ElectionTest {
  std::unique_ptr<Loop> loop = Loop::make_virtual(kStart);
  LeaseStore store;
  std::shared_ptr<Transport> transport = make_memory_transport(
      *loop, [this](const HttpRequest& request, const auto& responder) { store.handle(request, responder); });
};

TEST(kube, case46_the_other_leads_when_the_leader_dies) {
  ElectionTest t;
  auto first = std::make_unique<Candidate>(*t.loop, t.transport, "one");
  t.loop->run_for(Duration::zero());
  ASSERT_TRUE(first->elector->leading());
  EXPECT_EQ(get_int(t.store.lease, {"spec", "leaseTransitions"}), 0);
  // The lease says that its times are an hour away: they are never compared with the clock.
  Candidate second(*t.loop, t.transport, "two");
  t.loop->run_for(31s);
  EXPECT_TRUE(first->elector->leading());
  EXPECT_EQ(second.started, 0);
  const Duration renewed = 30s;  // every two seconds
  EXPECT_EQ(get_string(t.store.lease, {"spec", "renewTime"}), format_micro_time(kStart + renewed));
  first.reset();
  t.loop->run_until([&] { return second.started > 0; }, 1min);
  EXPECT_EQ(second.started, 1);
  EXPECT_GE(second.started_at - renewed, 15s);
  EXPECT_LE(second.started_at - renewed, 19s);
  EXPECT_EQ(get_int(t.store.lease, {"spec", "leaseTransitions"}), 1);
  EXPECT_EQ(get_string(t.store.lease, {"spec", "holderIdentity"}), "two");
}

TEST(kube, case46_skewed_times_in_the_lease_change_nothing) {
  for (const Duration skew : {Duration(-1h), Duration(1h)}) {
    ElectionTest t;
    t.store.lease = json(R"({"metadata":{"name":"l","namespace":"x","resourceVersion":"1"},
      "spec":{"holderIdentity":"gone","leaseDurationSeconds":15,"leaseTransitions":4}})");
    set(t.store.lease, {"spec", "renewTime"}, Json(format_micro_time(kStart + skew)));
    Candidate second(*t.loop, t.transport, "two");
    t.loop->run_until([&] { return second.started > 0; }, 1min);
    EXPECT_EQ(second.started_at, 15s);
    EXPECT_EQ(get_int(t.store.lease, {"spec", "leaseTransitions"}), 5);
  }
}

TEST(kube, case46_a_leader_that_is_cut_off_stops) {
  ElectionTest t;
  Candidate first(*t.loop, t.transport, "one");
  t.loop->run_for(5s);
  ASSERT_TRUE(first.elector->leading());
  t.store.cut.insert("one");  // last renewed after 4 s
  t.loop->run_for(1min);
  EXPECT_EQ(first.lost, 1);
  EXPECT_EQ(first.lost_at, 14s);
  EXPECT_FALSE(first.elector->leading());
}

TEST(kube, ones_own_lease_of_before_a_restart_is_taken_at_once) {
  ElectionTest t;
  auto first = std::make_unique<Candidate>(*t.loop, t.transport, "one");
  t.loop->run_for(5s);
  ASSERT_TRUE(first->elector->leading());
  first.reset();
  Candidate again(*t.loop, t.transport, "one");
  t.loop->run_for(100ms);
  EXPECT_TRUE(again.elector->leading());
  EXPECT_EQ(get_int(t.store.lease, {"spec", "leaseTransitions"}), 0);
}

// An owner is added to those that a record has, once; a record that another version made gets one too.
TEST(kube, a_lease_goes_with_its_owner) {
  ElectionTest t;
  t.store.lease = json(R"({"metadata":{"name":"l","namespace":"x","resourceVersion":"1",
    "ownerReferences":[{"uid":"other"}]},"spec":{"holderIdentity":"one"}})");
  Candidate first(*t.loop, t.transport, "one",
                  json(R"({"apiVersion":"apps/v1","kind":"Deployment","name":"d","uid":"u"})"));
  t.loop->run_for(5s);
  ASSERT_TRUE(first.elector->leading());
  const auto& owners = get_array(t.store.lease, {"metadata", "ownerReferences"});
  ASSERT_EQ(owners.size(), 2u) << to_text(t.store.lease);
  EXPECT_EQ(get_string(owners[1], {"uid"}), "u");
}

TEST(kube, a_released_lease_is_taken_at_once) {
  ElectionTest t;
  Candidate first(*t.loop, t.transport, "one");
  t.loop->run_for(1s);
  Candidate second(*t.loop, t.transport, "two");
  t.loop->run_for(1s);
  bool released = false;
  first.elector->release([&] { released = true; });
  const Duration before = t.loop->elapsed();
  t.loop->run_until([&] { return second.started > 0; }, 1min);
  EXPECT_TRUE(released);
  EXPECT_EQ(second.started_at, before);
  EXPECT_EQ(first.lost, 0);
}

TEST(kube, a_lease_is_released_while_a_renewal_is_under_way_and_never_when_it_is_anothers) {
  for (const char* holder : {"one", "thief"}) {
    ElectionTest t;
    Candidate first(*t.loop, t.transport, "one");
    t.loop->run_for(1s);
    // A renewal was carried out whose answer had not come.
    set(t.store.lease, {"metadata", "resourceVersion"}, Json("999"));
    set(t.store.lease, {"spec", "holderIdentity"}, Json(holder));
    bool released = false;
    first.elector->release([&] { released = true; });
    t.loop->run_for(1s);
    EXPECT_TRUE(released);
    EXPECT_EQ(get_string(t.store.lease, {"spec", "holderIdentity"}),
              std::string_view(holder) == "one" ? "" : holder);
  }
}

TEST(kube, a_stolen_lease_is_noticed) {
  ElectionTest t;
  Candidate first(*t.loop, t.transport, "one");
  t.loop->run_for(3s);
  set(t.store.lease, {"spec", "holderIdentity"}, Json("thief"));
  set(t.store.lease, {"metadata", "resourceVersion"}, Json("999"));
  t.loop->run_for(3s);
  EXPECT_EQ(first.lost, 1);
  // A write whose answer was lost is not a theft.
  ElectionTest u;
  Candidate mine(*u.loop, u.transport, "one");
  u.loop->run_for(3s);
  set(u.store.lease, {"metadata", "resourceVersion"}, Json("999"));
  u.loop->run_for(1min);
  EXPECT_EQ(mine.lost, 0);
  EXPECT_TRUE(mine.elector->leading());
}

TEST(kube, case48_renew_deadline_against_retry_period) {
  ElectionTest t;
  Client client(*t.loop, t.transport);
  LeaseOptions options{.ns = "x", .name = "l", .identity = "i"};
  options.renew_deadline = 10s;
  options.retry_period = 9s;
  const auto made = LeaderElector::create(client, options, {}, {});
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code(), Code::kInvalid);
  EXPECT_NE(made.error().text().find("renewDeadline 10s"), std::string::npos) << made.error().text();
  EXPECT_NE(made.error().text().find("retryPeriod 9s"), std::string::npos) << made.error().text();
  options.retry_period = 2s;
  options.lease_duration = 10s;
  EXPECT_FALSE(LeaderElector::create(client, options, {}, {}));
  options.lease_duration = 15s;
  options.retry_period = 500ms;
  EXPECT_FALSE(LeaderElector::create(client, options, {}, {}));
}

struct EventsTest : FakeServer {
  EventsTest() {
    answer = [](const Seen& one) { one.responder->send(HttpResponse::json(200, "{}")); };
  }
  Client client{*loop, transport};
  EventRecorder recorder{client, "test", "host"};
  Json node = json(R"({"apiVersion":"v1","kind":"Node","metadata":{"name":"n1","uid":"u"}})");
};

TEST(kube, case49_events_of_one_object_are_limited) {
  EventsTest t;
  for (int i = 0; i < 26; ++i) t.recorder.event(t.node, "Normal", "Same", "the same");
  t.loop->run_for(1s);
  EXPECT_EQ(t.seen.size(), 25u);
  EXPECT_EQ(t.seen[0].request.method, "POST");
  EXPECT_EQ(t.seen[0].request.path, "/api/v1/namespaces/default/events");
  const Json first = json(t.seen[0].request.body);
  EXPECT_TRUE(get_string(first, {"metadata", "name"}).starts_with("n1."));
  EXPECT_EQ(get_string(first, {"source", "component"}), "test");
  EXPECT_EQ(get_string(first, {"involvedObject", "uid"}), "u");
  EXPECT_EQ(t.seen[24].request.method, "PATCH");
  EXPECT_EQ(get_int(json(t.seen[24].request.body), {"count"}), 25);
  // One more every five minutes.
  t.loop->run_for(300s);
  t.recorder.event(t.node, "Normal", "Same", "the same");
  t.settle();
  EXPECT_EQ(t.seen.size(), 26u);
}

TEST(kube, case49_similar_events_are_combined) {
  EventsTest t;
  for (int i = 0; i < 12; ++i) t.recorder.event(t.node, "Warning", "R", "message " + std::to_string(i));
  t.settle();
  ASSERT_EQ(t.seen.size(), 12u);
  const auto message = [&](std::size_t i) {
    return str(get_string(json(t.seen[i].request.body), {"message"}));
  };
  EXPECT_EQ(message(9), "message 9");
  EXPECT_EQ(message(10), "(combined from similar events): message 10");
  EXPECT_EQ(t.seen[11].request.method, "PATCH");
  EXPECT_EQ(message(11), "(combined from similar events): message 11");
}

TEST(kube, events_survive_an_absent_server_and_their_own_end) {
  EventsTest t;
  int refusals = 3;
  t.answer = [&](const FakeServer::Seen& one) {
    if (refusals-- > 0) return one.responder->abort();
    one.responder->send(HttpResponse::json(200, "{}"));
  };
  t.recorder.event(t.node, "Normal", "R", std::string(2000, 'x'));
  t.loop->run_for(1min);
  ASSERT_EQ(t.seen.size(), 4u);
  EXPECT_EQ(t.seen[3].at, 30s);
  EXPECT_EQ(get_string(json(t.seen[3].request.body), {"message"}).size(), 1024u);
  t.answer = [&](const FakeServer::Seen& one) {
    if (one.request.method == "PATCH") return one.responder->send(status_answer(404, "NotFound"));
    one.responder->send(HttpResponse::json(201, "{}"));
  };
  t.recorder.event(t.node, "Normal", "R", std::string(2000, 'x'));
  t.settle();
  ASSERT_EQ(t.seen.size(), 6u);
  EXPECT_EQ(t.seen[5].request.method, "POST");
}

}  // namespace
}  // namespace gpuop::kube
