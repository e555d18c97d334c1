#include "ociimage/image.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <array>
#include <cerrno>
#include <memory>

#include "base/json.h"
#include "base/time.h"
#include "ociimage/tar.h"

namespace gpuop::ociimage {
namespace {

class Digest {
 public:
  Digest() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
    EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr);
  }
  void add(std::string_view bytes) { EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()); }
  std::string hex() {
    std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
    unsigned size = 0;
    EVP_DigestFinal_ex(context_.get(), digest.data(), &size);
    constexpr std::string_view kHex = "0123456789abcdef";
    std::string out;
    for (unsigned i = 0; i < size; ++i) {
      out += kHex[digest[i] >> 4];
      out += kHex[digest[i] & 15];
    }
    return out;
  }

 private:
  std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context_;
};

// A file without a name until it is put in place.
class Scratch {
 public:
  static Result<Scratch> beside(const fs::path& out) {
    const fs::path folder = out.has_parent_path() ? out.parent_path() : fs::path(".");
    Fd fd(::open(folder.c_str(), O_RDWR | O_TMPFILE | O_CLOEXEC, 0644));
    if (!fd) return fail(errno_error("write in '" + folder.string() + "'", errno));
    return Scratch(std::move(fd));
  }
  Result<> add(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::write(fd_.get(), bytes.data(), bytes.size());
      if (n < 0) return fail(errno_error("write image", errno));
      bytes.remove_prefix(static_cast<std::size_t>(n));
      size_ += static_cast<std::uint64_t>(n);
    }
    return {};
  }
  Result<> put(const fs::path& out) const {
    fs::path temp = out;
    temp += ".new";
    ::unlink(temp.c_str());
    const std::string self = "/proc/self/fd/" + std::to_string(fd_.get());
    if (::fsync(fd_.get()) != 0 ||
        ::linkat(AT_FDCWD, self.c_str(), AT_FDCWD, temp.c_str(), AT_SYMLINK_FOLLOW) != 0 ||
        ::rename(temp.c_str(), out.c_str()) != 0) {
      return fail(errno_error("write '" + out.string() + "'", errno));
    }
    return {};
  }
  int fd() const { return fd_.get(); }
  std::uint64_t size() const { return size_; }

 private:
  explicit Scratch(Fd fd) : fd_(std::move(fd)) {}
  Fd fd_;
  std::uint64_t size_ = 0;
};

// gzip, with a header that holds neither name nor time.
class Gzip {
 public:
  explicit Gzip(Sink sink) : sink_(std::move(sink)), room_(1 << 16) {
    ::deflateInit2(&stream_, Z_BEST_COMPRESSION, Z_DEFLATED, 15 + 16, 9, Z_DEFAULT_STRATEGY);
  }
  ~Gzip() { ::deflateEnd(&stream_); }
  Gzip(const Gzip&) = delete;
  Gzip& operator=(const Gzip&) = delete;
  Result<> add(std::string_view bytes) { return pass(bytes, Z_NO_FLUSH); }
  Result<> finish() { return pass({}, Z_FINISH); }

 private:
  Result<> pass(std::string_view bytes, int flush) {
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
    stream_.avail_in = static_cast<uInt>(bytes.size());
    do {
      stream_.next_out = reinterpret_cast<Bytef*>(room_.data());
      stream_.avail_out = static_cast<uInt>(room_.size());
      ::deflate(&stream_, flush);
      TRY(sink_(std::string_view(room_.data(), room_.size() - stream_.avail_out)));
    } while (stream_.avail_out == 0);
    return {};
  }
  Sink sink_;
  std::vector<char> room_;
  z_stream stream_{};
};

struct Layer {
  Scratch file;
  std::string digest, diff;  // of the bytes as stored, and as unpacked
  std::uint64_t unpacked = 0;
};

Result<Layer> pack(const fs::path& folder, std::int64_t time, const fs::path& out) {
  Layer layer{TRY(Scratch::beside(out)), "", ""};
  Digest stored, plain;
  Gzip gzip([&](std::string_view bytes) -> Result<> {
    stored.add(bytes);
    return layer.file.add(bytes);
  });
  TarWriter tar(
      [&](std::string_view bytes) -> Result<> {
        plain.add(bytes);
        layer.unpacked += bytes.size();
        return gzip.add(bytes);
      },
      time);
  TRY(tar.add_tree(folder));
  TRY(tar.finish());
  TRY(gzip.finish());
  layer.digest = stored.hex();
  layer.diff = plain.hex();
  return layer;
}

