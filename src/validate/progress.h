// Tells the API server which step of a sequence of validations takes long, by an annotation of its own pod
// (hardware/validation_note.h). A sequence that is through in a moment tells nothing and asks for nothing.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/loop.h"
#include "base/result.h"
#include "kube/client.h"

namespace gpuop::validate {

struct ProgressOptions {
  std::string ns, pod;     // the pod's name
  bool told = false;       // it has the annotation already, of an earlier container
  Duration patience = 2s;  // a step that takes longer is told of
  Duration gap = 1s;       // between two writes
  Duration again = 5s;     // after one that failed
};

class Progress {
 public:
  // `client` is asked once there is something to tell.
  Progress(Loop& loop, ProgressOptions options, std::function<Result<kube::Client*>()> client);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // This one is being done now.
  void step(std::string_view component);
  // Why it is not done yet.
  void waits(bool failing, std::string_view reason);
  // All have passed: the annotation goes, if there is one.
  void passed();
  // Nothing is on its way to the server, nor waits to be.
  bool idle() const;
  struct Impl;

 private:
  std::shared_ptr<Impl> impl_;
};

}  // namespace gpuop::validate
