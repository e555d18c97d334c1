// The server's store on disk: commits, and what happens when one fails.
#include "base/log.h"
#include "base/text.h"
#include "cluster/apiserver/server.h"
#include "cluster/apiserver/watch.h"
#include "kube/object.h"

namespace gpuop::cluster::api {

namespace {

constexpr int kMostTurns = 16;

// As the real server says what its etcd says.
Status not_stored(const Error& why) {
  std::string text =
      why.code() == Code::kNoSpace ? "etcdserver: mvcc: database space exceeded: " : "etcdserver: ";
  Status status = refuse(500, "InternalError", text + why.text()).error();
  return status;
}

HttpResponse response_of(const Status& status) {
  HttpResponse response = HttpResponse::json(status.code, to_text(status.json()));
  if (status.retry_after > 0) response.headers["Retry-After"] = std::to_string(status.retry_after);
  return response;
}

// Commits after everything that is ready, and what comes while that is worked on: clients that were answered
// together write again nearly together, and share one write to the disk again.
void commit_when_quiet(const std::weak_ptr<Server>& server, std::uint64_t seen, int turns) {
  auto self = server.lock();
  if (!self) return;
  std::uint64_t now = self->store.version();
  if (now == seen || turns == 0) return self->commit_store();
  self->loop.post([server, now, turns] { commit_when_quiet(server, now, turns - 1); });
}

}  // namespace

Result<> Server::open_store() {
  std::shared_ptr<FileLayer> files = options.files;
  if (!files && options.data_dir.empty()) return {};
  if (!files) files = TRY(open_data_folder(options.data_dir));
  gate = std::make_shared<Gate>([this] { return store.pending(); });
  TRY(store.open({.files = files,
                  .rotate_bytes = options.rotate_bytes,
                  .ahead_bytes = options.ahead_bytes,
                  .salt = options.seed}));
  // Names and identities made from now on differ from those of the last run.
  if (options.seed != 0) random = Random(options.seed + store.version() * 0x9e3779b97f4a7c15ULL);
  store.on_pending(
      [this] { loop.post([weak = weak_from_this()] { commit_when_quiet(weak, 0, kMostTurns); }); });
  derive();
  return {};
}

void Server::derive() {
  std::erase_if(types, [](const auto& entry) { return entry.second->custom != nullptr; });
  for (const auto& [key, crd] : store.collection("apiextensions.k8s.io/customresourcedefinitions").objects())
    load_crd(crd->value());
  types_changed();
  event_ages.clear();
  for (const auto& [key, event] : store.collection("/events").objects()) event_ages.emplace_back(now(), key);
}

void Server::commit_store() {
  if (!gate) return;
  if (Result<> done = store.commit(); !done) return writes_lost(done.error());
  gate->release();
  if (store.wants_snapshot()) snapshot_soon();
}

void Server::writes_lost(const Error& why) {
  log::warn("changes could not be kept and are undone", {{"why", why}});
  derive();
  Status lost = not_stored(why);
  Status again = refuse(503, "ServiceUnavailable", lost.message).error();
  again.retry_after = 1;
  gate->refuse([&](bool writes) { return response_of(writes ? lost : again); });
  // Watches may have been told of what is not so any more; their clients come back with what they know.
  std::vector<WatchStream*> open(streams.begin(), streams.end());
  for (WatchStream* stream : open) stream->cut();
}

Answer<> Server::can_store(const Call& call) {
  if (!gate || call.http.method == "GET" || call.type->create_only || call.sub == "token") return {};
  Result<> can = store.writable();
  if (can) return {};
  return std::unexpected(not_stored(can.error()));
}

void Server::snapshot_soon() {
  if (snapshot_due_) return;
  snapshot_due_ = true;
  loop.post([weak = weak_from_this()] {
    auto self = weak.lock();
    if (!self || !self->gate) return;
    self->snapshot_due_ = false;
    if (Result<> step = self->store.snapshot_step(); !step)
      log::warn("write a snapshot", {{"why", step.error()}});
    if (self->store.wants_snapshot()) self->snapshot_soon();
  });
}

void Server::close_store() {
  if (!gate) return;
  commit_store();
  gate->open();
  gate.reset();
}

void Server::cool_soon() {
  if (std::exchange(cooling_, true)) return;
  loop.post([weak = weak_from_this()] {
    auto self = weak.lock();
    if (!self) return;
    self->cooling_ = false;
    self->store.hot().trim();
  });
}

}  // namespace gpuop::cluster::api
