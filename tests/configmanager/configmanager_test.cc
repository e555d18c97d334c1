#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "base/files.h"
#include "base/http.h"
#include "base/process.h"
#include "configmanager/manager.h"
#include "kube/transport.h"

namespace gpuop::configmanager {
namespace {

TEST(configmanager, selection) {
  auto select = [](SelectFacts facts, std::string_view fallback = {},
                   std::vector<std::string> strategies = {}) {
    auto chosen = select_config(facts, fallback, strategies);
    return chosen ? *chosen : chosen.error().text();
  };
  const std::vector<std::string> all = {"named", "single", "empty"};
  EXPECT_EQ(select({{}, "a"}), "no configuration files available");
  EXPECT_EQ(select({{"a", "b"}, "b"}, "a", all), "b");
  EXPECT_EQ(select({{"a", "b"}, ""}, "a", all), "a");
  EXPECT_EQ(select({{"alpha", "b"}, "alpa"}), "specified config alpa does not exist (did you mean 'alpha'?)");
  EXPECT_EQ(select({{"a"}, ""}, "zz"), "specified config zz does not exist");
  EXPECT_EQ(select({{"a", "default"}, ""}, "", all), "default");
  EXPECT_EQ(select({{"a"}, ""}, "", {"nothing"}), "unknown fallback strategy: nothing");
  EXPECT_EQ(select({{"a", "b"}, ""}, "", {"named", "single"}),
            "no config was set, no default was provided, and all fallbacks failed");
}

TEST(configmanager, process_by_argv_then_by_base_name) {
  std::vector<Process> processes = {{7, "/bin/other", "/usr/bin/nvidia-device-plugin"},
                                    {8, "/usr/bin/nvidia-device-plugin", "/usr/bin/gpu-node"},
                                    {9, "nvidia-device-plugin", ""}};
  EXPECT_EQ(find_process(processes, "nvidia-device-plugin"), 9);
  processes.pop_back();
  EXPECT_EQ(find_process(processes, "nvidia-device-plugin"), 7);
  EXPECT_EQ(find_process(processes, "absent"), std::nullopt);
}

// An API server that knows one node and lets its label be changed.
struct Node {
  Node()
      : client(loop, kube::make_memory_transport(
                         loop, [this](HttpRequest r, std::shared_ptr<HttpResponder> to) { answer(r, to); })) {
  }

  void answer(const HttpRequest& request, const std::shared_ptr<HttpResponder>& to) {
    bool watches = false, initial = false;
    for (const auto& [key, value] : parse_query(request.query)) {
      watches = watches || (key == "watch" && (value == "true" || value == "1"));
      initial = initial || key == "sendInitialEvents";
      if (key == "fieldSelector") selector = value;
    }
    if (!watches) {
      JsonObject list{{"kind", "NodeList"},
                      {"apiVersion", "v1"},
                      {"metadata", JsonObject{{"resourceVersion", "1"}}},
                      {"items", JsonArray{object()}}};
      return to->send(HttpResponse::json(200, to_text(list)));
    }
    to->begin(200, {{"Content-Type", "application/json"}});
    watcher = to;
    if (!initial) return;
    send("ADDED", object());
    JsonObject bookmark{
        {"kind", "Node"},
        {"apiVersion", "v1"},
        {"metadata", JsonObject{{"resourceVersion", "1"},
                                {"annotations", JsonObject{{"k8s.io/initial-events-end", "true"}}}}}};
    send("BOOKMARK", bookmark);
  }
  Json object() const {
    JsonObject labels;
    if (!label.empty()) labels["nvidia.com/device-plugin.config"] = label;
    return JsonObject{{"kind", "Node"},
                      {"apiVersion", "v1"},
                      {"metadata", JsonObject{{"name", "n1"},
                                              {"uid", "u"},
                                              {"resourceVersion", std::to_string(version)},
                                              {"labels", labels}}}};
  }
  void send(const char* type, Json value) {
    watcher->write(to_text(JsonObject{{"type", type}, {"object", std::move(value)}}) + "\n");
  }
  void relabel(std::string value) {
    label = std::move(value);
    ++version;
    send("MODIFIED", object());
  }

