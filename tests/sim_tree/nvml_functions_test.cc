// Every function of NVML that a driver of this generation exports, called on every profile: cases/
// nvml_functions.txt says what each answers, and how large what it writes is.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <sstream>

#include "base/text.h"
#include "driver_root.h"
#include "sim/nvml/nvml_abi.h"
#include "sim/profile.h"
#include "sim/state/mig.h"

namespace gpuop::sim {
namespace {

struct Row {
  int line = 0;
  std::string symbol;
  bool called = false;  // else only looked up
  std::vector<std::string> arguments;
  int code = 0;
  std::map<std::string, int> by_model;
};

std::vector<Row> rows() {
  std::vector<Row> out;
  std::istringstream text(*read_file(fs::path(TEST_DATA) / "cases/nvml_functions.txt"));
  std::string line;
  for (int number = 1; std::getline(text, line); ++number) {
    std::istringstream words(line);
    std::string word;
    Row row;
    row.line = number;
    bool answer = false;
    while (words >> word) {
      if (word[0] == '#') break;
      if (word == "*") continue;  // a specification names it
      if (row.symbol.empty()) {
        row.symbol = word;
      } else if (word == "=>") {
        row.called = answer = true;
      } else if (!answer) {
        row.arguments.push_back(word);
      } else if (std::size_t equals = word.find('='); equals != std::string::npos) {
        row.by_model[word.substr(0, equals)] = std::stoi(word.substr(equals + 1));
      } else {
        row.code = std::stoi(word);
      }
    }
    if (!row.symbol.empty()) out.push_back(row);
  }
  return out;
}

// Memory of a caller: `size` bytes of its own, others' behind them.
class Buffer {
 public:
  explicit Buffer(std::size_t size) : size_(size), bytes_(size + kBehind) {
    std::fill(bytes_.begin() + static_cast<std::ptrdiff_t>(size), bytes_.end(), kGuard);
  }
  unsigned char* data() { return bytes_.data(); }
  const std::vector<unsigned char>& bytes() const { return bytes_; }
  bool overrun() const {
    return std::any_of(bytes_.begin() + static_cast<std::ptrdiff_t>(size_), bytes_.end(),
                       [](unsigned char b) { return b != kGuard; });
  }

 private:
  static constexpr unsigned char kGuard = 0xA5;
  static constexpr std::size_t kBehind = 1024;
  std::size_t size_;
  std::vector<unsigned char> bytes_;
};

// A node of one model with a GPU and a compute instance where the model has them.
class Bench {
 public:
  Bench(const std::string& model, bool vgpu_host)
      : root_(model, 2), initial_(std::make_unique<State>()), vgpu_host_(vgpu_host) {
    root_.change([&](State& s) {
      s.vgpu_host = vgpu_host;
      if (!s.gpus[0].board.mig_capable) return;
      s.gpus[0].live.mig_current = s.gpus[0].live.mig_pending = 1;
      int gi = -1, ci = -1;
      EXPECT_EQ(create_gi(s.gpus[0], find_gi_profile(s.gpus[0].board, 1)->id, kNone, &gi), 0);
      EXPECT_EQ(create_ci(s, 0, gi, 1, kNone, &ci), 0);
    });
    EXPECT_EQ(file_.open((root_.kernel() / "sim/state").string()), StateFault::kNone);
    *initial_ = *file_.read();
    library_ = dlopen(root_.library("libnvidia-ml.so.1").c_str(), RTLD_NOW | RTLD_LOCAL);
    EXPECT_TRUE(library_) << dlerror();
  }
  ~Bench() { dlclose(library_); }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  template <class... Args>
  int call(const char* symbol, Args... arguments) {
    auto f = reinterpret_cast<int (*)(Args...)>(dlsym(library_, symbol));
    return f ? f(arguments...) : nvml::kFunctionNotFound;
  }
  bool exports(const std::string& symbol) const { return dlsym(library_, symbol.c_str()) != nullptr; }
  bool partitioned() const { return initial_->gpus[0].live.mig_current != 0; }
  bool vgpu_host() const { return vgpu_host_; }
  bool has_vgpus() const { return initial_->vgpu_type_count > 0; }

