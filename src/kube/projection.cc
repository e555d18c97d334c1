#include "kube/projection.h"

#include <algorithm>
#include <boost/json/memory_resource.hpp>
#include <cstddef>
#include <cstring>
#include <new>
#include <utility>

#include "base/text.h"

namespace gpuop::kube {
namespace {

constexpr std::string_view kLastApplied = "kubectl.kubernetes.io/last-applied-configuration";
constexpr const char* kUsualMetadata[] = {"metadata.name",
                                          "metadata.namespace",
                                          "metadata.uid",
                                          "metadata.labels",
                                          "metadata.annotations",
                                          "metadata.ownerReferences",
                                          "metadata.generation",
                                          "metadata.finalizers",
                                          "metadata.resourceVersion",
                                          "metadata.deletionTimestamp",
                                          "metadata.creationTimestamp"};

constexpr std::size_t round_up(std::size_t size, std::size_t align) {
  return (size + align - 1) & ~(align - 1);
}

// Counts what a value needs when it is stored back to back: a scratch block that is used again and again.
class Measure final : public boost::json::memory_resource {
 public:
  std::size_t used() const { return used_; }
  void reset() {
    used_ = 0;
    for (void* extra : extras_) ::operator delete(extra);
    extras_.clear();
  }
  ~Measure() override { reset(); }

 private:
  void* do_allocate(std::size_t size, std::size_t align) override {
    const std::size_t at = round_up(used_, align);
    used_ = at + size;
    if (used_ <= sizeof scratch_) return scratch_ + at;
    extras_.push_back(::operator new(size));
    return extras_.back();
  }
  void do_deallocate(void*, std::size_t, std::size_t) override {}
  bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }

  std::size_t used_ = 0;
  std::vector<void*> extras_;
  alignas(std::max_align_t) std::byte scratch_[32u << 10];
};

// One block for one object. Once it is sealed, whatever a copy of the object asks for comes from the heap as
// usual: Boost.JSON's copies keep their source's memory resource.
class Block final : public boost::json::memory_resource {
 public:
  Block(std::size_t size, Block*& self) : start_(static_cast<std::byte*>(::operator new(size))), size_(size) {
    self = this;
  }
  ~Block() override { ::operator delete(start_); }
  void seal() { used_ = size_; }

 private:
  void* do_allocate(std::size_t size, std::size_t align) override {
    const std::size_t at = round_up(used_, align);
    if (at + size > size_) return ::operator new(size);
    used_ = at + size;
    return start_ + at;
  }
  void do_deallocate(void* pointer, std::size_t, std::size_t) override {
    const auto* byte = static_cast<std::byte*>(pointer);
    if (byte >= start_ && byte < start_ + size_) return;
    ::operator delete(pointer);
  }
  bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }

  std::byte* start_;
  std::size_t size_;
  std::size_t used_ = 0;
};

}  // namespace

std::shared_ptr<const Json> pack(const Json& value) {
  static thread_local Measure measure;
  measure.reset();
  {
    const Json trial(value, &measure);
  }
  Block* block = nullptr;
  const auto storage =
      boost::json::make_shared_resource<Block>(std::max<std::size_t>(measure.used(), 1), block);
  auto out = std::make_shared<const Json>(value, storage);
  block->seal();
  return out;
}

Projection::Projection(const Resource& type, const std::vector<std::string>& keep,
                       const std::vector<std::string>& drop)
    : api_version_(type.api_version()), kind_(type.kind) {
  constexpr std::string_view kAnnotations = "metadata.annotations";
  const bool some = std::ranges::any_of(
      keep, [&](const std::string& path) { return path.starts_with(std::string(kAnnotations) + "."); });
  for (const char* path : kUsualMetadata)
    if (!some || path != kAnnotations) add(keep_, path);
  for (const std::string& path : keep) {
    if (path == "*") everything_ = true;
    const auto other = path.find('!');
    add(keep_, std::string_view(path).substr(0, other));
    if (other == std::string::npos) continue;
    Unless& unless = unless_.emplace_back();
    add(unless.other, std::string_view(path).substr(other + 1));
    add(unless.drop, std::string_view(path).substr(0, other));
  }
  for (const std::string& path : drop) add(drop_, path);
}

void Projection::add(Node& root, std::string_view path) {
  Node* at = &root;
  std::string step;
  for (std::size_t i = 0; i <= path.size(); ++i) {
    if (i == path.size() || path[i] == '.') {
      at = &at->children[std::exchange(step, {})];
    } else {
      if (path[i] == '\\' && i + 1 < path.size()) ++i;
      step += path[i];
    }
  }
  at->whole = true;
}

Json Projection::cut(const Json& value, const Node& node) {
  if (node.whole) return value;
  if (value.is_array()) {
    JsonArray out(value.storage());
    out.reserve(value.get_array().size());
    for (const Json& item : value.get_array()) out.push_back(cut(item, node));
    return out;
  }
  JsonObject out(value.storage());
  if (value.is_object()) {
    for (const auto& [key, item] : value.get_object()) {
      const auto child = node.children.find(std::string_view(key));
      if (child != node.children.end()) out.emplace(key, cut(item, child->second));
    }
  }
  return out;
}

void Projection::prune(Json& value, const Node& node) {
  if (value.is_array()) {
    for (Json& item : value.get_array()) prune(item, node);
    return;
  }
  for (const auto& [key, child] : node.children) {
    if (child.whole) {
      remove(value, {key});
    } else if (Json* inner = find_mutable(value, {key})) {
      prune(*inner, child);
    }
  }
}

bool Projection::has(const Json& value, const Node& node) {
  if (node.whole) return true;
  return std::ranges::any_of(node.children, [&value](const auto& child) {
    const Json* inner = find(value, {child.first});
    return inner != nullptr && has(*inner, child.second);
  });
}

std::shared_ptr<const Json> Projection::apply(Json object) const {
  return pack(cut_down(std::move(object)));
}

Json Projection::cut_down(Json object) const {
  if (Json* annotations = find_mutable(object, {"metadata", "annotations"}))
    remove(*annotations, {kLastApplied});
  Json kept = everything_ ? std::move(object) : cut(object, keep_);
  remove(kept, {"metadata", "managedFields"});
  prune(kept, drop_);
  for (const Unless& each : unless_)
    if (has(kept, each.other)) prune(kept, each.drop);
  // Servers may leave these out of the items of a list.
  if (get_string(kept, {"apiVersion"}).empty()) set(kept, {"apiVersion"}, Json(api_version_));
  if (get_string(kept, {"kind"}).empty()) set(kept, {"kind"}, Json(kind_));
  return kept;
}

}  // namespace gpuop::kube
