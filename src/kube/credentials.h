// Who we are, on every request: bearer tokens (from a file that is rotated), basic authentication,
// impersonation, and credential plugins (kubernetes-api.md §13).
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "kube/client.h"
#include "kube/config.h"
#include "kube/http_transport.h"

namespace gpuop::kube {

// `tls` is given the client certificate of a credential plugin; may be null. The first token or plugin answer
// is fetched here, so that what cannot work is an error at the start.
Result<std::shared_ptr<Credentials>> make_credentials(Loop& loop, const Config& config,
                                                      std::shared_ptr<TlsMaterial> tls);

// What an exec credential plugin answered.
struct ExecAnswer {
  std::string token, certificate, key;
  std::optional<Time> expires;
};
Result<ExecAnswer> parse_exec_answer(std::string_view text, std::string_view api_version);
// Runs the plugin of `config.exec`; blocks for at most a minute.
Result<ExecAnswer> run_exec_plugin(const Config& config);

}  // namespace gpuop::kube
