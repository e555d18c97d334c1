#include "telemetry/reader.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <set>

#include "base/files.h"
#include "base/text.h"
#include "hardware/inventory.h"
#include "telemetry/read_health.h"

namespace gpuop::telemetry {
namespace {

namespace abi = hardware::abi;
using hardware::Nvml;
using Device = Nvml::Device;

constexpr unsigned kInstancesPerGpu = 8;  // how instances are counted over the node

template <class T>
Value whole(const Result<T>& read, const Field& field) {
  return read ? scaled(static_cast<std::uint64_t>(*read), field.type, field.scale) : Value{};
}

Value text(Result<std::string> read) {
  return read ? Value(std::move(*read)) : Value{};
}

std::optional<std::uint64_t> number(const abi::FieldValue& value) {
  if (value.nvml_return != abi::kSuccess) return std::nullopt;
  // The memory temperature's type word is wrong in some drivers; its number always is an unsigned one.
  if (value.field_id == 82) return value.value.u;
  switch (value.value_type) {
    case abi::kTypeDouble:
      return value.value.d >= 0 ? std::optional(static_cast<std::uint64_t>(value.value.d)) : std::nullopt;
    case abi::kTypeUnsigned:
      return value.value.u;
    case abi::kTypeSigned:
      return static_cast<std::uint64_t>(static_cast<std::int64_t>(value.value.i));
    default:
      return value.value.u64;
  }
}

std::string upper_bus_id(const abi::PciInfo& pci) {
  std::string id(pci.bus_id, strnlen(pci.bus_id, sizeof(pci.bus_id)));
  std::ranges::transform(id, id.begin(),
                         [](char c) { return c >= 'a' && c <= 'f' ? static_cast<char>(c - 32) : c; });
  return id;
}

// "1c.2g.10gb" to the GPU instance's "2g.10gb".
std::string instance_profile(std::string profile) {
  auto dot = profile.find('.');
  if (dot != std::string::npos && dot > 0 && profile[dot - 1] == 'c') profile.erase(0, dot + 1);
  return profile;
}

}  // namespace

Value scaled(std::uint64_t raw, Type type, Scale scale) {
  auto plain = static_cast<std::int64_t>(raw);
  switch (scale) {
    case Scale::kMilli:
      return static_cast<double>(raw) / 1000.0;
    case Scale::kMilliWhole:
      return static_cast<double>(raw / 1000);
    case Scale::kTemperature:
      return plain > 200 ? Value{} : Value(plain);
    default:
      return type == Type::kDouble ? Value(static_cast<double>(raw)) : Value(plain);
  }
}

Value scaled_share(double raw, Type type, Scale scale) {
  if (!std::isfinite(raw)) return {};
  if (scale == Scale::kPercent) raw /= 100.0;
  if (scale == Scale::kMebi) raw *= 1048576.0;
  if (type == Type::kDouble) return raw;
  if (raw < 0 || raw > 9e18) return {};
  return static_cast<std::int64_t>(raw);
}

std::int64_t link_rate(std::optional<std::uint64_t> older, std::uint64_t newer, Duration span) {
  if (!older || newer <= *older || span <= Duration::zero()) return 0;
  double seconds = std::chrono::duration<double>(span).count();
  return static_cast<std::int64_t>(static_cast<double>(newer - *older) / seconds / 1000.0);
}

const GpuFacts* Snapshot::gpu(unsigned index) const {
  auto found = std::ranges::find(gpus, index, &GpuFacts::index);
  return found == gpus.end() ? nullptr : &*found;
}

const Value& Snapshot::value(const EntityKey& entity, int field) const {
  static const Value none;
  auto row = values.find(entity);
  auto column = std::ranges::lower_bound(fields, field);
  if (row == values.end() || column == fields.end() || *column != field) return none;
  return row->second[static_cast<std::size_t>(column - fields.begin())];
}

struct Reader::Impl {
  // What has to be kept of an entity from one read to the next.
  struct Kept {
    std::map<std::pair<unsigned, unsigned>, std::uint64_t> link_kib;  // by field id and scope
    Duration at{};
    abi::GpmSample older = nullptr;
    abi::GpmSample newer = nullptr;
    bool has_older = false;
  };
  struct Handles {
    Device device = nullptr;
    std::map<unsigned, Device> instances;  // a MIG device of each GPU instance
  };

