#include "kube/config.h"

#include <algorithm>
#include <array>

#include "base/files.h"
#include "base/process.h"
#include "base/text.h"
#include "base/yaml.h"

namespace gpuop::kube {
namespace {

// One named entry of a kubeconfig, with the file that it came from: relative paths are relative to that.
struct Entry {
  Json value;
  std::string file;
};

struct Merged {
  std::map<std::string, Entry> clusters, users, contexts;
  std::string current_context;
};

Result<> take_entries(const Json& document, const char* list, const char* inner, const std::string& file,
                      std::map<std::string, Entry>& into) {
  const Json* entries = find(document, {list});
  if (entries == nullptr || entries->is_null()) return {};
  if (!entries->is_array()) return fail(Code::kInvalid, std::string(list) + ": must be a list");
  for (const Json& entry : entries->get_array()) {
    const std::string name = str(get_string(entry, {"name"}));
    const Json* value = find(entry, {inner});
    into.try_emplace(name, Entry{value == nullptr ? Json(JsonObject()) : *value, file});
  }
  return {};
}

Result<> merge_file(const std::string& file, std::string_view text, Merged& into) {
  for (const YamlDocument& document : TRY(parse_yaml(text, file))) {
    if (!document.value.is_object()) return fail(Code::kInvalid, "must be a map");
    TRY(take_entries(document.value, "clusters", "cluster", file, into.clusters));
    TRY(take_entries(document.value, "users", "user", file, into.users));
    TRY(take_entries(document.value, "contexts", "context", file, into.contexts));
    if (into.current_context.empty()) into.current_context = get_string(document.value, {"current-context"});
  }
  return {};
}

Result<const Entry*> look_up(const std::map<std::string, Entry>& entries, std::string_view kind,
                             const std::string& name) {
  const auto found = entries.find(name);
  if (found != entries.end()) return &found->second;
  std::vector<std::string> names;
  for (const auto& [known, entry] : entries) names.push_back(known);
  return fail(Code::kNotFound,
              std::string(kind) + " '" + name + "': there is none of that name" + did_you_mean(name, names));
}

std::string path_in(const Entry& entry, std::string_view key) {
  const std::string_view text = get_string(entry.value, {key});
  if (text.empty()) return {};
  const fs::path path(text);
  return path.is_absolute() ? path.string()
                            : (fs::absolute(entry.file).parent_path() / path).lexically_normal().string();
}

Result<std::string> data_in(const Entry& entry, std::string_view key) {
  const std::string_view text = get_string(entry.value, {key});
  if (text.empty()) return std::string();
  auto decoded = base64_decode(text);
  if (!decoded) return fail(Code::kInvalid, std::string(key) + ": is not base64");
  return std::move(*decoded);
}

Result<> apply_cluster(const Entry& entry, Config& out) {
  out.server = get_string(entry.value, {"server"});
  if (out.server.empty()) return fail(Code::kInvalid, "server: required");
  out.ca_pem = TRY(data_in(entry, "certificate-authority-data"));
  out.ca_file = path_in(entry, "certificate-authority");
  out.insecure = get_bool(entry.value, {"insecure-skip-tls-verify"});
  out.tls_server_name = get_string(entry.value, {"tls-server-name"});
  out.proxy_url = get_string(entry.value, {"proxy-url"});
  if (out.insecure && !(out.ca_pem.empty() && out.ca_file.empty())) {
    return fail(Code::kInvalid,
                "insecure-skip-tls-verify: cannot be set together with certificate-authority or its data");
  }
  return {};
}

Result<> apply_exec(const Entry& user, const Entry& cluster, Config& out) {
  const Json* exec = find(user.value, {"exec"});
  if (exec == nullptr || exec->is_null()) return {};
  out.exec = *exec;
  const std::string version = str(get_string(out.exec, {"apiVersion"}));
  const std::array<std::string, 2> known = {"client.authentication.k8s.io/v1",
                                            "client.authentication.k8s.io/v1beta1"};
  if (std::ranges::find(known, version) == known.end()) {
    return fail(Code::kInvalid, "exec.apiVersion: must be " + known[0] + " or " + known[1] + "; got '" +
                                    version + "'" + did_you_mean(version, known));
  }
  std::string command = str(get_string(out.exec, {"command"}));
  if (command.empty()) return fail(Code::kInvalid, "exec.command: required");
  // "./plugin" is beside the file; a bare name is looked for in PATH.
  if (command.find('/') != std::string::npos && command[0] != '/') {
    command = (fs::absolute(user.file).parent_path() / command).lexically_normal().string();
    set(out.exec, {"command"}, Json(command));
  }
  for (const Json& extension : get_array(cluster.value, {"extensions"})) {
    if (get_string(extension, {"name"}) != "client.authentication.k8s.io/exec") continue;
    if (const Json* own = find(extension, {"extension"})) set(out.exec, {"clusterConfig"}, *own);
  }
  return {};
}

Result<> apply_user(const Entry& entry, Config& out) {
  if (has(entry.value, {"auth-provider"})) {
    return fail(Code::kUnsupported,
                "auth-provider: was removed from Kubernetes in 1.26; use an exec plugin (user.exec) instead");
  }
  out.client_cert_pem = TRY(data_in(entry, "client-certificate-data"));
  out.client_key_pem = TRY(data_in(entry, "client-key-data"));
  out.client_cert_file = path_in(entry, "client-certificate");
  out.client_key_file = path_in(entry, "client-key");
  const bool certificate = !(out.client_cert_pem.empty() && out.client_cert_file.empty());
  const bool key = !(out.client_key_pem.empty() && out.client_key_file.empty());
  if (certificate != key) {
    return fail(Code::kInvalid, certificate ? "client-key: required beside client-certificate"
                                            : "client-certificate: required beside client-key");
  }
  out.token = get_string(entry.value, {"token"});
  out.token_file = path_in(entry, "tokenFile");
  out.username = get_string(entry.value, {"username"});
  out.password = get_string(entry.value, {"password"});
  out.impersonate_user = get_string(entry.value, {"as"});
  out.impersonate_uid = get_string(entry.value, {"as-uid"});
  for (const Json& group : get_array(entry.value, {"as-groups"}))
    out.impersonate_groups.push_back(str(as_text(group)));
  if (out.impersonate_user.empty() && !(out.impersonate_groups.empty() && out.impersonate_uid.empty())) {
    return fail(Code::kInvalid, "as: required beside as-groups and as-uid");
  }
  return {};
}

Result<Config> resolve(const Merged& merged, std::string_view wanted) {
  const std::string name = wanted.empty() ? merged.current_context : std::string(wanted);
  if (name.empty()) return fail(Code::kNotFound, "current-context: is not set, and no context was asked for");
  const Entry* context = TRY(look_up(merged.contexts, "context", name));
  const std::string cluster_name = str(get_string(context->value, {"cluster"}));
  const std::string user_name = str(get_string(context->value, {"user"}));
  const Entry* cluster = TRY_IN(look_up(merged.clusters, "cluster", cluster_name), "context '" + name + "'");
  Config out;
  TRY_IN(apply_cluster(*cluster, out), "cluster '" + cluster_name + "'");
  if (!user_name.empty()) {
    const Entry* user = TRY_IN(look_up(merged.users, "user", user_name), "context '" + name + "'");
    TRY_IN(apply_user(*user, out), "user '" + user_name + "'");
    TRY_IN(apply_exec(*user, *cluster, out), "user '" + user_name + "'");
  }
  if (const auto ns = get_string(context->value, {"namespace"}); !ns.empty()) out.default_namespace = ns;
  return out;
}

}  // namespace

Result<Config> parse_kubeconfig(std::string_view text, const std::string& file, std::string_view context) {
  Merged merged;
  TRY_IN(merge_file(file, text, merged), "load kubeconfig '" + file + "'");
  return TRY_IN(resolve(merged, context), "load kubeconfig '" + file + "'");
}

Result<Config> load_kubeconfig(const std::vector<std::string>& paths, std::string_view context) {
  Merged merged;
  std::string names;
  bool any = false;
  for (const std::string& path : paths) {
    if (path.empty()) continue;
    names += (names.empty() ? "" : ":") + path;
    const auto text = read_file(path);
    // Of several files some may be missing; an only one may not.
    if (!text && text.error().code() == Code::kNotFound && paths.size() > 1) continue;
    if (!text) return fail(Error(text.error()).in("load kubeconfig"));
    any = true;
    TRY_IN(merge_file(path, *text, merged), "load kubeconfig '" + path + "'");
  }
  if (!any) return fail(Code::kNotFound, "load kubeconfig '" + names + "': none of the files exists");
  return TRY_IN(resolve(merged, context), "load kubeconfig '" + names + "'");
}

Result<Config> in_cluster_config(const fs::path& folder) {
  std::string host = env_or("KUBERNETES_SERVICE_HOST");
  const std::string port = env_or("KUBERNETES_SERVICE_PORT");
  if (host.empty() || port.empty()) {
    return fail(Code::kNotFound,
                "use the pod's service account: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT: are not "
                "set; this is not a pod");
  }
  if (host.find(':') != std::string::npos && host[0] != '[') host = "[" + host + "]";
  Config out;
  out.server = "https://" + host + ":" + port;
  out.token_file = folder / "token";
  const std::string token = TRY_IN(read_file(out.token_file, 1u << 20), "use the pod's service account");
  if (trim(token).empty()) {
    return fail(Code::kInvalid, "use the pod's service account: '" + out.token_file + "': the file is empty");
  }
  // Without it the system's certificates count, as everywhere.
  if (file_exists(folder / "ca.crt")) out.ca_file = folder / "ca.crt";
  if (const auto ns = read_file(folder / "namespace", 4096); ns && !trim(*ns).empty())
    out.default_namespace = trim(*ns);
  return out;
}

Result<Config> find_config(std::string_view explicit_path) {
  if (!explicit_path.empty()) return load_kubeconfig({std::string(explicit_path)});
  if (const std::string list = env_or("KUBECONFIG"); !list.empty()) return load_kubeconfig(split(list, ':'));
  if (!env_or("KUBERNETES_SERVICE_HOST").empty()) return in_cluster_config();
  const std::string home = env_or("HOME");
  const std::string path = home + "/.kube/config";
  if (home.empty() || !file_exists(path)) {
    return fail(Code::kNotFound, "find the cluster: no --kubeconfig, no KUBECONFIG, not in a pod, and '" +
                                     path + "' does not exist");
  }
  return load_kubeconfig({path});
}

}  // namespace gpuop::kube
