#include <fcntl.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl.hpp>

#include "base/asio_byte_stream.h"
#include "base/text.h"

namespace gpuop {

namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using TlsStream = asio::ssl::stream<asio::ip::tcp::socket>;
using Done = std::function<void(Result<std::unique_ptr<ByteStream>>)>;

struct Connecting : std::enable_shared_from_this<Connecting> {
  Connecting(Loop& l, std::string n, Done d) : loop(l), name(std::move(n)), done(std::move(d)) {}

  void begin(const TlsTarget& target, Duration limit) {
    timer = loop.after(limit, [self = shared_from_this()] {
      self->finish(fail(Code::kTimeout, "dial '" + self->name + "': i/o timeout"));
    });
    if (auto ready = prepare(target); !ready) {
      later = loop.after(Duration::zero(),
                         [self = shared_from_this(), error = ready.error()] { self->finish(fail(error)); });
      return;
    }
    stream->next_layer().async_connect(endpoint, [self = shared_from_this()](error_code error) {
      if (error) return self->failed(error);
      self->stream->next_layer().set_option(asio::ip::tcp::no_delay(true), error);
      self->stream->async_handshake(asio::ssl::stream_base::client,
                                    [self](error_code refused) { self->shaken(refused); });
    });
  }

  Result<> prepare(const TlsTarget& target) {
    error_code error;
    const auto address = asio::ip::make_address(target.address, error);
    if (error) return fail(Code::kInvalid, "dial '" + name + "': not an IP address");
    endpoint = {address, target.port};
    asio::ssl::context context(asio::ssl::context::tls_client);
    if (!target.client_certificate.empty()) {
      context.use_certificate_chain(asio::buffer(target.client_certificate), error);
      if (!error) context.use_private_key(asio::buffer(target.client_key), asio::ssl::context::pem, error);
      if (error) return fail(Code::kInvalid, "dial '" + name + "': client certificate: " + error.message());
    }
    stream = std::make_unique<TlsStream>(loop.io(), context);
    stream->next_layer().open(endpoint.protocol(), error);
    if (error) return fail(errno_error("dial '" + name + "'", error.value()));
    ::fcntl(stream->next_layer().native_handle(), F_SETFD,
            FD_CLOEXEC);  // it is not for programs that are run
    return {};
  }

  void shaken(const error_code& error) {
    if (error) return failed(error);
    if (stream) finish(std::make_unique<AsioByteStream<TlsStream>>(std::move(stream), std::string()));
  }
  void failed(const error_code& error) {
    finish(fail(Code::kUnavailable, "dial '" + name + "': " + error.message()));
  }
  void finish(Result<std::unique_ptr<ByteStream>> result) {
    timer.reset();
    later.reset();
    error_code ignored;
    if (stream) stream->lowest_layer().close(ignored);
    if (auto call = std::exchange(done, nullptr)) call(std::move(result));
  }

  Loop& loop;
  std::string name;
  Done done;
  asio::ip::tcp::endpoint endpoint;
  std::unique_ptr<TlsStream> stream;
  Handle timer, later;
};

}  // namespace

std::unique_ptr<ByteStream> take_over(HttpResponder& responder) {
  auto* upgradable = dynamic_cast<UpgradableResponder*>(&responder);
  return upgradable ? upgradable->take_over() : nullptr;
}

Handle connect_tls(Loop& loop, const TlsTarget& target, Duration limit, Done done) {
  const bool six = target.address.find(':') != std::string::npos;
  const std::string name =
      (six ? "[" + target.address + "]" : target.address) + ":" + std::to_string(target.port);
  auto connecting = std::make_shared<Connecting>(loop, name, std::move(done));
  connecting->begin(target, limit);
  return Handle([connecting] {
    connecting->done = nullptr;
    connecting->finish(fail(Code::kCancelled, "dial"));
  });
}

}  // namespace gpuop
