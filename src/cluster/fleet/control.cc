#include "cluster/fleet/control.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cerrno>
#include <map>
#include <optional>

#include "cluster/runtime/line_socket.h"
#include "cluster/runtime/wire.h"

namespace gpuop::cluster {
namespace {

constexpr const char* kName = "control.sock";

// The folder is reached through its descriptor: its path may be longer than a socket's address.
struct Address {
  Fd folder;
  sockaddr_un address{};
};
Result<Address> address_in(const fs::path& state_dir) {
  Address out;
  out.folder.reset(::open(state_dir.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!out.folder) return fail(errno_error("open '" + state_dir.string() + "'", errno));
  const std::string path = "/proc/self/fd/" + std::to_string(out.folder.get()) + "/" + kName;
  out.address.sun_family = AF_UNIX;
  path.copy(out.address.sun_path, sizeof out.address.sun_path - 1);
  return out;
}

}  // namespace

struct ControlServer::Impl : std::enable_shared_from_this<ControlServer::Impl> {
  Impl(Loop& l, std::function<void(Json, Reply)> s) : loop(l), serve(std::move(s)) {}

  Result<> listen(const fs::path& state_dir) {
    const std::string doing = "listen on '" + (state_dir / kName).string() + "'";
    Address address = TRY_IN(address_in(state_dir), doing);
    TRY(remove_file(state_dir / kName));
    socket.reset(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const mode_t mask = ::umask(0177);
    const bool bound = socket && ::bind(socket.get(), reinterpret_cast<sockaddr*>(&address.address),
                                        sizeof address.address) == 0;
    const int why = errno;
    ::umask(mask);
    if (!bound) return fail(errno_error(doing, why));
    if (::listen(socket.get(), 16) != 0) return fail(errno_error(doing, errno));
    acceptable = loop.on_readable(socket.get(), [weak = weak_from_this()] {
      if (auto self = weak.lock()) self->accept();
    });
    return {};
  }

  void accept() {
    Fd peer(::accept4(socket.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!peer) return;
    const std::uint64_t number = next++;
    auto weak = weak_from_this();
    peers[number] = std::make_shared<LineSocket>(
        loop, std::move(peer),
        [weak, number](Json request) {
          auto self = weak.lock();
          if (!self) return;
          self->serve(std::move(request), [weak, number](const Result<Json>& answer) {
            auto server = weak.lock();
            const auto found = server ? server->peers.find(number) : decltype(server->peers.end()){};
            if (!server || found == server->peers.end()) return;
            found->second->send(answer ? JsonObject{{"ok", *answer}}
                                       : JsonObject{{"error", to_json(answer.error())}});
          });
        },
        [weak, number] {
          auto self = weak.lock();
          if (!self) return;
          // Its own callback is on the stack.
          self->loop.post([gone = std::move(self->peers[number])] {});
          self->peers.erase(number);
        });
  }

  Loop& loop;
  std::function<void(Json, Reply)> serve;
  Fd socket;
  Handle acceptable;
  std::map<std::uint64_t, std::shared_ptr<LineSocket>> peers;
  std::uint64_t next = 0;
};

ControlServer::ControlServer(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
ControlServer::~ControlServer() {
  impl_->acceptable.reset();
  impl_->peers.clear();
}

Result<std::unique_ptr<ControlServer>> ControlServer::create(Loop& loop, const fs::path& state_dir,
                                                             std::function<void(Json, Reply)> serve) {
  auto impl = std::make_shared<Impl>(loop, std::move(serve));
  TRY(impl->listen(state_dir));
  return std::unique_ptr<ControlServer>(new ControlServer(std::move(impl)));
}

Result<Json> ask_fleet(Loop& loop, const fs::path& state_dir, const Json& request, Duration limit) {
  const std::string doing = "ask the fleet in '" + state_dir.string() + "'";
  auto address = address_in(state_dir);
  Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!address || !fd ||
      ::connect(fd.get(), reinterpret_cast<sockaddr*>(&address->address), sizeof address->address) != 0) {
    const int why = errno;
    if (why == EACCES || why == EPERM) return fail(Code::kPermission, doing + ": root is needed");
    return fail(Code::kNotFound, doing +
                                     ": none runs there (start one with 'gpuctl demo --keep', or name its "
                                     "folder with --state-dir)");
  }
  std::optional<Json> answer;
  bool closed = false;
  LineSocket socket(
      loop, std::move(fd), [&](Json line) { answer = std::move(line); }, [&] { closed = true; });
  socket.send(request);
  loop.run_until([&] { return answer || closed; }, limit);
  if (!answer) {
    if (closed) return fail(Code::kUnavailable, doing + ": it ended");
    return fail(Code::kTimeout, doing + ": no answer within " + format_go_duration(limit));
  }
  if (const Json* error = find(*answer, {"error"})) return fail(error_from_json(*error));
  const Json* ok = find(*answer, {"ok"});
  return ok != nullptr ? *ok : Json();
}

Result<> send_node_event(Loop& loop, const fs::path& state_dir, const std::string& node,
                         const NodeEvent& event, Duration limit) {
  const Json request = JsonObject{{"call", "nodeEvent"}, {"node", node}, {"event", to_json(event)}};
  TRY(ask_fleet(loop, state_dir, request, limit));
  return {};
}

}  // namespace gpuop::cluster
