#include "cluster/launcher/privileges.h"

#include <grp.h>
#include <linux/capability.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <map>

#include "base/text.h"

namespace gpuop::cluster {
namespace {

using Set = std::uint64_t;

Set bits_of(const std::vector<std::string>& names) {
  Set set = 0;
  for (const std::string& name : names) {
    int number = capability_number(name);
    if (number >= 0 && !reaches_the_machine(number)) set |= Set{1} << number;
  }
  return set;
}

struct Held {
  Set permitted = 0;
};

Held held_capabilities() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, 2> data{};
  if (::syscall(SYS_capget, &header, data.data()) != 0) return {};
  return {Set{data[0].permitted} | Set{data[1].permitted} << 32};
}

Result<> set_capabilities(Set effective, Set permitted, Set inheritable) {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, 2> data{};
  for (int i = 0; i < 2; ++i) {
    data[static_cast<std::size_t>(i)] = {static_cast<std::uint32_t>(effective >> (32 * i)),
                                         static_cast<std::uint32_t>(permitted >> (32 * i)),
                                         static_cast<std::uint32_t>(inheritable >> (32 * i))};
  }
  if (::syscall(SYS_capset, &header, data.data()) != 0) return fail(errno_error("set capabilities", errno));
  return {};
}

Result<> set_limits(const std::vector<OciRlimit>& limits) {
  static const std::map<std::string_view, int> kinds{{"RLIMIT_AS", RLIMIT_AS},
                                                     {"RLIMIT_CORE", RLIMIT_CORE},
                                                     {"RLIMIT_CPU", RLIMIT_CPU},
                                                     {"RLIMIT_DATA", RLIMIT_DATA},
                                                     {"RLIMIT_FSIZE", RLIMIT_FSIZE},
                                                     {"RLIMIT_LOCKS", RLIMIT_LOCKS},
                                                     {"RLIMIT_MEMLOCK", RLIMIT_MEMLOCK},
                                                     {"RLIMIT_MSGQUEUE", RLIMIT_MSGQUEUE},
                                                     {"RLIMIT_NICE", RLIMIT_NICE},
                                                     {"RLIMIT_NOFILE", RLIMIT_NOFILE},
                                                     {"RLIMIT_NPROC", RLIMIT_NPROC},
                                                     {"RLIMIT_RSS", RLIMIT_RSS},
                                                     {"RLIMIT_RTPRIO", RLIMIT_RTPRIO},
                                                     {"RLIMIT_RTTIME", RLIMIT_RTTIME},
                                                     {"RLIMIT_SIGPENDING", RLIMIT_SIGPENDING},
                                                     {"RLIMIT_STACK", RLIMIT_STACK}};
  for (const OciRlimit& limit : limits) {
    auto kind = kinds.find(limit.type);
    if (kind == kinds.end()) return fail(Code::kInvalid, "set limit '" + limit.type + "': unknown limit");
    auto resource = static_cast<__rlimit_resource>(kind->second);
    struct rlimit now{};
    ::getrlimit(resource, &now);
    struct rlimit wanted{limit.soft, limit.hard};
    if (::setrlimit(resource, &wanted) == 0) continue;
    // Without CAP_SYS_RESOURCE a hard limit cannot be raised: as near as it can be.
    wanted = {std::min<rlim_t>(limit.soft, now.rlim_max), std::min<rlim_t>(limit.hard, now.rlim_max)};
    if (::setrlimit(resource, &wanted) != 0)
      return fail(errno_error("set limit '" + limit.type + "'", errno));
  }
  return {};
}

}  // namespace

const std::vector<std::string>& capability_names() {
  static const std::vector<std::string> names{"CAP_CHOWN",
                                              "CAP_DAC_OVERRIDE",
                                              "CAP_DAC_READ_SEARCH",
                                              "CAP_FOWNER",
                                              "CAP_FSETID",
                                              "CAP_KILL",
                                              "CAP_SETGID",
                                              "CAP_SETUID",
                                              "CAP_SETPCAP",
                                              "CAP_LINUX_IMMUTABLE",
                                              "CAP_NET_BIND_SERVICE",
                                              "CAP_NET_BROADCAST",
                                              "CAP_NET_ADMIN",
                                              "CAP_NET_RAW",
                                              "CAP_IPC_LOCK",
                                              "CAP_IPC_OWNER",
                                              "CAP_SYS_MODULE",
                                              "CAP_SYS_RAWIO",
                                              "CAP_SYS_CHROOT",
                                              "CAP_SYS_PTRACE",
                                              "CAP_SYS_PACCT",
                                              "CAP_SYS_ADMIN",
                                              "CAP_SYS_BOOT",
                                              "CAP_SYS_NICE",
                                              "CAP_SYS_RESOURCE",
                                              "CAP_SYS_TIME",
                                              "CAP_SYS_TTY_CONFIG",
                                              "CAP_MKNOD",
                                              "CAP_LEASE",
                                              "CAP_AUDIT_WRITE",
                                              "CAP_AUDIT_CONTROL",
                                              "CAP_SETFCAP",
                                              "CAP_MAC_OVERRIDE",
                                              "CAP_MAC_ADMIN",
                                              "CAP_SYSLOG",
                                              "CAP_WAKE_ALARM",
                                              "CAP_BLOCK_SUSPEND",
                                              "CAP_AUDIT_READ",
                                              "CAP_PERFMON",
                                              "CAP_BPF",
                                              "CAP_CHECKPOINT_RESTORE"};
  return names;
}

