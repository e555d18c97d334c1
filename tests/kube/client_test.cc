#include "kube/client.h"

#include <gtest/gtest.h>

#include "fake_server.h"

namespace gpuop::kube {
namespace {

using test::FakeServer;
using test::json;
using test::status_answer;

struct ClientTest : FakeServer {
  Client client{*loop, transport, {.user_agent = "test/1", .field_manager = "m"}};
};

TEST(kube, client_writes_what_the_server_expects) {
  ClientTest t;
  t.answer = [](const auto& seen) { seen.responder->send(HttpResponse::json(200, R"({"ok":true})")); };
  int answers = 0;
  const auto done = [&](ApiResult<> result) { answers += result && get_bool(*result, {"ok"}); };
  t.client.get(kPods, "x", "p", done).detach();
  t.client
      .patch(kPods, "x", "p", Patch::kApply, json(R"({"a":1})"),
             {.dry_run = true, .force = true, .subresource = "status"}, done)
      .detach();
  t.client
      .remove(kNodes, "", "n", {.propagation = "Foreground", .grace_seconds = 0, .precondition_uid = "u"},
              done)
      .detach();
  t.client.list(kPods, "", {.label_selector = "a in (b,c)", .limit = 5, .continue_token = "t"}, done)
      .detach();
  t.client.create(kPods, "x", json(R"({"metadata":{"name":"p"}})"), {.subresource = "binding"}, done)
      .detach();
  t.settle();
  EXPECT_EQ(answers, 5);
  ASSERT_EQ(t.seen.size(), 5u);
  EXPECT_EQ(t.seen[0].request.path, "/api/v1/namespaces/x/pods/p");
  EXPECT_EQ(t.seen[0].request.header("user-agent"), "test/1");
  EXPECT_EQ(t.seen[1].request.path, "/api/v1/namespaces/x/pods/p/status");
  EXPECT_EQ(t.seen[1].request.header("content-type"), "application/apply-patch+yaml");
  EXPECT_EQ(t.seen[1].query("fieldManager"), "m");
  EXPECT_EQ(t.seen[1].query("dryRun"), "All");
  EXPECT_EQ(t.seen[1].query("force"), "true");
  EXPECT_EQ(
      json(t.seen[2].request.body),
      json(
          R"({"apiVersion":"v1","kind":"DeleteOptions","propagationPolicy":"Foreground","gracePeriodSeconds":0,"preconditions":{"uid":"u"}})"));
  EXPECT_EQ(t.seen[3].query("labelSelector"), "a in (b,c)");
  EXPECT_EQ(t.seen[3].query("continue"), "t");
  EXPECT_EQ(t.seen[4].request.path, "/api/v1/namespaces/x/pods/p/binding");
}

TEST(kube, errors_are_typed) {
  struct Row {
    int status;
    const char* reason;
    Code code;
  };
  for (const Row& row : {Row{404, "NotFound", Code::kNotFound},
                         {409, "AlreadyExists", Code::kExists},
                         {409, "Conflict", Code::kConflict},
                         {403, "Forbidden", Code::kPermission},
                         {422, "Invalid", Code::kInvalid},
                         {410, "Expired", Code::kConflict},
                         {405, "MethodNotAllowed", Code::kUnsupported}}) {
    ClientTest t;
    t.answer = [&](const auto& seen) {
      seen.responder->send(status_answer(row.status, row.reason, "pods \"p\" not so"));
    };
    const auto result = await(*t.loop, [&](auto done) { return t.client.get(kPods, "x", "p", done); });
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().reason, row.reason);
    EXPECT_EQ(result.error().error("read pod 'p'").code(), row.code);
    EXPECT_EQ(result.error().error("read pod 'p'").text(), "read pod 'p': pods \"p\" not so");
  }
  ClientTest plain;
  plain.answer = [&](const auto& seen) { seen.responder->send(HttpResponse::text(400, "what?\n")); };
  const auto result = await(*plain.loop, [&](auto done) { return plain.client.get(kPods, "x", "p", done); });
  EXPECT_EQ(result.error().reason, "BadRequest");
  EXPECT_EQ(result.error().message, "what?");
  // Not JSON, though 200.
  plain.answer = [&](const auto& seen) { seen.responder->send(HttpResponse::text(200, "<html>")); };
  EXPECT_FALSE(await(*plain.loop, [&](auto done) { return plain.client.get(kPods, "x", "p", done); }));
}

TEST(kube, case44_retry_after) {
  ClientTest t;
  int refusals = 1;
  t.answer = [&](const auto& seen) {
    if (refusals-- <= 0) return seen.responder->send(HttpResponse::json(201, "{}"));
    HttpResponse response = status_answer(429, "TooManyRequests");
    response.headers["Retry-After"] = "2";
    seen.responder->send(response);
  };
  auto result = await(*t.loop, [&](auto done) { return t.client.create(kPods, "x", json("{}"), {}, done); });
  EXPECT_TRUE(result);
  ASSERT_EQ(t.seen.size(), 2u);
  EXPECT_GE(t.seen[1].at - t.seen[0].at, 2s);
  EXPECT_LT(t.seen[1].at - t.seen[0].at, 3s);
  EXPECT_EQ(t.seen[1].request.body, t.seen[0].request.body);

  t.seen.clear();
  refusals = 100;
  result = await(*t.loop, [&](auto done) { return t.client.create(kPods, "x", json("{}"), {}, done); });
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().status, 429);
  EXPECT_EQ(t.seen.size(), 11u);
}

