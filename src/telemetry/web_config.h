// TLS, users and headers of the exporter's server, in the format of Prometheus exporters (telemetry.md §4.6).
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/http.h"
#include "base/result.h"
#include "base/time.h"

namespace gpuop::telemetry {

struct WebConfig {
  bool tls = false;
  std::string cert_file, key_file, client_ca_file;  // empty: the inline text counts
  std::string cert, key, client_ca;                 // PEM
  bool verify_clients = false;                      // a certificate that is given must be right
  bool require_clients = false;                     // and one must be given
  bool tls13_only = false;
  std::map<std::string, std::string> headers;
  std::map<std::string, std::string> users;  // name to bcrypt hash
  Duration rate_interval{};                  // zero: no limit
  std::int64_t rate_burst = 0;
  std::vector<std::string> notes;  // what is taken and has no effect here
};

// Unknown keys and what cannot be offered are errors with the line.
Result<WebConfig> parse_web_config(std::string_view text, std::string_view file);

// Whether the request brings a user of `config` and the password. `seen` remembers right ones, because a
// bcrypt check takes a tenth of a second.
bool authorized(const WebConfig& config, const HttpRequest& request, std::map<std::string, bool>& seen);

// A token bucket: one request per interval, `burst` at once.
class RateLimit {
 public:
  bool allow(const WebConfig& config, Duration now);

 private:
  double tokens_ = 0;
  std::optional<Duration> last_;
};

}  // namespace gpuop::telemetry
