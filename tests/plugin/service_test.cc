// The whole plugin in this process: a kubelet's end of the API, the fake NVML, a driver root of its own.
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "base/files.h"
#include "base/loop.h"
#include "kubeletapi/device_plugin.grpc.pb.h"
#include "plugin/service.h"
#include "tests/node_fixture.h"

namespace gpuop::plugin {
namespace {

constexpr std::uint64_t kXid = 0x8;

// The kubelet's registration service; what arrives is told to the loop.
class Kubelet final : public v1beta1::Registration::Service {
 public:
  Kubelet(Loop& loop, const fs::path& socket) : loop_(loop) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("unix://" + socket.string(), grpc::InsecureServerCredentials());
    builder.RegisterService(this);
    builder.SetSyncServerOption(grpc::ServerBuilder::CQ_TIMEOUT_MSEC,
                                50);  // its threads see the end this late
    server_ = builder.BuildAndStart();
  }
  ~Kubelet() override { server_->Shutdown(std::chrono::system_clock::now()); }
  grpc::Status Register(grpc::ServerContext*, const v1beta1::RegisterRequest* request,
                        v1beta1::Empty*) override {
    loop_.post([this, r = *request] { requests.push_back(r); });
    return grpc::Status::OK;
  }
  std::vector<v1beta1::RegisterRequest> requests;

 private:
  Loop& loop_;
  std::unique_ptr<grpc::Server> server_;
};

// One open ListAndWatch: "ID Healthy" lines of each list.
class Watcher {
 public:
  Watcher(Loop& loop, v1beta1::DevicePlugin::Stub& stub) {
    reader_ = stub.ListAndWatch(&context_, v1beta1::Empty());
    thread_ = std::thread([this, &loop] {
      v1beta1::ListAndWatchResponse list;
      // What is posted last may run when this object is gone.
      auto there = there_;
      while (reader_->Read(&list)) {
        loop.post([this, there, list] {
          if (*there) lists.push_back(list);
        });
      }
      loop.post([this, there] {
        if (*there) ended = true;
      });
    });
  }
  ~Watcher() {
    context_.TryCancel();
    thread_.join();
    *there_ = false;
  }
  std::vector<std::string> with(const char* health) const {
    std::vector<std::string> ids;
    if (lists.empty()) return ids;
    for (const auto& device : lists.back().devices()) {
      if (device.health() == health) ids.push_back(device.id());
    }
    return ids;
  }
  std::vector<v1beta1::ListAndWatchResponse> lists;
  bool ended = false;

 private:
  std::shared_ptr<bool> there_ = std::make_shared<bool>(true);
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<v1beta1::ListAndWatchResponse>> reader_;
  std::thread thread_;
};

// Each test has a kubelet's folder of its own.
inline constexpr char kA100[] = "A100-SXM4-80GB";

class ServicePlugin : public NodeFixture<kA100, 4> {
 protected:
  void SetUp() override {
    NodeFixture::SetUp();
    ASSERT_TRUE(make_dirs(plugins()));
    env_["DRIVER_ROOT_CTR_PATH"] = driver();
    env_["KUBELET_SOCKET"] = socket();
  }

  fs::path plugins() const { return dir_.path() / "plugins"; }
  fs::path socket() const { return plugins() / "kubelet.sock"; }

  Result<> start(const char* config = nullptr) {
    ServiceOptions options;
    if (config) {
      static_cast<void>(write_file_atomic(dir_.path() / "config.yaml", config));
      env_["CONFIG_FILE"] = dir_.path() / "config.yaml";
    }
    options.inputs.env = env_;
    options.plugin_dir = plugins();
    options.cdi_dir = dir_.path() / "cdi";
    options.nvml_retry = 50ms;
    options.debounce = 20ms;
    service_ =
        std::make_unique<Service>(loop_, options, [this](const Error& error) { fatal_ = error.text(); });
    return service_->start();
  }
  bool until(const std::function<bool()>& done) { return loop_.run_until(done, 5s); }
  void kubelet_starts() { kubelet_ = std::make_unique<Kubelet>(loop_, socket()); }
  std::unique_ptr<v1beta1::DevicePlugin::Stub> plugin(const char* name = "nvidia-gpu.sock") {
    return v1beta1::DevicePlugin::NewStub(
        grpc::CreateChannel("unix://" + (plugins() / name).string(), grpc::InsecureChannelCredentials()));
  }
  void xid(std::uint32_t gpu, std::uint64_t number) {
    ASSERT_EQ(state_.update([&](sim::State& state) {
      sim::push_event(state, gpu, kXid, number);
      return 0;
    }),
              0);
  }
  std::vector<std::string> replicas(int gpu, int count) const {
    std::vector<std::string> ids;
    for (int n = 0; n < count; ++n)
      ids.push_back(uuids_[static_cast<std::size_t>(gpu)] + "::" + std::to_string(n));
    return ids;
  }
  Result<v1beta1::AllocateResponse> allocate(v1beta1::DevicePlugin::Stub& stub,
                                             const std::vector<std::string>& ids) {
    v1beta1::AllocateRequest request;
    auto* one = request.add_container_requests();
    for (const std::string& id : ids) one->add_devices_ids(id);
    grpc::ClientContext context;
    v1beta1::AllocateResponse answer;
    auto status = stub.Allocate(&context, request, &answer);
    if (!status.ok()) return fail(Code::kUnknown, status.error_message());
    return answer;
  }

