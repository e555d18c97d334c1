#include "operator/manage_crds.h"

#include <algorithm>

#include "base/yaml.h"
#include "kube/object.h"
#include "operator/apply.h"

namespace gpuop::op {
namespace {

constexpr int kConflictTries = 5;

bool is_manifest(const fs::path& path) {
  const auto extension = path.extension();
  return extension == ".yaml" || extension == ".yml" || extension == ".json";
}

Result<std::vector<fs::path>> manifest_files(const fs::path& path) {
  std::error_code why;
  const auto status = fs::status(path, why);
  if (why || !fs::exists(status)) {
    return fail(Code::kNotFound,
                "read custom resource definitions: '" + path.string() + "': no such file or folder");
  }
  if (!fs::is_directory(status)) return std::vector<fs::path>{path};
  std::vector<fs::path> files;
  fs::recursive_directory_iterator entry(path, why);
  for (; !why && entry != fs::recursive_directory_iterator(); entry.increment(why)) {
    if (entry->is_regular_file() && is_manifest(entry->path())) files.push_back(entry->path());
  }
  if (why) return fail(Code::kIo, "read folder '" + path.string() + "': " + why.message());
  std::sort(files.begin(), files.end());
  return files;
}

std::string doing(const char* verb, const Json& crd) {
  return std::string(verb) + " CustomResourceDefinition '" + std::string(kube::name_of(crd)) + "'";
}

// `live` with the spec of `wanted`, and its labels and annotations beside those that others have put there.
Json merged(Json live, const Json& wanted) {
  live.as_object()["spec"] = *find(wanted, {"spec"});
  for (const char* part : {"labels", "annotations"}) {
    const Json* more = find(wanted, {"metadata", part});
    if (!more || !more->is_object()) continue;
    auto& metadata = live.as_object()["metadata"].as_object();
    if (!metadata[part].is_object()) metadata[part].emplace_object();
    for (const auto& [key, value] : more->as_object()) metadata[part].as_object()[key] = value;
  }
  return live;
}

// The schemas of the versions, compared whole: a key more than wanted is another type, elsewhere it is a
// default that the API server filled in.
std::string schemas_of(const Json& crd) {
  std::string text;
  for (const auto& version : get_array(crd, {"spec", "versions"})) {
    const Json* schema = find(version, {"schema", "openAPIV3Schema"});
    text += str(get_string(version, {"name"})) + (schema ? to_canonical_text(*schema) : "") + "\n";
  }
  return text;
}

bool up_to_date(const Json& live, const Json& wanted) {
  if (!covers(*find(live, {"spec"}), *find(wanted, {"spec"})) || schemas_of(live) != schemas_of(wanted))
    return false;
  for (const char* part : {"labels", "annotations"}) {
    const Json* more = find(wanted, {"metadata", part});
    const Json* there = find(live, {"metadata", part});
    if (more && more->is_object() && !(there && covers(*there, *more))) return false;
  }
  return true;
}

// One try; false: somebody else wrote in between.
Result<bool> try_apply(Loop& loop, kube::Client& client, const Json& crd) {
  const auto& type = kube::kCustomResourceDefinitions;
  const std::string name(kube::name_of(crd));
  const auto live = kube::await(loop, [&](auto done) { return client.get(type, "", name, done); });
  if (!live && !live.error().not_found()) return fail(live.error().error(doing("read", crd)));
  if (!live) {
    const auto made = kube::await(loop, [&](auto done) { return client.create(type, "", crd, {}, done); });
    if (made) return true;
    if (made.error().already_exists()) return false;
    return fail(made.error().error(doing("create", crd)));
  }
  if (up_to_date(*live, crd)) return true;
  const auto next = merged(*live, crd);
  const auto put =
      kube::await(loop, [&](auto done) { return client.update(type, "", name, next, {}, done); });
  if (put) return true;
  if (put.error().conflict() || put.error().not_found()) return false;
  return fail(put.error().error(doing("update", crd)));
}

}  // namespace

Result<std::vector<Json>> read_crds(const std::vector<fs::path>& paths) {
  std::vector<Json> crds;
  for (const auto& path : paths) {
    const auto files = TRY(manifest_files(path));
    for (const auto& file : files) {
      auto documents = TRY(parse_yaml(TRY(read_file(file)), file.string()));
      for (auto& document : documents) {
        const auto kind = get_string(document.value, {"kind"});
        if (kind != "CustomResourceDefinition" || kube::name_of(document.value).empty() ||
            !find(document.value, {"spec"})) {
          return fail(Code::kInvalid,
                      "read '" + file.string() +
                          "': must hold CustomResourceDefinitions with a name and a spec only; got kind '" +
                          std::string(kind) + "'");
        }
        crds.push_back(std::move(document.value));
      }
    }
  }
  if (crds.empty())
    return fail(Code::kInvalid, "read custom resource definitions: there are none in the given paths");
  return crds;
}

Result<> apply_crds(Loop& loop, kube::Client& client, const std::vector<Json>& crds) {
  for (const auto& crd : crds) {
    bool done = false;
    for (int i = 0; i < kConflictTries && !done; ++i) done = TRY(try_apply(loop, client, crd));
    if (!done) return fail(Code::kConflict, doing("update", crd) + ": somebody else keeps writing it");
  }
  return {};
}

Result<> delete_crds(Loop& loop, kube::Client& client, const std::vector<Json>& crds) {
  for (const auto& crd : crds) {
    const auto gone = kube::await(loop, [&](auto done) {
      return client.remove(kube::kCustomResourceDefinitions, "", kube::name_of(crd), {}, done);
    });
    if (!gone && !gone.error().not_found()) return fail(gone.error().error(doing("delete", crd)));
  }
  return {};
}

Result<> cleanup_gpuclusters(Loop& loop, kube::Client& client, const std::string& name, Duration limit) {
  const std::string what = "delete GPUCluster '" + name + "'";
  const auto asked =
      kube::await(loop, [&](auto done) { return client.remove(kube::kGpuClusters, "", name, {}, done); });
  if (!asked) {
    if (asked.error().not_found()) return {};
    return fail(asked.error().error(what));
  }
  bool gone = false;
  std::optional<kube::ApiError> refused;
  kube::WatchOptions options;
  options.field_selector = "metadata.name=" + name;
  options.send_initial_events = false;
  // Watched from now on, and looked at once: whatever came between is in the one or in the other.
  Handle watch =
      client.watch(kube::kGpuClusters, "", options,
                   {[&gone](std::string_view type, const Json&) { gone = gone || type == "DELETED"; },
                    [&refused](kube::ApiResult<void> end) {
                      if (!end) refused = end.error();
                    }});
  const auto look =
      kube::await(loop, [&](auto done) { return client.get(kube::kGpuClusters, "", name, done); });
  if (!look && look.error().not_found()) return {};
  loop.run_until([&] { return gone || refused; }, limit);
  if (gone) return {};
  if (refused) return fail(refused->error("watch GPUCluster '" + name + "'"));
  return fail(Code::kTimeout,
              what + ": its finalizer still holds it; pods that use GPUs through claims must end first");
}

}  // namespace gpuop::op
