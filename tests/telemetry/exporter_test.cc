// The whole exporter in this process: the fake NVML, a kubelet's end of pod-resources, real scrapes.
#include "telemetry/exporter.h"

#include <gtest/gtest.h>

#include <thread>

#include "../podresources/served.h"
#include "base/http_server.h"
#include "base/loop.h"
#include "base/text.h"
#include "hardware/driver_root.h"
#include "podresources/client.h"
#include "sim/state/mig.h"
#include "tests/node_fixture.h"

namespace gpuop::telemetry {
namespace {

constexpr char kH200[] = "H200";
constexpr char kA100[] = "A100-SXM4-80GB";
constexpr const char* kDefaults = SOURCE_ROOT "/assets/metrics/dcp-metrics-included.csv";
constexpr std::uint64_t kXidEvent = 0x8;

// The kubelet's pod-resources service.
class Answers : public v1::PodResourcesLister::Service {
 public:
  grpc::Status List(grpc::ServerContext*, const v1::ListPodResourcesRequest*,
                    v1::ListPodResourcesResponse* answer) override {
    std::lock_guard lock(mutex_);
    ++calls_;
    for (const podresources::Use& device : devices_) {
      auto* pod = answer->add_pod_resources();
      pod->set_name(device.pod);
      pod->set_namespace_(device.ns);
      auto* container = pod->add_containers();
      container->set_name(device.container);
      auto* resource = container->add_devices();
      resource->set_resource_name(device.resource);
      resource->add_device_ids(device.id);
    }
    return grpc::Status::OK;
  }
  void give(std::vector<podresources::Use> devices) {
    std::lock_guard lock(mutex_);
    devices_ = std::move(devices);
  }
  int calls() {
    std::lock_guard lock(mutex_);
    return calls_;
  }

 private:
  std::mutex mutex_;
  std::vector<podresources::Use> devices_;
  int calls_ = 0;
};
using Kubelet = podresources::Served<Answers>;

template <const char* kModel>
class ExporterNode : public NodeFixture<kModel, 2> {
 protected:
  using Node = NodeFixture<kModel, 2>;

  Result<> start() {
    ExporterInputs inputs;
    inputs.options = options_;
    inputs.nvml_library = hardware::nvml_library(Node::driver());
    inputs.node_name = "n1";
    inputs.local_name = "local";
    exporter_ = std::make_unique<Exporter>(loop_, std::move(inputs),
                                           [this](const Error& error) { fatal_ = error.text(); });
    return exporter_->start();
  }
  void SetUp() override {
    Node::SetUp();
    options_.address = "127.0.0.1:0";
    options_.collectors = kDefaults;
    options_.interval_ms = 50;
    options_.kubelet_socket = dir_.path() / "kubelet.sock";
  }
  Result<HttpResponse> get(const std::string& target) {
    std::string url = "http://127.0.0.1:" + std::to_string(exporter_->port()) + target;
    std::optional<Result<HttpResponse>> answer;
    std::thread client([&] {
      auto got = http_get(url, 5s);
      loop_.post([&, got = std::move(got)]() mutable { answer = std::move(got); });
    });
    loop_.run_until([&] { return answer.has_value(); }, 10s);
    client.join();
    return answer ? std::move(*answer) : Result<HttpResponse>(fail(Code::kTimeout, "no answer"));
  }
  std::string page() {
    auto answer = get("/metrics");
    EXPECT_TRUE(answer && answer->status == 200);
    return answer ? answer->body : std::string();
  }
  // Scrapes until the page has what `done` asks for.
  std::string page_with(const std::function<bool(const std::string&)>& done) {
    std::string text;
    auto end = std::chrono::steady_clock::now() + 5s;
    do {
      text = page();
      if (done(text)) return text;
    } while (std::chrono::steady_clock::now() < end);
    ADD_FAILURE() << "the page never came: " << text;
    return text;
  }
  // Until the exporter waits for events nobody hears of them: told again until it does.
  std::string xid_on_page(std::uint32_t gpu, std::uint64_t xid) {
    return page_with([&](const std::string& t) {
      if (has(t, "err_code=\"" + std::to_string(xid) + "\"")) return true;
      Node::change([&](sim::State& state) { sim::push_event(state, gpu, kXidEvent, xid); });
      return false;
    });
  }
  static bool has(const std::string& page, std::string_view part) {
    return page.find(part) != std::string::npos;
  }
  static std::size_t count(const std::string& page, const std::string& start, std::string_view part = {}) {
    std::size_t n = 0;
    for (const std::string& line : split(page, '\n'))
      n += line.starts_with(start) && line.find(part) != std::string::npos;
    return n;
  }

