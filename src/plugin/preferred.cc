#include "plugin/preferred.h"

#include <algorithm>
#include <map>
#include <unordered_set>

namespace gpuop::plugin {
namespace {

using Scores = std::vector<std::vector<int>>;

constexpr double kMaxPartitions = 2e6;

int pair(const Scores& scores, int a, int b) {
  return scores[static_cast<std::size_t>(a)][static_cast<std::size_t>(b)];
}

int set_score(const Scores& scores, const std::vector<int>& set) {
  int total = 0;
  for (std::size_t i = 0; i < set.size(); ++i) {
    for (std::size_t k = i + 1; k < set.size(); ++k) total += pair(scores, set[i], set[k]);
  }
  return total;
}

bool holds_all(const std::vector<int>& set, const std::vector<int>& required) {
  return std::ranges::all_of(required, [&](int r) { return std::ranges::find(set, r) != set.end(); });
}

// Ways to cut n elements into full sets of `size` and, when that leaves a rest, one smaller set.
double partition_count(std::size_t n, std::size_t size) {
  double count = 1;
  std::size_t left = n;
  // The rest is chosen first, then each full set around the first remaining element.
  for (std::size_t i = 0; i < n % size; ++i)
    count = count * static_cast<double>(n - i) / static_cast<double>(i + 1);
  for (left -= n % size; left > 0; left -= size) {
    for (std::size_t i = 1; i < size; ++i)
      count = count * static_cast<double>(left - i) / static_cast<double>(i);
  }
  return count;
}

// Walks every partition in upstream's order: the first remaining element opens the next set, its companions
// in lexical order. When n is no multiple of the size, blanks behind the last element fill the one smaller
// set.
class Partitions {
 public:
  Partitions(const Scores& scores, const std::vector<int>& elements, const std::vector<int>& required,
             std::size_t size)
      : scores_(scores),
        elements_(elements),
        required_(required),
        size_(size),
        rest_(elements.size() % size) {
    used_.resize(elements.size());
  }

  std::vector<int> best() {
    cut(0);
    std::vector<int> answer;
    int answer_score = -1;
    for (const auto& set : best_) {
      if (set.size() != size_ || !holds_all(set, required_)) continue;
      if (int score = set_score(scores_, set); score > answer_score) answer = set, answer_score = score;
    }
    return answer;
  }

 private:
  void cut(int total) {
    std::size_t first = 0;
    while (first < used_.size() && used_[first]) ++first;
    if (first == used_.size()) {
      bool fits = std::ranges::any_of(
          sets_, [&](const auto& set) { return set.size() == size_ && holds_all(set, required_); });
      if (fits && total > best_score_) best_ = sets_, best_score_ = total;
      return;
    }
    used_[first] = true;
    std::vector<int> set = {elements_[first]};
    extend(set, first + 1, total);
    used_[first] = false;
  }

  void extend(std::vector<int>& set, std::size_t from, int total) {
    if (set.size() == size_) {
      close(set, total);
      return;
    }
    for (std::size_t i = from; i < elements_.size(); ++i) {
      if (used_[i]) continue;
      used_[i] = true;
      set.push_back(elements_[i]);
      extend(set, i + 1, total);
      set.pop_back();
      used_[i] = false;
    }
    // Blanks come after every real element, so the smaller set is the last of its kind.
    if (rest_ > 0 && !padded_ && set.size() == rest_) {
      padded_ = true;
      close(set, total);
      padded_ = false;
    }
  }

  void close(const std::vector<int>& set, int total) {
    sets_.push_back(set);
    cut(total + set_score(scores_, set));
    sets_.pop_back();
  }

