#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "cli/command.h"
#include "cli/text.h"
#include "level/node_folder.h"
#include "level/parity_group.h"
#include "level/redundancy_sets.h"
#include "runtime/job_memory.h"
#include "runtime/store_levels.h"
#include "snapshot/snapshot_discovery.h"

namespace varve::cli {

namespace {
/// What a level has of one job.
struct JobThere {
  std::string job;
  uint64_t sets = 0;
  std::optional<uint64_t> newest;
  std::optional<uint64_t> behind;  ///< sets_ahead() of the nearest level, if it can be reached
  bool running = false;            ///< memory: a run of the job lives
};

struct LevelThere {
  std::vector<JobThere> jobs;
  uint64_t bytes = 0;
  std::optional<uint64_t> free_bytes;  ///< on its file system, or those of its servers; if that is known
};

class LevelsCommand final : public Command {
 public:
  std::string_view name() const override { return "levels"; }
  std::string_view summary() const override { return "show what is on which level, how full, how far behind"; }

  void declare(Arguments& arguments) override {
    arguments.text(
        "--levels", "LEVELS", text_,
        "the levels, nearest first, separated by \";\" (else\nVARVE_LEVELS, varve.toml); in place of --store");
    arguments.examples(
        "  varve levels --levels \"local:/nvme/varve keep=2; dir:/lustre/varve every=10\"\n"
        "  varve levels --store /lustre/varve               one store, and the memory before it\n"
        "  varve levels                                     as varve.toml says\n");
  }

  Result<ExitCode> run(Session& session) override {
    VARVE_ASSIGN(const StoreLevels levels,
                 StoreLevels::open({text_, session.said_store(), session.key_file()}, StoreLevels::Use::look));
    Json facts = Json::array();
    ExitCode code = ExitCode::success;
    auto store = levels.levels().begin();
    for (const LevelSpec& spec : levels.settings().levels) {
      const Result<LevelThere> there = look_at(levels, spec, spec.holds_sets() ? &*store++ : nullptr);
      if (code == ExitCode::success) code = exit_code_of(there.status().code());
      if (session.json()) {
        facts.push_back(there.ok() ? to_facts(spec, *there)
                                   : Json{{"level", spec.to_string()}, {"error", to_json(there.status())}});
      } else if (there.ok()) {
        print(session, spec, *there);
      } else {
        print_failure(session, spec, there.status());
      }
    }
    if (session.json()) session.print_facts(Json{{"levels", std::move(facts)}});
    return code;
  }

 private:
  /// `store`: the level, if it is one.
  static Result<LevelThere> look_at(const StoreLevels& levels, const LevelSpec& spec, const StoreLevels::Level* store) {
    if (store != nullptr) return look_at_store(levels, *store);
    return spec.kind == LevelSpec::Kind::memory ? look_at_memory(levels) : look_at_redundancy(levels);
  }

  /// Of the jobs that the nearest store has, if it can be reached, and of the one that the options name.
  static Result<LevelThere> look_at_memory(const StoreLevels& levels) {
    LevelThere there;
    there.free_bytes = free_bytes(posix_file_system(), levels.settings().shared_memory);
    std::vector<std::string> jobs;
    if (levels.nearest().open) {
      VARVE_ASSIGN(jobs, Catalog(levels.nearest().open->store()).jobs());
    }
    if (std::find(jobs.begin(), jobs.end(), levels.settings().job) == jobs.end()) jobs.push_back(levels.settings().job);
    const LevelSpec& nearest = levels.nearest().spec;
    const std::string path = StoreLevel::known_path(nearest, levels.nearest().path);
    for (std::string& job : jobs) {
      VARVE_ASSIGN(const MemoryUse use,
                   memory_use(job_memory(levels.settings().shared_memory, job, nearest, path, levels.node())));
      if (use.bytes == 0) continue;
      there.bytes += use.bytes;
      there.jobs.push_back({.job = std::move(job),
                            .sets = use.newest_step ? 1u : 0u,
                            .newest = use.newest_step,
                            .behind = 0,
                            .running = use.running});
    }
    return there;
  }

  /// Of this node's share.
  static Result<LevelThere> look_at_redundancy(const StoreLevels& levels) {
    LevelThere there;
    FileSystem& fs = posix_file_system();
    const std::string& store = levels.nearest().path;
    VARVE_ASSIGN(const std::vector<SetName> sets, list_redundancy({&fs, store, levels.node()}, ""));
    std::map<std::string, std::vector<uint64_t>> steps_of;
    for (const SetName& set : sets) {
      const Result<FileStatus> parity = fs.stat(join_path(NodeFolder::set_path(store, set), kParityFileName));
      if (!parity.ok()) continue;  // it is being made, or was given up
      there.bytes += parity->bytes;
      steps_of[set.job].push_back(set.step);
    }
    for (auto& [job, steps] : steps_of) {
      std::sort(steps.begin(), steps.end());
      VARVE_ASSIGN(const std::optional<uint64_t> behind, behind_nearest(levels, job, steps));
      there.jobs.push_back({.job = job, .sets = steps.size(), .newest = steps.back(), .behind = behind});
    }
    return there;
  }

