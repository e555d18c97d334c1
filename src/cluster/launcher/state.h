// What is known of a container between two calls of the launcher: <state root>/<id>/state.json, and the FIFO
// whose presence says that the container was created and not started.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "base/files.h"
#include "base/json.h"
#include "base/result.h"

namespace gpuop::cluster {

struct ContainerRecord {
  std::string oci_version, id, bundle;
  pid_t pid = 0;
  std::uint64_t pid_start =
      0;                // clock ticks since boot: tells the process from a later one of the same number
  std::string created;  // RFC 3339
  Json annotations;
};

// "creating" "created" "running" "stopped", as `runc state` says.
std::string_view container_status(const fs::path& state_root, const ContainerRecord& record);

// kNotFound: no such container.
Result<ContainerRecord> read_record(const fs::path& state_root, const std::string& id);
Result<> write_record(const fs::path& state_root, const ContainerRecord& record);

// The state document that hooks read on standard input and `state` prints (runtime-spec, "State").
Json state_document(const ContainerRecord& record, std::string_view status);

// Start time of a process in clock ticks; 0 when it is gone or a zombie.
std::uint64_t process_start_ticks(pid_t pid);

// Folder and FIFO of a container.
fs::path record_dir(const fs::path& state_root, const std::string& id);
fs::path start_fifo(const fs::path& state_root, const std::string& id);

// Ids are path components: letters, digits, "_+-." and at most 1024 long.
Result<> check_container_id(const std::string& id);

}  // namespace gpuop::cluster
