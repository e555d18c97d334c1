#include "telemetry/page.h"

#include <algorithm>
#include <cstdio>
#include <set>

#include "base/text.h"

namespace gpuop::telemetry {
namespace {

using Labels = std::map<std::string, std::string>;

// The labels of one sample beyond those of its entity: label rows and pod labels, then attributes.
struct Variant {
  Labels labels;
  Labels attributes;
  const PodUse* use = nullptr;
};

struct Line {
  std::string labels;
  std::string value;
};

void append(std::string& out, std::string_view name, std::string_view value) {
  if (!out.empty()) out += ',';
  out += name;
  out += "=\"";
  out += escape_label(value);
  out += '"';
}

std::string joined_words(const std::string& text) {
  return join(split_fields(text), "-");
}

// The length of the UTF-8 sequence at the start of `text`; 0: wrong.
std::size_t utf8_length(std::string_view text) {
  auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  unsigned char first = byte(0);
  std::size_t length = first < 0x80       ? 1
                       : first >> 5 == 6  ? 2
                       : first >> 4 == 14 ? 3
                       : first >> 3 == 30 ? 4
                                          : 0;
  if (length == 0 || length > text.size()) return 0;
  std::uint32_t point = length == 1 ? first : first & (0x7Fu >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if (byte(i) >> 6 != 2) return 0;
    point = point << 6 | (byte(i) & 0x3Fu);
  }
  constexpr std::uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  if (point < kLeast[length] || point > 0x10FFFF || (point >= 0xD800 && point <= 0xDFFF)) return 0;
  return length;
}

class Renderer {
 public:
  explicit Renderer(const PageInputs& in) : in_(in) {
    for (const Counter& label : in.counters.labels) reserved_.insert(label.name);
    for (const char* name : {"gpu",           "UUID",           "uuid",          "pci_bus_id",
                             "device",        "modelName",      "GPU_I_PROFILE", "GPU_I_ID",
                             "container",     "container_name", "err_code",      "err_msg",
                             "hpc_job",       "namespace",      "pod",           "pod_name",
                             "pod_namespace", "pod_uid",        "vgpu",          "window_size_in_ms",
                             "xid",           "clock_event",    "health_watch",  "health_error_code",
                             "peer_gpu",      "link_status"})
      reserved_.insert(name);
    reserved_.insert(in.style.host_label);
    for (const EntityKey& entity : in.entities) prepare(entity);
  }

  Page render() {
    std::vector<const Counter*> order;
    for (const Counter& counter : in_.counters.families) order.push_back(&counter);
    std::ranges::sort(order, {}, [](const Counter* counter) -> const std::string& { return counter->name; });
    for (const Counter* counter : order) {
      auto lines = counter->id >= kXidCount ? own_lines(*counter) : field_lines(*counter);
      if (!lines.empty()) write(*counter, lines);
    }
    return std::move(page_);
  }

 private:
  using Lines = std::map<EntityKey, std::vector<Line>>;

  // --- labels ---

  void prepare(const EntityKey& entity) {
    const GpuFacts* gpu = in_.snapshot.gpu(entity.gpu);
    if (!gpu || base_.contains(entity)) return;
    std::string text;
    append(text, "gpu", std::to_string(gpu->index));
    append(text, in_.style.old_namespace ? "uuid" : "UUID", gpu->uuid);
    append(text, "pci_bus_id", gpu->bus_id);
    append(text, "device", "nvidia" + std::to_string(gpu->minor));
    append(text, "modelName", in_.style.join_model_name ? joined_words(gpu->model) : gpu->model);
    if (entity.gi) {
      auto instance = std::ranges::find(gpu->instances, *entity.gi, &InstanceFacts::gi);
      append(text, "GPU_I_PROFILE", instance == gpu->instances.end() ? "" : instance->profile);
      append(text, "GPU_I_ID", std::to_string(*entity.gi));
    }
    if (!in_.style.host.empty()) append(text, in_.style.host_label, in_.style.host);
    base_[entity] = std::move(text);
    variants_[entity] = make_variants(entity);
  }

  Labels row_labels(const EntityKey& entity) const {
    Labels labels;
    for (const Counter& row : in_.counters.labels) {
      const Value& value = in_.snapshot.value(entity, row.id);
      if (is_blank(value)) continue;
      const auto* text = std::get_if<std::string>(&value);
      labels[row.name] = text ? *text : format_value(value);
    }
    return labels;
  }

