#include "telemetry/web_config.h"

#include <crypt.h>

#include <algorithm>
#include <memory>

#include "base/text.h"
#include "base/yaml.h"

namespace gpuop::telemetry {
namespace {

class Reader {
 public:
  Reader(const YamlDocument& document, WebConfig& config) : document_(document), config_(config) {}

  Result<> read() {
    const Json& root = document_.value;
    TRY(keys(root, "", {"tls_server_config", "http_server_config", "basic_auth_users", "rate_limit"}));
    if (const Json* tls = find(root, {"tls_server_config"})) TRY(read_tls(*tls));
    if (const Json* http = find(root, {"http_server_config"})) TRY(read_http(*http));
    if (const Json* users = find(root, {"basic_auth_users"})) TRY(read_users(*users));
    if (const Json* rate = find(root, {"rate_limit"})) TRY(read_rate(*rate));
    return {};
  }

 private:
  std::unexpected<Error> wrong(const std::string& path, const std::string& why) const {
    return fail(Code::kInvalid, "line " + std::to_string(document_.line_of(path)) + ": " +
                                    (path.empty() ? "" : path + ": ") + why);
  }

  Result<> keys(const Json& value, const std::string& path, const std::vector<std::string>& known) const {
    if (value.is_null()) return {};
    if (!value.is_object()) return wrong(path, "must be a map");
    for (const auto& [key, child] : value.get_object()) {
      std::string name(key);
      if (std::ranges::find(known, name) == known.end())
        return wrong(path.empty() ? name : path + "." + name, "unknown key" + did_you_mean(name, known));
    }
    return {};
  }

  Result<> read_tls(const Json& tls) {
    const std::string path = "tls_server_config";
    TRY(keys(tls, path,
             {"cert_file", "key_file", "cert", "key", "client_auth_type", "client_ca_file", "client_ca",
              "client_allowed_sans", "min_version", "max_version", "cipher_suites", "curve_preferences",
              "prefer_server_cipher_suites"}));
    auto text = [&](const char* key) { return std::string(get_string(tls, {key})); };
    config_.cert_file = text("cert_file");
    config_.key_file = text("key_file");
    config_.cert = text("cert");
    config_.key = text("key");
    config_.client_ca_file = text("client_ca_file");
    config_.client_ca = text("client_ca");
    bool cert = !config_.cert_file.empty() || !config_.cert.empty();
    bool key = !config_.key_file.empty() || !config_.key.empty();
    if (cert != key) return wrong(path, "a certificate and its key belong together");
    config_.tls = cert;
    TRY(read_client_auth(text("client_auth_type"), path + ".client_auth_type"));
    if (find(tls, {"client_allowed_sans"}))
      return wrong(path + ".client_allowed_sans", "is not offered here: trust a CA of the clients' own");
    for (const char* key_name : {"min_version", "max_version"}) {
      std::string version = text(key_name);
      const std::vector<std::string> known = {"TLS10", "TLS11", "TLS12", "TLS13"};
      if (!version.empty() && std::ranges::find(known, version) == known.end())
        return wrong(path + "." + key_name,
                     "'" + version + "' is no version of TLS" + did_you_mean(version, known));
      if (std::string_view(key_name) == "max_version" && !version.empty() && version != "TLS13")
        return wrong(path + ".max_version", "TLS 1.3 cannot be turned off here");
    }
    config_.tls13_only = text("min_version") == "TLS13";
    if (text("min_version") == "TLS10" || text("min_version") == "TLS11")
      config_.notes.push_back("tls_server_config.min_version: the oldest version here is TLS12");
    for (const char* unused : {"cipher_suites", "curve_preferences", "prefer_server_cipher_suites"})
      if (find(tls, {unused}))
        config_.notes.push_back(std::string("tls_server_config.") + unused +
                                ": OpenSSL's own choice is used");
    return {};
  }

  Result<> read_client_auth(const std::string& type, const std::string& path) {
    bool ca = !config_.client_ca_file.empty() || !config_.client_ca.empty();
    if (type.empty() || type == "NoClientCert") {
      if (ca) return wrong(path, "a client CA needs a mode that verifies certificates");
      return {};
    }
    if (type != "VerifyClientCertIfGiven" && type != "RequireAndVerifyClientCert")
      return wrong(path, "'" + type +
                             "' is not offered here: must be one of NoClientCert, "
                             "VerifyClientCertIfGiven, RequireAndVerifyClientCert");
    if (!ca) return wrong(path, "'" + type + "' needs client_ca_file or client_ca");
    config_.verify_clients = true;
    config_.require_clients = type == "RequireAndVerifyClientCert";
    return {};
  }

