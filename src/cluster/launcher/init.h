// The first process of a container, from clone to exec.
#pragma once

#include <string>

#include "base/files.h"
#include "base/json.h"
#include "cluster/launcher/oci_spec.h"

namespace gpuop::cluster {

// Messages between the creator and the init over a SOCK_SEQPACKET pair; an error is 'E' and its text.
inline constexpr char kMounted = 'M';  // init: everything is mounted, the root not yet entered
inline constexpr char kGo = 'G';       // creator: hooks of the runtime's namespaces are done
inline constexpr char kCreated = 'C';  // init: waits for start
inline constexpr char kError = 'E';

struct InitPlan {
  const OciSpec& spec;
  const Json& state;  // for createContainer and startContainer hooks
  int sync = -1;      // this side of the pair
  int start = -1;     // the FIFO, open for reading
};

// Runs in the new process. Tells the creator what went wrong, or becomes the container's program.
[[noreturn]] void run_init(const InitPlan& plan);

}  // namespace gpuop::cluster
