// The transport over libcurl's multi interface, driven by the loop: HTTP/2 by ALPN with one connection for
// many requests, HTTP/1.1 where the server speaks no better.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "kube/config.h"
#include "kube/transport.h"

namespace gpuop::kube {

// The TLS material of a connection, read again when its files change; a credential plugin may replace the
// client certificate at run time.
class TlsMaterial {
 public:
  TlsMaterial(Loop& loop, const Config& config);

  // Reads what has to be read; on a fault the last good texts stay.
  void refresh();
  void set_client_certificate(std::string certificate, std::string key);

  const std::string& ca() const { return ca_; }
  const std::string& certificate() const { return certificate_; }
  const std::string& key() const { return key_; }
  // The first fault of the last refresh(), empty when there was none.
  const std::string& fault() const { return fault_; }

 private:
  Loop& loop_;
  std::string ca_file_, certificate_file_, key_file_;
  std::string ca_, certificate_, key_;
  std::string fault_;
  std::optional<Duration> ca_read_;
  std::filesystem::file_time_type certificate_changed_{}, key_changed_{};
};

Result<std::shared_ptr<Transport>> make_http_transport(Loop& loop, const Config& config,
                                                       std::shared_ptr<TlsMaterial> tls);

}  // namespace gpuop::kube
