#include "operator/label_turns.h"

namespace gpuop::op {

bool LabelTurns::seen(const std::string& node, std::int64_t version, Duration now) {
  bool turn = false;
  if (const auto found = written_.find(node); found != written_.end() && version >= found->second) {
    written_.erase(found);
    turn = true;
  }
  if (const auto found = unsure_.find(node); found != unsure_.end()) {
    turn = turn || now < found->second;
    if (now >= found->second) unsure_.erase(found);
  }
  if (turn) add(node);
  return turn;
}

bool LabelTurns::take(const std::string& node, std::int64_t version) {
  if (const auto found = written_.find(node); found != written_.end() && version < found->second)
    return false;
  return due_.erase(node) > 0;
}

void LabelTurns::written(const std::string& node, std::int64_t version, std::int64_t known) {
  if (version > known) written_[node] = version;
}

void LabelTurns::failed(const std::string& node, bool unsure, Duration now) {
  add(node);
  if (unsure) unsure_[node] = now + kUnsure;
}

void LabelTurns::forget(const std::string& node) {
  due_.erase(node);
  written_.erase(node);
  unsure_.erase(node);
}

}  // namespace gpuop::op
