#include "telemetry/exporter.h"

#include <zlib.h>

#include <algorithm>

#include "base/files.h"
#include "base/http_server.h"
#include "base/inotify.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "telemetry/events.h"
#include "telemetry/jobs.h"
#include "telemetry/page.h"
#include "telemetry/pod_watch.h"
#include "telemetry/sampler.h"
#include "telemetry/web_config.h"

namespace gpuop::telemetry {
namespace {

constexpr Duration kPodLimit = 10s;
constexpr Duration kPodCache = 1s;
constexpr Duration kDebounce = 200ms;
constexpr Duration kFileCheck = 30s;  // a change that inotify did not tell of
constexpr Duration kWarmUp = 1s;      // the second reading, from which on there are rates
constexpr Duration kHealthWindow = 60s;
constexpr Duration kRepeatWarning = 5min;

constexpr const char* kPageType = "text/plain; version=0.0.4; charset=utf-8";
constexpr const char* kRootPage =
    "<html><head><title>GPU Exporter</title></head><body><h1>GPU Exporter</h1>"
    "<p><a href=\"/metrics\">Metrics</a></p><p><a href=\"/health\">Health</a></p></body></html>\n";

bool accepts_gzip(const HttpRequest& request) {
  for (const std::string& item : split(request.header("Accept-Encoding"), ',')) {
    auto parts = split(item, ';');
    if (trim(parts[0]) != "gzip" && trim(parts[0]) != "*") continue;
    return parts.size() < 2 || (trim(parts[1]) != "q=0" && trim(parts[1]) != "q=0.0");
  }
  return false;
}

std::optional<std::string> gzip(const std::string& text) {
  z_stream stream{};
  constexpr int kGzip = 15 + 16;
  if (deflateInit2(&stream, Z_BEST_SPEED, Z_DEFLATED, kGzip, 8, Z_DEFAULT_STRATEGY) != Z_OK)
    return std::nullopt;
  std::string out(deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  int code = deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return code == Z_STREAM_END ? std::optional(std::move(out)) : std::nullopt;
}

std::vector<std::string> uuids_of(const Snapshot& snapshot) {
  std::vector<std::string> uuids;
  for (const GpuFacts& gpu : snapshot.gpus) uuids.push_back(gpu.uuid);
  return uuids;
}

}  // namespace

struct Exporter::Impl {
  struct Waiting {
    std::shared_ptr<HttpResponder> responder;
    bool zipped = false;
  };

  Impl(Loop& l, ExporterInputs i, std::function<void(const Error&)> f)
      : loop(l), in(std::move(i)), fatal(std::move(f)) {
    const Options& options = in.options;
    style.host_label = options.host_label;
    style.host = host_label_value(options, in.node_name, in.local_name);
    style.old_namespace = options.old_namespace;
    style.pod_uid = options.pod_uid;
    style.virtual_gpus = options.virtual_gpus;
    style.join_model_name = options.join_model_name;
    interval = std::chrono::milliseconds(options.interval_ms);
  }

  // --- collectors ---

  bool from_config_map() const { return in.options.configmap_data != "none"; }

  // The ConfigMap's text, kept up to date by its watch.
  std::string collectors_name() const {
    return from_config_map() ? "ConfigMap " + in.options.configmap_data : in.options.collectors;
  }

  Result<CounterSet> load_counters() const {
    if (in.options.inline_counters) return *in.options.inline_counters;
    const std::string file = collectors_name();
    if (from_config_map()) return parse_counters(file_text, file);
    return parse_counters(TRY_IN(read_file(file, 16u << 20), "read collectors '" + file + "'"), file);
  }

  void use_counters(CounterSet set) {
    for (const std::string& warning : set.warnings) log::warn("collectors: " + warning);
    wanted = std::move(set);
    counters = wanted;
    profiling_decided.reset();
    if (snapshot) decide_profiling(*snapshot);
  }

  // Profiling families exist where some GPU has GPM; asked again when the GPUs change.
  void decide_profiling(const Snapshot& shot) {
    bool offered = std::ranges::any_of(shot.gpus, &GpuFacts::gpm);
    if (profiling_decided == offered) return;
    profiling_decided = offered;
    counters = wanted;
    if (offered) return;
    for (const std::string& warning : drop_profiling(counters)) log::warn(warning);
  }

