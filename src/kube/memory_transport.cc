// The in-memory transport: a handler is called as the HTTP server would call it, and what it answers arrives
// on later turns of the loop, in order.
#include <deque>
#include <variant>

#include "kube/transport.h"

namespace gpuop::kube {
namespace {

struct Begin {
  int status;
  Headers headers;
};
struct Data {
  std::string bytes;
};
struct End {
  Result<> how;
};
using Piece = std::variant<Begin, Data, End>;

// One request under way. The client's handle and the server's responder share it.
class Call : public std::enable_shared_from_this<Call> {
 public:
  Call(Loop& loop, StreamEvents events) : loop_(loop), events_(std::move(events)) {}

  void push(Piece piece) {
    if (closed_ || ended_) return;
    if (const auto* data = std::get_if<Data>(&piece)) buffered_ += data->bytes.size();
    ended_ = std::holds_alternative<End>(piece);
    pieces_.push_back(std::move(piece));
    if (scheduled_) return;
    scheduled_ = true;
    loop_.post([self = shared_from_this()] { self->deliver(); });
  }

  // The client lost interest.
  void cancel() {
    if (closed_) return;
    closed_ = true;
    events_ = {};
    pieces_.clear();
    buffered_ = 0;
    if (ended_) return;
    // The server hears of it on a turn of its own, as it would from a socket.
    if (on_close_) loop_.post(std::exchange(on_close_, nullptr));
  }

  bool closed() const { return closed_; }
  std::size_t buffered() const { return buffered_; }
  void on_drain(const std::function<void()>& drained) { drained_ = drained; }
  void on_close(std::function<void()> closed) {
    if (closed_ && !ended_) {
      loop_.post(std::move(closed));
    } else {
      on_close_ = std::move(closed);
    }
  }

 private:
  void deliver() {
    scheduled_ = false;
    std::deque<Piece> pieces;
    pieces.swap(pieces_);
    for (Piece& piece : pieces) {
      if (closed_) return;
      // A callback may drop the handle, which empties events_; so each is called through a copy.
      if (auto* begin = std::get_if<Begin>(&piece)) {
        const auto call = events_.begin;
        if (call) call(begin->status, begin->headers);
      } else if (auto* data = std::get_if<Data>(&piece)) {
        buffered_ -= data->bytes.size();
        const auto call = events_.data;
        if (call) call(data->bytes);
        if (buffered_ == 0 && drained_ && !ended_ && !closed_) loop_.post(drained_);
      } else {
        const auto call = std::move(events_.end);
        closed_ = true;
        events_ = {};
        on_close_ = nullptr;
        if (call) call(std::move(std::get<End>(piece).how));
      }
    }
  }

  Loop& loop_;
  StreamEvents events_;
  std::deque<Piece> pieces_;
  std::function<void()> on_close_;
  std::function<void()> drained_;
  std::size_t buffered_ = 0;
  bool scheduled_ = false;
  bool ended_ = false;   // the server said all it had to say
  bool closed_ = false;  // the client heard the end, or left
};

class MemoryResponder : public HttpResponder {
 public:
  explicit MemoryResponder(std::shared_ptr<Call> call) : call_(std::move(call)) {}
  ~MemoryResponder() override { cut("the server dropped the request"); }

  void send(HttpResponse response) override {
    call_->push(Begin{response.status, std::move(response.headers)});
    if (!response.body.empty()) call_->push(Data{std::move(response.body)});
    end();
  }
  void begin(int status, Headers headers) override { call_->push(Begin{status, std::move(headers)}); }
  void write(std::string chunk) override {
    if (!chunk.empty()) call_->push(Data{std::move(chunk)});
  }
  void end() override { call_->push(End{}); }
  void abort() override { cut("the server cut the connection"); }
  std::size_t buffered() const override { return call_->buffered(); }
  bool closed() const override { return call_->closed(); }
  void on_close(std::function<void()> closed) override { call_->on_close(std::move(closed)); }
  void on_drain(const std::function<void()>& drained) override { call_->on_drain(drained); }

 private:
  void cut(const char* why) { call_->push(End{fail(Code::kUnavailable, why)}); }

  std::shared_ptr<Call> call_;
};

class MemoryTransport : public Transport {
 public:
  MemoryTransport(Loop& loop, HttpHandler handler)
      : loop_(loop), handler_(std::make_shared<HttpHandler>(std::move(handler))) {}

  Handle stream(HttpRequest request, StreamEvents events) override {
    auto call = std::make_shared<Call>(loop_, std::move(events));
    loop_.post([call, handler = handler_, request = std::move(request)]() mutable {
      if (call->closed()) return;
      (*handler)(std::move(request), std::make_shared<MemoryResponder>(call));
    });
    return Handle([call] { call->cancel(); });
  }

 private:
  Loop& loop_;
  std::shared_ptr<HttpHandler> handler_;
};

}  // namespace

std::shared_ptr<Transport> make_memory_transport(Loop& loop, HttpHandler handler) {
  return std::make_shared<MemoryTransport>(loop, std::move(handler));
}

}  // namespace gpuop::kube
