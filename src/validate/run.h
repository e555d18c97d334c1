// One run of a component of the validator: what all of them share. Of this room alone.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "validate/driver.h"
#include "validate/gates.h"
#include "validate/validator.h"

namespace gpuop::validate {

struct Run {
  Run(Loop& l, const ValidatorOptions& o) : loop(l), options(o) {}

  Loop& loop;
  const ValidatorOptions& options;
  std::unique_ptr<kube::Client> client;
  const Gates gates{options.output_dir, options.gate_owner, options.pod};
  std::optional<Json> seen_node;
  Time seen_at{};
  std::string node_fault;  // of the last try to read the node anew

  std::filesystem::path gate(std::string_view name) const { return options.output_dir / name; }
  Result<kube::Client*> api();
  // Succeeds at once or, with --with-wait, in the end.
  Result<> until(const std::vector<std::filesystem::path>& dirs, const std::function<Result<>()>& attempt);
  Result<> open_gate(std::string_view name, std::string_view content = {});
  Result<> close_gate(std::string_view name);

  Result<bool> driver_is_managed();
  Result<FoundDriver> find_driver();
  Result<> device_nodes(const FoundDriver& found);
  Result<> driver();
  Result<> module(std::string_view module, std::string_view gate_name);
  Result<> toolkit();
  Result<> wait_for_toolkit();
  Result<> cuda();
  Result<> plugin();
  Result<> mofed();

  // Virtual machines (run_machines.cc).
  Result<> read_node();
  Result<> write_workload(const std::string& workload);
  Result<bool> until_of(std::string_view workload, const std::vector<std::filesystem::path>& dirs,
                        const std::function<Result<>()>& check);
  Result<> vfio_pci();
  Result<> vgpu_manager();
  Result<> vgpu_devices();
  Result<> cc_manager();
};

}  // namespace gpuop::validate