  // GPU 1 in `count` instances of the profile with this number; none: MIG off.
  void partition(std::uint32_t profile_id, int count) {
    Node::change([&](sim::State& state) {
      sim::Gpu& gpu = state.gpus[1];
      for (int slot = 0; slot < sim::kMaxGis; ++slot) {
        for (int ci = 0; ci < sim::kMaxCis; ++ci) static_cast<void>(sim::destroy_ci(gpu, slot, ci));
        static_cast<void>(sim::destroy_gi(gpu, slot));
      }
      gpu.live.mig_current = gpu.live.mig_pending = count > 0;
      for (int i = 0; i < count; ++i) {
        int gi = -1, ci = -1;
        EXPECT_EQ(sim::create_gi(gpu, profile_id, sim::kNone, &gi), 0);
        const auto* profile = sim::find_gi_profile_id(gpu.board, profile_id);
        for (std::uint32_t kind = 0; kind < 9 && ci < 0; ++kind) {
          bool whole = sim::ci_slices(kind) == profile->slices && sim::ci_instances(*profile, kind) == 1;
          if (whole) static_cast<void>(sim::create_ci(state, 1, gi, kind, sim::kNone, &ci));
        }
        EXPECT_GE(ci, 0);
      }
    });
    ASSERT_TRUE(sim::make_device_nodes(Node::kernel(), Node::hardware_nodes()));
  }

