// The exporter as a service on the loop: reads on its own beat, answers scrapes from the newest snapshot,
// reloads its collectors file (telemetry.md §1.3, §4.1, §6.3).
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "base/loop.h"
#include "base/result.h"
#include "kube/client.h"
#include "telemetry/options.h"

namespace gpuop::telemetry {

struct ExporterInputs {
  Options options;
  std::filesystem::path nvml_library;  // of the driver root (hardware/driver_root.h)
  std::string node_name;
  std::string local_name;
  int listen_fd = -1;  // a socket handed over; else options.address
  // For pods' labels and UIDs and for collectors in a ConfigMap; nullptr where none of these is asked for.
  kube::Client* client = nullptr;
};

class Exporter {
 public:
  // `fatal` is called when the exporter cannot go on (a wrong device selector, found once the GPUs are
  // known).
  Exporter(Loop& loop, ExporterInputs inputs, std::function<void(const Error&)> fatal);
  ~Exporter();
  Exporter(const Exporter&) = delete;
  Exporter& operator=(const Exporter&) = delete;

  // Errors: a wrong collectors file, an address that cannot be listened on.
  Result<> start();
  // Reads the collectors file again (SIGHUP); a wrong one is logged and the families stay as they are.
  void reload();
  // Stops serving and lets go of the driver; true when that was done within `limit`.
  bool close(Duration limit);
  std::uint16_t port() const;

  struct Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace gpuop::telemetry
