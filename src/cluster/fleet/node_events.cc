#include "cluster/fleet/node_events.h"

#include <algorithm>
#include <array>

#include "base/text.h"

namespace gpuop::cluster {
namespace {

using Kind = NodeEvent::Kind;

struct Form {
  const char* name;
  Kind kind;
  const char* arguments;
  const char* summary;
};

constexpr std::array<Form, 12> kForms{{
    {"reboot", Kind::kReboot, "", "new boot id; /run and /dev empty, every process gone, then it boots"},
    {"kernel-upgrade", Kind::kKernelUpgrade, "VERSION",
     "a reboot into another kernel, whose driver modules are not built yet"},
    {"kubelet-restart", Kind::kKubeletRestart, "", "the kubelet ends and comes back; containers run on"},
    {"runtime-restart", Kind::kRuntimeRestart, "[--kill-shims]",
     "the container runtime does; with --kill-shims every container dies"},
    {"lose", Kind::kLose, "[--network]", "switched off; with --network cut off while its containers run on"},
    {"return", Kind::kReturn, "", "what lose did is undone"},
    {"fill-run", Kind::kFillRun, "[--leave BYTES]", "/run is full"},
    {"free-run", Kind::kFreeRun, "", "/run has room again"},
    {"image-pull", Kind::kImagePull, "[--delay TIME] [--fail WHY] [IMAGE]",
     "pulls of IMAGE ('*' in it stands for anything; default: all) are slow or fail; without options as "
     "usual"},
    {"remove-gpu", Kind::kRemoveGpu, "INDEX", "the GPU is pulled out of the running node"},
    {"insert-gpu", Kind::kInsertGpu, "INDEX", "it is put back"},
    {"clock-jump", Kind::kClockJump, "TIME", "refused: nodes share the machine's wall clock"},
}};

const Form* form_of(std::string_view name) {
  const auto found =
      std::ranges::find(kForms, name, [](const Form& form) { return std::string_view(form.name); });
  return found == kForms.end() ? nullptr : found;
}
const Form& form_of(Kind kind) {
  return *std::ranges::find(kForms, kind, &Form::kind);
}

std::vector<std::string> names() {
  std::vector<std::string> out;
  for (const Form& form : kForms) out.emplace_back(form.name);
  return out;
}

std::string usage_of(const Form& form) {
  return std::string(form.name) + (*form.arguments != '\0' ? " " : "") + form.arguments;
}

// What follows the event's name, taken apart: options with a value or without, and the rest.
class Words {
 public:
  Words(const Form& form, std::vector<std::string> words) : form_(form), words_(std::move(words)) {}

  bool flag(std::string_view option) {
    const auto found = std::ranges::find(words_, option);
    known_.emplace_back(option);
    if (found == words_.end()) return false;
    words_.erase(found);
    return true;
  }
  Result<std::string> value(std::string_view option, std::string fallback) {
    known_.emplace_back(option);
    for (auto at = words_.begin(); at != words_.end(); ++at) {
      if (at->starts_with(std::string(option) + "=")) {
        std::string out = at->substr(option.size() + 1);
        words_.erase(at);
        return out;
      }
      if (*at != option) continue;
      if (at + 1 == words_.end()) return wrong(std::string(option) + ": needs a value");
      std::string out = *(at + 1);
      words_.erase(at, at + 2);
      return out;
    }
    return fallback;
  }
  // The words that are no options: at least `least`, at most `most`.
  Result<std::vector<std::string>> rest(std::size_t least, std::size_t most) {
    for (const std::string& word : words_) {
      if (word.starts_with("--")) return wrong("'" + word + "': unknown option" + did_you_mean(word, known_));
    }
    if (words_.size() < least || words_.size() > most) return wrong("write " + usage_of(form_));
    return words_;
  }
  std::unexpected<Error> wrong(const std::string& why) const {
    return fail(Code::kInvalid, "node event '" + std::string(form_.name) + "': " + why);
  }

