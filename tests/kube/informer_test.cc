#include "kube/informer.h"

#include <gtest/gtest.h>

#include "fake_server.h"
#include "kube/object.h"
#include "kube/projection.h"

namespace gpuop::kube {
namespace {

using test::event_line;
using test::FakeServer;
using test::list_answer;
using test::pod_text;
using test::status_answer;

constexpr const char* kGone = R"({"kind":"Status","code":410,"reason":"Expired","message":"too old"})";

std::string bookmark(int version, bool initial_end) {
  return R"({"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":")" + std::to_string(version) +
         R"(")" + (initial_end ? R"(,"annotations":{"k8s.io/initial-events-end":"true"})" : "") + "}}";
}

struct InformerTest : FakeServer {
  explicit InformerTest(InformerOptions options = {}, bool stream = false) {
    options.watch_list = stream;
    informer = std::make_unique<Informer>(client, kPods, std::move(options));
    informer->on_change([this](const auto& old, const auto& now) {
      log.push_back((old ? (now ? "~" : "-") : "+") + str(name_of(now ? *now : *old)));
    });
    answer = [this](const Seen& one) {
      if (one.is_watch()) return one.responder->begin(200, {});
      one.responder->send(list_answer(items, version));
    };
  }
  void send(const std::string& text) {
    watches().back().responder->write(text);
    settle();
  }
  std::string take_log() {
    std::string out;
    for (const std::string& entry : std::exchange(log, {})) out += (out.empty() ? "" : " ") + entry;
    return out;
  }

  Client client{*loop, transport};
  std::vector<std::string> items{pod_text("a", 1), pod_text("b", 2)};
  int version = 10;
  std::vector<std::string> log;
  std::unique_ptr<Informer> informer;
};

TEST(kube, informer_lists_watches_and_notifies) {
  InformerTest t;
  std::string at_sync;
  t.informer->add_index(
      "node", [](const Json& pod) { return std::vector{str(get_string(pod, {"metadata", "name"}))}; });
  t.informer->on_synced([&] { at_sync = t.take_log() + "!"; });
  t.informer->start();
  EXPECT_FALSE(t.informer->synced());
  t.settle();
  EXPECT_TRUE(t.informer->synced());
  EXPECT_EQ(at_sync, "+a +b!");  // handlers first, then synced
  ASSERT_EQ(t.watches().size(), 1u);
  EXPECT_EQ(t.lists()[0].query("resourceVersion"), "0");
  EXPECT_EQ(t.watches()[0].query("resourceVersion"), "10");
  t.send(event_line("ADDED", pod_text("c", 11)) + event_line("MODIFIED", pod_text("a", 12)) +
         event_line("DELETED", pod_text("b", 13)));
  EXPECT_EQ(t.take_log(), "+c ~a -b");
  EXPECT_EQ(t.informer->size(), 2u);
  EXPECT_EQ(get_string(*t.informer->get("x/a"), {"metadata", "resourceVersion"}), "12");
  EXPECT_EQ(t.informer->get("x/b"), nullptr);
  EXPECT_EQ(t.informer->by_index("node", "c").size(), 1u);
  EXPECT_TRUE(t.informer->by_index("node", "b").empty());
  // A normal end: the watch goes on from the last version, bookmarks count.
  t.send(event_line("BOOKMARK", bookmark(40, false)));
  t.watches().back().responder->end();
  t.settle();
  ASSERT_EQ(t.watches().size(), 2u);
  EXPECT_EQ(t.watches()[1].query("resourceVersion"), "40");
  EXPECT_EQ(t.informer->lists(), 1);
  EXPECT_EQ(t.take_log(), "");
}