  TempDir dir_;
  Loop loop_;
  std::map<std::string, std::string> env_;
  std::unique_ptr<Kubelet> kubelet_;
  std::unique_ptr<Service> service_;
  std::string fatal_;
};

constexpr const char* kThreeReplicas = "sharing: {timeSlicing: {resources: [{name: gpu, replicas: 3}]}}";

}  // namespace

// Suites are named after the spec; each test gets the fixture through a class of that name.
class device_plugin_service : public ServicePlugin {};

// As happens to one that starts together with a driver container: the nodes never come into it.
// (First: the library asks for nodes when it is initialised, and a watch of an earlier test may hold it.)
TEST_F(device_plugin_service, a_container_made_before_the_gpus_nodes_ends_for_a_new_one) {
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(remove_file(hardware_nodes() / ("nvidia" + std::to_string(i))));
  const auto started = start();
  env_["FAIL_ON_INIT_ERROR"] = "false";
  const auto told_to_stay = start();
  ASSERT_TRUE(sim::make_device_nodes(kernel(), hardware_nodes()));
  ASSERT_FALSE(started);
  EXPECT_EQ(
      started.error().text(),
      "find device nodes: NVML finds no GPU in this container, the kernel's driver has 4: the container "
      "has been made without their nodes");
  EXPECT_TRUE(told_to_stay) << told_to_stay.error().text();
}

TEST_F(device_plugin_service, case01_registers_and_lists) {
  kubelet_starts();
  ASSERT_TRUE(start());
  ASSERT_TRUE(until([&] { return kubelet_->requests.size() == 1; }));
  const auto& request = kubelet_->requests[0];
  EXPECT_EQ(request.version(), "v1beta1");
  EXPECT_EQ(request.endpoint(), "nvidia-gpu.sock");
  EXPECT_EQ(request.resource_name(), "nvidia.com/gpu");
  EXPECT_FALSE(request.options().pre_start_required());
  EXPECT_TRUE(request.options().get_preferred_allocation_available());

  auto stub = plugin();
  Watcher watcher(loop_, *stub);
  ASSERT_TRUE(until([&] { return !watcher.lists.empty(); }));
  EXPECT_EQ(watcher.with("Healthy"), uuids_);
  grpc::ClientContext context;
  v1beta1::DevicePluginOptions options;
  ASSERT_TRUE(stub->GetDevicePluginOptions(&context, v1beta1::Empty(), &options).ok());
  EXPECT_TRUE(options.get_preferred_allocation_available());

  auto answer = allocate(*stub, {uuids_[2], uuids_[0]});
  ASSERT_TRUE(answer) << answer.error().text();
  EXPECT_EQ(answer->container_responses(0).envs().at("NVIDIA_VISIBLE_DEVICES"), uuids_[2] + "," + uuids_[0]);
  auto unknown = allocate(*stub, {"GPU-nine"});
  ASSERT_FALSE(unknown);
  EXPECT_NE(unknown.error().text().find("unknown device: GPU-nine"), std::string::npos);

  service_.reset();
  EXPECT_TRUE(until([&] { return watcher.ended; }));
  EXPECT_FALSE(file_exists(plugins() / "nvidia-gpu.sock"));
}

