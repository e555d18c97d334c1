// modprobe, rmmod, insmod and lsmod of a simulated node: they act on the kernel tree (sim/node_tree.h).
//
// The tree is GPUOP_KERNEL_ROOT; without it, or where that folder is not there (after a chroot), the tree
// that this program lies in, or the one that its node keeps at /.gpuop-kernel.
#include <limits.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/text.h"
#include "sim/modules.h"
#include "sim/node_tree.h"

namespace {

using namespace gpuop;       // NOLINT
using namespace gpuop::sim;  // NOLINT

bool is_tree(const fs::path& root) {
  return file_exists(hardware_state_path(root));
}

fs::path find_tree() {
  if (const char* given = std::getenv("GPUOP_KERNEL_ROOT"); given && is_tree(given)) return given;
  char self[PATH_MAX];
  ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
  if (n > 0) {
    self[n] = '\0';
    for (fs::path dir = fs::path(self).parent_path(); dir.has_relative_path(); dir = dir.parent_path()) {
      if (is_tree(dir)) return dir;
    }
  }
  for (const char* usual : {"/.gpuop-kernel", "/"}) {
    if (is_tree(usual)) return usual;
  }
  return {};
}

struct Request {
  bool remove = false, all = false, quiet = false, dry_run = false, first_time = false, version = false;
  std::vector<std::string> words;
};

bool parse(int argc, char** argv, Request& r) {
  for (int i = 1; i < argc; ++i) {
    std::string a = argv[i];
    if (a == "-r" || a == "--remove")
      r.remove = true;
    else if (a == "-a" || a == "--all")
      r.all = true;
    else if (a == "-q" || a == "--quiet")
      r.quiet = true;
    else if (a == "-n" || a == "--dry-run" || a == "--show")
      r.dry_run = true;
    else if (a == "--first-time")
      r.first_time = true;
    else if (a == "-V" || a == "--version")
      r.version = true;
    else if (a == "-v" || a == "--verbose" || a == "-s" || a == "--syslog" || a == "-f" || a == "--force")
      continue;
    else if (a == "-d" || a == "--dirname" || a == "-S" || a == "--set-version" || a == "-C" ||
             a == "--config")
      ++i;
    else if (a.starts_with("-")) {
      std::fprintf(stderr, "%s: unrecognized option '%s'\n", argv[0], a.c_str());
      return false;
    } else {
      r.words.push_back(a);
    }
  }
  return true;
}

std::string underscored(const std::string& name) {
  return replace_all(name, "-", "_");
}

// "options MODULE key=value …" lines of /etc/modprobe.d, and what the command line adds.
std::vector<std::string> parameters_of(const std::string& module, const std::vector<std::string>& given) {
  std::vector<std::string> out;
  if (auto names = list_dir("/etc/modprobe.d")) {
    for (const auto& name : *names) {
      if (!name.ends_with(".conf")) continue;
      auto text = read_file(fs::path("/etc/modprobe.d") / name);
      if (!text) continue;
      for (const auto& line : split(*text, '\n')) {
        auto words = split_fields(line);
        if (words.size() < 3 || words[0] != "options" || underscored(words[1]) != module) continue;
        out.insert(out.end(), words.begin() + 2, words.end());
      }
    }
  }
  out.insert(out.end(), given.begin(), given.end());
  return out;
}

int lsmod(const fs::path& root) {
  auto text = read_file(root / "proc/modules");
  if (!text) return std::fprintf(stderr, "lsmod: %s\n", text.error().text().c_str()), 1;
  std::printf("Module                  Size  Used by\n");
  for (const auto& line : split(*text, '\n')) {
    auto f = split_fields(line);
    if (f.size() < 4) continue;
    std::string by = f[3] == "-" ? "" : f[3].substr(0, f[3].size() - 1);
    std::printf("%-19s %8s  %s%s%s\n", f[0].c_str(), f[1].c_str(), f[2].c_str(), by.empty() ? "" : " ",
                by.c_str());
  }
  return 0;
}

int rmmod(const fs::path& root, const Request& r) {
  int code = 0;
  for (const auto& name : r.words) {
    auto done = unload_module(root, name);
    if (done) continue;
    std::string why = done.error().text();
    std::size_t at = why.rfind("': ");
    std::fprintf(stderr, "rmmod: ERROR: %s\n",
                 at == std::string::npos ? why.c_str() : why.substr(at + 3).c_str());
    code = 1;
  }
  return code;
}

int remove(const fs::path& root, const Request& r) {
  int code = 0;
  for (const auto& name : r.words) {
    if (!module_loaded(root, name)) {
      if (r.first_time) code = 1;
      continue;
    }
    // What only this module needed goes with it.
    for (const std::string& each : removal_order(underscored(name))) {
      if (!module_loaded(root, each)) continue;
      auto done = unload_module(root, each);
      if (!done && each == underscored(name)) {
        std::fprintf(stderr, "modprobe: FATAL: Module %s is in use.\n", name.c_str());
        code = 1;
        break;
      }
    }
  }
  return code;
}

int load(const fs::path& root, const Request& r) {
  std::vector<std::string> modules = r.words, given;
  if (!r.all && modules.size() > 1) {
    given.assign(modules.begin() + 1, modules.end());
    modules.resize(1);
  }
  int code = 0;
  for (const auto& name : modules) {
    bool was = module_loaded(root, name);
    if (was && r.first_time) {
      std::fprintf(stderr, "modprobe: ERROR: could not insert '%s': Module already in kernel\n",
                   name.c_str());
      code = 1;
      continue;
    }
    if (r.dry_run) continue;
    auto done = load_module(root, name);
    if (!done) {
      std::string why = done.error().text();
      if (!r.quiet || done.error().code() != Code::kNotFound) {
        if (done.error().code() == Code::kNotFound)
          std::fprintf(stderr, "modprobe: FATAL: %s\n", why.c_str());
        else
          std::fprintf(stderr, "modprobe: ERROR: could not insert '%s': %s\n", name.c_str(), why.c_str());
      }
      code = 1;
    } else if (!was) {
      auto kept = set_module_parameters(root, underscored(name), parameters_of(underscored(name), given));
      if (!kept) std::fprintf(stderr, "modprobe: %s\n", kept.error().text().c_str());
    }
  }
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  std::string name = argv[0];
  name = name.substr(name.rfind('/') + 1);
  Request r;
  if (!parse(argc, argv, r)) return 1;
  if (r.version) return std::puts("kmod version 30 (simulated)"), 0;
  fs::path root = find_tree();
  if (root.empty()) {
    std::fprintf(stderr, "%s: no simulated kernel here: set GPUOP_KERNEL_ROOT\n", name.c_str());
    return 1;
  }
  if (name == "lsmod") return lsmod(root);
  if (r.words.empty()) {
    std::fprintf(stderr, "%s: ERROR: missing module name\n", name.c_str());
    return 1;
  }
  if (name == "rmmod") return rmmod(root, r);
  if (name == "insmod") {
    for (auto& w : r.words) w = fs::path(w).stem().string();
  }
  return r.remove ? remove(root, r) : load(root, r);
}
