// Service account tokens: JSON Web Tokens signed with the cluster's key (ES256).
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace gpuop::cluster::api {

class TokenSigner {
 public:
  // An unusable key is replaced by a new one; `key_pem` may be empty.
  explicit TokenSigner(const std::string& key_pem);
  ~TokenSigner();
  TokenSigner(TokenSigner&&) noexcept;

  std::string sign(const Json& claims) const;
  // The claims of a token that this signer made. Times are not checked.
  Result<Json> verify(std::string_view token) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gpuop::cluster::api
