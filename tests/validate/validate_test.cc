#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "base/files.h"
#include "validate/device_nodes.h"
#include "validate/driver.h"
#include "validate/node_status.h"
#include "validate/validator.h"
#include "validate/vector_add.h"
#include "validate/workload.h"

namespace gpuop::validate {
namespace {

void put(const fs::path& path, std::string_view text, mode_t mode = 0644) {
  ASSERT_TRUE(make_dirs(path.parent_path()));
  ASSERT_TRUE(write_file_atomic(path, text, mode));
}

class Roots {
 public:
  Roots() {
    paths.host = dir.path() / "host";
    paths.install_dir_ctr = dir.path() / "driver";
    paths.status_dir = dir.path() / "validations";
    EXPECT_TRUE(make_dirs(paths.host));
    EXPECT_TRUE(make_dirs(paths.install_dir_ctr));
    EXPECT_TRUE(make_dirs(paths.status_dir));
    run = [this](const Command& command) -> Result<ExitState> {
      commands.push_back(command);
      ExitState state;
      state.code = code;
      state.err = code ? "Driver/library version mismatch" : "";
      return state;
    };
  }
  TempDir dir;
  DriverPaths paths;
  std::vector<Command> commands;
  int code = 0;
  RunSmi run;
};

TEST(validate, driver_host_install_wins_and_its_gate_names_the_host) {
  Roots roots;
  put(roots.paths.host / "usr/bin/nvidia-smi", "x", 0755);
  const auto found = find_host_driver(roots.paths, roots.run);
  ASSERT_TRUE(found && *found);
  EXPECT_EQ(roots.commands.at(0).argv, std::vector<std::string>{"/usr/bin/nvidia-smi"});
  EXPECT_EQ(roots.commands.at(0).chroot, roots.paths.host);
  EXPECT_EQ(hardware::format_driver_ready((*found)->ready),
            "IS_HOST_DRIVER=true\nNVIDIA_DRIVER_ROOT=/\nDRIVER_ROOT_CTR_PATH=/host\nNVIDIA_DEV_ROOT=/\n"
            "DEV_ROOT_CTR_PATH=/host\n");
}

TEST(validate, driver_host_search_stays_inside_the_host_root) {
  Roots roots;
  put(roots.dir.path() / "outside/nvidia-smi", "x", 0755);
  ASSERT_TRUE(make_dirs(roots.paths.host / "usr/bin"));
  fs::create_symlink("../../../outside/nvidia-smi", roots.paths.host / "usr/bin/nvidia-smi");
  const auto found = find_host_driver(roots.paths, roots.run);
  ASSERT_TRUE(found);
  EXPECT_FALSE(found->has_value());
  EXPECT_TRUE(roots.commands.empty());
}

TEST(validate, driver_that_does_not_work_is_an_error_with_its_words) {
  Roots roots;
  roots.code = 18;
  put(roots.paths.host / "usr/bin/nvidia-smi", "x", 0755);
  const auto found = find_host_driver(roots.paths, roots.run);
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().text(),
            "run nvidia-smi of the host: it ended with code 18: Driver/library version mismatch");
}

TEST(validate, driver_container_needs_its_own_gate_when_managed) {
  Roots roots;
  const auto& root = roots.paths.install_dir_ctr;
  put(root / "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.595.91.07", "x");
  fs::create_symlink("libnvidia-ml.so.595.91.07", root / "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1");
  put(root / "usr/bin/nvidia-smi", "x", 0755);
  EXPECT_FALSE(find_container_driver(roots.paths, true, roots.run));
  EXPECT_TRUE(roots.commands.empty());
  put(roots.paths.status_dir / ".driver-ctr-ready", "GDRCOPY_ENABLED: false\nGDS_ENABLED: true\n");
  const auto found = find_container_driver(roots.paths, true, roots.run);
  ASSERT_TRUE(found) << found.error().text();
  EXPECT_EQ(roots.commands.at(0).argv.at(0), (root / "usr/bin/nvidia-smi").string());
  EXPECT_EQ(roots.commands.at(0).env.at(1),
            "LD_PRELOAD=" + (root / "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.595.91.07").string());
  // Without a dev folder of its own the driver's devices are the host's.
  EXPECT_EQ(found->ready.dev_root_ctr_path, "/host");
  ASSERT_TRUE(make_dirs(root / "dev"));
  EXPECT_EQ(find_container_driver(roots.paths, true, roots.run)->ready.dev_root_ctr_path, "/driver-root");
  EXPECT_EQ(*driver_container_features(roots.paths.status_dir), std::vector<std::string>{"GDS_ENABLED"});
}

TEST(validate, driver_container_flags_must_be_booleans) {
  Roots roots;
  put(roots.paths.status_dir / ".driver-ctr-ready", "GDS_ENABLED: maybe\n");
  const auto bad = driver_container_features(roots.paths.status_dir);
  ASSERT_FALSE(bad);
  EXPECT_TRUE(bad.error().text().ends_with("line 1: GDS_ENABLED: must be true or false"))
      << bad.error().text();
}

DeviceFacts two_gpus() {
  DeviceFacts facts;
  facts.majors = {{"nvidia", 195}, {"nvidia-uvm", 235}, {"nvidia-caps", 511}};
  facts.gpus = 2;
  return facts;
}

TEST(validate, device_plan_holds_control_nodes_gpus_and_mig_capabilities) {
  DeviceFacts facts = two_gpus();
  facts.mig.minors = {{"config", 1}, {"monitor", 2}, {"gpu1/gi0/access", 30}, {"gpu1/gi0/ci0/access", 31}};
  const auto plan = plan_devices(facts);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->control.size(), 4u);
  std::vector<std::string> links;
  for (const auto& link : plan->links) links.push_back(link.path);
  EXPECT_EQ(links,
            (std::vector<std::string>{"dev/nvidiactl", "dev/nvidia-modeset", "dev/nvidia-uvm",
                                      "dev/nvidia-uvm-tools", "dev/nvidia0", "dev/nvidia1",
                                      "dev/nvidia-caps/nvidia-cap1", "dev/nvidia-caps/nvidia-cap2",
                                      "dev/nvidia-caps/nvidia-cap30", "dev/nvidia-caps/nvidia-cap31"}));
}