  void take_handles() {
    const Gpu& gpu = initial_->gpus[0];
    EXPECT_EQ(call("nvmlDeviceGetHandleByIndex_v2", 0u, &handles_["dev"]), 0);
    EXPECT_EQ(call("nvmlDeviceGetHandleByIndex_v2", 1u, &handles_["peer"]), 0);
    EXPECT_EQ(call("nvmlEventSetCreate", &handles_["set"]), 0);
    if (!partitioned()) return;
    EXPECT_EQ(call("nvmlDeviceGetMigDeviceHandleByIndex", handles_["dev"], 0u, &handles_["mig"]), 0);
    EXPECT_EQ(call("nvmlDeviceGetGpuInstanceById", handles_["dev"], gpu.live.gis[0].id, &handles_["gi"]), 0);
    EXPECT_EQ(call("nvmlGpuInstanceGetComputeInstanceById", handles_["gi"], 0u, &handles_["ci"]), 0);
  }

  // nullopt: the model has nothing to call it on. `wrong_version`: version words of what is yet to come.
  std::optional<int> run(const Row& row, bool wrong_version = false) {
    std::uint64_t words[6] = {};
    std::vector<std::unique_ptr<Buffer>> buffers;
    for (std::size_t i = 0; i < row.arguments.size() && i < 6; ++i) {
      const std::string& a = row.arguments[i];
      if (auto h = handles_.find(a); h != handles_.end() || a == "mig" || a == "gi" || a == "ci") {
        if (h == handles_.end()) return std::nullopt;
        words[i] = reinterpret_cast<std::uint64_t>(h->second);
        continue;
      }
      if (a.find_first_not_of("0123456789") == std::string::npos) {
        words[i] = std::stoull(a);
        continue;
      }
      if (a == "type") {
        words[i] = initial_->vgpu_types[0].id;
        continue;
      }
      buffers.push_back(std::make_unique<Buffer>(size_of(a)));
      fill(*buffers.back(), a, wrong_version);
      words[i] = reinterpret_cast<std::uint64_t>(buffers.back()->data());
    }
    std::vector<std::vector<unsigned char>> before;
    if (wrong_version) {
      for (const auto& b : buffers) before.push_back(b->bytes());
    }
    int code = call(row.symbol.c_str(), words[0], words[1], words[2], words[3], words[4], words[5]);
    for (std::size_t i = 0; i < buffers.size(); ++i) {
      EXPECT_FALSE(buffers[i]->overrun()) << "line " << row.line << ": " << row.symbol << ": buffer " << i;
      if (wrong_version) {
        EXPECT_TRUE(before[i] == buffers[i]->bytes())
            << "line " << row.line << ": " << row.symbol << ": written to a struct of a version not known";
      }
    }
    return code;
  }
  void restore() {
    EXPECT_EQ(file_.update([&](State& s) {
      s = *initial_;
      return 0;
    }),
              0);
  }

 private:
  static constexpr std::size_t kUnsized = 4096;

  static std::size_t size_of(const std::string& argument) {
    auto parts = split(argument, ':');
    if (parts[0] == "n") return parts.size() > 2 ? std::stoul(parts[2]) : 4;
    bool sized = parts[0] == "out" || parts[0] == "v";
    return sized && parts.size() > 1 ? std::stoul(parts.back()) : kUnsized;
  }

