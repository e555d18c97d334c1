#include "validate/gates.h"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

#include "base/files.h"
#include "base/inotify.h"
#include "base/log.h"
#include "base/text.h"
#include "validate/validator.h"

namespace gpuop::validate {
namespace {

constexpr std::size_t kFormer = 16;

void add_former(GateOwner& owner, const std::string& pod) {
  if (pod.empty()) return;
  std::erase(owner.former, pod);
  owner.former.push_back(pod);
  if (owner.former.size() > kFormer) owner.former.erase(owner.former.begin());
}

bool lost(const GateOwner& now, const std::string& pod) {
  return std::ranges::find(now.former, pod) != now.former.end();
}

// Held until it goes. Nobody holds it for longer than a few files take.
Result<Fd> lock(const fs::path& folder) {
  Fd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd) return fail(errno_error("open '" + folder.string() + "'", errno));
  while (::flock(fd.get(), LOCK_EX) != 0) {
    if (errno != EINTR) return fail(errno_error("lock '" + folder.string() + "'", errno));
  }
  return fd;
}

}  // namespace

GateOwner parse_gate_owner(std::string_view text) {
  GateOwner owner;
  const auto lines = split(text, '\n');
  owner.pod = lines.front();
  for (std::size_t i = 1; i < lines.size(); ++i)
    if (!lines[i].empty()) owner.former.push_back(lines[i]);
  return owner;
}

std::string format_gate_owner(const GateOwner& owner) {
  std::string text = owner.pod;
  for (const std::string& pod : owner.former) text += "\n" + pod;
  return text;
}

GateDecision claim_gates(GateOwner now, const std::string& pod) {
  if (now.pod == pod) return {std::move(now), false, true};
  if (lost(now, pod) && !now.pod.empty()) return {std::move(now), false, false};
  std::erase(now.former, pod);
  add_former(now, now.pod);
  now.pod = pod;
  return {std::move(now), true, true};
}

GateDecision release_gates(GateOwner now, const std::string& pod) {
  const bool remove = now.pod == pod || now.pod.empty();
  if (remove) now.pod.clear();
  add_former(now, pod);
  return {std::move(now), remove, false};
}

bool holds_gates(const GateOwner& now, const std::string& pod) {
  return now.pod.empty() ? !lost(now, pod) : now.pod == pod;
}

Gates::Gates(fs::path folder, fs::path owner_file, std::string pod)
    : folder_(std::move(folder)), owner_file_(std::move(owner_file)), pod_(std::move(pod)) {}

Result<GateOwner> Gates::read() const {
  const auto text = read_file(owner_file_);
  if (!text && text.error().code() != Code::kNotFound) return fail(text.error());
  return parse_gate_owner(text ? *text : "");
}

// The gates go first: after a crash in between they are still another's, and go again.
Result<> Gates::act(const GateOwner& before, const GateDecision& decision) const {
  if (decision.remove) {
    for (const std::string& gate : gates()) TRY(remove_file(folder_ / gate));
  }
  if (decision.owner != before) TRY(write_file_atomic(owner_file_, format_gate_owner(decision.owner)));
  return {};
}

Result<> Gates::take(Loop& loop) const {
  if (owner_file_.empty()) return {};
  bool told = false;
  std::optional<Result<>> end;
  const auto look = [&]() -> Result<bool> {
    const Fd held = TRY(lock(folder_));
    const GateOwner now = TRY(read());
    const GateDecision decision = claim_gates(now, pod_);
    TRY(act(now, decision));
    if (!decision.mine && !std::exchange(told, true))
      log::info("another validator has this node's gates: waiting for its end", {{"pod", now.pod}});
    return decision.mine;
  };
  if (TRY(look())) return {};
  const auto watch = TRY(DirWatch::create(loop, folder_, [&] {
    const auto mine = look();
    if (!mine) end = fail(mine.error());
    if (mine && *mine) end = Result<>{};
  }));
  loop.run_until([&end] { return end.has_value(); }, std::chrono::hours(24 * 365 * 50));
  if (!end) return fail(Code::kCancelled, "stopped while another validator has the gates of this node");
  return *end;
}

Result<> Gates::release() const {
  if (owner_file_.empty()) return {};
  auto locked = lock(folder_);
  if (!locked && locked.error().code() == Code::kNotFound) return {};  // and no gates either
  const Fd held = TRY(std::move(locked));
  const GateOwner now = TRY(read());
  return act(now, release_gates(now, pod_));
}

Result<> Gates::change(const std::function<Result<>()>& change) const {
  if (owner_file_.empty()) return change();
  const Fd held = TRY(lock(folder_));
  const GateOwner now = TRY(read());
  if (holds_gates(now, pod_)) return change();
  return fail(Code::kConflict, "change a gate in '" + folder_.string() + "': " +
                                   (now.pod.empty() ? "this validator was told to end"
                                                    : "the validator " + now.pod + " has them"));
}

}  // namespace gpuop::validate
