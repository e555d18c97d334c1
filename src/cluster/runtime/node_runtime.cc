#include "cluster/runtime/node_runtime.h"

#include <fnmatch.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <set>

#include "base/log.h"
#include "base/text.h"
#include "cluster/launcher/shim.h"
#include "cluster/launcher/state.h"
#include "cluster/runtime/node_runtime_impl.h"
#include "cluster/runtime/wire.h"

namespace gpuop::cluster {
namespace {

std::string container_id(const ContainerSpec& spec) {
  return sha256_hex(spec.pod_uid + "/" + (spec.init ? "init/" : "") + spec.name + "/" +
                    std::to_string(spec.attempt));
}

// Sends through a pidfd, so that a number that changed hands is never hit.
void signal_process(int pid, std::uint64_t start, int signal) {
  if (pid <= 0) return;
  Fd process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!process || process_start_ticks(pid) != start) return;
  ::syscall(SYS_pidfd_send_signal, process.get(), signal, nullptr, 0);
}

}  // namespace

Result<> NodeRuntime::Impl::open() {
  for (const fs::path& dir : {options.engine.state_dir / "sandboxes", options.engine.state_dir / "containers",
                              options.engine.state_dir / "overlay", options.engine.state_dir / "images",
                              options.engine.run_dir / "sandboxes"}) {
    TRY(make_dirs(dir));
  }
  TRY(load());
  return recover();
}

Result<> NodeRuntime::Impl::load() {
  EngineConfig now = TRY(load_engine_config(options.engine));
  for (const std::string& warning : now.warnings)
    log::warn(options.engine.name + " configuration", {{"what", warning}});
  config = std::move(now);
  return {};
}

void forget_file(const fs::path& path) {
  if (const auto removed = remove_file(path); !removed)
    log::error("a record stays, and counts at the next start", {{"why", removed.error()}});
}

void NodeRuntime::Impl::save(const Container& container) {
  JsonObject json{{"info", to_json(container.info)},   {"shimPid", container.shim_pid},
                  {"shimStart", container.shim_start}, {"pidStart", container.pid_start},
                  {"mounts", container.mounts},        {"starting", container.starting}};
  if (auto saved = write_file_atomic(container_file(container.info.id), to_text(Json(std::move(json))));
      !saved) {
    log::error("save container", {{"why", saved.error()}});
  }
}

void NodeRuntime::Impl::save(const Sandbox& sandbox) {
  JsonObject json{
      {"spec", to_json(sandbox.spec)}, {"pausePid", sandbox.pause_pid}, {"pauseStart", sandbox.pause_start}};
  if (auto saved = write_file_atomic(sandbox_file(sandbox.spec.uid), to_text(Json(std::move(json))));
      !saved) {
    log::error("save sandbox", {{"why", saved.error()}});
  }
}

Result<> NodeRuntime::Impl::recover() {
  for (const std::string& name : TRY(list_dir(options.engine.state_dir / "sandboxes"))) {
    auto text = read_file(options.engine.state_dir / "sandboxes" / name);
    auto json = text ? parse_json(*text) : Result<Json>(fail(text.error()));
    if (!json || !name.ends_with(".json")) continue;
    Sandbox sandbox{sandbox_from_json(*find(*json, {"spec"})), static_cast<int>(get_int(*json, {"pausePid"})),
                    static_cast<std::uint64_t>(get_int(*json, {"pauseStart"}))};
    sandbox.dead = !file_exists(sandbox_mark(sandbox.spec.uid));
    sandboxes[sandbox.spec.uid] = std::move(sandbox);
  }
  for (const std::string& name : TRY(list_dir(options.engine.state_dir / "containers"))) {
    auto text = read_file(options.engine.state_dir / "containers" / name);
    auto json = text ? parse_json(*text) : Result<Json>(fail(text.error()));
    if (!json || !name.ends_with(".json")) continue;
    auto container = std::make_unique<Container>();
    container->info = info_from_json(*find(*json, {"info"}));
    container->shim_pid = static_cast<int>(get_int(*json, {"shimPid"}));
    container->shim_start = static_cast<std::uint64_t>(get_int(*json, {"shimStart"}));
    container->pid_start = static_cast<std::uint64_t>(get_int(*json, {"pidStart"}));
    container->mounts = static_cast<std::uint64_t>(get_int(*json, {"mounts"}));
    container->starting = get_bool(*json, {"starting"});
    Container& kept = *(containers[container->info.id] = std::move(container));
    recover_container(kept);
  }
  // Folders whose record was never written, or was removed first.
  for (const std::string& id : TRY(list_dir(options.engine.state_dir / "overlay"))) {
    if (!containers.contains(id)) clean_up(id);
  }
  std::erase_if(containers, [](const auto& entry) { return entry.second->removing; });
  // One that died and holds nothing is nobody's.
  std::set<std::string> holding;
  for (const auto& [id, container] : containers) holding.insert(container->info.pod_uid);
  std::erase_if(sandboxes, [&](const auto& entry) {
    const bool empty = entry.second.dead && !holding.contains(entry.first);
    if (empty) forget_file(sandbox_file(entry.first));
    return empty;
  });
  return {};
}

