#include <fmt/format.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <optional>

#include "cli/command.h"
#include "cli/store_levels.h"
#include "cli/text.h"
#include "level/node_folder.h"
#include "level/parity_group.h"
#include "level/redundancy_sets.h"
#include "runtime/job_memory.h"
#include "snapshot/snapshot_discovery.h"

namespace varve::cli {

namespace {
/// What a level has of one job.
struct JobThere {
  std::string job;
  uint64_t sets = 0;
  std::optional<uint64_t> newest;
  uint64_t behind = 0;   ///< newer sets that the nearest level has
  bool running = false;  ///< memory: a run of the job lives
};

struct LevelThere {
  std::vector<JobThere> jobs;
  uint64_t bytes = 0;
  std::optional<uint64_t> free_bytes;  ///< on its file system; a server's is not known
};

class LevelsCommand final : public Command {
 public:
  std::string_view name() const override { return "levels"; }
  std::string_view summary() const override { return "show what is on which level, how full, how far behind"; }
  bool works_on_store() const override { return false; }
  bool uses_servers() const override { return true; }

  void declare(Arguments& arguments) override {
    arguments.text("--levels", "LEVELS", text_,
                   "the levels, nearest first, separated by \";\" (else\nVARVE_LEVELS, varve.toml)");
    arguments.examples(
        "  varve levels --levels \"local:/nvme/varve keep=2; dir:/lustre/varve every=10\"\n"
        "  varve levels                                     as varve.toml says\n");
  }

  Result<ExitCode> run(Session& session) override {
    VARVE_ASSIGN(const StoreLevels levels, StoreLevels::open(text_, session.key_file(), false));
    Json facts = Json::array();
    size_t stores = 0;
    for (const LevelSpec& spec : levels.settings().levels) {
      Result<LevelThere> there = Status::internal("a level of no kind");
      if (spec.kind == LevelSpec::Kind::memory) {
        there = look_at_memory(levels);
      } else if (spec.kind == LevelSpec::Kind::redundancy) {
        there = look_at_redundancy(levels);
      } else {
        there = look_at_store(levels, *levels.levels().at(stores++));
      }
      VARVE_TRY(there.status().with_context("level " + spec.name()));
      if (session.json()) {
        facts.push_back(to_facts(spec, *there));
      } else {
        print(session, spec, *there);
      }
    }
    if (session.json()) session.print_facts(Json{{"levels", std::move(facts)}});
    return ExitCode::success;
  }

 private:
  /// Of the jobs that the nearest store has, and of the one that the options name.
  static Result<LevelThere> look_at_memory(const StoreLevels& levels) {
    LevelThere there;
    there.free_bytes = free_bytes(levels.settings().shared_memory);
    VARVE_ASSIGN(std::vector<std::string> jobs, Catalog(levels.nearest().store()).jobs());
    if (std::find(jobs.begin(), jobs.end(), levels.settings().job) == jobs.end()) jobs.push_back(levels.settings().job);
    const LevelSpec& nearest = levels.nearest().spec();
    const std::string path = StoreLevel::known_path(nearest, levels.nearest().path());
    for (std::string& job : jobs) {
      VARVE_ASSIGN(const MemoryUse use,
                   memory_use(job_memory(levels.settings().shared_memory, job, nearest, path, levels.node())));
      if (use.bytes == 0) continue;
      there.bytes += use.bytes;
      there.jobs.push_back({.job = std::move(job),
                            .sets = use.newest_step ? 1u : 0u,
                            .newest = use.newest_step,
                            .running = use.running});
    }
    return there;
  }

  /// Of this node's share.
  static Result<LevelThere> look_at_redundancy(const StoreLevels& levels) {
    LevelThere there;
    FileSystem& fs = posix_file_system();
    const std::string& store = levels.nearest().path();
    VARVE_ASSIGN(const std::vector<SetName> sets, list_redundancy({&fs, store, levels.node()}, ""));
    for (const SetName& set : sets) {
      const Result<FileStatus> parity = fs.stat(join_path(NodeFolder::set_path(store, set), kParityFileName));
      if (!parity.ok()) continue;  // it is being made, or was given up
      there.bytes += parity->bytes;
      auto job = std::find_if(there.jobs.begin(), there.jobs.end(),
                              [&](const JobThere& known) { return known.job == set.job; });
      if (job == there.jobs.end()) {
        job = there.jobs.emplace(job);
        job->job = set.job;
      }
      ++job->sets;
      job->newest = std::max(job->newest.value_or(0), set.step);
    }
    for (JobThere& job : there.jobs) {
      VARVE_ASSIGN(const std::vector<uint64_t> steps, Catalog(levels.nearest().store()).steps(job.job));
      job.behind = static_cast<uint64_t>(
          std::count_if(steps.begin(), steps.end(), [&](uint64_t step) { return step > *job.newest; }));
    }
    return there;
  }

  static Result<LevelThere> look_at_store(const StoreLevels& levels, const StoreLevel& level) {
    LevelThere there;
    VARVE_ASSIGN(there.jobs, look_at(levels.nearest().store(), level.store()));
    VARVE_ASSIGN(there.bytes, arena_bytes(level.store()));
    if (!level.spec().is_on_servers()) there.free_bytes = free_bytes(level.path());
    return there;
  }

  static Result<std::vector<JobThere>> look_at(const Store& nearest, const Store& store) {
    VARVE_ASSIGN(std::vector<std::string> jobs, Catalog(nearest).jobs());
    VARVE_ASSIGN(const std::vector<std::string> there, Catalog(store).jobs());
    jobs.insert(jobs.end(), there.begin(), there.end());
    std::sort(jobs.begin(), jobs.end());
    jobs.erase(std::unique(jobs.begin(), jobs.end()), jobs.end());
    std::vector<JobThere> found;
    for (std::string& job : jobs) {
      JobThere entry;
      VARVE_ASSIGN(const std::vector<uint64_t> steps, Catalog(store).steps(job));
      entry.sets = steps.size();
      if (!steps.empty()) entry.newest = steps.back();
      VARVE_ASSIGN(entry.behind, sets_ahead(nearest, store, job));
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

  static std::optional<uint64_t> free_bytes(const std::string& folder) {
    struct statvfs facts;
    if (::statvfs(folder.c_str(), &facts) != 0) return std::nullopt;
    return uint64_t{facts.f_bavail} * facts.f_frsize;
  }

  static Json to_facts(const LevelSpec& spec, const LevelThere& there) {
    Json list = Json::array();
    for (const JobThere& job : there.jobs) {
      Json entry{{"job", job.job}, {"sets", job.sets}, {"behind", job.behind}};
      if (job.newest) entry["newest"] = *job.newest;
      if (spec.kind == LevelSpec::Kind::memory) entry["running"] = job.running;
      list.push_back(std::move(entry));
    }
    Json facts{{"level", spec.to_string()}, {"bytes", there.bytes}, {"jobs", std::move(list)}};
    if (there.free_bytes) facts["free_bytes"] = *there.free_bytes;
    return facts;
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
    return fmt::format(
        "{}{}{}, {}", format_count(job.sets, "set", "sets"), what,
        job.newest ? fmt::format(", newest {}", *job.newest) : "",
        job.behind == 0 ? "up to date" : format_count(job.behind, "set", "sets") + " behind the nearest");
  }

  std::string text_;
};
}  // namespace

std::unique_ptr<Command> make_levels_command() { return std::make_unique<LevelsCommand>(); }

}  // namespace varve::cli
