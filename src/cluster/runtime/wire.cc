#include "cluster/runtime/wire.h"

namespace gpuop::cluster {
namespace {

using Texts = std::vector<std::string>;
using Map = std::map<std::string, std::string>;

JsonArray list(const Texts& texts) {
  JsonArray out;
  for (const std::string& text : texts) out.emplace_back(text);
  return out;
}
JsonObject object(const Map& map) {
  JsonObject out;
  for (const auto& [key, value] : map) out[key] = value;
  return out;
}
std::string text(const Json& json, std::string_view key) {
  return str(get_string(json, {key}));
}
Texts texts(const Json& json, std::string_view key) {
  Texts out;
  for (const Json& item : get_array(json, {key})) out.push_back(str(as_text(item)));
  return out;
}
Map map(const Json& json, std::string_view key) {
  Map out;
  for (const auto& [name, value] : get_object(json, {key})) out[str(name)] = str(as_text(value));
  return out;
}

std::int64_t nanos(Time t) {
  return t.time_since_epoch().count();
}
Time time_from(const Json& json, std::string_view key) {
  return Time(Duration(get_int(json, {key})));
}

}  // namespace

Json to_json(const SandboxSpec& spec) {
  return JsonObject{{"uid", spec.uid},
                    {"namespace", spec.ns},
                    {"name", spec.name},
                    {"hostname", spec.hostname},
                    {"handler", spec.runtime_handler},
                    {"hostPid", spec.host_pid},
                    {"sharePid", spec.share_pid},
                    {"annotations", object(spec.annotations)},
                    {"labels", object(spec.labels)},
                    {"attempt", spec.attempt}};
}

SandboxSpec sandbox_from_json(const Json& json) {
  return SandboxSpec{.uid = text(json, "uid"),
                     .ns = text(json, "namespace"),
                     .name = text(json, "name"),
                     .hostname = text(json, "hostname"),
                     .runtime_handler = text(json, "handler"),
                     .host_pid = get_bool(json, {"hostPid"}),
                     .share_pid = get_bool(json, {"sharePid"}),
                     .annotations = map(json, "annotations"),
                     .labels = map(json, "labels"),
                     .attempt = static_cast<int>(get_int(json, {"attempt"}))};
}

Json to_json(const ContainerSpec& spec) {
  JsonArray mounts, devices;
  for (const RuntimeMount& mount : spec.mounts) {
    mounts.push_back(JsonObject{{"host", mount.host_path},
                                {"container", mount.container_path},
                                {"readOnly", mount.read_only},
                                {"propagation", static_cast<int>(mount.propagation)}});
  }
  for (const RuntimeDevice& device : spec.devices) {
    devices.push_back(JsonObject{{"host", device.host_path},
                                 {"container", device.container_path},
                                 {"permissions", device.permissions}});
  }
  JsonObject out{{"pod", spec.pod_uid},
                 {"name", spec.name},
                 {"attempt", spec.attempt},
                 {"init", spec.init},
                 {"image", spec.image},
                 {"command", list(spec.command)},
                 {"args", list(spec.args)},
                 {"env", list(spec.env)},
                 {"workingDir", spec.working_dir},
                 {"mounts", std::move(mounts)},
                 {"devices", std::move(devices)},
                 {"cdiDevices", list(spec.cdi_devices)},
                 {"annotations", object(spec.annotations)},
                 {"privileged", spec.privileged},
                 {"readOnlyRootfs", spec.read_only_rootfs},
                 {"logPath", spec.log_path},
                 {"terminationLog", spec.termination_log},
                 {"terminationMessagePath", spec.termination_message_path}};
  if (spec.run_as_user) out["runAsUser"] = *spec.run_as_user;
  return out;
}

ContainerSpec container_from_json(const Json& json) {
  ContainerSpec spec;
  spec.pod_uid = text(json, "pod");
  spec.name = text(json, "name");
  spec.attempt = static_cast<int>(get_int(json, {"attempt"}));
  spec.init = get_bool(json, {"init"});
  spec.image = text(json, "image");
  spec.command = texts(json, "command");
  spec.args = texts(json, "args");
  spec.env = texts(json, "env");
  spec.working_dir = text(json, "workingDir");
  for (const Json& item : get_array(json, {"mounts"})) {
    std::int64_t propagation = get_int(item, {"propagation"});
    spec.mounts.push_back({text(item, "host"), text(item, "container"), get_bool(item, {"readOnly"}),
                           propagation == 2   ? Propagation::kBidirectional
                           : propagation == 1 ? Propagation::kHostToContainer
                                              : Propagation::kPrivate});
  }
  for (const Json& item : get_array(json, {"devices"})) {
    spec.devices.push_back({text(item, "host"), text(item, "container"), text(item, "permissions")});
  }
  spec.cdi_devices = texts(json, "cdiDevices");
  spec.annotations = map(json, "annotations");
  spec.privileged = get_bool(json, {"privileged"});
  spec.read_only_rootfs = get_bool(json, {"readOnlyRootfs"});
  if (has(json, {"runAsUser"})) spec.run_as_user = get_int(json, {"runAsUser"});
  spec.log_path = text(json, "logPath");
  spec.termination_log = text(json, "terminationLog");
  spec.termination_message_path = text(json, "terminationMessagePath");
  return spec;
}

Json to_json(const ContainerInfo& info) {
  return JsonObject{{"id", info.id},
                    {"pod", info.pod_uid},
                    {"name", info.name},
                    {"attempt", info.attempt},
                    {"sandboxAttempt", info.sandbox_attempt},
                    {"init", info.init},
                    {"image", info.image},
                    {"imageId", info.image_id},
                    {"state", static_cast<int>(info.state)},
                    {"pid", info.pid},
                    {"exitCode", info.exit_code},
                    {"signal", info.signal},
                    {"reason", info.reason},
                    {"message", info.message},
                    {"started", nanos(info.started)},
                    {"finished", nanos(info.finished)}};
}

ContainerInfo info_from_json(const Json& json) {
  ContainerInfo info;
  info.id = text(json, "id");
  info.pod_uid = text(json, "pod");
  info.name = text(json, "name");
  info.attempt = static_cast<int>(get_int(json, {"attempt"}));
  info.sandbox_attempt = static_cast<int>(get_int(json, {"sandboxAttempt"}));
  info.init = get_bool(json, {"init"});
  info.image = text(json, "image");
  info.image_id = text(json, "imageId");
  std::int64_t state = get_int(json, {"state"});
  info.state = state == 2   ? ContainerState::kExited
               : state == 1 ? ContainerState::kRunning
                            : ContainerState::kCreated;
  info.pid = static_cast<int>(get_int(json, {"pid"}));
  info.exit_code = static_cast<int>(get_int(json, {"exitCode"}));
  info.signal = static_cast<int>(get_int(json, {"signal"}));
  info.reason = text(json, "reason");
  info.message = text(json, "message");
  info.started = time_from(json, "started");
  info.finished = time_from(json, "finished");
  return info;
}

Json to_json(const Error& error) {
  return JsonObject{{"code", static_cast<int>(error.code())}, {"text", error.text()}};
}

Error error_from_json(const Json& json) {
  std::int64_t code = get_int(json, {"code"});
  bool known = code >= 0 && code <= static_cast<int>(Code::kIo);
  return Error(known ? static_cast<Code>(code) : Code::kUnknown, text(json, "text"));
}

}  // namespace gpuop::cluster