Sandbox* NodeRuntime::Impl::live_sandbox(const std::string& uid) {
  const auto found = sandboxes.find(uid);
  return found == sandboxes.end() || found->second.dead ? nullptr : &found->second;
}

void NodeRuntime::Impl::recover_container(Container& container) {
  const std::string id = container.info.id;
  if (container.info.state == ContainerState::kExited) return;
  if (container.starting) {
    // Nobody can tell us any more how that start went: it is undone, and the kubelet starts it again.
    signal_process(container.shim_pid, container.shim_start, SIGKILL);
    if (auto record = read_record(launcher_root(), id))
      signal_process(record->pid, record->pid_start, SIGKILL);
    clean_up(id);
    container.removing = true;
    return;
  }
  auto weak = weak_from_this();
  if (process_start_ticks(container.shim_pid) == container.shim_start) {
    auto watch = on_process_exit(loop, container.shim_pid, [weak, id] {
      if (auto self = weak.lock()) self->shim_ended(id);
    });
    if (watch) {
      container.shim_exit = std::move(*watch);
      return;
    }
  }
  shim_ended(id);
}

void NodeRuntime::Impl::changed(const Container& container) {
  if (on_change && !container.removing) on_change(container.info);
}

Container* NodeRuntime::Impl::find_container(const std::string& id) {
  auto found = containers.find(id);
  return found == containers.end() ? nullptr : found->second.get();
}

void NodeRuntime::Impl::signal_init(const Container& container, int signal) {
  signal_process(container.info.pid, container.pid_start, signal);
}

void NodeRuntime::Impl::stop(Container& container, Duration grace, std::function<void()> done) {
  if (container.info.state == ContainerState::kExited) return done();
  container.stoppers.push_back(std::move(done));
  if (container.starting) {
    // The shim undoes what it began when its report finds nobody; killing it is the short way.
    signal_process(container.shim_pid, container.shim_start, SIGKILL);
    if (auto record = read_record(launcher_root(), container.info.id)) {
      signal_process(record->pid, record->pid_start, SIGKILL);
    }
    return;
  }
  if (grace > Duration::zero()) signal_init(container, SIGTERM);
  auto weak = weak_from_this();
  container.kill_timer = loop.after(grace, [weak, id = container.info.id] {
    auto self = weak.lock();
    if (Container* late = self ? self->find_container(id) : nullptr) self->signal_init(*late, SIGKILL);
  });
}

void NodeRuntime::Impl::forget(Container& container) {
  std::string id = container.info.id;
  clean_up(id);
  // Its own callbacks may be on the stack.
  std::shared_ptr<Container> gone = std::move(containers[id]);
  containers.erase(id);
  loop.post([gone] {});
}

Result<> NodeRuntime::Impl::start_pause(Sandbox& sandbox) {
  // The pause process is the first of a new PID namespace: gpuop-runc makes it so and reports its number.
  Command command{.argv = {options.launcher, "pause", "--pid-file",
                           (options.engine.run_dir / (sandbox.spec.uid + ".pid")).string(), "--name",
                           options.node_name + "/" + sandbox.spec.ns + "/" + sandbox.spec.name + "/"},
                  .env = program_environment()};
  auto ran = run_command(command, 10s);
  if (!ran) return fail(std::move(ran).error());
  if (!ran->ok()) return fail(Code::kUnknown, "failed to start sandbox: " + ran->err);
  fs::path file = options.engine.run_dir / (sandbox.spec.uid + ".pid");
  sandbox.pause_pid = static_cast<int>(parse_int(trim(TRY(read_file(file)))).value_or(0));
  forget_file(file);
  sandbox.pause_start = process_start_ticks(sandbox.pause_pid);
  return {};
}

