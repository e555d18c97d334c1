#include "shim/runtime.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/files.h"
#include "base/text.h"
#include "shim/facts.h"
#include "shim/inject.h"
#include "shim/prestart.h"
#include "shim/requirements.h"

namespace gpuop::shim {
namespace {

#define EXPECT_HAS(text, part) EXPECT_NE(std::string(text).find(part), std::string::npos) << (text)

Json oci_with_env(std::vector<std::string> env) {
  Json oci = parse_json(R"({"ociVersion":"1.2.0","process":{"env":[]},"root":{"path":"rootfs"}})").value();
  set(oci, {"process", "env"}, JsonArray(env.begin(), env.end()));
  return oci;
}

Container with_env(std::vector<std::string> env) {
  return container_of(oci_with_env(std::move(env)));
}

HostFacts two_gpus() {
  HostFacts facts;
  facts.driver_version = "550.54";
  facts.cuda_version = "12.4";
  for (unsigned i = 0; i < 2; ++i)
    facts.gpus.push_back(
        {i, i, "GPU-" + std::to_string(i), "0000:0" + std::to_string(i) + ":00.0", "8.0", "Tesla", {}});
  cdi::Spec spec{"1.1.0", "runtime.nvidia.com/gpu", {}, {}, {}};
  for (const auto& gpu : facts.gpus) {
    for (const auto& name : {std::to_string(gpu.index), gpu.uuid}) {
      cdi::Device device{name, {}, {}};
      device.edits.device_nodes.push_back(
          {"/dev/gpuop-nvidia" + name, "", "c", 195, gpu.minor, {}, "rwm", {}, {}});
      spec.devices.push_back(device);
    }
  }
  cdi::Device all{"all", {}, {}};
  for (const auto& device : spec.devices) all.edits.append(device.edits);
  spec.devices.push_back(all);
  spec.devices.push_back({"none", {}, {}});
  spec.devices.back().edits.env = {"NVCT_EMPTY_DEVICE="};
  for (auto node : {"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset"}) {
    spec.edits.device_nodes.push_back({node, "", "c", 195, 255, {}, "rwm", {}, {}});
  }
  for (auto file : {"libcuda", "libnvidia-ml", "libnvcuvid", "libnvidia-glcore", "libnvidia-ngx"}) {
    std::string path = "/usr/lib64/" + std::string(file) + ".so.550.54";
    spec.edits.mounts.push_back({path, path, {"ro"}, ""});
  }
  spec.edits.mounts.push_back({"/usr/bin/nvidia-smi", "/usr/bin/nvidia-smi", {"ro"}, ""});
  facts.specs.emplace("gpu", spec);
  cdi::Spec gds{"1.1.0", "runtime.nvidia.com/gds", {}, {{"all", {}, {}}}, {}};
  gds.devices[0].edits.device_nodes.push_back({"/dev/nvidia-fs0", "", "c", 500, 0, {}, "rwm", {}, {}});
  gds.devices[0].edits.mounts.push_back({"/run/udev", "/run/udev", {"ro"}, ""});
  facts.specs.emplace("gds", gds);
  return facts;
}

class Bundle {
 public:
  explicit Bundle(Json oci) : text_(to_text(oci)) {
    EXPECT_TRUE(make_dirs(dir_.path() / "rootfs"));
    EXPECT_TRUE(write_file_atomic(dir_.path() / "config.json", text_));
    EXPECT_TRUE(write_file_atomic(dir_.path() / "facts.json", format_facts(two_gpus())));
    EXPECT_TRUE(make_dirs(dir_.path() / "cdi"));
    config_ = parse_config("", "").value();
    config_.spec_dirs = {(dir_.path() / "cdi").string()};
  }
  Result<bool> edit() {
    return edit_bundle(
        dir_.path(), config_, dir_.path() / "facts.json",
        [&](int level, const std::string& text) { log_ += std::to_string(level) + " " + text + "\n"; });
  }
  Config& config() { return config_; }
  const std::string& log() const { return log_; }
  std::string before() const { return text_; }
  std::string now() const { return read_file(dir_.path() / "config.json").value(); }
  Json json() const { return parse_json(now()).value(); }
  const fs::path& path() const { return dir_.path(); }

