// nvidia-smi mig: GPU instances and compute instances, their profiles and placements.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <vector>

#include "sim/smi/nvml.h"

namespace gpuop::sim::smi {

namespace {

constexpr unsigned kGiProfiles = 0x12, kCiProfiles = 9;

struct Options {
  std::string create_gi, create_ci, gpus, gis, cis;
  bool with_ci = false, destroy_gi = false, destroy_ci = false;
  bool list_gi_profiles = false, list_gi_placements = false, list_gi = false;
  bool list_ci_profiles = false, list_ci_placements = false, list_ci = false;
};

struct GiKind {
  nvml::GiProfileInfoV3 info{};
  unsigned profile = 0;  // NVML's enum
  std::string name;
};
struct CiKind {
  nvml::CiProfileInfoV3 info{};
  unsigned profile = 0;
  std::string name;
};
struct Gi {
  void* handle = nullptr;
  nvml::GiInfo info{};
  std::string name;
};
struct Ci {
  void* handle = nullptr;
  nvml::CiInfo info{};
  std::string name;
};

std::string short_name(const char* name) {
  return strncmp(name, "MIG ", 4) == 0 ? name + 4 : name;
}

// In the order of nvidia-smi: by slices, media and memory.
std::vector<GiKind> gi_kinds(Nvml& n, Device d) {
  std::vector<GiKind> out;
  for (unsigned p = 0; p < kGiProfiles; ++p) {
    GiKind k;
    k.info.version = nvml::version_word(sizeof k.info, 3);
    k.profile = p;
    if (n.call("nvmlDeviceGetGpuInstanceProfileInfoV", d, p, &k.info)) continue;
    k.name = short_name(k.info.name);
    out.push_back(k);
  }
  std::stable_sort(out.begin(), out.end(), [](const GiKind& a, const GiKind& b) {
    if (a.info.slices != b.info.slices) return a.info.slices < b.info.slices;
    return a.info.memory_mib < b.info.memory_mib;
  });
  return out;
}

std::vector<CiKind> ci_kinds(Nvml& n, void* gi) {
  std::vector<CiKind> out;
  for (unsigned p = 0; p < kCiProfiles; ++p) {
    CiKind k;
    k.info.version = nvml::version_word(sizeof k.info, 3);
    k.profile = p;
    if (n.call("nvmlGpuInstanceGetComputeInstanceProfileInfoV", gi, p, 0u, &k.info)) continue;
    k.name = short_name(k.info.name);
    out.push_back(k);
  }
  return out;
}

std::vector<Gi> gpu_instances(Nvml& n, Device d) {
  std::vector<Gi> out;
  for (const GiKind& k : gi_kinds(n, d)) {
    void* handles[32];
    unsigned count = 32;
    if (n.call("nvmlDeviceGetGpuInstances", d, k.info.id, static_cast<void**>(handles), &count)) continue;
    for (unsigned i = 0; i < count; ++i) {
      Gi gi{handles[i], {}, k.name};
      if (n.call("nvmlGpuInstanceGetInfo", gi.handle, &gi.info) == 0) out.push_back(gi);
    }
  }
  return out;
}

std::vector<Ci> compute_instances(Nvml& n, const Gi& gi) {
  std::vector<Ci> out;
  for (const CiKind& k : ci_kinds(n, gi.handle)) {
    void* handles[32];
    unsigned count = 32;
    if (n.call("nvmlGpuInstanceGetComputeInstances", gi.handle, k.info.info.id, static_cast<void**>(handles),
               &count))
      continue;
    for (unsigned i = 0; i < count; ++i) {
      Ci ci{handles[i], {}, k.name};
      if (n.call("nvmlComputeInstanceGetInfo_v2", ci.handle, &ci.info) == 0) out.push_back(ci);
    }
  }
  std::sort(out.begin(), out.end(), [](const Ci& a, const Ci& b) { return a.info.id < b.info.id; });
  return out;
}

bool chosen(const std::string& list, unsigned id) {
  auto words = split(list);
  return words.empty() || std::find(words.begin(), words.end(), std::to_string(id)) != words.end();
}

unsigned index_of(Nvml& n, Device d) {
  return n.number("nvmlDeviceGetIndex", d);
}

bool enabled(Nvml& n, Device d) {
  unsigned current = 0, pending = 0;
  return n.call("nvmlDeviceGetMigMode", d, &current, &pending) == 0 && current;
}

std::string line_of(std::size_t width, char c) {
  return "+" + std::string(width, c) + "+";
}

// A box whose rows come from a function.
void print_header(std::size_t width, const std::vector<std::string>& titles) {
  puts(line_of(width, '-').c_str());
  for (const auto& t : titles) printf("|%-*s|\n", static_cast<int>(width), t.c_str());
  printf("|%s|\n", std::string(width, '=').c_str());
}

int nothing(Nvml& n, const char* what) {
  printf("No %s found: %s\n", what, n.error(nvml::kNotFound));
  return nvml::kNotFound;
}

int list_gi_profiles(Nvml& n, const std::vector<Device>& devices) {
  constexpr std::size_t kWidth = 79;
  bool any = false;
  for (Device d : devices) {
    for (const GiKind& k : gi_kinds(n, d)) {
      if (!any) {
        print_header(kWidth,
                     {" GPU instance profiles:",
                      " GPU  Name                 ID   Instances    Memory    P2P    SM   DEC   ENC",
                      "                               Free/Total       GiB           CE  JPEG   OFA"});
      }
      any = true;
      unsigned free = 0;
      n.call("nvmlDeviceGetGpuInstanceRemainingCapacity", d, k.info.id, &free);
      printf("| %3u  MIG %-15s %3u   %4u/%-4u  %8.2f    %-3s  %4u  %4u  %4u   |\n", index_of(n, d),
             k.name.c_str(), k.info.id, free, k.info.instances, static_cast<double>(k.info.memory_mib) / 1024,
             k.info.capabilities & 1 ? "Yes" : "No", k.info.multiprocessors, k.info.decoders,
             k.info.encoders);
      printf("|%58s  %4u  %4u  %4u   |\n", "", k.info.copy_engines, k.info.jpegs, k.info.ofas);
      puts(line_of(kWidth, '-').c_str());
    }
  }
  return any ? 0 : nothing(n, "GPU instance profiles");
}

std::string placement_text(const std::vector<nvml::Placement>& all) {
  std::string out;
  for (const auto& p : all) out += (out.empty() ? "" : ",") + std::to_string(p.start);
  return "{" + out + "}:" + std::to_string(all.empty() ? 0 : all[0].size);
}

int list_gi_placements(Nvml& n, const std::vector<Device>& devices) {
  bool any = false;
  for (Device d : devices) {
    for (const GiKind& k : gi_kinds(n, d)) {
      std::vector<nvml::Placement> all(32);
      unsigned count = 32;
      if (n.call("nvmlDeviceGetGpuInstancePossiblePlacements_v2", d, k.info.id, all.data(), &count)) continue;
      all.resize(count);
      any = true;
      printf("GPU %2u Profile ID %2u Placement%s: %s\n", index_of(n, d), k.info.id, count == 1 ? " " : "s",
             placement_text(all).c_str());
    }
  }
  return any ? 0 : nothing(n, "GPU instance placements");
}

int list_gis(Nvml& n, const std::vector<Device>& devices) {
  constexpr std::size_t kWidth = 55;
  bool any = false;
  for (Device d : devices) {
    for (const Gi& gi : gpu_instances(n, d)) {
      if (!any) {
        print_header(kWidth, {" GPU instances:", " GPU   Name             Profile  Instance   Placement",
                              "                          ID       ID       Start:Size"});
      }
      any = true;
      printf("| %3u  MIG %-14s %4u     %4u      %4u:%-4u  |\n", index_of(n, d), gi.name.c_str(),
             gi.info.profile_id, gi.info.id, gi.info.placement.start, gi.info.placement.size);
      puts(line_of(kWidth, '-').c_str());
    }
  }
  return any ? 0 : nothing(n, "GPU instances");
}

int list_cis(Nvml& n, const std::vector<Device>& devices, const Options& o) {
  constexpr std::size_t kWidth = 68;
  bool any = false;
  for (Device d : devices) {
    for (const Gi& gi : gpu_instances(n, d)) {
      if (!chosen(o.gis, gi.info.id)) continue;
      for (const Ci& ci : compute_instances(n, gi)) {
        if (!any) {
          print_header(
              kWidth,
              {" Compute instances:", " GPU     GPU       Name             Profile   Instance   Placement",
               "       Instance                       ID        ID       Start:Size", "         ID"});
        }
        any = true;
        printf("| %3u   %4u       MIG %-14s %4u      %4u     %4u:%-4u   |\n", index_of(n, d), gi.info.id,
               ci.name.c_str(), ci.info.profile_id, ci.info.id, ci.info.placement.start,
               ci.info.placement.size);
        puts(line_of(kWidth, '-').c_str());
      }
    }
  }
  return any ? 0 : nothing(n, "compute instances");
}

int list_ci_profiles(Nvml& n, const std::vector<Device>& devices, const Options& o) {
  constexpr std::size_t kWidth = 86;
  bool any = false;
  for (Device d : devices) {
    for (const Gi& gi : gpu_instances(n, d)) {
      if (!chosen(o.gis, gi.info.id)) continue;
      auto kinds = ci_kinds(n, gi.handle);
      for (const CiKind& k : kinds) {
        if (!any) {
          print_header(kWidth,
                       {" Compute instance profiles:",
                        " GPU    GPU        Name               Profile InstancesExclusive       Shared",
                        "     Instance                            ID  Free/Total      SM     DEC   ENC   OFA",
                        "         ID                                                          CE  JPEG"});
        }
        any = true;
        unsigned free = 0;
        n.call("nvmlGpuInstanceGetComputeInstanceRemainingCapacity", gi.handle, k.info.info.id, &free);
        // The one that fills the instance is the default.
        std::string id = std::to_string(k.info.info.id) + (&k == &kinds.back() ? "*" : "");
        printf("| %3u   %4u       MIG %-16s %4s   %4u/%-4u  %6u    %4u  %4u  %4u   |\n", index_of(n, d),
               gi.info.id, k.name.c_str(), id.c_str(), free, k.info.info.instances,
               k.info.info.multiprocessors, k.info.info.decoders, k.info.info.encoders, k.info.info.ofas);
        printf("|%65s  %4u  %4u         |\n", "", k.info.info.copy_engines, k.info.info.jpegs);
        puts(line_of(kWidth, '-').c_str());
      }
    }
  }
  return any ? 0 : nothing(n, "compute instance profiles");
}

int list_ci_placements(Nvml& n, const std::vector<Device>& devices, const Options& o) {
  bool any = false;
  for (Device d : devices) {
    for (const Gi& gi : gpu_instances(n, d)) {
      if (!chosen(o.gis, gi.info.id)) continue;
      for (const CiKind& k : ci_kinds(n, gi.handle)) {
        std::vector<nvml::Placement> all(32);
        unsigned count = 32;
        if (n.call("nvmlGpuInstanceGetComputeInstancePossiblePlacements", gi.handle, k.info.info.id,
                   all.data(), &count))
          continue;
        all.resize(count);
        any = true;
        printf("GPU %2u GI %2u Profile ID %2u Placement%s: %s\n", index_of(n, d), gi.info.id, k.info.info.id,
               count == 1 ? " " : "s", placement_text(all).c_str());
      }
    }
  }
  return any ? 0 : nothing(n, "compute instance placements");
}

// "19", "1g.5gb", "MIG 1g.5gb", each with an optional ":START".
struct Wanted {
  std::string profile;
  int start = -1;
};
Wanted wanted_of(const std::string& word) {
  Wanted w{short_name(word.c_str()), -1};
  if (std::size_t colon = w.profile.rfind(':'); colon != std::string::npos) {
    w.start = atoi(w.profile.c_str() + colon + 1);
    w.profile.resize(colon);
  }
  return w;
}
template <class Kind>
const Kind* find_kind(const std::vector<Kind>& kinds, const std::string& word, unsigned (*id)(const Kind&)) {
  for (const Kind& k : kinds) {
    if (word == k.name || word == std::to_string(id(k))) return &k;
  }
  return nullptr;
}

int create_ci(Nvml& n, unsigned gpu, const Gi& gi, const std::string& word) {
  auto kinds = ci_kinds(n, gi.handle);
  Wanted w = wanted_of(word);
  const CiKind* k = word.empty()
                        ? (kinds.empty() ? nullptr : &kinds.back())
                        : find_kind<CiKind>(kinds, w.profile, [](const CiKind& c) { return c.info.info.id; });
  if (!k) {
    printf("Unable to create a compute instance on GPU %2u GPU instance ID %2u using profile %s: %s\n", gpu,
           gi.info.id, w.profile.c_str(), n.error(nvml::kInvalidArgument));
    return nvml::kInvalidArgument;
  }
  void* ci = nullptr;
  int code = 0;
  if (w.start >= 0) {
    nvml::Placement p{static_cast<std::uint32_t>(w.start), k->info.info.slices};
    code = n.call("nvmlGpuInstanceCreateComputeInstanceWithPlacement", gi.handle, k->info.info.id,
                  static_cast<const nvml::Placement*>(&p), &ci);
  } else {
    code = n.call("nvmlGpuInstanceCreateComputeInstance", gi.handle, k->info.info.id, &ci);
  }
  if (code) {
    printf("Unable to create a compute instance on GPU %2u GPU instance ID %2u using profile %u: %s\n", gpu,
           gi.info.id, k->info.info.id, n.error(code));
    return code;
  }
  nvml::CiInfo info{};
  n.call("nvmlComputeInstanceGetInfo_v2", ci, &info);
  printf(
      "Successfully created compute instance ID %2u on GPU %2u GPU instance ID %2u using profile MIG %s (ID "
      "%2u)\n",
      info.id, gpu, gi.info.id, k->name.c_str(), k->info.info.id);
  return 0;
}

int create_gi(Nvml& n, Device d, const std::string& word, bool with_ci) {
  unsigned gpu = index_of(n, d);
  auto kinds = gi_kinds(n, d);
  Wanted w = wanted_of(word);
  const GiKind* k = find_kind<GiKind>(kinds, w.profile, [](const GiKind& g) { return g.info.id; });
  Gi gi;
  int code = nvml::kInvalidArgument;
  if (k && w.start >= 0) {
    nvml::Placement p{static_cast<std::uint32_t>(w.start), 0};
    code = n.call("nvmlDeviceCreateGpuInstanceWithPlacement", d, k->info.id,
                  static_cast<const nvml::Placement*>(&p), &gi.handle);
  } else if (k) {
    code = n.call("nvmlDeviceCreateGpuInstance", d, k->info.id, &gi.handle);
  }
  if (code) {
    printf("Unable to create a GPU instance on GPU %2u using profile %s: %s\n", gpu,
           k ? std::to_string(k->info.id).c_str() : w.profile.c_str(), n.error(code));
    printf("Failed to create GPU instances: %s\n", n.error(code));
    return code;
  }
  n.call("nvmlGpuInstanceGetInfo", gi.handle, &gi.info);
  printf("Successfully created GPU instance ID %2u on GPU %2u using profile MIG %s (ID %2u)\n", gi.info.id,
         gpu, k->name.c_str(), k->info.id);
  return with_ci ? create_ci(n, gpu, gi, "") : 0;
}

int create_gis(Nvml& n, const std::vector<Device>& devices, const Options& o) {
  for (Device d : devices) {
    for (const auto& word : split(o.create_gi)) {
      if (int code = create_gi(n, d, word, o.with_ci)) return code;
    }
  }
  return 0;
}

int create_cis(Nvml& n, const std::vector<Device>& devices, const Options& o) {
  bool any = false;
  auto words = split(o.create_ci);
  if (words.empty()) words.emplace_back();  // the default profile
  for (Device d : devices) {
    for (const Gi& gi : gpu_instances(n, d)) {
      if (!chosen(o.gis, gi.info.id)) continue;
      any = true;
      for (const auto& word : words) {
        if (int code = create_ci(n, index_of(n, d), gi, word)) {
          printf("Failed to create compute instances: %s\n", n.error(code));
          return code;
        }
      }
    }
  }
  return any ? 0 : nothing(n, "GPU instances");
}

int destroy_gis(Nvml& n, const std::vector<Device>& devices, const Options& o) {
  bool any = false;
  for (Device d : devices) {
    for (const Gi& gi : gpu_instances(n, d)) {
      if (!chosen(o.gis, gi.info.id)) continue;
      any = true;
      if (int code = n.call("nvmlGpuInstanceDestroy", gi.handle)) {
        printf("Unable to destroy GPU instance ID %2u from GPU %2u: %s\n", gi.info.id, index_of(n, d),
               n.error(code));
        printf("Failed to destroy GPU instances: %s\n", n.error(code));
        return code;
      }
      printf("Successfully destroyed GPU instance ID %2u from GPU %2u\n", gi.info.id, index_of(n, d));
    }
  }
  return any ? 0 : nothing(n, "GPU instances");
}

int destroy_cis(Nvml& n, const std::vector<Device>& devices, const Options& o) {
  bool any = false;
  for (Device d : devices) {
    for (const Gi& gi : gpu_instances(n, d)) {
      if (!chosen(o.gis, gi.info.id)) continue;
      for (const Ci& ci : compute_instances(n, gi)) {
        if (!chosen(o.cis, ci.info.id)) continue;
        any = true;
        if (int code = n.call("nvmlComputeInstanceDestroy", ci.handle)) {
          printf("Unable to destroy compute instance ID %2u from GPU %2u GPU instance ID %2u: %s\n",
                 ci.info.id, index_of(n, d), gi.info.id, n.error(code));
          printf("Failed to destroy compute instances: %s\n", n.error(code));
          return code;
        }
        printf("Successfully destroyed compute instance ID %2u from GPU %2u GPU instance ID %2u\n",
               ci.info.id, index_of(n, d), gi.info.id);
      }
    }
  }
  return any ? 0 : nothing(n, "compute instances");
}

struct Word {
  const char *brief, *full;
  bool Options::* flag;
  std::string Options::* value;
  bool optional;  // the value may be left out
};
const Word kWords[] = {
    {"-i", "--id", nullptr, &Options::gpus, false},
    {"-gi", "--gpu-instance-id", nullptr, &Options::gis, false},
    {"-ci", "--compute-instance-id", nullptr, &Options::cis, false},
    {"-cgi", "--create-gpu-instance", nullptr, &Options::create_gi, false},
    {"-C", "--default-compute-instance", &Options::with_ci, nullptr, false},
    {"-cci", "--create-compute-instance", nullptr, &Options::create_ci, true},
    {"-dgi", "--destroy-gpu-instance", &Options::destroy_gi, nullptr, false},
    {"-dci", "--destroy-compute-instance", &Options::destroy_ci, nullptr, false},
    {"-lgip", "--list-gpu-instance-profiles", &Options::list_gi_profiles, nullptr, false},
    {"-lgipp", "--list-gpu-instance-possible-placements", &Options::list_gi_placements, nullptr, false},
    {"-lgi", "--list-gpu-instances", &Options::list_gi, nullptr, false},
    {"-lcip", "--list-compute-instance-profiles", &Options::list_ci_profiles, nullptr, false},
    {"-lcipp", "--list-compute-instance-possible-placements", &Options::list_ci_placements, nullptr, false},
    {"-lci", "--list-compute-instances", &Options::list_ci, nullptr, false},
};

// False: said already.
bool parse(const std::vector<std::string>& words, Options& o, bool& create_ci) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    std::string name = words[i], value;
    std::size_t equals = name.find('=');
    if (equals != std::string::npos) {
      value = name.substr(equals + 1);
      name = name.substr(0, equals);
    }
    const Word* word = std::find_if(std::begin(kWords), std::end(kWords),
                                    [&](const Word& w) { return name == w.brief || name == w.full; });
    if (word == std::end(kWords)) {
      printf("Option \"%s\" is not recognized. Please run 'nvidia-smi mig -h' for help.\n", name.c_str());
      return false;
    }
    if (word->value == &Options::create_ci) create_ci = true;
    if (word->flag) {
      o.*(word->flag) = true;
      continue;
    }
    bool next = i + 1 < words.size() && !words[i + 1].starts_with("-");
    if (value.empty() && next) value = words[++i];
    if (value.empty() && !word->optional) {
      printf("Option \"%s\" needs a value.\n", name.c_str());
      return false;
    }
    o.*(word->value) = value;
  }
  return true;
}