  std::vector<Variant> make_variants(const EntityKey& entity) {
    Variant plain;
    plain.labels = row_labels(entity);
    std::vector<Variant> variants;
    if (auto uses = in_.pods.find(entity); uses != in_.pods.end()) {
      for (const PodUse& use : uses->second) {
        if (!variants.empty() && !in_.style.virtual_gpus) {
          page_.shared |= use.pod != uses->second.front().pod || use.ns != uses->second.front().ns;
          continue;
        }
        variants.push_back(of_pod(plain, use));
      }
    }
    if (variants.empty()) variants.push_back(std::move(plain));
    return with_jobs(entity, std::move(variants));
  }

  Variant of_pod(const Variant& plain, const PodUse& use) const {
    Variant variant = plain;
    variant.use = &use;
    bool old = in_.style.old_namespace;
    variant.attributes[old ? "pod_name" : "pod"] = use.pod;
    variant.attributes[old ? "pod_namespace" : "namespace"] = use.ns;
    variant.attributes[old ? "container_name" : "container"] = use.container;
    if (in_.style.pod_uid && !use.uid.empty()) variant.attributes["pod_uid"] = use.uid;
    if (in_.style.virtual_gpus && !use.replica.empty()) variant.attributes["vgpu"] = use.replica;
    for (const auto& [key, value] : use.labels) {
      std::string name = label_name(key);
      auto taken = [&](const std::string& wanted) {
        return wanted.empty() || wanted.starts_with("__") || reserved_.contains(wanted) ||
               variant.labels.contains(wanted);
      };
      if (taken(name)) {
        const std::string renamed = "pod_label_" + name;
        name = renamed;
        for (int n = 1; taken(name); ++n) name = renamed + "_conflict" + std::to_string(n);
      }
      variant.labels[name] = value;
    }
    return variant;
  }

  std::vector<Variant> with_jobs(const EntityKey& entity, std::vector<Variant> variants) const {
    auto jobs = in_.jobs.find(entity);
    if (jobs == in_.jobs.end() || jobs->second.empty()) return variants;
    std::vector<Variant> out;
    for (const Variant& variant : variants) {
      for (const std::string& job : jobs->second) {
        out.push_back(variant);
        out.back().attributes["hpc_job"] = job;
      }
    }
    return out;
  }

  std::string labels_text(const EntityKey& entity, const Variant& variant, const LabelPairs& more_labels,
                          const LabelPairs& more_attributes) const {
    std::string text = base_.at(entity);
    Labels labels = variant.labels;
    for (const auto& [name, value] : more_labels) labels[name] = value;
    for (const auto& [name, value] : labels) append(text, name, value);
    if (more_attributes.empty()) {
      for (const auto& [name, value] : variant.attributes) append(text, name, value);
      return text;
    }
    Labels attributes = variant.attributes;
    for (const auto& [name, value] : more_attributes) attributes[name] = value;
    for (const auto& [name, value] : attributes) append(text, name, value);
    return text;
  }

  // --- values ---

  Lines field_lines(const Counter& counter) {
    Lines lines;
    for (const EntityKey& entity : in_.entities) {
      if (!base_.contains(entity)) continue;
      Value value = in_.snapshot.value(entity, counter.id);
      LabelPairs attributes;
      if (counter.id == kXidField) {
        auto latest = in_.latest_xid.find(entity);
        std::uint64_t xid = latest == in_.latest_xid.end() ? 0 : latest->second;
        value = static_cast<std::int64_t>(xid);
        attributes = {{"err_code", std::to_string(xid)}, {"err_msg", std::string(xid_text(xid))}};
      }
      if (is_blank(value)) continue;
      if (counter.kind == Kind::kCounter && below_zero(value)) {
        ++page_.negative;
        continue;
      }
      auto& out = lines[entity];
      // A text has its place in labels only; as a family it says that it is there.
      std::string number = std::holds_alternative<std::string>(value) ? "" : format_value(value);
      if (number.empty()) {
        lines.erase(entity);
        continue;
      }
      add_field(counter, entity, number, attributes, out);
    }
    return lines;
  }

