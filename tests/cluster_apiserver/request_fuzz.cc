// Whole requests: method, path, query and body from one input. Every one is answered once, with a status.
#include <string_view>

#include "base/text.h"
#include "cluster/apiserver/api_server.h"

using namespace gpuop;

namespace {

class Counter : public HttpResponder {
 public:
  void send(HttpResponse response) override {
    ++answers;
    if (response.status < 200 || response.status > 599) __builtin_trap();
  }
  void begin(int, Headers) override { ++answers; }
  void write(std::string) override {}
  void end() override {}
  void abort() override {}
  std::size_t buffered() const override { return 0; }
  bool closed() const override { return false; }
  void on_close(std::function<void()> closed) override { close = std::move(closed); }
  int answers = 0;
  std::function<void()> close;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static std::unique_ptr<Loop> loop = Loop::make_virtual(Time(std::chrono::seconds(1750000000)));
  static int uses = 0;
  static std::unique_ptr<cluster::ApiServer> server;
  if (uses++ % 500 == 0)
    server = std::make_unique<cluster::ApiServer>(*loop, cluster::ApiServerOptions{.seed = 1});
  std::string_view text(reinterpret_cast<const char*>(data), size);
  std::vector<std::string_view> lines;
  for (int i = 0; i < 3; ++i) {
    std::size_t end = text.find('\n');
    lines.push_back(text.substr(0, end));
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
  }
  HttpRequest request;
  request.method = std::string(lines[0]);
  std::size_t mark = lines[1].find('?');
  request.path = std::string(lines[1].substr(0, mark));
  if (mark != std::string_view::npos) request.query = std::string(lines[1].substr(mark + 1));
  request.headers["Content-Type"] = std::string(lines[2]);
  request.headers["Accept"] = std::string(lines[2]);
  request.body = std::string(text);
  auto out = std::make_shared<Counter>();
  server->handler()(std::move(request), out);
  loop->run_for(5s);
  if (out->answers != 1) __builtin_trap();
  if (out->close) out->close();
  return 0;
}