TEST_F(device_plugin_service, case02_numa_nodes) {
  auto set_node = [&](const char* text) {
    auto bus = fs::path();
    for (const auto& entry : fs::directory_iterator(kernel() / "sys/bus/pci/devices")) {
      auto vendor = read_file(entry.path() / "vendor");
      auto cls = read_file(entry.path() / "class");
      if (vendor && vendor->starts_with("0x10de") && cls && cls->starts_with("0x0302") &&
          (bus.empty() || entry.path() < bus))
        bus = entry.path();
    }
    fs::remove(bus / "numa_node");
    return write_file_atomic(bus / "numa_node", text);
  };
  ASSERT_TRUE(set_node("1\n"));
  env_["KUBELET_SOCKET"] = "";
  ASSERT_TRUE(start());
  {
    auto stub = plugin();
    Watcher watcher(loop_, *stub);
    ASSERT_TRUE(until([&] { return !watcher.lists.empty(); }));
    const auto& first = watcher.lists[0].devices(0);
    ASSERT_EQ(first.topology().nodes_size(), 1);
    EXPECT_EQ(first.topology().nodes(0).id(), 1);
  }
  ASSERT_TRUE(set_node("-1\n"));
  ASSERT_TRUE(start());
  {
    auto stub = plugin();
    Watcher watcher(loop_, *stub);
    ASSERT_TRUE(until([&] { return !watcher.lists.empty(); }));
    EXPECT_FALSE(watcher.lists[0].devices(0).has_topology());
  }
  ASSERT_TRUE(set_node("abc\n"));
  auto started = start();
  ASSERT_FALSE(started);
  EXPECT_NE(started.error().text().find("numa_node"), std::string::npos);
  ASSERT_TRUE(set_node("0\n"));
}

TEST_F(device_plugin_service, case03_kubelet_restarts) {
  kubelet_starts();
  ASSERT_TRUE(start());
  ASSERT_TRUE(until([&] { return kubelet_->requests.size() == 1; }));
  ASSERT_TRUE(write_file_atomic(plugins() / "other.sock", ""));
  loop_.run_for(50ms);
  EXPECT_EQ(kubelet_->requests.size(), 1u);

  kubelet_.reset();
  ASSERT_TRUE(remove_file(socket()));
  ASSERT_TRUE(remove_file(plugins() / "nvidia-gpu.sock"));
  kubelet_starts();
  ASSERT_TRUE(until([&] { return kubelet_->requests.size() == 1; }));
  EXPECT_TRUE(file_exists(plugins() / "nvidia-gpu.sock"));
  EXPECT_TRUE(allocate(*plugin(), {uuids_[0]}));
  EXPECT_EQ(fatal_, "");
}

TEST_F(device_plugin_service, case03_own_socket_removed) {
  kubelet_starts();
  ASSERT_TRUE(start());
  ASSERT_TRUE(until([&] { return kubelet_->requests.size() == 1; }));
  ASSERT_TRUE(remove_file(plugins() / "nvidia-gpu.sock"));
  ASSERT_TRUE(until([&] { return kubelet_->requests.size() == 2; }));
  EXPECT_TRUE(file_exists(plugins() / "nvidia-gpu.sock"));
}

TEST_F(device_plugin_service, case04_no_kubelet_socket) {
  kubelet_starts();
  env_["KUBELET_SOCKET"] = "";
  ASSERT_TRUE(start());
  EXPECT_TRUE(allocate(*plugin(), {uuids_[0]}));
  loop_.run_for(20ms);
  EXPECT_TRUE(kubelet_->requests.empty());
}

TEST_F(device_plugin_service, case18_cdi_specs) {
  env_["KUBELET_SOCKET"] = "";
  env_["DEVICE_LIST_STRATEGY"] = "cdi-cri";
  env_["GDS_ENABLED"] = "true";
  auto started = start();
  ASSERT_TRUE(started) << started.error().text();
  auto text = read_file(dir_.path() / "cdi/k8s.device-plugin.nvidia.com-gpu.json");
  ASSERT_TRUE(text) << text.error().text();
  for (const std::string& uuid : uuids_) EXPECT_NE(text->find("\"" + uuid + "\""), std::string::npos);
  EXPECT_NE(text->find("NVIDIA_VISIBLE_DEVICES=void"), std::string::npos);
  // No GDS nodes on this node: the class is not asked for, its variable stays.
  EXPECT_FALSE(file_exists(dir_.path() / "cdi/k8s.device-plugin.nvidia.com-gds.json"));
  auto answer = allocate(*plugin(), {uuids_[0]});
  ASSERT_TRUE(answer);
  const auto& one = answer->container_responses(0);
  ASSERT_EQ(one.cdi_devices_size(), 1);
  EXPECT_EQ(one.cdi_devices(0).name(), "k8s.device-plugin.nvidia.com/gpu=" + uuids_[0]);
  EXPECT_EQ(one.envs_size(), 1);
  EXPECT_EQ(one.envs().at("NVIDIA_GDS"), "enabled");

  // Without a cdi strategy the plugin's files go.
  env_["DEVICE_LIST_STRATEGY"] = "envvar";
  ASSERT_TRUE(start());
  EXPECT_FALSE(file_exists(dir_.path() / "cdi/k8s.device-plugin.nvidia.com-gpu.json"));
}

