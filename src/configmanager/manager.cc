#include "configmanager/manager.h"

#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <optional>

#include "base/files.h"
#include "base/inotify.h"
#include "base/log.h"
#include "base/text.h"
#include "kube/informer.h"
#include "kube/object.h"

namespace gpuop::configmanager {
namespace {

constexpr const char* kNothing = "/dev/null";

// Files of the folder; a ConfigMap volume's own "..data" and its folders are not among them.
Result<std::vector<std::string>> list_candidates(const fs::path& dir) {
  std::vector<std::string> out;
  for (std::string& name : TRY_IN(list_dir(dir), "list configuration files")) {
    std::error_code ignored;
    if (!name.starts_with("..") && !fs::is_directory(dir / name, ignored)) out.push_back(std::move(name));
  }
  return out;
}

}  // namespace

Result<> validate(const ManagerOptions& options) {
  for (const auto& [name, value] : {std::pair<const char*, std::string>("node-name", options.node_name),
                                    {"node-label", options.node_label},
                                    {"config-file-srcdir", options.source_dir.string()},
                                    {"config-file-dst", options.destination.string()}}) {
    if (value.empty())
      return fail(Code::kInvalid, "invalid " + std::string(name) + ": must not be empty string");
  }
  return {};
}

std::vector<Process> list_processes(const fs::path& proc) {
  std::vector<Process> out;
  auto names = list_dir(proc);
  if (!names) return out;
  for (const std::string& name : *names) {
    auto pid = parse_int(name);
    if (!pid) continue;
    auto line = read_file(proc / name / "cmdline");
    if (!line || line->empty()) continue;
    Process process;
    process.pid = static_cast<int>(*pid);
    process.argv0 = line->substr(0, line->find('\0'));
    std::error_code ignored;
    process.exe = fs::read_symlink(proc / name / "exe", ignored).string();
    out.push_back(std::move(process));
  }
  std::ranges::sort(out, {}, &Process::pid);
  return out;
}

struct Manager::Impl {
  Impl(Loop& l, kube::Client& c, ManagerOptions o, std::function<void(Result<>)> e)
      : loop(l), client(c), options(std::move(o)), end(std::move(e)) {}

  void start() {
    kube::InformerOptions wanted;
    wanted.field_selector = "metadata.name=" + options.node_name;
    node = std::make_unique<kube::Informer>(client, kube::kNodes, std::move(wanted));
    node->on_change([this](const auto&, const auto& now) {
      label = now ? str(kube::label(*now, options.node_label)) : std::string();
      if (node->synced()) evaluate();
    });
    node->on_synced([this] { first(); });
    node->start();
  }

  void first() {
    evaluate();
    if (ended || options.oneshot || !options.watch_content) return;
    auto watch = DirWatch::create(loop, options.source_dir, [this] { evaluate(); });
    if (!watch) return stop(fail(std::move(watch).error()));
    content_watch = std::move(*watch);
  }

  void evaluate() {
    if (ended) return;
    auto changed = apply();
    if (!changed) return stop(fail(std::move(changed).error()));
    if (*changed && options.send_signal) signal();
    if (options.oneshot) stop({});
  }

  // Answers whether whoever reads the configuration should read it again.
  Result<bool> apply() {
    bool unknown_label = false;
    SelectFacts facts{TRY(list_candidates(options.source_dir)), label};
    auto selected = select_config(facts, options.default_config, options.fallbacks, &unknown_label);
    if (!selected) {
      // A mistyped label is no reason to take a working configuration away.
      if (!unknown_label || options.oneshot || !applied) return fail(std::move(selected).error());
      if (refused != label) log::error(selected.error().text() + "; keeping '" + *applied + "'");
      refused = label;
      return content_changed();
    }
    refused.clear();
    fs::path target = selected->empty() ? fs::path(kNothing) : options.source_dir / *selected;
    std::error_code missing;
    fs::path before = fs::canonical(options.destination, missing), after = fs::canonical(target, missing);
    bool first_time = !applied;
    applied = *selected;
    if (before == after && !before.empty()) return first_time ? remember() : content_changed();
    TRY_IN(make_symlink_atomic(target, options.destination), "select configuration");
    log::info("selected configuration", {{"file", target.string()}, {"label", label}});
    remember();
    return true;
  }

  bool remember() {
    content = current();
    return false;
  }
  bool content_changed() {
    if (!options.watch_content) return false;
    std::optional<std::string> now = current();
    if (now == content) return false;
    content = std::move(now);
    log::info("the configuration's content changed", {{"file", applied->empty() ? kNothing : *applied}});
    return true;
  }
  std::optional<std::string> current() const {
    if (applied->empty()) return std::nullopt;
    auto text = read_file(options.source_dir / *applied);
    return text ? std::optional<std::string>(std::move(*text)) : std::nullopt;
  }

  // A process that is not there needs no signal: it will read the configuration when it starts.
  void signal() {
    auto pid = find_process(list_processes(options.proc), options.process_to_signal);
    if (!pid) {
      log::error("error finding pid: no process found", {{"process", options.process_to_signal}});
    } else if (::kill(*pid, options.signal) != 0) {
      log::error(errno_error("signal process '" + std::to_string(*pid) + "'", errno).text());
    } else {
      log::info("signalled",
                {{"process", options.process_to_signal}, {"pid", *pid}, {"signal", options.signal}});
    }
  }

  void stop(Result<> how) {
    if (std::exchange(ended, true)) return;
    loop.post([this, how = std::move(how)] { end(how); });
  }

  Loop& loop;
  kube::Client& client;
  ManagerOptions options;
  std::function<void(Result<>)> end;
  std::unique_ptr<kube::Informer> node;
  std::unique_ptr<DirWatch> content_watch;
  std::string label;
  std::optional<std::string> applied;  // name of the file in force
  std::optional<std::string> content;
  std::string refused;
  bool ended = false;
};

Manager::Manager(Loop& loop, kube::Client& client, ManagerOptions options, std::function<void(Result<>)> end)
    : impl_(std::make_unique<Impl>(loop, client, std::move(options), std::move(end))) {}
Manager::~Manager() = default;
void Manager::start() {
  impl_->start();
}
const std::string& Manager::refused_label() const {
  return impl_->refused;
}

}  // namespace gpuop::configmanager