// Kept small, a collection says the same; a new list tells what changed meanwhile.
TEST(kube, informer_that_keeps_objects_small_tells_the_same) {
  InformerOptions options;
  options.compact = true;
  InformerTest t(options);
  t.informer->add_index("both", [](const Json& pod) {
    return std::vector{"all/" + str(get_string(pod, {"metadata", "namespace"})),
                       "one/" + str(get_string(pod, {"metadata", "name"}))};
  });
  t.informer->start();
  t.settle();
  EXPECT_EQ(t.take_log(), "+a +b");
  t.send(event_line("ADDED", pod_text("c", 11)) + event_line("MODIFIED", pod_text("a", 12)));
  EXPECT_EQ(t.take_log(), "+c ~a");
  EXPECT_EQ(get_string(*t.informer->get("x/a"), {"metadata", "resourceVersion"}), "12");
  t.items = {pod_text("a", 12), pod_text("c", 14), pod_text("d", 15)};
  t.version = 20;
  t.send(event_line("ERROR", kGone));
  t.loop->run_for(3s);
  EXPECT_EQ(t.take_log(), "-b ~c +d");
  EXPECT_EQ(get_string(*t.informer->get("x/c"), {"metadata", "resourceVersion"}), "14");
  EXPECT_EQ(t.informer->by_index("both", "all/x").size(), 3u);
  const auto first = t.informer->by_index("both", "all/x", 1);
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(name_of(*first[0]), "a");
  EXPECT_EQ(t.informer->index_values("both", "one/"), (std::vector<std::string>{"one/a", "one/c", "one/d"}));
  std::string late;
  t.informer->on_change([&](const auto&, const auto& now) { late += "+" + str(name_of(*now)); });
  t.settle();
  EXPECT_EQ(late, "+a+c+d");
}

TEST(kube, informer_tells_late_handlers_what_is_there) {
  InformerTest t;
  t.informer->start();
  t.settle();
  std::string late;
  t.informer->on_change(
      [&](const auto& old, const auto& now) { late += (old ? "~" : "+") + str(name_of(*now)); });
  t.informer->on_synced([&] { late += "!"; });
  EXPECT_EQ(late, "");
  t.settle();
  EXPECT_EQ(late, "+a+b!");
  t.send(event_line("MODIFIED", pod_text("a", 12)));
  EXPECT_EQ(late, "+a+b!~a");
}

TEST(kube, case42_short_watches_back_off_without_relist) {
  InformerTest t;
  t.answer = [&](const FakeServer::Seen& one) {
    if (!one.is_watch()) return one.responder->send(list_answer(t.items, t.version));
    one.responder->begin(200, {});
    // Closed after a second, ten times.
    if (t.watches().size() <= 10)
      t.loop->after(1s, [responder = one.responder] { responder->end(); }).detach();
  };
  t.informer->start();
  t.loop->run_for(10min);
  const auto watches = t.watches();
  ASSERT_EQ(watches.size(), 11u);
  Duration last{0};
  for (std::size_t i = 1; i < watches.size(); ++i) {
    const Duration gap = watches[i].at - watches[i - 1].at - 1s;
    EXPECT_GE(gap, 800ms);
    EXPECT_LE(gap, 30s);
    last = gap;
  }
  EXPECT_GE(last, 15s);  // it grew
  EXPECT_EQ(t.informer->lists(), 1);
  EXPECT_EQ(t.informer->size(), 2u);  // the cache goes on serving
  EXPECT_EQ(t.take_log(), "+a +b");
}

TEST(kube, case42_410_relists_exactly_once) {
  InformerTest t;
  t.informer->start();
  t.settle();
  t.take_log();
  t.loop->run_for(1min);
  t.items = {pod_text("a", 1), pod_text("c", 120)};
  t.version = 120;
  t.send(event_line("ERROR", kGone));
  EXPECT_EQ(t.informer->lists(), 2);
  EXPECT_EQ(t.lists()[1].query("resourceVersion"), "");  // from the store, not the cache that was behind
  EXPECT_EQ(t.take_log(), "-b +c");
  EXPECT_EQ(t.watches().back().query("resourceVersion"), "120");
  t.loop->run_for(10min);
  EXPECT_EQ(t.informer->lists(), 2);
  // As an HTTP status it is the same.
  const auto old_answer = t.answer;
  bool refused = false;
  t.answer = [&](const FakeServer::Seen& one) {
    if (one.is_watch() && !std::exchange(refused, true))
      return one.responder->send(status_answer(410, "Gone"));
    old_answer(one);
  };
  t.watches().back().responder->end();
  t.settle();
  t.loop->run_for(1min);
  EXPECT_EQ(t.informer->lists(), 3);
  EXPECT_EQ(t.informer->fault(), "");
}

