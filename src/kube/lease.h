// Leader election on a coordination.k8s.io Lease (kubernetes-api.md §17.5).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "kube/client.h"

namespace gpuop::kube {

struct LeaseOptions {
  std::string ns;
  std::string name;
  std::string identity;  // "<host>_<uuid>"
  // An ownerReference: the lease is deleted with that object.
  std::optional<Json> owner;
  Duration lease_duration = 15s;
  Duration renew_deadline = 10s;
  Duration retry_period = 2s;
};

class LeaderElector {
 public:
  // kInvalid unless lease_duration > renew_deadline > 1.2 * retry_period, all at least 1 s; the message
  // names both values.
  static Result<std::unique_ptr<LeaderElector>> create(Client& client, LeaseOptions options,
                                                       std::function<void()> started,
                                                       std::function<void()> lost);
  ~LeaderElector();
  void start();
  bool leading() const;
  // Gives the lease up (holderIdentity "", leaseDurationSeconds 1), then calls `done`.
  void release(std::function<void()> done);
  struct Impl;

 private:
  explicit LeaderElector(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace gpuop::kube
