// Jobs: pods that run to their end (kubernetes-api.md §14.2).
#include <algorithm>

#include "base/log.h"
#include "cluster/controllers/claims.h"

namespace gpuop::cluster {
namespace {

constexpr Duration kFirstBackoff = 10s;
constexpr Duration kLongestBackoff = 6min;

struct JobFacts {
  std::int64_t active = 0, ready = 0, succeeded = 0, failed = 0, restarts = 0, terminating = 0;
  Time last_failure{};
  std::vector<OwnedPod> running;
};

bool has_condition(const Json& job, std::string_view type) {
  const Json* found = kube::condition(job, type);
  return found != nullptr && get_string(*found, {"status"}) == "True";
}

class JobController final : public Controller {
 public:
  explicit JobController(Context& context)
      : context_(context),
        recorder_(context.client, "job-controller"),
        queue_(context.loop,
               [this](const std::string& key, auto finished) { sync(key, std::move(finished)); },
               {.workers = 8}) {}

  void start() override {
    context_.jobs.on_change([this](const Object& old, const Object& now) {
      if (now) {
        queue_.add(kube::object_key(*now));
      } else {
        counted_.erase(str(kube::uid_of(*old)));
      }
    });
    context_.pods.on_change([this](const Object& old, const Object& now) {
      const Json* owner = now ? nullptr : kube::controller_of(*old);
      if (owner != nullptr && get_string(*owner, {"kind"}) == "Job" && is_finished(*old))
        keep_count(*old, str(get_string(*owner, {"uid"})));
      for (const std::string& key : concerned(context_.jobs, kube::kJobs, old, now)) queue_.add(key);
    });
  }

 private:
  // Ended pods that were removed still count.
  struct Counted {
    std::int64_t succeeded = 0, failed = 0;
  };
  void keep_count(const Json& pod, const std::string& job_uid) {
    Counted& counted = counted_[job_uid];
    (get_string(pod, {"status", "phase"}) == "Succeeded" ? counted.succeeded : counted.failed) += 1;
  }

  JobFacts observe(const Json& job) {
    JobFacts out;
    const std::string uid = str(kube::uid_of(job));
    if (const auto found = counted_.find(uid); found != counted_.end()) {
      out.succeeded = found->second.succeeded;
      out.failed = found->second.failed;
    }
    for (OwnedPod& entry : context_.pod_control.pods_of(uid)) {
      const std::string_view phase = get_string(*entry.pod, {"status", "phase"});
      if (phase == "Succeeded") {
        ++out.succeeded;
      } else if (phase == "Failed") {
        ++out.failed;
        const Json* ready = kube::condition(*entry.pod, "Ready");
        const auto at =
            ready == nullptr ? Result<Time>(Time()) : parse_time(get_string(*ready, {"lastTransitionTime"}));
        out.last_failure = std::max(out.last_failure, at.value_or(Time()));
      } else if (!entry.terminating) {
        ++out.active;
        out.ready += is_ready(*entry.pod);
        for (const Json& status : get_array(*entry.pod, {"status", "containerStatuses"})) {
          out.restarts += get_int(status, {"restartCount"});
        }
        out.running.push_back(std::move(entry));
      } else {
        ++out.terminating;
      }
    }
    out.succeeded = std::max(out.succeeded, get_int(job, {"status", "succeeded"}));
    out.failed = std::max(out.failed, get_int(job, {"status", "failed"}));
    return out;
  }

