#include "operator/digest.h"

#include <map>
#include <vector>

#include "base/text.h"
#include "operator/pod.h"

namespace gpuop::op {

namespace {

std::string text_list(const JsonArray& list) {
  std::vector<std::string> items;
  for (const Json& item : list) items.push_back(str(as_text(item)));
  return "([]string)[" + join(items, " ") + "]";
}

std::string env_list(const Json& container) {
  std::multimap<std::string, std::string> variables;  // keeps the order of equal names
  for (const Json& entry : get_array(container, {"env"}))
    if (!has(entry, {"valueFrom"}))
      variables.emplace(get_string(entry, {"name"}), get_string(entry, {"value"}));
  std::vector<std::string> items;
  for (const auto& [name, value] : variables)
    items.push_back("{Name:(string)" + name + " Value:(string)" + value + "}");
  return items.empty() ? "" : "([]config.EnvVar)[" + join(items, " ") + "]";
}

std::string volume_list(const Json& pod) {
  std::map<std::string, std::string> volumes;
  for (const Json& volume : get_array(pod, {"volumes"})) {
    std::string name = str(get_string(volume, {"name"}));
    volumes[name] = "{Name:(string)" + name + " ConfigMapName:(string)" +
                    str(get_string(volume, {"configMap", "name"})) + " SecretName:(string)" +
                    str(get_string(volume, {"secret", "secretName"})) + " HostPath:(string)" +
                    str(get_string(volume, {"hostPath", "path"})) + "}";
  }
  std::vector<std::string> items;
  for (auto& [name, text] : volumes) items.push_back(text);
  return items.empty() ? "" : "([]config.VolumeConfig)[" + join(items, " ") + "]";
}

std::string mount_list(const Json& container) {
  std::multimap<std::pair<std::string, std::string>, std::string> mounts;
  for (const Json& mount : get_array(container, {"volumeMounts"})) {
    std::string name = str(get_string(mount, {"name"})), path = str(get_string(mount, {"mountPath"}));
    mounts.emplace(std::pair(name, path), "{Name:(string)" + name + " MountPath:(string)" + path +
                                              " SubPath:(string)" + str(get_string(mount, {"subPath"})) +
                                              " ReadOnly:(bool)" +
                                              (get_bool(mount, {"readOnly"}) ? "true" : "false") + "}");
  }
  std::vector<std::string> items;
  for (const auto& [key, text] : mounts) items.push_back(text);
  return items.empty() ? "" : "([]config.VolumeMountConfig)[" + join(items, " ") + "]";
}

}  // namespace

std::string digest_of(const std::map<std::string, std::string>& fields) {
  std::string all;
  for (const auto& [name, value] : fields) all += name + ":" + value;
  return std::to_string(fnv1a32(all));
}

void DriverDigest::text(std::string_view name, std::string_view value) {
  if (!value.empty()) fields_[std::string(name)] = "(string)" + std::string(value);
}

void DriverDigest::flag(std::string_view name) {
  fields_[std::string(name)] = "(bool)true";
}

void DriverDigest::list(std::string_view name, const JsonArray& value) {
  if (!value.empty()) fields_[std::string(name)] = text_list(value);
}

void DriverDigest::ready(std::string_view name, std::string value) {
  if (!value.empty()) fields_[std::string(name)] = std::move(value);
}

void DriverDigest::env(std::string_view name, const std::vector<policy::EnvVar>& variables) {
  JsonArray list;
  for (const auto& variable : variables)
    list.push_back(JsonObject{{"name", variable.name}, {"value", variable.value}});
  ready(name, env_list(JsonObject{{"env", std::move(list)}}));
}

void DriverDigest::volumes(const Json& pod, const std::set<std::string>& known) {
  auto unknown = [&known](const JsonArray& all) {
    JsonArray out;
    for (const Json& each : all)
      if (!known.contains(str(get_string(each, {"name"})))) out.push_back(each);
    return out;
  };
  ready("AdditionalVolumes", volume_list(JsonObject{{"volumes", unknown(get_array(pod, {"volumes"}))}}));
  if (const Json* driver = find_container(pod, "nvidia-driver-ctr"))
    ready("AdditionalVolumeMounts",
          mount_list(JsonObject{{"volumeMounts", unknown(get_array(*driver, {"volumeMounts"}))}}));
}

std::string driver_digest(const Json& pod) {
  DriverDigest fields;
  auto image = [](const Json& container) { return get_string(container, {"image"}); };
  if (const Json* driver = find_container(pod, "nvidia-driver-ctr")) {
    fields.text("DriverImage", image(*driver));
    fields.list("DriverCommand", get_array(*driver, {"command"}));
    fields.list("DriverArgs", get_array(*driver, {"args"}));
    fields.ready("DriverEnv", env_list(*driver));
    fields.ready("AdditionalVolumeMounts", mount_list(*driver));
    for (const Json& source : get_array(*driver, {"envFrom"}))
      fields.text("SecretEnvSource", get_string(source, {"secretRef", "name"}));
  }
  if (const Json* manager = find_container(pod, "k8s-driver-manager")) {
    fields.text("DriverManagerImage", image(*manager));
    fields.ready("ManagerEnv", env_list(*manager));
  }
  if (const Json* peermem = find_container(pod, "nvidia-peermem-ctr")) {
    fields.text("PeermemImage", image(*peermem));
    fields.flag("GPUDirectRDMAEnabled");
  }
  if (const Json* gds = find_container(pod, "nvidia-fs-ctr")) {
    fields.flag("GDSEnabled");
    fields.text("GDSImage", image(*gds));
    fields.ready("GDSEnv", env_list(*gds));
  }
  if (const Json* gdrcopy = find_container(pod, "nvidia-gdrcopy-ctr")) {
    fields.flag("GDRCopyEnabled");
    fields.text("GDRCopyImage", image(*gdrcopy));
    fields.ready("GDRCopyEnv", env_list(*gdrcopy));
  }
  if (const Json* dtk = find_container(pod, "openshift-driver-toolkit-ctr")) {
    fields.flag("DTKEnabled");
    fields.text("DTKImage", image(*dtk));
  }
  fields.ready("AdditionalVolumes", volume_list(pod));
  for (const Json& volume : get_array(pod, {"volumes"}))
    if (get_string(volume, {"name"}) == "host-root")
      fields.text("HostRoot", get_string(volume, {"hostPath", "path"}));
  return fields.digest();
}

}  // namespace gpuop::op