  explicit Impl(std::filesystem::path path) : library(std::move(path)) {}
  ~Impl() { drop(); }

  void drop() {
    if (nvml) {
      for (auto& [key, kept] : state) free_samples(kept);
    }
    state.clear();
    nvml.reset();
  }
  void free_samples(Kept& kept) {
    if (kept.older) nvml->gpm_sample_free(kept.older);
    if (kept.newer) nvml->gpm_sample_free(kept.newer);
    kept.older = kept.newer = nullptr;
  }

  // --- which GPUs there are ---

  Result<GpuFacts> identify(unsigned index, Handles& handles) {
    GpuFacts gpu;
    gpu.index = index;
    handles.device = TRY(nvml->device_by_index(index));
    gpu.uuid = TRY(nvml->uuid(handles.device));
    gpu.bus_id = upper_bus_id(TRY(nvml->pci_info(handles.device)));
    gpu.model = TRY(nvml->name(handles.device));
    gpu.minor = TRY(nvml->minor_number(handles.device));
    // A GPU that fell off the bus still has its name; only a real reading tells.
    if (auto read = nvml->read_u32("nvmlDeviceGetTemperature", handles.device, 0);
        !read && nvml->last_code() == abi::kGpuIsLost)
      return fail(read.error());
    gpu.gpm = nvml->gpm_supported(handles.device).value_or(false);
    if (auto mode = nvml->mig_mode(handles.device); mode && mode->current) identify_instances(gpu, handles);
    return gpu;
  }

  void identify_instances(GpuFacts& gpu, Handles& handles) {
    auto total = nvml->memory_v1(handles.device);
    auto count = nvml->max_mig_devices(handles.device);
    for (unsigned i = 0; count && i < *count; ++i) {
      auto mig = nvml->mig_device(handles.device, i);
      if (!mig) continue;
      auto gi = nvml->gpu_instance_id(*mig);
      auto uuid = nvml->uuid(*mig);
      if (!gi || !uuid) continue;
      gpu.mig_devices.push_back({*uuid, *gi});
      if (!handles.instances.emplace(*gi, *mig).second) continue;
      auto profile = total ? hardware::mig_profile(*nvml, handles.device, *mig, total->total)
                           : Result<std::string>(fail(total.error()));
      gpu.instances.push_back({*gi, 0, instance_profile(profile.value_or(""))});
    }
    std::ranges::sort(gpu.instances, {}, &InstanceFacts::gi);
    for (unsigned n = 0; n < gpu.instances.size(); ++n)
      gpu.instances[n].entity = gpu.index * kInstancesPerGpu + n;
  }

  Result<> enumerate(Snapshot& snapshot, std::vector<Handles>& handles) {
    unsigned count = TRY(nvml->device_count());
    std::vector<GpuFacts> now;
    for (unsigned i = 0; i < count; ++i) {
      Handles found;
      auto gpu = identify(i, found);
      if (gpu) {
        if (gpu->model == "DGX Display" || gpu->model == "NVIDIA DGX Display") continue;
        now.push_back(std::move(*gpu));
        handles.push_back(std::move(found));
        continue;
      }
      snapshot.warnings.push_back("GPU " + std::to_string(i) + ": " + gpu.error().text());
      auto before = std::ranges::find(known, i, &GpuFacts::index);
      if (before == known.end()) continue;
      now.push_back(*before);
      now.back().lost = true;
      handles.emplace_back();
    }
    known = now;
    snapshot.gpus = std::move(now);
    return {};
  }

  // --- one entity ---

  // Everything that many fields share, read once an entity and cycle.
  struct Batch {
    std::map<std::pair<unsigned, unsigned>, std::uint64_t> field_values;
    std::map<unsigned, double> gpm;
    std::optional<Result<abi::Utilization>> utilization;
    std::optional<Result<hardware::MemoryUse>> memory;
  };

