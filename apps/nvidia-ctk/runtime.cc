// nvidia-ctk runtime configure (§4.2).
#include <algorithm>
#include <cstdio>
#include <memory>

#include "base/files.h"
#include "base/log.h"
#include "base/text.h"
#include "ctk.h"
#include "toolkit/engine.h"

namespace gpuop::ctk {

namespace {

struct Configure {
  std::string engine = "docker";
  std::string config;
  std::string drop_in;
  bool drop_in_given = false;
  std::string name = "nvidia";
  std::string path;
  bool set_as_default = false;
  bool cdi = false;
  bool dry_run = false;
};

toolkit::FileText read_text(const std::string& path) {
  if (path.empty()) return std::nullopt;
  auto text = read_file(path);
  if (!text) return std::nullopt;
  return std::move(*text);
}

Result<bool> put(const std::string& path, const toolkit::FileText& before, const toolkit::FileText& after) {
  if (path.empty() || before == after || !after) return false;
  TRY(make_dirs(fs::path(path).parent_path()));
  return write_file_atomic(path, *after, 0644);
}

Result<Configure> complete(Configure flags) {
  const std::vector<std::string> engines = {"containerd", "crio", "docker"};
  if (std::ranges::find(engines, flags.engine) == engines.end()) {
    return fail(Code::kInvalid,
                "unrecognized runtime '" + flags.engine + "'" + did_you_mean(flags.engine, engines));
  }
  bool docker = flags.engine == "docker";
  bool containerd = flags.engine == "containerd";
  if (docker && flags.drop_in_given && !flags.drop_in.empty())
    return fail(Code::kInvalid, "docker has no drop-in configuration: --drop-in-config is not possible");
  if (flags.drop_in_given && flags.drop_in.empty() && !docker) {
    return fail(Code::kUnsupported,
                "--drop-in-config \"\": editing only the main file is not offered; name a drop-in file");
  }
  if (!flags.drop_in.empty() && !fs::path(flags.drop_in).is_absolute()) {
    return fail(Code::kInvalid, "the drop-in path '" + flags.drop_in + "' is not absolute");
  }
  if (flags.config.empty())
    flags.config = docker       ? "/etc/docker/daemon.json"
                   : containerd ? "/etc/containerd/config.toml"
                                : "/etc/crio/crio.conf";
  if (flags.drop_in.empty() && !docker)
    flags.drop_in =
        containerd ? "/etc/containerd/conf.d/99-nvidia.toml" : "/etc/crio/crio.conf.d/99-nvidia.toml";
  if (flags.path.empty())
    flags.path = docker ? "nvidia-container-runtime" : "/usr/bin/nvidia-container-runtime";
  if (!docker && !fs::path(flags.path).is_absolute())
    return fail(Code::kInvalid,
                "the runtime's path '" + flags.path + "' must be absolute for " + flags.engine);
  if (flags.cdi && flags.engine == "crio") log::warn("CDI is always on in CRI-O: --cdi.enabled is ignored");
  return flags;
}

Result<> run_configure(Configure given) {
  auto flags = TRY(complete(std::move(given)));
  toolkit::EngineSettings settings;
  settings.runtimes = {{flags.name, flags.path}};
  settings.default_name = flags.name;
  settings.set_as_default = flags.set_as_default;
  settings.enable_cdi = flags.cdi;
  settings.import_glob = (fs::path(flags.drop_in).parent_path() / "*.toml").string();
  toolkit::EngineFiles now{read_text(flags.config), read_text(flags.drop_in)};
  auto next = flags.engine == "containerd" ? containerd_setup(now, now.main, settings)
              : flags.engine == "crio"     ? crio_setup(now, now.main, settings)
                                           : docker_setup(now, now.main, settings);
  if (!next) return fail(std::move(next).error());
  if (flags.dry_run) {
    if (next->drop_in) std::printf("%s", next->drop_in->c_str());
    if (next->main) std::printf("%s\n", next->main->c_str());
    return {};
  }
  bool changed = TRY(put(flags.drop_in, now.drop_in, next->drop_in));
  changed = TRY(put(flags.config, now.main, next->main)) || changed;
  log::info(changed ? "It is recommended that " + flags.engine + " be restarted." : "nothing to change");
  return {};
}

}  // namespace

void add_runtime(CLI::App& root, Chosen& chosen) {
  auto* app = root.add_subcommand("runtime", "container engines");
  app->require_subcommand(1);
  auto flags = std::make_shared<Configure>();
  auto* configure = app->add_subcommand("configure", "add the NVIDIA runtime to an engine's configuration");
  configure->add_option("--runtime", flags->engine, "containerd, crio or docker");
  configure->add_option("--config", flags->config, "the engine's configuration file");
  auto* drop_in = configure->add_option("--drop-in-config", flags->drop_in, "the drop-in file");
  configure->add_option("--nvidia-runtime-name", flags->name, "the runtime's name");
  configure->add_option("--nvidia-runtime-path,--runtime-path", flags->path, "the runtime's program");
  configure->add_flag("--nvidia-set-as-default,--set-as-default", flags->set_as_default,
                      "make it the default");
  configure->add_flag("--cdi.enabled,--cdi.enable,--enable-cdi", flags->cdi, "switch CDI on");
  configure->add_flag("--dry-run", flags->dry_run, "print instead of write");
  configure->callback([flags, drop_in, &chosen] {
    flags->drop_in_given = drop_in->count() > 0;
    chosen.run = [flags] { return run_configure(*flags); };
  });
}

}  // namespace gpuop::ctk
