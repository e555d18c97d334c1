#include "cluster/kubelet/pod_volumes.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>

#include "base/files.h"
#include "base/log.h"
#include "base/text.h"
#include "kube/object.h"

namespace gpuop::cluster {

namespace {

// The folder of a volume's kind beneath pods/UID/volumes; empty for kinds that have none.
std::string_view plugin_folder(const Json& volume) {
  if (has(volume, {"configMap"})) return "kubernetes.io~configmap";
  if (has(volume, {"secret"})) return "kubernetes.io~secret";
  if (has(volume, {"downwardAPI"})) return "kubernetes.io~downward-api";
  if (has(volume, {"projected"})) return "kubernetes.io~projected";
  if (has(volume, {"emptyDir"})) return "kubernetes.io~empty-dir";
  return {};
}

std::string kind_of(const Json& volume) {
  if (volume.is_object()) {
    for (const auto& item : volume.get_object()) {
      if (item.key() != "name") return str(item.key());
    }
  }
  return "emptyDir";
}

mode_t default_mode(const Json& source) {
  return static_cast<mode_t>(get_int(source, {"defaultMode"}, 0644));
}

Result<> check_type(const std::string& type, const std::string& path,
                    const std::optional<struct stat>& info) {
  auto wrong = [&](const char* what) {
    return fail(Code::kInvalid, "hostPath type check failed: " + path + " is not a " + what);
  };
  const mode_t mode = info ? info->st_mode : 0;
  if (type == "Directory" || type == "DirectoryOrCreate") {
    if (!S_ISDIR(mode)) return wrong("directory");
  } else if (type == "File" || type == "FileOrCreate") {
    if (!S_ISREG(mode)) return wrong("file");
  } else if (type == "Socket") {
    if (!S_ISSOCK(mode)) return wrong("socket file");
  } else if (type == "CharDevice") {
    if (!S_ISCHR(mode)) return wrong("character device");
  } else if (type == "BlockDevice") {
    if (!S_ISBLK(mode)) return wrong("block device");
  }
  return {};
}

std::optional<struct stat> stat_in(const Root& root, const std::string& path) {
  auto fd = root.open_at(path, O_PATH | O_CLOEXEC);
  struct stat info{};
  if (!fd || ::fstat(fd->get(), &info) != 0) return std::nullopt;
  return info;
}

Propagation propagation_of(std::string_view name) {
  if (name == "Bidirectional") return Propagation::kBidirectional;
  if (name == "HostToContainer") return Propagation::kHostToContainer;
  return Propagation::kPrivate;
}

}  // namespace

PodVolumes::PodVolumes(KubeletContext& context, std::shared_ptr<const Json> pod,
                       std::function<void()> changed)
    : context_(context), pod_(std::move(pod)), changed_(std::move(changed)) {
  for (const Json& item : get_array(*pod_, {"spec", "volumes"})) {
    auto volume = std::make_unique<Volume>();
    volume->name = str(get_string(item, {"name"}));
    const std::string_view folder = plugin_folder(item);
    if (has(item, {"hostPath"})) {
      volume->path = str(get_string(item, {"hostPath", "path"}));
    } else {
      volume->path = context_.pod_dir(str(kube::uid_of(*pod_))) / "volumes" /
                     (folder.empty() ? "kubernetes.io~empty-dir" : std::string(folder)) / volume->name;
    }
    volumes_.push_back(std::move(volume));
  }
}

PodVolumes::~PodVolumes() = default;

std::string PodVolumes::pod_ns() const {
  return str(kube::namespace_of(*pod_));
}

const Json& PodVolumes::source(const Volume& volume) const {
  for (const Json& item : get_array(*pod_, {"spec", "volumes"})) {
    if (get_string(item, {"name"}) == volume.name) return item;
  }
  static const Json none;
  return none;
}

void PodVolumes::start() {
  for (const auto& volume : volumes_) evaluate(*volume);
}

void PodVolumes::update(std::shared_ptr<const Json> pod) {
  const bool same =
      get_object(*pod, {"metadata", "labels"}) == get_object(*pod_, {"metadata", "labels"}) &&
      get_object(*pod, {"metadata", "annotations"}) == get_object(*pod_, {"metadata", "annotations"});
  pod_ = std::move(pod);
  if (same) return;
  for (const auto& volume : volumes_) {
    if (volume->active) evaluate(*volume);
  }
}

void PodVolumes::stop() {
  for (const auto& volume : volumes_) {
    volume->watches.clear();
    volume->tokens.clear();
    volume->retry.reset();
    volume->dir_watch.reset();
  }
  told_.reset();
}

bool PodVolumes::ready() const {
  return std::ranges::all_of(volumes_,
                             [](const auto& volume) { return volume->state == Volume::State::kReady; });
}

std::vector<std::string> PodVolumes::problems() const {
  std::vector<std::string> out;
  for (const auto& volume : volumes_) {
    if (volume->state == Volume::State::kFailed) {
      out.push_back("MountVolume.SetUp failed for volume \"" + volume->name + "\" : " + volume->problem);
    }
  }
  return out;
}

void PodVolumes::tell() {
  if (told_) return;
  told_ = context_.loop.after(Duration::zero(), [this] {
    told_.reset();
    changed_();
  });
}

void PodVolumes::watch_object(Volume& volume, ObjectKind kind, const std::string& name) {
  volume.watches.push_back(
      context_.objects.watch(kind, pod_ns(), name, [this, &volume] { evaluate(volume); }));
}

void PodVolumes::watch_source(Volume& volume, const Json& source) {
  if (const Json* ref = find(source, {"configMap"})) {
    watch_object(volume, ObjectKind::kConfigMap, str(get_string(*ref, {"name"})));
  }
  if (const Json* ref = find(source, {"secret"})) {
    // A volume says secretName, a projected source says name.
    const std::string_view name = get_string(*ref, {"secretName"});
    watch_object(volume, ObjectKind::kSecret, str(name.empty() ? get_string(*ref, {"name"}) : name));
  }
}

void PodVolumes::evaluate(Volume& volume) {
  const Json& spec = source(volume);
  if (!volume.active) {
    volume.active = true;
    watch_source(volume, spec);
    for (const Json& part : get_array(spec, {"projected", "sources"})) watch_source(volume, part);
  }
  const auto outcome = set_up(volume);
  // A volume that was ready stays usable whatever becomes of its source, as on a real node.
  if (volume.state == Volume::State::kReady) {
    if (!outcome) log::warn("volume is not updated", {{"volume", volume.name}, {"error", outcome.error()}});
    return;
  }
  const auto state = !outcome                      ? Volume::State::kFailed
                     : *outcome == Outcome::kReady ? Volume::State::kReady
                                                   : Volume::State::kPending;
  const std::string problem = outcome ? std::string() : outcome.error().text();
  if (!outcome) {
    try_again(volume, spec);
  } else {
    // Let go of the folder's watch on a later turn: it may be the one that called.
    volume.retry = context_.loop.after(Duration::zero(), [&volume] { volume.dir_watch.reset(); });
  }
  if (state == volume.state && problem == volume.problem) return;
  volume.state = state;
  volume.problem = problem;
  tell();
}

Result<PodVolumes::Outcome> PodVolumes::set_up(Volume& volume) {
  const Json& spec = source(volume);
  if (const Json* host = find(spec, {"hostPath"})) return host_path(volume, *host);
  if (kind_of(spec) == "emptyDir") return empty_dir(volume, get_object(spec, {"emptyDir"}));
  if (!plugin_folder(spec).empty()) return set_up_files(volume, spec);
  return fail(Code::kUnsupported, "volumes of type " + kind_of(spec) + " are not offered by this node");
}

Result<PodVolumes::Outcome> PodVolumes::set_up_files(Volume& volume, const Json& spec) {
  Payload payload;
  for (const auto& [field, kind] :
       {std::pair{"configMap", ObjectKind::kConfigMap}, std::pair{"secret", ObjectKind::kSecret}}) {
    const Json* ref = find(spec, {field});
    if (ref == nullptr) continue;
    const std::string name = str(get_string(*ref, {kind == ObjectKind::kSecret ? "secretName" : "name"}));
    const ObjectView view = context_.objects.get(kind, pod_ns(), name);
    if (!view.known) return Outcome::kWait;
    TRY(add_object_files(payload, kind, *ref, name, view, default_mode(*ref)));
  }
  if (const Json* downward = find(spec, {"downwardAPI"})) {
    TRY(add_downward_files(payload, *downward, *pod_, context_.node, default_mode(*downward)));
  }
  if (const Json* sources = find(spec, {"projected"})) {
    if (TRY(projected(volume, *sources, payload)) == Outcome::kWait) return Outcome::kWait;
  }
  if (context_.on_disk()) {
    // The dated name is unique over restarts by the time, within a run by the number.
    std::string stamp = ".." + format_time(context_.loop.now()) + "." + std::to_string(++stamps_);
    TRY(write_payload(context_.here(volume.path), payload, replace_all(std::move(stamp), ":", "_")));
  }
  return Outcome::kReady;
}

Result<PodVolumes::Outcome> PodVolumes::projected(Volume& volume, const Json& source, Payload& payload) {
  const mode_t mode = default_mode(source);
  Outcome outcome = Outcome::kReady;
  const JsonArray& sources = get_array(source, {"sources"});
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const Json& part = sources[i];
    for (const auto& [field, kind] :
         {std::pair{"configMap", ObjectKind::kConfigMap}, std::pair{"secret", ObjectKind::kSecret}}) {
      const Json* ref = find(part, {field});
      if (ref == nullptr) continue;
      const std::string name = str(get_string(*ref, {"name"}));
      const ObjectView view = context_.objects.get(kind, pod_ns(), name);
      if (!view.known) {
        outcome = Outcome::kWait;
        continue;
      }
      TRY(add_object_files(payload, kind, *ref, name, view, mode));
    }
    if (const Json* downward = find(part, {"downwardAPI"})) {
      TRY(add_downward_files(payload, *downward, *pod_, context_.node, mode));
    }
    if (const Json* wanted = find(part, {"serviceAccountToken"})) {
      if (TRY(token(volume, i, *wanted, payload)) == Outcome::kWait) outcome = Outcome::kWait;
    }
    if (has(part, {"clusterTrustBundle"}) && !get_bool(part, {"clusterTrustBundle", "optional"})) {
      return fail(Code::kUnsupported, "clusterTrustBundle sources are not offered by this node");
    }
  }
  return outcome;
}