TEST(kube, a_write_is_not_repeated_blindly) {
  ClientTest t;
  t.answer = [&](const auto& seen) { seen.responder->send(status_answer(500, "InternalError")); };
  EXPECT_FALSE(await(*t.loop, [&](auto done) { return t.client.create(kPods, "x", json("{}"), {}, done); }));
  EXPECT_EQ(t.seen.size(), 1u);
  t.seen.clear();
  EXPECT_FALSE(await(*t.loop, [&](auto done) { return t.client.get(kPods, "x", "p", done); }));
  EXPECT_EQ(t.seen.size(), 4u);
  t.seen.clear();
  const Json guarded = json(R"({"metadata":{"resourceVersion":"1"}})");
  EXPECT_FALSE(await(
      *t.loop, [&](auto done) { return t.client.patch(kPods, "x", "p", Patch::kMerge, guarded, {}, done); }));
  EXPECT_EQ(t.seen.size(), 4u);
}

TEST(kube, requests_wait_for_a_place_in_their_lane) {
  ClientTest t;  // answers nothing
  int answers = 0;
  for (int i = 0; i < 20; ++i) {
    t.client.create(kPods, "x", json("{}"), {}, [&](auto) { ++answers; }).detach();
    t.client.get(kPods, "x", "p", [&](auto) { ++answers; }).detach();
  }
  t.settle();
  EXPECT_EQ(t.seen.size(), 24u);  // 8 writes, 16 reads
  const auto first = t.seen;
  for (const auto& seen : first) seen.responder->send(HttpResponse::json(200, "{}"));
  t.settle();
  EXPECT_EQ(t.seen.size(), 36u);
  EXPECT_EQ(answers, 24);
}

TEST(kube, no_answer_is_a_timeout_and_a_dropped_handle_a_cancel) {
  ClientTest t;
  const auto result = await(*t.loop, [&](auto done) { return t.client.get(kPods, "x", "p", done); });
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().status, 0);
  EXPECT_EQ(result.error().error("").code(), Code::kTimeout);
  EXPECT_TRUE(t.seen[0].responder->closed());

  bool called = false;
  Handle handle = t.client.get(kPods, "x", "p", [&](auto) { called = true; });
  t.settle();
  bool told = false;
  t.seen[1].responder->on_close([&] { told = true; });
  handle.reset();
  t.settle();
  EXPECT_TRUE(told);
  t.seen[1].responder->send(HttpResponse::json(200, "{}"));
  t.loop->run_for(1min);
  EXPECT_FALSE(called);
}

TEST(kube, nothing_is_called_after_the_client_went) {
  FakeServer server;
  bool called = false;
  {
    Client client(*server.loop, server.transport);
    client.get(kPods, "x", "p", [&](auto) { called = true; }).detach();
    client.watch(kPods, "x", {}, {[&](auto, auto) { called = true; }, [&](auto) { called = true; }}).detach();
    server.settle();
    ASSERT_EQ(server.seen.size(), 2u);
  }
  for (const auto& seen : server.seen) {
    EXPECT_TRUE(seen.responder->closed());
    seen.responder->send(HttpResponse::json(200, "{}"));
  }
  server.loop->run_for(1min);
  EXPECT_FALSE(called);
}

