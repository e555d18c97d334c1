// config-manager: selects a configuration file by the node's label.
#include <csignal>

#include "base/log.h"
#include "configmanager/manager.h"
#include "driver_ready.h"
#include "kube/config.h"
#include "operand.h"
#include "roles.h"
#include "sharing/settings.h"

namespace gpuop {
namespace {

Result<configmanager::ManagerOptions> manager_options(const std::map<std::string, Json>& values) {
  auto text = [&](const char* name) { return str(as_text(values.at(name))); };
  configmanager::ManagerOptions out;
  out.oneshot = values.at("oneshot").as_bool();
  out.node_name = text("node-name");
  out.node_label = text("node-label");
  out.source_dir = text("config-file-srcdir");
  out.destination = text("config-file-dst");
  out.default_config = text("default-config");
  for (const Json& item : values.at("fallback-strategies").as_array())
    out.fallbacks.emplace_back(as_text(item));
  out.send_signal = values.at("send-signal").as_bool();
  out.signal = static_cast<int>(values.at("signal").as_int64());
  out.process_to_signal = text("process-to-signal");
  out.watch_content = values.at("watch-content").as_bool();
  TRY(configmanager::validate(out));
  return out;
}

}  // namespace

int config_manager_main(int argc, char** argv) {
  constexpr auto program = sharing::Program::kConfigManager;
  auto line = sharing::parse_command_line(program, std::vector<std::string>(argv + 1, argv + argc));
  if (auto code = answer(program, "config-manager", line)) return *code;
  log::setup("config-manager");

  Loop loop;
  int code = 0;
  Handle signals = on_signals(loop, {SIGTERM, SIGINT, SIGQUIT}, [&](int) { loop.stop(); });
  auto run = [&]() -> Result<> {
    std::vector<std::string> notes;
    auto values = TRY(sharing::resolve_options(program, {line->flags, environment_map(), {}}, notes));
    auto options = TRY(manager_options(values));
    auto config = TRY(kube::find_config(as_text(values.at("kubeconfig"))));
    auto client = TRY(
        kube::make_client(loop, config, {.user_agent = "config-manager", .field_manager = "config-manager"}));
    configmanager::Manager manager(loop, *client, std::move(options), [&](Result<> how) {
      if (!how) {
        log::error(how.error().text());
        code = 1;
      }
      loop.stop();
    });
    manager.start();
    loop.run();
    return {};
  };
  if (auto ran = run(); !ran) {
    log::error(ran.error().text());
    return 1;
  }
  return code;
}

}  // namespace gpuop