  TempDir dir_;
  Loop loop_;
  Options options_;
  std::unique_ptr<Exporter> exporter_;
  std::string fatal_;
};

}  // namespace

class telemetry_exporter : public ExporterNode<kH200> {};
class telemetry_ampere : public ExporterNode<kA100> {};

TEST_F(telemetry_exporter, serves_the_default_families) {
  ASSERT_TRUE(start());
  auto health = get("/health");
  ASSERT_TRUE(health);
  EXPECT_EQ(health->status, 200);
  EXPECT_EQ(health->body, "OK");
  std::string text = page_with([](const std::string& t) { return has(t, "DCGM_FI_PROF_DRAM_ACTIVE{"); });
  EXPECT_EQ(count(text, "# TYPE "), 25u);
  EXPECT_EQ(count(text, "DCGM_FI_DEV_GPU_TEMP{"), 2u);
  EXPECT_TRUE(has(text, "DCGM_FI_DEV_FB_USED{gpu=\"0\",UUID=\"" + uuids_[0] + "\",pci_bus_id=\"0000"));
  EXPECT_TRUE(has(text,
                  "device=\"nvidia0\",modelName=\"NVIDIA H200\",hostname=\"local\","
                  "DCGM_FI_DRIVER_VERSION=\"580.82.07\"} "))
      << text;
  EXPECT_EQ(get("/nothing")->status, 404);
}

TEST_F(telemetry_exporter, case17_pods_by_uuid) {
  options_.kubernetes = true;
  Kubelet kubelet(options_.kubelet_socket);
  kubelet.give({{"ml", "llm-0", "train", "nvidia.com/gpu", uuids_[0]}});
  ASSERT_TRUE(start());
  std::string text = page_with([](const std::string& t) { return has(t, "DCGM_FI_PROF_DRAM_ACTIVE{"); });
  const std::string labels = "container=\"train\",namespace=\"ml\",pod=\"llm-0\"";
  EXPECT_EQ(count(text, "DCGM_FI_", labels), 24u);  // all but the XIDs, whose labels sort between
  EXPECT_EQ(
      count(text, "DCGM_FI_DEV_XID_ERRORS{gpu=\"0\"",
            "container=\"train\",err_code=\"0\",err_msg=\"No Error\",namespace=\"ml\",pod=\"llm-0\"} 0"),
      1u);
  EXPECT_EQ(count(text, "DCGM_FI_", "gpu=\"1\""), 25u);
  EXPECT_EQ(count(text, "DCGM_FI_", "pod="), 25u);
  EXPECT_TRUE(has(text, "hostname=\"n1\""));
  // One call a second, however often it is scraped.
  int before = kubelet.calls();
  page();
  page();
  EXPECT_LE(kubelet.calls() - before, 1);
}

TEST_F(telemetry_exporter, case23_no_kubelet_socket) {
  options_.kubernetes = true;
  ASSERT_TRUE(start());
  std::string text = page_with([](const std::string& t) { return has(t, "DCGM_FI_DEV_GPU_TEMP{"); });
  EXPECT_FALSE(has(text, "pod="));
}

TEST_F(telemetry_exporter, latest_xid_of_the_event) {
  ASSERT_TRUE(start());
  page_with([](const std::string& t) { return has(t, "DCGM_FI_DEV_XID_ERRORS{"); });
  std::string text = xid_on_page(1, 79);
  EXPECT_EQ(count(text, "DCGM_FI_DEV_XID_ERRORS{gpu=\"1\"",
                  "err_code=\"79\",err_msg=\"GPU has fallen off the bus\"} 79"),
            1u);
  EXPECT_EQ(count(text, "DCGM_FI_DEV_XID_ERRORS{gpu=\"0\"", "} 0"), 1u);
}

TEST_F(telemetry_exporter, lost_gpu_keeps_its_xid) {
  ASSERT_TRUE(start());
  xid_on_page(1, 79);
  change([](sim::State& state) { state.gpus[1].live.lost = 1; });
  std::string text = page_with([](const std::string& t) {
    return has(t, "err_code=\"79\"") && count(t, "DCGM_FI_DEV_GPU_TEMP{") == 1;
  });
  EXPECT_EQ(count(text, "DCGM_FI_DEV_GPU_TEMP{gpu=\"0\""), 1u);
  EXPECT_EQ(count(text, "DCGM_FI_DEV_XID_ERRORS{gpu=\"1\"", "} 79"), 1u);
  // It comes back after a reset, and its latest XID is none.
  change([](sim::State& state) { state.gpus[1].live.lost = 0; });
  page_with([](const std::string& t) { return count(t, "DCGM_FI_DEV_XID_ERRORS{gpu=\"1\"", "} 0") == 1; });
}

TEST_F(telemetry_exporter, case15_missing_gpu_is_fatal_at_start) {
  options_.devices = "g:9";
  options_.selector = *parse_selector("g:9");
  ASSERT_TRUE(start());
  ASSERT_TRUE(loop_.run_until([&] { return !fatal_.empty(); }, 5s));
  EXPECT_TRUE(has(fatal_, "couldn't find requested GPU ID '9'")) << fatal_;
}

TEST_F(telemetry_exporter, case31_broken_collectors_keep_the_old_ones) {
  const fs::path file = dir_.path() / "metrics.csv";
  const std::string good = "DCGM_FI_DEV_GPU_TEMP, gauge, t\nDCGM_FI_PROF_DRAM_ACTIVE, gauge, d\n";
  ASSERT_TRUE(write_file_atomic(file, good));
  options_.collectors = file;
  ASSERT_TRUE(start());
  page_with([](const std::string& t) { return has(t, "DCGM_FI_PROF_DRAM_ACTIVE{"); });
  ASSERT_TRUE(write_file_atomic(file, "DCGM_FI_DEV_GPU_TEMP, gauge\n"));
  exporter_->reload();
  EXPECT_TRUE(has(page(), "DCGM_FI_PROF_DRAM_ACTIVE{"));
  EXPECT_EQ(get("/health")->headers["X-Reload-Failed"], "true");
  EXPECT_EQ(get("/health")->status, 200);
  ASSERT_TRUE(write_file_atomic(file, good + "DCGM_FI_DEV_POWER_USAGE, gauge, p\n"));
  exporter_->reload();
  std::string text = page_with([](const std::string& t) { return has(t, "DCGM_FI_DEV_POWER_USAGE{"); });
  EXPECT_TRUE(has(text, "DCGM_FI_PROF_DRAM_ACTIVE{"));
  EXPECT_EQ(get("/health")->headers.count("X-Reload-Failed"), 0u);
}

TEST_F(telemetry_exporter, case32_configmap_volume_swap) {
  ASSERT_TRUE(make_dirs(dir_.path() / "v1") && make_dirs(dir_.path() / "v2") && make_dirs(dir_.path() / "m"));
  ASSERT_TRUE(write_file_atomic(dir_.path() / "v1/metrics.csv", "DCGM_FI_DEV_GPU_TEMP, gauge, t\n"));
  ASSERT_TRUE(write_file_atomic(dir_.path() / "v2/metrics.csv", "DCGM_FI_DEV_POWER_USAGE, gauge, p\n"));
  ASSERT_TRUE(make_symlink_atomic(dir_.path() / "v1", dir_.path() / "m/..data"));
  ASSERT_TRUE(make_symlink_atomic("..data/metrics.csv", dir_.path() / "m/metrics.csv"));
  options_.collectors = dir_.path() / "m/metrics.csv";
  ASSERT_TRUE(start());
  page_with([](const std::string& t) { return has(t, "DCGM_FI_DEV_GPU_TEMP{"); });
  ASSERT_TRUE(make_symlink_atomic(dir_.path() / "v2", dir_.path() / "m/..data"));
  std::string text = page_with([](const std::string& t) { return has(t, "DCGM_FI_DEV_POWER_USAGE{"); });
  EXPECT_FALSE(has(text, "DCGM_FI_DEV_GPU_TEMP"));
}

TEST_F(telemetry_exporter, case35_users_and_tls) {
  options_.web_config_file = dir_.path() / "web.yml";
  const char* users =
      "basic_auth_users: {alice: $2y$04$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW}\n"
      "http_server_config: {headers: {X-Frame-Options: deny}}\n";
  ASSERT_TRUE(write_file_atomic(options_.web_config_file, users));
  ASSERT_TRUE(start());
  auto refused = get("/health");
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->status, 401);
  EXPECT_TRUE(refused->headers["WWW-Authenticate"].starts_with("Basic"));
  EXPECT_EQ(refused->headers["X-Frame-Options"], "deny");
  // A broken file changes nothing; a good one counts at once.
  ASSERT_TRUE(write_file_atomic(options_.web_config_file, "basic_auth_usrs: {}\n"));
  EXPECT_EQ(get("/health")->status, 401);
  ASSERT_TRUE(write_file_atomic(options_.web_config_file, "rate_limit: {interval: 0s}\n"));
  EXPECT_EQ(get("/health")->status, 200);

