#include "cluster/launcher/state.h"

#include <algorithm>
#include <cctype>

#include "base/text.h"

namespace gpuop::cluster {

fs::path record_dir(const fs::path& state_root, const std::string& id) {
  return state_root / id;
}
fs::path start_fifo(const fs::path& state_root, const std::string& id) {
  return state_root / id / "exec.fifo";
}

Result<> check_container_id(const std::string& id) {
  bool good = !id.empty() && id.size() <= 1024 && id != "." && id != ".." &&
              std::all_of(id.begin(), id.end(), [](unsigned char c) {
                return std::isalnum(c) || c == '_' || c == '+' || c == '-' || c == '.';
              });
  if (!good) return fail(Code::kInvalid, "container id '" + id + "': invalid id format");
  return {};
}

std::uint64_t process_start_ticks(pid_t pid) {
  if (pid <= 0) return 0;
  auto text = read_file("/proc/" + std::to_string(pid) + "/stat", 4096);
  if (!text) return 0;
  // The second field is the command in parentheses and may hold anything: count from the last one.
  std::size_t close = text->rfind(')');
  if (close == std::string::npos) return 0;
  std::vector<std::string> fields = split_fields(std::string_view(*text).substr(close + 1));
  constexpr std::size_t kState = 0, kStart = 19;
  if (fields.size() <= kStart || fields[kState] == "Z" || fields[kState] == "X") return 0;
  return static_cast<std::uint64_t>(parse_int(fields[kStart]).value_or(0));
}

std::string_view container_status(const fs::path& state_root, const ContainerRecord& record) {
  if (record.pid == 0) return "creating";
  std::uint64_t start = process_start_ticks(record.pid);
  if (start == 0 || start != record.pid_start) return "stopped";
  return file_exists(start_fifo(state_root, record.id)) ? "created" : "running";
}

Result<ContainerRecord> read_record(const fs::path& state_root, const std::string& id) {
  TRY(check_container_id(id));
  auto text = read_file(record_dir(state_root, id) / "state.json");
  if (!text) {
    if (text.error().code() == Code::kNotFound)
      return fail(Code::kNotFound, "container '" + id + "': does not exist");
    return fail(std::move(text).error());
  }
  Json json = TRY_IN(parse_json(*text), "read state of container '" + id + "'");
  ContainerRecord record;
  record.oci_version = str(get_string(json, {"ociVersion"}));
  record.id = id;
  record.bundle = str(get_string(json, {"bundle"}));
  record.pid = static_cast<pid_t>(get_int(json, {"pid"}));
  record.pid_start = static_cast<std::uint64_t>(get_int(json, {"pidStart"}));
  record.created = str(get_string(json, {"created"}));
  record.annotations = get_object(json, {"annotations"});
  return record;
}

Result<> write_record(const fs::path& state_root, const ContainerRecord& record) {
  JsonObject json{{"ociVersion", record.oci_version},
                  {"id", record.id},
                  {"pid", record.pid},
                  {"pidStart", static_cast<std::int64_t>(record.pid_start)},
                  {"bundle", record.bundle},
                  {"created", record.created},
                  {"annotations", record.annotations}};
  TRY(write_file_atomic(record_dir(state_root, record.id) / "state.json", to_text(Json(std::move(json))),
                        0600));
  return {};
}

Json state_document(const ContainerRecord& record, std::string_view status) {
  JsonObject json{{"ociVersion", record.oci_version.empty() ? "1.2.0" : record.oci_version},
                  {"id", record.id},
                  {"status", status}};
  if (record.pid > 0 && status != "stopped") json["pid"] = record.pid;
  json["bundle"] = record.bundle;
  if (record.annotations.is_object() && !record.annotations.get_object().empty()) {
    json["annotations"] = record.annotations;
  }
  return Json(std::move(json));
}

}  // namespace gpuop::cluster
