// Opening beneath a root without openat2 (kernels before 5.6): the path is walked part by part, no link is
// ever followed by the kernel, and ".." goes back along the folders that were opened.
#pragma once

#include <filesystem>

#include "base/files.h"
#include "base/result.h"

namespace gpuop {

// As openat2 with RESOLVE_IN_ROOT: `root_fd` stands for "/". `flags` and `mode` as for open(2). Answers the
// descriptor or -errno.
int open_by_walking(int root_fd, const std::filesystem::path& inner, int flags, mode_t mode);

}  // namespace gpuop
