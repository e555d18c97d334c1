#include "cluster/kubelet/spdy.h"

#include <zlib.h>

#include <array>

#include "base/text.h"

namespace gpuop::cluster {

namespace {

constexpr std::size_t kHead = 8;
constexpr std::size_t kLongestFrame = 1u << 20;
constexpr std::size_t kLongestHeaders = 64u << 10;

enum ControlType : std::uint16_t {
  kSynStreamType = 1,
  kSynReplyType = 2,
  kResetType = 3,
  kPingType = 6,
  kGoAwayType = 7
};

void put32(std::string& out, std::uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(value >> shift & 0xff);
}
std::uint32_t get32(std::string_view bytes) {
  std::uint32_t out = 0;
  for (std::size_t i = 0; i < 4; ++i) out = out << 8 | static_cast<unsigned char>(bytes[i]);
  return out;
}

// What headers are compressed against (the draft's §2.6.10.1): words with their lengths, then a text without.
const std::string& dictionary() {
  static const std::string text = [] {
    std::string out;
    for (const std::string& word : split(
             "options|head|post|put|delete|trace|accept|accept-charset|accept-encoding|accept-language|"
             "accept-ranges|age|allow|authorization|cache-control|connection|content-base|content-encoding|"
             "content-language|content-length|content-location|content-md5|content-range|content-type|date|"
             "etag|"
             "expect|expires|from|host|if-match|if-modified-since|if-none-match|if-range|if-unmodified-since|"
             "last-modified|location|max-forwards|pragma|proxy-authenticate|proxy-authorization|range|"
             "referer|"
             "retry-after|server|te|trailer|transfer-encoding|upgrade|user-agent|vary|via|warning|"
             "www-authenticate|method|get|status|200 "
             "OK|version|HTTP/1.1|url|public|set-cookie|keep-alive|origin",
             '|')) {
      put32(out, static_cast<std::uint32_t>(word.size()));
      out += word;
    }
    out +=
        "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505"
        "203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized"
        "403 Forbidden404 Not Found500 Internal Server Error501 Not Implemented503 Service Unavailable"
        "Jan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMT"
        "chunked,text/html,image/png,image/jpg,image/gif,application/xml,application/xhtml+xml,text/plain,"
        "text/javascript,publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0.";
    return out;
  }();
  return text;
}

Bytef* bytes_of(std::string_view text) {
  return reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
}

std::unexpected<Error> broken(const std::string& what) {
  return fail(Code::kInvalid, "read SPDY: " + what);
}

Result<std::map<std::string, std::string>> parse_headers(std::string_view block) {
  const auto number = [&block]() -> Result<std::uint32_t> {
    if (block.size() < 4) return broken("headers end early");
    const std::uint32_t out = get32(block);
    block.remove_prefix(4);
    return out;
  };
  const auto text = [&]() -> Result<std::string> {
    const std::uint32_t size = TRY(number());
    if (size > block.size()) return broken("headers end early");
    std::string out(block.substr(0, size));
    block.remove_prefix(size);
    return out;
  };
  std::map<std::string, std::string> out;
  const std::uint32_t count = TRY(number());
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::string name = TRY(text());
    out[to_lower(name)] = TRY(text());
  }
  return out;
}

}  // namespace

struct SpdyReader::Impl {
  Impl() { ::inflateInit(&inflater); }
  ~Impl() { ::inflateEnd(&inflater); }

  // One block of the one compressed stream that all headers of a connection are.
  Result<std::string> unpack(std::string_view packed) {
    std::string out;
    inflater.next_in = bytes_of(packed);
    inflater.avail_in = static_cast<uInt>(packed.size());
    std::array<char, 4096> piece;
    while (true) {
      inflater.next_out = bytes_of({piece.data(), piece.size()});
      inflater.avail_out = piece.size();
      const int how = ::inflate(&inflater, Z_SYNC_FLUSH);
      if (how == Z_NEED_DICT) {
        const std::string& words = dictionary();
        if (::inflateSetDictionary(&inflater, bytes_of(words), static_cast<uInt>(words.size())) != Z_OK)
          return broken("headers have another dictionary");
        continue;
      }
      if (how != Z_OK && how != Z_BUF_ERROR) return broken("headers cannot be unpacked");
      out.append(piece.data(), piece.size() - inflater.avail_out);
      if (out.size() > kLongestHeaders) return broken("headers are longer than 64 KiB");
      if (inflater.avail_out != 0) return out;
    }
  }

