// ControllerRevisions of a DaemonSet: which template is current, and the history of those before.
#pragma once

#include <functional>
#include <string>

#include "cluster/controllers/context.h"

namespace gpuop::cluster {

class RevisionHistory {
 public:
  explicit RevisionHistory(Context& context) : context_(context) {}
  // Finds or makes the revision of the current template, makes it the newest, and removes what is beyond
  // revisionHistoryLimit and no pod uses. Answers its hash, or "" when it has to be tried again.
  void sync(const Object& daemon_set, std::function<void(std::string hash)> done);
  // Revisions that were made and are not in the watch yet are remembered here.
  void seen(const Object& old, const Object& now);
  // The DaemonSet is gone.
  void forget(const std::string& daemon_set_uid);

 private:
  struct Known {
    std::string name, hash;
    std::int64_t number = 0;
    std::string data;  // canonical text
  };
  std::vector<Known> history(std::string_view owner_uid);
  void make(const Object& daemon_set, std::int64_t number, std::string data, std::int64_t collisions,
            std::function<void(std::string)> done);
  void look_at_taken_name(const Object& daemon_set, std::int64_t number, const std::string& name,
                          const std::string& hash, const std::string& data, std::int64_t collisions,
                          const std::function<void(std::string)>& done);
  void prune(const Json& daemon_set, const std::vector<Known>& history, const std::string& current);

  Context& context_;
  std::map<std::string, std::map<std::string, Known>> made_;  // by owner's uid, then name
  std::map<std::string, std::int64_t> collisions_;            // by owner's uid
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);     // answers that come after our end are dropped
};

}  // namespace gpuop::cluster