  ASSERT_TRUE(write_file_atomic(options_.web_config_file,
                                "tls_server_config: {cert_file: " SOURCE_ROOT "/tests/kube/data/server.crt, "
                                "key_file: " SOURCE_ROOT "/tests/kube/data/server.key}\n"));
  ASSERT_TRUE(start());
  auto plain = get("/health");
  ASSERT_TRUE(plain) << plain.error().text();
  EXPECT_EQ(plain->status, 400);
  ASSERT_TRUE(write_file_atomic(options_.web_config_file, "tls_server_cfg: {}\n"));
  EXPECT_FALSE(start());
}

TEST_F(telemetry_exporter, case30_health_of_a_reload) {
  ASSERT_TRUE(start());
  page_with([](const std::string& t) { return has(t, "DCGM_FI_DEV_GPU_TEMP{"); });
  exporter_->reload();
  auto health = get("/health");  // the reading that ends the reload may be done by now
  EXPECT_EQ(health->status, 200);
  EXPECT_EQ(health->headers["X-Registry-Available"], "true");
  auto verbose = get("/health?verbose");
  EXPECT_TRUE(has(verbose->body, "\"backend\":\"nvml\"") && has(verbose->body, "\"gpus\":2"))
      << verbose->body;
}

TEST_F(telemetry_exporter, case33_repartitioned_while_running) {
  partition(19, 7);  // 1g.18gb
  ASSERT_TRUE(start());
  std::string text = page_with([](const std::string& t) { return has(t, "DCGM_FI_PROF_DRAM_ACTIVE{"); });
  EXPECT_EQ(count(text, "DCGM_FI_DEV_FB_USED{gpu=\"0\""), 1u);
  EXPECT_EQ(count(text, "DCGM_FI_DEV_FB_USED{gpu=\"1\"", "GPU_I_PROFILE=\"1g.18gb\",GPU_I_ID=\""), 7u);
  EXPECT_EQ(count(text, "DCGM_FI_DEV_GPU_UTIL{"), 1u);
  EXPECT_EQ(count(text, "DCGM_FI_DEV_GPU_TEMP{"), 8u);
  EXPECT_EQ(count(text, "DCGM_FI_PROF_DRAM_ACTIVE{"), 8u);
  EXPECT_EQ(count(text, "DCGM_FI_PROF_PCIE_TX_BYTES{"), 1u);  // of a GPU only
  EXPECT_EQ(count(text, "DCGM_FI_", "GPU_I_ID"), 7u * 19);
  partition(14, 3);  // 2g.35gb
  text = page_with([](const std::string& t) { return count(t, "DCGM_FI_DEV_FB_USED{gpu=\"1\"") == 3; });
  EXPECT_EQ(count(text, "DCGM_FI_DEV_FB_USED{", "GPU_I_PROFILE=\"2g.35gb\""), 3u);
  partition(0, 0);
  text = page_with([](const std::string& t) { return count(t, "DCGM_FI_DEV_GPU_UTIL{") == 2; });
  EXPECT_FALSE(has(text, "GPU_I_ID"));
}

