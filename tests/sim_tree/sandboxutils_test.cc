// The fake libnvidia-sandboxutils, loaded as container toolkits load it.
#include "sim/sandboxutils/sandboxutils_abi.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstring>

#include "driver_root.h"
#include "sim/state/mig.h"

namespace gpuop::sim {
namespace {

using namespace sandboxutils;  // NOLINT

class SandboxUtils {
 public:
  explicit SandboxUtils(const DriverRoot& root)
      : library_(dlopen(root.library("libnvidia-sandboxutils.so.1").c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (!library_) ADD_FAILURE() << dlerror();
  }
  template <class... Args>
  int call(const char* symbol, Args... args) {
    auto f = reinterpret_cast<int (*)(Args...)>(dlsym(library_, symbol));
    if (!f) return ADD_FAILURE() << symbol, -1;
    return f(args...);
  }
  int init(const std::string& root) {
    InitInput input{1, kRootPath, {}};
    std::snprintf(input.value, sizeof input.value, "%s", root.c_str());
    return call("nvSandboxUtilsInit", &input);
  }
  // The paths of the answer, or the code.
  std::string files(InputType type, const std::string& id) {
    GpuResource request{1, type, {}, nullptr};
    std::snprintf(request.input, sizeof request.input, "%s", id.c_str());
    if (int code = call("nvSandboxUtilsGetGpuResource", &request)) return std::to_string(code);
    std::string out;
    for (const FileInfo* f = request.files; f; f = f->next)
      out += (out.empty() ? "" : " ") + std::string(f->path);
    return out;
  }

 private:
  void* library_;
};

TEST(sim_tree, sandboxutils_names_the_nodes_of_boards_and_instances) {
  DriverRoot root("GB200", 2);
  std::string uuid, mig;
  std::uint32_t gi_minor = 0, ci_minor = 0;
  root.change([&](State& s) {
    uuid = s.gpus[0].board.uuid;
    Gpu& gpu = s.gpus[1];
    gpu.live.mig_current = gpu.live.mig_pending = 1;
    int gi = -1, ci = -1;
    ASSERT_EQ(create_gi(gpu, find_gi_profile(gpu.board, 1)->id, kNone, &gi), 0);
    ASSERT_EQ(create_ci(s, 1, gi, 1, kNone, &ci), 0);
    mig = gpu.live.gis[gi].cis[ci].uuid;
    gi_minor = gi_cap_minor(1, gpu.live.gis[gi].id);
    ci_minor = ci_cap_minor(1, gpu.live.gis[gi].id, gpu.live.gis[gi].cis[ci].id);
  });
  SandboxUtils s(root);
  EXPECT_EQ(s.files(kGpuUuid, uuid), std::to_string(kUninitialized));
  ASSERT_EQ(s.init("/run/nvidia/driver/"), 0);
  EXPECT_EQ(s.files(kGpuUuid, uuid), "/run/nvidia/driver/dev/nvidia0");
  EXPECT_EQ(s.files(kPciId, "0008:01:00.0"), "/run/nvidia/driver/dev/nvidia0");
  EXPECT_EQ(s.files(kPciIndex, "1"), "/run/nvidia/driver/dev/nvidia1");
  std::string caps = "/run/nvidia/driver/dev/nvidia-caps/nvidia-cap";
  EXPECT_EQ(s.files(kGpuUuid, mig), "/run/nvidia/driver/dev/nvidia1 " + caps + std::to_string(gi_minor) +
                                        " " + caps + std::to_string(ci_minor));
  EXPECT_EQ(s.files(kMigUuid, mig), s.files(kGpuUuid, mig));
  EXPECT_EQ(s.files(kGpuUuid, "GPU-none"), std::to_string(kDeviceNotFound));
  char version[32] = {};
  EXPECT_EQ(s.call("nvSandboxUtilsGetDriverVersion", static_cast<char*>(version), 3u), kInsufficientSize);
  ASSERT_EQ(s.call("nvSandboxUtilsGetDriverVersion", static_cast<char*>(version), 32u), 0);
  EXPECT_STREQ(version, kDriver);
  ASSERT_EQ(s.init("/"), 0);
  EXPECT_EQ(s.files(kGpuUuid, uuid), "/dev/nvidia0");
  EXPECT_EQ(s.call("nvSandboxUtilsShutdown"), 0);
  EXPECT_EQ(s.call("nvSandboxUtilsShutdown"), 0);
  EXPECT_EQ(s.call("nvSandboxUtilsShutdown"), kUninitialized);
}

TEST(sim_tree, sandboxutils_refuses_what_it_does_not_know) {
  DriverRoot root("L4", 1);
  SandboxUtils s(root);
  InitInput input{2, kRootPath, {}};
  EXPECT_EQ(s.call("nvSandboxUtilsInit", &input), kVersionNotSupported);
  input = {1, kRootOfProcess, {}};
  EXPECT_EQ(s.call("nvSandboxUtilsInit", &input), kNotSupported);
  EXPECT_EQ(s.call("nvSandboxUtilsInit", static_cast<InitInput*>(nullptr)), kInvalidArgument);
  ASSERT_EQ(s.init("/"), 0);
  GpuResource request{1, 9, {}, nullptr};
  EXPECT_EQ(s.call("nvSandboxUtilsGetGpuResource", &request), kInvalidArgument);
  request.input_type = kGpuUuid;
  std::memset(request.input, 'x', sizeof request.input);
  EXPECT_EQ(s.call("nvSandboxUtilsGetGpuResource", &request), kInvalidArgument);
  fs::path link = root.dev() / "by-path";
  fs::create_symlink("../card0", link);
  std::string path = link.string();
  char content[16] = {};
  unsigned size = 4;
  EXPECT_EQ(s.call("nvSandboxUtilsGetFileContent", path.data(), static_cast<char*>(content), &size),
            kInsufficientSize);
  EXPECT_EQ(size, 9u);
  ASSERT_EQ(s.call("nvSandboxUtilsGetFileContent", path.data(), static_cast<char*>(content), &size), 0);
  EXPECT_STREQ(content, "../card0");
  path += "-none";
  EXPECT_EQ(s.call("nvSandboxUtilsGetFileContent", path.data(), static_cast<char*>(content), &size),
            kFileNotFound);
  ASSERT_TRUE(unload_module(root.kernel(), "nvidia-modeset"));
  ASSERT_TRUE(unload_module(root.kernel(), "nvidia-uvm"));
  ASSERT_TRUE(unload_module(root.kernel(), "nvidia"));
  EXPECT_EQ(s.init("/"), kNvmlCall);
}

}  // namespace
}  // namespace gpuop::sim
