#include "cluster/fleet/service.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cluster/fleet/forwarder.h"

namespace gpuop::cluster {
namespace {

TEST(cluster_fleet, restarts_are_immediate_first_then_later_and_later) {
  RestartDelay delay;
  EXPECT_EQ(delay.next(1s, false), 0s);
  EXPECT_EQ(delay.next(1s, false), 100ms);
  EXPECT_EQ(delay.next(1s, false), 200ms);
  for (int i = 0; i < 20; ++i) delay.next(1s, false);
  EXPECT_EQ(delay.next(1s, false), 5s);
  EXPECT_EQ(delay.next(11s, false), 0s) << "it had run for a while";
  EXPECT_EQ(delay.next(1s, true), 0s) << "told to read its configuration anew";
  EXPECT_EQ(delay.next(1s, false), 0s);
}

TEST(cluster_fleet, a_service_comes_back) {
  Loop loop;
  int changes = 0;
  Service service(loop, "test", "", {.argv = {"/bin/sleep", "1000"}, .env = {}}, [&] { ++changes; });
  service.start();
  pid_t first = service.pid();
  ASSERT_GT(first, 0);
  ::kill(first, SIGKILL);
  int status = 0;
  ASSERT_EQ(::waitpid(first, &status, 0), first);
  service.ended(status);
  ASSERT_TRUE(loop.run_until([&] { return service.pid() != 0; }, 5s));
  EXPECT_NE(service.pid(), first);
  EXPECT_EQ(service.restarts(), 1);
  ::kill(service.pid(), SIGKILL);
  ::waitpid(service.pid(), nullptr, 0);
}

// A socket that talks to one port, with what has come.
struct Talker {
  Talker(Loop& l, Fd f) : loop(l), fd(std::move(f)) {
    handle = loop.on_readable(fd.get(), [this] {
      char buffer[4096];
      ssize_t n = ::recv(fd.get(), buffer, sizeof buffer, MSG_DONTWAIT);
      if (n > 0) came.append(buffer, static_cast<std::size_t>(n));
      if (n == 0) {
        ended = true;
        handle.reset();
      }
    });
  }
  Loop& loop;
  Fd fd;
  std::string came;
  bool ended = false;
  Handle handle;
};

Fd connect_to(int port) {
  Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_port = htons(static_cast<std::uint16_t>(port));
  where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&where), sizeof where), 0);
  return fd;
}

TEST(cluster_fleet, the_forwarder_carries_both_ways_and_ends_with_each_side) {
  Loop loop;
  Fd server = *listen_here("127.0.0.1", 0);
  Fd near = *listen_here("127.0.0.1", 0);
  int near_port = *port_of(near.get());
  auto forwarder = Forwarder::create(loop, std::move(near), "127.0.0.1", *port_of(server.get()));
  ASSERT_TRUE(forwarder) << forwarder.error().text();
  Talker client(loop, connect_to(near_port));
  std::unique_ptr<Talker> far;
  Handle accept = loop.on_readable(server.get(), [&] {
    far = std::make_unique<Talker>(loop, Fd(::accept4(server.get(), nullptr, nullptr, SOCK_CLOEXEC)));
    accept.reset();
  });
  ASSERT_TRUE(loop.run_until([&] { return far != nullptr; }, 5s));
  ASSERT_EQ(::send(client.fd.get(), "ask", 3, 0), 3);
  ASSERT_TRUE(loop.run_until([&] { return far->came == "ask"; }, 5s));
  // Half closed: the answer still comes.
  ::shutdown(client.fd.get(), SHUT_WR);
  ASSERT_TRUE(loop.run_until([&] { return far->ended; }, 5s));
  std::string big(1 << 20, 'x');
  std::size_t sent = 0;
  Handle write = loop.on_writable(far->fd.get(), [&] {
    ssize_t n = ::send(far->fd.get(), big.data() + sent, big.size() - sent, MSG_DONTWAIT);
    if (n > 0) sent += static_cast<std::size_t>(n);
    if (sent == big.size()) {
      ::shutdown(far->fd.get(), SHUT_WR);
      write.reset();
    }
  });
  ASSERT_TRUE(loop.run_until([&] { return client.ended; }, 5s));
  EXPECT_EQ(client.came.size(), big.size());
}

TEST(cluster_fleet, a_forwarder_whose_target_is_away_closes) {
  Loop loop;
  Fd server = *listen_here("127.0.0.1", 0);
  int port = *port_of(server.get());
  server.reset();
  Fd near = *listen_here("127.0.0.1", 0);
  int near_port = *port_of(near.get());
  auto forwarder = Forwarder::create(loop, std::move(near), "127.0.0.1", port);
  ASSERT_TRUE(forwarder);
  Talker client(loop, connect_to(near_port));
  EXPECT_TRUE(loop.run_until([&] { return client.ended; }, 5s));
}

}  // namespace
}  // namespace gpuop::cluster
