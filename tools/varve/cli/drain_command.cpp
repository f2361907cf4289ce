#include <fmt/format.h>

#include <algorithm>

#include "cli/command.h"
#include "cli/text.h"
#include "level/stored_image.h"
#include "runtime/command_levels.h"
#include "runtime/node_drain.h"
#include "runtime/stage_one.h"
#include "store/catalog.h"
#include "store/job_lease.h"

namespace varve::cli {

namespace {
const char* drained_state(DrainedSet::State state) {
  switch (state) {
    case DrainedSet::State::whole: return "whole";
    case DrainedSet::State::part: return "part";
    case DrainedSet::State::was_there: return "was_there";
    case DrainedSet::State::outdated: return "outdated";
  }
  return "";
}

class DrainCommand final : public Command {
 public:
  std::string_view name() const override { return "drain"; }
  std::string_view summary() const override { return "bring what dead runs left on this node to the next level"; }

  void declare(Arguments& arguments) override {
    arguments.text("--job", "NAME", options_.job, "only this job (default: all jobs of this user)");
    arguments.text("--levels", "LEVELS", options_.levels,
                   "in place of the levels that the runs have named, nearest first, separated by \";\"; what is in the "
                   "nearest of them is brought on, too, whoever made it");
    arguments.text("--shared-memory", "FOLDER", shared_memory_,
                   "where runs keep their snapshots (default: $VARVE_SHARED_MEMORY, else /dev/shm)");
    arguments.seconds("--wait", options_.wait_seconds,
                      "for the parts of other nodes, and for another drain of this node (default: 0)");
    arguments.threads(options_.thread_count, "threads (default: one per processor)");
    arguments.memory("--memory", options_.memory_bytes, "memory to use at most, about (default: 256MiB)");
    arguments.examples(
        "  varve drain                                     what this user's dead runs have left on this node\n"
        "  varve drain --job heat --wait 60s               and wait for the other nodes' parts\n"
        "  varve drain --levels \"local:/nvme/me; dir:/lustre/me\"\n"
        "                                                  what is in the node's own store, too\n");
  }

  bool works_on_store() const override { return false; }
  bool uses_servers() const override { return true; }

  Result<ExitCode> run(Session& session) override {
    options_.reach = session.reach();
    SettingsSources sources = SettingsSources::of_process();
    sources.command_line = {{"shared_memory", shared_memory_}, {"levels", options_.levels}};
    VARVE_ASSIGN(const Settings settings, resolve_settings({}, sources));
    options_.shared_memory = settings.snapshots.shared_memory;
    options_.spill_folders = expected_spill_folders(settings, sources);
    options_.node = sources.node();
    ProgressSink& progress = session.begin_progress();
    Result<std::vector<DrainedJob>> drained = drain_node(options_, progress);
    if (drained.ok() && !options_.levels.empty() && !progress.cancelled()) bring_stored(session, *drained, progress);
    session.end_progress();
    VARVE_TRY(drained.status());
    if (session.json()) {
      Json jobs = Json::array();
      for (const DrainedJob& job : *drained) jobs.push_back(to_facts(job));
      session.print_facts(Json{{"jobs", std::move(jobs)}});
    } else {
      print(session, *drained);
    }
    for (const DrainedJob& job : *drained) {
      if (!job.failures.empty()) return exit_code_of(job.failures.front().code());
    }
    return ExitCode::success;
  }

 private:
  /// Sets of the nearest of the levels that were said, of whatever run: no note tells of these.
  void bring_stored(Session& session, std::vector<DrainedJob>& drained, ProgressSink& progress) {
    const auto fail = [&](const Status& why) { drained.emplace_back().failures.push_back(why); };
    const Result<std::unique_ptr<CommandLevels>> levels =
        CommandLevels::open({options_.levels, {}, session.reach()}, CommandLevels::Use::look);
    const Store* const nearest = levels.ok() ? (*levels)->nearest() : nullptr;
    if (nearest == nullptr)
      return fail(levels.ok() ? (*levels)->levels().nearest().access().why_away() : levels.status());
    PatientReads reads(*nearest, *options_.clock);
    const Result<std::vector<std::string>> jobs = reads([&] { return Catalog(*nearest).jobs(); });
    if (!jobs.ok()) return fail(jobs.status().with_context((*levels)->levels().nearest().name()));
    for (const std::string& name : *jobs) {
      if (!options_.job.empty() && name != options_.job) continue;
      auto found = std::find_if(drained.begin(), drained.end(), [&](const DrainedJob& job) { return job.job == name; });
      if (found == drained.end()) {
        drained.emplace_back().job = name;
        found = drained.end() - 1;
      }
      if (!found->lives) bring_job(**levels, name, *found, progress);
    }
  }

  static void bring_job(CommandLevels& levels, const std::string& name, DrainedJob& job, ProgressSink& progress) {
    const Result<std::optional<LeaseHolder>> holder = living_run(levels.levels(), name, {});
    if (holder.ok() && *holder) {
      job.lives = true;
      return;
    }
    const Onward onward = levels.bring_along(name, progress);
    for (const LevelCopy& copy : onward.copies)
      job.sets.push_back({copy.name, levels.levels().nearest().name(), copy.level, DrainedSet::State::whole});
    job.failures.insert(job.failures.end(), onward.failures.begin(), onward.failures.end());
  }

  static Json to_facts(const DrainedJob& job) {
    Json sets = Json::array(), failures = Json::array();
    for (const DrainedSet& set : job.sets) {
      sets.push_back(
          Json{{"set", set.name.to_string()}, {"from", set.from}, {"to", set.to}, {"state", drained_state(set.state)}});
    }
    for (const Status& failure : job.failures) failures.push_back(to_json(failure));
    return Json{{"job", job.job},
                {"running", job.lives},
                {"done", job.is_done},
                {"sets", std::move(sets)},
                {"errors", std::move(failures)}};
  }

  static void print(Session& session, const std::vector<DrainedJob>& jobs) {
    if (jobs.empty()) session.print("nothing is left on this node\n");
    for (const DrainedJob& job : jobs) {
      if (job.lives) session.print(fmt::format("{}: a run is at work, and nothing was touched\n", quote_name(job.job)));
      for (const DrainedSet& set : job.sets)
        session.print(fmt::format("{}: {}\n", quote_name(set.name.to_string()), words_for(set)));
      if (!job.lives && job.sets.empty() && job.failures.empty())
        session.print(fmt::format("{}: nothing was left\n", quote_name(job.job)));
      for (const Status& failure : job.failures) session.warn(failure);
    }
  }

  static std::string words_for(const DrainedSet& set) {
    switch (set.state) {
      case DrainedSet::State::whole: return fmt::format("brought from {} to {}", set.from, set.to);
      case DrainedSet::State::part:
        return fmt::format("this node's part brought from {} to {}; other nodes' parts are missing", set.from, set.to);
      case DrainedSet::State::was_there: return fmt::format("was at {} already", set.to);
      case DrainedSet::State::outdated: return fmt::format("not needed any more: {} has a later one", set.to);
    }
    return {};
  }

  NodeDrainOptions options_;
  std::string shared_memory_;
};
}  // namespace

std::unique_ptr<Command> make_drain_command() { return std::make_unique<DrainCommand>(); }

}  // namespace varve::cli
