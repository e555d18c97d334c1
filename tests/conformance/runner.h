// Runs a scenario against whatever a kubeconfig names, and answers what was seen.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>

#include "base/files.h"
#include "base/json.h"
#include "base/loop.h"
#include "base/process.h"
#include "kube/transport.h"
#include "normal.h"
#include "scenario.h"

namespace gpuop::conformance {

class Runner {
 public:
  // `kubeconfig`: the file's text.
  Runner(Loop& loop, std::string kubeconfig) : loop_(loop), kubeconfig_(std::move(kubeconfig)) {}

  // What each recorded step answered, without what no two runs share: an array of objects
  // {step, status, headers, body | text | events} or {step, code, out, err} or {step, until}.
  // Errors: a step that was to succeed did not, or the control plane cannot be reached.
  Result<Json> run(const Scenario& scenario);

 private:
  struct Stream {
    Handle handle;
    int status = 0;
    std::string pending;
    JsonArray events;
    std::size_t read = 0;  // events that were recorded
    bool ended = false;
  };

  Result<> prepare(const Scenario& scenario);
  Result<> one(const Step& step);
  Result<> request(const Step& step);
  Result<> watch(const Step& step);
  Result<> events(const Step& step);
  Result<> until(const Step& step);
  Result<> file(const Step& step);
  Result<> program(const Step& step);

  Result<HttpResponse> call(HttpRequest request);
  Result<bool> is_served(const std::string& path);
  Result<> wait_until_served(const std::string& path);
  Result<> wait_for(const std::string& path, std::span<const std::string> conditions);
  void open_stream(HttpRequest request, const std::shared_ptr<Stream>& stream);
  HttpRequest make_request(const Step& step, const std::string& method, const std::string& target) const;
  void record(const Step& step, JsonObject seen);
  Result<> remember(const Step& step, const Json& body);
  std::string filled(std::string_view text) const;  // with $NAME and @{TEXT*COUNT} replaced

  Loop& loop_;
  std::string kubeconfig_;
  std::shared_ptr<kube::Transport> transport_;
  std::unique_ptr<TempDir> folder_;
  std::map<std::string, std::string> variables_;
  std::map<std::string, std::shared_ptr<Stream>> streams_;
  std::unique_ptr<Normal> normal_;
  JsonArray seen_;
};

// The program that GPUOP_KUBECTL names, or the one that tests/tools/fetch-kubectl has fetched.
std::string kubectl_path();

}  // namespace gpuop::conformance
