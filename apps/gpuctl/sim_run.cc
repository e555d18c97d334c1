// gpuctl sim run: a hollow fleet from bare nodes to where it should be, under faults, on a virtual clock; for
// users' own CI.
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>

#include "base/files.h"
#include "base/log.h"
#include "cli.h"
#include "cluster/faults/faults.h"
#include "cluster/hollow/fleet.h"
#include "commands.h"
#include "data_dir.h"
#include "fleet/chain.h"
#include "sim_input.h"

namespace gpuop {
namespace {

constexpr int kReached = 0, kNotReached = 1, kBadInput = 2;

// As the library converts numbers it takes octal for decimal and the largest for what is larger.
std::string seed_fault(std::string& text) {
  std::uint64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc() && at == end) {
    text = std::to_string(value);
    return {};
  }
  return "must be a whole number from 0 to " + std::to_string(UINT64_MAX) + "; got '" + text + "'";
}

struct Arguments {
  std::string fleet, policy, faults, data_dir, until = "ready", timeout = "30m", events, objects;
  std::uint64_t seed = 1;
  bool our_images = false, verbose = false;
};

double seconds(Duration d) {
  return std::chrono::duration<double>(d).count();
}

class File {
 public:
  static Result<std::unique_ptr<File>> open(const std::string& path) {
    std::FILE* file = std::fopen(path.c_str(), "we");
    if (file == nullptr) return fail(errno_error("open '" + path + "'", errno));
    return std::unique_ptr<File>(new File(file, path));
  }
  ~File() { std::fclose(file_); }
  void write(std::string_view text) { std::fwrite(text.data(), 1, text.size(), file_); }
  Result<> flush() {
    if (std::fflush(file_) != 0 || std::ferror(file_) != 0)
      return fail(errno_error("write '" + path_ + "'", errno));
    return {};
  }

 private:
  File(std::FILE* file, std::string path) : file_(file), path_(std::move(path)) {}
  std::FILE* file_;
  std::string path_;
};

// What the run needs; an error is bad input.
struct Prepared {
  op::Assets assets;
  std::unique_ptr<File> events;
  std::unique_ptr<cluster::HollowFleet> fleet;
  Duration limit{};
};

Result<> prepare(const Arguments& arguments, Prepared& out) {
  out.limit = TRY_IN(parse_go_duration(arguments.timeout), "--timeout");
  if (out.limit <= Duration::zero()) return fail(Code::kInvalid, "--timeout: must be longer than 0s");
  SimInput input =
      TRY(read_sim_input(arguments.fleet, arguments.policy, arguments.our_images, "gpuctl sim run"));
  if (!input.fleet.hollow()) {
    return fail(Code::kUnsupported,
                "'" + arguments.fleet +
                    "' has nodes with processes: write `mode: hollow` at its top, or bring it "
                    "up with gpuctl demo");
  }
  cluster::HollowFleetOptions options;
  if (!arguments.faults.empty()) {
    options.faults = TRY(cluster::parse_faults(TRY(read_file(arguments.faults)), arguments.faults));
  }
  const fs::path data = TRY(data_dir());
  out.assets = TRY(op::load_assets(data / "assets"));
  if (!arguments.events.empty()) {
    out.events = TRY(File::open(arguments.events));
    options.events = [file = out.events.get()](std::string_view line) { file->write(line); };
  } else {
    options.events = [](std::string_view) {};
  }
  options.fleet = std::move(input.fleet);
  options.objects = std::move(input.objects);
  options.data_dir = arguments.data_dir;
  if (arguments.policy.empty()) {
    options.default_policy = std::move(input.policy);
  } else {
    for (Json& object : input.policy) options.objects.push_back(std::move(object));
  }
  options.seed = arguments.seed;
  options.image = kOwnImage;
  options.profiles = data / "profiles";
  options.assets = &out.assets;
  out.fleet = TRY(cluster::HollowFleet::create(std::move(options)));
  return {};
}

// One line a fault that struck nothing; how many they are.
std::size_t tell_idle(const cluster::HollowFleet& fleet, bool stable) {
  const auto idle = fleet.idle_faults();
  for (const auto& fault : idle) {
    std::fprintf(stderr, "gpuctl sim run: warning: %s%s\n", fault.text.c_str(),
                 fault.late && !stable ? "; --until stable waits for it" : "");
  }
  return idle.size();
}

// What goes on although nothing waits for its end.
void tell_endless(const cluster::HollowFleet& fleet) {
  for (const std::string& fault : fleet.endless_faults())
    std::fprintf(stderr, "gpuctl sim run: %s\n", fault.c_str());
}

std::string why_not(const cluster::HollowFleet& fleet) {
  if (!fleet.ready()) return "First broken link: " + fleet.first_broken_link();
  if (const Duration over = fleet.faults_over(); over > fleet.events().elapsed())
    return "Everything is ready, but the faults are over only at " + format_go_duration(over);
  const std::string waits = fleet.unsettled();
  return waits.empty() ? "Everything is ready, and something is still being written: see --events"
                       : "Everything is ready, but " + waits;
}

int run(const Arguments& arguments) {
  Prepared prepared;
  if (const auto ready = prepare(arguments, prepared); !ready) {
    std::fprintf(stderr, "gpuctl sim run: %s\n", ready.error().text().c_str());
    return kBadInput;
  }
  cluster::HollowFleet& fleet = *prepared.fleet;
  for (const std::string& note : fleet.notes()) std::fprintf(stderr, "gpuctl sim run: %s\n", note.c_str());
  const auto began = std::chrono::steady_clock::now();
  const bool stable = arguments.until == "stable";
  const bool reached =
      fleet.loop().run_until([&] { return stable ? fleet.stable() : fleet.ready(); }, prepared.limit);
  const double real = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  std::printf("%s%s\n", fleet::render(fleet.chain()).c_str(), "");
  std::fflush(stdout);
  const std::size_t idle = tell_idle(fleet, stable);
  tell_endless(fleet);
  std::printf(
      "%s %s %.1f s of the fleet's clock (%.2f s here); seed %llu, %llu requests, %llu API faults%s\n",
      reached ? arguments.until.c_str() : ("not " + arguments.until).c_str(), "after",
      seconds(fleet.events().elapsed()), real, static_cast<unsigned long long>(arguments.seed),
      static_cast<unsigned long long>(fleet.requests()), static_cast<unsigned long long>(fleet.struck()),
      idle == 0 ? "" : (", " + std::to_string(idle) + " of the file's that struck nothing").c_str());
  if (prepared.events) {
    if (const auto flushed = prepared.events->flush(); !flushed) {
      std::fprintf(stderr, "gpuctl sim run: %s\n", flushed.error().text().c_str());
      return kBadInput;
    }
  }
  if (!arguments.objects.empty()) {
    if (const auto written = write_file_atomic(arguments.objects, fleet.normalised()); !written) {
      std::fprintf(stderr, "gpuctl sim run: %s\n", written.error().text().c_str());
      return kBadInput;
    }
  }
  if (reached) return kReached;
  std::fprintf(stderr, "gpuctl sim run: not %s after %s. %s\n", arguments.until.c_str(),
               format_go_duration(prepared.limit).c_str(), why_not(fleet).c_str());
  return kNotReached;
}

}  // namespace