  Result<SpdyFrame> control(std::uint16_t type, unsigned char flags, std::string_view body) {
    SpdyFrame out;
    const std::size_t least = type == kSynStreamType ? 10 : type == kGoAwayType ? 8 : 4;
    const bool known =
        type == kSynStreamType || type == kResetType || type == kPingType || type == kGoAwayType;
    if (known && body.size() < least) return broken("a frame ends early");
    out.last = (flags & 1) != 0;
    if (known) out.stream = get32(body) & (type == kPingType ? 0xffffffffu : 0x7fffffffu);
    switch (type) {
      case kSynStreamType:
        out.kind = SpdyFrame::Kind::kSynStream;
        out.headers = TRY(parse_headers(TRY(unpack(body.substr(10)))));
        break;
      case kResetType:
        out.kind = SpdyFrame::Kind::kReset;
        break;
      case kPingType:
        out.kind = SpdyFrame::Kind::kPing;
        break;
      case kGoAwayType:
        out.kind = SpdyFrame::Kind::kGoAway;
        break;
      case kSynReplyType:
      case 8:  // HEADERS: read, or the ones that follow could not be
        if (body.size() < 4) return broken("a frame ends early");
        TRY(unpack(body.substr(4)));
        break;
      default:
        break;
    }
    return out;
  }

  z_stream inflater{};
  std::string rest;
};

SpdyReader::SpdyReader() : impl_(std::make_unique<Impl>()) {}
SpdyReader::~SpdyReader() = default;

Result<std::vector<SpdyFrame>> SpdyReader::feed(std::string_view bytes) {
  std::string& rest = impl_->rest;
  rest += bytes;
  std::vector<SpdyFrame> out;
  std::size_t at = 0;
  while (rest.size() - at >= kHead) {
    const std::string_view head = std::string_view(rest).substr(at, kHead);
    const std::uint32_t first = get32(head), second = get32(head.substr(4));
    const std::size_t length = second & 0xffffff;
    if (length > kLongestFrame) return broken("a frame is longer than 1 MiB");
    if (rest.size() - at - kHead < length) break;
    const std::string_view body = std::string_view(rest).substr(at + kHead, length);
    const auto flags = static_cast<unsigned char>(second >> 24);
    if ((first & 0x80000000u) == 0) {
      SpdyFrame frame{.kind = SpdyFrame::Kind::kData, .stream = first, .last = (flags & 1) != 0};
      frame.data = body;
      out.push_back(std::move(frame));
    } else {
      if ((first >> 16 & 0x7fff) != 3) return broken("it is of another version than 3");
      out.push_back(TRY(impl_->control(static_cast<std::uint16_t>(first & 0xffff), flags, body)));
    }
    at += kHead + length;
  }
  rest.erase(0, at);
  return out;
}

struct SpdyWriter::Impl {
  Impl() {
    ::deflateInit(&deflater, Z_BEST_COMPRESSION);
    const std::string& words = dictionary();
    ::deflateSetDictionary(&deflater, bytes_of(words), static_cast<uInt>(words.size()));
  }
  ~Impl() { ::deflateEnd(&deflater); }

  std::string pack(const std::map<std::string, std::string>& headers) {
    std::string block;
    put32(block, static_cast<std::uint32_t>(headers.size()));
    for (const auto& [name, value] : headers) {
      for (const std::string* text : {&name, &value}) {
        put32(block, static_cast<std::uint32_t>(text->size()));
        block += *text;
      }
    }
    std::string out(::deflateBound(&deflater, static_cast<uLong>(block.size())) + 64, '\0');
    deflater.next_in = bytes_of(block);
    deflater.avail_in = static_cast<uInt>(block.size());
    deflater.next_out = bytes_of(out);
    deflater.avail_out = static_cast<uInt>(out.size());
    ::deflate(&deflater, Z_SYNC_FLUSH);
    out.resize(out.size() - deflater.avail_out);
    return out;
  }

  z_stream deflater{};
};

namespace {

std::string control_frame(std::uint16_t type, const std::string& body) {
  std::string out;
  put32(out, 0x80030000u | type);
  put32(out, static_cast<std::uint32_t>(body.size()));
  return out + body;
}

}  // namespace

SpdyWriter::SpdyWriter() : impl_(std::make_unique<Impl>()) {}
SpdyWriter::~SpdyWriter() = default;

std::string SpdyWriter::syn_stream(std::uint32_t stream, const std::map<std::string, std::string>& headers) {
  std::string body;
  put32(body, stream);
  put32(body, 0);
  body += std::string(2, '\0');
  return control_frame(kSynStreamType, body + impl_->pack(headers));
}

std::string SpdyWriter::syn_reply(std::uint32_t stream) {
  std::string body;
  put32(body, stream);
  return control_frame(kSynReplyType, body + impl_->pack({}));
}

std::string SpdyWriter::data(std::uint32_t stream, std::string_view bytes, bool last) {
  std::string out;
  put32(out, stream);
  put32(out, static_cast<std::uint32_t>(bytes.size()) | (last ? 0x01000000u : 0));
  return out.append(bytes);
}

std::string SpdyWriter::reset(std::uint32_t stream, std::uint32_t status) {
  std::string body;
  put32(body, stream);
  put32(body, status);
  return control_frame(kResetType, body);
}

std::string SpdyWriter::ping(std::uint32_t id) {
  std::string body;
  put32(body, id);
  return control_frame(kPingType, body);
}

}  // namespace gpuop::cluster