TEST(kube, watch_events_arrive_however_the_bytes_are_cut) {
  ClientTest t;
  std::vector<std::string> got;
  bool ended = false;
  const Handle handle =
      t.client.watch(kPods, "x", {.resource_version = "7"},
                     {[&](std::string_view type, Json object) {
                        got.push_back(str(type) + " " + str(get_string(object, {"metadata", "name"})));
                      },
                      [&](ApiResult<void> how) { ended = how.has_value(); }});
  t.settle();
  ASSERT_EQ(t.seen.size(), 1u);
  EXPECT_EQ(t.seen[0].query("resourceVersion"), "7");
  EXPECT_EQ(t.seen[0].query("allowWatchBookmarks"), "true");
  const int seconds = std::stoi(t.seen[0].query("timeoutSeconds"));
  EXPECT_GE(seconds, 300);
  EXPECT_LE(seconds, 600);
  auto& server = *t.seen[0].responder;
  server.begin(200, {});
  const std::string text = test::event_line("ADDED", R"({"metadata":{"name":"a}\"{"}})") +
                           test::event_line("DELETED", test::pod_text("b", 2));
  for (const char c : text) server.write(std::string(1, c));
  t.settle();
  EXPECT_EQ(got, (std::vector<std::string>{"ADDED a}\"{", "DELETED b"}));
  server.write(text);
  server.end();
  t.settle();
  EXPECT_EQ(got.size(), 4u);
  EXPECT_TRUE(ended);
}

TEST(kube, watch_errors_arrive_at_the_end) {
  const auto ends_with = [](std::function<void(HttpResponder&)> play) {
    ClientTest t;
    std::optional<ApiResult<void>> end;
    const Handle handle =
        t.client.watch(kPods, "x", {}, {[](auto, auto) {}, [&](ApiResult<void> how) { end = how; }});
    t.settle();
    play(*t.seen[0].responder);
    t.settle();
    return end.value_or(ApiResult<void>());
  };
  const auto gone = ends_with([](HttpResponder& r) {
    r.begin(200, {});
    r.write(
        test::event_line("ERROR", R"({"kind":"Status","code":410,"reason":"Expired","message":"too old"})"));
  });
  ASSERT_FALSE(gone);
  EXPECT_TRUE(gone.error().expired());
  const auto refused = ends_with([](HttpResponder& r) { r.send(status_answer(403, "Forbidden")); });
  ASSERT_FALSE(refused);
  EXPECT_TRUE(refused.error().forbidden());
  const auto cut = ends_with([](HttpResponder& r) {
    r.begin(200, {});
    r.abort();
  });
  ASSERT_FALSE(cut);
  EXPECT_EQ(cut.error().status, 0);
  const auto garbage = ends_with([](HttpResponder& r) {
    r.begin(200, {});
    r.write("<html>");
  });
  EXPECT_FALSE(garbage);
  const auto half = ends_with([](HttpResponder& r) {
    r.begin(200, {});
    r.write("{\"type\":");
    r.end();
  });
  EXPECT_FALSE(half);
}

struct CountingCredentials : Credentials {
  int applied = 0, refreshed = 0;
  void apply(HttpRequest& request) override {
    ++applied;
    request.headers["Authorization"] = "Bearer t" + std::to_string(refreshed);
  }
  bool refresh() override { return ++refreshed == 1; }
};

TEST(kube, a_401_is_retried_once_with_fresh_credentials) {
  FakeServer server;
  auto credentials = std::make_shared<CountingCredentials>();
  Client client(*server.loop, server.transport, {}, credentials);
  server.answer = [](const auto& seen) {
    if (seen.request.header("Authorization") == "Bearer t1")
      return seen.responder->send(HttpResponse::json(200, "{}"));
    seen.responder->send(status_answer(401, "Unauthorized"));
  };
  EXPECT_TRUE(await(*server.loop, [&](auto done) { return client.get(kPods, "x", "p", done); }));
  EXPECT_EQ(credentials->applied, 2);
  // The second time nothing new is to be had.
  server.answer = [](const auto& seen) { seen.responder->send(status_answer(401, "Unauthorized")); };
  EXPECT_FALSE(await(*server.loop, [&](auto done) { return client.get(kPods, "x", "p", done); }));
  EXPECT_EQ(credentials->applied, 3);
  // Streams too.
  credentials->refreshed = 0;
  server.answer = [](const auto& seen) {
    if (seen.request.header("Authorization") != "Bearer t1")
      return seen.responder->send(status_answer(401, "Unauthorized"));
    seen.responder->begin(200, {});
    seen.responder->write(test::event_line("ADDED", test::pod_text("a", 1)));
  };
  int events = 0;
  const Handle handle = client.watch(kPods, "x", {}, {[&](auto, auto) { ++events; }, [](auto) {}});
  server.settle();
  EXPECT_EQ(events, 1);
}

}  // namespace
}  // namespace gpuop::kube
