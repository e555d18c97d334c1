// nvidia-persistenced, nv-fabricmanager, nvidia-cuda-mps-control and the like, as far as their outside shows:
// they go to the background, keep a pid file and a socket, and end on SIGTERM, removing both.
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <string>

namespace {

struct Files {
  std::string folder, pid, socket;
};

void make_folders(const std::string& path) {
  for (std::size_t at = 1; at <= path.size(); ++at) {
    if (at == path.size() || path[at] == '/') mkdir(path.substr(0, at).c_str(), 0755);
  }
}

// Whether the process in a pid file lives and is one of us: the file may have outlived its process, and the
// number may be another's by now.
bool runs_already(const std::string& file, const std::string& name) {
  FILE* f = fopen(file.c_str(), "re");
  if (!f) return false;
  int pid = 0;
  bool read = fscanf(f, "%d", &pid) == 1 && pid > 0 && pid != getpid();
  fclose(f);
  if (!read) return false;
  f = fopen(("/proc/" + std::to_string(pid) + "/cmdline").c_str(), "re");
  if (!f) return access("/proc/self", F_OK) != 0 && kill(pid, 0) == 0;
  char line[256] = {};
  (void)!fread(line, 1, sizeof line - 1, f);
  fclose(f);
  return std::string(line).ends_with(name);
}

// Into the background; the caller returns when the daemon's files are there.
int detach(const std::string& name, const Files& files, int (*serve)(int socket)) {
  make_folders(files.folder);
  if (runs_already(files.pid, name)) {
    fprintf(stderr, "%s: already running\n", name.c_str());
    return 1;
  }
  int ready[2];
  if (pipe2(ready, O_CLOEXEC) != 0) return 1;
  pid_t child = fork();
  if (child < 0) return 1;
  if (child > 0) {
    close(ready[1]);
    char ok = 0;
    return read(ready[0], &ok, 1) == 1 ? 0 : 1;
  }
  setsid();
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  int ends = signalfd(-1, &signals, SFD_CLOEXEC);
  int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  snprintf(address.sun_path, sizeof address.sun_path, "%s", files.socket.c_str());
  unlink(files.socket.c_str());
  if (bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      listen(listener, 16) != 0) {
    fprintf(stderr, "%s: listen on '%s': %s\n", name.c_str(), files.socket.c_str(), strerror(errno));
    _exit(1);
  }
  chmod(files.socket.c_str(), 0666);
  FILE* f = fopen(files.pid.c_str(), "we");
  if (!f) {
    fprintf(stderr, "%s: write '%s': %s\n", name.c_str(), files.pid.c_str(), strerror(errno));
    _exit(1);
  }
  fprintf(f, "%d\n", getpid());
  fclose(f);
  int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  for (int fd = 0; fd < 3; ++fd) null >= 0 ? dup2(null, fd) : close(fd);
  (void)!write(ready[1], "1", 1);
  close(ready[1]);
  while (true) {
    pollfd polled[2] = {{ends, POLLIN, 0}, {listener, POLLIN, 0}};
    if (poll(polled, 2, -1) < 0 && errno != EINTR) break;
    if (polled[0].revents) break;
    if (polled[1].revents) {
      int client = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
      bool stop = client >= 0 && serve && serve(client) != 0;
      if (client >= 0) close(client);
      if (stop) break;
    }
  }
  unlink(files.pid.c_str());
  unlink(files.socket.c_str());
  _exit(0);
}

// One command line of nvidia-cuda-mps-control; answers through the socket. Non-zero: quit.
int serve_mps(int client) {
  std::string command;
  char buffer[512];
  for (ssize_t n; command.find('\n') == std::string::npos && (n = read(client, buffer, sizeof buffer)) > 0;) {
    command.append(buffer, static_cast<std::size_t>(n));
  }
  command = command.substr(0, command.find('\n'));
  std::string answer;
  std::string verb = command.substr(0, command.find(' '));
  static std::string percentage = "100.0";
  if (verb == "get_default_active_thread_percentage") {
    answer = percentage + "\n";
  } else if (verb == "set_default_active_thread_percentage") {
    percentage = command.substr(verb.size() + (command.size() > verb.size()));
    if (percentage.find('.') == std::string::npos) percentage += ".0";
    answer = percentage + "\n";
  } else if (verb != "set_default_device_pinned_mem_limit" && verb != "get_server_list" && verb != "quit") {
    answer = "Unknown command: " + command + "\n";
  }
  (void)!write(client, answer.data(), answer.size());
  return verb == "quit" ? 1 : 0;
}

std::string env_or(const char* name, const char* fallback) {
  const char* value = getenv(name);
  return value && *value ? value : fallback;
}

int mps_control(int argc, char** argv) {
  std::string pipe_dir = env_or("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps");
  std::string log_dir = env_or("CUDA_MPS_LOG_DIRECTORY", "/var/log/nvidia-mps");
  Files files{pipe_dir, pipe_dir + "/nvidia-cuda-mps-control.pid", pipe_dir + "/control"};
  bool daemon = false;
  for (int i = 1; i < argc; ++i) daemon = daemon || strcmp(argv[i], "-d") == 0;
  if (daemon) {
    make_folders(log_dir);
    if (FILE* log = fopen((log_dir + "/control.log").c_str(), "ae")) {
      fprintf(log, "Starting control daemon using socket %s\n", files.socket.c_str());
      fclose(log);
    }
    return detach("nvidia-cuda-mps-control", files, serve_mps);
  }
  char line[512];
  while (fgets(line, sizeof line, stdin)) {
    int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    snprintf(address.sun_path, sizeof address.sun_path, "%s", files.socket.c_str());
    if (connect(s, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
      fprintf(stderr, "Cannot find MPS control daemon process\n");
      return 1;
    }
    (void)!write(s, line, strlen(line));
    char answer[512];
    for (ssize_t n; (n = read(s, answer, sizeof answer)) > 0;)
      fwrite(answer, 1, static_cast<std::size_t>(n), stdout);
    close(s);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  std::string name = argv[0];
  name = name.substr(name.rfind('/') + 1);
  if (name == "nvidia-persistenced") {
    std::string dir = "/var/run/nvidia-persistenced";
    return detach(name, {dir, dir + "/nvidia-persistenced.pid", dir + "/socket"}, nullptr);
  }
  if (name == "nv-fabricmanager") {
    std::string dir = "/var/run/nvidia-fabricmanager";
    return detach(name, {dir, dir + "/nv-fabricmanager.pid", dir + "/socket"}, nullptr);
  }
  if (name == "nvidia-cuda-mps-control") return mps_control(argc, argv);
  if (name == "nvidia-modprobe") return 0;  // the node has its modules and device nodes
  fprintf(stderr, "%s: nothing to do on a simulated node\n", name.c_str());
  return 1;
}
