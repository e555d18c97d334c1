// Waiting for files without polling.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>

#include "base/loop.h"
#include "base/result.h"

namespace gpuop {

// Calls `changed` on the loop whenever something in `dir` (or `dir` itself, should it appear, vanish or be
// replaced) may have changed; one call may stand for many changes. A folder that does not exist yet is waited
// for from its nearest existing parent. The first call comes at once, so a check inside `changed` races with
// nothing. Errors: the inotify limit is reached (the message names the sysctl), or no parent can be watched.
class DirWatch {
 public:
  static Result<std::unique_ptr<DirWatch>> create(Loop& loop, const std::filesystem::path& dir,
                                                  std::function<void()> changed);
  ~DirWatch();
  struct Impl;

 private:
  explicit DirWatch(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

// Runs the loop until `path` exists; kTimeout after `limit`, kCancelled when the loop is stopped first.
Result<> wait_for_file(Loop& loop, const std::filesystem::path& path, Duration limit);

}  // namespace gpuop
