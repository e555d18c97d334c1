// The operator program itself, in a process of its own; bench/operator.cc does the same with 5,000 nodes and
// measures.
#include <gtest/gtest.h>

#include "operator_load.h"

namespace gpuop::cluster::runs {
namespace {

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif
#else
constexpr bool kSanitized = false;
#endif

TEST(cluster_hollow, the_operator_program_with_fifty_nodes) {
  auto made = OperatorLoad::create(50, "v1.34.0", 1min);
  ASSERT_TRUE(made) << made.error().text();
  OperatorLoad& load = **made;
  load.start_controllers();
  ASSERT_TRUE(load.start());
  // The policy may be ready before the conditions of all nodes say so.
  const auto settled = [&] { return load.settled(300ms) && load.told_ready() == 50; };
  ASSERT_TRUE(load.loop().run_until([&] { return !load.running() || settled(); }, 2min))
      << load.policy_state() << ", " << load.labelled() << " nodes labelled, " << text_of(load.requests());
  ASSERT_TRUE(load.running());
  // A sanitizer's own memory is most of it.
  EXPECT_TRUE(kSanitized || load.figures().anonymous_mib <= 64) << load.figures().anonymous_mib;
  EXPECT_LE(sum(load.requests(), "patch nodes"), 50u * 8) << text_of(load.requests());
  EXPECT_EQ(sum(load.requests(), "list "), 0u) << text_of(load.requests());
  // A second one finds everything done.
  load.stop();
  const Requests before = load.requests();
  ASSERT_TRUE(load.start());
  const auto made_since = [&] { return minus(load.requests(), before); };
  ASSERT_TRUE(load.loop().run_until([&] { return sum(made_since(), "get customresource") > 0; }, 1min));
  ASSERT_TRUE(load.loop().run_until([&] { return load.settled(300ms); }, 1min)) << text_of(made_since());
  for (const auto& [what, count] : made_since()) {
    EXPECT_TRUE(what.starts_with("get") || what.starts_with("watch ") || what.ends_with(" leases"))
        << count << " " << what;
  }
}

// A free port, for a moment at least.
std::string free_address(Loop& loop) {
  auto server = HttpServer::create(loop, {.address = "127.0.0.1"}, [](const auto&, const auto&) {});
  return "127.0.0.1:" + std::to_string(server.value()->port());
}

// What a probe is answered; 0: nothing.
int answer_at(const std::string& address, const std::string& path) {
  const auto answer = http_get("http://" + address + path, 5s);
  return answer ? answer->status : 0;
}

// Ready is who has seen the cluster, leader or not; alive is who serves (operator.md §7.2).
TEST(cluster_hollow, the_operator_program_is_ready_when_it_has_seen_the_cluster) {
  auto made = OperatorLoad::create(1, "v1.34.0", 1min);
  ASSERT_TRUE(made) << made.error().text();
  OperatorLoad& load = **made;
  load.start_controllers();
  ASSERT_TRUE(load.start());
  ASSERT_TRUE(load.loop().run_until([&] { return load.settled(100ms); }, 1min));
  TempDir dir;
  const std::string nowhere = dir.path() / "kubeconfig";
  ASSERT_TRUE(
      write_file_atomic(nowhere, replace_all(read_file(load.kubeconfig()).value(),
                                             "server: https://127.0.0.1:", "server: https://127.0.0.2:")));
  for (const auto& [config, ready] : {std::pair{load.kubeconfig(), 200}, std::pair{nowhere, 500}}) {
    const std::string address = free_address(load.loop());
    bool ended = false;
    auto child = load.spawn(config, address, [&ended] { ended = true; });
    ASSERT_TRUE(child) << child.error().text();
    EXPECT_TRUE(load.loop().run_until([&] { return ended || answer_at(address, "/readyz") == ready; }, 1min));
    EXPECT_EQ(answer_at(address, "/healthz"), 200);
    EXPECT_EQ(answer_at(address, "/readyz"), ready);
    EXPECT_EQ(answer_at(address, "/other"), 404);
    (*child)->kill(SIGKILL);
    EXPECT_TRUE(load.loop().run_until([&] { return ended; }, 30s));
  }
}

}  // namespace
}  // namespace gpuop::cluster::runs