  ReadPlan plan() const {
    ReadPlan plan;
    for (int id : counters.ids())
      if (id < kXidCount) plan.fields.push_back(id);
    if (counters.has(kClockEventsCount) || counters.has(kClockEventsTotal))
      plan.fields.push_back(kClockReasonsField);
    std::ranges::sort(plan.fields);
    plan.fields.erase(std::ranges::unique(plan.fields).begin(), plan.fields.end());
    plan.health = counters.has(kHealthStatus);
    plan.p2p = counters.has(kP2pStatus);
    plan.processes = in.options.virtual_gpus && pod_watch;
    return plan;
  }

  void reload() {
    if (!from_config_map()) file_text = read_file(in.options.collectors).value_or("");
    auto set = load_counters();
    if (!set) {
      reload_failed = true;
      log::error("collectors are kept as they were: " + set.error().text());
      return;
    }
    reload_failed = false;
    use_counters(std::move(*set));
    log::info("collectors read", {{"families", counters.families.size()}, {"file", collectors_name()}});
    // Until what is new was read, the page is the old one.
    reloading = true;
    cycle();
  }

  void check_file() {
    auto text = read_file(in.options.collectors);
    if (text && *text != file_text) reload();
  }

  void watch_file() {
    if (in.options.inline_counters || from_config_map()) return;
    file_text = read_file(in.options.collectors).value_or("");
    auto changed = [this] { debounce = loop.after(kDebounce, [this] { check_file(); }); };
    auto watch = DirWatch::create(loop, fs::path(in.options.collectors).parent_path(), changed);
    if (watch) {
      file_watch = std::move(*watch);
    } else {
      log::warn("changes of the collectors are seen late: " + watch.error().text());
    }
    check_again();
  }
  void check_again() {
    file_timer = loop.after(kFileCheck, [this] {
      check_file();
      check_again();
    });
  }

  // The ConfigMap must be there at the start; later only its changes count.
  void watch_config_map() {
    auto parts = split(in.options.configmap_data, ':');
    kube::InformerOptions options;
    options.ns = parts[0];
    options.field_selector = "metadata.name=" + parts[1];
    options.keep = {"data"};
    config_map = std::make_unique<kube::Informer>(*in.client, kube::kConfigMaps, std::move(options));
    config_map->on_change([this](const auto&, const std::shared_ptr<const Json>& now) {
      if (!now || !config_map->synced()) return;
      file_text = get_string(*now, {"data", "metrics"});
      reload();
    });
    config_map->on_synced([this, parts] {
      const std::string doing = "read collectors '" + collectors_name() + "'";
      auto object = config_map->get(kube::object_key(parts[0], parts[1]));
      if (!object) return fatal(Error(Code::kNotFound, doing + ": there is no such ConfigMap"));
      if (!find(*object, {"data", "metrics"}))
        return fatal(Error(Code::kNotFound, doing + ": it has no key 'metrics'"));
      file_text = get_string(*object, {"data", "metrics"});
      auto set = load_counters();
      if (!set) return fatal(set.error());
      use_counters(std::move(*set));
      cycle();
    });
    config_map->start();
  }

  // --- sampling ---

  void cycle() {
    timer = loop.after(readings < 2 ? std::min(kWarmUp, interval) : interval, [this] { cycle(); });
    // A driver that does not answer: the next beat asks again, and old figures are withheld meanwhile.
    if (!sampler->busy()) sampler->cycle(plan());
  }