TEST_F(device_plugin_service, case18_missing_device_node) {
  env_["KUBELET_SOCKET"] = "";
  env_["DEVICE_LIST_STRATEGY"] = "cdi-cri";
  ASSERT_TRUE(remove_file(driver() / "dev/nvidia2"));
  auto started = start();
  ASSERT_TRUE(started) << started.error().text();
  auto stub = plugin();
  Watcher watcher(loop_, *stub);
  ASSERT_TRUE(until([&] { return !watcher.lists.empty(); }));
  EXPECT_EQ(watcher.with("Unhealthy"), std::vector<std::string>{uuids_[2]});
}

TEST_F(device_plugin_service, case27_xid_marks_every_replica) {
  kubelet_starts();
  ASSERT_TRUE(start(kThreeReplicas));
  ASSERT_TRUE(until([&] { return kubelet_->requests.size() == 1; }));
  auto stub = plugin();
  Watcher first(loop_, *stub), second(loop_, *stub);
  ASSERT_TRUE(until([&] { return !first.lists.empty() && !second.lists.empty(); }));
  ASSERT_TRUE(until([&] { return service_->watching(); }));
  xid(2, 31);
  xid(1, 79);
  ASSERT_TRUE(until([&] { return first.lists.size() == 2 && second.lists.size() == 2; }));
  EXPECT_EQ(first.with("Unhealthy"), replicas(1, 3));
  EXPECT_EQ(second.with("Unhealthy"), replicas(1, 3));
}

TEST_F(device_plugin_service, case30_events_not_supported) {
  env_["KUBELET_SOCKET"] = "";
  force("nvmlDeviceRegisterEvents", 3);
  ASSERT_TRUE(start());
  auto stub = plugin();
  Watcher watcher(loop_, *stub);
  ASSERT_TRUE(until([&] { return service_->watching() && !watcher.lists.empty(); }));
  EXPECT_EQ(watcher.with("Healthy"), uuids_);
}

TEST_F(device_plugin_service, case30_registration_of_events_fails) {
  env_["KUBELET_SOCKET"] = "";
  force("nvmlDeviceRegisterEvents", 999);
  ASSERT_TRUE(start());
  auto stub = plugin();
  Watcher watcher(loop_, *stub);
  ASSERT_TRUE(until([&] { return watcher.with("Unhealthy") == uuids_; }));
}

TEST_F(device_plugin_service, case31_waiting_fails_and_the_gpus_answer) {
  env_["KUBELET_SOCKET"] = "";
  force("nvmlEventSetWait_v2", 999);
  ASSERT_TRUE(start());
  auto stub = plugin();
  Watcher watcher(loop_, *stub);
  ASSERT_TRUE(until([&] { return !watcher.lists.empty() && service_->watching(); }));
  loop_.run_for(100ms);
  EXPECT_EQ(watcher.lists.size(), 1u);
  EXPECT_EQ(watcher.with("Healthy"), uuids_);
}

TEST_F(device_plugin_service, case32_no_driver) {
  force("nvmlInit_v2", 9);
  auto started = start();
  ASSERT_FALSE(started);
  EXPECT_NE(started.error().text().find("Driver Not Loaded"), std::string::npos) << started.error().text();

  // Tolerated: nothing is registered until the driver comes.
  kubelet_starts();
  env_["FAIL_ON_INIT_ERROR"] = "false";
  env_["DEVICE_LIST_STRATEGY"] = "cdi-cri";
  ASSERT_TRUE(start());
  loop_.run_for(20ms);
  EXPECT_TRUE(kubelet_->requests.empty());
  force("", 0);
  ASSERT_TRUE(until([&] { return kubelet_->requests.size() == 1; }));
  EXPECT_EQ(fatal_, "");
}

