// Image references (operator.md §1.6), OS tags and kernel names (§4.6).
#include "base/text.h"
#include "operator/render.h"

namespace gpuop::op {

Result<std::string> resolve_image(const policy::ImageSpec& spec, std::string_view what,
                                  std::string_view variable, const std::map<std::string, std::string>& env) {
  std::string doing = "resolve image of '" + std::string(what) + "'";
  if (spec.repository.empty() && spec.version.empty()) {
    if (!spec.image.empty()) return spec.image;
    auto found = env.find(std::string(variable));
    if (found == env.end() || found->second.empty())
      return fail(Code::kInvalid,
                  doing + ": the policy names none, and the operator's environment variable " +
                      std::string(variable) + " is not set; name its repository, image and version");
    return found->second;
  }
  if (spec.repository.empty() || spec.image.empty() || spec.version.empty()) {
    auto shown = [](const std::string& part) { return part.empty() ? std::string("empty") : part; };
    return fail(
        Code::kInvalid,
        doing + ": repository, image and version must all be set, or the image alone; got repository=" +
            shown(spec.repository) + ", image=" + shown(spec.image) + ", version=" + shown(spec.version));
  }
  std::string_view separator = spec.version.starts_with("sha256:") ? "@" : ":";
  return spec.repository + "/" + spec.image + std::string(separator) + spec.version;
}

std::string os_tag(const GpuNode& node) {
  std::string version = node.os_version;
  if (node.os_id == "rhel" || node.os_id == "rocky" || node.os_id == "ol")
    version = version.substr(0, version.find('.'));
  return node.os_id + version;
}

std::string sanitized_kernel(std::string_view kernel) {
  std::string name(kernel);
  for (std::string_view drop : {"x86_64_64k", "aarch64_64k", "x86_64", "aarch64"})
    name = replace_all(name, drop, "");
  name = replace_all(name, "_", ".");
  if (name.ends_with('.')) name.pop_back();
  return to_lower(name);
}

}  // namespace gpuop::op
