// event: says something about this pod to the API server, by an Event. A process of its own, so that a
// long-lived one needs no client.
#include <csignal>

#include "base/log.h"
#include "base/process.h"
#include "base/text.h"
#include "cli.h"
#include "kube/client.h"
#include "kube/config.h"
#include "kube/object.h"
#include "roles.h"

namespace gpuop {
namespace {

Result<> write_event(Loop& loop, const std::string& component, const std::string& reason,
                     const std::string& message) {
  const std::string pod = env_or("POD_NAME"), ns = env_or("POD_NAMESPACE"), uid = env_or("POD_UID");
  if (pod.empty() || ns.empty() || uid.empty())
    return fail(Code::kInvalid, "write an Event: POD_NAME, POD_NAMESPACE and POD_UID are not all set");
  const auto config = TRY(kube::find_config(env_or("KUBECONFIG")));
  kube::ClientOptions options;
  options.user_agent = component;
  const auto client = TRY(kube::make_client(loop, config, options));
  const std::string now = format_time(loop.now());
  const Json event = JsonObject{
      {"apiVersion", "v1"},
      {"kind", "Event"},
      {"metadata", JsonObject{{"generateName", pod + "."}, {"namespace", ns}}},
      {"involvedObject",
       JsonObject{{"apiVersion", "v1"}, {"kind", "Pod"}, {"namespace", ns}, {"name", pod}, {"uid", uid}}},
      {"type", "Normal"},
      {"reason", reason},
      {"message", message},
      {"source", JsonObject{{"component", component}, {"host", env_or("NODE_NAME")}}},
      {"reportingComponent", component},
      {"reportingInstance", pod},
      {"firstTimestamp", now},
      {"lastTimestamp", now},
      {"count", 1}};
  const auto made = kube::await(
      loop, [&](auto done) { return client->create(kube::kEvents, ns, event, {}, std::move(done)); });
  if (!made) return fail(made.error().error("write an Event about pod '" + pod + "'"));
  return {};
}

}  // namespace

int event_main(int argc, char** argv) {
  CLI::App app("Write an Event about this pod (POD_NAME, POD_NAMESPACE, POD_UID).");
  std::string component, reason, message;
  app.add_option("--component", component, "who says it")->required();
  app.add_option("--reason", reason, "its reason, one word")->required();
  app.add_option("message", message, "what is said")->required();
  if (auto code = parse_command_line(app, argc, argv)) return *code;

  log::setup(component);
  Loop loop;
  const Handle signals =
      on_signals(loop, {SIGTERM, SIGINT, SIGQUIT}, [&loop](int /*number*/) { loop.stop(); });
  const auto written = write_event(loop, component, reason, message);
  if (written) return 0;
  log::warn(written.error().text());
  return 1;
}

}  // namespace gpuop
