#include "cluster/controllers/controllers.h"

#include "base/log.h"
#include "cluster/controllers/context.h"

namespace gpuop::cluster {
namespace {

class AllControllers final : public Controllers {
 public:
  AllControllers(Loop& loop, kube::Client& client, ControllerOptions options)
      : context_(loop, client, std::move(options)) {
    for (const auto make :
         {make_scheduler, make_daemon_set_controller, make_replica_set_controller, make_deployment_controller,
          make_job_controller, make_garbage_collector, make_service_account_controller, make_node_controller,
          make_event_reaper, make_disruption_controller, make_endpoint_controller}) {
      parts_.push_back(make(context_));
    }
    // Nobody acts before everything is known.
    kube::when_synced(context_.informers(), [this] {
      context_.pod_control.start();
      for (const auto& part : parts_) part->start();
      synced_ = true;
      log::info("controllers have started",
                {{"nodes", context_.nodes.size()}, {"pods", context_.pods.size()}});
    });
    for (kube::Informer* informer : context_.informers()) informer->start();
  }
  ~AllControllers() override {
    while (!parts_.empty()) parts_.pop_back();
  }
  bool synced() const override { return synced_; }

 private:
  Context context_;
  std::vector<std::unique_ptr<Controller>> parts_;
  bool synced_ = false;
};

}  // namespace

std::unique_ptr<Controllers> start_controllers(Loop& loop, kube::Client& client, ControllerOptions options) {
  return std::make_unique<AllControllers>(loop, client, std::move(options));
}

}  // namespace gpuop::cluster