  void read_field_values(Device device, const std::vector<const Field*>& fields, Batch& batch) {
    std::vector<abi::FieldValue> wanted;
    std::set<std::pair<unsigned, unsigned>> asked;
    auto ask = [&](unsigned id, unsigned scope) {
      if (!asked.insert({id, scope}).second) return;
      abi::FieldValue value{};
      value.field_id = id;
      value.scope_id = scope;
      wanted.push_back(value);
    };
    for (const Field* field : fields) {
      if (field->call == Call::kFieldValue) ask(field->argument, field->second);
      if (field->call != Call::kLinkRate) continue;
      if (field->argument != 139) ask(138, field->second);
      if (field->argument != 138) ask(139, field->second);
    }
    if (wanted.empty() || !nvml->field_values(device, wanted)) return;
    for (const abi::FieldValue& value : wanted) {
      if (auto got = number(value)) batch.field_values[{value.field_id, value.scope_id}] = *got;
    }
  }

  // Takes a sample and, from the second on, the metrics of the span between.
  void read_gpm(const std::vector<const Field*>& fields, Kept& kept,
                const std::function<Result<>(abi::GpmSample)>& take, Batch& batch) {
    metrics.num_metrics = 0;
    for (const Field* field : fields) {
      if (field->call != Call::kGpm || metrics.num_metrics == abi::kGpmMaxMetrics) continue;
      metrics.metrics[metrics.num_metrics++] = {field->argument, 0, 0, {}};
    }
    if (metrics.num_metrics == 0) return;
    for (abi::GpmSample* sample : {&kept.older, &kept.newer}) {
      if (*sample) continue;
      auto made = nvml->gpm_sample_alloc();
      if (!made) return;
      *sample = *made;
    }
    if (!take(kept.newer)) {
      kept.has_older = false;
      return;
    }
    if (kept.has_older) {
      metrics.version = 1;
      metrics.sample1 = kept.older;
      metrics.sample2 = kept.newer;
      if (nvml->gpm_metrics(metrics)) {
        for (unsigned i = 0; i < metrics.num_metrics; ++i) {
          if (metrics.metrics[i].nvml_return == abi::kSuccess)
            batch.gpm[metrics.metrics[i].metric_id] = metrics.metrics[i].value;
        }
      }
    }
    std::swap(kept.older, kept.newer);
    kept.has_older = true;
  }

  Value frame_buffer(Device device, const Field& field, Batch& batch) {
    if (!batch.memory) batch.memory = nvml->memory(device);
    if (!*batch.memory) return {};
    const hardware::MemoryUse& use = **batch.memory;
    auto mib = [](std::uint64_t bytes) { return Value(static_cast<std::int64_t>(bytes >> 20)); };
    switch (field.argument) {
      case kFbTotal:
        return mib(use.total);
      case kFbFree:
        return mib(use.free);
      case kFbUsed:
        return mib(use.used);
      case kFbReserved:
        return use.reserved ? mib(*use.reserved) : Value{};
      default: {
        std::uint64_t usable = use.total - std::min(use.reserved.value_or(0), use.total);
        return usable ? Value(static_cast<double>(use.used) / static_cast<double>(usable)) : Value{};
      }
    }
  }

  Value link(const Field& field, Kept& kept, Duration at, const Batch& batch) {
    std::uint64_t sum = 0;
    for (unsigned id : {138u, 139u}) {
      if (field.argument != 0 && field.argument != id) continue;
      auto got = batch.field_values.find({id, field.second});
      if (got == batch.field_values.end()) return {};
      sum += got->second;
    }
    std::optional<std::uint64_t> older;
    auto key = std::pair(field.argument, field.second);
    if (auto before = kept.link_kib.find(key); before != kept.link_kib.end()) older = before->second;
    kept.link_kib[key] = sum;
    return link_rate(older, sum, at - kept.at);
  }

  Value pair(Device device, const Field& field) {
    auto call = reinterpret_cast<int (*)(Device, unsigned*, unsigned*)>(nvml->symbol(field.symbol));
    unsigned first = 0;
    unsigned second = 0;
    if (!call || call(device, &first, &second) != abi::kSuccess) return {};
    return scaled(field.argument == 0 ? first : second, field.type, field.scale);
  }

  Value fabric(Device device, const Field& field) {
    auto fabric = nvml->fabric(device);
    if (!fabric) return {};
    switch (field.argument) {
      case 0:
        return std::int64_t{fabric->state};
      case 1:
        return std::int64_t{fabric->status};
      case 2:
        return fabric->cluster_uuid;
      case 3:
        return std::int64_t{fabric->clique_id};
      default:
        return fabric->health_mask ? Value(std::int64_t{*fabric->health_mask}) : Value{};
    }
  }

