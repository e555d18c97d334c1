// Answers and events wait here while the store holds changes that are not on the disk: nobody outside sees
// what a crash could take back. Each commit lets everything out, in order.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "base/http.h"

namespace gpuop::cluster::api {

class GatedResponder;

class Gate : public std::enable_shared_from_this<Gate> {
 public:
  // `closed`: whether what is said now has to wait.
  explicit Gate(std::function<bool()> closed) : closed_(std::move(closed)) {}

  // What is answered through it waits where it must. `writes`: the request may have changed something.
  std::shared_ptr<HttpResponder> wrap(std::shared_ptr<HttpResponder> out, bool writes);
  // The changes are on the disk.
  void release();
  // They are undone: `answer` goes to whoever waits for a first word, streams that had begun are cut.
  void refuse(const std::function<HttpResponse(bool writes)>& answer);
  // From now on nothing waits.
  void open() { closed_ = nullptr; }

 private:
  friend class GatedResponder;
  struct Word {
    enum class Kind { kSend, kBegin, kWrite, kEnd } kind = Kind::kSend;
    std::shared_ptr<GatedResponder> from;
    HttpResponse response;  // kSend; kBegin: status and headers; kWrite: body
  };
  bool closed() const { return closed_ && closed_(); }
  static void say(Word& word);

  std::function<bool()> closed_;
  std::deque<Word> words_;
};

}  // namespace gpuop::cluster::api
