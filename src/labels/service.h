// GPU feature discovery as a whole: load, look, label, and again (device-plugin-gfd-mps.md §6.1).
#pragma once

#include <functional>
#include <memory>

#include "base/loop.h"
#include "base/result.h"
#include "kube/client.h"
#include "sharing/settings.h"

namespace gpuop::labels {

struct ServiceOptions {
  // The command line and the environment; the configuration file is read at every (re)load.
  sharing::SettingsInputs inputs;
  // Makes the client when NodeFeature objects are wanted; called at most once.
  std::function<Result<std::unique_ptr<kube::Client>>(const sharing::Settings&)> make_client;
};

class Service {
 public:
  // `end` is called once, on the loop: after a oneshot run, or with the error that ends the program.
  Service(Loop& loop, ServiceOptions options, std::function<void(Result<>)> end);
  ~Service();  // removes the features file, unless it is meant to stay (oneshot, infinite interval)
  void start();
  // Everything anew, configuration file and timestamp included (SIGHUP).
  void reload();
  struct Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace gpuop::labels
