// Reading request bodies into the stored form of built-in types: unknown fields named and dropped, nulls and
// left-out zeros dropped, quantities and times in canonical text; and the same from protobuf (§4, Appendix
// A).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "cluster/apiserver/status.h"
#include "cluster/apiserver/types.h"

namespace gpuop::cluster::api {

struct ShapeReport {
  std::vector<std::string> unknown;  // paths: "spec.containers[0].foo"
  std::string fault;                 // the first wrong type, as the real decoder words it; empty: none
};

// The stored form of `value` read as `message`.
Json normalize(const Json& value, const Message& message, ShapeReport& report);
// For types without a table: drops nulls in maps, reads metadata as ObjectMeta.
Json normalize_open(const Json& value, ShapeReport& report);

// A protobuf request body: magic, envelope, object. Answers the object with apiVersion and kind.
// 400 when undecodable, 415 when the tables lack its kind or a field's message.
struct ProtobufBody {
  std::string api_version, kind;
  Json value;
};
Answer<ProtobufBody> decode_protobuf(std::string_view body, std::string_view package_hint,
                                     const Message* expected);
inline constexpr std::string_view kProtobufMagic("k8s\0", 4);

// "core" for "v1", "apps" for "apps/v1", "rbac" for "rbac.authorization.k8s.io/v1".
std::string package_of(std::string_view api_version);

}  // namespace gpuop::cluster::api
