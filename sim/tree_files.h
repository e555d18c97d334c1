// Writing pseudo-files of a simulated kernel: plain writes, without the durability that files of ours need.
#pragma once

#include <string_view>

#include "base/files.h"

namespace gpuop::sim {

// Makes the folders on the way; replaces the content in place.
Result<> put(const fs::path& path, std::string_view content, mode_t mode = 0644);
// The same by a new file that takes the old one's place: who maps or runs the old one keeps it whole.
Result<> put_new(const fs::path& path, std::string_view content, mode_t mode = 0644);
// A relative or absolute symlink; one that is there already is replaced.
Result<> put_link(const fs::path& target, const fs::path& link);
// Removes a file or a folder with all in it.
Result<> drop(const fs::path& path);

}  // namespace gpuop::sim
