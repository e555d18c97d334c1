// A bundle whose root is busybox, and the launcher's program to run it with.
#pragma once

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "base/files.h"
#include "base/json.h"
#include "base/process.h"

namespace gpuop::cluster {

// The whole test program gets a mount namespace of its own: nothing that a test mounts is seen by anybody
// else.
inline bool enter_own_mounts() {
  static bool entered = ::geteuid() == 0 && ::unshare(CLONE_NEWNS) == 0 &&
                        ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
  return entered;
}

#define NEEDS_ROOT()                                                                                \
  if (!::gpuop::cluster::enter_own_mounts()) {                                                      \
    FAIL() << "containers need root: run the tests as root (or in a container with CAP_SYS_ADMIN)"; \
  }

struct Bundle {
  TempDir dir{"launcher"};
  Json config;
  std::string id = "c1";

  explicit Bundle(std::vector<std::string> args = {"sh", "-c", "true"}) {
    for (const char* sub :
         {"rootfs/bin", "rootfs/proc", "rootfs/dev", "rootfs/tmp", "rootfs/etc", "state", "node"}) {
      fs::create_directories(dir.path() / sub);
    }
    fs::copy_file("/bin/busybox", dir.path() / "rootfs/bin/busybox");
    for (const char* link : {"sh", "cat", "echo", "hostname", "stat", "id", "grep", "sleep", "touch", "kill",
                             "ls", "mount", "readlink", "ps", "mkdir"}) {
      fs::create_symlink("busybox", dir.path() / "rootfs/bin" / link);
    }
    JsonArray argv;
    for (auto& arg : args) argv.emplace_back(arg);
    config = JsonObject{
        {"ociVersion", "1.2.0"},
        {"process",
         JsonObject{{"args", std::move(argv)}, {"cwd", "/"}, {"env", JsonArray{"PATH=/bin", "FROM=image"}}}},
        {"root", JsonObject{{"path", "rootfs"}}},
        {"hostname", "pod-1"},
        {"mounts", JsonArray{mount("/proc", "proc", "proc", {}),
                             mount("/dev", "tmpfs", "tmpfs", {"nosuid", "mode=755", "size=65536k"}),
                             mount("/dev/pts", "devpts", "devpts", {"nosuid", "noexec", "newinstance"})}},
        {"linux",
         JsonObject{{"namespaces", JsonArray{JsonObject{{"type", "mount"}}, JsonObject{{"type", "pid"}},
                                             JsonObject{{"type", "uts"}}, JsonObject{{"type", "ipc"}}}}}}};
  }
  ~Bundle() { runc({"delete", "--force", id}); }

  static Json mount(std::string_view destination, std::string_view type, std::string_view source,
                    std::vector<std::string> options) {
    JsonArray list;
    for (auto& option : options) list.emplace_back(option);
    return JsonObject{
        {"destination", destination}, {"type", type}, {"source", source}, {"options", std::move(list)}};
  }
  void add_mount(Json m) { config.at("mounts").as_array().push_back(std::move(m)); }
  void add_hook(std::string_view stage, std::string_view script, Json env = JsonArray{"A=1"}) {
    ensure(config, {"hooks", stage});
    Json& list = *find_mutable(config, {"hooks", stage});
    if (!list.is_array()) list = JsonArray{};
    list.as_array().push_back(JsonObject{
        {"path", "/bin/busybox"}, {"args", JsonArray{"sh", "-c", script}}, {"env", std::move(env)}});
  }
  std::string path(std::string_view sub) const { return (dir.path() / sub).string(); }
  void save() { EXPECT_TRUE(write_file_atomic(dir.path() / "config.json", to_text(config))); }

  ExitState runc(std::vector<std::string> args, bool with_log = false) const {
    Command command;
    command.argv = {BUILD_ROOT "/bin/gpuop-runc", "--root", path("state")};
    if (with_log)
      command.argv.insert(command.argv.end(), {"--log", path("log.json"), "--log-format", "json"});
    command.argv.insert(command.argv.end(), args.begin(), args.end());
    command.env = {"PATH=/bin", "LD_PRELOAD_CANARY=1"};
    auto state = run_command(command, 20s);
    EXPECT_TRUE(state) << state.error().text();
    return state ? *state : ExitState{};
  }
  // Runs the bundle to its end through the shim; answers the container's log.
  std::string run() {
    save();
    auto state = runc({"shim", "--id", id, "--bundle", dir.path(), "--container-log", path("out.log"),
                       "--exit-file", path("exit.json"), "--report-fd", "1"});
    report = state.out;
    auto log = read_file(path("out.log"));
    return log ? *log : "";
  }
  int exit_code() const {
    auto text = read_file(path("exit.json"));
    if (!text) return -1;
    return static_cast<int>(get_int(*parse_json(*text), {"code"}, -1));
  }
  std::string report;
};

}  // namespace gpuop::cluster
