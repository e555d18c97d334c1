// A self-signed server certificate.
#pragma once

#include <string>

#include "base/http_server.h"
#include "base/result.h"

namespace gpuop::cluster {

// P-256, good for ten years, for a DNS name and an IP address.
Result<TlsFiles> make_self_signed(const std::string& name, const std::string& address);

}  // namespace gpuop::cluster
