// Capabilities, limits, user and environment of a process that is about to become a container's.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "cluster/launcher/oci_spec.h"

namespace gpuop::cluster {

// "CAP_SYS_ADMIN" to its number; -1 for a name that this build does not know.
int capability_number(std::string_view name);
// Every name, in the kernel's order.
const std::vector<std::string>& capability_names();

// Capabilities that no simulated container gets, whatever it asks for: they reach past every namespace to the
// machine itself (its modules, clock, ports, power, and the resource limits of everybody).
bool reaches_the_machine(int capability);

// Sets rlimits, capabilities, groups and user as the configuration says, less what reaches the machine and
// what this process does not have. In this order: bounding set, ids (keeping permitted), the other sets.
Result<> drop_privileges(const OciSpec& spec);

// The program that args[0] names, searched along PATH of `env`, in the calling process's root.
// Errors are worded as container runtimes do: `exec: "x": executable file not found in $PATH`.
Result<std::string> find_executable(const std::string& name, const std::vector<std::string>& env,
                                    const std::string& cwd);

// execve with these; returns only on failure.
Error exec_program(const std::string& path, const std::vector<std::string>& args,
                   const std::vector<std::string>& env);

}  // namespace gpuop::cluster
