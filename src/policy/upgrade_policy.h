// The declaration of upgradePolicy, which ClusterPolicy and NVIDIADriver share but for one default. Private.
#pragma once

#include "policy/schema.h"

namespace gpuop::policy {

template <class T>
void add_upgrade_policy(Fields<T>& f, bool auto_upgrade) {
  f.add("autoUpgrade", &T::auto_upgrade, "Upgrade drivers by itself, node by node.")
      .default_value(auto_upgrade);
  f.add("maxParallelUpgrades", &T::max_parallel_upgrades, "Nodes that are upgraded at once; 0 is no limit.")
      .int32()
      .min(0)
      .default_value(1);
  f.add("maxUnavailable", &T::max_unavailable, "Nodes that may be away at once: a count or N%, rounded up.")
      .as(Kind::kIntOrString)
      .default_value("25%");
  f.add("waitForCompletion", &T::wait_for_completion, "Jobs to wait for before a node is touched.");
  f.add("podDeletion", &T::pod_deletion, "How GPU pods are moved away.");
  f.add("drain", &T::drain, "Drain of the node where pod deletion did not do.");
}

void describe(Fields<UpgradePolicy>& f);
void describe(Fields<UpgradePolicy::WaitForCompletion>& f);
void describe(Fields<UpgradePolicy::PodDeletion>& f);
void describe(Fields<UpgradePolicy::Drain>& f);

}  // namespace gpuop::policy
