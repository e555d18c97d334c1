#include "base/websocket.h"

#include <boost/asio/buffer.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/beast/core/bind_handler.hpp>
#include <boost/beast/core/buffers_to_string.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/websocket.hpp>

#include "base/text.h"

namespace gpuop {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
namespace websocket = beast::websocket;
using boost::system::error_code;

namespace {

constexpr auto kHandshake = std::chrono::seconds(10);  // also for the peer's goodbye
constexpr std::size_t kPiece = 64u << 10;

// A ByteStream as Asio's asynchronous streams are.
class Layer {
 public:
  using executor_type = asio::io_context::executor_type;
  Layer(Loop& loop, std::unique_ptr<ByteStream> stream) : io_(&loop.io()), stream_(std::move(stream)) {}
  executor_type get_executor() const noexcept { return io_->get_executor(); }
  // What is under way ends with an error, on a later turn.
  void close() {
    stream_.reset();
    abort(std::exchange(reading_, nullptr));
    abort(std::exchange(writing_, nullptr));
  }

  template <class Buffers, class Token>
  auto async_read_some(const Buffers& buffers, Token&& token) {
    return asio::async_initiate<Token, void(error_code, std::size_t)>(
        [this](auto handler, const Buffers& into) {
          reading_ = completion(std::move(handler));
          if (!stream_) return abort(std::exchange(reading_, nullptr));
          const std::size_t room = std::min(asio::buffer_size(into), kPiece);
          stream_->read(room, [this, into](const Result<std::string>& bytes) {
            const Completion done = std::exchange(reading_, nullptr);
            if (!bytes) return (*done)(asio::error::connection_reset, 0);
            if (bytes->empty()) return (*done)(asio::error::eof, 0);
            (*done)({}, asio::buffer_copy(into, asio::buffer(*bytes)));
          });
        },
        token, buffers);
  }

  template <class Buffers, class Token>
  auto async_write_some(const Buffers& buffers, Token&& token) {
    return asio::async_initiate<Token, void(error_code, std::size_t)>(
        [this](auto handler, const Buffers& from) {
          writing_ = completion(std::move(handler));
          if (!stream_) return abort(std::exchange(writing_, nullptr));
          std::string bytes = beast::buffers_to_string(from);
          const std::size_t size = bytes.size();
          stream_->write(std::move(bytes), [this, size](const Result<>& how) {
            const Completion done = std::exchange(writing_, nullptr);
            if (!how) return (*done)(asio::error::connection_reset, 0);
            (*done)({}, size);
          });
        },
        token, buffers);
  }

  template <class Token>
  auto async_tear_down(Token&& token) {
    return asio::async_initiate<Token, void(error_code)>(
        [this](auto handler) {
          close();
          asio::post(get_executor(), beast::bind_front_handler(std::move(handler), error_code()));
        },
        token);
  }

 private:
  using Completion = std::shared_ptr<std::function<void(error_code, std::size_t)>>;

  // Asio's handlers can only be moved; functions of ours are copied.
  template <class Handler>
  Completion completion(Handler handler) {
    auto held = std::make_shared<Handler>(std::move(handler));
    return std::make_shared<std::function<void(error_code, std::size_t)>>(
        [held, executor = get_executor()](error_code error, std::size_t n) {
          auto target = asio::get_associated_executor(*held, executor);
          asio::dispatch(target, beast::bind_front_handler(std::move(*held), error, n));
        });
  }
  void abort(Completion done) {
    if (!done) return;
    asio::post(get_executor(), [done = std::move(done)] { (*done)(asio::error::operation_aborted, 0); });
  }

  asio::io_context* io_;
  std::unique_ptr<ByteStream> stream_;
  Completion reading_, writing_;
};

// Found by Beast through the type of their argument.
void beast_close_socket(Layer& layer) {
  layer.close();
}
template <class Handler>
void async_teardown(beast::role_type, Layer& layer, Handler&& handler) {
  layer.async_tear_down(std::forward<Handler>(handler));
}

}  // namespace

struct WebSocket::Impl : std::enable_shared_from_this<WebSocket::Impl> {
  Impl(Loop& loop, std::unique_ptr<ByteStream> connection, std::size_t message_limit)
      : stream(loop, std::move(connection)) {
    websocket::stream_base::timeout limits{};
    limits.handshake_timeout = kHandshake;
    limits.idle_timeout = websocket::stream_base::none();
    limits.keep_alive_pings = false;
    stream.set_option(limits);
    stream.binary(true);
    stream.auto_fragment(false);
    stream.write_buffer_bytes(kPiece);
    stream.read_message_max(message_limit);
  }