TEST(kube, informer_rewatches_after_429_and_lost_connections_without_relist) {
  InformerTest t;
  const auto old_answer = t.answer;
  int faults = 0;
  t.answer = [&](const FakeServer::Seen& one) {
    if (one.is_watch() && faults > 0) {
      if (--faults % 2 == 0) return one.responder->abort();
      HttpResponse busy = status_answer(429, "TooManyRequests");
      busy.headers["Retry-After"] = "5";
      return one.responder->send(busy);
    }
    old_answer(one);
  };
  t.informer->start();
  t.settle();
  faults = 4;
  t.send(event_line("ADDED", pod_text("z", 11)));
  t.watches().back().responder->abort();
  t.loop->run_for(5min);
  EXPECT_EQ(t.informer->lists(), 1);
  EXPECT_EQ(t.informer->fault(), "watch pods: the server cut the connection");
  ASSERT_EQ(t.watches().size(), 6u);
  t.send(event_line("ADDED", pod_text("y", 12)));
  EXPECT_EQ(t.informer->fault(), "");
  EXPECT_EQ(t.take_log(), "+a +b +z +y");
  // What the server refuses for good is listed again, with a growing delay.
  t.answer = [&](const FakeServer::Seen& one) {
    one.responder->send(status_answer(403, "Forbidden", "pods is forbidden"));
  };
  t.watches().back().responder->end();
  t.loop->run_for(5min);
  EXPECT_GT(t.informer->lists(), 5);
  EXPECT_LT(t.informer->lists(), 25);
  EXPECT_NE(t.informer->fault().find("pods is forbidden"), std::string::npos);
  EXPECT_EQ(t.informer->size(), 4u);
}

TEST(kube, informer_does_not_relist_while_a_server_restarts) {
  InformerTest t;
  t.informer->start();
  t.settle();
  const auto old_answer = t.answer;
  t.answer = [&](const FakeServer::Seen& one) {
    one.responder->send(status_answer(503, "ServiceUnavailable"));
  };
  t.watches().back().responder->end();
  t.loop->run_for(20s);
  t.answer = old_answer;
  t.loop->run_for(1min);
  EXPECT_EQ(t.informer->lists(), 1);
  EXPECT_EQ(t.informer->size(), 2u);
}

TEST(kube, informer_pages_and_starts_over_when_the_snapshot_is_gone) {
  InformerTest t({.paged = true});
  int step = 0;
  t.answer = [&](const FakeServer::Seen& one) {
    if (one.is_watch()) return one.responder->begin(200, {});
    switch (step++) {
      case 0:
        return one.responder->send(list_answer({pod_text("a", 1)}, 10, "t1"));
      case 1:
        return one.responder->send(status_answer(410, "Expired"));
      case 2:
        return one.responder->send(list_answer({pod_text("b", 1)}, 20, "t2"));
      default:
        return one.responder->send(list_answer({pod_text("c", 1)}, 20));
    }
  };
  t.informer->start();
  t.settle();
  EXPECT_EQ(t.take_log(), "+b +c");
  EXPECT_EQ(t.lists()[0].query("limit"), "500");
  EXPECT_EQ(t.lists()[1].query("continue"), "t1");
  EXPECT_EQ(t.lists()[1].query("resourceVersion"), "");
  EXPECT_EQ(t.lists()[2].query("continue"), "");
  EXPECT_EQ(t.lists()[3].query("continue"), "t2");
}

