// All CDI devices of a node: the specs of some folders with their precedence, and applying them to a
// container (container-toolkit-cdi.md §1.1, §1.5, §1.6). Plain and synchronous: what a runtime does for one
// container.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "cdi/spec.h"

namespace gpuop::cdi {

// /etc/cdi, then /var/run/cdi: the later wins.
std::vector<std::filesystem::path> default_spec_dirs();

class Registry {
 public:
  // Reads every *.json and *.yaml of the folders, ascending priority. Never fails: what is wrong is in
  // errors().
  static Registry load(const std::vector<std::filesystem::path>& dirs = default_spec_dirs());
  // A registry of specs in memory, all of one priority.
  static Registry of(std::vector<Spec> specs);

  // Qualified names, sorted.
  std::vector<std::string> device_names() const;
  // The file that a device comes from; empty for one in memory and for an unknown name.
  std::filesystem::path file_of(std::string_view qualified) const;
  bool has(std::string_view qualified) const;
  // Per path (a file or a folder): what is wrong with it.
  const std::map<std::string, std::vector<std::string>>& errors() const { return errors_; }
  const std::vector<std::filesystem::path>& dirs() const { return dirs_; }

  // The edits of the devices in request order, each spec's common edits once before its first device.
  // An unknown name: "unresolvable CDI devices a, b", and nothing else.
  Result<Edits> edits_for(const std::vector<std::string>& qualified) const;
  // The same, applied to an OCI spec; nothing is changed on an error.
  Result<> inject(Json& oci, const std::vector<std::string>& qualified) const;

 private:
  struct Entry {
    std::size_t spec = 0;
    std::size_t device = 0;
    std::size_t priority = 0;
  };
  struct Loaded {
    Spec spec;
    std::filesystem::path file;
  };
  void add(Spec spec, std::filesystem::path file, std::size_t priority);
  void drop_conflicts();

  std::vector<std::filesystem::path> dirs_;
  std::vector<Loaded> specs_;
  std::map<std::string, Entry, std::less<>> devices_;
  std::map<std::string, std::size_t> conflicts_;  // name → highest priority with a conflict
  std::map<std::string, std::vector<std::string>> errors_;
};

struct ApplyOptions {
  // Where host paths of device nodes are looked up; a simulated host's root, "/" on a real one.
  std::filesystem::path host_root = "/";
};

// Applies edits to an OCI runtime spec (§1.5). Missing data of device nodes is filled in from the host.
// Errors name the device node; the spec may then be half changed: use Registry::inject for all-or-nothing.
Result<> apply(Json& oci, const Edits& edits, const ApplyOptions& options = {});

// Sets the annotation that asks for CDI devices: key cdi.k8s.io/<plugin>_<device id with / as _>, value the
// names joined by commas. Errors leave the map alone.
Result<> annotate(Annotations& annotations, std::string_view plugin, std::string_view device_id,
                  const std::vector<std::string>& qualified);

}  // namespace gpuop::cdi