  const Scores& scores_;
  const std::vector<int>& elements_;
  const std::vector<int>& required_;
  std::size_t size_, rest_;
  bool padded_ = false;
  std::vector<bool> used_;
  std::vector<std::vector<int>> sets_, best_;
  int best_score_ = -1;
};

// For nodes with too many partitions: grow one set by the element that scores best with what is in it.
std::vector<int> grow(const Scores& scores, const std::vector<int>& available, std::vector<int> set,
                      std::size_t size) {
  if (set.empty()) {
    std::pair<int, int> best{available[0], available[1]};
    for (std::size_t i = 0; i < available.size(); ++i) {
      for (std::size_t k = i + 1; k < available.size(); ++k) {
        if (pair(scores, available[i], available[k]) > pair(scores, best.first, best.second)) {
          best = {available[i], available[k]};
        }
      }
    }
    set = {best.first, best.second};
  }
  while (set.size() < size) {
    int chosen = -1, chosen_score = -1;
    for (int candidate : available) {
      if (std::ranges::find(set, candidate) != set.end()) continue;
      int score = 0;
      for (int member : set) score += pair(scores, candidate, member);
      if (score > chosen_score) chosen = candidate, chosen_score = score;
    }
    set.push_back(chosen);
  }
  return set;
}

bool by_place(const Device* a, const Device* b) {
  return std::tie(a->gpu_index, a->mig_index, a->replica) < std::tie(b->gpu_index, b->mig_index, b->replica);
}

std::vector<const Device*> resolve(const Offer& offer, std::span<const std::string> ids,
                                   std::string& problem) {
  std::vector<const Device*> out;
  std::unordered_set<const Device*> seen;
  for (const std::string& id : ids) {
    const Device* device = offer.find(id);
    if (!device) {
      problem = "unknown device: " + id;
    } else if (seen.insert(device).second) {
      out.push_back(device);
    }
  }
  return out;
}

std::vector<std::string> fall_back(const std::vector<const Device*>& available,
                                   const std::vector<const Device*>& required, int size) {
  std::vector<std::string> ids;
  auto add = [&](const Device* device) {
    if (std::ssize(ids) < size && std::ranges::find(ids, device->id) == ids.end()) ids.push_back(device->id);
  };
  for (const Device* device : required) add(device);
  for (const Device* device : available) add(device);
  return ids;
}

Preference aligned(const Offer& offer, const std::vector<const Device*>& available,
                   const std::vector<const Device*>& required, int size) {
  std::map<int, const Device*> by_gpu;
  std::vector<int> free, must;
  for (const Device* device : available) {
    by_gpu[device->gpu] = device;
    free.push_back(device->gpu);
  }
  for (const Device* device : required) {
    by_gpu[device->gpu] = device;
    must.push_back(device->gpu);
  }
  Preference out;
  for (int gpu : aligned_set(offer.scores, free, must, size)) out.ids.push_back(by_gpu.at(gpu)->id);
  return out;
}

// Spreads over physical GPUs, or fills them one after the other.
Preference greedy(const Offer& offer, const std::vector<const Device*>& available,
                  const std::vector<const Device*>& required, int size, bool packed) {
  std::vector<const Device*> candidates;
  for (const Device* device : available) {
    if (std::ranges::find(required, device) == required.end()) candidates.push_back(device);
  }
  int need = size - static_cast<int>(required.size());
  if (std::ssize(candidates) < need) {
    return {fall_back(available, required, size), "not enough available devices to satisfy allocation"};
  }
  // What counts as allocated on a GPU is all of its devices that are not candidates: in use, unhealthy or
  // required.
  std::map<int, int> allocated, picked;
  for (const Device& device : offer.resource.devices) ++allocated[device.gpu];
  for (const Device* device : candidates) --allocated[device->gpu];

  Preference out;
  for (const Device* device : required) out.ids.push_back(device->id);
  for (int i = 0; i < need; ++i) {
    auto rank = [&](const Device* device) {
      int count = allocated[device->gpu];
      return std::tuple(packed ? -count : count, picked[device->gpu], device->gpu_index, device->mig_index,
                        device->replica);
    };
    auto best = std::ranges::min_element(candidates, {}, rank);
    out.ids.push_back((*best)->id);
    ++allocated[(*best)->gpu];
    ++picked[(*best)->gpu];
    candidates.erase(best);
  }
  return out;
}

}  // namespace

std::vector<int> aligned_set(const Scores& scores, const std::vector<int>& available,
                             const std::vector<int>& required, int size) {
  if (size <= 0 || std::ssize(available) < size || std::ssize(required) > size ||
      required.size() > available.size()) {
    return {};
  }
  if (!holds_all(available, required)) return {};
  if (size == 1) return {required.empty() ? available.front() : required.front()};
  auto count = static_cast<std::size_t>(size);
  if (partition_count(available.size(), count) > kMaxPartitions)
    return grow(scores, available, required, count);
  return Partitions(scores, available, required, count).best();
}

Preference preferred(const Offer& offer, std::span<const std::string> available_ids,
                     std::span<const std::string> required_ids, int size) {
  std::string problem;
  auto available = resolve(offer, available_ids, problem);
  auto required = resolve(offer, required_ids, problem);
  std::ranges::sort(available, by_place);  // the kubelet's order is random

  bool whole = std::ranges::all_of(offer.resource.devices,
                                   [](const Device& d) { return !d.mig() && !d.gpu_uuid.empty(); });
  bool annotated = std::ranges::any_of(available, &Device::annotated);
  bool scored =
      std::ranges::all_of(available, [&](const Device* d) { return d->gpu < std::ssize(offer.scores); });
  Preference out;
  if (whole && !annotated && scored) {
    out = aligned(offer, available, required, size);
  } else {
    bool nvml =
        std::ranges::all_of(offer.resource.devices, [](const Device& d) { return !d.gpu_uuid.empty(); });
    bool packed = nvml && offer.settings.shared_devices_allocation_policy == "packed";
    out = greedy(offer, available, required, size, packed);
  }
  if (out.problem.empty()) out.problem = problem;
  return out;
}

}  // namespace gpuop::plugin
