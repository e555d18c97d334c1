// Writing beneath a container's root, which is hostile: whatever it holds, whoever swaps its folders
// meanwhile, an effect stays inside (container-toolkit-cdi.md §6.3). Every step goes from a folder's
// descriptor to a leaf name.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "base/result.h"

namespace gpuop::shim {

// Opens a container's root: refuses "", "/" and a symlink in its place.
Result<Root> open_rootfs(const std::filesystem::path& path);

// A regular file, at most `limit` bytes; FIFOs, devices and folders are kInvalid. Never blocks.
Result<std::string> read_regular(const Root& root, const std::filesystem::path& inner,
                                 std::size_t limit = 1u << 20);
// Opens a regular file for reading.
Result<Fd> open_regular(const Root& root, const std::filesystem::path& inner);

// Makes the folders above `inner` (0755), then replaces it by a file of that content. Nothing is done when it
// is so already. The folder that was opened is the one that is written to, whatever is renamed meanwhile.
Result<bool> replace_file(const Root& root, const std::filesystem::path& inner, std::string_view content,
                          mode_t mode);
// The same for a symlink; the target is only text.
Result<bool> replace_symlink(const Root& root, const std::filesystem::path& inner, std::string_view target);

// Whether the error means that the root cannot be written to: read-only or not ours.
bool is_read_only(const Error& error);

}  // namespace gpuop::shim
