#include "api.h"
#include "kube/transport.h"

namespace gpuop::cluster {
namespace {

// A kubelet that remembers what it was asked and lets the test answer.
struct Kubelet {
  std::vector<std::string> asked;
  std::shared_ptr<HttpResponder> open;
};

ApiServerOptions with_kubelet(Kubelet& kubelet, std::unique_ptr<Loop>*& loop) {
  ApiServerOptions options;
  options.kubelet = [&kubelet, &loop](const Json&) -> std::shared_ptr<kube::Transport> {
    return kube::make_memory_transport(**loop,
                                       [&kubelet](HttpRequest request, std::shared_ptr<HttpResponder> out) {
                                         kubelet.asked.push_back(request.path + "?" + request.query);
                                         kubelet.open = std::move(out);
                                       });
  };
  return options;
}

struct LogCase {
  Kubelet kubelet;
  std::unique_ptr<Loop>* loop = nullptr;
  Api api;

  LogCase() : api(with_kubelet(kubelet, loop)) {
    loop = &api.loop;
    api.post("/api/v1/nodes", R"({"metadata":{"name":"n1"}})");
    api.post(
        "/api/v1/namespaces/default/pods",
        R"({"metadata":{"name":"p"},"spec":{"containers":[{"name":"a","image":"i"},{"name":"b","image":"i"}]}})");
    api.post("/api/v1/namespaces/default/pods/p/binding", R"({"target":{"name":"n1"}})");
  }
};

TEST(cluster_apiserver, logs_stream_from_the_kubelet) {
  LogCase t;
  auto log = t.api.send(
      Api::request("GET /api/v1/namespaces/default/pods/p/log?container=a&follow=true&tailLines=5&pretty=1"));
  t.api.loop->run_for(1ms);
  ASSERT_EQ(t.kubelet.asked, std::vector<std::string>{"/containerLogs/default/p/a?follow=true&tailLines=5"});
  t.kubelet.open->begin(200, {});
  t.kubelet.open->write("one\n");
  t.api.loop->run_for(1ms);
  EXPECT_EQ(log->answer.status, 200);
  EXPECT_EQ(log->answer.headers["Content-Type"], "text/plain");
  EXPECT_EQ(log->answer.body, "one\n");
  EXPECT_FALSE(log->ended);
  t.kubelet.open->write("two\n");
  t.kubelet.open->end();
  t.api.loop->run_for(1ms);
  EXPECT_EQ(log->answer.body, "one\ntwo\n");
  EXPECT_TRUE(log->ended);
}

TEST(cluster_apiserver, logs_are_refused_in_plain_words) {
  LogCase t;
  Reply which = t.api.get("/api/v1/namespaces/default/pods/p/log");
  EXPECT_EQ(which.status, 400);
  EXPECT_EQ(text_at(which.body, {"message"}),
            "a container name must be specified for pod p, choose one of: [a b]");
  EXPECT_EQ(t.api.get("/api/v1/namespaces/default/pods/p/log?container=z").status, 400);
  EXPECT_EQ(t.api.get("/api/v1/namespaces/default/pods/none/log").status, 404);
  t.api.patch(
      "/api/v1/namespaces/default/pods/p/status",
      R"({"status":{"containerStatuses":[{"name":"a","image":"i","imageID":"","ready":false,"restartCount":0,"state":{"waiting":{"reason":"ContainerCreating"}}}]}})");
  Reply waiting = t.api.get("/api/v1/namespaces/default/pods/p/log?container=a");
  EXPECT_EQ(waiting.status, 400);
  EXPECT_EQ(text_at(waiting.body, {"message"}),
            "container \"a\" in pod \"p\" is waiting to start: ContainerCreating");
  auto fault = t.api.send(Api::request("GET /api/v1/namespaces/default/pods/p/log?container=b"));
  t.api.loop->run_for(1ms);
  t.kubelet.open->send(HttpResponse::text(404, "no log here\n"));
  t.api.loop->run_for(1ms);
  EXPECT_EQ(fault->answer.status, 404);
  EXPECT_EQ(text_at(Api::reply_of(*fault).body, {"message"}), "no log here");
}

TEST(cluster_apiserver, logs_end_with_the_reader) {
  LogCase t;
  auto log = t.api.send(Api::request("GET /api/v1/namespaces/default/pods/p/log?container=a&follow=true"));
  t.api.loop->run_for(1ms);
  t.kubelet.open->begin(200, {});
  bool closed = false;
  t.kubelet.open->on_close([&] { closed = true; });
  t.api.loop->run_for(1ms);
  log->close();
  t.api.loop->run_for(1ms);
  EXPECT_TRUE(closed);
}

}  // namespace
}  // namespace gpuop::cluster
