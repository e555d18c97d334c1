// The embedded control plane: start to first answer (goal ≤ 100 ms), creates a second of 1 KiB objects over 8
// connections with the client on the same cores (goal ≥ 3,000), restart with 60,000 objects (goal ≤ 1 s), and
// what 60,000 pods cost in memory (goal ≤ 600 MiB, so that a hollow fleet of 5,000 nodes stays within 1.5
// GiB).
#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>

#include <chrono>

#include "base/files.h"
#include "base/http_server.h"
#include "base/log.h"
#include "base/process.h"
#include "base/text.h"
#include "campaign/http_client.h"
#include "cluster/apiserver/api_server.h"
#include "cluster/apiserver/pki.h"

namespace gpuop::cluster {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point from) {
  return std::chrono::duration<double>(Clock::now() - from).count();
}

std::string map_body(int number, std::size_t size) {
  std::string head = R"({"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m)" +
                     std::to_string(number) + R"("},"data":{"v":")";
  return head + std::string(size - head.size() - 3, 'x') + "\"}}";
}

// A pod as a DaemonSet's controller makes it and a kubelet reports it.
std::string pod_body(int number) {
  std::string n = std::to_string(number), node = "node-" + std::to_string(number % 5000);
  return R"({"apiVersion":"v1","kind":"Pod","metadata":{"name":"nvidia-device-plugin-daemonset-)" + n +
         R"(","namespace":"default","labels":{"app":"nvidia-device-plugin-daemonset","controller-revision-hash":"7d9c5f9f8b","helm.sh/chart":"gpu-operator-v26.3.0","pod-template-generation":"1"},"ownerReferences":[{"apiVersion":"apps/v1","kind":"DaemonSet","name":"nvidia-device-plugin-daemonset","uid":"8f3c2f6e-95a4-4a55-9a4c-5f0f3f1f8a11","controller":true,"blockOwnerDeletion":true}]},"spec":{"nodeName":")" + node + R"(","serviceAccountName":"default","priorityClassName":"system-node-critical","runtimeClassName":"","volumes":[{"name":"device-plugin","hostPath":{"path":"/var/lib/kubelet/device-plugins","type":""}},{"name":"run-nvidia","hostPath":{"path":"/run/nvidia","type":"Directory"}}],"initContainers":[{"name":"toolkit-validation","image":"ghcr.io/gpu-operator/gpu-operator:v0.1.0","command":["sh","-c"],"args":["until [ -f /run/nvidia/validations/toolkit-ready ]; do sleep 5; done"],"volumeMounts":[{"name":"run-nvidia","mountPath":"/run/nvidia"}],"securityContext":{"privileged":true}}],"containers":[{"name":"nvidia-device-plugin","image":"ghcr.io/gpu-operator/gpu-operator:v0.1.0","env":[{"name":"PASS_DEVICE_SPECS","value":"true"},{"name":"FAIL_ON_INIT_ERROR","value":"true"},{"name":"DEVICE_LIST_STRATEGY","value":"envvar,cdi-annotations"},{"name":"NVIDIA_VISIBLE_DEVICES","value":"all"},{"name":"NVIDIA_MIG_MONITOR_DEVICES","value":"all"}],"volumeMounts":[{"name":"device-plugin","mountPath":"/var/lib/kubelet/device-plugins"},{"name":"run-nvidia","mountPath":"/run/nvidia","mountPropagation":"HostToContainer"}],"securityContext":{"privileged":true}}],"tolerations":[{"key":"nvidia.com/gpu","operator":"Exists","effect":"NoSchedule"}]}})";
}

