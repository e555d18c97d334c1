// Whose pods the API server does not take (a quota, an admission webhook, pod security): DaemonSet
// controllers say so by Events alone.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>

#include "base/loop.h"
#include "kube/client.h"
#include "kube/informer.h"

namespace gpuop::op {

class RefusedPods {
 public:
  // `changed`: what is said of a DaemonSet is new, or is said no more.
  RefusedPods(kube::Client& client, const std::string& ns,
              std::function<void(const std::string& daemonset)> changed);
  // A DaemonSet is like this now, or is gone. Events are watched from when one has lacked pods for a while:
  // an installation that goes well costs no request more.
  void seen(const Json& daemonset, bool gone);
  const std::map<std::string, std::string>& why() const { return why_; }  // by DaemonSet

 private:
  void look();

  kube::Informer events_;
  Loop& loop_;
  bool watching_ = false;
  std::set<std::string> lacking_;
  Handle patience_;
  std::function<void(const std::string&)> changed_;
  std::map<std::string, std::string> why_;
};

// Where a DaemonSet's pods may run was changed, or how many of them lack: nodes that have none of its pods
// are told of it by no pod.
bool moves_pods(const Json& old, const Json& now);

}  // namespace gpuop::op
