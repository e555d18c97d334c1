#include "operator/status_writer.h"

#include "base/log.h"
#include "kube/object.h"

namespace gpuop::op {
namespace {

// States in which nothing is wrong.
bool is_normal(const Outcome& outcome) {
  return outcome.ready || outcome.state == "ignored" || outcome.state == "disabled" ||
         outcome.reason == "Reconciling" || outcome.reason == "OperandNotReady" ||
         outcome.reason == "DriverNotReady";
}

}  // namespace

void StatusWriter::write(const kube::Resource& type, const Json& object, const Outcome& outcome,
                         const StatusNotes& notes, std::function<void(bool ok)> done) {
  const auto cached = cache_.of(type).get(kube::name_of(object));
  const auto nothing = [this, &done] { client_.loop().post([done = std::move(done)] { done(true); }); };
  if (!cached) return nothing();
  const Json status = status_of(*cached, outcome, notes, cache_.ns(), client_.loop().now());
  const Json* before = find(*cached, {"status"});
  if (before && same_status(*before, status)) return nothing();
  const std::string name(kube::name_of(*cached));
  kube::WriteOptions write;
  write.subresource = "status";
  client_
      .patch(type, "", name, kube::Patch::kMerge, JsonObject{{"status", status}}, write,
             [this, kind = std::string(type.kind), name, cached, outcome, done](kube::ApiResult<> result) {
               if (!result && !result.error().not_found()) {
                 log::warn("status was not written",
                           {{"kind", kind}, {"name", name}, {"error", result.error().message}});
                 return done(false);
               }
               if (get_string(*cached, {"status", "state"}) != outcome.state) {
                 log::info(kind + " state",
                           {{"name", name}, {"state", outcome.state}, {"reason", outcome.reason}});
                 events_.event(*cached, is_normal(outcome) ? "Normal" : "Warning", outcome.reason,
                               outcome.message);
               }
               done(true);
             })
      .detach();
}

}  // namespace gpuop::op
