// Our chart, rendered by real helm.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/files.h"
#include "base/json.h"
#include "base/process.h"
#include "base/text.h"
#include "base/yaml.h"

namespace gpuop {

inline const fs::path kChart = fs::path(SOURCE_ROOT) / "deploy/chart";

inline fs::path helm_path() {
  const std::string kubectl = env_or("GPUOP_KUBECTL");
  if (!kubectl.empty()) return fs::path(kubectl).parent_path() / "helm";
  return fs::path(env_or("XDG_CACHE_HOME", env_or("HOME") + "/.cache")) / "gpu-operator/kubectl/helm";
}

inline ExitState helm(std::vector<std::string> arguments, const std::string& values,
                      const fs::path& chart = kChart) {
  TempDir home;
  const auto file = home.path() / "values.yaml";
  EXPECT_TRUE(write_file_atomic(file, values));
  Command command;
  command.argv = {helm_path().string()};
  command.argv.insert(command.argv.end(), arguments.begin(), arguments.end());
  for (std::string more : {"gpu-operator", chart.c_str(), "-n", "gpu-operator", "-f", file.c_str()})
    command.argv.push_back(std::move(more));
  command.env = {"HOME=" + home.path().string()};
  command.merge_output = true;
  const auto ran = run_command(command, 30s);
  if (ran) return *ran;
  ADD_FAILURE() << ran.error().text();
  return {.code = -1};
}

// Several sets of values for one helm, which is most of what a run costs: of a chart that has ours as a part
// once for each, under the aliases c0, c1, ….
class Umbrella {
 public:
  explicit Umbrella(const std::vector<std::string>& cases) : count_(cases.size()) {
    std::string chart = "apiVersion: v2\nname: umbrella\nversion: 1.0.0\ndependencies:\n";
    for (std::size_t i = 0; i < cases.size(); ++i) {
      chart += "  - {name: gpu-operator, version: '*-0', alias: " + alias(i) + "}\n";
      // Indented, and otherwise as it was written: helm reads it itself.
      values_ += alias(i) + ":\n";
      for (const auto& line : split(cases[i], '\n')) values_ += "  " + line + "\n";
    }
    EXPECT_TRUE(make_dirs(dir_.path() / "charts"));
    EXPECT_TRUE(write_file_atomic(dir_.path() / "Chart.yaml", chart));
    fs::create_directory_symlink(kChart, dir_.path() / "charts/gpu-operator");
  }

  static std::string alias(std::size_t i) { return "c" + std::to_string(i); }
  const std::string& values() const { return values_; }

  ExitState template_of(std::vector<std::string> more = {}) const {
    more.insert(more.begin(), "template");
    return helm(std::move(more), values_, dir_.path());
  }

  // What comes of each.
  std::vector<std::vector<Json>> rendered(std::vector<std::string> more = {}) const {
    std::vector<std::vector<Json>> out(count_);
    const auto ran = template_of(std::move(more));
    EXPECT_EQ(ran.code, 0) << ran.out.substr(0, 2000);
    if (ran.code != 0) return out;
    for (const auto& part : parts(ran.out, "\n---\n")) {
      const std::string_view source = "# Source: umbrella/charts/c";
      const auto at = part.find(source);
      if (at == std::string::npos) continue;
      const auto which = static_cast<std::size_t>(std::stoul(part.substr(at + source.size())));
      auto documents = parse_yaml(part, "helm template");
      EXPECT_TRUE(documents) << documents.error().text();
      if (!documents) continue;
      for (auto& document : *documents) {
        if (document.value.is_object()) out.at(which).push_back(std::move(document.value));
      }
    }
    return out;
  }

  // What the schema has against each, by "cN:" and the lines that follow; "" where nothing.
  std::vector<std::string> refused_by_schema() const {
    std::vector<std::string> out(count_);
    std::string* of = nullptr;
    for (const auto& line : split(template_of().out, '\n')) {
      for (std::size_t i = 0; i < count_; ++i) {
        if (line == alias(i) + ":") of = &out[i];
      }
      if (of && line.starts_with("- ")) *of += line + "\n";
    }
    return out;
  }

 private:
  static std::vector<std::string> parts(const std::string& text, std::string_view separator) {
    std::vector<std::string> out;
    std::size_t from = 0;
    for (std::size_t to = 0; to != std::string::npos; from = to + separator.size()) {
      to = text.find(separator, from);
      out.push_back(text.substr(from, to == std::string::npos ? to : to - from));
    }
    return out;
  }

  std::size_t count_;
  std::string values_;
  TempDir dir_;
};

// What helm has against each; "" where it takes it. By the schema of all at once; a template tells of the
// first alone.
inline std::vector<std::string> refusals(const std::vector<std::string>& cases) {
  auto out = Umbrella(cases).refused_by_schema();
  std::vector<std::string> others;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    if (out[i].empty()) others.push_back(cases[i]);
  }
  if (others.empty() || Umbrella(others).template_of().code == 0) return out;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    if (!out[i].empty()) continue;
    const auto ran = helm({"template"}, cases[i]);
    if (ran.code != 0) out[i] = ran.out;
  }
  return out;
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