int capability_number(std::string_view name) {
  const auto& names = capability_names();
  auto found = std::find(names.begin(), names.end(), name);
  return found == names.end() ? -1 : static_cast<int>(found - names.begin());
}

bool reaches_the_machine(int capability) {
  switch (capability) {
    case CAP_SYS_MODULE:
    case CAP_SYS_RAWIO:
    case CAP_SYS_BOOT:
    case CAP_SYS_TIME:
      return true;
    default:
      return false;
  }
}

Result<> drop_privileges(const OciSpec& spec) {
  Set held = held_capabilities().permitted;
  Set bounding = bits_of(spec.capabilities.bounding);
  Set permitted = bits_of(spec.capabilities.permitted) & held;
  Set effective = bits_of(spec.capabilities.effective) & permitted;
  Set inheritable = bits_of(spec.capabilities.inheritable) & (held & bounding);
  TRY(set_limits(spec.rlimits));
  for (int cap = 0; ::prctl(PR_CAPBSET_READ, cap, 0, 0, 0) >= 0; ++cap) {
    if (bounding >> cap & 1) continue;
    if (::prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) != 0) return fail(errno_error("drop capabilities", errno));
  }
  if (::prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) != 0) return fail(errno_error("keep capabilities", errno));
  std::vector<gid_t> groups(spec.additional_gids.begin(), spec.additional_gids.end());
  if (::setgroups(groups.size(), groups.data()) != 0) return fail(errno_error("set groups", errno));
  if (::setresgid(spec.gid, spec.gid, spec.gid) != 0) {
    return fail(errno_error("set group '" + std::to_string(spec.gid) + "'", errno));
  }
  if (::setresuid(spec.uid, spec.uid, spec.uid) != 0) {
    return fail(errno_error("set user '" + std::to_string(spec.uid) + "'", errno));
  }
  ::prctl(PR_SET_KEEPCAPS, 0, 0, 0, 0);
  TRY(set_capabilities(effective, permitted, inheritable));
  ::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
  for (const std::string& name : spec.capabilities.ambient) {
    int number = capability_number(name);
    if (number >= 0 && (permitted & inheritable) >> number & 1) {
      ::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, number, 0, 0);
    }
  }
  if (spec.no_new_privileges && ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) {
    return fail(errno_error("set no_new_privs", errno));
  }
  return {};
}

Result<std::string> find_executable(const std::string& name, const std::vector<std::string>& env,
                                    const std::string& cwd) {
  auto runnable = [](const std::string& path) {
    struct stat info{};
    return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) && ::access(path.c_str(), X_OK) == 0;
  };
  if (name.empty()) return fail(Code::kInvalid, "exec: no command");
  if (name.find('/') != std::string::npos) {
    std::string path = name[0] == '/' ? name : cwd + "/" + name;
    struct stat info{};
    if (::stat(path.c_str(), &info) != 0) {
      return fail(Code::kNotFound, "exec: \"" + name + "\": stat " + path + ": no such file or directory");
    }
    if (!runnable(path)) return fail(Code::kPermission, "exec: \"" + name + "\": permission denied");
    return path;
  }
  std::string search = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
  for (const std::string& entry : env) {
    if (entry.starts_with("PATH=")) search = entry.substr(5);
  }
  for (const std::string& dir : split(search, ':')) {
    std::string path = (dir.empty() ? cwd : dir) + "/" + name;
    if (runnable(path)) return path;
  }
  return fail(Code::kNotFound, "exec: \"" + name + "\": executable file not found in $PATH");
}

Error exec_program(const std::string& path, const std::vector<std::string>& args,
                   const std::vector<std::string>& env) {
  std::vector<char*> argv, envp;
  for (const std::string& arg : args) argv.push_back(const_cast<char*>(arg.c_str()));
  for (const std::string& entry : env) envp.push_back(const_cast<char*>(entry.c_str()));
  argv.push_back(nullptr);
  envp.push_back(nullptr);
  for (int signal = 1; signal < NSIG; ++signal) ::signal(signal, SIG_DFL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::syscall(SYS_close_range, 3u, ~0u, 4u /* CLOSE_RANGE_CLOEXEC */);
  ::execve(path.c_str(), argv.data(), envp.data());
  return errno_error("exec '" + path + "'", errno);
}

}  // namespace gpuop::cluster
