#include "ociimage/tar.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

namespace gpuop::ociimage {
namespace {

constexpr std::size_t kBlock = 512;
constexpr std::size_t kNameRoom = 100, kPrefixRoom = 155;

using Block = std::array<char, kBlock>;

void put_text(Block& block, std::size_t at, std::string_view text) {
  std::copy(text.begin(), text.end(), block.begin() + static_cast<std::ptrdiff_t>(at));
}

// Octal digits with a zero byte behind them.
void put_octal(Block& block, std::size_t at, std::size_t width, std::uint64_t value) {
  for (std::size_t i = width - 1; i-- > 0; value >>= 3) block[at + i] = static_cast<char>('0' + (value & 7));
}

// Where a name that is too long for its field is cut in two: npos when it cannot be.
std::size_t cut_of(const std::string& name) {
  if (name.size() > kNameRoom + kPrefixRoom + 1) return std::string::npos;
  std::size_t cut = name.find('/', name.size() - kNameRoom - 1);
  return cut == std::string::npos || cut == 0 || cut > kPrefixRoom || cut + 1 == name.size()
             ? std::string::npos
             : cut;
}

// A record of a pax header counts its own length.
std::string pax_record(std::string_view key, std::string_view value) {
  std::size_t rest = key.size() + value.size() + 3, length = rest + 1;
  while (std::to_string(length).size() + rest != length) length = std::to_string(length).size() + rest;
  return std::to_string(length) + " " + std::string(key) + "=" + std::string(value) + "\n";
}

std::string without_end(const std::string& text, std::size_t room) {
  return text.substr(0, room);
}

}  // namespace

Result<> TarWriter::header(const std::string& name, char type, std::uint64_t size, unsigned mode,
                           const std::string& link) {
  std::string prefix, last = name, records;
  if (name.size() > kNameRoom) {
    const std::size_t cut = cut_of(name);
    if (cut != std::string::npos) {
      prefix = name.substr(0, cut);
      last = name.substr(cut + 1);
    } else {
      records += pax_record("path", name);
      last = without_end(name, kNameRoom);
    }
  }
  if (link.size() > kNameRoom) records += pax_record("linkpath", link);
  if (!records.empty()) {
    TRY(header("pax/header", 'x', records.size(), 0644, ""));
    TRY(sink_(records));
    TRY(pad(records.size()));
  }
  Block block{};
  put_text(block, 0, last);
  put_octal(block, 100, 8, mode);
  put_octal(block, 108, 8, 0);
  put_octal(block, 116, 8, 0);
  put_octal(block, 124, 12, size);
  put_octal(block, 136, 12, static_cast<std::uint64_t>(time_));
  put_text(block, 148, "        ");
  block[156] = type;
  put_text(block, 157, without_end(link, kNameRoom));
  put_text(block, 257,
           std::string_view("ustar\0"
                            "00",
                            8));
  put_octal(block, 329, 8, 0);
  put_octal(block, 337, 8, 0);
  put_text(block, 345, prefix);
  std::uint64_t sum = 0;
  for (const char byte : block) sum += static_cast<unsigned char>(byte);
  put_octal(block, 148, 7, sum);
  block[155] = ' ';
  return sink_(std::string_view(block.data(), block.size()));
}

Result<> TarWriter::pad(std::uint64_t size) {
  static constexpr Block kZeros{};
  const std::size_t over = size % kBlock;
  if (over == 0) return {};
  return sink_(std::string_view(kZeros.data(), kBlock - over));
}

Result<> TarWriter::finish() {
  static constexpr Block kZeros{};
  for (int i = 0; i < 2; ++i) TRY(sink_(std::string_view(kZeros.data(), kBlock)));
  return {};
}

Result<> TarWriter::add_bytes(const std::string& name, std::string_view content) {
  TRY(header(name, '0', content.size(), 0644, ""));
  TRY(sink_(content));
  return pad(content.size());
}

Result<> TarWriter::add_file(const std::string& name, int fd, std::uint64_t size, unsigned mode) {
  TRY(header(name, '0', size, mode, ""));
  std::vector<char> buffer(1 << 16);
  for (std::uint64_t at = 0; at < size;) {
    const std::size_t want = static_cast<std::size_t>(std::min<std::uint64_t>(buffer.size(), size - at));
    const ssize_t n = ::pread(fd, buffer.data(), want, static_cast<off_t>(at));
    if (n <= 0) return fail(errno_error("read '" + name + "'", n < 0 ? errno : EIO));
    TRY(sink_(std::string_view(buffer.data(), static_cast<std::size_t>(n))));
    at += static_cast<std::uint64_t>(n);
  }
  return pad(size);
}

Result<> TarWriter::add_entry(const fs::path& path, const std::string& name) {
  struct stat info{};
  if (::lstat(path.c_str(), &info) != 0) return fail(errno_error("read '" + path.string() + "'", errno));
  const unsigned mode = info.st_mode & 07777;
  if (S_ISDIR(info.st_mode)) return header(name + "/", '5', 0, mode, "");
  if (S_ISLNK(info.st_mode)) {
    std::error_code error;
    const std::string target = fs::read_symlink(path, error);
    if (error) return fail(errno_error("read '" + path.string() + "'", error.value()));
    return header(name, '2', 0, 0777, target);
  }
  if (!S_ISREG(info.st_mode))
    return fail(Code::kInvalid, "pack '" + path.string() + "': is neither a file nor a folder nor a link");
  Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd) return fail(errno_error("read '" + path.string() + "'", errno));
  return add_file(name, fd.get(), static_cast<std::uint64_t>(info.st_size), mode);
}

Result<> TarWriter::add_tree(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::recursive_directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    names.push_back(at->path().lexically_relative(folder).string());
  if (error) return fail(errno_error("list '" + folder.string() + "'", error.value()));
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) TRY(add_entry(folder / name, name));
  return {};
}

}  // namespace gpuop::ociimage
