// Programs that a supervisor keeps running, some of them inside a node's namespaces.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/files.h"
#include "base/loop.h"
#include "base/result.h"

namespace gpuop::cluster {

// Open namespaces of a node: they live as long as these.
struct NodeNamespaces {
  Fd mount, uts, network;
};

struct Launch {
  std::vector<std::string> argv;  // argv[0] is absolute, in the root that the program will see
  std::vector<std::string> env;
  int mount = -1, uts = -1, network = -1;  // namespaces to enter; -1: the caller's
  int output = -1;                         // standard output and error; -1: /dev/null
  std::vector<std::pair<int, int>> files;  // (ours, number in the program), numbers from 3
};
// A child of the caller. A program that cannot be executed ends with 127 and says why in its output.
Result<pid_t> spawn(const Launch& launch);

// When to start an ended program again: at once the first time, then later and later, until it has run for a
// while.
class RestartDelay {
 public:
  // `clean`: it ended by itself with status 0, as a runtime does that was told to read its configuration
  // anew.
  Duration next(Duration ran, bool clean);

 private:
  int failures_ = 0;
};

// One program that is started again whenever it ends.
class Service {
 public:
  Service(Loop& loop, std::string role, std::string node, Launch launch, std::function<void()> changed);
  // Starts it now. A failure to start counts as an end.
  void start();
  // The supervisor's own wait() saw it end.
  void ended(int status);
  // Kills it; it stays down until release() starts it with a new launch.
  void hold();
  void release(Launch launch);
  // Calls `back` once, when the program has been started the next time.
  void when_started(std::function<void()> back) { back_ = std::move(back); }

  const std::string& role() const { return role_; }
  const std::string& node() const { return node_; }
  pid_t pid() const { return pid_; }  // 0 while it is down
  int restarts() const { return restarts_; }

 private:
  Loop& loop_;
  std::string role_, node_;
  Launch launch_;
  std::function<void()> changed_;
  RestartDelay delay_;
  pid_t pid_ = 0;
  int restarts_ = -1;
  bool held_ = false;
  std::function<void()> back_;
  Duration started_{};
  Handle timer_;
};

}  // namespace gpuop::cluster