struct Blob {
  std::string content, digest;
  explicit Blob(const Json& json) : content(to_text(json)) {
    Digest digest_of;
    digest_of.add(content);
    digest = digest_of.hex();
  }
};

JsonArray array_of(const std::vector<std::string>& texts) {
  JsonArray out;
  for (const std::string& text : texts) out.emplace_back(text);
  return out;
}

std::string architecture_of(const Image& image) {
  if (!image.architecture.empty()) return image.architecture;
#if defined(__aarch64__)
  return "arm64";
#else
  return "amd64";
#endif
}

Json config_of(const Image& image, const std::vector<Layer>& layers) {
  JsonObject run{{"WorkingDir", "/"}};
  if (!image.env.empty()) run["Env"] = array_of(image.env);
  if (!image.entrypoint.empty()) run["Entrypoint"] = array_of(image.entrypoint);
  if (!image.command.empty()) run["Cmd"] = array_of(image.command);
  if (!image.labels.empty()) {
    JsonObject labels;
    for (const auto& [key, value] : image.labels) labels[key] = value;
    run["Labels"] = std::move(labels);
  }
  JsonArray diffs;
  for (const Layer& layer : layers) diffs.emplace_back("sha256:" + layer.diff);
  return JsonObject{{"created", format_time(Time(std::chrono::seconds(image.time)))},
                    {"architecture", architecture_of(image)},
                    {"os", "linux"},
                    {"config", std::move(run)},
                    {"rootfs", JsonObject{{"type", "layers"}, {"diff_ids", std::move(diffs)}}}};
}

JsonObject descriptor(const std::string& type, const std::string& digest, std::uint64_t size) {
  return {{"mediaType", "application/vnd.oci.image." + type}, {"digest", "sha256:" + digest}, {"size", size}};
}

Result<std::string> tag_of(const std::string& reference) {
  const std::size_t colon = reference.rfind(':'), slash = reference.rfind('/');
  if (colon == std::string::npos || (slash != std::string::npos && colon < slash) ||
      colon + 1 == reference.size())
    return fail(Code::kInvalid, "name image '" + reference + "': it needs a tag, as in NAME:TAG");
  return reference.substr(colon + 1);
}

}  // namespace

Result<Written> write_image(const Image& image, const fs::path& out) {
  const std::string tag = TRY(tag_of(image.reference));
  if (image.layers.empty())
    return fail(Code::kInvalid, "pack image '" + image.reference + "': it has no layer");
  std::vector<Layer> layers;
  for (const fs::path& folder : image.layers) layers.push_back(TRY(pack(folder, image.time, out)));
  const Blob config(config_of(image, layers));
  JsonArray rows;
  Written written;
  for (const Layer& layer : layers) {
    rows.emplace_back(descriptor("layer.v1.tar+gzip", layer.digest, layer.file.size()));
    written.unpacked += layer.unpacked;
  }
  const Blob manifest(
      JsonObject{{"schemaVersion", 2},
                 {"mediaType", "application/vnd.oci.image.manifest.v1+json"},
                 {"config", descriptor("config.v1+json", config.digest, config.content.size())},
                 {"layers", std::move(rows)}});
  JsonObject entry = descriptor("manifest.v1+json", manifest.digest, manifest.content.size());
  entry["annotations"] =
      JsonObject{{"io.containerd.image.name", image.reference}, {"org.opencontainers.image.ref.name", tag}};
  const Blob index(JsonObject{{"schemaVersion", 2},
                              {"mediaType", "application/vnd.oci.image.index.v1+json"},
                              {"manifests", JsonArray{std::move(entry)}}});

  Scratch archive = TRY(Scratch::beside(out));
  TarWriter tar([&archive](std::string_view bytes) { return archive.add(bytes); }, image.time);
  TRY(tar.add_bytes("oci-layout", R"({"imageLayoutVersion":"1.0.0"})"));
  TRY(tar.add_bytes("index.json", index.content));
  for (const Blob* blob : {&manifest, &config})
    TRY(tar.add_bytes("blobs/sha256/" + blob->digest, blob->content));
  for (const Layer& layer : layers)
    TRY(tar.add_file("blobs/sha256/" + layer.digest, layer.file.fd(), layer.file.size(), 0644));
  TRY(tar.finish());
  TRY(archive.put(out));
  written.digest = "sha256:" + manifest.digest;
  written.size = archive.size();
  return written;
}

}  // namespace gpuop::ociimage