namespace {

// On its end, which for the first process of a PID namespace lasts until all others of it are gone: nothing
// can be started in that namespace any more.
bool is_exiting(int pid) {
  const auto text = read_file("/proc/" + std::to_string(pid) + "/stat", 4096);
  const std::size_t close = text ? text->rfind(')') : std::string::npos;
  if (close == std::string::npos) return true;
  const std::vector<std::string> fields = split_fields(std::string_view(*text).substr(close + 1));
  constexpr std::size_t kFlags = 6;
  constexpr std::int64_t kExiting = 0x4;  // PF_EXITING of linux/sched.h; proc(5) shows the word
  return fields.size() <= kFlags || (parse_int(fields[kFlags]).value_or(kExiting) & kExiting) != 0;
}

}  // namespace

// The first process of a pod's shared namespace may have been killed, and everything in it with it: the pod's
// containers then start in a new one.
Result<> NodeRuntime::Impl::hold_pid_namespace(Sandbox& sandbox) {
  if (!sandbox.spec.share_pid || sandbox.spec.host_pid) return {};
  const bool there = sandbox.pause_pid > 0 && process_start_ticks(sandbox.pause_pid) == sandbox.pause_start &&
                     !is_exiting(sandbox.pause_pid);
  if (there) return {};
  TRY(start_pause(sandbox));
  save(sandbox);
  return {};
}

void NodeRuntime::Impl::end_pause(const Sandbox& sandbox) {
  signal_process(sandbox.pause_pid, sandbox.pause_start, SIGKILL);
}