Result<PodVolumes::Outcome> PodVolumes::token(Volume& volume, std::size_t index, const Json& source,
                                              Payload& payload) {
  Token& token = volume.tokens[index];
  const std::string path = str(get_string(source, {"path"}));
  if (!token.text.empty()) {
    payload[path] = {token.text, default_mode(get_object(this->source(volume), {"projected"}))};
    return Outcome::kReady;
  }
  if (!token.problem.empty()) {
    return fail(Code::kUnavailable, "failed to fetch token: " + token.problem);
  }
  if (!token.request) request_token(volume, index, source);
  return Outcome::kWait;
}

void PodVolumes::request_token(Volume& volume, std::size_t index, const Json& source) {
  const std::string account = str(get_string(*pod_, {"spec", "serviceAccountName"}, "default"));
  JsonArray audiences;
  if (const std::string_view audience = get_string(source, {"audience"}); !audience.empty()) {
    audiences.emplace_back(audience);
  }
  const Json body =
      JsonObject{{"apiVersion", "authentication.k8s.io/v1"},
                 {"kind", "TokenRequest"},
                 {"spec", JsonObject{{"audiences", std::move(audiences)},
                                     {"expirationSeconds", get_int(source, {"expirationSeconds"}, 3600)},
                                     {"boundObjectRef", JsonObject{{"apiVersion", "v1"},
                                                                   {"kind", "Pod"},
                                                                   {"name", kube::name_of(*pod_)},
                                                                   {"uid", kube::uid_of(*pod_)}}}}}};
  HttpRequest request;
  request.method = "POST";
  request.path = kube::kServiceAccounts.path(pod_ns(), account, "token");
  request.headers["Content-Type"] = "application/json";
  request.headers["Accept"] = "application/json";
  request.body = to_text(body);
  volume.tokens[index].request = context_.client.raw(
      std::move(request), [this, &volume, index, source = source](kube::ApiResult<HttpResponse> answer) {
        token_came(volume, index, source, std::move(answer));
      });
}

