#include <fcntl.h>
#include <sys/stat.h>

#include "base/text.h"
#include "bundle.h"
#include "cluster/launcher/container.h"
#include "cluster/launcher/oci_spec.h"
#include "cluster/launcher/privileges.h"
#include "cluster/launcher/shim.h"

namespace gpuop::cluster {
namespace {

// The texts of a CRI log, without times.
std::string said(const std::string& log) {
  std::string out;
  for (const std::string& line : split(log, '\n')) {
    if (line.size() > 31) out += line.substr(31) + "\n";
  }
  return out;
}

TEST(cluster_launcher, runs_a_program_as_first_process_with_its_host_name) {
  NEEDS_ROOT();
  Bundle bundle({"sh", "-c", "echo pid $$ on $(hostname) with $FROM; echo oops >&2; exit 7"});
  EXPECT_EQ(said(bundle.run()), "stdout F pid 1 on pod-1 with image\nstderr F oops\n");
  EXPECT_EQ(bundle.exit_code(), 7);
  EXPECT_NE(bundle.report.find("\"pid\""), std::string::npos);
  EXPECT_FALSE(file_exists(bundle.path("state/c1")));
}

TEST(cluster_launcher, a_signal_is_128_plus_its_number) {
  NEEDS_ROOT();
  Bundle bundle;
  // The first process of a PID namespace ignores signals that it has no handler for.
  bundle.config.at("process").at("args") =
      JsonArray{"sh", "-c", "trap 'exit 143' TERM; kill -15 $$; sleep 1"};
  bundle.run();
  EXPECT_EQ(bundle.exit_code(), 143);
}

TEST(cluster_launcher, a_missing_program_fails_create_in_runcs_words) {
  NEEDS_ROOT();
  Bundle bundle({"no-such-program"});
  bundle.save();
  ExitState state = bundle.runc({"create", "--bundle", bundle.dir.path(), "c1"}, true);
  EXPECT_EQ(state.code, 1);
  EXPECT_NE(state.err.find("exec: \"no-such-program\": executable file not found in $PATH"),
            std::string::npos);
  auto log = read_file(bundle.path("log.json"));
  ASSERT_TRUE(log);
  EXPECT_NE(log->find("executable file not found"), std::string::npos);
  EXPECT_FALSE(file_exists(bundle.path("state/c1")));
}

TEST(cluster_launcher, created_waits_for_start_and_state_follows) {
  NEEDS_ROOT();
  Bundle bundle({"sh", "-c", "touch /tmp/ran; sleep 1000"});
  bundle.save();
  ASSERT_EQ(
      bundle.runc({"create", "--bundle", bundle.dir.path(), "--pid-file", bundle.path("pid"), "c1"}).code, 0);
  auto status = [&] { return str(get_string(*parse_json(bundle.runc({"state", "c1"}).out), {"status"})); };
  EXPECT_EQ(status(), "created");
  EXPECT_FALSE(file_exists(bundle.path("rootfs/tmp/ran")));
  EXPECT_EQ(bundle.runc({"create", "--bundle", bundle.dir.path(), "c1"}).code, 1) << "an id is taken once";
  ASSERT_EQ(bundle.runc({"start", "c1"}).code, 0);
  EXPECT_EQ(status(), "running");
  EXPECT_EQ(bundle.runc({"start", "c1"}).code, 1);
  EXPECT_EQ(bundle.runc({"delete", "c1"}).code, 1) << "it still runs";
  EXPECT_EQ(bundle.runc({"kill", "c1", "KILL"}).code, 0);
  EXPECT_EQ(bundle.runc({"delete", "--force", "c1"}).code, 0);
  EXPECT_EQ(bundle.runc({"state", "c1"}).code, 1);
  EXPECT_EQ(bundle.runc({"delete", "--force", "c1"}).code, 0) << "repeatable";
}

TEST(cluster_launcher, roots_and_mounts_are_read_only_where_asked) {
  NEEDS_ROOT();
  Bundle bundle(
      {"sh", "-c",
       "touch /tmp/x || echo root is ro; touch /ro/x || echo ro is ro; echo hi > /rw/x; cat /file"});
  set(bundle.config, {"root", "readonly"}, true);
  fs::create_directories(bundle.path("node/rw"));
  ASSERT_TRUE(write_file_atomic(bundle.path("node/file"), "content\n"));
  bundle.add_mount(Bundle::mount("/ro", "bind", bundle.path("node"), {"rbind", "ro"}));
  bundle.add_mount(Bundle::mount("/rw", "bind", bundle.path("node/rw"), {"rbind", "rw"}));
  bundle.add_mount(Bundle::mount("/file", "", bundle.path("node/file"), {"bind", "ro"}));
  std::string log = bundle.run();
  EXPECT_NE(log.find("root is ro"), std::string::npos) << log;
  EXPECT_NE(log.find("ro is ro"), std::string::npos) << log;
  EXPECT_NE(log.find("content"), std::string::npos) << log;
  EXPECT_EQ(read_file(bundle.path("node/rw/x")).value_or(""), "hi\n");
}

TEST(cluster_launcher, a_missing_mount_source_fails_create) {
  NEEDS_ROOT();
  Bundle bundle;
  bundle.add_mount(Bundle::mount("/x", "bind", bundle.path("absent"), {"rbind"}));
  bundle.run();
  EXPECT_NE(bundle.report.find("absent"), std::string::npos) << bundle.report;
  EXPECT_NE(bundle.report.find("\"error\""), std::string::npos) << bundle.report;
}

TEST(cluster_launcher, a_mount_target_behind_a_link_stays_in_the_root) {
  NEEDS_ROOT();
  Bundle bundle({"sh", "-c", "cat /tmp/inner/f"});
  fs::create_symlink("../../../../../../../../" + bundle.path("node"), bundle.path("rootfs/tmp/inner"));
  ASSERT_TRUE(write_file_atomic(bundle.path("file"), "inside\n"));
  bundle.add_mount(Bundle::mount("/tmp/inner/f", "bind", bundle.path("file"), {"bind"}));
  bundle.run();
  EXPECT_FALSE(file_exists(bundle.path("node/f"))) << "the link led out of the root";
}

TEST(cluster_launcher, every_gpu_device_is_the_null_device) {
  NEEDS_ROOT();
  Bundle bundle(
      {"sh", "-c",
       "stat -c '%t:%T' /dev/nvidia0 /dev/nvidia-caps/nvidia-cap1 /dev/zero; echo x > /dev/nvidia0"});
  set(bundle.config, {"linux", "devices"},
      JsonArray{
          JsonObject{{"path", "/dev/nvidia0"}, {"type", "c"}, {"major", 195}, {"minor", 0}},
          JsonObject{{"path", "/dev/nvidia-caps/nvidia-cap1"}, {"type", "c"}, {"major", 1}, {"minor", 3}}});
  EXPECT_EQ(said(bundle.run()), "stdout F 1:3\nstdout F 1:3\nstdout F 1:5\n");
  EXPECT_EQ(bundle.exit_code(), 0);
}

TEST(cluster_launcher, capabilities_that_reach_the_machine_are_never_given) {
  NEEDS_ROOT();
  Bundle bundle({"sh", "-c", "grep Cap /proc/self/status"});
  JsonArray all;
  for (const std::string& name : capability_names()) all.emplace_back(name);
  for (const char* set_name : {"bounding", "effective", "permitted"}) {
    set(bundle.config, {"process", "capabilities", set_name}, all);
  }
  std::string log = bundle.run();
  for (const char* name : {"CapBnd:", "CapEff:", "CapPrm:"}) {
    std::size_t at = log.find(name);
    ASSERT_NE(at, std::string::npos) << log;
    auto bits = parse_hex(trim(std::string_view(log).substr(at + 7, 18)));
    ASSERT_TRUE(bits) << log;
    EXPECT_EQ(*bits >> 16 & 1, 0u) << "CAP_SYS_MODULE in " << name;
    EXPECT_EQ(*bits >> 22 & 1, 0u) << "CAP_SYS_BOOT in " << name;
    EXPECT_EQ(*bits >> 21 & 1, 1u) << "CAP_SYS_ADMIN is a privileged container's: " << name;
  }
}

TEST(cluster_launcher, a_user_has_no_capabilities_left) {
  NEEDS_ROOT();
  Bundle bundle({"sh", "-c", "id -u; id -g; grep CapEff /proc/self/status"});
  set(bundle.config, {"process", "user"}, JsonObject{{"uid", 1000}, {"gid", 1001}});
  for (const char* set_name : {"bounding", "effective", "permitted"}) {
    set(bundle.config, {"process", "capabilities", set_name}, JsonArray{"CAP_CHOWN"});
  }
  EXPECT_EQ(said(bundle.run()), "stdout F 1000\nstdout F 1001\nstdout F CapEff:\t0000000000000000\n");
}

TEST(cluster_launcher, hooks_run_in_order_each_in_its_place) {
  NEEDS_ROOT();
  Bundle bundle({"sh", "-c", "echo program >> /node/order"});
  std::string order = bundle.path("node/order");
  bundle.add_mount(Bundle::mount("/node", "bind", bundle.path("node"), {"rbind"}));
  bundle.add_hook("prestart", "echo prestart >> " + order);
  bundle.add_hook("createRuntime", "echo createRuntime >> " + order);
  // Its folder is the root, still outside it: the host's path works, and so does the container's mount.
  bundle.add_hook("createContainer",
                  "echo createContainer >> node/order; [ -f " + order + " ] && touch tmp/seen");
  bundle.add_hook("startContainer", "echo startContainer >> /node/order");
  bundle.add_hook("poststop", "echo poststop >> " + order);
  bundle.run();
  EXPECT_EQ(read_file(order).value_or(""),
            "prestart\ncreateRuntime\ncreateContainer\nstartContainer\nprogram\npoststop\n")
      << bundle.report;
  EXPECT_TRUE(file_exists(bundle.path("rootfs/tmp/seen")));
}

TEST(cluster_launcher, hooks_get_the_state_and_their_own_environment_only) {
  NEEDS_ROOT();
  Bundle bundle;
  set(bundle.config, {"process", "env"}, JsonArray{"PATH=/bin", "LD_PRELOAD=/proc/self/cwd/evil.so"});
  bundle.add_hook("createContainer", "cat > " + bundle.path("state.json") + "; env > " + bundle.path("env"),
                  JsonArray{});
  bundle.run();
  auto state = parse_json(read_file(bundle.path("state.json")).value_or(""));
  ASSERT_TRUE(state) << bundle.report;
  EXPECT_EQ(get_string(*state, {"id"}), "c1");
  EXPECT_EQ(get_string(*state, {"status"}), "creating");
  EXPECT_EQ(get_string(*state, {"bundle"}), bundle.dir.path().string());
  std::string env = read_file(bundle.path("env")).value_or("none");
  EXPECT_EQ(env.find("LD_PRELOAD"), std::string::npos) << env;
}

TEST(cluster_launcher, a_failing_hook_fails_create_with_its_words) {
  NEEDS_ROOT();
  Bundle bundle;
  bundle.add_hook("createContainer", "echo no driver here >&2; exit 3");
  bundle.run();
  EXPECT_NE(bundle.report.find("error running createContainer hook #0"), std::string::npos) << bundle.report;
  EXPECT_NE(bundle.report.find("exit status 3"), std::string::npos) << bundle.report;
  EXPECT_NE(bundle.report.find("no driver here"), std::string::npos) << bundle.report;
  EXPECT_FALSE(file_exists(bundle.path("state/c1")));
}

TEST(cluster_launcher, a_hook_past_its_timeout_is_killed) {
  NEEDS_ROOT();
  Bundle bundle;
  bundle.add_hook("createRuntime", "exec sleep 1000");
  bundle.config.at("hooks").at("createRuntime").at(0).as_object()["timeout"] = 1;
  bundle.run();
  EXPECT_NE(bundle.report.find("timeout of 1s"), std::string::npos) << bundle.report;
}

// A shared mount as a node has it, with a container that mounts beneath it.
class Propagates : public ::testing::Test {
 protected:
  void prepare(Bundle& bundle, std::vector<std::string> options, const char* rootfs) {
    std::string node = bundle.path("node");
    ASSERT_EQ(::mount("node", node.c_str(), "tmpfs", 0, nullptr), 0);
    ASSERT_EQ(::mount(nullptr, node.c_str(), nullptr, MS_SHARED, nullptr), 0);
    fs::create_directories(node + "/m");
    bundle.add_mount(Bundle::mount("/n", "bind", node, std::move(options)));
    if (rootfs) set(bundle.config, {"linux", "rootfsPropagation"}, rootfs);
    JsonArray caps{"CAP_SYS_ADMIN", "CAP_DAC_OVERRIDE"};
    for (const char* name : {"bounding", "effective", "permitted"}) {
      set(bundle.config, {"process", "capabilities", name}, caps);
    }
  }
  void clean(const Bundle& bundle) {
    std::string node = bundle.path("node");
    ::umount2((node + "/m").c_str(), MNT_DETACH);
    ::umount2(node.c_str(), MNT_DETACH);
  }
};

TEST_F(Propagates, bidirectional_reaches_the_node) {
  NEEDS_ROOT();
  Bundle bundle({"sh", "-c", "mount -t tmpfs t /n/m && touch /n/m/here"});
  prepare(bundle, {"rbind", "rshared"}, "rshared");
  bundle.run();
  EXPECT_EQ(bundle.exit_code(), 0) << bundle.report;
  EXPECT_TRUE(file_exists(bundle.path("node/m/here")));
  clean(bundle);
}

TEST_F(Propagates, host_to_container_sees_later_mounts_and_keeps_its_own) {
  NEEDS_ROOT();
  Bundle bundle({"sh", "-c", "mount -t tmpfs t /n/m && touch /n/m/here"});
  prepare(bundle, {"rbind", "rslave"}, "rslave");
  bundle.run();
  EXPECT_EQ(bundle.exit_code(), 0) << bundle.report;
  EXPECT_FALSE(file_exists(bundle.path("node/m/here")));
  bundle.config.at("process").at("args") = JsonArray{"sh", "-c", "sleep 1000"};
  bundle.save();
  ASSERT_EQ(bundle.runc({"create", "--bundle", bundle.dir.path(), "c1"}).code, 0);
  ASSERT_EQ(::mount("late", bundle.path("node/m").c_str(), "tmpfs", 0, nullptr), 0);
  ASSERT_TRUE(write_file_atomic(bundle.path("node/m/late"), ""));
  auto pid = get_int(*parse_json(bundle.runc({"state", "c1"}).out), {"pid"});
  EXPECT_TRUE(file_exists("/proc/" + std::to_string(pid) + "/root/n/m/late"));
  clean(bundle);
}

TEST_F(Propagates, private_sees_nothing_later) {
  NEEDS_ROOT();
  Bundle bundle({"sh", "-c", "sleep 1000"});
  prepare(bundle, {"rbind", "rprivate"}, nullptr);
  bundle.save();
  ASSERT_EQ(bundle.runc({"create", "--bundle", bundle.dir.path(), "c1"}).code, 0);
  ASSERT_EQ(::mount("late", bundle.path("node/m").c_str(), "tmpfs", 0, nullptr), 0);
  ASSERT_TRUE(write_file_atomic(bundle.path("node/m/late"), ""));
  auto pid = get_int(*parse_json(bundle.runc({"state", "c1"}).out), {"pid"});
  EXPECT_TRUE(file_exists("/proc/" + std::to_string(pid) + "/root/n/m"));
  EXPECT_FALSE(file_exists("/proc/" + std::to_string(pid) + "/root/n/m/late"));
  clean(bundle);
}

TEST(cluster_launcher, nothing_of_the_machine_is_left_in_sight) {
  NEEDS_ROOT();
  Bundle bundle({"sh", "-c", "ls /; ls /proc/self/fd | grep -v '[0123]' && echo leaked; mount"});
  std::string log = bundle.run();
  EXPECT_EQ(log.find("leaked"), std::string::npos) << log;
  EXPECT_EQ(log.find(" /usr"), std::string::npos) << log;
  EXPECT_EQ(log.find("/old"), std::string::npos) << log;
}

TEST(cluster_launcher, exec_runs_inside_with_the_containers_environment) {
  NEEDS_ROOT();
  Bundle bundle({"sh", "-c", "sleep 1000"});
  bundle.save();
  ASSERT_EQ(bundle.runc({"run", "--bundle", bundle.dir.path(), "c1"}).code, 0);
  auto pid = std::to_string(get_int(*parse_json(bundle.runc({"state", "c1"}).out), {"pid"}));
  auto inside = [&](std::vector<std::string> args) {
    std::vector<std::string> all{"exec", "--pid", pid, "--bundle", bundle.dir.path(), "--"};
    all.insert(all.end(), args.begin(), args.end());
    return bundle.runc(all);
  };
  ExitState state = inside({"sh", "-c", "hostname; echo $FROM; readlink /proc/1/exe; exit 4"});
  EXPECT_EQ(state.out, "pod-1\nimage\n/bin/busybox\n") << state.err;
  EXPECT_EQ(state.code, 4);
  EXPECT_EQ(inside({"absent"}).code, 127);
}

TEST(cluster_launcher, containers_join_a_pid_namespace) {
  NEEDS_ROOT();
  Bundle holder({"sh", "-c", "sleep 1000"});
  holder.save();
  ASSERT_EQ(holder.runc({"run", "--bundle", holder.dir.path(), "c1"}).code, 0);
  auto pid = std::to_string(get_int(*parse_json(holder.runc({"state", "c1"}).out), {"pid"}));
  Bundle bundle({"sh", "-c", "readlink /proc/1/exe; [ $$ != 1 ]"});
  for (Json& ns : bundle.config.at("linux").at("namespaces").as_array()) {
    if (get_string(ns, {"type"}) == "pid") ns.as_object()["path"] = "/proc/" + pid + "/ns/pid";
  }
  EXPECT_EQ(said(bundle.run()), "stdout F /bin/busybox\n") << bundle.report;
  EXPECT_EQ(bundle.exit_code(), 0);
}

TEST(cluster_launcher, leftovers_of_a_container_on_the_nodes_pid_namespace_end_with_it) {
  NEEDS_ROOT();
  Bundle bundle({"sh", "-c", "sleep 1000 >/dev/null 2>&1 & echo $!"});
  auto& namespaces = bundle.config.at("linux").at("namespaces").as_array();
  namespaces.erase(namespaces.begin() + 1);  // hostPID
  std::string log = said(bundle.run());
  auto pid = parse_int(trim(std::string_view(log).substr(9)));
  ASSERT_TRUE(pid) << log;
  EXPECT_FALSE(file_exists("/proc/" + std::to_string(*pid)));
}

TEST(cluster_launcher, oci_spec_errors_name_the_field) {
  auto text = [](std::string_view config) {
    auto spec = parse_oci_spec(*parse_json(config));
    return spec ? std::string("fine") : spec.error().text();
  };
  EXPECT_EQ(text(R"({"root":{"path":"r"},"futureField":{"k":1}})"), "fine");
  EXPECT_EQ(text("[]"), "must be a JSON object");
  EXPECT_EQ(text("{}"), "root.path: must be given");
  EXPECT_EQ(text(R"({"root":{"path":"r"},"process":{"args":"sh"}})"), "process.args: must be a list");
  EXPECT_EQ(text(R"({"root":{"path":"r"},"process":{"args":[1]}})"),
            "process.args: must be a list of strings");
  EXPECT_EQ(text(R"({"root":{"path":"r"},"mounts":[{"destination":"x"}]})"),
            "mounts[0].destination: must be an absolute path");
  EXPECT_EQ(text(R"({"root":{"path":"r"},"linux":{"devices":[{"path":"/dev/x","type":"q"}]}})"),
            "linux.devices[0].type: must be one of b, c, u, p; got 'q'");
  EXPECT_EQ(text(R"({"root":{"path":"r"},"hooks":{"prestart":[{"path":"rel"}]}})"),
            "hooks.prestart[0].path: must be an absolute path");
}

}  // namespace
}  // namespace gpuop::cluster
