// Tar entries, written one after the other to wherever bytes go.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/files.h"
#include "base/result.h"

namespace gpuop::ociimage {

using Sink = std::function<Result<>(std::string_view)>;

class TarWriter {
 public:
  TarWriter(Sink sink, std::int64_t time) : sink_(std::move(sink)), time_(time) {}
  // Everything beneath `folder`, sorted by path, without the folder itself.
  Result<> add_tree(const fs::path& folder);
  Result<> add_bytes(const std::string& name, std::string_view content);
  // `size` bytes of the open file `fd`, from its start.
  Result<> add_file(const std::string& name, int fd, std::uint64_t size, unsigned mode);
  // The two empty blocks at the end.
  Result<> finish();

 private:
  Result<> add_entry(const fs::path& path, const std::string& name);
  Result<> header(const std::string& name, char type, std::uint64_t size, unsigned mode,
                  const std::string& link);
  Result<> pad(std::uint64_t size);

  Sink sink_;
  std::int64_t time_;
};

}  // namespace gpuop::ociimage
