// The checkpoint of device grants, in the kubelet's own format: other programs read it on real nodes.
#include <charconv>

#include "base/text.h"
#include "cluster/kubelet/devices.h"

namespace gpuop::cluster {

namespace {

// Go's dump package renders a value with type names before fields of structs, sorted map keys, and bytes as
// numbers; the checksum is taken over that text. Null slices and maps read "<nil>".
std::string render_strings(const Json* value) {
  if (value == nullptr || !value->is_array()) return "<nil>";
  std::string out = "[";
  for (const Json& item : value->get_array()) {
    if (out.size() > 1) out += ' ';
    out += as_text(item);
  }
  return out + "]";
}

std::string render_bytes(const Json* value) {
  if (value == nullptr || !value->is_string()) return "<nil>";
  std::string out = "[";
  for (unsigned char c : base64_decode(as_text(*value)).value_or("")) {
    if (out.size() > 1) out += ' ';
    out += std::to_string(c);
  }
  return out + "]";
}

std::string render_numa(const Json* value) {
  if (value == nullptr || !value->is_object()) return "<nil>";
  std::map<std::int64_t, std::string> sorted;
  for (const auto& item : value->get_object()) {
    sorted[parse_int(item.key()).value_or(0)] = render_strings(&item.value());
  }
  std::string out = "map[";
  for (const auto& [node, ids] : sorted) {
    if (out.size() > 4) out += ' ';
    out += std::to_string(node) + ":" + ids;
  }
  return out + "]";
}

std::string render_entry(const Json& entry) {
  return "{PodUID:(string)" + str(get_string(entry, {"PodUID"})) + " ContainerName:(string)" +
         str(get_string(entry, {"ContainerName"})) + " ResourceName:(string)" +
         str(get_string(entry, {"ResourceName"})) + " DeviceIDs:(checkpoint.DevicesPerNUMA)" +
         render_numa(find(entry, {"DeviceIDs"})) + " AllocResp:([]uint8)" +
         render_bytes(find(entry, {"AllocResp"})) + "}";
}

std::string render_data(const Json& data) {
  std::string entries = "<nil>";
  if (const Json* list = find(data, {"PodDeviceEntries"}); list != nullptr && list->is_array()) {
    entries = "[";
    for (const Json& entry : list->get_array()) {
      if (entries.size() > 1) entries += ' ';
      entries += render_entry(entry);
    }
    entries += "]";
  }
  std::string registered = "<nil>";
  if (const Json* map = find(data, {"RegisteredDevices"}); map != nullptr && map->is_object()) {
    std::map<std::string, std::string> sorted;
    for (const auto& item : map->get_object()) sorted[str(item.key())] = render_strings(&item.value());
    registered = "map[";
    for (const auto& [name, ids] : sorted) {
      if (registered.size() > 4) registered += ' ';
      registered += name + ":" + ids;
    }
    registered += "]";
  }
  return "(checkpoint.checkpointData){PodDeviceEntries:([]checkpoint.PodDevicesEntry)" + entries +
         " RegisteredDevices:(map[string][]string)" + registered + "}";
}

JsonArray string_array(const std::vector<std::string>& values) {
  JsonArray out;
  for (const std::string& value : values) out.emplace_back(value);
  return out;
}

std::vector<std::string> strings_of(const Json& array) {
  std::vector<std::string> out;
  if (array.is_array()) {
    for (const Json& item : array.get_array()) out.emplace_back(as_text(item));
  }
  return out;
}

}  // namespace

std::string write_checkpoint(const DeviceCheckpoint& checkpoint) {
  JsonArray entries;
  for (const DeviceGrant& grant : checkpoint.grants) {
    JsonObject ids;
    for (const auto& [node, list] : grant.ids) ids[std::to_string(node)] = string_array(list);
    entries.push_back(JsonObject{{"PodUID", grant.pod_uid},
                                 {"ContainerName", grant.container},
                                 {"ResourceName", grant.resource},
                                 {"DeviceIDs", std::move(ids)},
                                 {"AllocResp", base64_encode(encode_answer(grant.answer))}});
  }
  JsonObject registered;
  for (const auto& [name, ids] : checkpoint.registered) registered[name] = string_array(ids);
  // The kubelet writes null for no entries, and the checksum tells the two apart.
  JsonObject data;
  data["PodDeviceEntries"] = entries.empty() ? Json(nullptr) : Json(std::move(entries));
  data["RegisteredDevices"] = std::move(registered);
  const std::uint32_t sum = fnv1a32(render_data(data));
  return to_text(JsonObject{{"Data", std::move(data)}, {"Checksum", sum}});
}

Result<DeviceCheckpoint> read_checkpoint(const std::string& text) {
  Json root = TRY_IN(parse_json(text), "read the device checkpoint");
  const Json* data = find(root, {"Data"});
  if (data == nullptr || !data->is_object()) {
    return fail(Code::kInvalid, "read the device checkpoint: 'Data': must be an object");
  }
  const std::int64_t sum = get_int(root, {"Checksum"}, -1);
  const std::uint32_t expected = fnv1a32(render_data(*data));
  if (sum != static_cast<std::int64_t>(expected)) {
    return fail(Code::kInvalid, "read the device checkpoint: 'Checksum': is " + std::to_string(sum) +
                                    ", the data's is " + std::to_string(expected));
  }
  DeviceCheckpoint out;
  for (const Json& entry : get_array(*data, {"PodDeviceEntries"})) {
    DeviceGrant grant{str(get_string(entry, {"PodUID"})),
                      str(get_string(entry, {"ContainerName"})),
                      str(get_string(entry, {"ResourceName"})),
                      {},
                      {}};
    for (const auto& item : get_object(entry, {"DeviceIDs"})) {
      grant.ids[parse_int(item.key()).value_or(-1)] = strings_of(item.value());
    }
    auto bytes = base64_decode(get_string(entry, {"AllocResp"}));
    if (!bytes) return fail(Code::kInvalid, "read the device checkpoint: 'AllocResp': is not base64");
    grant.answer = TRY_IN(decode_answer(*bytes), "read the device checkpoint: 'AllocResp'");
    out.grants.push_back(std::move(grant));
  }
  for (const auto& item : get_object(*data, {"RegisteredDevices"})) {
    out.registered[str(item.key())] = strings_of(item.value());
  }
  return out;
}

}  // namespace gpuop::cluster
