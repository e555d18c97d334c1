// The page: facts in, Prometheus text out (telemetry.md §4.2, §4.3).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "telemetry/counters.h"
#include "telemetry/facts.h"
#include "telemetry/own_families.h"
#include "telemetry/pods.h"

namespace gpuop::telemetry {

using Jobs = std::map<EntityKey, std::vector<std::string>>;

struct PageStyle {
  std::string host_label = "hostname";
  std::string host;  // empty: no host label
  bool old_namespace = false;
  bool pod_uid = false;
  bool virtual_gpus = false;
  bool join_model_name = false;  // blanks in model names become '-'
};

struct PageInputs {
  const CounterSet& counters;
  const Snapshot& snapshot;
  const std::vector<EntityKey>& entities;  // sorted
  const std::map<EntityKey, std::uint64_t>& latest_xid;
  const std::vector<OwnSample>& own;
  const std::map<EntityKey, std::vector<PodUse>>& pods;
  const Jobs& jobs;
  const PageStyle& style;
};

struct Page {
  std::string text;
  std::size_t samples = 0;
  std::size_t duplicates = 0;  // samples left out because an equal one is there
  std::size_t negative = 0;    // counters left out because they were below zero
  bool shared = false;         // several pods use one entity and only the first is shown
};

Page render_page(const PageInputs& inputs);

// A label's value, with '\', '"' and newline escaped and wrong UTF-8 replaced.
std::string escape_label(std::string_view value);
std::string format_value(const Value& value);

}  // namespace gpuop::telemetry
