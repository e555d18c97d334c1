// Every file of cases/ is a test: collectors, GPUs, readings, pods and jobs in, a page out.
//
//   arguments: [--use-old-namespace]      the exporter's flags; environment: {NODE_NAME: n1} likewise
//   collectors: |                         a collectors file
//   gpus: [{uuid, bus, model, instances: {"5": 1g.10gb}, mig: {MIG-…: 5}}]
//   readings: {FIELD: {"0": 81, "1/5": 7.5}}   by "GPU" or "GPU/instance"; a list gives one value a GPU
//   pods: [{ns, pod, container, resource, id, uid, labels}]     jobs: {"0": "a\nb\n"}
//   xids: [{gpu, gi, xid, at}]  masks: [{"0": 0x44}]  now: seconds
//   page: |                               the whole page, or
//   lines: [start of a line, …]           lines that must be there, and
//   counts: {text: number}                how many lines have the text
#include <gtest/gtest.h>

#include <set>

#include "base/files.h"
#include "base/text.h"
#include "base/yaml.h"
#include "telemetry/jobs.h"
#include "telemetry/options.h"
#include "telemetry/own_families.h"
#include "telemetry/page.h"
#include "telemetry/selector.h"

namespace gpuop::telemetry {
namespace {

std::string str(std::string_view text) {
  return std::string(text);
}

EntityKey entity_of(std::string_view text) {
  auto parts = split(text, '/');
  EntityKey key{static_cast<unsigned>(*parse_int(parts[0])), {}};
  if (parts.size() > 1) key.gi = static_cast<unsigned>(*parse_int(parts[1]));
  return key;
}

Value value_of(const Json& json) {
  if (json.is_string()) return str(as_text(json));
  if (json.is_double()) return json.get_double();
  if (json.is_int64()) return json.get_int64();
  if (json.is_uint64()) return static_cast<std::int64_t>(json.get_uint64());
  return {};
}

std::vector<GpuFacts> make_gpus(const Json& file) {
  std::vector<GpuFacts> gpus;
  for (const Json& item : get_array(file, {"gpus"})) {
    GpuFacts gpu;
    gpu.index = gpu.minor = static_cast<unsigned>(gpus.size());
    gpu.uuid = str(get_string(item, {"uuid"}));
    gpu.bus_id = str(get_string(item, {"bus"}, "00000000:1B:00.0"));
    gpu.model = str(get_string(item, {"model"}, "NVIDIA H200"));
    gpu.minor = static_cast<unsigned>(get_int(item, {"minor"}, gpu.index));
    unsigned n = 0;
    for (const auto& [gi, profile] : get_object(item, {"instances"}))
      gpu.instances.push_back(
          {static_cast<unsigned>(*parse_int(str(gi))), gpu.index * 8 + n++, str(as_text(profile))});
    for (const auto& [uuid, gi] : get_object(item, {"mig"}))
      gpu.mig_devices.push_back({str(uuid), static_cast<unsigned>(gi.as_int64())});
    gpus.push_back(std::move(gpu));
  }
  return gpus;
}

Snapshot make_snapshot(const Json& file) {
  Snapshot snapshot;
  snapshot.gpus = make_gpus(file);
  std::map<int, std::map<EntityKey, Value>> readings;
  for (const auto& [name, values] : get_object(file, {"readings"})) {
    auto& column = readings[field_id(str(name)).value()];
    if (values.is_array()) {
      unsigned index = 0;
      for (const Json& value : values.get_array()) column[{index++, {}}] = value_of(value);
    } else {
      for (const auto& [entity, value] : values.get_object())
        column[entity_of(str(entity))] = value_of(value);
    }
  }
  for (const auto& [id, column] : readings) snapshot.fields.push_back(id);
  for (const GpuFacts& gpu : snapshot.gpus) {
    std::vector<EntityKey> entities{{gpu.index, {}}};
    for (const InstanceFacts& instance : gpu.instances) entities.push_back({gpu.index, instance.gi});
    for (const EntityKey& entity : entities) {
      for (auto& [id, column] : readings) {
        auto found = column.find(entity);
        snapshot.values[entity].push_back(found == column.end() ? Value{} : found->second);
      }
    }
  }
  for (const Json& item : get_array(file, {"processes"})) {
    ProcessUse use;
    use.entity = entity_of(get_string(item, {"on"}, "0"));
    use.memory_bytes = static_cast<std::uint64_t>(get_int(item, {"mib"})) << 20;
    use.sm_percent = static_cast<unsigned>(get_int(item, {"sm"}));
    use.pod_uid = str(get_string(item, {"pod_uid"}));
    snapshot.processes.push_back(std::move(use));
  }
  return snapshot;
}

Duration seconds(const Json& item, std::string_view key) {
  return std::chrono::seconds(get_int(item, {key}));
}

History make_history(const Json& file, const Snapshot& snapshot) {
  History history;
  for (const Json& item : get_array(file, {"xids"})) {
    XidEvent event;
    event.at = seconds(item, "at");
    event.gpu_uuid = snapshot.gpus[static_cast<std::size_t>(get_int(item, {"gpu"}))].uuid;
    event.xid = static_cast<std::uint64_t>(get_int(item, {"xid"}));
    if (find(item, {"gi"})) event.gi = static_cast<unsigned>(get_int(item, {"gi"}));
    history.add_xid(event);
  }
  Duration at = 0s;
  for (const Json& item : get_array(file, {"masks"})) {
    Snapshot one;
    one.fields = {kClockReasonsField};
    for (const auto& [entity, mask] : item.get_object())
      one.values[entity_of(str(entity))] = {value_of(mask)};
    history.add_snapshot(one, at, 300s);
    at += 30s;
  }
  return history;
}

PodMetas make_metas(const Json& file, bool labels) {
  PodMetas metas;
  for (const Json& item : get_array(file, {"pods"})) {
    PodMeta meta;
    meta.uid = str(get_string(item, {"uid"}));
    meta.ended = get_bool(item, {"ended"});
    for (const auto& [key, value] : get_object(item, {"labels"}))
      if (labels) meta.labels[str(key)] = str(as_text(value));
    metas[{str(get_string(item, {"ns"})), str(get_string(item, {"pod"}))}] = std::move(meta);
  }
  return metas;
}

std::vector<podresources::Use> make_uses(const Json& file) {
  std::vector<podresources::Use> uses;
  for (const Json& item : get_array(file, {"pods"})) {
    podresources::Use use;
    use.ns = str(get_string(item, {"ns"}));
    use.pod = str(get_string(item, {"pod"}));
    use.container = str(get_string(item, {"container"}, "main"));
    use.resource = str(get_string(item, {"resource"}, "nvidia.com/gpu"));
    use.id = str(get_string(item, {"id"}));
    uses.push_back(std::move(use));
  }
  return uses;
}

class CaseFile : public ::testing::Test {
 public:
  explicit CaseFile(fs::path path) : path_(std::move(path)) {}

