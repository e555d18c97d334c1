// Private to base: a ByteStream over one of Asio's streams.
#pragma once

#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/error.hpp>
#include <boost/asio/write.hpp>
#include <memory>
#include <string>
#include <utility>

#include "base/byte_stream.h"

namespace gpuop {

template <class Stream>
class AsioByteStream final : public ByteStream {
 public:
  // `ahead`: what was read of the connection already.
  AsioByteStream(std::unique_ptr<Stream> stream, std::string ahead)
      : state_(std::make_shared<State>(std::move(stream), std::move(ahead))) {}
  ~AsioByteStream() override {
    state_->on_read = nullptr;
    state_->on_write = nullptr;
    boost::system::error_code ignored;
    state_->stream->lowest_layer().close(ignored);
  }

  void read(std::size_t most, std::function<void(Result<std::string>)> done) override {
    State& state = *state_;
    state.on_read = std::move(done);
    if (!state.ahead.empty()) {
      state.in = state.ahead.substr(0, most);
      state.ahead.erase(0, state.in.size());
      boost::asio::post(state.stream->get_executor(),
                        [held = state_] { held->was_read(std::move(held->in)); });
      return;
    }
    state.in.resize(most);
    state.stream->async_read_some(boost::asio::buffer(state.in),
                                  [held = state_](boost::system::error_code error, std::size_t n) {
                                    held->in.resize(n);
                                    if (ended(error)) held->in.clear();
                                    if (error && !ended(error)) {
                                      return held->was_read(fault("read from the peer", error));
                                    }
                                    held->was_read(std::move(held->in));
                                  });
  }

  void write(std::string bytes, std::function<void(Result<>)> done) override {
    State& state = *state_;
    state.on_write = std::move(done);
    state.out = std::move(bytes);
    boost::asio::async_write(*state.stream, boost::asio::buffer(state.out),
                             [held = state_](boost::system::error_code error, std::size_t) {
                               auto call = std::exchange(held->on_write, nullptr);
                               if (!call) return;
                               call(error ? Result<>(fault("write to the peer", error)) : Result<>());
                             });
  }

 private:
  struct State {
    State(std::unique_ptr<Stream> s, std::string a) : stream(std::move(s)), ahead(std::move(a)) {}
    void was_read(Result<std::string> bytes) {
      if (auto call = std::exchange(on_read, nullptr)) call(std::move(bytes));
    }
    std::unique_ptr<Stream> stream;
    std::string ahead, in, out;
    std::function<void(Result<std::string>)> on_read;
    std::function<void(Result<>)> on_write;
  };

  // Many clients leave a TLS session without a farewell.
  static bool ended(const boost::system::error_code& error) {
    return error == boost::asio::error::eof || error == boost::asio::ssl::error::stream_truncated;
  }
  static std::unexpected<Error> fault(const std::string& doing, const boost::system::error_code& error) {
    return fail(Code::kUnavailable, doing + ": " + error.message());
  }

  std::shared_ptr<State> state_;
};

}  // namespace gpuop
