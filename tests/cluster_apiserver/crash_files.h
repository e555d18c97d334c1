// Files in memory that lose at a crash what was not synced: each sector of 512 bytes that was written since
// the last sync of its file is kept or dropped by itself, one of them is torn in the middle, and of the names
// made, renamed and removed since the last sync of the folder only the first few are kept (file systems keep
// names in order). All of it follows from a seed.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cluster/apiserver/file_layer.h"

namespace gpuop::cluster {

class CrashFiles : public FileLayer, public std::enable_shared_from_this<CrashFiles> {
 public:
  static constexpr std::size_t kSector = 512;

  struct Node {
    std::string now;                      // as the program reads it
    std::string kept;                     // as it was synced last
    std::map<std::size_t, bool> written;  // sectors since
  };
  using Names = std::map<std::string, std::shared_ptr<Node>>;

  // Asked before each operation that changes something; an answer is the fault that the operation meets.
  std::function<const Error*(std::string_view operation)> fault;
  std::size_t operations = 0;
  bool lies = false;  // sync does nothing and says that all is well

  Result<std::unique_ptr<StoreFile>> open(const std::string& name) override {
    auto found = names_.find(name);
    if (found == names_.end())
      return fail(Code::kNotFound, "open '" + path(name) + "': No such file or directory");
    return std::unique_ptr<StoreFile>(new File(shared_from_this(), found->second));
  }
  Result<std::unique_ptr<StoreFile>> create(const std::string& name) override {
    TRY(act("create"));
    if (names_.contains(name)) return fail(Code::kExists, "make '" + path(name) + "': File exists");
    names_[name] = std::make_shared<Node>();
    remember();
    return open(name);
  }
  Result<> rename(const std::string& from, const std::string& to) override {
    TRY(act("rename"));
    auto found = names_.find(from);
    if (found == names_.end())
      return fail(Code::kNotFound, "rename '" + path(from) + "': No such file or directory");
    auto node = found->second;
    names_.erase(found);
    names_[to] = node;
    remember();
    return {};
  }
  Result<> remove(const std::string& name) override {
    TRY(act("remove"));
    if (names_.erase(name) > 0) remember();
    return {};
  }
  Result<std::vector<std::string>> list() override {
    std::vector<std::string> all;
    for (const auto& [name, node] : names_) all.push_back(name);
    return all;
  }
  Result<> sync_dir() override {
    TRY(act("sync_dir"));
    kept_names_ = names_;
    steps_.clear();
    return {};
  }
  std::string path(const std::string& name) const override { return "/data/" + name; }

  // What a machine that stopped now would find.
  std::shared_ptr<CrashFiles> after_crash(std::uint64_t seed) const {
    std::mt19937_64 random(seed);
    auto next = std::make_shared<CrashFiles>();
    next->lies = lies;
    std::size_t steps = random() % (steps_.size() + 1);
    const Names& names = steps == 0 ? kept_names_ : steps_[steps - 1];
    std::map<const Node*, std::shared_ptr<Node>> made;
    for (const auto& [name, node] : names) {
      auto& copy = made[node.get()];
      if (!copy) copy = survivor(*node, random);
      next->names_[name] = copy;
    }
    next->kept_names_ = next->names_;
    return next;
  }

  // The bytes themselves, for tests that damage them.
  std::string& bytes(const std::string& name) {
    Node& node = *names_.at(name);
    return node.now;
  }
  std::uint64_t total_bytes() const {
    std::uint64_t sum = 0;
    for (const auto& [name, node] : names_) sum += node->now.size();
    return sum;
  }

 private:
  class File : public StoreFile {
   public:
    File(std::shared_ptr<CrashFiles> in, std::shared_ptr<Node> node)
        : in_(std::move(in)), node_(std::move(node)) {}
    Result<std::string> read(std::uint64_t offset, std::size_t size) override {
      return offset >= node_->now.size() ? std::string() : node_->now.substr(offset, size);
    }
    Result<> write(std::uint64_t offset, std::string_view bytes) override {
      Result<> may = in_->act("write");
      // A write that fails may have got some way.
      if (!may) bytes = bytes.substr(0, bytes.size() / 2);
      std::string& now = node_->now;
      if (now.size() < offset + bytes.size()) now.resize(offset + bytes.size());
      now.replace(offset, bytes.size(), bytes);
      for (std::size_t at = offset / kSector; !bytes.empty() && at <= (offset + bytes.size() - 1) / kSector;
           ++at)
        node_->written[at] = true;
      return may;
    }
    Result<> sync() override {
      TRY(in_->act("sync"));
      if (in_->lies) return {};
      node_->kept = node_->now;
      node_->written.clear();
      return {};
    }
    Result<> truncate(std::uint64_t size) override {
      TRY(in_->act("truncate"));
      for (std::size_t at = size / kSector; at <= node_->now.size() / kSector; ++at)
        node_->written[at] = true;
      node_->now.resize(size);
      return {};
    }
    Result<std::uint64_t> size() override { return node_->now.size(); }

   private:
    std::shared_ptr<CrashFiles> in_;
    std::shared_ptr<Node> node_;
  };

  static std::shared_ptr<Node> survivor(const Node& node, std::mt19937_64& random) {
    auto out = std::make_shared<Node>();
    std::string bytes = node.kept;
    std::size_t size = random() % 2 == 0 ? node.now.size() : node.kept.size();
    bytes.resize(size);
    std::size_t torn = node.written.empty() ? 0 : random() % node.written.size();
    std::size_t index = 0;
    for (const auto& [sector, written] : node.written) {
      std::size_t length = kSector;
      if (index++ == torn) {
        length = random() % kSector;
      } else if (random() % 2 == 0) {
        continue;
      }
      std::size_t from = sector * kSector;
      if (from >= size || from >= node.now.size()) continue;
      length = std::min({length, size - from, node.now.size() - from});
      bytes.replace(from, length, node.now, from, length);
    }
    out->now = out->kept = std::move(bytes);
    return out;
  }

  Result<> act(std::string_view operation) {
    ++operations;
    if (const Error* why = fault ? fault(operation) : nullptr) return fail(*why);
    return {};
  }
  void remember() { steps_.push_back(names_); }

  Names names_, kept_names_;
  std::vector<Names> steps_;  // the names after each change since the folder was synced
};

}  // namespace gpuop::cluster
