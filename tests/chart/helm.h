// Our chart, rendered by real helm.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/files.h"
#include "base/json.h"
#include "base/process.h"
#include "base/yaml.h"

namespace gpuop {

inline const fs::path kChart = fs::path(SOURCE_ROOT) / "deploy/chart";

inline fs::path helm_path() {
  const std::string kubectl = env_or("GPUOP_KUBECTL");
  if (!kubectl.empty()) return fs::path(kubectl).parent_path() / "helm";
  return fs::path(env_or("XDG_CACHE_HOME", env_or("HOME") + "/.cache")) / "gpu-operator/kubectl/helm";
}

inline ExitState helm(std::vector<std::string> arguments, const std::string& values) {
  TempDir home;
  const auto file = home.path() / "values.yaml";
  EXPECT_TRUE(write_file_atomic(file, values));
  Command command;
  command.argv = {helm_path().string()};
  command.argv.insert(command.argv.end(), arguments.begin(), arguments.end());
  for (std::string more : {"gpu-operator", kChart.c_str(), "-n", "gpu-operator", "-f", file.c_str()})
    command.argv.push_back(std::move(more));
  command.env = {"HOME=" + home.path().string()};
  command.merge_output = true;
  const auto ran = run_command(command, 30s);
  if (ran) return *ran;
  ADD_FAILURE() << ran.error().text();
  return {.code = -1};
}

inline std::vector<Json> rendered(const std::string& values, std::vector<std::string> more = {}) {
  more.insert(more.begin(), "template");
  const auto ran = helm(std::move(more), values);
  EXPECT_EQ(ran.code, 0) << ran.out;
  std::vector<Json> objects;
  auto documents = parse_yaml(ran.out, "helm template");
  EXPECT_TRUE(documents) << documents.error().text();
  if (documents) {
    for (auto& document : *documents) {
      if (document.value.is_object()) objects.push_back(std::move(document.value));
    }
  }
  return objects;
}

inline Json only(const std::vector<Json>& objects, std::string_view kind, std::string_view name = {}) {
  for (const auto& object : objects) {
    if (get_string(object, {"kind"}) != kind) continue;
    if (name.empty() || get_string(object, {"metadata", "name"}) == name) return object;
  }
  ADD_FAILURE() << "no " << kind << " " << name;
  return nullptr;
}

}  // namespace gpuop