// Eight connections, each with one request on its way, in a process of its own; its seconds.
double create_over_connections(int port, int count) {
  std::vector<std::unique_ptr<HttpClient>> clients;
  std::vector<pollfd> ready;
  for (int i = 0; i < 8; ++i) {
    clients.push_back(std::make_unique<HttpClient>(port, nullptr));
    ready.push_back({clients.back()->fd(), POLLIN, 0});
  }
  int sent = 0, done = 0;
  auto next = [&](HttpClient& client) {
    if (sent < count) client.send("POST", "/api/v1/namespaces/default/configmaps", map_body(sent++, 1024));
  };
  auto began = Clock::now();
  for (auto& client : clients) next(*client);
  while (done < count) {
    if (::poll(ready.data(), ready.size(), 30000) <= 0) ::_exit(1);
    for (std::size_t i = 0; i < ready.size(); ++i) {
      if (ready[i].revents == 0) continue;
      auto answer = clients[i]->receive();
      if (!answer || answer->status != 201) ::_exit(1);
      ++done;
      next(*clients[i]);
    }
  }
  return seconds_since(began);
}

void creates(benchmark::State& state) {
  constexpr int kCount = 10000;
  const bool kept = state.range(0) != 0;
  state.SetLabel(kept ? "with --data-dir" : "in memory");
  log::setup("bench", log::Level::kError);
  for (auto _ : state) {
    TempDir dir;
    Loop loop;
    ApiServerOptions options;
    if (kept) options.data_dir = dir.path() / "data";
    auto server = ApiServer::open(loop, options);
    auto http = server ? HttpServer::create(loop, {}, (*server)->handler())
                       : Result<std::unique_ptr<HttpServer>>(fail(server.error()));
    if (!http) return state.SkipWithError(http.error().text().c_str());
    int pipe[2];
    if (::pipe(pipe) != 0) return state.SkipWithError("pipe");
    pid_t pid = ::fork();
    if (pid == 0) {
      double took = create_over_connections((*http)->port(), kCount);
      ::_exit(::write(pipe[1], &took, sizeof took) == sizeof took ? 0 : 1);
    }
    int status = -1;
    Handle exit = *on_process_exit(loop, pid, [&] { loop.stop(); });
    loop.run();
    ::waitpid(pid, &status, 0);
    double took = 0;
    bool good = status == 0 && ::read(pipe[0], &took, sizeof took) == sizeof took;
    ::close(pipe[0]);
    ::close(pipe[1]);
    if (!good) return state.SkipWithError("the client failed");
    state.SetIterationTime(took);
  }
  state.SetItemsProcessed(state.iterations() * kCount);
}
BENCHMARK(creates)->Arg(0)->Arg(1)->UseManualTime()->Iterations(3)->Unit(benchmark::kMillisecond);

// The program, from its start to the first answer over TLS, with keys to make (a first start) and without.
void start_to_first_answer(benchmark::State& state) {
  const bool again = state.range(0) != 0;
  state.SetLabel(again ? "again" : "the first time");
  TempDir dir;
  int number = 0;
  auto once = [&]() -> double {
    std::string folder = dir.path() / ("state" + std::to_string(again ? 0 : number++));
    (void)make_dirs(folder);
    sockaddr_in where{};
    where.sin_family = AF_INET;
    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof where;
    Fd listening(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::bind(listening.get(), reinterpret_cast<sockaddr*>(&where), size) != 0 ||
        ::listen(listening.get(), 8) != 0 ||
        ::getsockname(listening.get(), reinterpret_cast<sockaddr*>(&where), &size) != 0)
      return 0;
    auto began = Clock::now();
    pid_t pid = ::fork();
    if (pid == 0) {
      int fd = ::fcntl(listening.get(), F_DUPFD, 10);
      ::dup2(fd, 3);
      int null = ::open("/dev/null", O_WRONLY);
      ::dup2(null, 2);
      ::execl(BUILD_ROOT "/bin/gpuctl", "gpuctl", "sim-control-plane", "--state", folder.c_str(),
              "--listen-fd", "3", nullptr);
      ::_exit(127);
    }
    TlsIdentity nobody("", "");
    HttpClient client(ntohs(where.sin_port), &nobody);
    auto answer = client.connected() ? client.ask("GET", "/api/v1/namespaces/default") : std::nullopt;
    double took = seconds_since(began);
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    return answer && answer->status == 200 ? took : 0;
  };
  if (again) once();
  for (auto _ : state) {
    double took = once();
    if (took == 0) return state.SkipWithError("no answer");
    state.SetIterationTime(took);
  }
}
BENCHMARK(start_to_first_answer)
    ->Arg(0)
    ->Arg(1)
    ->UseManualTime()
    ->Iterations(10)
    ->Unit(benchmark::kMillisecond);