TEST_F(telemetry_exporter, own_families_of_the_node) {
  const fs::path file = dir_.path() / "metrics.csv";
  ASSERT_TRUE(write_file_atomic(file,
                                "DCGM_EXP_GPU_HEALTH_STATUS, gauge, h\nDCGM_EXP_P2P_STATUS, gauge, p\n"
                                "DCGM_EXP_CLOCK_EVENTS_COUNT, counter, c\n"
                                "DCGM_EXP_XID_ERRORS_COUNT, gauge, x\n"));
  options_.collectors = file;
  options_.devices = "g:0";
  options_.selector = *parse_selector("g:0");
  change([](sim::State& state) { state.gpus[0].live.ecc_dbe_volatile = 1; });
  ASSERT_TRUE(start());
  std::string text = page_with([](const std::string& t) { return has(t, "HEALTH_STATUS{"); });
  EXPECT_EQ(count(text, "DCGM_EXP_GPU_HEALTH_STATUS{"), 22u) << text;
  EXPECT_EQ(count(text, "DCGM_EXP_GPU_HEALTH_STATUS{gpu=\"0\"",
                  "health_error_code=\"DCGM_FR_VOLATILE_DBE_DETECTED\",health_watch=\"MEM\"} 20"),
            1u);
  EXPECT_EQ(count(text, "DCGM_EXP_GPU_HEALTH_STATUS{", "DCGM_FR_OK\",health_watch=\"PMU\"} 0"), 2u);
  EXPECT_EQ(count(text, "DCGM_EXP_P2P_STATUS{", "peer_gpu"), 2u);
  EXPECT_EQ(count(text, "DCGM_EXP_XID_ERRORS_COUNT{gpu=\"0\"", "window_size_in_ms=\"300000\"} 0"), 1u);
  EXPECT_EQ(count(text, "DCGM_EXP_CLOCK_EVENTS_COUNT{", "clock_event=\"gpu_idle\""), 1u);
  change([](sim::State& state) { state.gpus[0].live.ecc_dbe_volatile = 0; });
}

TEST_F(telemetry_exporter, every_field_can_be_asked_for) {
  std::string all;
  for (const Field& field : fields())
    all += field.name + (field.type == Type::kText ? ", label, l\n" : ", gauge, g\n");
  const fs::path file = dir_.path() / "all.csv";
  ASSERT_TRUE(write_file_atomic(file, all));
  options_.collectors = file;
  ASSERT_TRUE(start());
  std::string text = page_with([](const std::string& t) { return has(t, "DCGM_FI_PROF_DRAM_ACTIVE{"); });
  for (const char* name :
       {"DEV_BAR1_TOTAL", "DEV_POWER_MGMT_LIMIT_MAX", "DEV_GPU_TEMP_LIMIT", "DEV_FB_USED_PERCENT",
        "DEV_ECC_SBE_VOL_DEV", "DEV_BANKS_REMAP_ROWS_AVAIL_MAX", "DEV_NVLINK_TX_BANDWIDTH_L0",
        "PROF_NVLINK_L0_RX_BYTES", "DEV_MIG_MODE", "DEV_PSTATE", "DEV_GET_GPU_RECOVERY_ACTION",
        "DEV_MINOR_NUMBER", "CUDA_DRIVER_VERSION", "DEV_ECC_CURRENT"})
    EXPECT_EQ(count(text, std::string("DCGM_FI_") + name + "{"), 2u) << name;
  EXPECT_FALSE(has(text, "DCGM_FI_DEV_PCIE_TX_THROUGHPUT"));
  EXPECT_TRUE(has(text, "DCGM_FI_DEV_BRAND=\""));
}

TEST_F(telemetry_exporter, case41_lets_go_of_the_driver) {
  ASSERT_TRUE(start());
  page_with([](const std::string& t) { return has(t, "DCGM_FI_DEV_GPU_TEMP{"); });
  EXPECT_TRUE(exporter_->close(5s));
}

TEST_F(telemetry_ampere, case08_no_profiling_before_hopper) {
  ASSERT_TRUE(start());
  std::string text = page_with([](const std::string& t) { return has(t, "DCGM_FI_DEV_GPU_TEMP{"); });
  EXPECT_EQ(count(text, "# TYPE "), 20u);
  EXPECT_FALSE(has(text, "DCGM_FI_PROF_"));
}

}  // namespace gpuop::telemetry
