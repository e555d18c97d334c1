#include "cluster/apiserver/tokens.h"

#include <openssl/bio.h>
#include <openssl/bn.h>
#include <openssl/ecdsa.h>
#include <openssl/evp.h>
#include <openssl/pem.h>

#include <array>
#include <vector>

#include "base/text.h"

namespace gpuop::cluster::api {

namespace {

constexpr int kHalf = 32;  // bytes of each number of a P-256 signature

std::string to_url_alphabet(std::string text) {
  for (char& c : text) c = c == '+' ? '-' : c == '/' ? '_' : c;
  while (!text.empty() && text.back() == '=') text.pop_back();
  return text;
}

std::optional<std::string> from_url_alphabet(std::string_view view) {
  std::string text(view);
  for (char& c : text) c = c == '-' ? '+' : c == '_' ? '/' : c;
  while (text.size() % 4 != 0) text.push_back('=');
  return base64_decode(text);
}

struct KeyFree {
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};
struct ContextFree {
  void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
};
struct SignatureFree {
  void operator()(ECDSA_SIG* signature) const { ECDSA_SIG_free(signature); }
};

// DER to the two numbers side by side, as RFC 7515 wants them, and back.
std::string raw_of(const std::vector<unsigned char>& der) {
  const unsigned char* at = der.data();
  std::unique_ptr<ECDSA_SIG, SignatureFree> signature(
      d2i_ECDSA_SIG(nullptr, &at, static_cast<long>(der.size())));
  std::string raw(2 * kHalf, '\0');
  if (!signature) return {};
  auto* bytes = reinterpret_cast<unsigned char*>(raw.data());
  BN_bn2binpad(ECDSA_SIG_get0_r(signature.get()), bytes, kHalf);
  BN_bn2binpad(ECDSA_SIG_get0_s(signature.get()), bytes + kHalf, kHalf);
  return raw;
}

std::vector<unsigned char> der_of(const std::string& raw) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(raw.data());
  std::unique_ptr<ECDSA_SIG, SignatureFree> signature(ECDSA_SIG_new());
  ECDSA_SIG_set0(signature.get(), BN_bin2bn(bytes, kHalf, nullptr), BN_bin2bn(bytes + kHalf, kHalf, nullptr));
  std::vector<unsigned char> der(static_cast<std::size_t>(i2d_ECDSA_SIG(signature.get(), nullptr)));
  unsigned char* at = der.data();
  i2d_ECDSA_SIG(signature.get(), &at);
  return der;
}

}  // namespace

struct TokenSigner::Impl {
  std::unique_ptr<EVP_PKEY, KeyFree> key;
};

TokenSigner::TokenSigner(const std::string& key_pem) : impl_(std::make_unique<Impl>()) {
  if (!key_pem.empty()) {
    BIO* bio = BIO_new_mem_buf(key_pem.data(), static_cast<int>(key_pem.size()));
    impl_->key.reset(PEM_read_bio_PrivateKey(bio, nullptr, nullptr, nullptr));
    BIO_free(bio);
  }
  if (!impl_->key) impl_->key.reset(EVP_EC_gen("P-256"));
}
TokenSigner::~TokenSigner() = default;
TokenSigner::TokenSigner(TokenSigner&&) noexcept = default;

std::string TokenSigner::sign(const Json& claims) const {
  std::string text = to_url_alphabet(base64_encode(R"({"alg":"ES256","typ":"JWT"})")) + "." +
                     to_url_alphabet(base64_encode(to_text(claims)));
  std::unique_ptr<EVP_MD_CTX, ContextFree> context(EVP_MD_CTX_new());
  const auto* bytes = reinterpret_cast<const unsigned char*>(text.data());
  std::size_t size = 0;
  EVP_DigestSignInit(context.get(), nullptr, EVP_sha256(), nullptr, impl_->key.get());
  EVP_DigestSign(context.get(), nullptr, &size, bytes, text.size());
  std::vector<unsigned char> der(size);
  EVP_DigestSign(context.get(), der.data(), &size, bytes, text.size());
  der.resize(size);
  return text + "." + to_url_alphabet(base64_encode(raw_of(der)));
}

Result<Json> TokenSigner::verify(std::string_view token) const {
  std::size_t last = token.rfind('.');
  std::size_t first = token.find('.');
  if (first == std::string_view::npos || first == last) return fail(Code::kInvalid, "not a token");
  std::optional<std::string> raw = from_url_alphabet(token.substr(last + 1));
  if (!raw || raw->size() != 2 * kHalf) return fail(Code::kInvalid, "not a signature");
  std::vector<unsigned char> der = der_of(*raw);
  std::string_view text = token.substr(0, last);
  std::unique_ptr<EVP_MD_CTX, ContextFree> context(EVP_MD_CTX_new());
  EVP_DigestVerifyInit(context.get(), nullptr, EVP_sha256(), nullptr, impl_->key.get());
  if (EVP_DigestVerify(context.get(), der.data(), der.size(),
                       reinterpret_cast<const unsigned char*>(text.data()), text.size()) != 1)
    return fail(Code::kPermission, "signature does not fit");
  std::optional<std::string> claims = from_url_alphabet(token.substr(first + 1, last - first - 1));
  if (!claims) return fail(Code::kInvalid, "not a token");
  return parse_json(*claims);
}

}  // namespace gpuop::cluster::api