class Nobody : public HttpResponder {
 public:
  void send(HttpResponse response) override { status = response.status; }
  void begin(int, Headers) override {}
  void write(std::string) override {}
  void end() override {}
  void abort() override {}
  std::size_t buffered() const override { return 0; }
  bool closed() const override { return false; }
  void on_close(std::function<void()>) override {}
  int status = 0;
};

bool fill(Loop& loop, ApiServer& server, int count, const char* path, std::string (*body)(int)) {
  HttpHandler handler = server.handler();
  auto out = std::make_shared<Nobody>();
  for (int i = 0; i < count; ++i) {
    HttpRequest request;
    request.method = "POST";
    request.path = path;
    request.body = body(i);
    handler(std::move(request), out);
    if (i % 64 == 0) loop.run_for(Duration(1));
  }
  loop.run_for(1ms);
  return out->status == 201;
}

std::string small_body(int number) {
  return map_body(number, 1024);
}

void restart_60000(benchmark::State& state) {
  const bool pods = state.range(0) != 0;
  state.SetLabel(pods ? "pods" : "1 KiB objects");
  log::setup("bench", log::Level::kError);
  TempDir dir;
  auto loop = Loop::make_virtual(Time(std::chrono::seconds(1750000000)));
  ApiServerOptions options;
  options.data_dir = dir.path() / "data";
  {
    auto server = ApiServer::open(*loop, options);
    if (!server) return state.SkipWithError(server.error().text().c_str());
    bool good = pods ? fill(*loop, **server, 60000, "/api/v1/namespaces/default/pods", pod_body)
                     : fill(*loop, **server, 60000, "/api/v1/namespaces/default/configmaps", small_body);
    if (!good) return state.SkipWithError("objects are refused");
  }
  for (auto _ : state) {
    auto server = ApiServer::open(*loop, options);
    if (!server || (*server)->object_count() < 60000) return state.SkipWithError("objects are lost");
    state.PauseTiming();
    server = fail(Code::kUnknown, "closed");
    state.ResumeTiming();
  }
}
BENCHMARK(restart_60000)->Arg(0)->Arg(1)->Iterations(5)->Unit(benchmark::kMillisecond);

std::int64_t resident_bytes() {
  auto fields = split_fields(read_file("/proc/self/statm").value_or("0 0"));
  return parse_int(fields[1]).value_or(0) * ::sysconf(_SC_PAGESIZE);
}

// In a process of its own, so that nothing else counts.
void memory_of_60000_pods(benchmark::State& state) {
  for (auto _ : state) {
    int pipe[2];
    if (::pipe(pipe) != 0) return state.SkipWithError("pipe");
    pid_t pid = ::fork();
    if (pid == 0) {
      auto loop = Loop::make_virtual(Time(std::chrono::seconds(1750000000)));
      ::malloc_trim(0);  // what other benchmarks left
      std::int64_t before = resident_bytes();
      ApiServer server(*loop);
      bool good = fill(*loop, server, 60000, "/api/v1/namespaces/default/pods", pod_body);
      std::int64_t took = good ? resident_bytes() - before : 0;
      ::_exit(::write(pipe[1], &took, sizeof took) == sizeof took ? 0 : 1);
    }
    std::int64_t took = 0;
    bool good = ::read(pipe[0], &took, sizeof took) == sizeof took && took > 0;
    ::waitpid(pid, nullptr, 0);
    ::close(pipe[0]);
    ::close(pipe[1]);
    if (!good) return state.SkipWithError("pods are refused");
    state.counters["MiB"] = static_cast<double>(took >> 20);
    state.counters["KiB/pod"] = static_cast<double>(took) / 60000 / 1024;
  }
}
BENCHMARK(memory_of_60000_pods)->Iterations(1)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace gpuop::cluster
