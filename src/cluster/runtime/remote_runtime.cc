#include "cluster/runtime/remote_runtime.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <map>

#include "base/inotify.h"
#include "base/log.h"
#include "cluster/runtime/line_socket.h"
#include "cluster/runtime/wire.h"

namespace gpuop::cluster {

struct RemoteRuntime::Impl : std::enable_shared_from_this<RemoteRuntime::Impl> {
  using Answer = std::function<void(Result<Json>)>;
  Impl(Loop& l, fs::path p) : loop(l), path(std::move(p)) {}

  Result<> begin() {
    auto weak = weak_from_this();
    watch = TRY(DirWatch::create(loop, path.parent_path(), [weak] {
      if (auto self = weak.lock()) self->connect();
    }));
    return {};
  }

  void connect() {
    if (connection) return;
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.string().copy(address.sun_path, sizeof address.sun_path - 1);
    Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!fd) return;
    if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
      // Between bind() and listen() the name is there and nobody answers, and no further event comes.
      if (errno == ECONNREFUSED) {
        auto weak = weak_from_this();
        again = loop.after(std::min<Duration>(wait, 1s), [weak] {
          if (auto self = weak.lock()) self->connect();
        });
        wait *= 2;
      }
      return;
    }
    wait = 5ms;
    again.reset();
    auto weak = weak_from_this();
    connection = std::make_unique<LineSocket>(
        loop, std::move(fd),
        [weak](const Json& value) {
          if (auto self = weak.lock()) self->arrived(value);
        },
        [weak] {
          if (auto self = weak.lock()) self->lost();
        });
    tell(true);
  }

  void lost() {
    loop.post([gone = std::shared_ptr<LineSocket>(std::move(connection))] {});
    auto calls = std::move(pending);
    pending.clear();
    tell(false);
    for (auto& [id, done] : calls) done(fail(Code::kUnavailable, away()));
    // It may be back already, its event seen while the old connection was still thought to be up.
    auto weak = weak_from_this();
    loop.post([weak] {
      if (auto self = weak.lock()) self->connect();
    });
  }

  std::string away() const { return "call runtime '" + path.string() + "': it is away"; }

  void tell(bool up) {
    if (available) available(up);
  }

  void arrived(const Json& value) {
    if (const Json* info = find(value, {"changed"})) {
      if (changed) changed(info_from_json(*info));
      return;
    }
    auto found = pending.find(get_int(value, {"id"}, -1));
    if (found == pending.end()) return;
    Answer done = std::move(found->second);
    pending.erase(found);
    if (const Json* error = find(value, {"error"})) return done(fail(error_from_json(*error)));
    const Json* ok = find(value, {"ok"});
    done(ok ? *ok : Json());
  }

  void call(JsonObject request, Answer done, std::vector<Fd> files = {}) {
    if (!connection) {
      auto weak = weak_from_this();
      loop.post([text = away(), done = std::move(done)] { done(fail(Code::kUnavailable, text)); });
      return;
    }
    std::int64_t id = next++;
    request["id"] = id;
    pending[id] = std::move(done);
    connection->send(Json(std::move(request)), std::move(files));
  }

  Loop& loop;
  fs::path path;
  std::unique_ptr<DirWatch> watch;
  std::unique_ptr<LineSocket> connection;
  Duration wait = 5ms;
  Handle again;
  std::map<std::int64_t, Answer> pending;
  std::int64_t next = 1;
  std::function<void(const ContainerInfo&)> changed;
  std::function<void(bool)> available;
};

namespace {

RemoteRuntime::Impl::Answer plain(Runtime::Done<void> done) {
  return [done = std::move(done)](Result<Json> answer) {
    if (!answer) return done(fail(std::move(answer).error()));
    done({});
  };
}
RemoteRuntime::Impl::Answer text(Runtime::Done<std::string> done) {
  return [done = std::move(done)](Result<Json> answer) {
    if (!answer) return done(fail(std::move(answer).error()));
    done(str(as_text(*answer)));
  };
}

}  // namespace