  Result<> read_http(const Json& http) {
    TRY(keys(http, "http_server_config", {"http2", "headers"}));
    const Json* headers = find(http, {"headers"});
    if (!headers) return {};
    TRY(keys(*headers, "http_server_config.headers",
             {"Content-Security-Policy", "X-Frame-Options", "X-Content-Type-Options", "X-XSS-Protection",
              "Strict-Transport-Security"}));
    for (const auto& [name, value] : get_object(*headers, {}))
      if (value.is_string()) config_.headers[std::string(name)] = as_text(value);
    return {};
  }

  Result<> read_users(const Json& users) {
    if (users.is_null()) return {};
    if (!users.is_object()) return wrong("basic_auth_users", "must be a map");
    for (const auto& [name, hash] : users.get_object()) {
      std::string path = "basic_auth_users." + std::string(name);
      if (!hash.is_string() || !as_text(hash).starts_with("$2"))
        return wrong(path, "must be a bcrypt hash ($2y$…)");
      config_.users[std::string(name)] = as_text(hash);
    }
    return {};
  }

  Result<> read_rate(const Json& rate) {
    TRY(keys(rate, "rate_limit", {"interval", "burst"}));
    auto interval = parse_go_duration(get_string(rate, {"interval"}, "0s"));
    if (!interval || *interval < Duration::zero()) return wrong("rate_limit.interval", "must be a duration");
    config_.rate_interval = *interval;
    config_.rate_burst = get_int(rate, {"burst"});
    if (config_.rate_burst < 0) return wrong("rate_limit.burst", "must not be below 0");
    return {};
  }

  const YamlDocument& document_;
  WebConfig& config_;
};

bool bcrypt_matches(const std::string& password, const std::string& hash) {
  auto data = std::make_unique<crypt_data>();  // 32 KiB: not for a stack
  const char* made = ::crypt_r(password.c_str(), hash.c_str(), data.get());
  if (!made) return false;
  std::string_view got = made;
  // In time that does not depend on where they differ.
  unsigned char differs = got.size() != hash.size();
  for (std::size_t i = 0; i < std::min(got.size(), hash.size()); ++i)
    differs |= static_cast<unsigned char>(got[i] ^ hash[i]);
  return differs == 0;
}

}  // namespace

Result<WebConfig> parse_web_config(std::string_view text, std::string_view file) {
  const std::string doing = "read web configuration '" + std::string(file) + "'";
  WebConfig config;
  if (trim(text).empty()) return config;
  YamlDocument document = TRY_IN(parse_yaml_one(text, file), doing);
  TRY_IN(Reader(document, config).read(), doing);
  return config;
}

bool authorized(const WebConfig& config, const HttpRequest& request, std::map<std::string, bool>& seen) {
  if (config.users.empty()) return true;
  // bcrypt takes as long for a name that is not there as for one that is.
  static const std::string kNobody = "$2y$10$......................";
  std::string_view header = request.header("Authorization");
  if (!header.starts_with("Basic ")) return false;
  auto pair = base64_decode(trim(header.substr(6)));
  auto colon = pair ? pair->find(':') : std::string::npos;
  if (colon == std::string::npos) return false;
  auto user = config.users.find(pair->substr(0, colon));
  const std::string& hash = user == config.users.end() ? kNobody : user->second;
  std::string key = sha256_hex(*pair + '\0' + hash);
  if (seen.contains(key)) return true;
  bool right = bcrypt_matches(pair->substr(colon + 1), hash) && user != config.users.end();
  if (right) {
    if (seen.size() > 100) seen.clear();
    seen[key] = true;
  }
  return right;
}

bool RateLimit::allow(const WebConfig& config, Duration now) {
  if (config.rate_interval <= Duration::zero()) return true;
  double most = static_cast<double>(std::max<std::int64_t>(config.rate_burst, 1));
  if (last_) {
    tokens_ += std::chrono::duration<double>(now - *last_).count() /
               std::chrono::duration<double>(config.rate_interval).count();
  } else {
    tokens_ = most;
  }
  last_ = now;
  tokens_ = std::min(tokens_, most);
  if (tokens_ < 1) return false;
  tokens_ -= 1;
  return true;
}

}  // namespace gpuop::telemetry
