// gpuctl's control plane with --data-dir, as processes: what a restart keeps, and who may use a folder and a
// port.
#include <gtest/gtest.h>

#include <optional>

#include "base/files.h"
#include "base/inotify.h"
#include "base/process.h"
#include "base/text.h"
#include "kube/client.h"
#include "kube/config.h"

namespace gpuop {
namespace {

constexpr const char* kMaps = "/api/v1/namespaces/default/configmaps";

class data_dir : public ::testing::Test {
 protected:
  Command command(const std::string& state, const std::string& data, std::vector<std::string> more = {}) {
    EXPECT_TRUE(make_dirs(dir_.path() / state));
    Command out;
    out.argv = {BUILD_ROOT "/bin/gpuctl",       "sim-control-plane", "--state",
                (dir_.path() / state).string(), "--data-dir",        (dir_.path() / data).string()};
    out.argv.insert(out.argv.end(), more.begin(), more.end());
    return out;
  }
  // Starts one that lives until the handle goes, which kills it; waits until it listens.
  Handle start(const std::string& state, const std::string& data) {
    fs::path kubeconfig = dir_.path() / state / "kubeconfig";
    Command run = command(state, data);
    auto changed = DirWatch::create(loop_, dir_.path() / state, [] {});
    ended_.reset();
    Handle handle = run_command(loop_, run, 60s, [this](Result<ExitState> how) { ended_ = std::move(how); });
    EXPECT_TRUE(loop_.run_until([&] { return ended_ || file_exists(kubeconfig); }, 30s));
    EXPECT_FALSE(ended_) << (*ended_)->err;
    return handle;
  }
  // One that has to give up.
  ExitState refused(const std::string& state, const std::string& data, std::vector<std::string> more = {}) {
    std::optional<Result<ExitState>> how;
    Handle handle = run_command(loop_, command(state, data, std::move(more)), 30s,
                                [&](Result<ExitState> h) { how = std::move(h); });
    loop_.run_until([&] { return how.has_value(); }, 30s);
    EXPECT_TRUE(how && *how);
    return how && *how ? **how : ExitState{};
  }
  int ask(kube::Client& client, const std::string& method, const std::string& path,
          const std::string& body = {}) {
    HttpRequest request;
    request.method = method;
    request.path = path;
    request.body = body;
    if (!body.empty()) request.headers["Content-Type"] = "application/json";
    auto answer = kube::await_raw(loop_, [&](auto done) { return client.raw(request, done); });
    return answer ? answer->status : answer.error().status;
  }

  TempDir dir_;
  Loop loop_;
  std::optional<Result<ExitState>> ended_;
};

TEST_F(data_dir, a_killed_control_plane_comes_back_under_the_same_kubeconfig) {
  Handle first = start("one", "data");
  std::string kubeconfig = *read_file(dir_.path() / "one/kubeconfig");
  auto client =
      *kube::make_client(loop_, *kube::load_kubeconfig({(dir_.path() / "one/kubeconfig").string()}));
  ASSERT_EQ(ask(*client, "POST", kMaps, R"({"metadata":{"name":"kept"},"data":{"a":"b"}})"), 201);
  first.reset();
  Handle second = start("two", "data");
  EXPECT_EQ(*read_file(dir_.path() / "two/kubeconfig"), kubeconfig);
  EXPECT_EQ(*read_file(dir_.path() / "data/kubeconfig"), kubeconfig);
  auto again = *kube::make_client(loop_, *kube::load_kubeconfig({(dir_.path() / "one/kubeconfig").string()}));
  EXPECT_EQ(ask(*again, "GET", std::string(kMaps) + "/kept"), 200);
}

TEST_F(data_dir, a_status_without_the_operators_definitions_says_what_to_install) {
  Handle server = start("one", "data");
  std::optional<Result<ExitState>> how;
  Command status;
  status.argv = {BUILD_ROOT "/bin/gpuctl", "status", "--kubeconfig",
                 (dir_.path() / "one/kubeconfig").string()};
  Handle run = run_command(loop_, status, 30s, [&](Result<ExitState> h) { how = std::move(h); });
  loop_.run_until([&] { return how.has_value(); }, 30s);
  ASSERT_TRUE(how && *how);
  EXPECT_EQ((*how)->code, 2);
  EXPECT_EQ(
      (*how)->err,
      "gpuctl status: the definition clusterpolicies.nvidia.com is not installed; install the operator: "
      "helm install with its chart, or kubectl apply -k deploy\n");
  EXPECT_EQ((*how)->out, "");
}

TEST_F(data_dir, a_second_process_is_refused_in_plain_words) {
  Handle first = start("one", "data");
  std::string port(trim(*read_file(dir_.path() / "data/port")));
  ExitState same_folder = refused("two", "data");
  EXPECT_EQ(same_folder.code, 1);
  EXPECT_EQ(same_folder.err,
            "gpuctl: control plane: open data folder '" + (dir_.path() / "data").string() +
                "': another process uses this data folder; end it, or name another folder\n");
  ExitState same_port = refused("three", "other", {"--port", port});
  EXPECT_EQ(same_port.code, 1);
  EXPECT_EQ(same_port.err,
            "gpuctl: control plane: listen on '127.0.0.1:" + port + "': Address already in use\n");
}

}  // namespace
}  // namespace gpuop
