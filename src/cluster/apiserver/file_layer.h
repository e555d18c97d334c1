// The files of a store on disk, behind a small face: tests put a layer below that loses what was not synced.
//
// Paths are names in one folder, without slashes. Errors name the path and say why (kNoSpace for a full
// disk).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "base/result.h"

namespace gpuop::cluster {

class StoreFile {
 public:
  virtual ~StoreFile() = default;
  // Up to `size` bytes from `offset`; shorter only at the end of the file.
  virtual Result<std::string> read(std::uint64_t offset, std::size_t size) = 0;
  virtual Result<> write(std::uint64_t offset, std::string_view bytes) = 0;
  // Everything that was written is on the disk when it answers well.
  virtual Result<> sync() = 0;
  virtual Result<> truncate(std::uint64_t size) = 0;
  virtual Result<std::uint64_t> size() = 0;
};

class FileLayer {
 public:
  virtual ~FileLayer() = default;
  // Must exist (kNotFound), or must not (kExists).
  virtual Result<std::unique_ptr<StoreFile>> open(const std::string& name) = 0;
  virtual Result<std::unique_ptr<StoreFile>> create(const std::string& name) = 0;
  // Replaces what is at `to`.
  virtual Result<> rename(const std::string& from, const std::string& to) = 0;
  virtual Result<> remove(const std::string& name) = 0;
  virtual Result<std::vector<std::string>> list() = 0;  // sorted
  // Names made, renamed and removed so far survive when it answers well.
  virtual Result<> sync_dir() = 0;
  // For messages: "/data/log-1".
  virtual std::string path(const std::string& name) const = 0;
};

// A folder of the machine, made if absent and held by an exclusive lock (file 'lock' in it) until the layer
// goes. kBusy: "…: another process uses this data folder".
Result<std::shared_ptr<FileLayer>> open_data_folder(const fs::path& folder);

}  // namespace gpuop::cluster