void PodVolumes::token_came(Volume& volume, std::size_t index, const Json& source,
                            kube::ApiResult<HttpResponse> answer) {
  Token& token = volume.tokens[index];
  token.request.reset();
  std::string problem;
  Duration next{};
  if (!answer) {
    problem = answer.error().message;
  } else if (auto body = parse_json(answer->body); !body) {
    problem = body.error().text();
  } else {
    token.text = str(get_string(*body, {"status", "token"}));
    const auto expires = parse_time(get_string(*body, {"status", "expirationTimestamp"}));
    const Duration life = expires
                              ? *expires - context_.loop.now()
                              : Duration(std::chrono::seconds(get_int(source, {"expirationSeconds"}, 3600)));
    // Renewed at 80 % of its life, and once a day at least.
    next = std::min<Duration>(life * 4 / 5, std::chrono::hours(24));
    if (token.text.empty()) problem = "the answer holds no token";
  }
  if (problem.empty()) {
    token.backoff.reset();
  } else {
    next = token.backoff.next();
  }
  token.problem = token.text.empty() ? problem : std::string();
  token.refresh =
      context_.loop.after(std::max<Duration>(next, std::chrono::seconds(1)),
                          [this, &volume, index, source] { request_token(volume, index, source); });
  evaluate(volume);
}

