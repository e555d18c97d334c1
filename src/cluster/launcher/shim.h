// The process beside each container that outlives the runtime: it starts the container through an OCI
// runtime, writes its log, waits for its end and leaves the exit status in a file.
#pragma once

#include <string>

#include "base/files.h"
#include "base/result.h"

namespace gpuop::cluster {

struct ShimOptions {
  std::string id;
  std::string bundle;
  std::string runtime;  // absolute path of an OCI runtime; empty: the launcher in this process
  fs::path state_root;  // for the launcher in this process
  fs::path log;         // CRI log; empty: output is dropped
  fs::path exit_file;   // {"code":N,"signal":N,"finished":"…"}, written atomically at the end
  int report = -1;      // {"pid":N}\n once started, or {"error":"…","notFound":bool}\n; then closed
};

// Never returns while the container runs. Answers the exit status for the process itself: 0, or 1 when the
// container was never started.
int run_shim(const ShimOptions& options);

// What a shim left behind.
struct ExitRecord {
  int code = 0, signal = 0;
  std::string finished;  // RFC 3339
};
Result<ExitRecord> read_exit_file(const fs::path& path);
Result<> write_exit_file(const fs::path& path, const ExitRecord& record);

}  // namespace gpuop::cluster
