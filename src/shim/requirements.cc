#include "shim/requirements.h"

#include <algorithm>
#include <array>

#include "base/text.h"

namespace gpuop::shim {

namespace {

constexpr std::size_t kMaxRequirements = 32;

struct Comparison {
  std::string property;
  std::string op;
  std::string value;
};

std::unexpected<Error> invalid(std::string_view variable, std::string_view token) {
  return fail(Code::kInvalid, std::string(variable) + ": invalid expression '" + std::string(token) + "'");
}

Result<Comparison> parse_comparison(std::string_view variable, std::string_view token) {
  auto at = token.find_first_of("=!<>");
  if (at == std::string_view::npos || at == 0) return invalid(variable, token);
  std::size_t size = at + 1 < token.size() && token[at + 1] == '=' ? 2 : 1;
  Comparison comparison{to_lower(token.substr(0, at)), std::string(token.substr(at, size)),
                        std::string(token.substr(at + size))};
  static constexpr std::array<std::string_view, 6> kOps = {"=", "!=", "<", "<=", ">", ">="};
  static constexpr std::array<std::string_view, 4> kProperties = {"cuda", "driver", "arch", "brand"};
  if (std::ranges::find(kOps, comparison.op) == kOps.end() || comparison.value.empty())
    return invalid(variable, token);
  if (std::ranges::find(kProperties, comparison.property) == kProperties.end())
    return invalid(variable, token);
  if (comparison.property == "brand") {
    if (comparison.op != "=" && comparison.op != "!=") return invalid(variable, token);
  } else if (comparison.value.find_first_not_of("0123456789.") != std::string::npos) {
    return invalid(variable, token);
  }
  return comparison;
}

bool holds(int order, std::string_view op) {
  if (op == "=") return order == 0;
  if (op == "!=") return order != 0;
  if (op == "<") return order < 0;
  if (op == "<=") return order <= 0;
  if (op == ">") return order > 0;
  return order >= 0;
}

bool satisfied(const Comparison& comparison, const RequirementFacts& facts) {
  auto version = [&](const std::string& host) {
    return host.empty() || holds(compare_versions(host, comparison.value), comparison.op);
  };
  if (comparison.property == "cuda") return version(facts.cuda);
  if (comparison.property == "driver") return version(facts.driver);
  return std::ranges::all_of(facts.devices, [&](const auto& device) {
    if (comparison.property == "arch") return version(device.arch);
    if (device.brand.empty()) return true;
    return (to_lower(device.brand) == to_lower(comparison.value)) == (comparison.op == "=");
  });
}

Result<> check_one(std::string_view variable, std::string_view expression, const RequirementFacts& facts) {
  std::string first;
  bool any = false;
  bool met = false;
  for (const auto& alternative : split_fields(expression)) {
    bool all = true;
    bool empty = true;
    for (const auto& token : split(alternative, ',')) {
      if (token.empty()) continue;
      empty = false;
      auto comparison = TRY(parse_comparison(variable, token));
      all = satisfied(comparison, facts) && all;
    }
    if (empty) continue;
    if (!any) first = alternative;
    any = true;
    met = met || all;
  }
  if (!any || met) return {};
  std::string text = "unsatisfied condition: " + first;
  if (to_lower(first).starts_with("cuda>="))
    text += ", please update your driver to a newer version, or use an earlier cuda container";
  return fail(Code::kInvalid, text);
}

bool is_true(std::string_view text) {
  return text == "1" || text == "t" || text == "T" || text == "TRUE" || text == "true" || text == "True";
}

}  // namespace

int compare_versions(std::string_view a, std::string_view b) {
  auto left = split(a, '.');
  auto right = split(b, '.');
  for (std::size_t i = 0; i < std::max(left.size(), right.size()); ++i) {
    std::int64_t x = i < left.size() ? parse_int(left[i]).value_or(0) : 0;
    std::int64_t y = i < right.size() ? parse_int(right[i]).value_or(0) : 0;
    if (x != y) return x < y ? -1 : 1;
  }
  return 0;
}

Result<> check_requirements(const Container& container, const Config& config, const RequirementFacts& facts) {
  if (config.disable_require || is_true(container.variable("NVIDIA_DISABLE_REQUIRE"))) return {};
  std::size_t count = 0;
  for (const auto& [name, value] : container.env) {
    if (!name.starts_with("NVIDIA_REQUIRE_") || name.starts_with("NVIDIA_REQUIRE_JETPACK")) continue;
    if (++count > kMaxRequirements) {
      return fail(Code::kInvalid,
                  "more than " + std::to_string(kMaxRequirements) + " NVIDIA_REQUIRE_ variables");
    }
    TRY(check_one(name, value, facts));
  }
  if (container.legacy_image()) {
    auto parts = split(container.variable("CUDA_VERSION"), '.');
    std::string version = parts[0] + (parts.size() > 1 ? "." + parts[1] : "");
    TRY(check_one("CUDA_VERSION", "cuda>=" + version, facts));
  }
  return {};
}

}  // namespace gpuop::shim
