#include "kube/credentials.h"

#include <unistd.h>

#include <algorithm>

#include "base/files.h"
#include "base/log.h"
#include "base/process.h"
#include "base/text.h"

namespace gpuop::kube {
namespace {

// Kubelets rotate the file long before the old token ends; a minute of age is the most that is allowed, so it
// is read 10 s sooner.
constexpr Duration kTokenAge = 50s;
constexpr Duration kPluginLimit = 60s;

class ConfigCredentials final : public Credentials {
 public:
  ConfigCredentials(Loop& loop, const Config& config, std::shared_ptr<TlsMaterial> tls)
      : loop_(loop), config_(config), tls_(std::move(tls)), token_(config.token) {}

  Result<> start() {
    if (!config_.token_file.empty()) return read_token();
    if (!config_.exec.is_null()) return run_plugin();
    return {};
  }

  void apply(HttpRequest& request) override {
    if (!config_.token_file.empty() && loop_.elapsed() - token_read_ >= kTokenAge) {
      token_read_ = loop_.elapsed();
      if (const auto read = read_token(); !read) log::warn("token stays as it was", {{"why", read.error()}});
    }
    if (expires_ && loop_.now() >= *expires_) {
      if (const auto ran = run_plugin(); !ran) log::warn("credentials have expired", {{"why", ran.error()}});
    }
    if (!token_.empty()) {
      request.headers["Authorization"] = "Bearer " + token_;
    } else if (!config_.username.empty()) {
      request.headers["Authorization"] = "Basic " + base64_encode(config_.username + ":" + config_.password);
    }
    if (config_.impersonate_user.empty()) return;
    request.headers["Impersonate-User"] = config_.impersonate_user;
    if (!config_.impersonate_uid.empty()) request.headers["Impersonate-Uid"] = config_.impersonate_uid;
    if (!config_.impersonate_groups.empty()) {
      request.headers["Impersonate-Group"] = join(config_.impersonate_groups, "\n");
    }
  }

  bool refresh() override {
    if (!config_.token_file.empty()) {
      const std::string old = token_;
      return read_token() && token_ != old;
    }
    if (config_.exec.is_null()) return false;
    const auto ran = run_plugin();
    if (!ran) log::warn("credentials cannot be renewed", {{"why", ran.error()}});
    return ran.has_value();
  }

 private:
  Result<> read_token() {
    const std::string text = TRY_IN(read_file(config_.token_file, 1u << 20), "read token");
    const std::string_view token = trim(text);
    if (token.empty())
      return fail(Code::kInvalid, "read token: '" + config_.token_file + "': the file is empty");
    token_ = token;
    token_read_ = loop_.elapsed();
    return {};
  }

  Result<> run_plugin() {
    ExecAnswer answer = TRY(run_exec_plugin(config_));
    token_ = std::move(answer.token);
    expires_ = answer.expires;
    if (tls_ && !answer.certificate.empty()) {
      tls_->set_client_certificate(std::move(answer.certificate), std::move(answer.key));
    }
    return {};
  }

