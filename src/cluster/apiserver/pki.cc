#include "cluster/apiserver/pki.h"

#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <array>
#include <memory>

#include "base/text.h"

namespace gpuop::cluster {

namespace {

template <auto fn>
struct Freer {
  template <class T>
  void operator()(T* p) const {
    fn(p);
  }
};
using PkeyPtr = std::unique_ptr<EVP_PKEY, Freer<EVP_PKEY_free>>;
using X509Ptr = std::unique_ptr<X509, Freer<X509_free>>;
using BioPtr = std::unique_ptr<BIO, Freer<BIO_free>>;

Error openssl_error(std::string_view doing) {
  std::array<char, 256> text{};
  ERR_error_string_n(ERR_get_error(), text.data(), text.size());
  ERR_clear_error();
  return {Code::kInvalid, std::string(doing) + ": " + text.data()};
}

std::string bio_text(BIO* bio) {
  char* data = nullptr;
  long size = BIO_get_mem_data(bio, &data);
  return {data, static_cast<std::size_t>(size)};
}

Result<PkeyPtr> new_key() {
  PkeyPtr key(EVP_EC_gen("P-256"));
  if (!key) return fail(openssl_error("make a private key"));
  return key;
}

Result<std::string> key_text(EVP_PKEY* key) {
  BioPtr bio(BIO_new(BIO_s_mem()));
  if (PEM_write_bio_PKCS8PrivateKey(bio.get(), key, nullptr, nullptr, 0, nullptr, nullptr) != 1)
    return fail(openssl_error("write a private key"));
  return bio_text(bio.get());
}

Result<PkeyPtr> read_key(const std::string& pem) {
  BioPtr bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  PkeyPtr key(PEM_read_bio_PrivateKey(bio.get(), nullptr, nullptr, nullptr));
  if (!key) return fail(openssl_error("read a private key"));
  return key;
}

Result<X509Ptr> read_certificate(const std::string& pem) {
  BioPtr bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  X509Ptr certificate(PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));
  if (!certificate) return fail(openssl_error("read a certificate"));
  return certificate;
}

void add_name(X509_NAME* name, const char* field, const std::string& text) {
  X509_NAME_add_entry_by_txt(name, field, MBSTRING_UTF8, reinterpret_cast<const unsigned char*>(text.data()),
                             static_cast<int>(text.size()), -1, 0);
}

bool add_extension(X509* certificate, X509* issuer, int nid, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  std::unique_ptr<X509_EXTENSION, Freer<X509_EXTENSION_free>> extension(
      X509V3_EXT_conf_nid(nullptr, &context, nid, value.c_str()));
  return extension && X509_add_ext(certificate, extension.get(), -1) == 1;
}

bool set_times(X509* certificate, Time from, Time until) {
  auto seconds = [](Time t) {
    return static_cast<time_t>(
        std::chrono::duration_cast<std::chrono::seconds>(t.time_since_epoch()).count());
  };
  return ASN1_TIME_set(X509_getm_notBefore(certificate), seconds(from)) != nullptr &&
         ASN1_TIME_set(X509_getm_notAfter(certificate), seconds(until)) != nullptr;
}

bool set_serial(X509* certificate) {
  std::array<unsigned char, 16> bytes{};
  if (RAND_bytes(bytes.data(), bytes.size()) != 1) return false;
  bytes[0] &= 0x7f;
  std::unique_ptr<BIGNUM, Freer<BN_free>> number(BN_bin2bn(bytes.data(), bytes.size(), nullptr));
  return number && BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(certificate)) != nullptr;
}

Result<KeyPair> finish(X509* certificate, EVP_PKEY* key, EVP_PKEY* signer) {
  if (X509_sign(certificate, signer, EVP_sha256()) == 0) return fail(openssl_error("sign a certificate"));
  BioPtr bio(BIO_new(BIO_s_mem()));
  if (PEM_write_bio_X509(bio.get(), certificate) != 1) return fail(openssl_error("write a certificate"));
  return KeyPair{bio_text(bio.get()), TRY(key_text(key))};
}

Result<std::string> alternative_names(const CertificateRequest& request) {
  std::string text;
  auto add = [&](std::string_view kind, const std::string& value) -> Result<> {
    if (value.find_first_of(",\n") != std::string::npos)
      return fail(Code::kInvalid, "make a certificate: '" + value + "': not a name");
    if (!text.empty()) text += ',';
    text.append(kind).append(value);
    return {};
  };
  for (const std::string& name : request.dns_names) TRY(add("DNS:", name));
  for (const std::string& address : request.ip_addresses) TRY(add("IP:", address));
  return text;
}

}  // namespace