  /// None: the nearest level cannot be reached.
  static Result<std::optional<uint64_t>> behind_nearest(const StoreLevels& levels, const std::string& job,
                                                        const std::vector<uint64_t>& steps) {
    if (!levels.nearest().open) return std::optional<uint64_t>();
    VARVE_ASSIGN(const uint64_t behind, sets_ahead(levels.nearest().open->store(), job, steps));
    return std::optional(behind);
  }

  static Result<LevelThere> look_at_store(const StoreLevels& levels, const StoreLevels::Level& level) {
    VARVE_TRY(level.failure);
    const Store& store = level.open->store();
    LevelThere there;
    VARVE_ASSIGN(there.jobs, jobs_of(levels, store));
    VARVE_ASSIGN(there.bytes, arena_bytes(store));
    there.free_bytes = free_bytes(store.fs(), store.arenas_path());
    return there;
  }

  /// Those of a store and of the nearest one.
  static Result<std::vector<JobThere>> jobs_of(const StoreLevels& levels, const Store& store) {
    VARVE_ASSIGN(std::vector<std::string> jobs, Catalog(store).jobs());
    if (levels.nearest().open) {
      VARVE_ASSIGN(const std::vector<std::string> there, Catalog(levels.nearest().open->store()).jobs());
      jobs.insert(jobs.end(), there.begin(), there.end());
    }
    std::sort(jobs.begin(), jobs.end());
    jobs.erase(std::unique(jobs.begin(), jobs.end()), jobs.end());
    std::vector<JobThere> found;
    for (std::string& job : jobs) {
      JobThere entry;
      VARVE_ASSIGN(const std::vector<uint64_t> steps, Catalog(store).steps(job));
      entry.sets = steps.size();
      if (!steps.empty()) entry.newest = steps.back();
      VARVE_ASSIGN(entry.behind, behind_nearest(levels, job, steps));
      entry.job = std::move(job);
      found.push_back(std::move(entry));
    }
    return found;
  }

  static Result<uint64_t> arena_bytes(const Store& store) {
    VARVE_ASSIGN(const std::vector<ArenaId> arenas, store.list_arenas());
    uint64_t bytes = 0;
    for (const ArenaId& arena : arenas) {
      const Result<FileStatus> status = store.fs().stat(store.arena_path(arena));
      if (status.ok()) bytes += status->bytes;
    }
    return bytes;
  }

  static std::optional<uint64_t> free_bytes(FileSystem& fs, const std::string& folder) {
    const Result<uint64_t> bytes = fs.free_bytes(folder);
    return bytes.ok() ? std::optional(*bytes) : std::nullopt;
  }

  static Json to_facts(const LevelSpec& spec, const LevelThere& there) {
    Json list = Json::array();
    for (const JobThere& job : there.jobs) {
      Json entry{{"job", job.job}, {"sets", job.sets}, {"behind", job.behind ? Json(*job.behind) : Json()}};
      if (job.newest) entry["newest"] = *job.newest;
      if (spec.kind == LevelSpec::Kind::memory) entry["running"] = job.running;
      list.push_back(std::move(entry));
    }
    Json facts{{"level", spec.to_string()}, {"bytes", there.bytes}, {"jobs", std::move(list)}};
    if (there.free_bytes) facts["free_bytes"] = *there.free_bytes;
    return facts;
  }

  static void print_failure(Session& session, const LevelSpec& spec, const Status& failure) {
    session.print(fmt::format("{}: cannot be reached: {}{}\n", quote_name(spec.to_string()),
                              escape_text(failure.message()),
                              failure.subject().empty() ? "" : ": " + quote_name(failure.subject())));
  }

  static void print(Session& session, const LevelSpec& spec, const LevelThere& there) {
    session.print(fmt::format("{}: {}{}\n", quote_name(spec.to_string()), format_size(there.bytes),
                              there.free_bytes ? ", " + format_size(*there.free_bytes) + " free" : ""));
    if (there.jobs.empty()) session.print(spec.holds_sets() ? "  no sets\n" : "  nothing\n");
    for (const JobThere& job : there.jobs)
      session.print(fmt::format("  {}: {}\n", quote_name(job.job), words_for(spec.kind, job)));
  }

  static std::string words_for(LevelSpec::Kind kind, const JobThere& job) {
    if (kind == LevelSpec::Kind::memory) {
      if (job.running) return "a run is at work";
      return job.newest ? fmt::format("step {}, left by a run that has ended", *job.newest) : "nothing to restart from";
    }
    const char* const what = kind == LevelSpec::Kind::redundancy ? " protected" : "";
    std::string words = format_count(job.sets, "set", "sets") + what;
    if (job.newest) words += fmt::format(", newest {}", *job.newest);
    if (job.behind == 0) words += ", up to date";
    if (job.behind && *job.behind > 0)
      words += fmt::format(", {} behind the nearest", format_count(*job.behind, "set", "sets"));
    return words;
  }

  std::string text_;
};
}  // namespace

std::unique_ptr<Command> make_levels_command() { return std::make_unique<LevelsCommand>(); }

}  // namespace varve::cli
