#include "cluster/runtime/runtime_server.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <map>

#include "cluster/runtime/line_socket.h"
#include "cluster/runtime/wire.h"

namespace gpuop::cluster {

struct RuntimeServer::Impl : std::enable_shared_from_this<RuntimeServer::Impl> {
  Impl(Loop& l, Runtime& r) : loop(l), runtime(r) {}

  Result<> listen(const fs::path& path) {
    std::string doing = "listen on '" + path.string() + "'";
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.string().size() >= sizeof address.sun_path)
      return fail(Code::kInvalid, doing + ": path longer than 107 bytes");
    path.string().copy(address.sun_path, sizeof address.sun_path - 1);
    TRY(make_dirs(path.parent_path()));
    TRY(remove_file(path));
    socket.reset(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket || ::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
        ::listen(socket.get(), 64) != 0) {
      return fail(errno_error(doing, errno));
    }
    auto weak = weak_from_this();
    acceptable = loop.on_readable(socket.get(), [weak] {
      if (auto self = weak.lock()) self->accept();
    });
    runtime.on_change([weak](const ContainerInfo& info) {
      if (auto self = weak.lock()) self->tell_all(JsonObject{{"changed", to_json(info)}});
    });
    return {};
  }

  void accept() {
    Fd peer(::accept4(socket.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!peer) return;
    std::uint64_t number = next++;
    auto weak = weak_from_this();
    peers[number] = std::make_unique<LineSocket>(
        loop, std::move(peer),
        [weak, number](const Json& request) {
          if (auto self = weak.lock()) self->serve(number, request);
        },
        [weak, number] {
          auto self = weak.lock();
          if (!self) return;
          // Its own callback is on the stack.
          self->loop.post([self, gone = std::shared_ptr<LineSocket>(std::move(self->peers[number]))] {});
          self->peers.erase(number);
        });
  }

  void tell_all(const Json& event) {
    for (auto& [number, peer] : peers) peer->send(event);
  }

  void answer(std::uint64_t peer, const Json& id, Json body) {
    auto found = peers.find(peer);
    if (found == peers.end()) return;
    body.as_object()["id"] = id;
    found->second->send(body);
  }

  // An answer that turns a result into {"ok":…} or {"error":…}.
  template <class T>
  std::function<void(Result<T>)> reply(std::uint64_t peer, Json id, std::function<Json(const T&)> encode) {
    auto weak = weak_from_this();
    return [weak, peer, id = std::move(id), encode = std::move(encode)](Result<T> result) {
      auto self = weak.lock();
      if (!self) return;
      self->answer(
          peer, id,
          result ? JsonObject{{"ok", encode(*result)}} : JsonObject{{"error", to_json(result.error())}});
    };
  }
  std::function<void(Result<>)> reply_plain(std::uint64_t peer, Json id) {
    auto weak = weak_from_this();
    return [weak, peer, id = std::move(id)](Result<> result) {
      auto self = weak.lock();
      if (!self) return;
      self->answer(peer, id,
                   result ? JsonObject{{"ok", true}} : JsonObject{{"error", to_json(result.error())}});
    };
  }

  void serve(std::uint64_t peer, const Json& request) {
    static const Json kNone;
    std::string call = str(get_string(request, {"call"}));
    const Json* id_value = find(request, {"id"});
    Json id = id_value ? *id_value : Json();
    const Json* spec = find(request, {"spec"});
    auto name = [&](std::string_view key) { return str(get_string(request, {key})); };
    auto text = reply<std::string>(peer, id, [](const std::string& value) { return Json(value); });
    if (call == "version") return runtime.version(text);
    if (call == "ensureImage") return runtime.ensure_image(name("image"), get_bool(request, {"pull"}), text);
    if (call == "runSandbox")
      return runtime.run_sandbox(sandbox_from_json(spec ? *spec : kNone), reply_plain(peer, id));
    if (call == "removeSandbox") return runtime.remove_sandbox(name("uid"), reply_plain(peer, id));
    if (call == "startContainer")
      return runtime.start_container(container_from_json(spec ? *spec : kNone), text);
    if (call == "stopContainer") {
      return runtime.stop_container(name("container"), Duration(get_int(request, {"grace"})),
                                    reply_plain(peer, id));
    }
    if (call == "removeContainer") return runtime.remove_container(name("container"), reply_plain(peer, id));
    if (call == "exec") return exec(peer, id, request);
    if (call == "execStream") return exec_stream(peer, id, request);
    if (call == "list")
      return runtime.list(reply<std::vector<ContainerInfo>>(peer, id, [](const auto& infos) {
        JsonArray out;
        for (const ContainerInfo& info : infos) out.push_back(to_json(info));
        return Json(std::move(out));
      }));
    if (call == "listSandboxes") {
      return runtime.list_sandboxes(reply<std::vector<SandboxSpec>>(peer, id, [](const auto& specs) {
        JsonArray out;
        for (const SandboxSpec& sandbox : specs) out.push_back(to_json(sandbox));
        return Json(std::move(out));
      }));
    }
    answer(peer, id,
           JsonObject{{"error", to_json(Error(Code::kUnsupported, "call '" + call + "': no such call"))}});
  }

  std::function<void(Result<ExitState>)> reply_exit(std::uint64_t peer, const Json& id) {
    return reply<ExitState>(peer, id, [](const ExitState& state) {
      return Json(
          JsonObject{{"code", state.code}, {"signal", state.signal}, {"out", state.out}, {"err", state.err}});
    });
  }
  static std::vector<std::string> words_of(const Json& request, std::string_view key) {
    std::vector<std::string> out;
    for (const Json& item : get_array(request, {key})) out.push_back(str(as_text(item)));
    return out;
  }

  void exec(std::uint64_t peer, const Json& id, const Json& request) {
    runtime.exec(str(get_string(request, {"container"})), words_of(request, "argv"),
                 Duration(get_int(request, {"limit"})), reply_exit(peer, id));
  }

  void exec_stream(std::uint64_t peer, const Json& id, const Json& request) {
    const std::vector<std::string> names = words_of(request, "files");
    std::vector<Fd> files = peers[peer]->take_files(names.size());
    if (files.size() != names.size()) {
      return answer(
          peer, id,
          JsonObject{{"error", to_json(Error(Code::kInvalid, "call 'execStream': files are missing"))}});
    }
    ExecStreams streams;
    for (std::size_t i = 0; i < names.size(); ++i) {
      Fd& into = names[i] == "in"    ? streams.in
                 : names[i] == "out" ? streams.out
                 : names[i] == "err" ? streams.err
                                     : streams.console;
      into = std::move(files[i]);
    }
    runtime.exec_stream(str(get_string(request, {"container"})), words_of(request, "argv"),
                        std::move(streams), reply_exit(peer, id));
  }

  Loop& loop;
  Runtime& runtime;
  Fd socket;
  Handle acceptable;
  std::map<std::uint64_t, std::unique_ptr<LineSocket>> peers;
  std::uint64_t next = 0;
};

RuntimeServer::RuntimeServer(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
RuntimeServer::~RuntimeServer() {
  impl_->runtime.on_change(nullptr);
  impl_->acceptable.reset();
  impl_->peers.clear();
}

Result<std::unique_ptr<RuntimeServer>> RuntimeServer::create(Loop& loop, const fs::path& socket,
                                                             Runtime& runtime) {
  auto impl = std::make_shared<Impl>(loop, runtime);
  TRY(impl->listen(socket));
  return std::unique_ptr<RuntimeServer>(new RuntimeServer(std::move(impl)));
}

}  // namespace gpuop::cluster