  Loop loop;
  std::string label, selector;
  int version = 1;
  std::shared_ptr<HttpResponder> watcher;
  kube::Client client;
};

struct Managed {
  Managed() {
    options.node_name = "n1";
    options.node_label = "nvidia.com/device-plugin.config";
    options.source_dir = dir.path() / "available";
    options.destination = dir.path() / "config.yaml";
    options.fallbacks = {"named", "single", "empty"};
    options.proc = dir.path() / "proc";
    EXPECT_TRUE(make_dirs(options.source_dir));
    // The process that is signalled is this one; SIGUSR1 is counted.
    EXPECT_TRUE(make_dirs(options.proc / std::to_string(::getpid())));
    EXPECT_TRUE(write_file_atomic(options.proc / std::to_string(::getpid()) / "cmdline",
                                  std::string("nvidia-device-plugin\0--x\0", 25)));
    options.process_to_signal = "nvidia-device-plugin";
    options.signal = SIGUSR1;
    watch = on_signals(node.loop, {SIGUSR1}, [this](int) { ++signals; });
  }
  void file(const char* name, const char* text = "version: v1\n") {
    EXPECT_TRUE(write_file_atomic(options.source_dir / name, text));
  }
  void start() {
    manager = std::make_unique<Manager>(node.loop, node.client, options,
                                        [this](Result<> how) { ended = std::move(how); });
    manager->start();
  }
  std::string link() const {
    std::error_code missing;
    return fs::read_symlink(options.destination, missing).string();
  }
  bool until(const std::function<bool()>& done) { return node.loop.run_until(done, 5s); }
  std::string target(const char* name) const { return (options.source_dir / name).string(); }

  TempDir dir;
  Node node;
  ManagerOptions options;
  Handle watch;
  int signals = 0;
  std::optional<Result<>> ended;
  std::unique_ptr<Manager> manager;
};

}  // namespace
}  // namespace gpuop::configmanager

using namespace gpuop;                 // NOLINT
using namespace gpuop::configmanager;  // NOLINT

TEST(device_plugin, case44_two_files_and_no_label_is_the_empty_configuration) {
  Managed m;
  m.file("a");
  m.file("b");
  m.options.oneshot = true;
  m.options.send_signal = false;
  m.start();
  ASSERT_TRUE(m.until([&] { return m.ended.has_value(); }));
  EXPECT_TRUE(*m.ended);
  EXPECT_EQ(m.link(), "/dev/null");
  EXPECT_EQ(m.node.selector, "metadata.name=n1");
  EXPECT_EQ(m.signals, 0);
}

TEST(device_plugin, case44_label_changes_relink_and_signal) {
  Managed m;
  m.file("a");
  m.start();
  ASSERT_TRUE(m.until([&] { return m.link() == m.target("a") && m.signals == 1; }));

  m.file("b");
  m.node.relabel("b");
  ASSERT_TRUE(m.until([&] { return m.link() == m.target("b") && m.signals == 2; }));

  // A label that names no file changes nothing.
  m.node.relabel("c");
  ASSERT_TRUE(m.until([&] { return m.manager->refused_label() == "c"; }));
  EXPECT_EQ(m.link(), m.target("b"));
  EXPECT_EQ(m.signals, 2);
  EXPECT_FALSE(m.ended.has_value());

  // A change of the file in force is worth a signal too.
  m.file("b", "version: v1\nflags: {migStrategy: single}\n");
  ASSERT_TRUE(m.until([&] { return m.signals == 3; }));
  m.file("a", "other: file\n");
  m.file("b", "version: v1\n");
  ASSERT_TRUE(m.until([&] { return m.signals == 4; }));
}

TEST(device_plugin, case44_same_target_is_left_alone) {
  Managed m;
  m.file("a");
  ASSERT_TRUE(make_symlink_atomic(m.target("a"), m.options.destination));
  m.start();
  ASSERT_TRUE(m.until([&] { return m.node.watcher != nullptr; }));
  m.file("b");
  m.node.relabel("b");
  ASSERT_TRUE(m.until([&] { return m.signals == 1; }));
  EXPECT_EQ(m.link(), m.target("b"));
}

TEST(device_plugin, case44_dangling_link_is_replaced) {
  Managed m;
  m.file("a");
  ASSERT_TRUE(make_symlink_atomic("/nonexistent/gone", m.options.destination));
  m.options.oneshot = true;
  m.start();
  ASSERT_TRUE(m.until([&] { return m.ended.has_value(); }));
  EXPECT_TRUE(*m.ended);
  EXPECT_EQ(m.link(), m.target("a"));
}

TEST(device_plugin, case44_oneshot_with_an_unknown_label_fails) {
  Managed m;
  m.file("a");
  m.node.label = "c";
  m.options.oneshot = true;
  m.start();
  ASSERT_TRUE(m.until([&] { return m.ended.has_value(); }));
  ASSERT_FALSE(*m.ended);
  EXPECT_TRUE(m.ended->error().text().starts_with("specified config c does not exist"));
}

TEST(configmanager, empty_options_are_named) {
  Managed m;
  m.options.node_name = "";
  EXPECT_EQ(validate(m.options).error().text(), "invalid node-name: must not be empty string");
  m.options.node_name = "n";
  m.options.destination = "";
  EXPECT_EQ(validate(m.options).error().text(), "invalid config-file-dst: must not be empty string");
}