TEST(validate, device_plan_is_empty_without_gpus_and_names_a_missing_major) {
  EXPECT_TRUE(plan_devices({})->links.empty());
  DeviceFacts facts = two_gpus();
  facts.majors.erase("nvidia-uvm");
  const auto plan = plan_devices(facts);
  ASSERT_FALSE(plan);
  EXPECT_NE(plan.error().text().find("'nvidia-uvm'"), std::string::npos);
  facts = two_gpus();
  facts.majors = {{"nvidia-frontend", 195}, {"nvidia-uvm", 235}};
  EXPECT_TRUE(plan_devices(facts));
}

TEST(validate, device_links_are_replaced_when_the_driver_moved) {
  TempDir dir;
  const fs::path dev_char = dir.path() / "char";
  ASSERT_TRUE(make_dirs(dev_char));
  ASSERT_TRUE(make_dirs(dir.path() / "root/dev"));
  DevicePlan plan;
  plan.links = {{"dev/nvidia0", 195, 0}};
  ASSERT_TRUE(make_devices(plan, dir.path() / "root", "/run/nvidia/driver", dev_char));
  EXPECT_EQ(fs::read_symlink(dev_char / "195:0"), "/run/nvidia/driver/dev/nvidia0");
  ASSERT_TRUE(make_devices(plan, dir.path() / "root", "/", dev_char));
  EXPECT_EQ(fs::read_symlink(dev_char / "195:0"), "/dev/nvidia0");
  plan.control = {{"dev/nvidiactl", 195, 255}};
  const auto missing = check_devices(plan, dir.path() / "root");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code(), Code::kNotFound);
}

