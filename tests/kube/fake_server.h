// An API server played by a test: every request is recorded, and answered by what the test says.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "kube/client.h"
#include "kube/transport.h"

namespace gpuop::kube::test {

inline const Time kStart = *parse_time("2026-01-02T03:04:05Z");

inline Json json(std::string_view text) {
  auto value = parse_json(text);
  if (!value) throw std::runtime_error(value.error().text());
  return std::move(*value);
}

inline HttpResponse status_answer(int code, std::string_view reason, std::string_view message = "no") {
  JsonObject body{{"kind", "Status"}, {"apiVersion", "v1"}, {"status", "Failure"}};
  body["code"] = code;
  body["reason"] = reason;
  body["message"] = message;
  return HttpResponse::json(code, to_text(body));
}

struct FakeServer {
  struct Seen {
    HttpRequest request;
    Duration at;
    std::shared_ptr<HttpResponder> responder;
    bool is_watch() const { return query("watch") == "1"; }
    std::string query(std::string_view key) const {
      for (const auto& [name, value] : parse_query(request.query)) {
        if (name == key) return value;
      }
      return "";
    }
  };

  std::unique_ptr<Loop> loop = Loop::make_virtual(kStart);
  std::vector<Seen> seen;
  // Answers, or keeps the responder.
  std::function<void(const Seen&)> answer;
  std::shared_ptr<Transport> transport =
      make_memory_transport(*loop, [this](HttpRequest request, std::shared_ptr<HttpResponder> responder) {
        seen.push_back({std::move(request), loop->elapsed(), std::move(responder)});
        const Seen last = seen.back();
        if (answer) answer(last);
      });

  // The requests that `keep` answers true for.
  template <class Keep>
  std::vector<Seen> filter(Keep keep) const {
    std::vector<Seen> out;
    for (const Seen& one : seen) {
      if (keep(one)) out.push_back(one);
    }
    return out;
  }
  std::vector<Seen> watches() const {
    return filter([](const Seen& one) { return one.is_watch(); });
  }
  std::vector<Seen> lists() const {
    return filter([](const Seen& one) {
      return one.request.method == "GET" && !one.is_watch() && one.request.path != "/version";
    });
  }
  void settle() { loop->run_for(Duration::zero()); }
};

inline std::string pod_text(std::string_view name, int version, std::string_view extra = "") {
  return R"({"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"x","name":")" + std::string(name) +
         R"(","uid":"u-)" + std::string(name) + R"(","resourceVersion":")" + std::to_string(version) +
         R"("})" + std::string(extra) + "}";
}

inline std::string event_line(std::string_view type, std::string_view object) {
  return R"({"type":")" + std::string(type) + R"(","object":)" + std::string(object) + "}\n";
}

inline HttpResponse list_answer(const std::vector<std::string>& items, int version,
                                std::string_view more = "") {
  std::string body = R"({"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":")" +
                     std::to_string(version) + R"(","continue":")" + std::string(more) + R"("},"items":[)";
  for (std::size_t i = 0; i < items.size(); ++i) body += (i == 0 ? "" : ",") + items[i];
  return HttpResponse::json(200, body + "]}");
}

}  // namespace gpuop::kube::test