 private:
  const Form& form_;
  std::vector<std::string> words_;
  std::vector<std::string> known_;
};

Result<std::uint64_t> number(const Words& words, const std::string& text, const std::string& what) {
  const auto value = parse_int(text);
  if (value && *value >= 0) return static_cast<std::uint64_t>(*value);
  return words.wrong(what + ": must be a whole number; got '" + text + "'");
}

Result<> read_kernel(Words& words, NodeEvent& event) {
  event.text = TRY(words.rest(1, 1))[0];
  const bool plain = std::ranges::all_of(event.text, [](unsigned char c) {
    return std::isalnum(c) != 0 ||
           std::string_view(".-_+~").find(static_cast<char>(c)) != std::string_view::npos;
  });
  if (plain && event.text.size() <= 64 && std::isdigit(static_cast<unsigned char>(event.text[0])) != 0)
    return {};
  return words.wrong("must be a kernel release such as 6.8.0-61-generic; got '" + event.text + "'");
}

Result<> read_pull(Words& words, NodeEvent& event) {
  const std::string delay = TRY(words.value("--delay", "0"));
  const auto span = parse_go_duration(delay);
  if (!span || *span < Duration::zero())
    return words.wrong("--delay: must be a time such as 5s; got '" + delay + "'");
  event.delay = *span;
  event.reason = TRY(words.value("--fail", ""));
  const std::vector<std::string> images = TRY(words.rest(0, 1));
  event.text = images.empty() ? "*" : images[0];
  return {};
}

Result<> read_arguments(Words& words, NodeEvent& event) {
  switch (event.kind) {
    case Kind::kKernelUpgrade:
      return read_kernel(words, event);
    case Kind::kImagePull:
      return read_pull(words, event);
    case Kind::kRuntimeRestart:
      event.flag = words.flag("--kill-shims");
      break;
    case Kind::kLose:
      event.flag = words.flag("--network");
      break;
    case Kind::kFillRun:
      event.number = TRY(number(words, TRY(words.value("--leave", "0")), "--leave"));
      break;
    case Kind::kRemoveGpu:
    case Kind::kInsertGpu:
      event.number = TRY(number(words, TRY(words.rest(1, 1))[0], "INDEX"));
      return {};
    case Kind::kClockJump:
      return fail(
          Code::kUnsupported,
          "node event 'clock-jump': refused: all nodes share this machine's wall clock, and Linux's time "
          "namespaces shift only the clocks that count from boot; set the clock of a virtual machine, or "
          "test time-outs on a hollow fleet, whose clock is virtual");
    default:
      break;
  }
  TRY(words.rest(0, 0));
  return {};
}

}  // namespace

Result<NodeEvent> parse_node_event(const std::vector<std::string>& given) {
  if (given.empty()) return fail(Code::kInvalid, "node event: none given; there are " + join(names(), ", "));
  const Form* form = form_of(given[0]);
  if (form == nullptr) {
    return fail(Code::kInvalid, "node event '" + given[0] + "': no such event; there are " +
                                    join(names(), ", ") + did_you_mean(given[0], names()));
  }
  NodeEvent event;
  event.kind = form->kind;
  Words words(*form, {given.begin() + 1, given.end()});
  TRY(read_arguments(words, event));
  return event;
}

std::string node_event_help() {
  std::string out;
  for (const Form& form : kForms) {
    std::string head = "  " + usage_of(form);
    out += head + (head.size() < 32 ? std::string(33 - head.size(), ' ') : "\n" + std::string(33, ' ')) +
           form.summary + "\n";
  }
  return out;
}

Json to_json(const NodeEvent& event) {
  return JsonObject{{"event", form_of(event.kind).name},
                    {"text", event.text},
                    {"reason", event.reason},
                    {"flag", event.flag},
                    {"number", event.number},
                    {"delay", event.delay.count()}};
}

Result<NodeEvent> node_event_from_json(const Json& json) {
  const Form* form = form_of(get_string(json, {"event"}));
  if (form == nullptr) return fail(Code::kInvalid, "node event: no such event");
  return NodeEvent{form->kind,
                   str(get_string(json, {"text"})),
                   str(get_string(json, {"reason"})),
                   get_bool(json, {"flag"}),
                   static_cast<std::uint64_t>(get_int(json, {"number"})),
                   Duration(get_int(json, {"delay"}))};
}

}  // namespace gpuop::cluster
