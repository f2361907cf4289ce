#include <fmt/format.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <optional>

#include "cli/command.h"
#include "cli/store_levels.h"
#include "cli/text.h"

namespace varve::cli {

namespace {
/// What a level has of one job.
struct JobThere {
  std::string job;
  uint64_t sets = 0;
  std::optional<uint64_t> newest;
  uint64_t behind = 0;  ///< newer sets that the nearest level has
};

class LevelsCommand final : public Command {
 public:
  std::string_view name() const override { return "levels"; }
  std::string_view summary() const override { return "show what is on which level, how full, how far behind"; }
  bool works_on_store() const override { return false; }

  void declare(Arguments& arguments) override {
    arguments.text("--levels", "LEVELS", text_,
                   "the levels, nearest first, separated by \";\" (else\nVARVE_LEVELS, varve.toml)");
    arguments.examples(
        "  varve levels --levels \"local:/nvme/varve keep=2; dir:/lustre/varve every=10\"\n"
        "  varve levels                                     as varve.toml says\n");
  }

  Result<ExitCode> run(Session& session) override {
    VARVE_ASSIGN(const StoreLevels levels, StoreLevels::open(text_, false));
    Json facts = Json::array();
    for (const auto& level : levels.levels()) {
      VARVE_ASSIGN(const std::vector<JobThere> jobs, look_at(levels.nearest().store(), level->store()));
      VARVE_ASSIGN(const uint64_t bytes, arena_bytes(level->store()));
      const std::optional<uint64_t> free = free_bytes(*level);
      if (session.json()) {
        facts.push_back(to_facts(*level, jobs, bytes, free));
      } else {
        print(session, *level, jobs, bytes, free);
      }
    }
    if (session.json()) session.print_facts(Json{{"levels", std::move(facts)}});
    return ExitCode::success;
  }

 private:
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

  /// Of a folder's file system; a server's is not known.
  static std::optional<uint64_t> free_bytes(const StoreLevel& level) {
    struct statvfs facts;
    if (level.spec().is_on_servers() || ::statvfs(level.path().c_str(), &facts) != 0) return std::nullopt;
    return uint64_t{facts.f_bavail} * facts.f_frsize;
  }

  static Json to_facts(const StoreLevel& level, const std::vector<JobThere>& jobs, uint64_t bytes,
                       const std::optional<uint64_t>& free) {
    Json list = Json::array();
    for (const JobThere& job : jobs) {
      Json entry{{"job", job.job}, {"sets", job.sets}, {"behind", job.behind}};
      if (job.newest) entry["newest"] = *job.newest;
      list.push_back(std::move(entry));
    }
    Json facts{{"level", level.spec().to_string()}, {"bytes", bytes}, {"jobs", std::move(list)}};
    if (free) facts["free_bytes"] = *free;
    return facts;
  }

  static void print(Session& session, const StoreLevel& level, const std::vector<JobThere>& jobs, uint64_t bytes,
                    const std::optional<uint64_t>& free) {
    session.print(fmt::format("{}: {}{}\n", quote_name(level.spec().to_string()), format_size(bytes),
                              free ? ", " + format_size(*free) + " free" : ""));
    if (jobs.empty()) session.print("  no sets\n");
    for (const JobThere& job : jobs) {
      session.print(fmt::format(
          "  {}: {}{}, {}\n", quote_name(job.job), format_count(job.sets, "set", "sets"),
          job.newest ? fmt::format(", newest {}", *job.newest) : "",
          job.behind == 0 ? "up to date" : format_count(job.behind, "set", "sets") + " behind the nearest"));
    }
  }

  std::string text_;
};
}  // namespace

std::unique_ptr<Command> make_levels_command() { return std::make_unique<LevelsCommand>(); }

}  // namespace varve::cli
