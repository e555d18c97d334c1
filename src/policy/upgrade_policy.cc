#include "policy/upgrade_policy.h"

namespace gpuop::policy {

void describe(Fields<UpgradePolicy::WaitForCompletion>& f) {
  using Wait = UpgradePolicy::WaitForCompletion;
  f.add("podSelector", &Wait::pod_selector, "Label selector of the pods to wait for; empty waits for none.")
      .default_value("");
  f.add("timeoutSeconds", &Wait::timeout_seconds, "Give up waiting after so long; 0 waits for ever.")
      .int32()
      .min(0)
      .default_value(0);
}

void describe(Fields<UpgradePolicy::PodDeletion>& f) {
  using Deletion = UpgradePolicy::PodDeletion;
  f.add("force", &Deletion::force, "Also delete pods that no controller owns.").default_value(false);
  f.add("timeoutSeconds", &Deletion::timeout_seconds, "Give up after so long; 0 waits for ever.")
      .int32()
      .min(0)
      .default_value(300);
  f.add("deleteEmptyDir", &Deletion::delete_empty_dir, "Also delete pods with emptyDir volumes.")
      .default_value(false);
}

void describe(Fields<UpgradePolicy::Drain>& f) {
  using Drain = UpgradePolicy::Drain;
  f.add("enable", &Drain::enable, "Drain the node when pod deletion failed.").default_value(false);
  f.add("force", &Drain::force, "Also evict pods that no controller owns.").default_value(false);
  f.add("podSelector", &Drain::pod_selector, "Label selector of the pods to evict; empty means all.")
      .default_value("");
  f.add("timeoutSeconds", &Drain::timeout_seconds, "Give up after so long; 0 waits for ever.")
      .int32()
      .min(0)
      .default_value(300);
  f.add("deleteEmptyDir", &Drain::delete_empty_dir, "Also evict pods with emptyDir volumes.")
      .default_value(false);
}

void describe(Fields<UpgradePolicy>& f) {
  add_upgrade_policy(f, false);
}

}  // namespace gpuop::policy
