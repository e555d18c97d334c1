// A server on a virtual loop, called as its HTTP server would call it.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/http.h"
#include "base/json.h"
#include "base/loop.h"
#include "base/text.h"
#include "cluster/apiserver/api_server.h"

namespace gpuop::cluster {

// Keeps what the server answers.
class Recorder : public HttpResponder {
 public:
  void send(HttpResponse response) override {
    answer = std::move(response);
    ended = true;
  }
  void begin(int status, Headers headers) override {
    answer.status = status;
    answer.headers = std::move(headers);
  }
  void write(std::string chunk) override { answer.body += chunk; }
  void end() override { ended = true; }
  void abort() override { aborted = ended = true; }
  std::size_t buffered() const override { return 0; }
  bool closed() const override { return false; }
  void on_close(std::function<void()> closed) override { close = std::move(closed); }

  HttpResponse answer;
  bool ended = false, aborted = false;
  std::function<void()> close;
};

struct Reply {
  int status = 0;
  Headers headers;
  std::string text;
  Json body;
};

inline Time start_time() {
  return *parse_time("2025-01-01T00:00:00Z");
}

class Api {
 public:
  explicit Api(ApiServerOptions options = {}) : loop(Loop::make_virtual(start_time())) {
    options.seed = 7;
    server = std::make_unique<ApiServer>(*loop, std::move(options));
    handler = server->handler();
  }

  std::shared_ptr<Recorder> send(HttpRequest request) {
    auto recorder = std::make_shared<Recorder>();
    handler(std::move(request), recorder);
    return recorder;
  }

  // "METHOD /path?query"; `body` JSON unless `type` says otherwise.
  static HttpRequest request(std::string_view line, std::string body = {}, std::string_view type = {}) {
    HttpRequest out;
    std::size_t space = line.find(' ');
    out.method = std::string(line.substr(0, space));
    std::string_view target = line.substr(space + 1);
    std::size_t mark = target.find('?');
    out.path = std::string(target.substr(0, mark));
    if (mark != std::string_view::npos) out.query = std::string(target.substr(mark + 1));
    out.body = std::move(body);
    if (!type.empty()) out.headers["Content-Type"] = std::string(type);
    out.headers["User-Agent"] = "test/1.0";
    return out;
  }

  static Reply reply_of(const Recorder& recorder) {
    Reply reply;
    reply.status = recorder.answer.status;
    reply.headers = recorder.answer.headers;
    reply.text = recorder.answer.body;
    if (Result<Json> body = parse_json(reply.text)) reply.body = std::move(*body);
    return reply;
  }

  Reply call(std::string_view line, std::string body = {}, std::string_view type = {}) {
    auto recorder = send(request(line, std::move(body), type));
    EXPECT_TRUE(recorder->ended) << line << ": no answer";
    return reply_of(*recorder);
  }
  Reply get(std::string_view target, std::string_view accept = {}) {
    HttpRequest one = request("GET " + std::string(target));
    if (!accept.empty()) one.headers["Accept"] = std::string(accept);
    auto recorder = send(std::move(one));
    EXPECT_TRUE(recorder->ended) << target << ": no answer";
    return reply_of(*recorder);
  }
  Reply post(std::string_view target, std::string body) {
    return call("POST " + std::string(target), std::move(body));
  }
  Reply put(std::string_view target, std::string body) {
    return call("PUT " + std::string(target), std::move(body));
  }
  Reply patch(std::string_view target, std::string body, std::string_view kind = "merge-patch+json") {
    return call("PATCH " + std::string(target), std::move(body), "application/" + std::string(kind));
  }
  Reply del(std::string_view target, std::string body = {}) {
    return call("DELETE " + std::string(target), std::move(body));
  }

  std::shared_ptr<Recorder> watch(std::string_view target) {
    return send(request("GET " + std::string(target)));
  }
  // The events that a watch has sent.
  static std::vector<Json> events(const Recorder& recorder) {
    std::vector<Json> all;
    for (const std::string& line : split(recorder.answer.body, '\n'))
      if (!line.empty()) all.push_back(*parse_json(line));
    return all;
  }

  std::unique_ptr<Loop> loop;
  std::unique_ptr<ApiServer> server;
  HttpHandler handler;
};

inline std::string text_at(const Json& root, Keys keys) {
  return str(get_string(root, keys));
}

inline constexpr std::string_view kPodBody =
    R"({"apiVersion":"v1","kind":"Pod","metadata":{"name":"p1"},"spec":{"containers":[{"name":"c","image":"busybox"}]}})";

}  // namespace gpuop::cluster