  void sync(const std::string& key, std::function<void(bool)> finished) {
    const Object job = context_.jobs.get(key);
    if (!job || is_terminating(*job)) return finished(true);
    if (has_condition(*job, "Complete") || has_condition(*job, "Failed"))
      return outlive(key, *job, std::move(finished));
    if (const Claims claims = claims_of(context_.pods, *job); !claims.empty())
      return write_claims(context_, kube::kJobs, *job, kube::kPods, claims, std::move(finished));
    const JobFacts facts = observe(*job);
    Gather gather(context_.loop, std::move(finished));
    const Time now = context_.loop.now();
    const auto started = parse_time(get_string(*job, {"status", "startTime"}));
    // Without a number, one success is enough: the pods share a queue of work.
    const bool queue = !has(*job, {"spec", "completions"});
    const std::int64_t completions =
        queue ? std::max<std::int64_t>(get_int(*job, {"spec", "parallelism"}, 1), 1)
              : get_int(*job, {"spec", "completions"});
    const std::int64_t limit = get_int(*job, {"spec", "backoffLimit"}, 6);
    const bool on_failure = get_string(*job, {"spec", "template", "spec", "restartPolicy"}) == "OnFailure";
    const std::int64_t deadline = get_int(*job, {"spec", "activeDeadlineSeconds"});
    Time expires{};
    if (deadline > 0) expires = (started ? *started : now) + std::chrono::seconds(deadline);
    const std::int64_t failures = facts.failed + (on_failure ? facts.restarts : 0);
    if (failures > limit) {
      finish(*job, facts, "Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit",
             gather);
    } else if (expires != Time() && now >= expires) {
      finish(*job, facts, "Failed", "DeadlineExceeded", "Job was active longer than specified deadline",
             gather);
    } else if (queue ? facts.succeeded > 0 && facts.active == 0 : facts.succeeded >= completions) {
      finish(*job, facts, "Complete", "CompletionsReached", "Reached expected number of succeeded pods",
             gather);
    } else {
      if (expires != Time()) queue_.add_after(key, expires - now);
      const bool held = get_bool(*job, {"spec", "suspend"});
      JobFacts after = facts;
      std::int64_t created = 0;
      if (held) {
        hold(*job, after, gather);
      } else {
        created = top_up(key, *job, facts, completions, gather);
      }
      write_status(*job, after, created, suspension(*job, held), {}, gather);
    }
    gather.close();
  }

  // A job that is suspended has no pods.
  void hold(const Json& job, JobFacts& facts, Gather& gather) {
    for (const OwnedPod& entry : facts.running) {
      if (!entry.expected) context_.pod_control.remove(job, *entry.pod, gather.step());
    }
    facts.active = 0;
    facts.ready = 0;
  }

  // The conditions with the one that tells whether the job is held, once it has been.
  JsonArray suspension(const Json& job, bool held) {
    const Json* before = kube::condition(job, "Suspended");
    if (before == nullptr ? !held : (get_string(*before, {"status"}) == "True") == held)
      return JsonArray(get_array(job, {"status", "conditions"}));
    JsonArray conditions;
    for (const Json& one : get_array(job, {"status", "conditions"}))
      if (get_string(one, {"type"}) != "Suspended") conditions.push_back(one);
    const std::string now = format_time(context_.loop.now());
    conditions.push_back(JsonObject{{"type", "Suspended"},
                                    {"status", held ? "True" : "False"},
                                    {"lastProbeTime", now},
                                    {"lastTransitionTime", now},
                                    {"reason", held ? "JobSuspended" : "JobResumed"},
                                    {"message", held ? "Job suspended" : "Job resumed"}});
    recorder_.event(job, "Normal", held ? "Suspended" : "Resumed", held ? "Job suspended" : "Job resumed");
    return conditions;
  }

  // A job's time begins anew when it goes on.
  bool begins(const Json& job) const {
    if (get_bool(job, {"spec", "suspend"})) return false;
    return get_string(job, {"status", "startTime"}).empty() || has_condition(job, "Suspended");
  }

  std::int64_t top_up(const std::string& key, const Json& job, const JobFacts& facts,
                      std::int64_t completions, Gather& gather) {
    const std::int64_t parallel = get_int(job, {"spec", "parallelism"}, 1);
    const bool queue = !has(job, {"spec", "completions"});
    if (queue && facts.succeeded > 0) return 0;  // those that run finish
    const std::int64_t wanted =
        (queue ? parallel : std::min(parallel, completions - facts.succeeded)) - facts.active;
    if (wanted < 0) {
      for (std::int64_t i = 0; i < -wanted && i < std::ssize(facts.running); ++i) {
        if (!facts.running[i].expected)
          context_.pod_control.remove(job, *facts.running[i].pod, gather.step());
      }
      return 0;
    }
    if (wanted == 0) return 0;
    // After a failure the next pod waits, longer each time.
    if (facts.failed > 0 && facts.last_failure != Time()) {
      const std::int64_t doublings = std::min<std::int64_t>(facts.failed - 1, 10);
      const Duration delay = std::min<Duration>(kFirstBackoff * (1LL << doublings), kLongestBackoff);
      const Duration left = facts.last_failure + delay - context_.loop.now();
      if (left > Duration::zero()) {
        queue_.add_after(key, left);
        return 0;
      }
    }
    const Json none = JsonObject();
    const Json* pod_template = find(job, {"spec", "template"});
    for (std::int64_t i = 0; i < wanted; ++i) {
      Json pod = pod_from_template(job, pod_template == nullptr ? none : *pod_template);
      for (const auto& [label, value] : {std::pair{"job-name", kube::name_of(job)},
                                         {"batch.kubernetes.io/job-name", kube::name_of(job)},
                                         {"controller-uid", kube::uid_of(job)},
                                         {"batch.kubernetes.io/controller-uid", kube::uid_of(job)}}) {
        set(pod, {"metadata", "labels", label}, Json(value));
      }
      context_.pod_control.create(job, std::move(pod), gather.step());
    }
    return wanted;
  }