Result<PodVolumes::Outcome> PodVolumes::empty_dir(Volume& volume, const Json& source) {
  if (!context_.on_disk()) return Outcome::kReady;
  const auto dir = context_.here(volume.path);
  TRY(make_dirs(dir));
  if (::chmod(dir.c_str(), 0777) != 0) return fail(errno_error("chmod '" + dir.string() + "'", errno));
  if (get_string(source, {"medium"}) == "Memory") {
    const Json* limit = find(source, {"sizeLimit"});
    TRY(mount_tmpfs(dir, limit != nullptr ? TRY(kube::parse_quantity(*limit)) : 0));
  }
  return Outcome::kReady;
}

Result<PodVolumes::Outcome> PodVolumes::host_path(Volume& volume, const Json& source) {
  if (!context_.on_disk() || volume.state == Volume::State::kReady) return Outcome::kReady;
  const std::string path = str(get_string(source, {"path"}));
  const std::string type = str(get_string(source, {"type"}));
  const Root root = TRY(Root::open(context_.options.node_root));
  auto info = stat_in(root, path);
  // Without a type nothing is asked, and the runtime makes a missing folder.
  if (!info && (type.empty() || type == "DirectoryOrCreate")) {
    TRY(root.make_dirs(path));
    info = stat_in(root, path);
  } else if (!info && type == "FileOrCreate") {
    TRY(root.open_at(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
    info = stat_in(root, path);
  }
  TRY(check_type(type, path, info));
  return Outcome::kReady;
}

// A failed volume is tried again when its host path's folder changes, and with back-off for what nothing
// tells of.
void PodVolumes::try_again(Volume& volume, const Json& spec) {
  const std::string path = str(get_string(spec, {"hostPath", "path"}));
  if (!path.empty() && context_.loop.mode() == Loop::Mode::kReal && !volume.dir_watch) {
    auto watch = DirWatch::create(context_.loop, context_.here(std::filesystem::path(path).parent_path()),
                                  [this, &volume] {
                                    if (volume.state == Volume::State::kFailed) evaluate(volume);
                                  });
    if (watch) volume.dir_watch = std::move(*watch);
  }
  volume.retry = context_.loop.after(volume.backoff.next(), [this, &volume] { evaluate(volume); });
}

Result<std::vector<RuntimeMount>> PodVolumes::mounts(const Json& container,
                                                     const std::map<std::string, std::string>& env) const {
  std::vector<RuntimeMount> out;
  for (const Json& item : get_array(container, {"volumeMounts"})) {
    const std::string name = str(get_string(item, {"name"}));
    const auto volume = std::ranges::find(volumes_, name, [](const auto& v) { return v->name; });
    if (volume == volumes_.end()) {
      return fail(Code::kNotFound, "volume \"" + name + "\" of a volumeMount not found in the pod");
    }
    RuntimeMount mount;
    mount.container_path = str(get_string(item, {"mountPath"}));
    if (!mount.container_path.starts_with('/')) mount.container_path.insert(0, "/");
    mount.read_only = get_bool(item, {"readOnly"});
    mount.propagation = propagation_of(get_string(item, {"mountPropagation"}));
    std::string sub = str(get_string(item, {"subPath"}));
    if (const std::string_view expr = get_string(item, {"subPathExpr"}); !expr.empty())
      sub = expand(expr, env);
    std::filesystem::path path = (*volume)->path;
    if (!sub.empty()) {
      for (const std::string& part : split(sub, '/')) {
        if (part == "..") return fail(Code::kInvalid, "subPath must not contain '..': " + sub);
      }
      path /= std::filesystem::path(sub).relative_path();
    }
    if (context_.on_disk()) {
      const Root root = TRY(Root::open(context_.options.node_root));
      if (!sub.empty() && !root.exists(path)) TRY(root.make_dirs(path, 0750));
      const auto real = TRY(root.resolve(path));
      const auto base = TRY(root.resolve((*volume)->path));
      // A link inside the volume must not lead a subPath out of it.
      const auto inside = real.lexically_relative(base).string();
      if (!sub.empty() && (inside == ".." || inside.starts_with("../"))) {
        return fail(Code::kInvalid, "subPath \"" + sub + "\" leads out of volume \"" + name + "\"");
      }
      path = real;
    }
    mount.host_path = path.string();
    out.push_back(std::move(mount));
  }
  // A mount comes after those that it lies in; equal depths keep the pod's order.
  std::map<std::pair<long, std::size_t>, RuntimeMount> by_depth;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const long depth = out[i].container_path == "/" ? 0 : std::ranges::count(out[i].container_path, '/');
    by_depth.emplace(std::pair(depth, i), std::move(out[i]));
  }
  out.clear();
  for (auto& [key, mount] : by_depth) out.push_back(std::move(mount));
  return out;
}

}  // namespace gpuop::cluster
