// Decides what a container gets, and puts it into its OCI spec (container-toolkit-cdi.md §3.4, §3.5, §7.2).
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "cdi/registry.h"
#include "shim/config.h"
#include "shim/facts.h"
#include "shim/request.h"

namespace gpuop::shim {

inline constexpr std::string_view kAutomaticVendor = "runtime.nvidia.com";

struct Plan {
  std::string mode;                       // cdi, jit-cdi, legacy, csv
  std::vector<std::string> devices;       // qualified names, empty: the container is left alone
  bool automatic = false;                 // devices are of the in-memory specs of the facts file
  std::vector<std::string> capabilities;  // legacy: the driver capabilities to filter by
  std::vector<std::string> warnings;
  std::vector<std::string> ignored;  // variables that this mode does not look at (for the debug log)
};

// Pure. Errors as §3.4 and §3.5 word them.
Result<Plan> plan_injection(const Container& container, const Config& config, bool is_tegra);

// The edits of a plan. `facts` is asked only when the plan is automatic.
Result<cdi::Edits> edits_of(const Plan& plan, const Container& container, const Config& config,
                            const std::function<Result<HostFacts>()>& facts);

// Deletes prestart hooks of NVIDIA's own: the runtime does their work. Answers whether there were any.
bool remove_prestart_hooks(Json& oci);

// Keeps of a driver's common edits what the capabilities ask for (§7.2), and moves libraries to the
// container's own library folder. `debian_like` says which one that is.
cdi::Edits filter_by_capabilities(const cdi::Edits& edits, const std::vector<std::string>& capabilities,
                                  bool debian_like);

// The driver capabilities of a container (§3.7): unset, "all", or a list that must be supported.
Result<std::vector<std::string>> driver_capabilities(const Container& container, const Config& config);

// A node of the edits whose numbers are no longer those of the host's device (§6.4 S18): the error names it.
Result<> check_not_stale(const cdi::Edits& edits, const std::filesystem::path& host_root = "/");

}  // namespace gpuop::shim