  void TestBody() override {
    auto text = read_file(path_);
    ASSERT_TRUE(text);
    auto document = parse_yaml_one(*text, path_.string());
    ASSERT_TRUE(document) << document.error().text();
    const Json& file = document->value;

    std::vector<std::string> arguments;
    for (const Json& word : get_array(file, {"arguments"})) arguments.push_back(str(as_text(word)));
    auto options = parse_options(arguments, {});
    ASSERT_TRUE(options) << options.error().text();
    auto counters = parse_counters(get_string(file, {"collectors"}), "metrics.csv");
    ASSERT_TRUE(counters) << counters.error().text();
    Snapshot snapshot = make_snapshot(file);
    History history = make_history(file, snapshot);
    auto entities = select(options->selector, snapshot.gpus).entities;
    std::map<EntityKey, std::uint64_t> latest;
    for (const EntityKey& entity : entities)
      latest[entity] = history.latest_xid(*snapshot.gpu(entity.gpu), entity.gi);
    auto own = own_samples(*counters, snapshot, entities, history, seconds(file, "now"),
                           {options->xid_window_ms, options->clock_window_ms});
    auto pods = attribute(make_uses(file), snapshot.gpus, make_metas(file, options->pod_labels),
                          {options->gpu_id_type == "device-name", options->resource_names});
    Jobs jobs;
    for (const auto& [name, ids] : get_object(file, {"jobs"}))
      if (auto entity = job_file_entity(str(name))) jobs[*entity] = parse_jobs(as_text(ids));
    PageStyle style;
    style.host_label = options->host_label;
    style.host = host_label_value(*options, str(get_string(file, {"node_name"})), "local");
    style.old_namespace = options->old_namespace;
    style.pod_uid = options->pod_uid;
    style.virtual_gpus = options->virtual_gpus;
    style.join_model_name = options->join_model_name;
    PageInputs inputs{*counters, snapshot, entities, latest, own, pods.uses, jobs, style};
    Page page = render_page(inputs);
    EXPECT_EQ(page.text, render_page(inputs).text);
    check(file, page);
  }

 private:
  static void check(const Json& file, const Page& page) {
    if (find(file, {"page"})) {
      EXPECT_EQ(page.text, get_string(file, {"page"}));
    }
    auto lines = split(page.text, '\n');
    for (const Json& wanted : get_array(file, {"lines"})) {
      bool there = std::ranges::any_of(lines, [&](const std::string& l) { return l == as_text(wanted); });
      EXPECT_TRUE(there) << as_text(wanted) << "\nis not in\n" << page.text;
    }
    for (const auto& [part, number] : get_object(file, {"counts"})) {
      auto has = [&](const std::string& l) { return l.find(str(part)) != std::string::npos; };
      EXPECT_EQ(std::ranges::count_if(lines, has), number.as_int64()) << str(part) << " in\n" << page.text;
    }
    std::set<std::string> series;
    for (const std::string& line : lines) {
      if (line.empty() || line.front() == '#') continue;
      EXPECT_TRUE(series.insert(line.substr(0, line.rfind(' '))).second) << "twice: " << line;
    }
  }

  const fs::path path_;
};

[[maybe_unused]] const bool kRegistered = [] {
  auto names = list_dir(TEST_DATA "/cases");
  if (!names) std::abort();
  for (const std::string& name : *names) {
    fs::path path = fs::path(TEST_DATA "/cases") / name;
    ::testing::RegisterTest("telemetry_page", path.stem().c_str(), nullptr, nullptr, path.c_str(), 1,
                            [path]() -> ::testing::Test* { return new CaseFile(path); });
  }
  return true;
}();

}  // namespace
}  // namespace gpuop::telemetry
