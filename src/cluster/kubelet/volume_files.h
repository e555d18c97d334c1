// Files of ConfigMap, Secret, downward and projected volumes, and folders of a pod.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <map>
#include <string>

#include "base/json.h"
#include "base/result.h"
#include "cluster/kubelet/objects.h"
#include "cluster/kubelet/pod_env.h"

namespace gpuop::cluster {

struct FileContent {
  std::string data;
  mode_t mode = 0644;
  bool operator==(const FileContent&) const = default;
};
// By path relative to the volume.
using Payload = std::map<std::string, FileContent>;

// What a volume's source (or one source of a projected volume) puts into it. Errors are the sentence after
// `MountVolume.SetUp failed for volume "v" : `. Pure.
Result<> add_object_files(Payload& payload, ObjectKind kind, const Json& source, const std::string& name,
                          const ObjectView& view, mode_t default_mode);
Result<> add_downward_files(Payload& payload, const Json& source, const Json& pod, const NodeView& node,
                            mode_t default_mode);

// Makes `dir` show exactly `payload`, all at once: the files lie in a dated folder, ..data links to it, and
// each top name links through ..data. Nothing is touched when it shows that already. `stamp` names the new
// folder.
Result<bool> write_payload(const std::filesystem::path& dir, const Payload& payload,
                           const std::string& stamp);

// Writes a file that need not outlive a power cut, in place and without waiting for the disk; nothing when it
// is there with that content.
Result<> write_lightly(const std::filesystem::path& path, const std::string& text, mode_t mode);

// Removes a tree without leaving its file system: a mount inside it is undone first, never emptied.
Result<> remove_tree(const std::filesystem::path& dir);
// A tmpfs of at most `bytes` (0: no limit) at `dir`; nothing when one is there.
Result<> mount_tmpfs(const std::filesystem::path& dir, std::int64_t bytes);

}  // namespace gpuop::cluster
