// Whose the gates of a node are. Two validators can be on a node for a moment: one that ends, and one of
// another DaemonSet that starts (a policy took another's place). The one that ends removes its gates, and
// must not take those along that the other has just written: nobody writes them again. So a validator takes
// the gates over before it writes any, what another left goes then, and only who has them changes them.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/loop.h"
#include "base/result.h"

namespace gpuop::validate {

struct GateOwner {
  std::string pod;  // UID; empty: nobody's
  // UIDs of pods that had them, or were told to end: the newest last, a few.
  std::vector<std::string> former;
  bool operator==(const GateOwner&) const = default;
};
// The owner's line, and one for each of the others. Pure.
GateOwner parse_gate_owner(std::string_view text);
std::string format_gate_owner(const GateOwner& owner);

struct GateDecision {
  GateOwner owner;      // from now on
  bool remove = false;  // the gates that are there
  bool mine = false;    // the pod may write gates
  bool operator==(const GateDecision&) const = default;
};
// A validator starts. One that lost them takes them only where nobody has them. Pure.
GateDecision claim_gates(GateOwner now, const std::string& pod);
// A validator ends. Pure.
GateDecision release_gates(GateOwner now, const std::string& pod);
// Whether `pod` may change a gate now. Where nobody has them (somebody emptied the folder), it may unless it
// lost them before. Pure.
bool holds_gates(const GateOwner& now, const std::string& pod);

// The environment of a step's process names the owner file by it; the pod is POD_UID.
inline constexpr const char* kGateOwnerFile = "VALIDATION_GATE_OWNER";

// The same on a node's disk. All that is done is done under a lock of the gates' folder, which ends with its
// process.
class Gates {
 public:
  // `owner_file` within `folder`; empty: the gates are everybody's, as upstream's are.
  Gates(std::filesystem::path folder, std::filesystem::path owner_file, std::string pod);

  // Takes them, and waits where another validator that came later has them until that one ends. kCancelled:
  // the loop was stopped meanwhile.
  Result<> take(Loop& loop) const;
  // Removes them if they are ours.
  Result<> release() const;
  // Runs `change` if they are ours. kConflict: another validator has them.
  Result<> change(const std::function<Result<>()>& change) const;

 private:
  Result<GateOwner> read() const;
  Result<> act(const GateOwner& before, const GateDecision& decision) const;

  std::filesystem::path folder_, owner_file_;
  std::string pod_;
};

}  // namespace gpuop::validate