  void read_done(Result<std::shared_ptr<const Snapshot>> shot) {
    last_cycle = loop.elapsed();
    if (!shot) {
      warn_again(nvml_warned, "the GPUs cannot be read: " + shot.error().text());
      snapshot.reset();
      watched.clear();
      events.reset();
      return;
    }
    nvml_warned.reset();
    const Snapshot& now = **shot;
    for (const std::string& warning : now.warnings) warn_again(gpu_warned[warning], warning);
    bool topology = !snapshot || now.gpus != snapshot->gpus;
    if (snapshot) clear_after_reset(*snapshot, now);
    snapshot = *shot;
    snapshot_at = last_cycle;
    ++readings;
    reloading = false;
    if (topology && !topology_changed()) return;
    history.add_snapshot(
        now, last_cycle,
        std::max<Duration>(std::chrono::milliseconds(in.options.clock_window_ms), kHealthWindow));
    history.forget_before(
        last_cycle - std::max<Duration>(std::chrono::milliseconds(in.options.xid_window_ms), kHealthWindow),
        {});
  }

  // A GPU that comes back was reset or its driver loaded again: its latest XID is history.
  void clear_after_reset(const Snapshot& before, const Snapshot& now) {
    for (const GpuFacts& gpu : now.gpus) {
      const GpuFacts* old = before.gpu(gpu.index);
      if (old && old->lost && !gpu.lost) history.clear_latest(gpu.uuid);
    }
  }

  // False: the exporter ends.
  bool topology_changed() {
    decide_profiling(*snapshot);
    selection = select(in.options.selector, snapshot->gpus);
    for (const std::string& missing : selection.missing) {
      if (readings > 1) {
        log::warn(missing);
        continue;
      }
      fatal(Error(Code::kNotFound, "flag '--devices': '" + in.options.devices + "': " + missing));
      return false;
    }
    std::size_t instances = 0;
    for (const GpuFacts& gpu : snapshot->gpus) instances += gpu.instances.size();
    log::info("watching GPUs", {{"gpus", snapshot->gpus.size()}, {"instances", instances}});
    auto uuids = uuids_of(*snapshot);
    if (uuids == watched) return true;
    watched = uuids;
    EventWatch::Callbacks callbacks;
    callbacks.xid = [this](XidEvent event) {
      event.at = loop.elapsed();
      log::warn("XID", {{"uuid", event.gpu_uuid}, {"xid", event.xid}, {"text", xid_text(event.xid)}});
      history.add_xid(event);
    };
    callbacks.mig_changed = [this] { cycle(); };
    events.reset();
    if (!uuids.empty())
      events = std::make_unique<EventWatch>(loop, in.nvml_library, uuids, std::move(callbacks));
    return true;
  }

  // --- scraping ---

  // Puts the configured headers on every answer.
  void send(HttpResponder& responder, HttpResponse response) const {
    for (const auto& [name, value] : web.headers) response.headers[name] = value;
    responder.send(std::move(response));
  }

  // False: it was answered that the request may not be served.
  bool admit(const HttpRequest& request, HttpResponder& responder) {
    check_web_config();
    if (!rate.allow(web, loop.elapsed())) {
      send(responder, HttpResponse::text(429, "Too Many Requests\n"));
      return false;
    }
    if (authorized(web, request, seen_users)) return true;
    auto response = HttpResponse::text(401, "Unauthorized\n");
    response.headers["WWW-Authenticate"] = "Basic";
    send(responder, std::move(response));
    return false;
  }

  void handle(const HttpRequest& request, std::shared_ptr<HttpResponder> responder) {
    if (!admit(request, *responder)) return;
    if (request.method != "GET" && request.method != "HEAD") {
      auto response = HttpResponse::text(405, "method not allowed\n");
      response.headers["Allow"] = "GET, HEAD";
      return send(*responder, std::move(response));
    }
    if (request.path == "/metrics") return scrape({std::move(responder), accepts_gzip(request)});
    if (request.path == "/health") return send(*responder, health(request.query));
    if (request.path == "/")
      return send(*responder, HttpResponse::text(200, kRootPage, "text/html; charset=utf-8"));
    send(*responder, HttpResponse::text(404, "404 page not found\n"));
  }

  bool sampling_hangs() const { return loop.elapsed() - last_cycle > 5 * interval + 30s; }

