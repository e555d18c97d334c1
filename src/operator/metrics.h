// The operator's metrics (operator.md §7.1), in Prometheus' text form.
#pragma once

#include <memory>
#include <string>

namespace gpuop::op {

struct ToolkitFindings;

class Metrics {
 public:
  Metrics();
  ~Metrics();

  void set_gpu_nodes(std::size_t count);
  void set_status(int status);   // 1, 0, -1
  void count_pass(bool failed);  // upstream's sense: a not-ready pass counts as failed
  void count_error();            // ours: passes that ended in an error
  void set_last_success(double unix_seconds);
  void set_has_nfd_labels(bool yes);
  void set_auto_upgrade(bool on);
  void set_driver_toolkit(const ToolkitFindings& findings);
  void count_write(int count);
  // Findings of the compatibility check.
  void set_compatibility(std::size_t errors, std::size_t warnings);
  // The first broken link of a GPU node; an empty stage: it is ready, or no GPU node any more.
  void set_node(const std::string& node, const std::string& stage, const std::string& reason);

  std::string text() const;
  struct Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace gpuop::op