  void finish(const Json& job, JobFacts facts, const std::string& type, const std::string& reason,
              const std::string& message, Gather& gather) {
    for (const OwnedPod& entry : facts.running) {
      if (!entry.expected) context_.pod_control.remove(job, *entry.pod, gather.step());
    }
    if (type == "Failed") facts.failed += facts.active;
    facts.active = 0;
    facts.ready = 0;
    const std::string now = format_time(context_.loop.now());
    JsonArray conditions(get_array(job, {"status", "conditions"}));
    for (const std::string& one :
         {std::string(type == "Failed" ? "FailureTarget" : "SuccessCriteriaMet"), type}) {
      conditions.push_back(JsonObject{{"type", one},
                                      {"status", "True"},
                                      {"reason", reason},
                                      {"message", message},
                                      {"lastProbeTime", now},
                                      {"lastTransitionTime", now}});
    }
    recorder_.event(job, type == "Failed" ? "Warning" : "Normal", type == "Failed" ? reason : "Completed",
                    type == "Failed" ? message : "Job completed");
    write_status(job, facts, 0, std::move(conditions), type == "Complete" ? now : "", gather);
  }

  void write_status(const Json& job, const JobFacts& facts, std::int64_t created, JsonArray conditions,
                    const std::string& completed, Gather& gather) {
    const auto omitted_at_zero = [](std::int64_t count) { return count == 0 ? Json() : Json(count); };
    JsonObject status;
    status["active"] = omitted_at_zero(facts.active + created);
    status["ready"] = facts.ready;
    status["succeeded"] = omitted_at_zero(facts.succeeded);
    status["failed"] = omitted_at_zero(facts.failed);
    status["terminating"] = facts.terminating;
    status["uncountedTerminatedPods"] = JsonObject();
    if (begins(job)) {
      status["startTime"] = format_time(context_.loop.now());
    }
    if (!completed.empty()) status["completionTime"] = completed;
    if (!conditions.empty()) status["conditions"] = std::move(conditions);
    patch_status(context_, kube::kJobs, job, status, gather.step());
  }

  // A finished job goes after its time to live.
  void outlive(const std::string& key, const Json& job, std::function<void(bool)> finished) {
    if (!has(job, {"spec", "ttlSecondsAfterFinished"})) return finished(true);
    const Json* end = kube::condition(job, has_condition(job, "Complete") ? "Complete" : "Failed");
    const auto at = parse_time(get_string(*end, {"lastTransitionTime"}));
    const Duration left = at.value_or(context_.loop.now()) +
                          std::chrono::seconds(get_int(job, {"spec", "ttlSecondsAfterFinished"})) -
                          context_.loop.now();
    if (left > Duration::zero()) {
      queue_.add_after(key, left);
      return finished(true);
    }
    context_.client
        .remove(kube::kJobs, kube::namespace_of(job), kube::name_of(job),
                {.propagation = "Foreground", .precondition_uid = str(kube::uid_of(job))},
                [finished = std::move(finished)](kube::ApiResult<> result) {
                  finished(result || result.error().not_found());
                })
        .detach();
  }

  Context& context_;
  kube::EventRecorder recorder_;
  std::map<std::string, Counted> counted_;  // by job uid
  kube::WorkQueue queue_;
};

}  // namespace

std::unique_ptr<Controller> make_job_controller(Context& context) {
  return std::make_unique<JobController>(context);
}

}  // namespace gpuop::cluster
