#include "sharing/options.h"

#include <algorithm>
#include <string>

#include "base/text.h"
#include "base/time.h"

namespace gpuop::sharing {
namespace {

using enum OptionType;

constexpr std::string_view kKubeletSocket = "/var/lib/kubelet/device-plugins/kubelet.sock";
constexpr std::string_view kFeatureFile = "/etc/kubernetes/node-feature-discovery/features.d/gfd";

Option rescan_option() {
  return {
      "device-rescan-interval",
      {},
      {"DP_DEVICE_RESCAN_INTERVAL"},
      "",
      kDuration,
      "10s",
      "how often GPUs that could not be read are tried again, while there are such; 0: only when a device "
      "node "
      "comes"};
}

std::vector<Option> plugin_options() {
  return {
      {"mig-strategy",
       {},
       {"MIG_STRATEGY"},
       "migStrategy",
       kString,
       "none",
       "how MIG devices are advertised: none, single or mixed"},
      {"fail-on-init-error",
       {},
       {"FAIL_ON_INIT_ERROR"},
       "failOnInitError",
       kBool,
       "true",
       "end with an error when NVML cannot be initialised; otherwise wait without devices"},
      {"driver-root",
       {"nvidia-driver-root"},
       {"NVIDIA_DRIVER_ROOT"},
       "nvidiaDriverRoot",
       kString,
       "/",
       "root of the driver's files on the host"},
      {"dev-root",
       {"nvidia-dev-root"},
       {"NVIDIA_DEV_ROOT"},
       "nvidiaDevRoot",
       kString,
       "",
       "root of the device nodes on the host (empty: the driver root)"},
      {"pass-device-specs",
       {},
       {"PASS_DEVICE_SPECS"},
       "plugin.passDeviceSpecs",
       kBool,
       "false",
       "name device nodes in the answers to Allocate"},
      {"device-list-strategy",
       {},
       {"DEVICE_LIST_STRATEGY"},
       "plugin.deviceListStrategy",
       kStringList,
       "envvar",
       "how devices are handed to the runtime: envvar, volume-mounts, cdi-annotations, cdi-cri"},
      {"device-id-strategy",
       {},
       {"DEVICE_ID_STRATEGY"},
       "plugin.deviceIDStrategy",
       kString,
       "uuid",
       "what devices are called when they are handed over: uuid or index"},
      {"gdrcopy-enabled",
       {},
       {"GDRCOPY_ENABLED"},
       "gdrcopyEnabled",
       kBool,
       "false",
       "give GDRCopy to every container that has a GPU"},
      {"gds-enabled",
       {},
       {"GDS_ENABLED"},
       "gdsEnabled",
       kBool,
       "false",
       "give GPUDirect Storage to every container that has a GPU"},
      {"mofed-enabled",
       {},
       {"MOFED_ENABLED"},
       "mofedEnabled",
       kBool,
       "false",
       "give MOFED to every container that has a GPU"},
      {"cdi-annotation-prefix",
       {},
       {"CDI_ANNOTATION_PREFIX"},
       "plugin.cdiAnnotationPrefix",
       kString,
       "cdi.k8s.io/",
       "prefix of the annotations of cdi-annotations"},
      {"nvidia-cdi-hook-path",
       {"nvidia-ctk-path"},
       {"NVIDIA_CDI_HOOK_PATH", "NVIDIA_CTK_PATH"},
       "plugin.nvidiaCTKPath",
       kString,
       "/usr/bin/nvidia-ctk",
       "the hook program that CDI specs call, on the host"},
      {"driver-root-ctr-path",
       {"container-driver-root"},
       {"DRIVER_ROOT_CTR_PATH", "CONTAINER_DRIVER_ROOT"},
       "plugin.containerDriverRoot",
       kString,
       "/driver-root",
       "where the driver root is mounted in this container"},
      {"mps-root", {}, {"MPS_ROOT"}, "mpsRoot", kString, "", "the MPS daemon's folder on the host"},
      {"shared-devices-allocation-policy",
       {},
       {"SHARED_DEVICES_ALLOCATION_POLICY"},
       "plugin.sharedDevicesAllocationPolicy",
       kString,
       "distributed",
       "which replicas of shared GPUs are preferred: distributed or packed"},
      {"device-discovery-strategy",
       {},
       {"DEVICE_DISCOVERY_STRATEGY"},
       "deviceDiscoveryStrategy",
       kString,
       "auto",
       "where devices are looked for: auto, nvml or tegra"},
      {"imex-channel-ids",
       {},
       {"IMEX_CHANNEL_IDS"},
       "",
       kIntList,
       "",
       "IMEX channels to hand over: none or 0"},
      {"imex-required", {}, {"IMEX_REQUIRED"}, "", kBool, "false", "a missing IMEX channel is an error"},
      {"kubelet-socket",
       {},
       {"KUBELET_SOCKET"},
       "",
       kString,
       kKubeletSocket,
       "the kubelet's registration socket; empty: do not register"},
      {"config-file", {}, {"CONFIG_FILE"}, "", kString, "", "configuration file, YAML or JSON"},
      {"cdi-feature-flags",
       {},
       {"CDI_FEATURE_FLAGS"},
       "",
       kStringList,
       "",
       "variations of the CDI specs, e.g. enable-explicit-driver-libraries"},
      {"cdi-disable-hooks",
       {},
       {"CDI_DISABLE_HOOKS"},
       "",
       kStringList,
       "",
       "hooks that CDI specs leave out, or all"},
      {"health-recovery-interval",
       {},
       {"DP_HEALTH_RECOVERY_INTERVAL"},
       "",
       kDuration,
       "5m",
       "an unhealthy device is tried again after this long, or when NVML says that its GPU was reset; 0: "
       "never"},
      rescan_option(),
      {"enable-resource-renaming",
       {},
       {"ENABLE_RESOURCE_RENAMING"},
       "",
       kBool,
       "false",
       "honour resources, and rename and devices of sharing, in the configuration file"},
      {"watch-mig-changes",
       {},
       {"WATCH_MIG_CHANGES"},
       "",
       kBool,
       "false",
       "discover devices anew when the MIG configuration changes"},
  };
}

std::vector<Option> gfd_options() {
  return {
      {"mig-strategy",
       {},
       {"GFD_MIG_STRATEGY", "MIG_STRATEGY"},
       "migStrategy",
       kString,
       "none",
       "how MIG devices are labelled: none, single or mixed"},
      {"fail-on-init-error",
       {},
       {"GFD_FAIL_ON_INIT_ERROR", "FAIL_ON_INIT_ERROR"},
       "failOnInitError",
       kBool,
       "true",
       "end with an error when NVML cannot be initialised"},
      {"oneshot", {}, {"GFD_ONESHOT"}, "gfd.oneshot", kBool, "false", "label once and end"},
      {"no-timestamp",
       {},
       {"GFD_NO_TIMESTAMP"},
       "gfd.noTimestamp",
       kBool,
       "false",
       "leave out the label nvidia.com/gfd.timestamp"},
      {"sleep-interval",
       {},
       {"GFD_SLEEP_INTERVAL"},
       "gfd.sleepInterval",
       kDuration,
       "60s",
       "time between two looks at the hardware, or infinite"},
      {"output-file",
       {"output", "o"},
       {"GFD_OUTPUT_FILE"},
       "gfd.outputFile",
       kString,
       kFeatureFile,
       "file for the labels; empty: standard output"},
      {"machine-type-file",
       {},
       {"GFD_MACHINE_TYPE_FILE"},
       "gfd.machineTypeFile",
       kString,
       "/sys/class/dmi/id/product_name",
       "file with the machine's model"},
      {"config-file",
       {},
       {"GFD_CONFIG_FILE", "CONFIG_FILE"},
       "",
       kString,
       "",
       "configuration file, YAML or JSON"},
      {"use-node-feature-api",
       {},
       {"GFD_USE_NODE_FEATURE_API", "USE_NODE_FEATURE_API"},
       "useNodeFeatureAPI",
       kBool,
       "true",
       "publish a NodeFeature object instead of a file"},
      {"device-discovery-strategy",
       {},
       {"DEVICE_DISCOVERY_STRATEGY"},
       "deviceDiscoveryStrategy",
       kString,
       "auto",
       "where devices are looked for: auto, nvml, tegra or vfio"},
      {"driver-root-ctr-path",
       {"container-driver-root"},
       {"DRIVER_ROOT_CTR_PATH", "CONTAINER_DRIVER_ROOT"},
       "plugin.containerDriverRoot",
       kString,
       "/driver-root",
       "where the driver root is mounted in this container"},
      {"kubeconfig",
       {},
       {"KUBECONFIG"},
       "",
       kString,
       "",
       "kubeconfig file; empty: the pod's service account"},
      {"kube-api-qps",
       {},
       {"KUBE_API_QPS"},
       "",
       kString,
       "5",
       "accepted for compatibility; requests are few"},
      {"kube-api-burst",
       {},
       {"KUBE_API_BURST"},
       "",
       kString,
       "10",
       "accepted for compatibility; requests are few"},
      {"namespace", {}, {"NAMESPACE"}, "", kString, "default", "namespace of the NodeFeature object"},
      {"node-name", {}, {"NODE_NAME"}, "", kString, "", "this node's name"},
      {"pod-name",
       {},
       {"POD_NAME"},
       "",
       kString,
       "",
       "this pod's name; its DaemonSet then owns the NodeFeature"},
  };
}

std::vector<Option> mps_options() {
  return {
      {"mig-strategy",
       {},
       {"MIG_STRATEGY"},
       "migStrategy",
       kString,
       "none",
       "how MIG devices are advertised: none, single or mixed"},
      rescan_option(),
      {"config-file", {}, {"CONFIG_FILE"}, "", kString, "", "configuration file, YAML or JSON"},
  };
}

std::vector<Option> config_manager_options() {
  return {
      {"oneshot", {}, {"ONESHOT"}, "", kBool, "false", "select once and end"},
      {"kubeconfig",
       {},
       {"KUBECONFIG"},
       "",
       kString,
       "",
       "kubeconfig file; empty: the pod's service account"},
      {"node-name", {}, {"NODE_NAME"}, "", kString, "", "this node's name"},
      {"node-label",
       {},
       {"NODE_LABEL"},
       "",
       kString,
       "nvidia.com/device-plugin.config",
       "the node label whose value names the configuration"},
      {"config-file-srcdir",
       {},
       {"CONFIG_FILE_SRCDIR"},
       "",
       kString,
       "",
       "folder with the configuration files"},
      {"config-file-dst", {}, {"CONFIG_FILE_DST"}, "", kString, "", "link that is made to the selected file"},
      {"default-config", {}, {"DEFAULT_CONFIG"}, "", kString, "", "file to use when the node has no label"},
      {"fallback-strategies",
       {},
       {"FALLBACK_STRATEGIES"},
       "",
       kStringList,
       "",
       "what to try without label and default: named, single, empty"},
      {"send-signal", {}, {"SEND_SIGNAL"}, "", kBool, "true", "signal a process after a change"},
      {"signal", {}, {"SIGNAL"}, "", kInt, "1", "the signal's number"},
      {"process-to-signal",
       {},
       {"PROCESS_TO_SIGNAL"},
       "",
       kString,
       "nvidia-device-plugin",
       "the process' name"},
      {"watch-content",
       {},
       {"WATCH_CONTENT"},
       "",
       kBool,
       "true",
       "signal also when the selected file's content changes"},
  };
}

std::vector<Option> all_file_options() {
  std::vector<Option> all = plugin_options();
  for (const Option& option : gfd_options()) {
    bool there = std::ranges::any_of(all, [&](const Option& o) { return o.file_key == option.file_key; });
    if (!there) all.push_back(option);
  }
  std::erase_if(all, [](const Option& option) { return option.file_key.empty(); });
  return all;
}

}  // namespace

std::span<const Option> options(Program program) {
  static const std::vector<Option> plugin = plugin_options(), gfd = gfd_options(), mps = mps_options(),
                                   manager = config_manager_options();
  switch (program) {
    case Program::kPlugin:
      return plugin;
    case Program::kFeatureDiscovery:
      return gfd;
    case Program::kMps:
      return mps;
    case Program::kConfigManager:
      return manager;
  }
  return plugin;
}

std::span<const Option> file_options() {
  static const std::vector<Option> all = all_file_options();
  return all;
}

Result<Json> parse_duration_value(std::string_view text) {
  if (text == "infinite") return Json(nullptr);
  return Json(static_cast<std::int64_t>(TRY(parse_go_duration(text)).count()));
}

Result<Json> parse_option_value(OptionType type, std::string_view text) {
  switch (type) {
    case kBool: {
      constexpr std::string_view yes[] = {"1", "t", "T", "TRUE", "true", "True"};
      constexpr std::string_view no[] = {"0", "f", "F", "FALSE", "false", "False"};
      if (std::ranges::find(yes, text) != std::end(yes)) return Json(true);
      if (std::ranges::find(no, text) != std::end(no)) return Json(false);
      return fail(Code::kInvalid, "must be true or false; got '" + std::string(text) + "'");
    }
    case kString:
      return Json(text);
    case kDuration:
      return parse_duration_value(text);
    case kInt: {
      auto number = parse_int(trim(text));
      if (!number) return fail(Code::kInvalid, "must be a whole number; got '" + std::string(text) + "'");
      return Json(*number);
    }
    case kStringList:
    case kIntList: {
      JsonArray items;
      for (const std::string& part : split(text, ',')) {
        std::string_view item = trim(part);
        if (type == kStringList) {
          items.emplace_back(item);
          continue;
        }
        auto number = parse_int(item);
        if (!number) return fail(Code::kInvalid, "must be whole numbers; got '" + std::string(item) + "'");
        items.emplace_back(*number);
      }
      return Json(std::move(items));
    }
  }
  return Json();
}

}  // namespace gpuop::sharing
