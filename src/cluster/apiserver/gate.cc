#include "cluster/apiserver/gate.h"

#include <set>
#include <utility>

#include "base/byte_stream.h"

namespace gpuop::cluster::api {

class GatedResponder final : public HttpResponder,
                             public UpgradableResponder,
                             public std::enable_shared_from_this<GatedResponder> {
 public:
  GatedResponder(std::shared_ptr<Gate> gate, std::shared_ptr<HttpResponder> out, bool writes)
      : gate_(std::move(gate)), out_(std::move(out)), writes_(writes) {}

  void send(HttpResponse response) override { say(Gate::Word::Kind::kSend, std::move(response)); }
  void begin(int status, Headers headers) override {
    say(Gate::Word::Kind::kBegin, {.status = status, .headers = std::move(headers)});
  }
  void write(std::string chunk) override { say(Gate::Word::Kind::kWrite, {.body = std::move(chunk)}); }
  void end() override { say(Gate::Word::Kind::kEnd, {}); }
  void abort() override {
    if (!std::exchange(lost_, true)) out_->abort();
  }
  // What goes over such a connection tells nothing of the store.
  std::unique_ptr<ByteStream> take_over() override {
    return waiting_ != 0 || std::exchange(lost_, true) ? nullptr : gpuop::take_over(*out_);
  }
  std::size_t buffered() const override { return waiting_bytes_ + out_->buffered(); }
  bool closed() const override { return lost_ || out_->closed(); }
  void on_close(std::function<void()> closed) override { out_->on_close(std::move(closed)); }
  void on_drain(const std::function<void()>& drained) override {
    drained_ = drained;
    out_->on_drain(drained_);
  }

 private:
  friend class Gate;

  void say(Gate::Word::Kind kind, HttpResponse response) {
    if (lost_) return;
    Gate::Word word{kind, shared_from_this(), std::move(response)};
    if (waiting_ == 0 && !gate_->closed()) return Gate::say(word);
    ++waiting_;
    waiting_bytes_ += word.response.body.size();
    gate_->words_.push_back(std::move(word));
  }

  std::shared_ptr<Gate> gate_;
  std::shared_ptr<HttpResponder> out_;
  std::function<void()> drained_;
  std::size_t waiting_ = 0;
  std::size_t waiting_bytes_ = 0;
  bool writes_;
  bool begun_ = false;  // something went out
  bool lost_ = false;
};

std::shared_ptr<HttpResponder> Gate::wrap(std::shared_ptr<HttpResponder> out, bool writes) {
  return std::make_shared<GatedResponder>(shared_from_this(), std::move(out), writes);
}

void Gate::say(Word& word) {
  GatedResponder& from = *word.from;
  if (from.lost_) return;
  from.begun_ = true;
  switch (word.kind) {
    case Word::Kind::kSend:
      return from.out_->send(std::move(word.response));
    case Word::Kind::kBegin:
      return from.out_->begin(word.response.status, std::move(word.response.headers));
    case Word::Kind::kWrite:
      return from.out_->write(std::move(word.response.body));
    case Word::Kind::kEnd:
      return from.out_->end();
  }
}

void Gate::release() {
  // An answer may cause changes; what is said after those waits for the next commit.
  do {
    std::deque<Word> words = std::exchange(words_, {});
    std::set<std::shared_ptr<GatedResponder>> relieved;
    for (Word& word : words) {
      --word.from->waiting_;
      word.from->waiting_bytes_ -= word.response.body.size();
      say(word);
      if (word.kind == Word::Kind::kWrite && word.from->waiting_ == 0) relieved.insert(word.from);
    }
    for (const auto& responder : relieved)
      if (responder->drained_ && !responder->lost_) std::function<void()>(responder->drained_)();
  } while (!words_.empty() && !closed());
}

void Gate::refuse(const std::function<HttpResponse(bool writes)>& answer) {
  std::deque<Word> words = std::exchange(words_, {});
  for (Word& word : words) {
    GatedResponder& from = *word.from;
    from.waiting_ = from.waiting_bytes_ = 0;
    if (from.lost_) continue;
    from.lost_ = true;
    if (from.begun_) {
      from.out_->abort();
    } else {
      from.out_->send(answer(from.writes_));
    }
  }
}

}  // namespace gpuop::cluster::api
