// A blocking HTTP/1.1 client with one keep-alive connection to 127.0.0.1, plain or TLS, for campaigns and
// benchmarks: small, and as fast as a client can be.
#pragma once

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace gpuop {

// A client's side of TLS: its certificate; the server's is not checked.
class TlsIdentity {
 public:
  TlsIdentity(const std::string& certificate_pem, const std::string& key_pem)
      : context_(SSL_CTX_new(TLS_client_method())) {
    BIO* certificate = BIO_new_mem_buf(certificate_pem.data(), static_cast<int>(certificate_pem.size()));
    BIO* key = BIO_new_mem_buf(key_pem.data(), static_cast<int>(key_pem.size()));
    X509* x509 = PEM_read_bio_X509(certificate, nullptr, nullptr, nullptr);
    EVP_PKEY* private_key = PEM_read_bio_PrivateKey(key, nullptr, nullptr, nullptr);
    if (x509 != nullptr) SSL_CTX_use_certificate(context_, x509);
    if (private_key != nullptr) SSL_CTX_use_PrivateKey(context_, private_key);
    X509_free(x509);
    EVP_PKEY_free(private_key);
    BIO_free(certificate);
    BIO_free(key);
  }
  ~TlsIdentity() { SSL_CTX_free(context_); }
  TlsIdentity(const TlsIdentity&) = delete;
  TlsIdentity& operator=(const TlsIdentity&) = delete;
  SSL_CTX* context() const { return context_; }

 private:
  SSL_CTX* context_;
};

class HttpClient {
 public:
  struct Answer {
    int status = 0;
    std::string body;
  };

  // `tls` may be null. connected() says whether it worked.
  HttpClient(int port, const TlsIdentity* tls) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in where{};
    where.sin_family = AF_INET;
    where.sin_port = htons(static_cast<std::uint16_t>(port));
    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int one = 1;
    ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    // A server that never comes is a failure, not a wait for ever.
    timeval limit{30, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    connected_ = ::connect(fd_, reinterpret_cast<sockaddr*>(&where), sizeof where) == 0;
    if (!connected_ || tls == nullptr) return;
    ssl_ = SSL_new(tls->context());
    SSL_set_fd(ssl_, fd_);
    connected_ = SSL_connect(ssl_) == 1;
  }
  ~HttpClient() {
    if (ssl_ != nullptr) SSL_free(ssl_);
    ::close(fd_);
  }
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  bool connected() const { return connected_; }
  int fd() const { return fd_; }
  // Makes a blocked read or write of another thread fail.
  void cut() const { ::shutdown(fd_, SHUT_RDWR); }

  bool send(std::string_view method, std::string_view target, std::string_view body = {}) {
    std::string text;
    text.reserve(body.size() + 256);
    text.append(method).append(" ").append(target).append(
        " HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: campaign/1\r\n");
    if (!body.empty())
      text.append("Content-Type: application/json\r\nContent-Length: ")
          .append(std::to_string(body.size()))
          .append("\r\n");
    text.append("\r\n").append(body);
    return write_all(text);
  }
  // The answer to the oldest request without one; nullopt when the connection broke.
  std::optional<Answer> receive() {
    std::optional<std::string> head = take_until("\r\n\r\n");
    if (!head || head->size() < 12) return std::nullopt;
    Answer answer;
    answer.status = std::atoi(head->c_str() + 9);
    std::size_t at = head->find("Content-Length: ");
    if (at == std::string::npos) return answer;
    std::size_t size = std::strtoull(head->c_str() + at + 16, nullptr, 10);
    while (have_.size() < size)
      if (!read_some()) return std::nullopt;
    answer.body = have_.substr(0, size);
    have_.erase(0, size);
    return answer;
  }
  std::optional<Answer> ask(std::string_view method, std::string_view target, std::string_view body = {}) {
    if (!send(method, target, body)) return std::nullopt;
    return receive();
  }
  // Of a chunked answer whose head was taken by take_head(): the next line of its content.
  std::optional<std::string> take_head() { return take_until("\r\n\r\n"); }
  std::optional<std::string> next_line() {
    for (std::size_t end = 0; (end = lines_.find('\n')) == std::string::npos;) {
      std::optional<std::string> size = take_until("\r\n");
      if (!size) return std::nullopt;
      std::size_t bytes = std::strtoull(size->c_str(), nullptr, 16);
      if (bytes == 0) return std::nullopt;
      while (have_.size() < bytes + 2)
        if (!read_some()) return std::nullopt;
      lines_.append(have_, 0, bytes);
      have_.erase(0, bytes + 2);
    }
    std::size_t end = lines_.find('\n');
    std::string line = lines_.substr(0, end);
    lines_.erase(0, end + 1);
    return line;
  }

 private:
  bool write_all(std::string_view text) {
    while (!text.empty()) {
      ssize_t n = ssl_ != nullptr ? SSL_write(ssl_, text.data(), static_cast<int>(text.size()))
                                  : ::send(fd_, text.data(), text.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      text.remove_prefix(static_cast<std::size_t>(n));
    }
    return true;
  }
  bool read_some() {
    char bytes[16384];
    ssize_t n = ssl_ != nullptr ? SSL_read(ssl_, bytes, sizeof bytes) : ::recv(fd_, bytes, sizeof bytes, 0);
    if (n <= 0) return false;
    have_.append(bytes, static_cast<std::size_t>(n));
    return true;
  }
  std::optional<std::string> take_until(std::string_view mark) {
    std::size_t end = 0;
    while ((end = have_.find(mark)) == std::string::npos)
      if (!read_some()) return std::nullopt;
    std::string taken = have_.substr(0, end + mark.size());
    have_.erase(0, end + mark.size());
    return taken;
  }

  int fd_;
  SSL* ssl_ = nullptr;
  bool connected_ = false;
  std::string have_, lines_;
};

}  // namespace gpuop
