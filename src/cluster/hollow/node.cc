#include "cluster/hollow/node.h"

#include <algorithm>

#include "base/log.h"
#include "cluster/faults/faults.h"
#include "cluster/hollow/node_options.h"

namespace gpuop::cluster {
// The node's way to the API server, which can be cut.
class HollowNode::Link : public kube::Transport, public std::enable_shared_from_this<Link> {
 public:
  Link(Loop& loop, std::shared_ptr<kube::Transport> inner) : loop_(loop), inner_(std::move(inner)) {}

  Handle send(HttpRequest request, std::function<void(Result<HttpResponse>)> done) override {
    if (!up_) return refuse([done] { done(fail(Code::kUnavailable, "connect: no route to host")); });
    auto shared = std::make_shared<std::function<void(Result<HttpResponse>)>>(std::move(done));
    const std::uint64_t id = next_++;
    auto handle = std::make_shared<Handle>();
    *handle =
        inner_->send(std::move(request), [weak = weak_from_this(), id, shared](Result<HttpResponse> answer) {
          if (const auto self = weak.lock()) self->open_.erase(id);
          const auto call = std::exchange(*shared, nullptr);
          if (call) call(std::move(answer));
        });
    open_[id] = [handle, shared] {
      handle->reset();
      const auto call = std::exchange(*shared, nullptr);
      if (call) call(fail(Code::kUnavailable, "read: connection timed out"));
    };
    return closing(id, handle, [shared] { *shared = nullptr; });
  }

  Handle stream(HttpRequest request, kube::StreamEvents events) override {
    if (!up_)
      return refuse([end = events.end] { end(fail(Code::kUnavailable, "connect: no route to host")); });
    auto end = std::make_shared<std::function<void(Result<>)>>(std::move(events.end));
    const std::uint64_t id = next_++;
    auto handle = std::make_shared<Handle>();
    events.end = [weak = weak_from_this(), id, end](Result<> how) {
      if (const auto self = weak.lock()) self->open_.erase(id);
      const auto call = std::exchange(*end, nullptr);
      if (call) call(std::move(how));
    };
    *handle = inner_->stream(std::move(request), std::move(events));
    open_[id] = [handle, end] {
      handle->reset();
      const auto call = std::exchange(*end, nullptr);
      if (call) call(fail(Code::kUnavailable, "read: connection timed out"));
    };
    return closing(id, handle, [end] { *end = nullptr; });
  }

  void set(bool up) {
    up_ = up;
    if (up) return;
    auto open = std::exchange(open_, {});
    for (auto& [id, cut] : open) loop_.post(std::move(cut));
  }

 private:
  Handle refuse(std::function<void()> call) {
    auto cancelled = std::make_shared<bool>(false);
    loop_.post([cancelled, call = std::move(call)] {
      if (!*cancelled) call();
    });
    return Handle([cancelled] { *cancelled = true; });
  }
  Handle closing(std::uint64_t id, std::shared_ptr<Handle> handle, std::function<void()> forget) {
    return Handle([weak = weak_from_this(), id, handle = std::move(handle), forget = std::move(forget)] {
      forget();
      handle->reset();
      if (const auto self = weak.lock()) self->open_.erase(id);
    });
  }