  HttpResponse health(const std::string& query) const {
    bool verbose = query == "verbose" || query.starts_with("verbose=") || query.starts_with("verbose&");
    auto response =
        HttpResponse::text(sampling_hangs() ? 503 : 200, sampling_hangs() ? "the driver does not answer"
                                                         : reloading && !snapshot ? "OK - reload in progress"
                                                                                  : "OK");
    if (verbose) {
      JsonObject answer{{"backend", "nvml"},
                        {"gpus", snapshot ? snapshot->gpus.size() : 0},
                        {"podResourcesSocket", in.options.kubernetes ? Json(pods_reached) : Json(nullptr)},
                        {"matchedDevices", matched},
                        {"unmatchedDevices", unmatched}};
      answer["lastSampleAgeSeconds"] =
          snapshot ? Json(std::chrono::duration<double>(loop.elapsed() - snapshot_at).count())
                   : Json(nullptr);
      response = HttpResponse::json(response.status, to_text(Json(std::move(answer))) + "\n");
    }
    response.headers["X-Registry-Available"] = snapshot ? "true" : "false";
    if (reloading) response.headers["X-Reload-In-Progress"] = "true";
    if (reload_failed) response.headers["X-Reload-Failed"] = "true";
    return response;
  }

  void scrape(Waiting scraper) {
    waiting.push_back(std::move(scraper));
    if (waiting.size() > 1) return;  // they all get the page that is being made
    if (!in.options.kubernetes || (pods_at && loop.elapsed() - *pods_at < kPodCache)) return answer();
    auto took = [this](Result<std::vector<podresources::Use>> listed) {
      if (listed) {
        pods_warned.reset();
        pods_reached = true;
        pods = std::move(*listed);
        pods_at = loop.elapsed();
      } else {
        warn_again(pods_warned, "no pods are added: " + listed.error().text());
        pods_reached = false;
        // Attribution that may be wrong is worse than none.
        pods.clear();
        pods_at.reset();
      }
      answer();
    };
    // A socket that is not there would be waited for.
    const std::string& socket = in.options.kubelet_socket;
    if (!file_exists(socket)) return took(fail(Code::kNotFound, "'" + socket + "': there is no such socket"));
    listing = pod_resources->list(kPodLimit, took);
  }

  // Figures that are too old are withheld: two beats without a reading.
  bool stale() const { return !snapshot || loop.elapsed() - snapshot_at > 2 * interval + 5s; }

  std::string page() {
    static const Snapshot kNothing;
    const Snapshot& shot = stale() ? kNothing : *snapshot;
    static const std::vector<EntityKey> kNoEntities;
    const auto& entities = stale() ? kNoEntities : selection.entities;
    std::map<EntityKey, std::uint64_t> latest;
    for (const EntityKey& entity : entities) {
      const GpuFacts* gpu = shot.gpu(entity.gpu);
      if (gpu) latest[entity] = history.latest_xid(*gpu, entity.gi);
    }
    auto own = own_samples(counters, shot, entities, history, loop.elapsed(),
                           {in.options.xid_window_ms, in.options.clock_window_ms});
    Attribution attribution;
    if (in.options.kubernetes) {
      AttributionRules rules{in.options.gpu_id_type == "device-name", in.options.resource_names};
      attribution = attribute(pods, shot.gpus, pod_watch ? pod_watch->metas() : PodMetas{}, rules);
      matched = attribution.matched;
      unmatched = attribution.unmatched.size();
      if (unmatched > 0 && attribution.uses.empty() && !shot.gpus.empty())
        warn_again(unmatched_warned, "pods have GPUs by ids that are none of this node's GPUs, such as '" +
                                         attribution.unmatched.front() + "'");
    }
    Page made = render_page({counters, shot, entities, latest, own, attribution.uses, jobs(), style});
    if (made.duplicates) log::warn("equal samples are left out", {{"samples", made.duplicates}});
    if (made.negative) log::warn("counters below zero are left out", {{"samples", made.negative}});
    if (made.shared && !shared_told) {
      shared_told = true;
      log::info("pods share GPUs: only the first of each GPU is shown without --kubernetes-virtual-gpus");
    }
    return std::move(made.text);
  }

  Jobs jobs() {
    if (in.options.hpc_dir.empty()) return {};
    auto read = read_jobs(in.options.hpc_dir);
    if (read) return std::move(*read);
    if (!jobs_told) log::error(read.error().text());
    jobs_told = true;
    return {};
  }