TEST(kube, informer_streams_the_initial_list) {
  InformerTest t({}, true);
  t.informer->start();
  t.settle();
  ASSERT_EQ(t.watches().size(), 1u);
  EXPECT_EQ(t.watches()[0].query("sendInitialEvents"), "true");
  EXPECT_EQ(t.watches()[0].query("resourceVersionMatch"), "NotOlderThan");
  t.send(event_line("ADDED", pod_text("a", 1)) + event_line("ADDED", pod_text("b", 2)));
  EXPECT_FALSE(t.informer->synced());
  EXPECT_EQ(t.take_log(), "");  // nobody hears of half a list
  t.send(event_line("BOOKMARK", bookmark(10, true)) + event_line("ADDED", pod_text("c", 11)));
  EXPECT_TRUE(t.informer->synced());
  EXPECT_EQ(t.take_log(), "+a +b +c");
  EXPECT_TRUE(t.lists().empty());
  // 410: one more stream; the cache serves until it is complete.
  t.loop->run_for(1min);
  t.send(event_line("ERROR", kGone));
  ASSERT_EQ(t.watches().size(), 2u);
  EXPECT_EQ(t.informer->size(), 3u);
  t.send(event_line("ADDED", pod_text("a", 1)));
  EXPECT_EQ(t.take_log(), "");
  t.send(event_line("BOOKMARK", bookmark(200, true)));
  EXPECT_EQ(t.take_log(), "-b -c");
}

TEST(kube, case43_refused_stream_falls_back_at_once) {
  InformerTest t({}, true);
  t.answer = [&](const FakeServer::Seen& one) {
    if (one.query("sendInitialEvents") == "true")
      return one.responder->send(status_answer(422, "Invalid", "sendInitialEvents: Forbidden"));
    if (one.is_watch()) return one.responder->begin(200, {});
    one.responder->send(list_answer(t.items, t.version));
  };
  t.informer->start();
  t.settle();
  EXPECT_TRUE(t.informer->synced());
  EXPECT_EQ(t.loop->elapsed(), 0s);
  ASSERT_EQ(t.seen.size(), 3u);  // stream, list, watch
  // Not tried again.
  t.send(event_line("ERROR", kGone));
  EXPECT_EQ(t.filter([](const auto& one) { return one.query("sendInitialEvents") == "true"; }).size(), 1u);
}

TEST(kube, case43_silent_stream_falls_back_after_30_s) {
  InformerTest t({}, true);
  t.informer->start();
  t.settle();
  t.watches()[0].responder->write(event_line("ADDED", pod_text("q", 1)));
  t.loop->run_for(29s);
  EXPECT_EQ(t.seen.size(), 1u);
  EXPECT_FALSE(t.informer->synced());
  t.loop->run_for(1s);
  EXPECT_TRUE(t.informer->synced());
  EXPECT_TRUE(t.seen[0].responder->closed());
  EXPECT_EQ(t.take_log(), "+a +b");
  EXPECT_EQ(t.lists().size(), 1u);
}

TEST(kube, informer_asks_the_version_once) {
  for (const auto& [minor, streams] : {std::pair{"34", 2u}, {"36+", 2u}, {"33", 0u}}) {
    FakeServer t;
    t.answer = [&](const FakeServer::Seen& one) {
      if (one.request.path == "/version")
        return one.responder->send(
            HttpResponse::json(200, R"({"major":"1","minor":")" + std::string(minor) + "\"}"));
      if (one.is_watch()) return one.responder->begin(200, {});
      one.responder->send(list_answer({}, 1));
    };
    Client client(*t.loop, t.transport);
    Informer pods(client, kPods, {}), nodes(client, kNodes, {});
    pods.start();
    nodes.start();
    t.settle();
    EXPECT_EQ(t.filter([](const auto& one) { return one.request.path == "/version"; }).size(), 1u);
    EXPECT_EQ(t.filter([](const auto& one) { return one.query("sendInitialEvents") == "true"; }).size(),
              streams)
        << minor;
  }
}

TEST(kube, informer_survives_its_end_inside_a_handler) {
  InformerTest t;
  t.informer->on_change([&](const auto&, const auto&) { t.informer.reset(); });
  t.informer->start();
  t.loop->run_for(1min);
  EXPECT_EQ(t.take_log(), "+a");
  EXPECT_TRUE(t.watches().empty());
}

TEST(kube, informer_waits_for_several) {
  InformerTest t;
  Informer nodes(t.client, kNodes, {.watch_list = false});
  int ready = 0;
  when_synced({t.informer.get(), &nodes}, [&] { ++ready; });
  t.informer->start();
  t.settle();
  EXPECT_EQ(ready, 0);
  nodes.start();
  t.settle();
  EXPECT_EQ(ready, 1);
}

