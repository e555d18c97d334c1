#include "base/yaml.h"
#include "operator/render.h"

namespace gpuop::op {

Result<Assets> load_assets(const fs::path& dir) {
  Assets assets;
  std::string doing = "load operand manifests '" + dir.string() + "'";
  for (const std::string& state : TRY_IN(list_dir(dir), doing)) {
    if (!fs::is_directory(dir / state)) continue;
    for (const std::string& file : TRY_IN(list_dir(dir / state), doing)) {
      if (!file.ends_with(".yaml")) continue;
      fs::path path = dir / state / file;
      std::string text = TRY_IN(read_file(path), doing);
      YamlDocument document = TRY_IN(parse_yaml_one(text, path.string()), doing);
      if (get_string(document.value, {"kind"}).empty() ||
          get_string(document.value, {"metadata", "name"}).empty())
        return fail(Code::kInvalid,
                    doing + ": '" + path.string() + "': an object needs a kind and a metadata.name");
      assets.states[state].push_back({file, std::move(document.value)});
    }
  }
  if (assets.states.empty()) return fail(Code::kNotFound, doing + ": there are none");
  return assets;
}

}  // namespace gpuop::op
