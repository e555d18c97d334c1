// The volumes of one pod: made ready once their ConfigMaps, Secrets, tokens and host paths are there, and
// kept up to date while the pod lives.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/inotify.h"
#include "cluster/kubelet/context.h"
#include "cluster/kubelet/volume_files.h"

namespace gpuop::cluster {

class PodVolumes {
 public:
  // `changed` is called, never from within start() or update(), when a volume turned ready or failed.
  PodVolumes(KubeletContext& context, std::shared_ptr<const Json> pod, std::function<void()> changed);
  ~PodVolumes();

  void start();
  // The pod's labels or annotations may have changed.
  void update(std::shared_ptr<const Json> pod);
  bool ready() const;
  // Sentences for FailedMount, one a volume that cannot be set up.
  std::vector<std::string> problems() const;
  // A container's mounts in the order of their depth; `env` is for subPathExpr. kInvalid, kNotFound, kIo: the
  // text is the message of CreateContainerConfigError.
  Result<std::vector<RuntimeMount>> mounts(const Json& container,
                                           const std::map<std::string, std::string>& env) const;
  // Stops watching; files stay (the pod's folder is removed by its worker).
  void stop();

 private:
  struct Token {
    std::string text;
    Handle request, refresh;
    Backoff backoff{std::chrono::seconds(1), std::chrono::seconds(30)};
    std::string problem;
  };
  struct Volume {
    std::string name;
    enum class State { kPending, kReady, kFailed } state = State::kPending;
    std::string problem;
    std::filesystem::path path;  // on the node
    std::vector<Handle> watches;
    std::map<std::size_t, Token> tokens;  // by place in a projected volume's sources
    std::unique_ptr<DirWatch> dir_watch;
    Handle retry;
    Backoff backoff{std::chrono::milliseconds(500), std::chrono::minutes(2)};
    bool active = false;  // watches are set
  };
  enum class Outcome { kWait, kReady };

  const Json& source(const Volume& volume) const;
  void evaluate(Volume& volume);
  Result<Outcome> set_up(Volume& volume);
  Result<Outcome> set_up_files(Volume& volume, const Json& source);
  Result<Outcome> projected(Volume& volume, const Json& source, Payload& payload);
  Result<Outcome> host_path(Volume& volume, const Json& source);
  Result<Outcome> empty_dir(Volume& volume, const Json& source);
  Result<Outcome> token(Volume& volume, std::size_t index, const Json& source, Payload& payload);
  void request_token(Volume& volume, std::size_t index, const Json& source);
  void token_came(Volume& volume, std::size_t index, const Json& source,
                  kube::ApiResult<HttpResponse> answer);
  void watch_object(Volume& volume, ObjectKind kind, const std::string& name);
  void watch_source(Volume& volume, const Json& source);
  void try_again(Volume& volume, const Json& spec);
  std::string pod_ns() const;
  void tell();

  KubeletContext& context_;
  std::shared_ptr<const Json> pod_;
  std::function<void()> changed_;
  std::vector<std::unique_ptr<Volume>> volumes_;
  std::uint64_t stamps_ = 0;
  Handle told_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace gpuop::cluster
