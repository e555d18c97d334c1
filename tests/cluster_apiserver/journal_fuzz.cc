// The store's files: whatever they hold, they are read or refused; and a store that was read works on.
//
// Input: the first byte says which file it is (bit 1: a snapshot) and whether checksums are put right first
// (bit 0), so that what is behind them is reached; the rest are the file's bytes.
#include <cstring>

#include "base/crc32c.h"
#include "cluster/apiserver/store.h"
#include "crash_files.h"

namespace {

using namespace gpuop::cluster;

void put(std::string& bytes, std::size_t at, std::uint32_t number) {
  std::memcpy(bytes.data() + at, &number, sizeof number);
}

void set_checksums(std::string& bytes) {
  if (bytes.size() < 48) return;
  put(bytes, 44, gpuop::crc32c({bytes.data(), 44}));
  for (std::size_t at = 48; at + 32 <= bytes.size();) {
    std::uint32_t size = 0;
    std::memcpy(&size, bytes.data() + at + 16, sizeof size);
    if (size == 0 || at + 32 + size > bytes.size()) return;
    put(bytes, at + 20, gpuop::crc32c({bytes.data() + at + 32, size}));
    put(bytes, at + 28, gpuop::crc32c({bytes.data() + at, 28}));
    at += (32 + size + 7) / 8 * 8;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  if (size == 0) return 0;
  std::string bytes(reinterpret_cast<const char*>(data + 1), size - 1);
  if ((data[0] & 1) != 0) set_checksums(bytes);
  auto files = std::make_shared<CrashFiles>();
  std::string name = (data[0] & 2) != 0 ? "snapshot-00000001" : "log-00000001";
  (void)files->create(name);
  files->bytes(name) = bytes;
  // A snapshot has a log, here one that was just being made.
  if ((data[0] & 2) != 0) (void)files->create("log-00000001");
  api::Store store(100);
  if (!store.open({.files = files, .ahead_bytes = 0, .salt = 3})) return 0;
  for (const std::string& in : store.names())
    for (const auto& [key, object] : store.collection(in).objects()) (void)object->value();
  std::uint64_t version = store.version();
  store.put("/configmaps", "default/a", gpuop::JsonObject{{"metadata", gpuop::JsonObject()}}, {});
  if (!store.commit()) std::abort();
  api::Store again(100);
  if (!again.open({.files = files, .ahead_bytes = 0, .salt = 3}) || again.version() != version + 1)
    std::abort();
  return 0;
}
