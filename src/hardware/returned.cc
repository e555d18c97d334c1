#include "hardware/returned.h"

#include <algorithm>

#include "base/files.h"
#include "base/inotify.h"
#include "base/log.h"
#include "hardware/nvml.h"

namespace gpuop::hardware {
namespace {

// Any UUID that is answered now and is not known.
bool another_answers(const fs::path& library, const std::vector<std::string>& known) {
  auto nvml = Nvml::open(library);
  if (!nvml) return false;
  unsigned count = (*nvml)->device_count().value_or(0);
  for (unsigned i = 0; i < count; ++i) {
    auto device = (*nvml)->device_by_index(i);
    if (!device) continue;
    auto uuid = (*nvml)->uuid(*device);
    if (uuid && std::ranges::find(known, *uuid) == known.end()) return true;
  }
  return false;
}

std::vector<std::string> gpu_nodes(const fs::path& dir) {
  auto names = list_dir(dir);
  if (!names) return {};
  std::erase_if(*names, [](const std::string& name) { return !name.starts_with("nvidia"); });
  return std::move(*names);
}

}  // namespace

bool gpus_missing(const Inventory& inventory) {
  return inventory.unread > 0 || inventory.gpus.empty();
}

struct ReturnedWatch::Impl : std::enable_shared_from_this<ReturnedWatch::Impl> {
  Impl(Loop& l, ReturnedOptions o, std::function<void()> r)
      : loop(l), options(std::move(o)), returned(std::move(r)), nodes(gpu_nodes(options.dev_dir)) {}

  void start() {
    auto watch = DirWatch::create(loop, options.dev_dir, [this] { look_at_nodes(); });
    if (watch) {
      dev = std::move(*watch);
    } else {
      log::warn("device nodes are not watched: " + watch.error().text());
    }
    wait();
  }

  void look_at_nodes() {
    auto now = gpu_nodes(options.dev_dir);
    if (now == nodes) return;
    nodes = std::move(now);
    ask();
  }

  void wait() {
    if (options.interval <= Duration(0)) return;
    timer = loop.after(options.interval, [this] {
      wait();
      ask();
    });
  }

  void ask() {
    if (!returned || !another_answers(options.nvml_library, options.known)) return;
    timer.reset();
    // Not from within the folder's own call: the watch is dropped in it.
    end = loop.after(Duration(0), [keep = weak_from_this(), call = std::exchange(returned, nullptr)] {
      if (keep.lock()) call();
    });
  }

  Loop& loop;
  ReturnedOptions options;
  std::function<void()> returned;
  std::vector<std::string> nodes;
  std::unique_ptr<DirWatch> dev;
  Handle timer, end;
};

ReturnedWatch::ReturnedWatch(Loop& loop, ReturnedOptions options, std::function<void()> returned)
    : impl_(std::make_shared<Impl>(loop, std::move(options), std::move(returned))) {
  impl_->start();
}
ReturnedWatch::~ReturnedWatch() = default;

}  // namespace gpuop::hardware
