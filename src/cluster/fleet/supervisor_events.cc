// What happens to nodes while the fleet runs.
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/log.h"
#include "base/text.h"
#include "cluster/fleet/fleet_files.h"
#include "cluster/fleet/supervisor_impl.h"
#include "cluster/runtime/engine_config.h"
#include "sim/power.h"

namespace gpuop::cluster {
namespace {

using Kind = NodeEvent::Kind;

// Programs of a node that its supervisor starts; not every node has each.
constexpr std::array<const char*, 3> kNodeRoles{"kubelet", "runtime", "vgpus"};

ino_t inode_of(int fd) {
  struct stat info{};
  return fd >= 0 && ::fstat(fd, &info) == 0 ? info.st_ino : 0;
}

// Processes whose namespace of that kind ("net", "mnt") is the one that `fd` holds open.
std::vector<pid_t> processes_in(const char* kind, int fd) {
  std::vector<pid_t> out;
  const ino_t wanted = inode_of(fd);
  const auto names = list_dir("/proc");
  if (wanted == 0 || !names) return out;
  for (const std::string& name : *names) {
    const auto pid = parse_int(name);
    struct stat info{};
    if (pid && ::stat(("/proc/" + name + "/ns/" + kind).c_str(), &info) == 0 && info.st_ino == wanted)
      out.push_back(static_cast<pid_t>(*pid));
  }
  return out;
}

Result<> resize_run(const std::string& size) {
  if (::mount(nullptr, "/run", nullptr, MS_REMOUNT | MS_NOSUID | MS_NODEV,
              ("mode=755,size=" + size).c_str()) != 0) {
    return fail(errno_error("make '/run' " + size + " large", errno));
  }
  return {};
}

// A tmpfs may not be made smaller than what is in it.
Result<> fill_run(std::uint64_t leave) {
  struct statvfs room{};
  if (::statvfs("/run", &room) != 0) return fail(errno_error("look at '/run'", errno));
  const std::uint64_t used = (room.f_blocks - room.f_bfree) * room.f_frsize;
  // Size 0 would mean no limit at all.
  return resize_run(std::to_string(std::max<std::uint64_t>(used + leave, room.f_frsize)));
}

Json pull_rule(const NodeEvent& event) {
  return JsonObject{{"image", event.text}, {"delay", event.delay.count()}, {"error", event.reason}};
}

// The newest rule of an image wins; one that says nothing takes the older ones of it away.
Result<> write_pull_rule(const NodeEvent& event) {
  JsonArray rules;
  if (auto text = read_file(kNodePulls)) {
    auto json = parse_json(*text);
    if (json && json->is_array()) {
      for (const Json& rule : json->get_array()) {
        if (get_string(rule, {"image"}) != event.text && event.text != "*") rules.push_back(rule);
      }
    }
  }
  if (event.delay > Duration::zero() || !event.reason.empty()) rules.insert(rules.begin(), pull_rule(event));
  return put_file(kNodePulls, to_text(Json(std::move(rules))));
}

}  // namespace

void FleetSupervisor::serve(const Json& request, ControlServer::Reply reply) {
  if (get_string(request, {"call"}) != "nodeEvent") {
    return reply(fail(Code::kUnsupported,
                      "ask the fleet: '" + str(get_string(request, {"call"})) + "': no such call"));
  }
  auto node = find_node(str(get_string(request, {"node"})));
  const Json* json = find(request, {"event"});
  auto event = node_event_from_json(json != nullptr ? *json : Json());
  if (!node) return reply(fail(node.error()));
  if (!event) return reply(fail(event.error()));
  node_event(**node, *event, std::move(reply));
}

Result<SimNode*> FleetSupervisor::find_node(const std::string& name) {
  std::vector<std::string> names;
  for (const auto& node : nodes_) {
    if (node->spec.name == name) return node.get();
    names.push_back(node->spec.name);
  }
  return fail(Code::kNotFound,
              "node '" + name + "': the fleet has " +
                  (names.size() > 8 ? std::to_string(names.size()) + " nodes, none of that name"
                                    : join(names, ", ")) +
                  did_you_mean(name, names));
}

Service* FleetSupervisor::service(const std::string& role, const std::string& node) {
  for (const auto& service : services_) {
    if (service->role() == role && service->node() == node) return service.get();
  }
  return nullptr;
}

void FleetSupervisor::node_event(SimNode& node, const NodeEvent& event, ControlServer::Reply reply) {
  const std::string doing = "node '" + node.spec.name + "'";
  log::info("node event", {{"node", node.spec.name}, {"event", to_text(to_json(event))}});
  if (event.kind == Kind::kReturn) {
    if (!node.off && !node.cut_off) return reply(fail(Code::kConflict, doing + ": is not lost"));
    return boot(node, std::move(reply));
  }
  if (node.off || node.cut_off) {
    return reply(fail(Code::kConflict, doing + ": is lost: bring it back first ('return')"));
  }
  if (!node.is_up || node.down) return reply(fail(Code::kConflict, doing + ": is not up yet"));
  auto done = [&](Result<> how) { how ? reply(Json()) : reply(fail(std::move(how).error().in(doing))); };
  switch (event.kind) {
    case Kind::kReboot:
      return reboot(node, std::move(reply));
    case Kind::kKernelUpgrade:
      node.spec.kernel = event.text;
      return reboot(node, std::move(reply));
    case Kind::kKubeletRestart:
      return restart("kubelet", node, reply);
    case Kind::kRuntimeRestart:
      if (!event.flag) return restart("runtime", node, reply);
      if (auto killed = restart_runtime_whole(node); !killed) return done(killed);
      return restart("runtime", node, reply);
    case Kind::kLose:
      if (!event.flag) return power_off(node, [reply] { reply(Json()); });
      node.cut_off = true;
      node.api.reset();
      if (Service* kubelet = service("kubelet", node.spec.name)) kubelet->hold();
      return done({});
    case Kind::kFillRun:
      return done(inside(node, [&] { return fill_run(event.number); }));
    case Kind::kFreeRun:
      return done(inside(node, [] { return resize_run(kRunSize); }));
    case Kind::kImagePull:
      return done(inside(node, [&] { return write_pull_rule(event); }));
    case Kind::kRemoveGpu:
      return done(inside(
          node, [&] { return sim::remove_gpu(kNodeKernelRoot, "/dev", static_cast<int>(event.number)); }));
    case Kind::kInsertGpu:
      return done(inside(
          node, [&] { return sim::insert_gpu(kNodeKernelRoot, "/dev", static_cast<int>(event.number)); }));
    case Kind::kReturn:
    case Kind::kClockJump:
      break;
  }
  done(fail(Code::kUnsupported, "no such event"));
}

void FleetSupervisor::restart(const std::string& role, SimNode& node, const ControlServer::Reply& reply) {
  Service* running = service(role, node.spec.name);
  if (running == nullptr || running->pid() == 0) {
    return reply(fail(Code::kConflict, "node '" + node.spec.name + "': its " + role + " is down already"));
  }
  running->when_started([reply] { reply(Json()); });
  // As systemd ends a unit: asked first.
  ::kill(running->pid(), SIGTERM);
}

// What systemd does where the unit's whole control group is killed: shims die, and with them the sandboxes
// that they hold.
Result<> FleetSupervisor::restart_runtime_whole(SimNode& node) {
  std::vector<pid_t> spared;
  for (const char* role : kNodeRoles) {
    if (const Service* other = service(role, node.spec.name)) spared.push_back(other->pid());
  }
  const Engine engine = TRY(find_engine(node.spec.runtime));
  TRY(inside(node, [&]() -> Result<> {
    std::error_code ignored;
    fs::remove_all(engine.run_dir / "sandboxes", ignored);
    return {};
  }));
  for (const pid_t pid : processes_in("mnt", node.spaces.mount.get())) {
    if (std::ranges::find(spared, pid) == spared.end()) ::kill(pid, SIGKILL);
  }
  return {};
}

void FleetSupervisor::reboot(SimNode& node, ControlServer::Reply reply) {
  power_off(node, [this, &node, reply = std::move(reply)] { boot(node, reply); });
}

// A power cut: nothing gets to say a last word. What still forks while it is killed is met by the next look,
// which comes with the next process that is reaped.
void FleetSupervisor::power_off(SimNode& node, std::function<void()> down) {
  node.off = true;
  node.is_up = node.kubelet_started = false;
  node.api.reset();
  node.down = std::move(down);
  for (const char* role : kNodeRoles) {
    if (Service* held = service(role, node.spec.name)) held->hold();
  }
  loop_.post([this] { go_on_going_down(); });
}

void FleetSupervisor::go_on_going_down() {
  for (const auto& node : nodes_) {
    if (!node->down) continue;
    bool alive = false;
    for (const char* role : kNodeRoles) {
      const Service* held = service(role, node->spec.name);
      alive = alive || (held != nullptr && held->pid() > 0);
    }
    for (const pid_t pid : processes_in("net", node->spaces.network.get())) {
      alive = true;
      ::kill(pid, SIGKILL);
    }
    if (alive) continue;
    node->spaces = {};
    // The mounts of a namespace go when its last process has been reaped; what follows may mount anew.
    loop_.post(std::exchange(node->down, nullptr));
  }
}

void FleetSupervisor::boot(SimNode& node, ControlServer::Reply reply) {
  node.waiting.push_back(std::move(reply));
  auto booted = [&]() -> Result<> {
    if (!std::exchange(node.cut_off, false)) {
      node.off = false;
      return set_up(node);
    }
    TRY(connect_api(node));
    TRY(start_kubelet(node));
    api_is_there();
    return {};
  }();
  if (booted) return;
  node.off = true;
  for (auto& waiting : std::exchange(node.waiting, {})) waiting(fail(booted.error()));
}

Result<> FleetSupervisor::connect_api(SimNode& node) {
  Fd listening = TRY(listen_in_namespace(node.spaces.network.get(), "127.0.0.1", kApiPortOnNodes));
  node.api = TRY(Forwarder::create(loop_, std::move(listening), api_host_, api_port_));
  return {};
}

Result<> FleetSupervisor::inside(SimNode& node, const std::function<Result<>()>& work) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return fail(errno_error("make a pipe", errno));
  Fd report(ends[0]), theirs(ends[1]);
  const pid_t pid = ::fork();
  if (pid < 0) return fail(errno_error("enter node '" + node.spec.name + "'", errno));
  if (pid == 0) {
    Result<> how;
    if (::setns(node.spaces.mount.get(), CLONE_NEWNS) != 0 || ::chdir("/") != 0) {
      how = fail(errno_error("enter node '" + node.spec.name + "'", errno));
    } else {
      how = work();
    }
    const std::string text = how ? "+" : "-" + how.error().text();
    [[maybe_unused]] const ssize_t n = ::write(theirs.get(), text.data(), text.size());
    ::_exit(0);
  }
  theirs.reset();
  auto text = read_fd(report.get(), 1u << 16);
  ::waitpid(pid, nullptr, 0);
  if (!text || text->empty())
    return fail(Code::kUnknown, "enter node '" + node.spec.name + "': it ended early");
  if ((*text)[0] != '+') return fail(Code::kUnknown, text->substr(1));
  return {};
}

}  // namespace gpuop::cluster
