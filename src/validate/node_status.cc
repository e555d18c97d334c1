#include "validate/node_status.h"

#include <cstdio>
#include <memory>

#include "base/files.h"
#include "base/http_server.h"
#include "base/log.h"
#include "hardware/pci.h"
#include "kube/config.h"
#include "kube/informer.h"
#include "kube/object.h"

namespace gpuop::validate {
namespace {

constexpr Duration kDriverPeriod = 60s;

double unix_seconds(Time t) {
  return std::chrono::duration<double>(t.time_since_epoch()).count();
}

void add(std::string& out, const std::string& node, const char* name, const char* help, double value) {
  char text[64];
  std::snprintf(text, sizeof text, "%.17g", value);
  const std::string metric = std::string("gpu_operator_node_") + name;
  out += "# HELP " + metric + " " + help + "\n# TYPE " + metric + " gauge\n" + metric + "{node=\"" + node +
         "\"} " + text + "\n";
}

std::int64_t gpu_resources(const Json& node) {
  std::int64_t total = 0;
  for (const auto& [key, quantity] : get_object(node, {"status", "capacity"})) {
    const std::string_view name = key;
    if (!name.starts_with("nvidia.com/gpu") && !name.starts_with("nvidia.com/mig-")) continue;
    total += kube::parse_quantity(quantity).value_or(0);
  }
  return total;
}

struct Exporter {
  Exporter(Loop& l, const ValidatorOptions& o) : loop(l), options(o) {
    status.node = o.node;
    status.started = unix_seconds(l.now());
  }

  std::string text() {
    const auto there = [this](const char* gate) { return file_exists(options.output_dir / gate); };
    status.driver_ready = there("driver-ready");
    status.toolkit_ready = there("toolkit-ready");
    status.plugin_ready = there("plugin-ready");
    status.cuda_ready = there("cuda-ready");
    status.pci_devices.reset();
    if (const auto functions = hardware::scan_pci()) {
      status.pci_devices = 0;
      for (const auto& function : *functions)
        *status.pci_devices += function.vendor == hardware::kNvidiaVendor;
    }
    return node_status_text(status);
  }

  void check_driver() {
    timer = loop.after(kDriverPeriod, [this] { check_driver(); });
    if (paused) return;
    // Nothing is made or written by this check, whatever it finds.
    auto host = find_host_driver(options.driver);
    const bool works =
        host && (host->has_value() || find_container_driver(options.driver, false).has_value());
    status.driver_works = works;
    if (works) status.driver_last_success = unix_seconds(loop.now());
  }

  void node_changed(const std::shared_ptr<const Json>& now) {
    if (!now) return;
    paused = kube::label(*now, "nvidia.com/gpu.deploy.driver").find("paused") != std::string_view::npos;
    status.devices = gpu_resources(*now);
    if (*status.devices > 0) status.devices_last_seen = unix_seconds(loop.now());
  }

  Loop& loop;
  const ValidatorOptions& options;
  NodeStatus status;
  bool paused = false;
  Handle timer;
};

}  // namespace

std::string node_status_text(const NodeStatus& s) {
  std::string out;
  const auto gauge = [&](const char* name, const char* help, double value) {
    add(out, s.node, name, help, value);
  };
  gauge("metrics_ready_ts_seconds", "When this exporter started, in Unix seconds", s.started);
  gauge("driver_ready", "1 when the driver was validated", s.driver_ready);
  gauge("toolkit_ready", "1 when the container toolkit was validated", s.toolkit_ready);
  gauge("plugin_ready", "1 when the device plugin was validated", s.plugin_ready);
  gauge("cuda_ready", "1 when a CUDA workload ran", s.cuda_ready);
  if (s.driver_works)
    gauge("driver_validation", "1 when nvidia-smi worked at the last check", *s.driver_works);
  if (s.driver_last_success > 0) {
    gauge("driver_validation_last_success_ts_seconds", "When nvidia-smi last worked, in Unix seconds",
          s.driver_last_success);
  }
  gauge("device_plugin_devices_total",
        "GPU resources that the node offers; -1: the API server does not answer",
        static_cast<double>(s.devices.value_or(-1)));
  if (s.devices_last_seen > 0) {
    gauge("device_plugin_validation_last_success_ts_seconds",
          "When GPU resources were last seen, in Unix seconds", s.devices_last_seen);
  }
  gauge("nvidia_pci_devices_total", "NVIDIA PCI functions; -1: PCI cannot be read",
        static_cast<double>(s.pci_devices.value_or(-1)));
  return out;
}

Result<> serve_node_status(Loop& loop, const ValidatorOptions& options) {
  auto exporter = std::make_unique<Exporter>(loop, options);
  HttpServerOptions http;
  http.address = "0.0.0.0";
  http.port = static_cast<std::uint16_t>(options.metrics_port);
  auto server =
      TRY(HttpServer::create(loop, http, [&](HttpRequest request, std::shared_ptr<HttpResponder> out) {
        if (request.path != "/metrics") return out->send(HttpResponse::text(404, "not found\n"));
        out->send(HttpResponse::text(200, exporter->text(), "text/plain; version=0.0.4; charset=utf-8"));
      }));
  const auto config = TRY(kube::find_config(options.kubeconfig));
  auto client = TRY(kube::make_client(loop, config));
  kube::InformerOptions watched;
  watched.field_selector = "metadata.name=" + options.node;
  watched.keep = {"status.capacity"};
  kube::Informer node(*client, kube::kNodes, watched);
  node.on_change([&](const auto&, const auto& now) { exporter->node_changed(now); });
  node.start();
  exporter->check_driver();
  log::info("serving metrics", {{"port", server->port()}});
  loop.run();
  return {};
}

}  // namespace gpuop::validate