NodeRuntime::NodeRuntime(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
NodeRuntime::~NodeRuntime() {
  impl_->on_change = nullptr;
  impl_->execs.clear();
  impl_->containers.clear();
}

Result<std::unique_ptr<NodeRuntime>> NodeRuntime::create(Loop& loop, NodeRuntimeOptions options) {
  auto impl = std::make_shared<Impl>(loop, std::move(options));
  TRY(impl->open());
  return std::unique_ptr<NodeRuntime>(new NodeRuntime(std::move(impl)));
}

void NodeRuntime::version(Done<std::string> done) {
  done(impl_->options.engine.scheme + "://" + impl_->options.engine.version);
}

Result<> NodeRuntime::reload() {
  const bool cdi = impl_->config.enable_cdi;
  TRY(impl_->load());
  // dockerd reads its runtimes anew, not whether it has CDI.
  impl_->config.enable_cdi = cdi;
  return {};
}

PullRule pull_rule(const Json& rules, const std::string& image) {
  if (!rules.is_array()) return {};
  for (const Json& rule : rules.get_array()) {
    const std::string pattern = str(get_string(rule, {"image"}));
    if (::fnmatch(pattern.c_str(), image.c_str(), 0) != 0) continue;
    return {Duration(get_int(rule, {"delay"})), str(get_string(rule, {"error"}))};
  }
  return {};
}

void NodeRuntime::ensure_image(const std::string& image, bool pull, Done<std::string> done) {
  auto found = impl_->options.images.resolve(image);
  if (!found) return done(fail(std::move(found).error()));
  const fs::path mark = impl_->image_mark(found->id);
  if (!pull) {
    if (impl_->options.pulls.empty() || file_exists(mark)) return done(found->id);
    return done(fail(Code::kNotFound, "image \"" + image + "\" is not on this node"));
  }
  const auto text =
      impl_->options.pulls.empty() ? Result<std::string>("[]") : read_file(impl_->options.pulls);
  const auto rules = parse_json(text ? *text : "[]");
  const PullRule rule = pull_rule(rules ? *rules : Json(), image);
  std::weak_ptr<Impl> weak = impl_;
  auto pulled = [weak, rule, image, mark, id = found->id, done = std::move(done)] {
    if (weak.expired()) return;
    if (!rule.error.empty()) {
      return done(fail(Code::kUnknown, "failed to pull and unpack image \"" + image +
                                           "\": failed to resolve reference \"" + image +
                                           "\": " + rule.error));
    }
    if (auto wrote = write_file_atomic(mark, ""); !wrote) {
      return done(fail(std::move(wrote).error().in("failed to pull and unpack image \"" + image + "\"")));
    }
    done(id);
  };
  if (rule.delay <= Duration::zero()) return pulled();
  const std::uint64_t number = impl_->next_exec++;
  impl_->execs[number] = impl_->loop.after(rule.delay, [weak, number, pulled = std::move(pulled)] {
    if (auto impl = weak.lock()) impl->execs.erase(number);
    pulled();
  });
}

void NodeRuntime::run_sandbox(const SandboxSpec& spec, Done<void> done) {
  if (impl_->live_sandbox(spec.uid) != nullptr) return done({});
  const RuntimeHandler* handler = impl_->config.handler(spec.runtime_handler);
  if (!handler) {
    return done(fail(Code::kNotFound, "failed to get sandbox runtime: no runtime for \"" +
                                          spec.runtime_handler + "\" is configured"));
  }
  if (auto checked = check_container_id(spec.uid); !checked) return done(fail(std::move(checked).error()));
  const auto dead = impl_->sandboxes.find(spec.uid);
  const int attempt = dead == impl_->sandboxes.end() ? 0 : dead->second.spec.attempt + 1;
  Sandbox sandbox{spec, 0, 0};
  sandbox.spec.attempt = attempt;
  auto held = impl_->hold_pid_namespace(sandbox);
  if (held) {
    // The mark comes last: without it the sandbox counts as dead.
    impl_->save(sandbox);
    auto marked = write_file_atomic(impl_->sandbox_mark(spec.uid), "");
    if (!marked) held = fail(std::move(marked).error().in("failed to create sandbox"));
  }
  if (!held) {
    impl_->end_pause(sandbox);
    return done(fail(std::move(held).error()));
  }
  impl_->sandboxes[spec.uid] = std::move(sandbox);
  done({});
}

void NodeRuntime::remove_sandbox(const std::string& uid, Done<void> done) {
  auto found = impl_->sandboxes.find(uid);
  if (found == impl_->sandboxes.end()) return done({});
  auto impl = impl_;
  auto left = std::make_shared<std::size_t>(1);
  auto one_less = [impl, uid, left, done = std::move(done)] {
    if (--*left > 0) return;
    auto sandbox = impl->sandboxes.find(uid);
    if (sandbox != impl->sandboxes.end()) {
      impl->end_pause(sandbox->second);
      impl->sandboxes.erase(sandbox);
    }
    forget_file(impl->sandbox_file(uid));
    forget_file(impl->sandbox_mark(uid));
    done({});
  };
  std::vector<std::string> inside;
  for (const auto& [id, container] : impl_->containers) {
    if (container->info.pod_uid == uid) inside.push_back(id);
  }
  *left += inside.size();
  for (const std::string& id : inside) remove_container(id, [one_less](Result<>) { one_less(); });
  one_less();
}

void NodeRuntime::start_container(const ContainerSpec& spec, Done<std::string> done) {
  std::string id = container_id(spec);
  if (Container* known = impl_->find_container(id)) {
    if (!known->starting) return done(id);
    known->starters.push_back(std::move(done));
    return;
  }
  auto begun = [&]() -> Result<> {
    Sandbox* sandbox = impl_->live_sandbox(spec.pod_uid);
    if (sandbox == nullptr) {
      return fail(Code::kNotFound, "failed to find sandbox id \"" + spec.pod_uid + "\": not found");
    }
    TRY(impl_->hold_pid_namespace(*sandbox));
    Image image = TRY(impl_->options.images.resolve(spec.image));
    const RuntimeHandler* handler = impl_->config.handler(sandbox->spec.runtime_handler);
    if (!handler) {
      return fail(Code::kNotFound, "failed to get sandbox runtime: no runtime for \"" +
                                       sandbox->spec.runtime_handler + "\" is configured");
    }
    TRY(impl_->prepare_bundle(spec, *sandbox, image, *handler, id));
    auto container = std::make_unique<Container>();
    container->info = {.id = id,
                       .pod_uid = spec.pod_uid,
                       .name = spec.name,
                       .attempt = spec.attempt,
                       .sandbox_attempt = sandbox->spec.attempt,
                       .init = spec.init,
                       .image = spec.image,
                       .image_id = image.id};
    container->starters.push_back(done);
    Container& kept = *(impl_->containers[id] = std::move(container));
    auto launched = impl_->launch(kept, spec, *handler);
    if (!launched) impl_->containers.erase(id);
    return launched;
  }();
  if (!begun) {
    impl_->clean_up(id);
    done(fail(std::move(begun).error()));
  }
}

void NodeRuntime::stop_container(const std::string& id, Duration grace, Done<void> done) {
  Container* container = impl_->find_container(id);
  if (!container) return done({});
  impl_->stop(*container, grace, [done = std::move(done)] { done({}); });
}

void NodeRuntime::remove_container(const std::string& id, Done<void> done) {
  Container* container = impl_->find_container(id);
  if (!container) return done({});
  container->removing = true;
  impl_->stop(*container, Duration::zero(), [impl = impl_, id, done = std::move(done)] {
    if (Container* ended = impl->find_container(id)) impl->forget(*ended);
    done({});
  });
}

Result<Command> NodeRuntime::Impl::exec_command(const std::string& id, const std::vector<std::string>& argv,
                                                std::vector<std::string> extra) {
  Container* container = find_container(id);
  if (!container || container->info.state != ContainerState::kRunning) {
    return fail(Code::kConflict,
                "failed to exec in container: container \"" + id + "\" is not in running state");
  }
  Command command{.argv = {options.launcher, "exec", "--pid", std::to_string(container->info.pid), "--bundle",
                           bundle_dir(id).string()},
                  .env = program_environment()};
  command.argv.insert(command.argv.end(), extra.begin(), extra.end());
  command.argv.emplace_back("--");
  command.argv.insert(command.argv.end(), argv.begin(), argv.end());
  return command;
}

void NodeRuntime::exec(const std::string& id, const std::vector<std::string>& argv, Duration limit,
                       Done<ExitState> done) {
  auto command = impl_->exec_command(id, argv, {});
  if (!command) return done(fail(std::move(command).error()));
  std::uint64_t number = impl_->next_exec++;
  std::weak_ptr<Impl> weak = impl_;
  impl_->execs[number] = run_command(impl_->loop, std::move(*command), limit,
                                     [weak, number, done = std::move(done)](Result<ExitState> state) {
                                       if (auto impl = weak.lock()) {
                                         auto held = std::move(impl->execs[number]);
                                         impl->execs.erase(number);
                                         held.detach();
                                       }
                                       done(std::move(state));
                                     });
}

void NodeRuntime::exec_stream(const std::string& id, const std::vector<std::string>& argv,
                              ExecStreams streams, Done<ExitState> done) {
  // The socket's number in the launcher.
  constexpr int kConsole = 3;
  std::vector<std::string> extra;
  SpawnOptions options{.stdin_fd = streams.in.get(),
                       .stdout_fd = streams.out.get(),
                       .stderr_fd = streams.err.get(),
                       .new_session = true};
  if (streams.console) {
    options.pass_fds.emplace_back(streams.console.get(), kConsole);
    extra = {"--console-fd", std::to_string(kConsole)};
  }
  auto command = impl_->exec_command(id, argv, std::move(extra));
  if (!command) return done(fail(std::move(command).error()));
  const std::uint64_t number = impl_->next_exec++;
  std::weak_ptr<Impl> weak = impl_;
  auto child = Child::spawn(impl_->loop, *command, options, [weak, number, done](const ExitState& state) {
    if (auto impl = weak.lock()) impl->exec_streams.erase(number);
    done(state);
  });
  if (!child) return done(fail(std::move(child).error()));
  impl_->exec_streams[number] = std::move(*child);
}

void NodeRuntime::list(Done<std::vector<ContainerInfo>> done) {
  std::vector<ContainerInfo> out;
  for (const auto& [id, container] : impl_->containers) {
    if (!container->removing && !container->starting) out.push_back(container->info);
  }
  done(std::move(out));
}

void NodeRuntime::list_sandboxes(Done<std::vector<SandboxSpec>> done) {
  std::vector<SandboxSpec> out;
  for (const auto& [uid, sandbox] : impl_->sandboxes) {
    if (!sandbox.dead) out.push_back(sandbox.spec);
  }
  done(std::move(out));
}

void NodeRuntime::on_change(std::function<void(const ContainerInfo&)> changed) {
  impl_->on_change = std::move(changed);
}

void NodeRuntime::on_available(std::function<void(bool)>) {}

}  // namespace gpuop::cluster
