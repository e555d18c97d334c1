#include "cluster/fleet/fleet_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace gpuop::cluster {

Json to_json(const FleetOptions& options) {
  return JsonObject{{"fleet", to_json(options.fleet)},
                    {"stateDir", options.state_dir.string()},
                    {"installTree", options.install_tree.string()},
                    {"program", options.program.string()},
                    {"image", options.image},
                    {"kubeconfig", options.kubeconfig},
                    {"dataDir", options.data_dir.string()},
                    {"keep", options.keep},
                    {"faults", options.faults}};
}

Result<FleetOptions> fleet_options_from_json(const Json& json) {
  FleetOptions options;
  const Json* fleet = find(json, {"fleet"});
  options.fleet = TRY(fleet_from_json(fleet ? *fleet : Json()));
  options.state_dir = str(get_string(json, {"stateDir"}));
  options.install_tree = str(get_string(json, {"installTree"}));
  options.program = str(get_string(json, {"program"}));
  options.image = str(get_string(json, {"image"}));
  options.kubeconfig = str(get_string(json, {"kubeconfig"}));
  options.data_dir = str(get_string(json, {"dataDir"}));
  options.keep = get_bool(json, {"keep"});
  options.faults = str(get_string(json, {"faults"}));
  return options;
}

Json to_json(const FleetStatus& status) {
  JsonArray services, notes;
  for (const FleetService& service : status.services) {
    services.push_back(JsonObject{{"role", service.role},
                                  {"node", service.node},
                                  {"pid", service.pid},
                                  {"restarts", service.restarts}});
  }
  for (const std::string& note : status.notes) notes.emplace_back(note);
  std::string_view phase = status.phase == FleetStatus::Phase::kUp       ? "up"
                           : status.phase == FleetStatus::Phase::kFailed ? "failed"
                                                                         : "starting";
  return JsonObject{{"phase", phase},
                    {"error", status.error},
                    {"notes", std::move(notes)},
                    {"services", std::move(services)}};
}

FleetStatus fleet_status_from_json(const Json& json) {
  FleetStatus status;
  std::string_view phase = get_string(json, {"phase"});
  status.phase = phase == "up"       ? FleetStatus::Phase::kUp
                 : phase == "failed" ? FleetStatus::Phase::kFailed
                                     : FleetStatus::Phase::kStarting;
  status.error = str(get_string(json, {"error"}));
  for (const Json& note : get_array(json, {"notes"})) status.notes.push_back(str(as_text(note)));
  for (const Json& item : get_array(json, {"services"})) {
    status.services.push_back({str(get_string(item, {"role"})), str(get_string(item, {"node"})),
                               static_cast<int>(get_int(item, {"pid"})),
                               static_cast<int>(get_int(item, {"restarts"}))});
  }
  return status;
}

Result<> put_file(const fs::path& path, std::string_view text, mode_t mode) {
  fs::path temp = path;
  temp += ".tmp";
  Fd fd(::open(temp.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode));
  if (!fd || ::write(fd.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()) ||
      ::rename(temp.c_str(), path.c_str()) != 0) {
    return fail(errno_error("write '" + path.string() + "'", errno));
  }
  return {};
}

}  // namespace gpuop::cluster