  Loop& loop_;
  Config config_;
  std::shared_ptr<TlsMaterial> tls_;
  std::string token_;
  Duration token_read_{0};
  std::optional<Time> expires_;
};

std::string find_program(const std::string& command) {
  if (command.find('/') != std::string::npos) return command;
  for (const std::string& folder : split(env_or("PATH", "/usr/local/bin:/usr/bin:/bin"), ':')) {
    const std::string path = folder + "/" + command;
    if (!folder.empty() && ::access(path.c_str(), X_OK) == 0) return path;
  }
  return {};
}

std::string exec_info(const Config& config, std::string_view api_version) {
  JsonObject spec{{"interactive", false}};
  if (get_bool(config.exec, {"provideClusterInfo"})) {
    JsonObject cluster{{"server", config.server}};
    if (!config.tls_server_name.empty()) cluster["tls-server-name"] = config.tls_server_name;
    if (config.insecure) cluster["insecure-skip-tls-verify"] = true;
    if (!config.proxy_url.empty()) cluster["proxy-url"] = config.proxy_url;
    std::string ca = config.ca_pem;
    if (ca.empty() && !config.ca_file.empty()) ca = read_file(config.ca_file).value_or("");
    if (!ca.empty()) cluster["certificate-authority-data"] = base64_encode(ca);
    if (const Json* own = find(config.exec, {"clusterConfig"})) cluster["config"] = *own;
    spec["cluster"] = std::move(cluster);
  }
  JsonObject info{{"kind", "ExecCredential"}};
  info["apiVersion"] = api_version;
  info["spec"] = std::move(spec);
  return to_text(info);
}

}  // namespace

Result<ExecAnswer> parse_exec_answer(std::string_view text, std::string_view api_version) {
  const Json answer = TRY_IN(parse_json(trim(text)), "read the plugin's answer");
  const auto bad = [](const std::string& why) {
    return fail(Code::kInvalid, "read the plugin's answer: " + why);
  };
  if (get_string(answer, {"kind"}) != "ExecCredential") return bad("kind: must be ExecCredential");
  if (get_string(answer, {"apiVersion"}) != api_version) {
    return bad("apiVersion: must be " + std::string(api_version) + ", as configured; got '" +
               str(get_string(answer, {"apiVersion"})) + "'");
  }
  ExecAnswer out;
  out.token = get_string(answer, {"status", "token"});
  out.certificate = get_string(answer, {"status", "clientCertificateData"});
  out.key = get_string(answer, {"status", "clientKeyData"});
  if (out.certificate.empty() != out.key.empty()) {
    return bad("status: clientCertificateData and clientKeyData come together");
  }
  if (out.token.empty() && out.certificate.empty())
    return bad("status: has neither a token nor a certificate");
  if (const auto expires = get_string(answer, {"status", "expirationTimestamp"}); !expires.empty()) {
    out.expires = TRY_IN(parse_time(expires), "read the plugin's answer: status.expirationTimestamp");
  }
  return out;
}

Result<ExecAnswer> run_exec_plugin(const Config& config) {
  const std::string command = str(get_string(config.exec, {"command"}));
  const std::string doing = "run credential plugin '" + command + "'";
  const std::string api_version = str(get_string(config.exec, {"apiVersion"}));
  if (get_string(config.exec, {"interactiveMode"}) == "Always") {
    return fail(Code::kUnsupported, doing + ": interactiveMode is Always, and it is given no terminal here");
  }
  Command run;
  run.argv.push_back(find_program(command));
  if (run.argv[0].empty()) {
    const std::string hint = str(get_string(config.exec, {"installHint"}));
    return fail(Code::kNotFound, doing + ": not found in PATH" + (hint.empty() ? "" : "; " + hint));
  }
  for (const Json& arg : get_array(config.exec, {"args"})) run.argv.push_back(str(as_text(arg)));
  // The plugin belongs to the user, and needs the user's environment to find its own sign-in.
  std::vector<std::string> own;
  for (const Json& entry : get_array(config.exec, {"env"})) {
    own.push_back(str(get_string(entry, {"name"})) + "=" + str(get_string(entry, {"value"})));
  }
  own.push_back("KUBERNETES_EXEC_INFO=" + exec_info(config, api_version));
  for (const std::string& entry : current_environment()) {
    const std::string name = entry.substr(0, entry.find('=') + 1);
    const bool replaced =
        std::ranges::any_of(own, [&](const std::string& mine) { return mine.starts_with(name); });
    if (!replaced) run.env.push_back(entry);
  }
  run.env.insert(run.env.end(), own.begin(), own.end());
  const ExitState exit = TRY_IN(run_command(run, kPluginLimit), doing);
  if (!exit.ok()) {
    return fail(Code::kPermission, doing + ": exit status " + std::to_string(exit.code) + ": " +
                                       std::string(trim(exit.err).substr(0, 512)));
  }
  return TRY_IN(parse_exec_answer(exit.out, api_version), doing);
}

Result<std::shared_ptr<Credentials>> make_credentials(Loop& loop, const Config& config,
                                                      std::shared_ptr<TlsMaterial> tls) {
  auto out = std::make_shared<ConfigCredentials>(loop, config, std::move(tls));
  TRY(out->start());
  return out;
}

Result<std::unique_ptr<Client>> make_client(Loop& loop, const Config& config, ClientOptions options) {
  const auto tls = std::make_shared<TlsMaterial>(loop, config);
  auto credentials = TRY(make_credentials(loop, config, tls));
  auto transport = TRY(make_http_transport(loop, config, tls));
  return std::make_unique<Client>(loop, std::move(transport), std::move(options), std::move(credentials));
}

}  // namespace gpuop::kube