  void fill(Buffer& b, const std::string& argument, bool wrong_version) const {
    auto parts = split(argument, ':');
    const Board& board = initial_->gpus[0].board;
    std::string text;
    if (parts[0] == "v") {  // v:VERSION:SIZE
      auto word = nvml::version_word(std::stoul(parts[2]), static_cast<std::uint32_t>(std::stoul(parts[1])));
      word += wrong_version ? 0x10000000u : 0;
      std::memcpy(b.data(), &word, sizeof word);
    } else if (parts[0] == "n") {  // n:NUMBER
      auto word = static_cast<std::uint32_t>(std::stoul(parts[1]));
      std::memcpy(b.data(), &word, sizeof word);
    } else if (parts[0] == "uuid") {
      text = board.uuid;
    } else if (parts[0] == "serial") {
      text = board.serial;
    } else if (parts[0] == "bus") {
      char out[32];
      std::snprintf(out, sizeof out, "%08X:%02X:%02X.0", board.domain, board.bus, board.device);
      text = out;
    }
    std::memcpy(b.data() + (parts[0] == "v" ? 4 : 0), text.c_str(), text.empty() ? 0 : text.size());
  }

  DriverRoot root_;
  StateFile file_;
  std::unique_ptr<State> initial_;
  bool vgpu_host_;
  void* library_ = nullptr;
  std::map<std::string, void*> handles_;
};

bool versioned(const Row& row) {
  for (const auto& a : row.arguments) {
    if (a.starts_with("v:")) return true;
  }
  return false;
}

bool on_a_handle(const Row& row) {
  return !row.arguments.empty() && std::set<std::string>{"dev", "mig", "gi", "ci"}.contains(row.arguments[0]);
}

void check(Bench& bench, const std::string& model, const Row& row) {
  int want = row.code;
  for (const std::string& key : bench.vgpu_host() ? std::vector<std::string>{model, "host", "host:" + model}
                                                  : std::vector<std::string>{model}) {
    if (auto by = row.by_model.find(key); by != row.by_model.end()) want = by->second;
  }
  auto got = bench.run(row);
  if (!got) return;
  EXPECT_EQ(*got, want) << "line " << row.line << ": " << row.symbol << " on " << model;
  if (versioned(row)) {
    // A struct of a version that is not known is refused before anything is written.
    int code = *bench.run(row, true);
    EXPECT_TRUE(code == nvml::kArgumentVersionMismatch || code == nvml::kNotSupported ||
                (code == want && want == nvml::kInvalidArgument))
        << "line " << row.line << ": " << row.symbol << " on " << model << ": wrong version: " << code;
  }
  if (!row.symbol.starts_with("nvmlDeviceGet")) bench.restore();
}

void check_all(const std::string& model, const std::vector<Row>& table, bool vgpu_host, bool* has_vgpus) {
  Bench bench(model, vgpu_host);
  *has_vgpus = bench.has_vgpus();
  for (const Row& row : table) {
    ASSERT_TRUE(bench.exports(row.symbol)) << "line " << row.line << ": " << row.symbol;
    if (!row.called || !on_a_handle(row)) continue;
    EXPECT_EQ(bench.call(row.symbol.c_str(), nullptr, nullptr, nullptr, nullptr, nullptr, nullptr),
              nvml::kUninitialized)
        << row.symbol;
  }
  ASSERT_EQ(bench.call("nvmlInit_v2"), 0);
  bench.take_handles();
  for (const Row& row : table) {
    if (row.called) check(bench, model, row);
  }
  EXPECT_EQ(bench.call("nvmlShutdown"), 0);
}

TEST(sim_tree, nvml_exports_and_answers_every_function_on_every_profile) {
  auto table = rows();
  ASSERT_GT(table.size(), 400u);
  auto models = profile_models(built_sim() / "profiles");
  ASSERT_TRUE(models);
  EXPECT_GE(models->size(), 14u);
  int hosts = 0;
  for (const std::string& model : *models) {
    bool has_vgpus = false;
    check_all(model, table, false, &has_vgpus);
    if (!has_vgpus) continue;
    ++hosts;
    check_all(model, table, true, &has_vgpus);
  }
  EXPECT_GE(hosts, 6);
}

}  // namespace
}  // namespace gpuop::sim