 private:
  TempDir dir_;
  std::string text_;
  Config config_;
  std::string log_;
};

std::vector<std::string> device_paths(const Json& oci) {
  std::vector<std::string> list;
  for (const auto& device : get_array(oci, {"linux", "devices"}))
    list.push_back(str(get_string(device, {"path"})));
  return list;
}

bool has_mount(const Json& oci, std::string_view part) {
  for (const auto& mount : get_array(oci, {"mounts"})) {
    if (get_string(mount, {"destination"}).find(part) != std::string_view::npos) return true;
  }
  return false;
}

TEST(container_toolkit, case25_the_low_level_command_line) {
  auto arguments = parse_runtime_arguments({"--root", "/r", "create", "--bundle", "/b", "id"});
  ASSERT_TRUE(arguments);
  EXPECT_TRUE(arguments->create);
  EXPECT_EQ(arguments->bundle, "/b");
  EXPECT_FALSE(parse_runtime_arguments({"--bundle", "create", "start", "x"})->create);
  EXPECT_EQ(parse_runtime_arguments({"create", "--bundle"}).error().text(),
            "bundle option requires an argument");
  for (auto form : {"--bundle=/x", "-b=/x"})
    EXPECT_EQ(parse_runtime_arguments({"create", form})->bundle, "/x");
  EXPECT_EQ(parse_runtime_arguments({"create", "-b", "/y", "-bundle", "/z"})->bundle, "/z");
  EXPECT_EQ(parse_runtime_arguments({"create", "id"})->bundle, ".");
}

TEST(container_toolkit, case26_unknown_fields_stay) {
  Json oci = oci_with_env({"NVIDIA_VISIBLE_DEVICES=0"});
  set(oci, {"futureField"}, JsonObject{{"k", 1}});
  Bundle bundle(oci);
  auto edited = bundle.edit();
  ASSERT_TRUE(edited) << edited.error().text();
  EXPECT_TRUE(*edited);
  EXPECT_EQ(get_int(bundle.json(), {"futureField", "k"}), 1);
  EXPECT_FALSE(device_paths(bundle.json()).empty());
}

TEST(container_toolkit, case27_auto_is_cdi_only_for_qualified_names) {
  Config config = parse_config("", "").value();
  EXPECT_EQ(resolve_mode("auto", with_env({"NVIDIA_VISIBLE_DEVICES=nvidia.com/gpu=0,nvidia.com/gpu=1"}),
                         config, false)
                .value(),
            "cdi");
  EXPECT_EQ(
      resolve_mode("auto", with_env({"NVIDIA_VISIBLE_DEVICES=nvidia.com/gpu=0,1"}), config, false).value(),
      "jit-cdi");
  EXPECT_EQ(resolve_mode("auto", with_env({"NVIDIA_VISIBLE_DEVICES=0"}), config, true).value(), "csv");
  EXPECT_HAS(resolve_mode("cid", with_env({}), config, false).error().text(), "invalid mode \"cid\"");
  EXPECT_EQ(resolve_mode("", with_env({}), config, false).error().text(), "a mode must be specified");
}

TEST(container_toolkit, case28_no_request_leaves_every_byte) {
  for (std::vector<std::string> env : {std::vector<std::string>{"NVIDIA_VISIBLE_DEVICES=void"},
                                       {},
                                       {"NVIDIA_VISIBLE_DEVICES="},
                                       {"NVIDIA_VISIBLE_DEVICES=0,void"}}) {
    Bundle bundle(oci_with_env(env));
    EXPECT_FALSE(bundle.edit().value());
    EXPECT_EQ(bundle.now(), bundle.before());
  }
  Bundle legacy(oci_with_env({"CUDA_VERSION=10.1"}));
  ASSERT_TRUE(legacy.edit().value());
  EXPECT_GE(device_paths(legacy.json()).size(), 6u);
}

TEST(container_toolkit, case29_a_management_kind_has_only_all) {
  Bundle bundle(oci_with_env({"NVIDIA_VISIBLE_DEVICES=GPU-1"}));
  bundle.config().mode = "cdi";
  bundle.config().default_kind = "management.nvidia.com/gpu";
  ASSERT_TRUE(write_file_atomic(bundle.path() / "cdi/m.yaml",
                                "cdiVersion: 0.5.0\nkind: management.nvidia.com/gpu\ndevices:\n- name: all\n "
                                " containerEdits:\n    env: [A=1]\n"));
  auto edited = bundle.edit();
  ASSERT_FALSE(edited);
  EXPECT_HAS(edited.error().text(),
             "failed to inject CDI devices: unresolvable CDI devices management.nvidia.com/gpu=GPU-1");
  EXPECT_HAS(edited.error().text(), (bundle.path() / "cdi").string());
  EXPECT_HAS(edited.error().text(), "only: all");
  EXPECT_EQ(bundle.now(), bundle.before());
}

TEST(container_toolkit, case30_unprivileged_variables_can_be_refused) {
  Json oci = oci_with_env({"NVIDIA_VISIBLE_DEVICES=all"});
  Bundle bundle(oci);
  bundle.config().accept_envvar_unprivileged = false;
  EXPECT_FALSE(bundle.edit().value());
  EXPECT_HAS(bundle.log(), "2 ignored devices requested by environment variable");
  set(oci, {"process", "capabilities", "bounding"}, JsonArray{Json("CAP_SYS_ADMIN")});
  Bundle privileged(oci);
  privileged.config().accept_envvar_unprivileged = false;
  EXPECT_TRUE(privileged.edit().value());
}

TEST(container_toolkit, case31_volume_mounts) {
  Json oci = oci_with_env({"NVIDIA_VISIBLE_DEVICES=all"});
  JsonArray mounts;
  for (auto destination :
       {"/var/run/nvidia-container-devices/GPU-a", "/var/run/nvidia-container-devices/cdi/nvidia.com/gpu/0",
        "/var/run/nvidia-container-devices2/x", "/var/run/nvidia-container-devices/imex/3"}) {
    mounts.push_back(JsonObject{{"source", "/dev/null"}, {"destination", destination}});
  }
  set(oci, {"mounts"}, mounts);
  Config config = parse_config("", "").value();
  config.accept_volume_mounts = true;
  auto request = device_request(container_of(oci), config, false);
  EXPECT_EQ(request.devices, (std::vector<std::string>{"GPU-a", "nvidia.com/gpu=0"}));
  EXPECT_EQ(imex_request(container_of(oci), config), std::vector<std::string>{"3"});
}

TEST(container_toolkit, case32_extra_devices_by_variable) {
  Bundle none(oci_with_env({"NVIDIA_VISIBLE_DEVICES=0", "NVIDIA_IMEX_CHANNELS=none"}));
  ASSERT_TRUE(none.edit().value());
  for (const auto& path : device_paths(none.json())) EXPECT_EQ(path.find("channel"), std::string::npos);
  Bundle gds(oci_with_env({"NVIDIA_VISIBLE_DEVICES=0", "NVIDIA_GDS=enabled"}));
  ASSERT_TRUE(gds.edit().value());
  auto paths = device_paths(gds.json());
  EXPECT_NE(std::ranges::find(paths, "/dev/nvidia-fs0"), paths.end());
  EXPECT_TRUE(has_mount(gds.json(), "/run/udev"));
}

TEST(container_toolkit, case33_swarm_resources) {
  Config config = parse_config("swarm-resource = \"A,B\"", "").value();
  auto request =
      device_request(with_env({"A=GPU-1", "B=GPU-2", "NVIDIA_VISIBLE_DEVICES=all"}), config, false);
  EXPECT_EQ(request.devices, (std::vector<std::string>{"GPU-1", "GPU-2"}));
}

TEST(container_toolkit, case34_requirements) {
  Config config = parse_config("", "").value();
  RequirementFacts facts{"12.4", "550.54", {{"8.0", "Tesla"}}};
  auto check = [&](std::vector<std::string> env) {
    return check_requirements(with_env(std::move(env)), config, facts);
  };
  EXPECT_TRUE(check({"NVIDIA_REQUIRE_CUDA=cuda>=12.4"}));
  auto failed = check({"NVIDIA_REQUIRE_CUDA=cuda>=12.5"});
  ASSERT_FALSE(failed);
  EXPECT_HAS(failed.error().text(), "unsatisfied condition: cuda>=12.5, please update your driver");
  EXPECT_TRUE(check({"NVIDIA_REQUIRE_CUDA=cuda>=12.5 brand=tesla,driver>=470"}));
  EXPECT_HAS(check({"NVIDIA_REQUIRE_X=brand>tesla"}).error().text(),
             "NVIDIA_REQUIRE_X: invalid expression 'brand>tesla'");
  EXPECT_FALSE(check({"NVIDIA_REQUIRE_A=cuda>=12.4", "NVIDIA_REQUIRE_B=cuda>=99"}));
  EXPECT_TRUE(check({"NVIDIA_REQUIRE_B=cuda>=99", "NVIDIA_DISABLE_REQUIRE=1"}));
  EXPECT_FALSE(check({"NVIDIA_REQUIRE_B=cuda>=99", "NVIDIA_DISABLE_REQUIRE=yes"}));
  EXPECT_FALSE(check({"NVIDIA_REQUIRE_B=cuda!12"}));
  EXPECT_TRUE(check({"NVIDIA_REQUIRE_JETPACK=csv-mounts=all"}));
  EXPECT_FALSE(check({"CUDA_VERSION=13.0.1"}));
  EXPECT_EQ(compare_versions("11.0", "11"), 0);
}

TEST(container_toolkit, case35_hook_capabilities_and_mig) {
  Config config = parse_config("", "").value();
  auto capabilities = driver_capabilities(with_env({"NVIDIA_DRIVER_CAPABILITIES=compute,foo"}), config);
  ASSERT_FALSE(capabilities);
  EXPECT_HAS(capabilities.error().text(),
             "unsupported capabilities found in 'foo' (allowed 'compat32,compute");
  EXPECT_EQ(driver_capabilities(with_env({}), config).value(),
            (std::vector<std::string>{"compute", "utility"}));
  auto mig =
      check_prestart(oci_with_env({"NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_MIG_CONFIG_DEVICES=all"}), config);
  ASSERT_FALSE(mig);
  EXPECT_HAS(mig.error().text(), "cannot set MIG_CONFIG_DEVICES in non privileged container");
  EXPECT_FALSE(check_prestart(oci_with_env({"A=b"}), config).value());
  config.mode = "cdi";
  auto refused = check_prestart(oci_with_env({"NVIDIA_VISIBLE_DEVICES=all"}), config);
  ASSERT_FALSE(refused);
  EXPECT_HAS(refused.error().text(), "--runtime=nvidia");
}

TEST(container_toolkit, case36_ldconfig_of_a_container_is_refused) {
  Bundle bundle(oci_with_env({"NVIDIA_VISIBLE_DEVICES=0"}));
  for (auto value : {"/sbin/ldconfig", ""}) {
    bundle.config().cli_ldconfig = value;
    EXPECT_HAS(bundle.edit().error().text(), "not host-relative");
  }
}

TEST(container_toolkit, case37_the_first_runtime_that_exists) {
  TempDir dir;
  ASSERT_TRUE(write_file_atomic(dir.path() / "crun", "#!", 0755));
  ASSERT_TRUE(write_file_atomic(dir.path() / "plain", "#!", 0644));
  EXPECT_EQ(find_low_level_runtime({"missing-one", "crun"}, dir.path().string()).value(),
            dir.path() / "crun");
  EXPECT_HAS(find_low_level_runtime({"missing-one", (dir.path() / "plain").string()}, "").error().text(),
             "no runtime binary found from candidate list: [missing-one");
}

TEST(container_toolkit, case56_s16_channels_out_of_range) {
  Config config = parse_config("", "").value();
  for (auto channel : {"1048576", "-1", "../x"}) {
    auto plan =
        plan_injection(with_env({"NVIDIA_VISIBLE_DEVICES=0", std::string("NVIDIA_IMEX_CHANNELS=") + channel}),
                       config, false);
    ASSERT_FALSE(plan) << channel;
    EXPECT_HAS(plan.error().text(), "invalid IMEX channel ID");
  }
  config.mode = "legacy";
  EXPECT_HAS(
      plan_injection(with_env({"NVIDIA_VISIBLE_DEVICES=0", "NVIDIA_MIG_CONFIG_DEVICES=all"}), config, false)
          .error()
          .text(),
      "non privileged");
}

TEST(container_toolkit, case56_s18_stale_numbers_are_refused) {
  cdi::Edits edits;
  edits.device_nodes.push_back({"/dev/null", "", "c", 1, 3, {}, "", {}, {}});
  EXPECT_TRUE(check_not_stale(edits));
  edits.device_nodes[0].minor = 5;
  auto stale = check_not_stale(edits);
  ASSERT_FALSE(stale);
  EXPECT_HAS(stale.error().text(), "CDI spec is stale: '/dev/null' is 1:3 on the host, the spec says 1:5");
}

TEST(container_toolkit, case57_systemd_sees_the_devices_too) {
  Bundle bundle(oci_with_env({"NVIDIA_VISIBLE_DEVICES=all"}));
  bundle.config().mode = "legacy";
  ASSERT_TRUE(bundle.edit().value());
  Json oci = bundle.json();
  // A reload rebuilds the rules from the OCI spec: every node must be among them.
  for (const auto& device : get_array(oci, {"linux", "devices"})) {
    bool allowed = false;
    for (const auto& rule : get_array(oci, {"linux", "resources", "devices"})) {
      allowed =
          allowed || (get_bool(rule, {"allow"}) && get_int(rule, {"major"}) == get_int(device, {"major"}) &&
                      get_int(rule, {"minor"}) == get_int(device, {"minor"}));
    }
    EXPECT_TRUE(allowed) << to_text(device);
  }
  EXPECT_TRUE(get_array(oci, {"hooks", "prestart"}).empty());
}

TEST(container_toolkit, case58_capabilities_filter_the_driver) {
  auto injected = [](std::string capabilities, std::string devices = "0") {
    Bundle bundle(
        oci_with_env({"NVIDIA_VISIBLE_DEVICES=" + devices, "NVIDIA_DRIVER_CAPABILITIES=" + capabilities}));
    bundle.config().mode = "legacy";
    auto edited = bundle.edit();
    EXPECT_TRUE(edited) << edited.error().text();
    return bundle.json();
  };
  auto has_node = [](const Json& oci, std::string_view path) {
    auto paths = device_paths(oci);
    return std::ranges::find(paths, path) != paths.end();
  };
  Json utility = injected("utility");
  EXPECT_FALSE(has_mount(utility, "libcuda"));
  EXPECT_FALSE(has_node(utility, "/dev/nvidia-uvm"));
  EXPECT_TRUE(has_mount(utility, "nvidia-smi"));
  Json video = injected("video");
  EXPECT_TRUE(has_mount(video, "libcuda"));
  EXPECT_TRUE(has_mount(video, "libnvcuvid"));
  EXPECT_FALSE(has_mount(video, "nvidia-smi"));
  Json display = injected("display");
  EXPECT_TRUE(has_node(display, "/dev/nvidia-modeset"));
  EXPECT_TRUE(has_mount(display, "libnvidia-glcore"));
  Json none = injected("utility", "none");
  EXPECT_TRUE(has_node(none, "/dev/nvidiactl"));
  EXPECT_FALSE(has_node(none, "/dev/gpuop-nvidia0"));
}

TEST(shim, prestart_hooks_of_the_legacy_kind_are_taken_out) {
  Json oci = oci_with_env({});
  set(oci, {"hooks", "prestart"},
      parse_json(R"([{"path":"/usr/bin/nvidia-container-runtime-hook"},{"path":"/other"}])").value());
  Bundle bundle(oci);
  ASSERT_TRUE(bundle.edit().value());
  EXPECT_EQ(to_text(*find(bundle.json(), {"hooks", "prestart"})), R"([{"path":"/other"}])");
}

TEST(shim, annotations_count_only_in_cdi_mode) {
  Json oci = oci_with_env({});
  set(oci, {"annotations"}, JsonObject{{"cdi.k8s.io/x", "acme.com/x=1"}});
  Bundle bundle(oci);
  ASSERT_TRUE(write_file_atomic(
      bundle.path() / "cdi/a.yaml",
      "cdiVersion: 0.5.0\nkind: acme.com/x\ndevices:\n- name: \"1\"\n  containerEdits:\n    env: [A=1]\n"));
  bundle.config().mode = "cdi";
  ASSERT_TRUE(bundle.edit().value());
  EXPECT_HAS(bundle.now(), "A=1");
  Bundle jit(oci);
  jit.config().mode = "jit-cdi";
  EXPECT_FALSE(jit.edit().value());
}

TEST(shim, automatic_and_other_devices_do_not_mix) {
  Bundle bundle(oci_with_env({"NVIDIA_VISIBLE_DEVICES=nvidia.com/gpu=0,1"}));
  EXPECT_HAS(bundle.edit().error().text(),
             "requesting a CDI device with vendor 'runtime.nvidia.com' is not supported");
}

TEST(shim, facts_read_back_and_odd_ones_are_refused) {
  HostFacts facts = two_gpus();
  EXPECT_EQ(parse_facts(format_facts(facts), "f").value(), facts);
  EXPECT_FALSE(parse_facts("{}", "f"));
  EXPECT_FALSE(parse_facts("", "f"));
}

}  // namespace
}  // namespace gpuop::shim