  void answer() {
    std::string text = page();
    std::optional<std::string> zipped;
    for (Waiting& scraper : std::exchange(waiting, {})) {
      HttpResponse response = HttpResponse::text(200, "", kPageType);
      response.headers["X-Content-Type-Options"] = "nosniff";
      response.headers["Vary"] = "Accept-Encoding";
      if (scraper.zipped && !zipped) zipped = gzip(text);
      if (scraper.zipped && zipped) {
        response.headers["Content-Encoding"] = "gzip";
        response.body = *zipped;
      } else {
        response.body = text;
      }
      send(*scraper.responder, std::move(response));
    }
  }

  // --- start and end ---

  Result<> start() {
    if (!from_config_map()) use_counters(TRY(load_counters()));
    for (const std::string& note : in.options.notes) log::warn(note);
    TRY(listen());
    watch_file();
    if (from_config_map() && !in.client)
      return fail(Code::kInvalid, "flag '--configmap-data' needs an API server");
    if (from_config_map()) watch_config_map();
    if (in.options.kubernetes && (in.options.pod_labels || in.options.pod_uid)) {
      LabelFilter filter;
      if (in.options.pod_labels)
        filter = TRY_IN(LabelFilter::create(in.options.pod_label_allowlist),
                        "flag '--kubernetes-pod-label-allowlist-regex'");
      if (in.client)
        pod_watch =
            std::make_unique<PodWatch>(*in.client, in.node_name, in.options.pod_labels, std::move(filter));
      else
        log::warn("no pod labels or UIDs are added: there is no API server to ask");
    }
    if (in.options.kubernetes)
      pod_resources = std::make_unique<podresources::Client>(loop, in.options.kubelet_socket);
    sampler = std::make_unique<Sampler>(
        loop, in.nvml_library,
        [this](Result<std::shared_ptr<const Snapshot>> shot) { read_done(std::move(shot)); });
    last_cycle = loop.elapsed();
    if (!from_config_map()) cycle();
    return {};
  }

  Result<WebConfig> load_web_config(TlsFiles& tls) const {
    const std::string& file = in.options.web_config_file;
    WebConfig config =
        TRY(parse_web_config(TRY_IN(read_file(file, 1u << 20), "read web configuration"), file));
    auto pem = [&](const std::string& path, const std::string& text) -> Result<std::string> {
      if (path.empty()) return text;
      fs::path whole = fs::path(file).parent_path() / path;  // as it stands where it is absolute
      return read_file(whole, 1u << 20);
    };
    tls.certificate = TRY(pem(config.cert_file, config.cert));
    tls.key = TRY(pem(config.key_file, config.key));
    if (config.verify_clients) tls.client_ca = TRY(pem(config.client_ca_file, config.client_ca));
    tls.client_required = config.require_clients;
    tls.tls13_only = config.tls13_only;
    return config;
  }

  // The file counts as it is at each request; a broken one is logged and the last good one stays.
  void check_web_config() {
    const std::string& file = in.options.web_config_file;
    if (file.empty()) return;
    // Certificates are files of their own: their names are known from the last good configuration.
    std::string now = stamp(file);
    for (const std::string& path : {web.cert_file, web.key_file, web.client_ca_file})
      if (!path.empty()) now += stamp(fs::path(file).parent_path() / path);
    if (now == web_stamp) return;
    web_stamp = now;
    TlsFiles tls;
    auto loaded = load_web_config(tls);
    if (loaded && loaded->tls != web.tls)
      loaded = fail(Code::kInvalid, "'" + file + "': TLS is turned on and off by a restart only");
    if (loaded && loaded->tls) {
      if (auto set = server->set_tls(std::move(tls)); !set) loaded = fail(set.error());
    }
    if (!loaded) return log::error("the web configuration stays as it was: " + loaded.error().text());
    web = std::move(*loaded);
  }

  static std::string stamp(const fs::path& path) {
    std::error_code error;
    auto time = fs::last_write_time(path, error).time_since_epoch().count();
    return std::to_string(time) + ":" + std::to_string(fs::file_size(path, error)) + ";";
  }