TEST(validate, retry_tries_again_when_a_folder_changes_and_not_before) {
  Loop loop;
  TempDir dir;
  int tries = 0;
  auto later = loop.after(10ms, [&] { put(dir.path() / "gate", "x"); });
  const auto result = retry(loop, {dir.path()}, 1h, [&]() -> Result<> {
    ++tries;
    if (file_exists(dir.path() / "gate")) return {};
    return fail(Code::kUnavailable, "not yet");
  });
  EXPECT_TRUE(result);
  EXPECT_GE(tries, 2);
  EXPECT_LE(tries, 6);
}

TEST(validate, flags_are_refused_with_the_letter_of_the_flag) {
  ValidatorOptions options;
  options.component = "tolkit";
  EXPECT_TRUE(check_options(options).error().text().starts_with("invalid -c"));
  EXPECT_TRUE(check_options(options).error().text().ends_with("(did you mean 'toolkit'?)"));
  options.component = "plugin";
  EXPECT_TRUE(check_options(options).error().text().starts_with("invalid -n"));
  options.node = "n";
  EXPECT_TRUE(check_options(options).error().text().starts_with("invalid -ns"));
  options.ns = "x";
  EXPECT_TRUE(check_options(options));
  options.component = "metrics";
  EXPECT_TRUE(check_options(options).error().text().starts_with("invalid -p"));
}

TEST(validate, driver_component_writes_its_gate_and_failure_removes_it) {
  Loop loop;
  Roots roots;
  ValidatorOptions options;
  options.component = "driver";
  options.no_dev_char = true;
  options.output_dir = roots.paths.status_dir;
  options.driver = roots.paths;
  // A real program that works in a chroot of nothing but itself.
  fs::create_directories(roots.paths.host / "usr/bin");
  fs::copy_file("/bin/busybox", roots.paths.host / "usr/bin/nvidia-smi");
  put(roots.paths.status_dir / "driver-ready", "stale");
  // busybox, called by an applet name that it lacks, fails: the stale gate must go.
  ASSERT_FALSE(run(loop, options));
  EXPECT_FALSE(file_exists(roots.paths.status_dir / "driver-ready"));
}

Json owner() {
  return *parse_json(
      R"({"apiVersion":"apps/v1","kind":"DaemonSet","metadata":{"name":"nvidia-operator-validator","uid":"u1",
      "ownerReferences":[{"apiVersion":"nvidia.com/v1","kind":"ClusterPolicy","name":"p","uid":"u0","controller":true}]},
    "spec":{"template":{"spec":{"tolerations":[{"key":"nvidia.com/gpu","operator":"Exists"}]}}}})");
}

TEST(validate, workload_pods_have_upstreams_shape) {
  WorkloadOptions options{"n1", "gpu-operator", "img:1", "IfNotPresent", {"s1"}, "nvidia"};
  const Json cuda = workload_pod(Workload::kCuda, options, owner(), "");
  EXPECT_EQ(get_string(cuda, {"metadata", "generateName"}), "nvidia-cuda-validator-");
  EXPECT_EQ(get_string(cuda, {"spec", "nodeName"}), "n1");
  EXPECT_EQ(get_string(get_array(cuda, {"metadata", "ownerReferences"}).at(0), {"kind"}), "ClusterPolicy");
  EXPECT_EQ(get_string(cuda, {"spec", "runtimeClassName"}), "nvidia");
  EXPECT_EQ(to_text(*find(cuda, {"metadata", "annotations"})),
            R"({"nvidia.cdi.k8s.io/container.cuda-validation":"management.nvidia.com/gpu=all"})");
  EXPECT_EQ(to_text(*find(cuda, {"spec", "tolerations"})),
            R"([{"key":"nvidia.com/gpu","operator":"Exists"}])");
  EXPECT_EQ(to_text(*find(cuda, {"spec", "imagePullSecrets"})), R"([{"name":"s1"}])");
  EXPECT_FALSE(has(cuda, {"spec", "volumes"}));
  const Json plugin = workload_pod(Workload::kPlugin, options, owner(), "nvidia.com/gpu");
  const Json& first = get_array(plugin, {"spec", "initContainers"}).at(0);
  EXPECT_EQ(to_text(*find(first, {"resources"})),
            R"({"limits":{"nvidia.com/gpu":"1"},"requests":{"nvidia.com/gpu":"1"}})");
  EXPECT_EQ(to_text(*find(first, {"securityContext"})), R"({"allowPrivilegeEscalation":false})");
  EXPECT_FALSE(has(plugin, {"metadata", "annotations"}));
}