Result<KeyPair> make_ca(const std::string& common_name, Time now) {
  PkeyPtr key = TRY(new_key());
  X509Ptr certificate(X509_new());
  X509_set_version(certificate.get(), X509_VERSION_3);
  add_name(X509_get_subject_name(certificate.get()), "CN", common_name);
  X509_set_issuer_name(certificate.get(), X509_get_subject_name(certificate.get()));
  X509_set_pubkey(certificate.get(), key.get());
  bool ok = set_serial(certificate.get()) &&
            set_times(certificate.get(), now - 1h, now + std::chrono::hours(24 * 3650)) &&
            add_extension(certificate.get(), certificate.get(), NID_basic_constraints, "critical,CA:TRUE") &&
            add_extension(certificate.get(), certificate.get(), NID_key_usage,
                          "critical,keyCertSign,cRLSign,digitalSignature") &&
            add_extension(certificate.get(), certificate.get(), NID_subject_key_identifier, "hash");
  if (!ok) return fail(openssl_error("make a CA"));
  return finish(certificate.get(), key.get(), key.get());
}

Result<KeyPair> make_certificate(const KeyPair& ca, const CertificateRequest& request, Time now) {
  std::string doing = "make a certificate for '" + request.common_name + "'";
  X509Ptr issuer = TRY_IN(read_certificate(ca.certificate), doing);
  PkeyPtr signer = TRY_IN(read_key(ca.key), doing);
  PkeyPtr key = TRY_IN(new_key(), doing);
  X509Ptr certificate(X509_new());
  X509_set_version(certificate.get(), X509_VERSION_3);
  X509_NAME* subject = X509_get_subject_name(certificate.get());
  for (const std::string& organization : request.organizations) add_name(subject, "O", organization);
  add_name(subject, "CN", request.common_name);
  X509_set_issuer_name(certificate.get(), X509_get_subject_name(issuer.get()));
  X509_set_pubkey(certificate.get(), key.get());
  std::string names = TRY(alternative_names(request));
  bool ok = set_serial(certificate.get()) && set_times(certificate.get(), now - 1h, now + request.lifetime) &&
            add_extension(certificate.get(), issuer.get(), NID_basic_constraints, "critical,CA:FALSE") &&
            add_extension(certificate.get(), issuer.get(), NID_key_usage,
                          "critical,digitalSignature,keyEncipherment") &&
            add_extension(certificate.get(), issuer.get(), NID_ext_key_usage, "serverAuth,clientAuth") &&
            add_extension(certificate.get(), issuer.get(), NID_authority_key_identifier, "keyid") &&
            (names.empty() || add_extension(certificate.get(), issuer.get(), NID_subject_alt_name, names));
  if (!ok) return fail(openssl_error(doing));
  return finish(certificate.get(), key.get(), signer.get());
}

Result<std::string> make_private_key() {
  PkeyPtr key = TRY(new_key());
  return key_text(key.get());
}

Result<ClusterCredentials> make_cluster_credentials(Time now, const std::vector<std::string>& extra_names) {
  ClusterCredentials all;
  all.ca = TRY(make_ca("gpu-operator-ca", now));
  CertificateRequest server{.common_name = "kube-apiserver",
                            .dns_names = {"localhost", "kubernetes", "kubernetes.default",
                                          "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"},
                            .ip_addresses = {"127.0.0.1", "::1", "10.96.0.1"}};
  for (const std::string& name : extra_names) {
    bool address =
        name.find(':') != std::string::npos || name.find_first_not_of("0123456789.") == std::string::npos;
    (address ? server.ip_addresses : server.dns_names).push_back(name);
  }
  all.server = TRY(make_certificate(all.ca, server, now));
  all.admin = TRY(make_certificate(
      all.ca, {.common_name = "kubernetes-admin", .organizations = {"system:masters"}}, now));
  all.service_account_key = TRY(make_private_key());
  return all;
}

std::string make_kubeconfig(const KubeconfigRequest& request) {
  std::string text = "apiVersion: v1\nkind: Config\ncurrent-context: " + request.name +
                     "\nclusters:\n- name: " + request.name + "\n  cluster:\n    server: " + request.server +
                     "\n";
  if (!request.ca_pem.empty())
    text += "    certificate-authority-data: " + base64_encode(request.ca_pem) + "\n";
  text += "contexts:\n- name: " + request.name + "\n  context:\n    cluster: " + request.name +
          "\n    user: " + request.name + "\n";
  if (!request.default_namespace.empty()) text += "    namespace: " + request.default_namespace + "\n";
  text += "users:\n- name: " + request.name + "\n";
  if (!request.client.certificate.empty()) {
    text += "  user:\n    client-certificate-data: " + base64_encode(request.client.certificate) +
            "\n    client-key-data: " + base64_encode(request.client.key) + "\n";
  } else if (!request.token.empty()) {
    text += "  user:\n    token: " + request.token + "\n";
  } else {
    text += "  user: {}\n";
  }
  return text;
}

}  // namespace gpuop::cluster
