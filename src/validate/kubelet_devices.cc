#include "validate/kubelet_devices.h"

#include <map>
#include <utility>
#include <vector>

#include "base/files.h"
#include "base/inotify.h"
#include "base/text.h"
#include "podresources/client.h"

namespace gpuop::validate {
namespace {

constexpr Duration kAnswerLimit = 2s;

// "nvidia.com/gpu: 8", or "" where there is none. A kubelet lists devices one by one or by their NUMA node.
std::string gpus_of(const std::vector<podresources::Allocatable>& resources) {
  std::map<std::string, std::size_t> counts;
  for (const auto& resource : resources) {
    if (is_gpu_resource(resource.resource) && !resource.ids.empty())
      counts[resource.resource] += resource.ids.size();
  }
  std::vector<std::string> parts;
  parts.reserve(counts.size());
  for (const auto& [name, count] : counts) parts.push_back(name + ": " + std::to_string(count));
  return join(parts, ", ");
}

}  // namespace

struct KubeletDevices::Impl {
  Loop& loop;
  fs::path socket;
  Duration interval;
  std::function<void(const std::string&)> found;
  std::vector<std::unique_ptr<DirWatch>> watches;
  std::unique_ptr<podresources::Client> client;
  Handle call, later;
  bool asking = false, again = false, over = false;
  std::string fault;

  void ask() {
    if (over) return;
    if (asking) {
      again = true;
      return;
    }
    if (!file_exists(socket)) return client.reset();
    if (!client) client = std::make_unique<podresources::Client>(loop, socket.string());
    asking = true;
    call = client->allocatable(kAnswerLimit, [this](auto answer) { answered(std::move(answer)); });
  }

  void answered(Result<std::vector<podresources::Allocatable>> answer) {
    asking = false;
    fault = answer ? "" : answer.error().text();
    if (answer) {
      if (const std::string gpus = gpus_of(*answer); !gpus.empty()) {
        over = true;
        return found(gpus);
      }
    } else if (answer.error().code() == Code::kUnsupported) {
      over = true;  // an old kubelet: its node status tells
      return;
    }
    if (std::exchange(again, false)) return ask();
    later = loop.after(interval, [this] { ask(); });
  }
};

KubeletDevices::KubeletDevices(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
KubeletDevices::~KubeletDevices() = default;
const std::string& KubeletDevices::fault() const {
  return impl_->fault;
}

Result<std::unique_ptr<KubeletDevices>> KubeletDevices::create(
    Loop& loop, const KubeletFolders& folders, Duration interval,
    std::function<void(const std::string&)> found) {
  auto impl =
      std::make_unique<Impl>(loop, folders.pod_resources / "kubelet.sock", interval, std::move(found));
  if (file_exists(folders.pod_resources)) {
    for (const fs::path& folder : {folders.pod_resources, folders.device_plugins}) {
      if (file_exists(folder))
        impl->watches.push_back(TRY(DirWatch::create(loop, folder, [asks = impl.get()] { asks->ask(); })));
    }
  }
  return std::unique_ptr<KubeletDevices>(new KubeletDevices(std::move(impl)));
}

bool is_gpu_resource(std::string_view name) {
  return name.starts_with("nvidia.com/gpu") || name.starts_with("nvidia.com/mig-");
}

}  // namespace gpuop::validate