TEST_F(device_plugin_service, recovery_after_the_interval) {
  env_["KUBELET_SOCKET"] = "";
  env_["DP_HEALTH_RECOVERY_INTERVAL"] = "50ms";
  ASSERT_TRUE(start());
  auto stub = plugin();
  Watcher watcher(loop_, *stub);
  ASSERT_TRUE(until([&] { return service_->watching() && !watcher.lists.empty(); }));
  xid(3, 95);
  ASSERT_TRUE(until([&] { return watcher.with("Unhealthy") == std::vector<std::string>{uuids_[3]}; }));
  ASSERT_TRUE(until([&] { return watcher.with("Healthy") == uuids_; }));
}

TEST_F(device_plugin_service, a_reset_ends_the_mark_at_once) {
  env_["KUBELET_SOCKET"] = "";
  ASSERT_TRUE(start());
  auto stub = plugin();
  Watcher watcher(loop_, *stub);
  ASSERT_TRUE(until([&] { return service_->watching() && !watcher.lists.empty(); }));
  fault(1, {"lost"});
  fault(3, {"xid", "48"});
  ASSERT_TRUE(until([&] { return watcher.with("Unhealthy") == std::vector{uuids_[1], uuids_[3]}; }))
      << "one lost GPU, one with an XID, and no other";
  fault(1, {"recover"});
  ASSERT_TRUE(until([&] { return watcher.with("Unhealthy") == std::vector{uuids_[3]}; }));
  fault(3, {"recover"});
  ASSERT_TRUE(until([&] { return watcher.with("Healthy") == uuids_; }));
}

TEST_F(device_plugin_service, no_recovery_where_it_is_switched_off) {
  env_["KUBELET_SOCKET"] = "";
  env_["DP_HEALTH_RECOVERY_INTERVAL"] = "0";
  ASSERT_TRUE(start());
  auto stub = plugin();
  Watcher watcher(loop_, *stub);
  ASSERT_TRUE(until([&] { return service_->watching() && !watcher.lists.empty(); }));
  fault(3, {"xid", "48"});
  ASSERT_TRUE(until([&] { return watcher.with("Unhealthy") == std::vector{uuids_[3]}; }));
  fault(3, {"recover"});
  fault(2, {"xid", "48"});
  ASSERT_TRUE(until([&] { return watcher.with("Unhealthy") == std::vector{uuids_[2], uuids_[3]}; }));
  fault(2, {"recover"});
}

// Only a GPU that answers has an event to send.
TEST_F(device_plugin_service, started_while_every_gpu_is_lost) {
  env_["DP_DEVICE_RESCAN_INTERVAL"] = "20ms";
  kubelet_starts();
  fault(-1, {"lost"});
  ASSERT_TRUE(start());
  loop_.run_for(50ms);
  EXPECT_TRUE(kubelet_->requests.empty());
  fault(2, {"recover"});
  ASSERT_TRUE(until([&] { return kubelet_->requests.size() == 1; }));
  EXPECT_TRUE(allocate(*plugin(), {uuids_[2]}));
  EXPECT_FALSE(allocate(*plugin(), {uuids_[0]}));
  fault(-1, {"recover"});
  ASSERT_TRUE(until([&] { return kubelet_->requests.size() == 2; }));
  EXPECT_TRUE(allocate(*plugin(), uuids_));
  // All are there: nothing is looked for any more.
  force("nvmlInit_v2", 999);
  loop_.run_for(50ms);
  EXPECT_EQ(kubelet_->requests.size(), 2u);
  EXPECT_EQ(fatal_, "");
}

TEST_F(device_plugin_service, reload_reads_the_configuration_anew) {
  kubelet_starts();
  ASSERT_TRUE(start(kThreeReplicas));
  ASSERT_TRUE(until([&] { return kubelet_->requests.size() == 1; }));
  ASSERT_TRUE(write_file_atomic(
      dir_.path() / "config.yaml",
      "sharing: {timeSlicing: {renameByDefault: true, resources: [{name: gpu, replicas: 2}]}}"));
  service_->reload();
  ASSERT_TRUE(until([&] { return kubelet_->requests.size() == 2; }));
  EXPECT_EQ(kubelet_->requests[1].resource_name(), "nvidia.com/gpu.shared");
  EXPECT_FALSE(file_exists(plugins() / "nvidia-gpu.sock"));
  ASSERT_TRUE(write_file_atomic(dir_.path() / "config.yaml", "version: v9"));
  service_->reload();
  EXPECT_NE(fatal_.find("unknown version: v9"), std::string::npos);
}

}  // namespace gpuop::plugin
