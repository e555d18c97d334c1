// Protobuf request bodies of any shape: read or refused, never more.
#include "base/json.h"
#include "cluster/apiserver/shape.h"

using namespace gpuop;
using namespace gpuop::cluster::api;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string body(kProtobufMagic);
  body.append(reinterpret_cast<const char*>(data), size);
  static const Message* pod = find_message("core", "Pod");
  static const std::string envelope = [] {
    // Unknown{typeMeta{apiVersion "v1", kind "Pod"}, raw …}
    return std::string("\x0a\x09\x0a\x02v1\x12\x03Pod", 11);
  }();
  for (const std::string& text :
       {body, std::string(kProtobufMagic) + envelope + body.substr(kProtobufMagic.size())}) {
    Answer<ProtobufBody> read = decode_protobuf(text, "core", pod);
    if (!read) continue;
    // What was read is JSON that can be written and normalized.
    ShapeReport report;
    Json object = normalize(read->value, *pod, report);
    if (!parse_json(to_text(object), 200)) __builtin_trap();
  }
  return 0;
}
