#include "sim_input.h"

#include <cstdio>
#include <set>

#include "base/files.h"
#include "base/process.h"
#include "base/text.h"
#include "base/yaml.h"
#include "data_dir.h"
#include "fleet/manifests.h"
#include "kube/object.h"
#include "policy/cluster_policy.h"
#include "policy/crds.h"
#include "policy/schema.h"
#include "sim/profile.h"

namespace gpuop {
namespace {

// Images of upstream's registry become ours, but the driver's, which comes from NVIDIA. What our image cannot
// do is switched off, and said: a demo that waits for it would wait in vain. `programs`: the names that our
// image has.
void use_our_images(Json& policy, const policy::ClusterPolicySpec& spec,
                    const std::set<std::string>& programs, std::vector<std::string>& notes) {
  const auto ours = [](Json& block) {
    set(block, {"repository"}, "ghcr.io/gpu-operator");
    set(block, {"image"}, "gpu-operator");
    set(block, {"version"}, GPUOP_VERSION);
  };
  for (std::string_view name : {"validator", "toolkit", "devicePlugin", "gfd", "dcgmExporter", "migManager",
                                "nodeStatusExporter", "dcgm"}) {
    Json* block = find_mutable(policy, {"spec", name});
    if (block && get_string(*block, {"repository"}).starts_with("nvcr.io/nvidia")) ours(*block);
  }
  Json* manager = find_mutable(policy, {"spec", "driver", "manager"});
  if (manager && get_string(*manager, {"repository"}).starts_with("nvcr.io/nvidia")) ours(*manager);

  struct Program {
    const char *field, *state, *name;
    bool wanted;
  };
  for (const Program& program :
       {Program{"migManager", "state-mig-manager", "nvidia-mig-manager", spec.mig_manager.enabled},
        Program{"dcgm", "state-dcgm", "nv-hostengine", spec.dcgm.enabled}}) {
    const auto repository = get_string(policy, {"spec", program.field, "repository"});
    const bool elsewhere = !repository.empty() && repository != "ghcr.io/gpu-operator";
    if (!program.wanted || elsewhere || programs.contains(program.name)) continue;
    set(policy, {"spec", program.field, "enabled"}, false);
    notes.push_back("spec." + std::string(program.field) + ".enabled is switched off (" + program.state +
                    "): our image has no " + program.name);
  }
  if (spec.cdi.nri_plugin_enabled) {
    set(policy, {"spec", "cdi", "nriPluginEnabled"}, false);
    notes.emplace_back(
        "spec.cdi.nriPluginEnabled is switched off (state-container-toolkit): our toolkit does not inject "
        "through NRI; "
        "the RuntimeClasses do its work");
  }
}

// The names that operands of our image can be called by.
Result<std::set<std::string>> our_programs() {
  const std::string program = (self_path().parent_path() / "gpu-node").string();
  const ExitState state = TRY(run_command(Command{{program, "--names"}, {}}, 10s));
  if (!state.ok())
    return fail(Code::kUnknown, "run '" + program + " --names': " + std::string(trim(state.err)));
  const auto names = split_fields(state.out);
  return std::set<std::string>(names.begin(), names.end());
}

std::string at_line(const fs::path& file, const YamlDocument& document, const std::string& path) {
  return "read '" + file.string() + "': line " + std::to_string(document.line_of(path));
}

Result<policy::ClusterPolicy> parse_policy(const fs::path& file, const YamlDocument& document) {
  const auto& schema = policy::cluster_policy_spec_schema();
  const Json* spec = find(document.value, {"spec"});
  // The line of the first thing that is wrong.
  const auto problems = spec ? policy::find_problems(schema, policy::normalized(schema, *spec), "spec")
                             : std::vector<policy::Problem>();
  auto parsed = TRY_IN(policy::parse_cluster_policy(document.value),
                       at_line(file, document, problems.empty() ? "spec" : problems.front().path));
  TRY_IN(policy::check(parsed.spec), at_line(file, document, "spec"));
  return parsed;
}

}  // namespace

Result<SimInput> read_sim_input(const std::string& fleet, const std::string& policy, bool our_images,
                                const std::string& program) {
  const fs::path data = TRY(data_dir());
  SimInput input;
  const fs::path fleet_file = fleet.empty() ? data / "fleets/demo.yaml" : fs::path(fleet);
  const auto models = TRY(sim::profile_models(data / "profiles"));
  const auto vgpu_models = TRY(sim::vgpu_models(data / "profiles"));
  input.fleet =
      TRY(cluster::parse_fleet(TRY(read_file(fleet_file)), fleet_file.string(), models, vgpu_models));
  for (const char* part : {"deploy/chart/crds", "deploy/manifests"}) {
    for (auto& object : TRY(gpuop::fleet::load_manifests(data / part)))
      input.objects.push_back(std::move(object));
  }
  const fs::path policy_file = policy.empty() ? data / "fleets/demo-policy.yaml" : fs::path(policy);
  for (auto& document : TRY(parse_yaml(TRY(read_file(policy_file)), policy_file.string()))) {
    const auto tell = [&](const std::string& path, const std::string& text) {
      std::fprintf(stderr, "%s: %s:%d: %s\n", program.c_str(), policy_file.c_str(), document.line_of(path),
                   text.c_str());
    };
    TRY_IN(gpuop::fleet::check_identity(document.value), at_line(policy_file, document, ""));
    for (const std::string& key : document.duplicate_keys)
      tell(key, key + ": is written twice; the last one counts");
    if (get_string(document.value, {"kind"}) == "ClusterPolicy") {
      if (!input.policy_name.empty())
        return fail(Code::kInvalid, at_line(policy_file, document, "") + ": ClusterPolicy '" +
                                        str(kube::name_of(document.value)) + "' beside ClusterPolicy '" +
                                        input.policy_name + "': only one of them would be in force");
      const auto parsed = TRY(parse_policy(policy_file, document));
      for (const auto& note : parsed.notes) tell(note.path, note.text);
      if (our_images) use_our_images(document.value, parsed.spec, TRY(our_programs()), input.changed);
      input.policy_name = parsed.name;
    }
    input.policy.push_back(std::move(document.value));
  }
  if (input.policy_name.empty()) {
    return fail(Code::kInvalid, "read '" + policy_file.string() + "': holds no object of kind ClusterPolicy");
  }
  return input;
}

}  // namespace gpuop
