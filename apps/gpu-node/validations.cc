// validations: the validator's components one after the other in one container, and then what the container
// is for.
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <memory>

#include "base/files.h"
#include "base/log.h"
#include "base/process.h"
#include "base/text.h"
#include "cli.h"
#include "kube/client.h"
#include "kube/config.h"
#include "roles.h"
#include "validate/driver.h"
#include "validate/gates.h"
#include "validate/progress.h"
#include "validate/sequence.h"

namespace gpuop {
namespace {

// Becomes the program; only comes back when there is none.
Result<> become(std::vector<std::string> program) {
  if (program.empty()) program = {self_path().string(), "pause", "all validations are successful"};
  std::vector<char*> argv;
  argv.reserve(program.size() + 1);
  for (std::string& word : program) argv.push_back(word.data());
  argv.push_back(nullptr);
  // It starts as a container's first program does, and not with the signals blocked that we have waited for.
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::execvp(argv.front(), argv.data());
  return fail(errno_error("run '" + program.front() + "'", errno));
}

// Tells by the pod's annotation what takes long. The client is made when there is something to tell.
std::unique_ptr<validate::Progress> progress_of_pod(Loop& loop) {
  validate::ProgressOptions options;
  options.ns = env_or("POD_NAMESPACE");
  options.pod = env_or("POD_NAME");
  options.told = !env_or("VALIDATION_TOLD").empty();
  auto made = std::make_shared<std::unique_ptr<kube::Client>>();
  return std::make_unique<validate::Progress>(loop, options, [&loop, made]() -> Result<kube::Client*> {
    if (!*made) {
      kube::ClientOptions own;
      own.user_agent = "nvidia-validator";
      *made = TRY(kube::make_client(loop, TRY(kube::find_config(env_or("KUBECONFIG"))), own));
    }
    return made->get();
  });
}

Result<int> validate_all(const std::vector<std::string>& words, validate::Sequence sequence,
                         const fs::path& passed_file, bool tell) {
  sequence.steps = TRY(validate::parse_steps(words));
  sequence.validator = {self_path().string(), "validator"};
  // As the runtime has it (shim/runtime.cc).
  sequence.before_driver = !TRY(validate::module_loaded("nvidia"));
  TRY(make_dirs(sequence.output_dir));
  Loop loop;
  int stopped_by = 0;
  const Handle signals = on_signals(loop, {SIGTERM, SIGINT, SIGQUIT}, [&](int number) {
    stopped_by = number;
    loop.stop();
  });
  std::unique_ptr<validate::Progress> progress;
  if (tell) progress = progress_of_pod(loop);
  sequence.progress = progress.get();
  const auto code = validate::run_sequence(loop, sequence);
  if (stopped_by != 0) return 128 + stopped_by;
  if (code && *code == 0 && !passed_file.empty()) TRY(write_file_atomic(passed_file, ""));
  return code;
}

int release_gates(const validate::Sequence& sequence) {
  if (!sequence.gate_owner.empty()) {
    const validate::Gates gates(sequence.output_dir, sequence.gate_owner, sequence.pod);
    const auto released = gates.release();
    if (released) return 0;
    log::error(released.error().text());
  } else {
    log::error("--release: --gate-owner is missing: it names the file that says whose the gates are");
  }
  return 1;
}

}  // namespace

int validations_main(int argc, char** argv) {
  int own = 1;
  while (own < argc && std::strcmp(argv[own], "--") != 0) ++own;
  std::vector<std::string> program(argv + std::min(own + 1, argc), argv + argc);

  CLI::App app(
      "Prove stages of this node one after the other, then run PROGRAM (behind --; default: pause).");
  std::vector<std::string> words;
  validate::Sequence sequence;
  fs::path passed_file;
  bool tell = false;
  bool release = false;
  app.add_option("STEP", words, "component of the validator, followed by NAME=value of its environment");
  app.add_option("--gate-owner", sequence.gate_owner,
                 "file that says which pod's the gates are; this pod (POD_UID) takes them");
  app.add_flag("--release", release, "only give the gates back: they go, unless another pod has taken them");
  app.add_option("--record", sequence.record, "file that says what passed in this pod (POD_UID)");
  app.add_option("--passed-file", passed_file, "file that is made when all have passed");
  app.add_flag("--tell", tell,
               "say which step takes long by an annotation of this pod (POD_NAME, POD_NAMESPACE; "
               "VALIDATION_TOLD: the annotation as it is)");
  app.add_option("--output-dir", sequence.output_dir, "folder of the gate files")
      ->envname("OUTPUT_DIR")
      ->capture_default_str();
  if (auto code = parse_command_line(app, own, argv)) return *code;

  log::setup("validations");
  sequence.pod = env_or("POD_UID");
  if (release) return release_gates(sequence);
  Result<> became{};
  const auto code = validate_all(words, std::move(sequence), passed_file, tell);
  if (code && *code == 0) became = become(std::move(program));
  if (const Error* error = !code ? &code.error() : !became ? &became.error() : nullptr) {
    log::error(error->text());
    return 1;
  }
  return *code;
}

}  // namespace gpuop