TEST(validate, cuda_pod_writes_its_proof_where_a_folder_is_given) {
  WorkloadOptions options{"n1", "gpu-operator", "img:1", "IfNotPresent", {}, "nvidia", "/run/proofs"};
  const Json cuda = workload_pod(Workload::kCuda, options, owner(), "", ".cuda-passed-1");
  const Json& first = get_array(cuda, {"spec", "initContainers"}).at(0);
  EXPECT_EQ(to_text(get_array(first, {"env"}).at(1)),
            R"({"name":"VECTOR_ADD_PASSED_FILE","value":"/run/proofs/.cuda-passed-1"})");
  EXPECT_EQ(to_text(*find(first, {"volumeMounts"})), R"([{"name":"proof","mountPath":"/run/proofs"}])");
  EXPECT_EQ(to_text(*find(cuda, {"spec", "volumes"})),
            R"([{"name":"proof","hostPath":{"path":"/run/proofs"}}])");
}

TEST(validate, workload_has_passed_when_its_check_has_ended_well) {
  const auto passed = [](const char* statuses) {
    return check_passed(*parse_json(std::string(R"({"status":{"phase":"Pending","initContainerStatuses":)") +
                                    statuses + "}}"));
  };
  EXPECT_TRUE(passed(R"([{"name":"cuda-validation","state":{"terminated":{"exitCode":0}}}])"));
  EXPECT_FALSE(passed(R"([{"name":"cuda-validation","state":{"terminated":{"exitCode":1}}}])"));
  EXPECT_FALSE(passed(R"([{"name":"cuda-validation","state":{"running":{}},
                           "lastState":{"terminated":{"exitCode":0}}}])"));
  EXPECT_FALSE(passed("[]"));
}

TEST(validate, resource_choice_is_deterministic) {
  const auto pick = [](const char* allocatable) {
    return pick_resource(*parse_json(std::string(R"({"metadata":{"name":"n"},"status":{"allocatable":)") +
                                     allocatable + "}}"));
  };
  EXPECT_EQ(*pick(R"({"nvidia.com/gpu.shared":"4","nvidia.com/gpu":"2"})"), "nvidia.com/gpu");
  EXPECT_EQ(*pick(R"({"nvidia.com/gpu":"0","nvidia.com/gpu.shared":"4"})"), "nvidia.com/gpu.shared");
  EXPECT_EQ(*pick(R"({"nvidia.com/gpu":"1","nvidia.com/mig-2g.20gb":"1","nvidia.com/mig-1g.10gb":"1"})"),
            "nvidia.com/mig-1g.10gb");
  EXPECT_FALSE(pick(R"({"cpu":"8","nvidia.com/gpu":"0"})"));
}

TEST(validate, vector_add_says_which_library_is_missing) {
  VectorAddOptions options;
  options.library = "/no/such/libcuda.so.1";
  const auto result = vector_add(options);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code(), Code::kNotFound);
  EXPECT_TRUE(result.error().text().starts_with("load '/no/such/libcuda.so.1': "));
}

TEST(validate, node_status_text_holds_what_is_known) {
  NodeStatus status;
  status.node = "n1";
  status.driver_ready = true;
  const std::string text = node_status_text(status);
  EXPECT_NE(text.find("gpu_operator_node_driver_ready{node=\"n1\"} 1\n"), std::string::npos);
  EXPECT_NE(text.find("gpu_operator_node_device_plugin_devices_total{node=\"n1\"} -1\n"), std::string::npos);
  EXPECT_EQ(text.find("driver_validation"), std::string::npos);
}

}  // namespace
}  // namespace gpuop::validate
