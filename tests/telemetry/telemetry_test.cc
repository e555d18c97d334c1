// The exporter's pure parts, by the acceptance cases of telemetry.md §10.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/files.h"
#include "base/text.h"
#include "telemetry/counters.h"
#include "telemetry/jobs.h"
#include "telemetry/options.h"
#include "telemetry/own_families.h"
#include "telemetry/page.h"
#include "telemetry/pod_watch.h"
#include "telemetry/read_health.h"
#include "telemetry/reader.h"
#include "telemetry/selector.h"
#include "telemetry/web_config.h"

namespace gpuop::telemetry {
namespace {

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

std::string counters_error(std::string_view text) {
  auto set = parse_counters(text, "m.csv");
  return set ? "" : set.error().text();
}

std::string options_error(const std::vector<std::string>& arguments, const Environment& environment = {}) {
  auto options = parse_options(arguments, environment);
  return options ? "" : options.error().text();
}

std::string selector_error(std::string_view text) {
  auto selector = parse_selector(text);
  return selector ? "" : selector.error().text();
}

std::string config_error(std::string_view text) {
  Options options;
  auto applied = apply_config_file(text, "c.yaml", {}, options);
  return applied ? "" : applied.error().text();
}

std::vector<GpuFacts> four_gpus() {
  std::vector<GpuFacts> gpus(4);
  for (unsigned i = 0; i < 4; ++i) {
    gpus[i].index = gpus[i].minor = i;
    gpus[i].uuid = "GPU-" + std::to_string(i);
  }
  return gpus;
}

using Keys = std::vector<EntityKey>;

}  // namespace

TEST(telemetry, case01_version) {
  EXPECT_TRUE(parse_options({"--version"}, {})->version);
  EXPECT_TRUE(has(help_text(), "--collectors, -f"));
}

TEST(telemetry, case02_dcgm_log_level) {
  std::string error = options_error({"--dcgm-log-level=verbose"});
  EXPECT_TRUE(has(error, "dcgm-log-level") && has(error, "verbose")) << error;
}

TEST(telemetry, case03_columns_are_trimmed) {
  auto set = parse_counters(" DCGM_FI_DEV_GPU_TEMP , gauge , Temp\r\n", "m.csv");
  ASSERT_TRUE(set) << set.error().text();
  ASSERT_EQ(set->families.size(), 1u);
  EXPECT_EQ(set->families[0].name, "DCGM_FI_DEV_GPU_TEMP");
  EXPECT_EQ(set->families[0].id, 150);
  EXPECT_EQ(set->families[0].kind, Kind::kGauge);
  EXPECT_EQ(set->families[0].help, "Temp");
}

TEST(telemetry, case04_three_columns) {
  std::string error = counters_error("DCGM_FI_DEV_GPU_TEMP, gauge");
  EXPECT_TRUE(has(error, "m.csv") && has(error, "line 1") && has(error, "3 fields expected")) << error;
  EXPECT_TRUE(has(counters_error("\n# c\nDCGM_FI_DEV_GPU_TEMP, gauge, a, b"), "line 3"));
}

TEST(telemetry, case05_unsupported_type) {
  EXPECT_TRUE(has(counters_error("DCGM_FI_DEV_GPU_TEMP, histogram, x"),
                  "unsupported Prometheus metric type \"histogram\"; supported types are counter, gauge, "
                  "untyped, and label"));
}

TEST(telemetry, case06_ecc_errors_is_no_field) {
  std::string error = counters_error("DCGM_FI_DEV_ECC_ERRORS, counter, x");
  EXPECT_TRUE(has(error, "unknown ExporterCounter field 'DCGM_FI_DEV_ECC_ERRORS'")) << error;
  for (const char* name : {"SBE_VOL", "DBE_VOL", "SBE_AGG", "DBE_AGG"})
    EXPECT_TRUE(has(error, std::string("DCGM_FI_DEV_ECC_") + name + "_TOTAL")) << error;
  EXPECT_TRUE(has(counters_error("DCGM_FI_DEV_GPU_TMP, gauge, x"), "DCGM_FI_DEV_GPU_TEMP"));
}

TEST(telemetry, case07_indented_comment) {
  auto set = parse_counters("   # note\nDCGM_FI_DEV_GPU_TEMP, gauge, t\n", "m.csv");
  ASSERT_TRUE(set);
  EXPECT_EQ(set->families.size(), 1u);
}

TEST(telemetry, collectors_with_quotes_duplicates_and_nothing) {
  auto set = parse_counters(
      "DCGM_FI_DEV_GPU_TEMP, gauge, \"a, \"\"b\"\"\"\nDCGM_FI_DEV_GPU_TEMP, counter, again\n", "m.csv");
  ASSERT_TRUE(set);
  ASSERT_EQ(set->families.size(), 1u);
  EXPECT_EQ(set->families[0].help, "a, \"b\"");
  EXPECT_EQ(set->warnings.size(), 1u);
  EXPECT_TRUE(has(counters_error("# nothing\n"), "names no metric"));
  EXPECT_TRUE(has(counters_error("DCGM_FI_DEV_GPU_TEMP, gauge, \"open"), "line 1"));
  EXPECT_TRUE(has(counters_error("DCGM_EXP_XID_ERRORS_COUNT, label, x"), "line 1"));
}

TEST(telemetry, case08_shipped_sets) {
  for (const char* name : {"default-counters.csv", "dcp-metrics-included.csv"}) {
    auto text = read_file(fs::path(SOURCE_ROOT "/assets/metrics") / name);
    ASSERT_TRUE(text);
    auto set = parse_counters(*text, name);
    ASSERT_TRUE(set) << set.error().text();
    EXPECT_EQ(set->families.size(), 25u);
    EXPECT_EQ(set->labels.size(), 1u);
    EXPECT_TRUE(set->warnings.empty());
    EXPECT_EQ(drop_profiling(*set).size(), 5u);
    EXPECT_EQ(set->families.size(), 20u);
    // What is shipped as a comment is right when its '#' goes.
    std::string all;
    for (std::size_t i = 0; i < text->size(); ++i)
      if (!text->substr(i).starts_with("# DCGM_") || (i > 0 && (*text)[i - 1] != '\n'))
        all += (*text)[i];
      else
        ++i;
    auto whole = parse_counters(all, name);
    ASSERT_TRUE(whole) << whole.error().text();
    EXPECT_GT(whole->families.size(), 50u);
  }
  auto text = read_file(SOURCE_ROOT "/assets/metrics/1.x-compatibility-metrics.csv");
  auto set = parse_counters(*text, "1.x");
  ASSERT_TRUE(set) << set.error().text();
  EXPECT_EQ(set->families.size(), 41u);
}

TEST(telemetry, every_field_has_one_number_and_one_name) {
  int before = -1;
  for (const Field& field : fields()) {
    EXPECT_NE(field.id, before) << field.name;
    before = field.id;
    EXPECT_EQ(field_id(field.name), field.id);
    EXPECT_EQ(field_by_id(field.id), &field);
  }
  EXPECT_EQ(field_id("DCGM_FI_DEV_NVLINK_BANDWIDTH_L17"), 496);
  EXPECT_EQ(field_id("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS"), 112);
  EXPECT_EQ(field_id("dcgm_nvlink_bandwidth_total"), 449);
  EXPECT_EQ(field_id("DCGM_FI_PROF_TENSOR_UTIL_RATIO"), 1004);
  EXPECT_EQ(field_id("DCGM_FI_DEV_ECC_DBE_AGG_SRM"), 345);
  EXPECT_EQ(field_id("DCGM_FI_NOTHING"), std::nullopt);
}

TEST(telemetry, case09_power) {
  EXPECT_EQ(format_value(scaled(123456, Type::kDouble, Scale::kMilli)), "123.456000");
  EXPECT_EQ(format_value(scaled(700500, Type::kDouble, Scale::kMilliWhole)), "700.000000");
  EXPECT_EQ(scaled(201, Type::kInt, Scale::kTemperature), Value{});
  EXPECT_EQ(scaled(200, Type::kInt, Scale::kTemperature), Value(std::int64_t{200}));
}

TEST(telemetry, case11_link_rate) {
  EXPECT_EQ(link_rate(std::nullopt, 1'000'000, 30s), 0);
  EXPECT_EQ(link_rate(1'000'000, 31'000'000, 30s), 1000);
  EXPECT_EQ(link_rate(5, 4, 30s), 0);  // the driver was reloaded
  EXPECT_EQ(link_rate(1, 2, 0s), 0);
}

TEST(telemetry, case12_gpm) {
  EXPECT_EQ(scaled_share(2.5, Type::kInt, Scale::kMebi), Value(std::int64_t{2621440}));
  EXPECT_EQ(format_value(scaled_share(87.3401, Type::kDouble, Scale::kPercent)), "0.873401");
  EXPECT_EQ(scaled_share(std::nan(""), Type::kDouble, Scale::kPercent), Value{});
  EXPECT_EQ(scaled_share(1e300, Type::kInt, Scale::kMebi), Value{});
}

TEST(telemetry, case13_blanks) {
  EXPECT_TRUE(is_blank(Value(std::numeric_limits<std::int64_t>::max())));
  EXPECT_TRUE(is_blank(Value(std::int64_t{0x7ffffff0})));
  EXPECT_FALSE(is_blank(Value(std::int64_t{0x7ffffff4})));
  EXPECT_TRUE(is_blank(Value(140737488355330.0)));
  EXPECT_TRUE(is_blank(Value(std::numeric_limits<double>::infinity())));
  EXPECT_TRUE(is_blank(Value(std::string("<<<NULL>>>"))));
  EXPECT_FALSE(is_blank(Value(std::string("<<<"))));
  EXPECT_TRUE(is_blank(Value(std::string())));
}

TEST(telemetry, case15_selectors) {
  auto gpus = four_gpus();
  gpus[1].instances = {{1, 8, "3g.40gb"}, {2, 9, "3g.40gb"}};
  auto chosen = [&](const char* text) { return select(*parse_selector(text), gpus); };
  EXPECT_EQ(chosen("g:0,2-3").entities, (Keys{{0, {}}, {2, {}}, {3, {}}}));
  EXPECT_EQ(chosen("f").entities, (Keys{{0, {}}, {1, 1}, {1, 2}, {2, {}}, {3, {}}}));
  EXPECT_EQ(chosen("g").entities.size(), 4u);
  EXPECT_EQ(chosen("i").entities, (Keys{{1, 1}, {1, 2}}));
  EXPECT_EQ(chosen("i:9").entities, (Keys{{1, 2}}));
  EXPECT_EQ(chosen("g+i").entities.size(), 6u);
  EXPECT_EQ(chosen("g:9").missing, std::vector<std::string>{"couldn't find requested GPU ID '9'"});
  EXPECT_EQ(chosen("i:0").missing, std::vector<std::string>{"couldn't find requested GPU instance ID '0'"});
  EXPECT_TRUE(has(selector_error("f:0"), "no range can be given with flex"));
  EXPECT_TRUE(has(selector_error("f+g"), "flex"));
  EXPECT_TRUE(has(selector_error("g:3-1"), "start exceeds its end"));
  EXPECT_TRUE(has(selector_error("x"), "'x'"));
  for (const char* wrong :
       {"", "g+", "g:", "g:1:2", "g+g", "g:0-1024", "g:-1", "g:a", "g:1,,2", "g:0-99999999"})
    EXPECT_FALSE(parse_selector(wrong)) << wrong;
}

TEST(telemetry, case19_device_ids) {
  using Kind = DeviceId::Kind;
  auto parsed = [](const char* id) { return parse_device_id(id).value_or(DeviceId{}); };
  EXPECT_EQ(parsed("GPU-a"), (DeviceId{Kind::kUuid, "GPU-a", 0, {}, ""}));
  EXPECT_EQ(parsed("GPU-a::3"), (DeviceId{Kind::kUuid, "GPU-a", 0, {}, "3"}));
  EXPECT_EQ(parsed("MIG-b::7"), (DeviceId{Kind::kMigUuid, "MIG-b", 0, {}, "7"}));
  EXPECT_EQ(parsed("MIG-GPU-c/5/0"), (DeviceId{Kind::kUuid, "GPU-c", 0, 5, ""}));
  EXPECT_EQ(parsed("nvidia3"), (DeviceId{Kind::kMinor, "", 3, {}, ""}));
  EXPECT_EQ(parsed("nvidia0/vgpu2"), (DeviceId{Kind::kMinor, "", 0, {}, "2"}));
  EXPECT_EQ(parsed("nvidia0/gi3"), (DeviceId{Kind::kMinor, "", 0, 3, ""}));
  EXPECT_EQ(parsed("nvidia0/gi3/vgpu1"), (DeviceId{Kind::kMinor, "", 0, 3, "1"}));
  EXPECT_EQ(parsed("2"), (DeviceId{Kind::kIndex, "", 2, {}, ""}));
  EXPECT_TRUE(has(parse_device_id("MIG-GPU-c/x/0").error().text(),
                  "invalid GPU instance ID 'x' for MIG device 'MIG-GPU-c/x/0'"));
  EXPECT_TRUE(has(parse_device_id("MIG-GPU-c/1").error().text(), "invalid MIG device UUID 'MIG-GPU-c/1'"));
  for (const char* wrong : {"", "foo", "nvidia", "nvidia0/x", "nvidia0/vgpu1/gi2", "nvidia-1", "::1", "-1"})
    EXPECT_FALSE(parse_device_id(wrong)) << wrong;
  EXPECT_EQ(pod_uid_of("0::/kubepods/burstable/pod0f7aa2b1_9d6c_4b1e_8f3a_1c2d3e4f5a6b.slice/cri-1"),
            "0f7aa2b1-9d6c-4b1e-8f3a-1c2d3e4f5a6b");
  EXPECT_EQ(pod_uid_of("0::/system.slice/podman.service"), "");
}

TEST(telemetry, case22_label_filter) {
  auto filter = LabelFilter::create({"^app"});
  ASSERT_TRUE(filter);
  EXPECT_TRUE(filter->keeps("app.kubernetes.io/name"));
  EXPECT_FALSE(filter->keeps("gpu"));
  auto some = LabelFilter::create({"(", "pp"});
  ASSERT_TRUE(some);
  EXPECT_TRUE(some->keeps("app"));
  EXPECT_FALSE(some->keeps("gpu"));
  EXPECT_FALSE(LabelFilter::create({"("}));
  EXPECT_TRUE(LabelFilter().keeps("anything"));
}

TEST(telemetry, case24_job_files) {
  EXPECT_EQ(job_file_entity("0"), (EntityKey{0, {}}));
  EXPECT_EQ(job_file_entity("1.5"), (EntityKey{1, 5}));
  for (const char* wrong : {"x.txt", "", "1.", ".5", "1.5.6", "-1", "0x1"})
    EXPECT_EQ(job_file_entity(wrong), std::nullopt) << wrong;
  EXPECT_EQ(parse_jobs(" a \n\nb\r\na\n"), (std::vector<std::string>{"a", "b"}));
  TempDir dir;
  ASSERT_TRUE(write_file_atomic(dir.path() / "0", "jobA\njobB\n"));
  ASSERT_TRUE(write_file_atomic(dir.path() / "1", ""));
  ASSERT_TRUE(write_file_atomic(dir.path() / "x.txt", "no"));
  ASSERT_TRUE(make_dirs(dir.path() / "2"));
  EXPECT_EQ(*read_jobs(dir.path()), (Jobs{{{0, {}}, {"jobA", "jobB"}}}));
  EXPECT_EQ(read_jobs(dir.path() / "absent").error().code(), Code::kNotFound);
}

TEST(telemetry, case25_wrong_utf8) {
  EXPECT_EQ(escape_label("a\"b\\c\nd"), "a\\\"b\\\\c\\nd");
  EXPECT_EQ(escape_label("\xC3\xA9\xFFx\xC3"), "\xC3\xA9\xEF\xBF\xBDx\xEF\xBF\xBD");
  EXPECT_EQ(escape_label("\xED\xA0\x80"), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");  // a surrogate
}

TEST(telemetry, case26_host_label) {
  auto host = [](const std::vector<std::string>& arguments, const char* node) {
    return host_label_value(*parse_options(arguments, {}), node, "local");
  };
  EXPECT_EQ(host({"-k"}, "n1"), "n1");
  EXPECT_EQ(host({"-k"}, ""), "local");
  EXPECT_EQ(host({}, "n1"), "local");
  EXPECT_EQ(host({"-r", "localhost:5556"}, "n1"), "local");
  EXPECT_EQ(host({"-r", "[2001:db8::5]:5555"}, ""), "2001:db8::5");
  EXPECT_EQ(host({"-r", "tcp://gpu7:5555"}, ""), "gpu7");
  EXPECT_EQ(host({"-r", "unix:///run/x"}, ""), "local");
  EXPECT_EQ(host({"-r", "127.0.0.1:5555"}, ""), "local");
  EXPECT_EQ(host({"-n", "-k"}, "n1"), "");
  EXPECT_EQ(parse_options({"--hostname-label=Hostname"}, {})->host_label, "Hostname");
}

TEST(telemetry, case29_health) {
  HealthFacts facts;
  facts.double_bit_volatile = 1;
  auto verdicts = judge_health(facts, nullptr, 0s, {});
  EXPECT_EQ(verdicts["MEM"].state, 20);
  EXPECT_EQ(health_error_text(verdicts["MEM"].code), "DCGM_FR_VOLATILE_DBE_DETECTED");
  for (const std::string& watch : health_watches()) {
    if (watch == "MEM") continue;
    EXPECT_EQ(verdicts[watch].state, 0) << watch;
    EXPECT_EQ(health_error_text(verdicts[watch].code), "DCGM_FR_OK");
  }
  EXPECT_EQ(health_watches().size(), 11u);
}

TEST(telemetry, case29b_other_watches) {
  HealthFacts before, now;
  before.pcie_replays = 0;
  now.pcie_replays = 100;  // in a minute; 0.96 × 16 lanes allowed
  now.pcie_gen = 4;
  now.pcie_width = 16;
  before.thermal_violation_ns = 0;
  now.thermal_violation_ns = 5;
  before.crc_errors = 0;
  now.crc_errors = 60;
  now.recovery_action = 1;
  now.inforom_valid = false;
  auto verdicts = judge_health(now, &before, 60s, {{79, 1}, {31, 2}});
  EXPECT_EQ(health_error_text(verdicts["PCIE"].code), "DCGM_FR_PCI_REPLAY_RATE");
  EXPECT_EQ(verdicts["THERMAL"].state, 10);
  EXPECT_EQ(health_error_text(verdicts["THERMAL"].code), "DCGM_FR_CLOCK_THROTTLE_THERMAL");
  EXPECT_EQ(verdicts["NVLINK"].state, 10);
  EXPECT_EQ(health_error_text(verdicts["DRIVER"].code), "DCGM_FR_GPU_RECOVERY_RESET");
  EXPECT_EQ(health_error_text(verdicts["INFOROM"].code), "DCGM_FR_CORRUPT_INFOROM");
  EXPECT_EQ(health_error_text(verdicts["ALL"].code), "DCGM_FR_FALLEN_OFF_BUS");
  EXPECT_EQ(verdicts["ALL"].state, 20);
  EXPECT_EQ(verdicts["MEM"].state, 10);
  now.crc_errors = 60000;
  now.pcie_replays = 10;
  now.links_down = {3};
  verdicts = judge_health(now, &before, 60s, {});
  EXPECT_EQ(verdicts["NVLINK"].state, 20);
  EXPECT_EQ(verdicts["PCIE"].state, 0);
  EXPECT_EQ(health_error_text(424242), "DCGM_FR_UNKNOWN(424242)");
}

TEST(telemetry, case35_web_configuration) {
  auto error = [](const char* text) {
    auto config = parse_web_config(text, "w.yml");
    return config ? "" : config.error().text();
  };
  EXPECT_EQ(error(""), "");
  EXPECT_TRUE(has(error("tls_server_cofig: {}"), "did you mean 'tls_server_config'"));
  EXPECT_TRUE(has(error("tls_server_config: {cert_file: a}"), "belong together"));
  EXPECT_TRUE(
      has(error("tls_server_config: {cert_file: a, key_file: b, client_auth_type: RequireAnyClientCert}"),
          "not offered"));
  EXPECT_TRUE(has(error("tls_server_config: {cert_file: a, key_file: b, client_auth_type: "
                        "RequireAndVerifyClientCert}"),
                  "needs client_ca"));
  EXPECT_TRUE(has(error("basic_auth_users: {alice: plain}"), "bcrypt"));
  auto config = parse_web_config(
      "basic_auth_users:\n  alice: "
      "$2y$04$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW\n"
      "rate_limit: {interval: 1s, burst: 2}\n",
      "w.yml");
  ASSERT_TRUE(config) << config.error().text();
  RateLimit rate;
  EXPECT_TRUE(rate.allow(*config, 10s) && rate.allow(*config, 10s));
  EXPECT_FALSE(rate.allow(*config, 10s));
  EXPECT_TRUE(rate.allow(*config, 11s));
  HttpRequest request;
  std::map<std::string, bool> seen;
  EXPECT_FALSE(authorized(*config, request, seen));
  request.headers["Authorization"] = "Basic " + base64_encode("alice:wrong");
  EXPECT_FALSE(authorized(*config, request, seen));
  request.headers["Authorization"] = "Basic " + base64_encode("bob:secret");
  EXPECT_FALSE(authorized(*config, request, seen));
  request.headers["Authorization"] = "Basic " + base64_encode("alice:secret");
  EXPECT_TRUE(authorized(*config, request, seen));
  EXPECT_TRUE(authorized(*config, request, seen));  // this time remembered
  EXPECT_EQ(seen.size(), 1u);
  request.headers["Authorization"] = "Basic !";
  EXPECT_FALSE(authorized(*config, request, seen));
}

TEST(telemetry, case36_configuration_file) {
  EXPECT_TRUE(has(config_error("version: 2\n"), "version must be 1"));
  EXPECT_TRUE(has(config_error("version: 1\nmetrics: {file: a, fields: [{name: x}]}\n"),
                  "exactly one of file or fields"));
  EXPECT_TRUE(has(config_error("version: 1\ncollection: {interval: 1500us}\n"), "whole milliseconds"));
  EXPECT_TRUE(has(config_error("version: 1\nmetrcs: {}\n"), "line 2"));
  EXPECT_TRUE(has(config_error("version: 1\nversion: 1\n"), "twice"));
  EXPECT_FALSE(config_error("version: 1\n---\nversion: 1\n").empty());
  Options options;
  ASSERT_TRUE(
      apply_config_file("version: 1\nmetrics:\n  fields:\n  - {name: DCGM_FI_DEV_GPU_TEMP, "
                        "prometheusType: gauge, help: t}\ncollection: {interval: 5s}\n",
                        "c.yaml", {}, options));
  EXPECT_EQ(options.interval_ms, 5000);
  ASSERT_TRUE(options.inline_counters);
  EXPECT_EQ(options.inline_counters->families[0].id, 150);
}

// Sixteen GPUs in seven instances each, with pods and their labels.
TEST(telemetry, case39_largest_node) {
  auto text = read_file(SOURCE_ROOT "/assets/metrics/default-counters.csv");
  auto counters = parse_counters(*text, "default-counters.csv");
  Snapshot snapshot;
  for (const Counter& counter : counters->families) snapshot.fields.push_back(counter.id);
  snapshot.fields.push_back(1);
  std::ranges::sort(snapshot.fields);
  std::map<EntityKey, std::vector<PodUse>> pods;
  for (unsigned i = 0; i < 16; ++i) {
    GpuFacts gpu;
    gpu.index = gpu.minor = i;
    gpu.uuid = "GPU-00000000-0000-0000-0000-00000000000" + std::to_string(i);
    gpu.bus_id = "00000000:1B:00.0";
    gpu.model = "NVIDIA A100-SXM4-80GB";
    for (unsigned gi = 7; gi < 14; ++gi) {
      gpu.instances.push_back({gi, i * 8 + gi - 7, "1g.10gb"});
      auto& row = snapshot.values[{i, gi}];
      for (int id : snapshot.fields) {
        const Field& field = *field_by_id(id);
        row.push_back(field.type == Type::kText     ? Value(std::string("580.82.07"))
                      : field.type == Type::kDouble ? Value(12.5)
                                                    : Value(std::int64_t{81234}));
      }
      pods[{i, gi}].push_back({"machine-learning",
                               "worker-" + std::to_string(i * 8 + gi),
                               "main",
                               "",
                               "uid",
                               {{"app.kubernetes.io/name", "training"}, {"team", "vision"}}});
    }
    snapshot.gpus.push_back(std::move(gpu));
  }
  auto entities = select(Selector{}, snapshot.gpus).entities;
  std::map<EntityKey, std::uint64_t> xids;
  PageStyle style;
  style.host = "node-7";
  PageInputs inputs{*counters, snapshot, entities, xids, {}, pods, {}, style};
  auto begin = std::chrono::steady_clock::now();
  Page page = render_page(inputs);
  auto took = std::chrono::steady_clock::now() - begin;
  EXPECT_EQ(page.samples, 112u * 25);
  EXPECT_EQ(page.duplicates, 0u);
  EXPECT_LE(page.text.size(), 1'200'000u);
  EXPECT_EQ(render_page(inputs).text, page.text);
  RecordProperty("render_us",
                 static_cast<int>(std::chrono::duration_cast<std::chrono::microseconds>(took).count()));
  RecordProperty("bytes", static_cast<int>(page.text.size()));
}

TEST(telemetry, precedence_of_flags_and_environment) {
  TempDir dir;
  ASSERT_TRUE(write_file_atomic(dir.path() / "c.yaml",
                                "version: 1\nmetrics: {file: /from/yaml}\ncollection: {interval: 1s}\n"));
  Environment environment{{"DCGM_EXPORTER_CONFIG_FILE", (dir.path() / "c.yaml").string()},
                          {"DCGM_EXPORTER_INTERVAL", "2000"},
                          {"DCGM_EXPORTER_LISTEN", ":9999"},
                          {"DCGM_EXPORTER_KUBERNETES", "T"},
                          {"NVIDIA_RESOURCE_NAMES", "a.com/x, b.com/y"}};
  auto options = parse_options({"-a", "[::]:9401", "--no-hostname=false"}, environment);
  ASSERT_TRUE(options) << options.error().text();
  EXPECT_EQ(options->collectors, "/from/yaml");
  EXPECT_EQ(options->interval_ms, 2000);
  EXPECT_EQ(options->address, "[::]:9401");
  EXPECT_TRUE(options->kubernetes);
  EXPECT_FALSE(options->no_hostname);
  EXPECT_EQ(options->resource_names, (std::vector<std::string>{"a.com/x", "b.com/y"}));
  EXPECT_TRUE(has(options_error({"--collector=x"}), "did you mean 'collectors'"));
  EXPECT_TRUE(has(options_error({"-c", "0"}), "collect-interval"));
  EXPECT_TRUE(has(options_error({}, {{"DCGM_EXPORTER_KUBERNETES", "yes"}}), "DCGM_EXPORTER_KUBERNETES"));
  EXPECT_TRUE(has(options_error({"-m", "a"}), "malformed configmap-data 'a'"));
  EXPECT_TRUE(has(options_error({"--kubernetes-gpu-id-type=name"}), "kubernetes-gpu-id-type"));
  EXPECT_TRUE(has(options_error({"--collectors"}), "needs a value"));
  EXPECT_TRUE(has(options_error({"--container-labels"}), "container-runtime-socket"));
  EXPECT_EQ(parse_options({"--web-read-timeout=soon"}, {})->read_timeout(), 10s);
  EXPECT_EQ(parse_listen("[::1]:80")->host, "::1");
  EXPECT_FALSE(parse_listen("::1:80"));
  EXPECT_FALSE(parse_listen("80"));
}

}  // namespace gpuop::telemetry