  void add_field(const Counter& counter, const EntityKey& entity, const std::string& number,
                 const LabelPairs& attributes, std::vector<Line>& out) {
    bool by_process = in_.style.virtual_gpus && uids_known(entity) &&
                      (counter.id == kFbUsedField || (counter.id == kGpuUtilField && !entity.gi));
    if (by_process) {
      Variant plain;
      plain.labels = row_labels(entity);
      for (const Variant& variant : with_jobs(entity, {plain}))
        out.push_back({labels_text(entity, variant, {}, attributes), number});
    }
    for (const Variant& variant : variants_.at(entity)) {
      LabelPairs more = attributes;
      if (by_process) more.emplace_back("pod_uid", variant.use->uid);
      out.push_back({labels_text(entity, variant, {}, more),
                     by_process ? share_of(counter.id, entity, variant.use->uid) : number});
    }
  }

  bool uids_known(const EntityKey& entity) const {
    const auto& variants = variants_.at(entity);
    return std::ranges::all_of(variants,
                               [](const Variant& v) { return v.use != nullptr && !v.use->uid.empty(); });
  }

  std::string share_of(int field, const EntityKey& entity, const std::string& uid) const {
    std::uint64_t bytes = 0;
    std::uint64_t percent = 0;
    for (const ProcessUse& process : in_.snapshot.processes) {
      if (process.pod_uid != uid || process.entity != entity) continue;
      bytes += process.memory_bytes;
      percent += process.sm_percent;
    }
    return std::to_string(field == kFbUsedField ? bytes >> 20 : percent);
  }

  static bool below_zero(const Value& value) {
    if (const auto* number = std::get_if<std::int64_t>(&value)) return *number < 0;
    if (const auto* number = std::get_if<double>(&value)) return *number < 0;
    return false;
  }

  Lines own_lines(const Counter& counter) {
    Lines lines;
    for (const OwnSample& sample : in_.own) {
      if (sample.family != counter.id) continue;
      // Health and peers are told of every GPU, whatever devices were asked for.
      prepare(sample.entity);
      if (!base_.contains(sample.entity)) continue;
      for (const Variant& variant : variants_.at(sample.entity))
        lines[sample.entity].push_back(
            {labels_text(sample.entity, variant, sample.labels, {}), std::to_string(sample.value)});
    }
    return lines;
  }

  // --- text ---

  void write(const Counter& counter, Lines& lines) {
    std::string& out = page_.text;
    out += "# HELP " + counter.name + " ";
    for (char c : counter.help) {
      if (c == '\\') {
        out += "\\\\";
      } else if (c == '\n') {
        out += "\\n";
      } else {
        out += c;
      }
    }
    out += "\n# TYPE " + counter.name + " " + std::string(kind_name(counter.kind)) + "\n";
    for (auto& [entity, samples] : lines) {
      if (counter.id != kHealthStatus)  // its watches have an order of their own
        std::ranges::stable_sort(samples, {}, &Line::labels);
      std::set<std::string_view> seen;
      for (const Line& line : samples) {
        if (!seen.insert(line.labels).second) {
          ++page_.duplicates;
          continue;
        }
        out += counter.name + "{" + line.labels + "} " + line.value + "\n";
        ++page_.samples;
      }
    }
  }

  const PageInputs& in_;
  std::set<std::string, std::less<>> reserved_;
  std::map<EntityKey, std::string> base_;
  std::map<EntityKey, std::vector<Variant>> variants_;
  Page page_;
};

}  // namespace

std::string escape_label(std::string_view value) {
  std::string out;
  out.reserve(value.size());
  for (std::size_t at = 0; at < value.size();) {
    std::size_t length = utf8_length(value.substr(at));
    if (length == 0) {
      out += "\xEF\xBF\xBD";
      ++at;
      continue;
    }
    char c = value[at];
    if (c == '\\' || c == '"') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else {
      out.append(value.substr(at, length));
    }
    at += length;
  }
  return out;
}

std::string format_value(const Value& value) {
  if (const auto* number = std::get_if<std::int64_t>(&value)) return std::to_string(*number);
  if (const auto* number = std::get_if<double>(&value)) {
    char text[352];
    std::snprintf(text, sizeof(text), "%.6f", *number);
    return text;
  }
  const auto* text = std::get_if<std::string>(&value);
  return text ? *text : std::string();
}

Page render_page(const PageInputs& inputs) {
  return Renderer(inputs).render();
}

}  // namespace gpuop::telemetry