  static std::unexpected<Error> fault(const std::string& doing, const error_code& error) {
    const bool gone = error == websocket::error::closed;
    return fail(gone ? Code::kCancelled : Code::kUnavailable, doing + ": " + error.message());
  }

  websocket::stream<Layer> stream;
  beast::flat_buffer in;
  std::string out;
  websocket::response_type answer;
  bool dropped = false;
};

bool WebSocket::asked(const HttpRequest& request) {
  return beast::iequals(std::string(request.header("Upgrade")), "websocket");
}

std::vector<std::string> WebSocket::offered(const HttpRequest& request) {
  std::vector<std::string> out;
  for (const std::string& name : split(request.header("Sec-WebSocket-Protocol"), ',')) {
    if (const auto word = trim(name); !word.empty()) out.emplace_back(word);
  }
  return out;
}

void WebSocket::accept(Loop& loop, std::unique_ptr<ByteStream> stream, const HttpRequest& request,
                       const std::string& subprotocol, std::size_t message_limit, Opened opened) {
  auto impl = std::make_shared<Impl>(loop, std::move(stream), message_limit);
  websocket::request_type asked;
  asked.method_string(request.method);
  asked.target(request.query.empty() ? request.path : request.path + "?" + request.query);
  asked.version(11);
  for (const auto& [name, value] : request.headers) asked.set(name, value);
  impl->stream.set_option(websocket::stream_base::decorator([subprotocol](websocket::response_type& answer) {
    if (!subprotocol.empty()) answer.set(http::field::sec_websocket_protocol, subprotocol);
  }));
  impl->stream.async_accept(asked, [impl, opened = std::move(opened)](error_code error) {
    if (error) return opened(fail(Code::kInvalid, "accept a WebSocket: " + error.message()));
    opened(std::unique_ptr<WebSocket>(new WebSocket(impl)));
  });
}

void WebSocket::connect(Loop& loop, std::unique_ptr<ByteStream> stream, const std::string& host,
                        const std::string& target, const std::string& subprotocol, std::size_t message_limit,
                        Opened opened) {
  auto impl = std::make_shared<Impl>(loop, std::move(stream), message_limit);
  impl->stream.set_option(websocket::stream_base::decorator([subprotocol](websocket::request_type& request) {
    if (!subprotocol.empty()) request.set(http::field::sec_websocket_protocol, subprotocol);
  }));
  impl->stream.async_handshake(
      impl->answer, host, target, [impl, opened = std::move(opened)](error_code error) {
        if (error) {
          return opened(fail(Code::kInvalid, "open a WebSocket: " + error.message() + " (HTTP status " +
                                                 std::to_string(impl->answer.result_int()) + ")"));
        }
        opened(std::unique_ptr<WebSocket>(new WebSocket(impl)));
      });
}

WebSocket::WebSocket(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

WebSocket::~WebSocket() {
  impl_->dropped = true;
  impl_->stream.next_layer().close();
}

void WebSocket::read(std::function<void(Result<std::string>)> done) {
  impl_->stream.async_read(impl_->in, [impl = impl_, done = std::move(done)](error_code error, std::size_t) {
    if (impl->dropped) return;
    if (error) return done(Impl::fault("read a WebSocket", error));
    std::string message = beast::buffers_to_string(impl->in.data());
    impl->in.consume(impl->in.size());
    done(std::move(message));
  });
}

void WebSocket::write(std::string message, std::function<void(Result<>)> done) {
  impl_->out = std::move(message);
  impl_->stream.async_write(asio::buffer(impl_->out),
                            [impl = impl_, done = std::move(done)](error_code error, std::size_t) {
                              if (impl->dropped) return;
                              done(error ? Result<>(Impl::fault("write to a WebSocket", error)) : Result<>());
                            });
}

void WebSocket::close(std::function<void()> done) {
  impl_->stream.async_close(websocket::close_code::normal,
                            [impl = impl_, done = std::move(done)](error_code) {
                              if (!impl->dropped) done();
                            });
}

}  // namespace gpuop
