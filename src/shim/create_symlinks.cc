#include "base/log.h"
#include "shim/hooks.h"
#include "shim/rootfs.h"

namespace gpuop::shim {

namespace {

struct Link {
  std::string target;
  std::string path;
};

Result<Link> parse_link(const std::string& text) {
  auto colons = text.find("::");
  bool once = colons != std::string::npos && text.find("::", colons + 2) == std::string::npos;
  if (!once || colons == 0 || colons + 2 == text.size()) {
    return fail(Code::kInvalid, "invalid symlink specification " + text);
  }
  return Link{text.substr(0, colons), text.substr(colons + 2)};
}

}  // namespace

Result<> create_symlinks(const Root& root, const std::vector<std::string>& links) {
  std::vector<Link> parsed;
  for (const auto& text : links) parsed.push_back(TRY(parse_link(text)));
  for (const auto& link : parsed) {
    auto made = replace_symlink(root, link.path, link.target);
    if (made) continue;
    if (!is_read_only(made.error())) return fail(std::move(made).error());
    log::warn("left out a symlink", {{"link", link.path}, {"why", made.error()}});
  }
  return {};
}

}  // namespace gpuop::shim