  Value system(const Field& field) {
    if (field.argument == 0) return text(nvml->driver_version());
    if (field.argument == 1) return text(nvml->nvml_version());
    auto version = nvml->cuda_version();
    return version ? Value(std::int64_t{*version}) : Value{};
  }

  Value identity(const GpuFacts& gpu, const Field& field) {
    switch (field.argument) {
      case kIdName:
        return gpu.model;
      case kIdUuid:
        return gpu.uuid;
      case kIdMinor:
        return std::int64_t{gpu.minor};
      default:
        return gpu.bus_id;
    }
  }

  Value read_one(const GpuFacts& gpu, Device device, const Field& field, Kept& kept, Duration at,
                 Batch& batch) {
    switch (field.call) {
      case Call::kU32:
        return whole(nvml->read_u32(field.symbol, device), field);
      case Call::kU32Arg:
        return whole(nvml->read_u32(field.symbol, device, field.argument), field);
      case Call::kU64:
        return whole(nvml->read_u64(field.symbol, device), field);
      case Call::kUtilization:
        if (!batch.utilization) batch.utilization = nvml->utilization(device);
        if (!*batch.utilization) return {};
        return std::int64_t{field.argument == 0 ? (*batch.utilization)->gpu : (*batch.utilization)->memory};
      case Call::kEngine:
        return whole(nvml->read_u32_pair(field.symbol, device), field);
      case Call::kFieldValue: {
        auto got = batch.field_values.find({field.argument, field.second});
        return got == batch.field_values.end() ? Value{} : scaled(got->second, field.type, field.scale);
      }
      case Call::kLinkRate:
        return link(field, kept, at, batch);
      case Call::kFrameBuffer:
        return frame_buffer(device, field, batch);
      case Call::kBar1: {
        auto memory = nvml->bar1_memory(device);
        if (!memory) return {};
        auto bytes = field.argument == 0 ? memory->total : field.argument == 1 ? memory->used : memory->free;
        return static_cast<std::int64_t>(bytes >> 20);
      }
      case Call::kText:
        return text(nvml->read_text(field.symbol, device));
      case Call::kTextArg:
        return text(nvml->read_text(field.symbol, device, field.argument));
      case Call::kBrand: {
        auto brand = nvml->brand(device);
        return brand ? Value(std::string(hardware::brand_name(*brand))) : Value{};
      }
      case Call::kIdentity:
        return identity(gpu, field);
      case Call::kPair:
        return pair(device, field);
      case Call::kMargin: {
        auto margin = nvml->margin_temperature(device);
        return margin ? Value(std::int64_t{*margin}) : Value{};
      }
      case Call::kRetired:
        return whole(nvml->retired_pages(device, field.argument), field);
      case Call::kEccCounter:
        return whole(nvml->memory_errors(device, field.argument >> 8, field.argument & 0xff, field.second),
                     field);
      case Call::kRemapBanks: {
        auto banks = nvml->row_remapper_histogram(device);
        if (!banks) return {};
        const unsigned numbers[] = {banks->max, banks->high, banks->partial, banks->low, banks->none};
        return std::int64_t{numbers[field.argument]};
      }
      case Call::kFabric:
        return fabric(device, field);
      case Call::kLicence: {
        // A GPU that knows no licences holds none.
        auto held = nvml->vgpu_licensed(device);
        return std::int64_t{held && *held ? 1 : 0};
      }
      case Call::kGpm: {
        auto got = batch.gpm.find(field.argument);
        return got == batch.gpm.end() ? Value{} : scaled_share(got->second, field.type, field.scale);
      }
      case Call::kSystem:
        return system(field);
      case Call::kNone:
      case Call::kXid:
        break;
    }
    return {};
  }

  std::vector<Value> read_gpu(const GpuFacts& gpu, Device device, const std::vector<const Field*>& fields,
                              Duration at) {
    Kept& kept = keep(EntityKey{gpu.index, {}}, gpu.uuid);
    Batch batch;
    read_field_values(device, fields, batch);
    if (gpu.gpm)
      read_gpm(fields, kept, [&](abi::GpmSample sample) { return nvml->gpm_sample(device, sample); }, batch);
    std::vector<Value> row;
    for (const Field* field : fields)
      row.push_back(field ? read_one(gpu, device, *field, kept, at, batch) : Value{});
    kept.at = at;
    return row;
  }

