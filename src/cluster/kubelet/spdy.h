// Frames of SPDY/3.1 (draft-mbelshe-httpbis-spdy-00), as far as a forwarded port needs them. Pure: bytes in,
// frames out and back.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace gpuop::cluster {

struct SpdyFrame {
  enum class Kind { kSynStream, kReset, kPing, kGoAway, kData, kOther } kind = Kind::kOther;
  std::uint32_t stream = 0;                    // of kPing: its id
  bool last = false;                           // the sender says nothing more on this stream
  std::map<std::string, std::string> headers;  // of kSynStream; names in lower case
  std::string data;
};

class SpdyReader {
 public:
  SpdyReader();
  ~SpdyReader();
  // The frames that are complete now. kInvalid: not SPDY/3, a frame longer than 1 MiB, headers that cannot be
  // read or unpack to more than 64 KiB; nothing can be read afterwards.
  Result<std::vector<SpdyFrame>> feed(std::string_view bytes);
  struct Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

class SpdyWriter {
 public:
  SpdyWriter();
  ~SpdyWriter();
  std::string syn_stream(std::uint32_t stream, const std::map<std::string, std::string>& headers);
  std::string syn_reply(std::uint32_t stream);
  static std::string data(std::uint32_t stream, std::string_view bytes, bool last);
  static std::string reset(std::uint32_t stream, std::uint32_t status);
  static std::string ping(std::uint32_t id);
  struct Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace gpuop::cluster
