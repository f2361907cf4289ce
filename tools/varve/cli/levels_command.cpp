#include <fmt/format.h>

#include "cli/command.h"
#include "cli/text.h"
#include "runtime/command_levels.h"

namespace varve::cli {

namespace {
class LevelsCommand final : public Command {
 public:
  std::string_view name() const override { return "levels"; }
  std::string_view summary() const override { return "show what each level holds, how full it is, and how far behind"; }

  void declare(Arguments& arguments) override {
    arguments.text("--levels", "LEVELS", text_,
                   "the levels, in place of --store, nearest first, separated by \";\" (default: $VARVE_LEVELS, else "
                   "those of varve.toml)");
    arguments.examples(
        "  varve levels --levels \"local:/nvme/varve keep=2; s3://checkpoints/me every=10\"\n"
        "  varve levels --store /lustre/varve               one store, and the memory before it\n"
        "  varve levels                                     as varve.toml says\n");
  }

  Result<ExitCode> run(Session& session) override {
    VARVE_ASSIGN(const std::unique_ptr<CommandLevels> levels, session.open_levels(text_, CommandLevels::Use::look));
    Json facts = Json::array();
    ExitCode code = ExitCode::success;
    for (const auto& level : levels->levels().all()) {
      const LevelSpec& spec = level->spec();
      const Result<LevelContents> there = level->contents(levels->nearest());
      if (code == ExitCode::success) code = exit_code_of(there.status().code());
      if (session.json()) {
        facts.push_back(there.ok() ? to_facts(spec, *there)
                                   : Json{{"level", spec.to_string()}, {"error", to_json(there.status())}});
      } else if (there.ok()) {
        print(session, *level, *there);
      } else {
        print_failure(session, spec, there.status());
      }
    }
    if (session.json()) session.print_facts(Json{{"levels", std::move(facts)}});
    return code;
  }

 private:
  static Json to_facts(const LevelSpec& spec, const LevelContents& there) {
    Json list = Json::array();
    for (const LevelContents::Job& job : there.jobs) {
      Json entry{{"job", job.job}, {"sets", job.sets}, {"behind", job.behind ? Json(*job.behind) : Json()}};
      if (job.newest) entry["newest"] = step_to_json(*job.newest);
      if (job.is_running) entry["running"] = *job.is_running;
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

  static void print(Session& session, const Level& level, const LevelContents& there) {
    session.print(fmt::format("{}: {}{}\n", quote_name(level.spec().to_string()), format_size(there.bytes),
                              there.free_bytes ? ", " + format_size(*there.free_bytes) + " free" : ""));
    if (there.jobs.empty()) session.print(level.spec().holds_sets() ? "  no sets\n" : "  nothing\n");
    for (const LevelContents::Job& job : there.jobs)
      session.print(fmt::format("  {}: {}\n", quote_name(job.job), words_for(level, job)));
  }

  static std::string words_for(const Level& level, const LevelContents::Job& job) {
    if (job.is_running) {
      if (*job.is_running) return "a run is at work";
      return job.newest ? fmt::format("step {}, left by a run that has ended", step_text(*job.newest))
                        : "nothing to restart from";
    }
    const char* const what = level.spec().is_redundancy() ? " protected" : "";
    std::string words = format_count(job.sets, "set", "sets") + what;
    if (job.newest) words += ", newest " + step_text(*job.newest);
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