  Loop& loop_;
  std::shared_ptr<kube::Transport> inner_;
  bool up_ = true;
  std::uint64_t next_ = 1;
  std::map<std::uint64_t, std::function<void()>> open_;  // cuts each request under way
};

HollowNode::HollowNode(Loop& loop, std::shared_ptr<kube::Transport> transport, HollowNodeOptions options)
    : options_(std::move(options)),
      loop_(loop),
      link_(std::make_shared<Link>(loop, std::move(transport))),
      machine_(loop, options_.node, std::move(options_.hardware)),
      runtime_(std::make_unique<RecordingRuntime>(loop)) {
  images_.os_tag = options_.node.os_tag();
  images_.kernel = options_.node.kernel;
  images_.rows.push_back({.reference = options_.image});
  images_.rows.push_back({.reference = "*/driver", .entrypoint = {"nvidia-driver"}, .driver = true});
  runtime_->record = false;
  runtime_->pull_all = true;
  runtime_->image_fault = [this](const std::string& image, bool pull) { return image_fault(image, pull); };
  runtime_->on_pull = options_.pull_began;
  runtime_->behave = [this](const ContainerSpec& spec) { return play(spec); };
  runtime_->on_start = [this](const ContainerSpec& spec, const ContainerInfo& info) {
    container_started(spec, info);
  };
  runtime_->on_end = [this](const ContainerInfo& info) { container_ended(info); };
  runtime_->on_exec = [this](const ContainerInfo& info, const std::vector<std::string>& argv) {
    ExitState state;
    state.code = hollow_exec(machine_, info.pod_uid, argv);
    return state;
  };
  runtime_->defer_exec = [this](const auto& info, const auto& argv, Duration limit, const auto& done) {
    return wait_for(info, argv, limit, done);
  };
  // The drop-in adds the handlers that RuntimeClasses name.
  wiring_ = machine_.on_change([this] {
    if (machine_.toolkit()) runtime_->handlers.insert({"nvidia", "nvidia-cdi", "nvidia-legacy"});
  });
  world_.assets = options_.assets;
  world_.client = [this](const std::string& program) {
    kube::ClientOptions client;
    client.user_agent = program + "/" + name();
    client.field_manager = program;
    return std::make_unique<kube::Client>(loop_, link_, client);
  };
  world_.register_plugin = [this](const std::shared_ptr<HollowOffer>& offer) {
    offers_.push_back(offer);
    note("plugin", offer->resource());
    if (kubelet_) kubelet_->add_plugin(offer->resource(), offer->registration());
  };
  world_.withdraw_plugin = [this](const std::shared_ptr<HollowOffer>& offer) { std::erase(offers_, offer); };
}

HollowNode::~HollowNode() {
  kubelet_.reset();
  running_.clear();
  ended_.clear();
}

bool HollowNode::wait_for(const ContainerInfo& info, const std::vector<std::string>& argv, Duration limit,
                          const Runtime::Done<ExitState>& done) {
  const auto files = awaited_files(argv);
  const bool probe = awaits_driver(argv);
  if (!files && !probe) return false;
  const std::uint64_t number = next_wait_++;
  Wait& wait = waits_[number];
  wait.container = info.id;
  if (files) wait.files = *files;
  if (probe) wait.probe = argv;
  wait.done = done;
  wait.deadline = loop_.after(limit, [this, number] { end_wait(number, 137); });
  if (!waited_) waited_ = machine_.on_change([this] { look_at_waits(); });
  look_at_waits();
  return true;
}

void HollowNode::look_at_waits() {
  std::vector<std::uint64_t> over;
  for (const auto& [number, wait] : waits_) {
    if (!wait.probe.empty() ? !machine_.driver().empty()
                            : std::ranges::all_of(wait.files, [this](const auto& file) {
                                return hollow_file(machine_, file);
                              }))
      over.push_back(number);
  }
  for (const std::uint64_t number : over) {
    const auto wait = waits_.find(number);
    if (wait == waits_.end()) continue;
    // It opens a gate, which others may wait for: those come back here.
    const std::vector<std::string> probe = wait->second.probe;
    end_wait(number, probe.empty() ? 0 : hollow_exec(machine_, "", probe));
  }
}

void HollowNode::end_wait(std::uint64_t number, int code) {
  auto wait = waits_.extract(number);
  if (waits_.empty()) waited_.reset();
  if (wait.empty()) return;
  ExitState state;
  state.code = code;
  wait.mapped().done(state);
}

void HollowNode::note(std::string_view verb, std::string_view object, std::string_view detail) {
  if (options_.log != nullptr) options_.log->line("node/" + name(), verb, object, detail);
}

KubeletOptions HollowNode::kubelet_options() const {
  KubeletOptions out = hollow_kubelet_options(machine_, options_.index);
  out.kept_devices = device_checkpoint_;
  out.net_prober = [this](const NetProbe& probe, std::function<void(Result<>)> done) {
    auto cancelled = std::make_shared<bool>(false);
    loop_.post(
        [this, alive = std::weak_ptr<bool>(alive_), cancelled, port = probe.port, done = std::move(done)] {
          if (alive.expired() || *cancelled) return;
          if (machine_.serves(port)) return done({});
          done(fail(Code::kUnavailable, "dial tcp: connect: connection refused"));
        });
    return Handle([cancelled] { *cancelled = true; });
  };
  return out;
}

void HollowNode::start_kubelet() {
  if (kubelet_) return;
  on_ = true;
  note("kubelet", "started");
  kube::ClientOptions options;
  options.user_agent = "kubelet/" + name();
  options.field_manager = "kubelet";
  client_ = std::make_unique<kube::Client>(loop_, link_, options);
  auto made = Kubelet::create(loop_, *client_, *runtime_, kubelet_options());
  if (!made) {
    log::error("hollow node", {{"node", name()}, {"error", made.error()}});
    return;
  }
  kubelet_ = std::move(*made);
  kubelet_->start();
  // Plugins see the kubelet's socket come, and register again.
  for (const auto& offer : offers_) kubelet_->add_plugin(offer->resource(), offer->registration());
}

void HollowNode::stop_kubelet() {
  if (!kubelet_) return;
  note("kubelet", "stopped");
  kubelet_.reset();
  client_.reset();
}

void HollowNode::set_network(bool up) {
  note("network", up ? "up" : "down");
  link_->set(up);
}

void HollowNode::power_off(const std::string& kernel) {
  stop_kubelet();
  note("power-off", kernel);
  on_ = false;
  waits_.clear();
  waited_.reset();
  running_.clear();
  offers_.clear();
  runtime_->go_away();
  runtime_->come_back(true);
  machine_.reboot(kernel);
}

bool HollowNode::crash(const std::string& container) {
  std::vector<std::string> ids;
  for (const auto& [id, running] : running_) {
    if (fits(container, running.container)) ids.push_back(id);
  }
  for (const std::string& id : ids) runtime_->exit_container(id, 137);
  if (!ids.empty()) note("crash", container);
  return !ids.empty();
}

std::vector<std::string> HollowNode::gpu_faults() const {
  std::vector<std::string> out;
  for (const auto& [id, running] : running_) {
    if (!running.program) continue;
    for (std::string& fault : running.program->gpu_faults()) out.push_back(std::move(fault));
  }
  return out;
}

std::set<std::string> HollowNode::containers() const {
  std::set<std::string> out;
  for (const auto& [id, running] : running_) out.insert(running.container);
  return out;
}

std::string HollowNode::image_fault(const std::string& image, bool pull) const {
  if (pull && pull_fails_) {
    return "failed to pull and unpack image \"" + image + "\": dial tcp: i/o timeout";
  }
  const auto found = images_.resolve(image);
  return found ? std::string() : found.error().text();
}

const SandboxSpec* HollowNode::sandbox(const std::string& uid) const {
  return runtime_->sandbox(uid);
}

Result<std::unique_ptr<Program>> HollowNode::program_of(const ContainerSpec& spec, const std::string& id) {
  ProgramContext context{loop_, machine_, world_};
  if (const SandboxSpec* pod = sandbox(spec.pod_uid)) {
    context.ns = pod->ns;
    context.pod = pod->name;
    context.handler = pod->runtime_handler;
  }
  context.pod_uid = spec.pod_uid;
  context.container = spec.name;
  const auto image = images_.resolve(spec.image);
  if (image) {
    for (const std::string& entry : image->env) {
      constexpr std::string_view kVersion = "DRIVER_VERSION=";
      if (entry.starts_with(kVersion)) context.driver_version = entry.substr(kVersion.size());
    }
  }
  context.words = spec.command;
  context.words.insert(context.words.end(), spec.args.begin(), spec.args.end());
  for (const std::string& entry : spec.env) {
    const auto equals = entry.find('=');
    if (equals != std::string::npos) context.env[entry.substr(0, equals)] = entry.substr(equals + 1);
  }
  const auto visible = context.env.find("NVIDIA_VISIBLE_DEVICES");
  context.gpu_given = !spec.cdi_devices.empty() || !spec.devices.empty() ||
                      (visible != context.env.end() && !visible->second.empty() && visible->second != "void");
  context.exit = [this, id, alive = std::weak_ptr<bool>(alive_)](int code) {
    loop_.post([this, id, code, alive] {
      if (!alive.expired()) runtime_->exit_container(id, code);
    });
  };
  return make_program(std::move(context));
}

RecordingRuntime::Play HollowNode::play(const ContainerSpec& spec) {
  RecordingRuntime::Play out;
  // A runtime looks for the program before it says that the container runs.
  if (auto program = program_of(spec, ""); !program) out.refuses = program.error();
  return out;
}

void HollowNode::container_started(const ContainerSpec& spec, const ContainerInfo& info) {
  const SandboxSpec* pod = sandbox(spec.pod_uid);
  note("start", (pod != nullptr ? pod->ns + "/" + pod->name : spec.pod_uid) + "/" + spec.name,
       "#" + std::to_string(spec.attempt));
  auto program = program_of(spec, info.id);
  if (!program) return;  // refused above
  Running& running = running_[info.id];
  running.container = spec.name;
  running.program = std::move(*program);
  loop_.post([this, id = info.id, alive = std::weak_ptr<bool>(alive_)] {
    if (alive.expired()) return;
    if (const auto found = running_.find(id); found != running_.end()) found->second.program->start();
  });
}

void HollowNode::container_ended(const ContainerInfo& info) {
  std::vector<std::uint64_t> waits;
  for (const auto& [number, wait] : waits_)
    if (wait.container == info.id) waits.push_back(number);
  for (const std::uint64_t number : waits) end_wait(number, 137);
  const auto found = running_.find(info.id);
  if (found == running_.end()) return;
  note("end", info.name, "code " + std::to_string(info.exit_code));
  Running running = std::move(found->second);
  running_.erase(found);
  if (info.signal == 0 && info.exit_code == 0) running.program->stopping();
  ended_.push_back(std::move(running.program));
  loop_.post([this, alive = std::weak_ptr<bool>(alive_)] {
    if (!alive.expired()) ended_.clear();
  });
}

}  // namespace gpuop::cluster