TEST(kube, projection_keeps_what_is_declared) {
  const Json pod =
      test::json(R"({"metadata":{"name":"p","namespace":"x","managedFields":[{"a":1}],"selfLink":"z",
      "annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{}","k":"v"},"labels":{"l":"m"}},
    "spec":{"nodeName":"n","containers":[{"name":"c","image":"i","resources":{"limits":{"nvidia.com/gpu":1}}}],"volumes":[]},
    "status":{"phase":"Running","podIP":"1"}})");
  const auto kept =
      Projection(kPods, {"spec.containers.resources", "status.phase", "spec.absent.thing"}, {}).apply(pod);
  EXPECT_EQ(
      to_canonical_text(*kept),
      R"({"apiVersion":"v1","kind":"Pod","metadata":{"annotations":{"k":"v"},"labels":{"l":"m"},"name":"p","namespace":"x"},)"
      R"("spec":{"containers":[{"resources":{"limits":{"nvidia.com/gpu":1}}}]},"status":{"phase":"Running"}})");
  const auto all = Projection(kPods, {"*"}, {"spec.volumes", "spec.containers.image"}).apply(pod);
  EXPECT_FALSE(has(*all, {"metadata", "managedFields"}));
  EXPECT_FALSE(has(*all, {"spec", "volumes"}));
  EXPECT_EQ(get_string(*all, {"status", "podIP"}), "1");
  EXPECT_EQ(to_text(get_array(*all, {"spec", "containers"})[0]),
            R"({"name":"c","resources":{"limits":{"nvidia.com/gpu":1}}})");
}

TEST(kube, projection_keeps_single_annotations_in_place_of_all) {
  const Json pod = test::json(R"({"metadata":{"name":"p","annotations":{"a.b/c":"v","d":"w"}}})");
  const auto kept = Projection(kPods, {R"(metadata.annotations.a\.b/c)"}, {}).apply(pod);
  EXPECT_EQ(to_canonical_text(*find(*kept, {"metadata"})), R"({"annotations":{"a.b/c":"v"},"name":"p"})");
}

TEST(kube, projection_keeps_a_path_where_another_is_not) {
  const std::vector<std::string> keep{"spec.nodeName", "spec.affinity!spec.nodeName"};
  const auto kept = [&keep](const char* spec) {
    return to_canonical_text(*find(*Projection(kPods, keep, {}).apply(test::json(spec)), {"spec"}));
  };
  EXPECT_EQ(kept(R"({"spec":{"affinity":{"a":1},"nodeName":"n","x":1}})"), R"({"nodeName":"n"})");
  EXPECT_EQ(kept(R"({"spec":{"affinity":{"a":1},"x":1}})"), R"({"affinity":{"a":1}})");
}

TEST(kube, packed_objects_are_copied_and_changed_like_any_other) {
  Json copy;
  {
    auto packed =
        pack(test::json(R"({"a":{"b":["a long string that does not fit inside",2.5,{}]},"c":"d"})"));
    copy = *packed;
    Json part = *find(*packed, {"a"});
    packed.reset();
    set(part, {"b"}, Json("another long string, of which there was none before"));
    EXPECT_EQ(to_text(part), R"({"b":"another long string, of which there was none before"})");
  }
  for (int i = 0; i < 100; ++i) set(copy, {"e" + std::to_string(i), "deep"}, Json(std::string(100, 'x')));
  EXPECT_EQ(get_string(copy, {"e99", "deep"}).size(), 100u);
  EXPECT_EQ(to_text(*find(copy, {"a"})), R"({"b":["a long string that does not fit inside",2.5E0,{}]})");
  // Larger than the scratch block.
  JsonObject big;
  for (int i = 0; i < 3000; ++i) big["key" + std::to_string(i)] = std::string(40, 'y');
  EXPECT_EQ(*pack(Json(big)), Json(big));
}

}  // namespace
}  // namespace gpuop::kube