RemoteRuntime::RemoteRuntime(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
RemoteRuntime::~RemoteRuntime() {
  impl_->watch.reset();
  impl_->again.reset();
  impl_->connection.reset();
  impl_->pending.clear();
}

Result<std::unique_ptr<RemoteRuntime>> RemoteRuntime::create(Loop& loop, const fs::path& socket) {
  if (socket.string().size() >= sizeof(sockaddr_un::sun_path)) {
    return fail(Code::kInvalid, "connect to '" + socket.string() + "': path longer than 107 bytes");
  }
  auto impl = std::make_shared<Impl>(loop, socket);
  TRY(impl->begin());
  return std::unique_ptr<RemoteRuntime>(new RemoteRuntime(std::move(impl)));
}

void RemoteRuntime::version(Done<std::string> done) {
  impl_->call({{"call", "version"}}, text(std::move(done)));
}
void RemoteRuntime::ensure_image(const std::string& image, bool pull, Done<std::string> done) {
  impl_->call({{"call", "ensureImage"}, {"image", image}, {"pull", pull}}, text(std::move(done)));
}
void RemoteRuntime::run_sandbox(const SandboxSpec& spec, Done<void> done) {
  impl_->call({{"call", "runSandbox"}, {"spec", to_json(spec)}}, plain(std::move(done)));
}
void RemoteRuntime::remove_sandbox(const std::string& uid, Done<void> done) {
  impl_->call({{"call", "removeSandbox"}, {"uid", uid}}, plain(std::move(done)));
}
void RemoteRuntime::start_container(const ContainerSpec& spec, Done<std::string> done) {
  impl_->call({{"call", "startContainer"}, {"spec", to_json(spec)}}, text(std::move(done)));
}
void RemoteRuntime::stop_container(const std::string& id, Duration grace, Done<void> done) {
  impl_->call({{"call", "stopContainer"}, {"container", id}, {"grace", grace.count()}},
              plain(std::move(done)));
}
void RemoteRuntime::remove_container(const std::string& id, Done<void> done) {
  impl_->call({{"call", "removeContainer"}, {"container", id}}, plain(std::move(done)));
}

namespace {

JsonArray words_of(const std::vector<std::string>& argv) {
  JsonArray list;
  for (const std::string& arg : argv) list.emplace_back(arg);
  return list;
}

RemoteRuntime::Impl::Answer exit_state(Runtime::Done<ExitState> done) {
  return [done = std::move(done)](Result<Json> answer) {
    if (!answer) return done(fail(std::move(answer).error()));
    done(ExitState{static_cast<int>(get_int(*answer, {"code"})),
                   static_cast<int>(get_int(*answer, {"signal"})), str(get_string(*answer, {"out"})),
                   str(get_string(*answer, {"err"}))});
  };
}

}  // namespace

void RemoteRuntime::exec(const std::string& id, const std::vector<std::string>& argv, Duration limit,
                         Done<ExitState> done) {
  impl_->call({{"call", "exec"}, {"container", id}, {"argv", words_of(argv)}, {"limit", limit.count()}},
              exit_state(std::move(done)));
}

void RemoteRuntime::exec_stream(const std::string& id, const std::vector<std::string>& argv,
                                ExecStreams streams, Done<ExitState> done) {
  JsonArray names;
  std::vector<Fd> files;
  const auto pass = [&](const char* name, Fd& fd) {
    if (!fd) return;
    names.emplace_back(name);
    files.push_back(std::move(fd));
  };
  pass("in", streams.in);
  pass("out", streams.out);
  pass("err", streams.err);
  pass("console", streams.console);
  impl_->call(
      {{"call", "execStream"}, {"container", id}, {"argv", words_of(argv)}, {"files", std::move(names)}},
      exit_state(std::move(done)), std::move(files));
}

void RemoteRuntime::list(Done<std::vector<ContainerInfo>> done) {
  impl_->call({{"call", "list"}}, [done = std::move(done)](Result<Json> answer) {
    if (!answer) return done(fail(std::move(answer).error()));
    std::vector<ContainerInfo> out;
    if (answer->is_array()) {
      for (const Json& item : answer->get_array()) out.push_back(info_from_json(item));
    }
    done(std::move(out));
  });
}

void RemoteRuntime::list_sandboxes(Done<std::vector<SandboxSpec>> done) {
  impl_->call({{"call", "listSandboxes"}}, [done = std::move(done)](Result<Json> answer) {
    if (!answer) return done(fail(std::move(answer).error()));
    std::vector<SandboxSpec> out;
    if (answer->is_array()) {
      for (const Json& item : answer->get_array()) out.push_back(sandbox_from_json(item));
    }
    done(std::move(out));
  });
}

void RemoteRuntime::on_change(std::function<void(const ContainerInfo&)> changed) {
  impl_->changed = std::move(changed);
}

void RemoteRuntime::on_available(std::function<void(bool)> available) {
  impl_->available = std::move(available);
  std::weak_ptr<Impl> weak = impl_;
  impl_->loop.post([weak] {
    auto impl = weak.lock();
    if (impl) impl->tell(impl->connection != nullptr);
  });
}

bool RemoteRuntime::available() const {
  return impl_->connection != nullptr;
}

}  // namespace gpuop::cluster