int sim_run_main(int argc, char** argv) {
  Arguments arguments;
  CLI::App app(
      "Run a hollow fleet (`mode: hollow`) with its control plane and the operator in one thread on a "
      "virtual "
      "clock: the same files and seed replay the same run.\n"
      "Exit codes: 0 what --until names was reached; 1 it was not, and the first broken link is named; 2 a "
      "flag or file is wrong. A fault that struck nothing is named in a line of warning, which changes no "
      "exit "
      "code.");
  app.add_option("FLEET", arguments.fleet, "fleet file")->required()->check(CLI::ExistingFile);
  app.add_option("--policy", arguments.policy, "file with the ClusterPolicy, and ConfigMaps that it names")
      ->check(CLI::ExistingFile);
  app.add_option("--faults", arguments.faults, "faults file")->check(CLI::ExistingFile);
  app.add_option(
      "--data-dir", arguments.data_dir,
      "folder that keeps the cluster: the next run with it goes on where this one ended, and without "
      "--policy keeps the policy that is there (default: nothing is kept)");
  app.add_option(
         "--seed", arguments.seed,
         "of names, uids and the chances of faults; mixed with the seeds in the files, and replaces none")
      ->transform(CLI::Validator(seed_fault, "", "seed"))
      ->capture_default_str();
  app.add_option(
         "--until", arguments.until,
         "ready: the policy and every GPU node are and an operator leads, whatever faults are still to come; "
         "stable: that, all faults have come and those with an end are over (one without stays on, and is "
         "named), nothing has changed for a minute, and no container waits out a back-off")
      ->check(CLI::IsMember({"ready", "stable"}))
      ->capture_default_str();
  app.add_option("--timeout", arguments.timeout, "by the fleet's clock")->capture_default_str();
  app.add_option("--events", arguments.events, "write the event log there, one line an event");
  app.add_option("--objects", arguments.objects,
                 "write the cluster's objects there, without what differs from run to run");
  app.add_flag("--our-images", arguments.our_images,
               "replace upstream's operand images in the policy by ours");
  app.add_flag("-v,--verbose", arguments.verbose, "show what the programs log");
  if (auto code = parse_command_line(app, argc, argv)) return *code == 0 ? 0 : kBadInput;
  log::setup("gpuctl", arguments.verbose ? log::Level::kInfo : log::Level::kError);
  return run(arguments);
}

}  // namespace gpuop
