#include "cluster/apiserver/file_layer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

namespace gpuop::cluster {

namespace {

std::unexpected<Error> io_fault(std::string_view doing, const fs::path& path) {
  int err = errno;
  return fail(errno_error(std::string(doing) + " '" + path.string() + "'", err));
}

class RealFile final : public StoreFile {
 public:
  RealFile(fs::path path, Fd fd) : path_(std::move(path)), fd_(std::move(fd)) {}

  Result<std::string> read(std::uint64_t offset, std::size_t size) override {
    std::string bytes(size, '\0');
    std::size_t have = 0;
    while (have < size) {
      ssize_t n = ::pread(fd_.get(), bytes.data() + have, size - have, static_cast<off_t>(offset + have));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return io_fault("read", path_);
      if (n == 0) break;
      have += static_cast<std::size_t>(n);
    }
    bytes.resize(have);
    return bytes;
  }

  Result<> write(std::uint64_t offset, std::string_view bytes) override {
    while (!bytes.empty()) {
      ssize_t n = ::pwrite(fd_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return io_fault("write", path_);
      offset += static_cast<std::uint64_t>(n);
      bytes.remove_prefix(static_cast<std::size_t>(n));
    }
    return {};
  }

  Result<> sync() override {
    if (::fdatasync(fd_.get()) != 0) return io_fault("write to disk", path_);
    return {};
  }

  Result<> truncate(std::uint64_t size) override {
    if (::ftruncate(fd_.get(), static_cast<off_t>(size)) != 0) return io_fault("shorten", path_);
    return {};
  }

  Result<std::uint64_t> size() override {
    struct stat about{};
    if (::fstat(fd_.get(), &about) != 0) return io_fault("look at", path_);
    return static_cast<std::uint64_t>(about.st_size);
  }

 private:
  fs::path path_;
  Fd fd_;
};

class RealLayer final : public FileLayer {
 public:
  RealLayer(fs::path folder, FileLock lock, Fd dir)
      : folder_(std::move(folder)), lock_(std::move(lock)), dir_(std::move(dir)) {}

  Result<std::unique_ptr<StoreFile>> open(const std::string& name) override { return open_with(name, 0); }
  Result<std::unique_ptr<StoreFile>> create(const std::string& name) override {
    return open_with(name, O_CREAT | O_EXCL);
  }

  Result<> rename(const std::string& from, const std::string& to) override {
    if (::rename((folder_ / from).c_str(), (folder_ / to).c_str()) != 0)
      return io_fault("rename", folder_ / from);
    return {};
  }

  Result<> remove(const std::string& name) override {
    TRY(remove_file(folder_ / name));
    return {};
  }

  Result<std::vector<std::string>> list() override { return list_dir(folder_); }

  Result<> sync_dir() override {
    if (::fsync(dir_.get()) != 0) return io_fault("write to disk", folder_);
    return {};
  }

  std::string path(const std::string& name) const override { return (folder_ / name).string(); }

 private:
  Result<std::unique_ptr<StoreFile>> open_with(const std::string& name, int flags) {
    fs::path path = folder_ / name;
    Fd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC | flags, 0600));
    if (!fd) return io_fault(flags != 0 ? "make" : "open", path);
    return std::make_unique<RealFile>(std::move(path), std::move(fd));
  }

  fs::path folder_;
  FileLock lock_;
  Fd dir_;
};

}  // namespace

Result<std::shared_ptr<FileLayer>> open_data_folder(const fs::path& folder) {
  const std::string doing = "open data folder '" + folder.string() + "'";
  TRY_IN(make_dirs(folder, 0700), doing);
  Result<FileLock> lock = FileLock::acquire(folder / "lock");
  if (!lock && lock.error().code() == Code::kBusy)
    return fail(Code::kBusy,
                doing + ": another process uses this data folder; end it, or name another folder");
  if (!lock) return fail(std::move(lock).error().in(doing));
  Fd dir(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!dir) return io_fault("open data folder", folder);
  return std::make_shared<RealLayer>(folder, std::move(*lock), std::move(dir));
}

}  // namespace gpuop::cluster