  Result<> listen() {
    HttpServerOptions options;
    if (!in.options.web_config_file.empty()) {
      TlsFiles tls;
      web = TRY(load_web_config(tls));
      for (const std::string& note : web.notes) log::warn(note);
      if (web.tls) options.tls = std::move(tls);
    }
    options.header_timeout = in.options.read_timeout();
    auto handler = [this](HttpRequest request, std::shared_ptr<HttpResponder> responder) {
      handle(request, std::move(responder));
    };
    if (in.listen_fd >= 0) {
      options.listen_fd = in.listen_fd;
      server = TRY(HttpServer::create(loop, std::move(options), handler));
      return {};
    }
    ListenAddress address = TRY(parse_listen(in.options.address));
    options.port = address.port;
    options.address = address.host == "localhost" ? "127.0.0.1" : address.host.empty() ? "::" : address.host;
    auto made = HttpServer::create(loop, options, handler);
    if (!made && address.host.empty()) {  // no IPv6 here
      options.address = "0.0.0.0";
      made = HttpServer::create(loop, options, handler);
    }
    server = TRY(std::move(made));
    log::info("serving", {{"address", in.options.address}, {"port", server->port()}});
    return {};
  }

  bool close(Duration limit) {
    server.reset();
    timer.reset();
    file_timer.reset();
    file_watch.reset();
    listing.reset();
    pod_resources.reset();
    pod_watch.reset();
    config_map.reset();
    bool closed = !sampler || sampler->close(limit);
    return (!events || events->close(limit)) && closed;
  }

  // Once, then every five minutes.
  void warn_again(std::optional<Duration>& last, const std::string& text) const {
    if (last && loop.elapsed() - *last < kRepeatWarning) return;
    last = loop.elapsed();
    log::warn(text);
  }

  Loop& loop;
  const ExporterInputs in;
  const std::function<void(const Error&)> fatal;
  PageStyle style;
  Duration interval{};

  CounterSet wanted;    // as the file has it
  CounterSet counters;  // of those what the GPUs can give
  std::optional<bool> profiling_decided;
  std::string file_text;
  bool reload_failed = false;
  bool reloading = false;

  std::unique_ptr<HttpServer> server;
  WebConfig web;
  std::string web_stamp;
  RateLimit rate;
  std::map<std::string, bool> seen_users;
  std::unique_ptr<DirWatch> file_watch;
  std::unique_ptr<kube::Informer> config_map;
  Handle debounce, file_timer, timer;

  std::unique_ptr<Sampler> sampler;
  std::unique_ptr<EventWatch> events;
  std::vector<std::string> watched;
  std::shared_ptr<const Snapshot> snapshot;
  Duration snapshot_at{};
  Duration last_cycle{};  // when a cycle ended; at first, when the exporter started
  int readings = 0;
  Selection selection;
  History history;

  std::unique_ptr<podresources::Client> pod_resources;
  std::unique_ptr<PodWatch> pod_watch;
  Handle listing;
  std::vector<podresources::Use> pods;
  std::optional<Duration> pods_at;
  std::vector<Waiting> waiting;
  bool pods_reached = false;
  std::size_t matched = 0;
  std::size_t unmatched = 0;

  std::optional<Duration> nvml_warned, pods_warned, unmatched_warned;
  std::map<std::string, std::optional<Duration>> gpu_warned;
  bool jobs_told = false;
  bool shared_told = false;
};

Exporter::Exporter(Loop& loop, ExporterInputs inputs, std::function<void(const Error&)> fatal)
    : impl_(std::make_unique<Impl>(loop, std::move(inputs), std::move(fatal))) {}
Exporter::~Exporter() = default;

Result<> Exporter::start() {
  return impl_->start();
}
void Exporter::reload() {
  impl_->reload();
}
bool Exporter::close(Duration limit) {
  return impl_->close(limit);
}
std::uint16_t Exporter::port() const {
  return impl_->server ? impl_->server->port() : 0;
}

}  // namespace gpuop::telemetry