int act(Nvml& n, const Options& o, bool create_ci, const std::vector<Device>& devices) {
  if (!o.create_gi.empty()) return create_gis(n, devices, o);
  if (create_ci) return create_cis(n, devices, o);
  if (o.destroy_ci) return destroy_cis(n, devices, o);
  if (o.destroy_gi) return destroy_gis(n, devices, o);
  if (o.list_gi_profiles) return list_gi_profiles(n, devices);
  if (o.list_gi_placements) return list_gi_placements(n, devices);
  if (o.list_gi) return list_gis(n, devices);
  if (o.list_ci_profiles) return list_ci_profiles(n, devices, o);
  if (o.list_ci_placements) return list_ci_placements(n, devices, o);
  if (o.list_ci) return list_cis(n, devices, o);
  puts("nvidia-smi mig: one of -lgip, -lgipp, -lgi, -lcip, -lcipp, -lci, -cgi, -cci, -dgi, -dci is needed.");
  return 2;
}

}  // namespace

int mig_command(Nvml& n, const std::vector<std::string>& words) {
  Options o;
  bool create_ci = false;
  if (!parse(words, o, create_ci)) return 2;
  std::vector<Device> all, devices;
  if (int code = select_devices(n, o.gpus, all)) return code;
  for (Device d : all) {
    if (enabled(n, d)) devices.push_back(d);
  }
  if (devices.empty()) {
    puts("No MIG-enabled devices found.");
    return nvml::kNotFound;
  }
  return act(n, o, create_ci, devices);
}

}  // namespace gpuop::sim::smi
