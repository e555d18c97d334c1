// config-manager: keeps a link to the configuration file that the node's label selects, and signals the
// program that reads it (device-plugin-gfd-mps.md §2.5).
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/loop.h"
#include "base/result.h"
#include "configmanager/select.h"
#include "kube/client.h"

namespace gpuop::configmanager {

struct ManagerOptions {
  bool oneshot = false;
  std::string node_name, node_label;
  std::filesystem::path source_dir, destination;
  std::string default_config;
  std::vector<std::string> fallbacks;
  bool send_signal = true;
  int signal = 1;
  std::string process_to_signal;
  bool watch_content = true;
  std::filesystem::path proc = "/proc";
};

// "invalid node-name: must not be empty string" and the like.
Result<> validate(const ManagerOptions& options);
// Processes in the order of their numbers; one that ends meanwhile is left out.
std::vector<Process> list_processes(const std::filesystem::path& proc);

class Manager {
 public:
  // `end` is called once, on the loop: in oneshot mode with the result, else with an error that ends the
  // program.
  Manager(Loop& loop, kube::Client& client, ManagerOptions options, std::function<void(Result<>)> end);
  ~Manager();
  void start();
  // The latest label that names no file, "" when there is none: the previous configuration stays in force.
  const std::string& refused_label() const;
  struct Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace gpuop::configmanager