  // What means something on an instance is read there; of the rest the GPU's own readings are repeated, but
  // for profiling, which an instance has or has not.
  std::vector<Value> read_instance(const GpuFacts& gpu, const Handles& handles, unsigned gi,
                                   const std::vector<const Field*>& fields, const std::vector<Value>& parent,
                                   Duration at) {
    Kept& kept = keep(EntityKey{gpu.index, gi}, gpu.uuid);
    Batch batch;
    if (gpu.gpm) {
      auto take = [&](abi::GpmSample sample) { return nvml->gpm_mig_sample(handles.device, gi, sample); };
      read_gpm(fields, kept, take, batch);
    }
    std::vector<Value> row;
    for (std::size_t i = 0; i < fields.size(); ++i) {
      const Field* field = fields[i];
      if (!field) {
        row.emplace_back();
      } else if (field->level == Level::kInstance || field->level == Level::kCompute) {
        row.push_back(read_one(gpu, handles.instances.at(gi), *field, kept, at, batch));
      } else {
        row.push_back(field->call == Call::kGpm ? Value{} : parent[i]);
      }
    }
    kept.at = at;
    return row;
  }

  Kept& keep(const EntityKey& key, const std::string& uuid) {
    auto& slot = state[{key, uuid}];
    used.insert({key, uuid});
    return slot;
  }

  // --- a cycle ---

  Result<Snapshot> read(const ReadPlan& plan, Duration at) {
    if (!nvml) {
      nvml = TRY(Nvml::open(library));
    }
    Snapshot snapshot;
    snapshot.at = at;
    snapshot.fields = plan.fields;
    std::vector<Handles> handles;
    if (auto found = enumerate(snapshot, handles); !found) {
      drop();  // the driver may come back as another one
      return fail(std::move(found).error());
    }
    std::vector<const Field*> columns;
    for (int id : plan.fields) columns.push_back(field_by_id(id));
    used.clear();
    for (std::size_t i = 0; i < snapshot.gpus.size(); ++i) {
      const GpuFacts& gpu = snapshot.gpus[i];
      if (gpu.lost) continue;
      auto row = read_gpu(gpu, handles[i].device, columns, at);
      for (const InstanceFacts& instance : gpu.instances)
        snapshot.values[{gpu.index, instance.gi}] =
            read_instance(gpu, handles[i], instance.gi, columns, row, at);
      snapshot.values[{gpu.index, {}}] = std::move(row);
      if (plan.health) snapshot.health[gpu.index] = read_health(*nvml, handles[i].device);
      if (plan.processes)
        read_processes(*nvml, gpu, handles[i].device, process_since[gpu.uuid], snapshot.processes);
    }
    if (plan.p2p) read_p2p(snapshot, handles);
    forget_unused();
    return snapshot;
  }

  void read_p2p(Snapshot& snapshot, const std::vector<Handles>& handles) {
    constexpr int kNvlink = 2;  // NVML_P2P_CAPS_INDEX_NVLINK
    constexpr int kUnknown = 6;
    for (const Handles& a : handles) {
      auto& row = snapshot.p2p.emplace_back();
      for (const Handles& b : handles) {
        bool able = a.device && b.device && a.device != b.device;
        row.push_back(able ? nvml->p2p_status(a.device, b.device, kNvlink).value_or(kUnknown) : kUnknown);
      }
    }
  }

  void forget_unused() {
    for (auto at = state.begin(); at != state.end();) {
      if (used.contains(at->first)) {
        ++at;
        continue;
      }
      free_samples(at->second);
      at = state.erase(at);
    }
  }

  const std::filesystem::path library;
  std::unique_ptr<Nvml> nvml;
  std::vector<GpuFacts> known;
  std::map<std::pair<EntityKey, std::string>, Kept> state;
  std::set<std::pair<EntityKey, std::string>> used;
  std::map<std::string, std::uint64_t> process_since;  // µs since the epoch, by GPU
  abi::GpmMetrics metrics{};
};

Reader::Reader(std::filesystem::path library) : impl_(std::make_unique<Impl>(std::move(library))) {}
Reader::~Reader() = default;

Result<Snapshot> Reader::read(const ReadPlan& plan, Duration at) {
  return impl_->read(plan, at);
}

}  // namespace gpuop::telemetry
