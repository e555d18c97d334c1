#include "validate/sequence.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <set>
#include <utility>

#include "base/files.h"
#include "base/log.h"
#include "base/process.h"
#include "base/text.h"
#include "validate/gates.h"
#include "validate/validator.h"

namespace gpuop::validate {
namespace {

// For how long the end waits until what was told of a step is taken back.
constexpr Duration kLastWord = 5s;

// The container's environment with the step's own above it.
std::vector<std::string> environment_of(const Step& step) {
  const auto name_of = [](const std::string& entry) { return entry.substr(0, entry.find('=')); };
  std::set<std::string> own;
  for (const std::string& entry : step.env) own.insert(name_of(entry));
  std::vector<std::string> env = current_environment();
  std::erase_if(env, [&](const std::string& entry) { return own.contains(name_of(entry)); });
  env.insert(env.end(), step.env.begin(), step.env.end());
  return env;
}

// Components that passed in this pod.
class Record {
 public:
  explicit Record(const Sequence& sequence) : sequence_(sequence) {
    if (sequence.record.empty()) return;
    const auto text = read_file(sequence.record);
    if (!text) return;
    const auto lines = split(*text, '\n');
    if (lines.front() == sequence.pod) passed_.insert(lines.begin() + 1, lines.end());
  }
  bool passed(const std::string& component) const {
    return passed_.contains(component) && file_exists(sequence_.output_dir / (component + "-ready"));
  }
  Result<> add(const std::string& component) {
    passed_.insert(component);
    if (sequence_.record.empty()) return {};
    std::string text = sequence_.pod;
    for (const std::string& name : passed_) text += "\n" + name;
    TRY(write_file_atomic(sequence_.record, text));
    return {};
  }

 private:
  const Sequence& sequence_;
  std::set<std::string> passed_;
};

// The reading end of what a step's process says of itself.
class Reports {
 public:
  static constexpr int kNumber = 3;  // of the other end, in the process

  Result<> open(Loop& loop, Progress& progress) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return fail(errno_error("make a pipe", errno));
    read_ = Fd(ends[0]);
    write_ = Fd(ends[1]);
    handle_ = loop.on_readable(read_.get(), [this, &progress] { take(progress); });
    return {};
  }
  void pass_to(Command& command, SpawnOptions& streams) const {
    command.env.push_back(std::string(kReportFd) + "=" + std::to_string(kNumber));
    streams.pass_fds.emplace_back(write_.get(), kNumber);
  }
  void started() { write_ = Fd(); }

 private:
  void take(Progress& progress) {
    char text[4096];
    const auto got = ::read(read_.get(), text, sizeof text);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0) return handle_.reset();
    text_.append(text, static_cast<std::size_t>(got));
    for (auto end = text_.find('\n'); end != std::string::npos; end = text_.find('\n')) {
      const std::string line = text_.substr(0, end);
      text_.erase(0, end + 1);
      const auto space = line.find(' ');
      if (space != std::string::npos)
        progress.waits(line.substr(0, space) == "failing", std::string_view(line).substr(space + 1));
    }
  }

  Fd read_, write_;
  Handle handle_;
  std::string text_;
};

Result<int> run_step(Loop& loop, const Sequence& sequence, const Step& step) {
  Command command{sequence.validator, environment_of(step)};
  command.argv.insert(command.argv.end(), {"-c", step.component});
  if (!sequence.gate_owner.empty())
    command.env.push_back(std::string(kGateOwnerFile) + "=" + sequence.gate_owner.string());
  SpawnOptions streams;
  Reports reports;
  if (sequence.progress) {
    sequence.progress->step(step.component);
    TRY(reports.open(loop, *sequence.progress));
    reports.pass_to(command, streams);
  }
  streams.stdout_fd = 1;
  streams.stderr_fd = 2;
  streams.die_with_parent = true;
  std::optional<int> code;
  const auto child =
      TRY(Child::spawn(loop, command, streams, [&code](const ExitState& state) { code = state.code; }));
  reports.started();
  loop.run_until([&code] { return code.has_value(); }, std::chrono::hours(24 * 365 * 50));
  if (code) return *code;
  child->kill(SIGTERM);
  return fail(Code::kCancelled, "stopped while " + step.component + " was being validated");
}

bool has_workload(const Step& step) {
  return std::ranges::find(step.env, "WITH_WORKLOAD=false") == step.env.end();
}

// The step as it is run: what the toolkit's own container cannot show, the next step's pod does.
Step adapted(const Sequence& sequence, std::size_t at, bool toolkit_open) {
  Step step = sequence.steps[at];
  const Step* next = at + 1 < sequence.steps.size() ? &sequence.steps[at + 1] : nullptr;
  if (step.component == "toolkit" && sequence.before_driver && next && next->component == "cuda" &&
      has_workload(*next))
    step.env.push_back(std::string(kProvenLater) + "=true");
  if (step.component == "cuda" && toolkit_open) step.env.push_back(std::string(kProvesToolkit) + "=true");
  return step;
}

Result<int> run_steps(Loop& loop, const Sequence& sequence, const Gates& gates) {
  TRY(gates.take(loop));
  Record record(sequence);
  bool toolkit_open = false;
  for (std::size_t at = 0; at < sequence.steps.size(); ++at) {
    const Step step = adapted(sequence, at, toolkit_open);
    if (record.passed(step.component)) {
      log::info("passed before in this pod", {{"component", step.component}});
      continue;
    }
    if (const int code = TRY(run_step(loop, sequence, step)); code != 0) return code;
    const bool later = step.component == "toolkit" && step.env != sequence.steps[at].env &&
                       !file_exists(sequence.output_dir / "toolkit-ready");
    if (!later) TRY(record.add(step.component));
    if (std::exchange(toolkit_open, later)) TRY(record.add("toolkit"));
  }
  if (sequence.progress) {
    sequence.progress->passed();
    loop.run_until([&] { return sequence.progress->idle(); }, kLastWord);
  }
  return 0;
}

}  // namespace

Result<std::vector<Step>> parse_steps(std::span<const std::string> words) {
  const auto known = components();
  std::vector<Step> steps;
  for (const std::string& word : words) {
    if (const auto equals = word.find('='); equals != std::string::npos && equals > 0 && !steps.empty()) {
      steps.back().env.push_back(word);
      continue;
    }
    if (std::ranges::find(known, word) == known.end() || word == "metrics")
      return fail(Code::kInvalid, "read the validations: '" + word +
                                      "': not a component, nor NAME=value of one" +
                                      did_you_mean(word, known));
    steps.push_back({word, {}});
  }
  if (steps.empty()) return fail(Code::kInvalid, "read the validations: none is named");
  return steps;
}

Result<int> run_sequence(Loop& loop, const Sequence& sequence) {
  const Gates gates(sequence.output_dir, sequence.gate_owner, sequence.pod);
  const auto code = run_steps(loop, sequence, gates);
  if (!code && code.error().code() == Code::kCancelled) TRY(gates.release());
  return code;
}

}  // namespace gpuop::validate
