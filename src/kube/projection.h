// Cutting objects down to the fields that a controller reads, and storing them in as little memory as they
// need.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "base/json.h"
#include "kube/compact.h"
#include "kube/resource.h"

namespace gpuop::kube {

class Projection {
 public:
  // `keep`: dotted paths beside the usual metadata; a path goes through lists ("spec.containers.resources").
  // "*" keeps everything but managedFields and the last-applied-configuration annotation.
  // A dot of a key is written "\\.". Single annotations ("metadata.annotations.example\\.com/a") are kept in
  // place of all.
  // "PATH!OTHER": PATH is kept of objects that have no OTHER ("spec.affinity!spec.nodeName").
  // `drop`: dotted paths that are left out all the same ("metadata.annotations").
  Projection(const Resource& type, const std::vector<std::string>& keep,
             const std::vector<std::string>& drop);

  std::shared_ptr<const Json> apply(Json object) const;
  Json cut_down(Json object) const;

 private:
  struct Node {
    bool whole = false;
    std::map<std::string, Node, std::less<>> children;
  };
  static void add(Node& root, std::string_view path);
  static Json cut(const Json& value, const Node& node);
  static void prune(Json& value, const Node& node);
  static bool has(const Json& value, const Node& node);

  std::string api_version_;
  std::string kind_;
  bool everything_ = false;
  Node keep_;
  Node drop_;
  struct Unless {
    Node other, drop;
  };
  std::vector<Unless> unless_;
};

// An object as a collection keeps it.
class Kept {
 public:
  Kept() = default;
  explicit Kept(std::shared_ptr<const Json> whole) : value_(std::move(whole)) {}
  explicit Kept(Compact small) : value_(std::move(small)) {}
  // nullptr for none. What is kept small is made anew each time.
  std::shared_ptr<const Json> get() const {
    if (const auto* whole = std::get_if<std::shared_ptr<const Json>>(&value_)) return *whole;
    return std::make_shared<const Json>(std::get<Compact>(value_).value());
  }

 private:
  std::variant<std::shared_ptr<const Json>, Compact> value_;
};

// The same value, in one block of memory. Copies of it (or of parts) are ordinary values.
std::shared_ptr<const Json> pack(const Json& value);

}  // namespace gpuop::kube
