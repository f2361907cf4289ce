#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <utility>
#include <vector>

#include "cli/command.h"
#include "cli/text.h"
#include "report/run_timeline.h"
#include "runtime/settings.h"
#include "runtime/timeline_log.h"

namespace varve::cli {

namespace {
/// Rows of a table for people; --json and the page have all.
constexpr size_t kCheckpointsShown = 20, kFailuresShown = 10;

/// As the log has it, or nothing.
std::string step_of(const Json& facts) { return facts["step"].is_null() ? "" : facts["step"].dump(); }

std::string seconds_between(const Json& from, const Json& to) {
  if (from.is_null() || to.is_null()) return "-";
  return format_duration(std::max(0.0, to.get<double>() - from.get<double>()));
}

std::string moment(const Json& at) { return at.is_null() ? "-" : format_time(static_cast<int64_t>(at.get<double>())); }

std::string levels_text(const Json& checkpoint) {
  std::string text;
  for (const Json& level : checkpoint["levels"]) {
    const std::string how = !level["arrived"].is_null()    ? seconds_between(checkpoint["begin"], level["arrived"])
                            : !level["given_up"].is_null() ? "given up"
                            : level["failures"] > 0        ? "failed"
                                                           : "on its way";
    text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", quote_name(level["level"].get<std::string>()), how);
  }
  return text;
}

std::string blocked_text(const Json& timeline) {
  using enum Table::Align;
  const auto total = timeline["blocked_seconds"].get<double>();
  std::string text = fmt::format("the program was blocked for {}; {} of that has a cause\n", format_duration(total),
                                 format_percent(timeline["attributed_share"].get<double>()));
  Table table({{"waited for"}, {"time", right}, {"share", right}});
  for (const auto& [cause, seconds] : timeline["blocked"].items()) {
    const auto of_cause = seconds.get<double>();
    if (of_cause > 0) table.add_row({cause, format_seconds(of_cause), format_percent(of_cause / total)});
  }
  return table.empty() ? text : text + table.render("  ");
}

std::string restart_text(const Json& restart) {
  const auto why = restart["why"].get<std::string>();
  if (!why.empty()) return fmt::format("  the restart failed: {}\n", escape_text(why));
  if (restart["step"].is_null()) return "  began anew\n";
  const auto passed_over = restart["passed_over"].get<uint64_t>();
  return fmt::format(
      "  went on from step {}, from {}{}\n", step_of(restart), quote_name(restart["from"].get<std::string>()),
      passed_over == 0 ? ""
                       : fmt::format("; {} could not be used", format_count(passed_over, "newer one", "newer ones")));
}

/// What failed again and again for the same reason is one line.
std::string failures_text(const Json& failures) {
  std::vector<std::pair<const Json*, size_t>> shown;
  for (const Json& failure : failures) {
    const bool is_same = !shown.empty() && (*shown.back().first)["what"] == failure["what"] &&
                         (*shown.back().first)["level"] == failure["level"] &&
                         (*shown.back().first)["why"] == failure["why"];
    if (!is_same) shown.emplace_back(&failure, 0);
    ++shown.back().second;
  }
  std::string text;
  for (size_t i = shown.size() > kFailuresShown ? shown.size() - kFailuresShown : 0; i < shown.size(); ++i) {
    const Json& failure = *shown[i].first;
    const std::string step = step_of(failure);
    const auto level = failure["level"].get<std::string>();
    text += fmt::format("  {}: {}{}{}{}: {}\n", moment(failure["at"]), failure["what"].get<std::string>(),
                        step.empty() ? "" : ", step " + step, level.empty() ? "" : ", " + quote_name(level),
                        shown[i].second == 1 ? "" : fmt::format(", and {} times more", shown[i].second - 1),
                        escape_text(failure["why"].get<std::string>()));
  }
  return text;
}

std::string run_text(const Json& run, size_t number) {
  using enum Table::Align;
  const auto state = run["state"].get<std::string>(), why = run["why"].get<std::string>();
  std::string text = fmt::format(
      "\nrun {}: {} to {}, {} on {}: {}{}\n", number, moment(run["begin"]), moment(run["last"]),
      format_count(run["ranks"].get<uint64_t>(), "rank", "ranks"), quote_name(run["host"].get<std::string>()),
      state == "open" ? "goes on, or was killed" : state, why.empty() ? "" : ": " + escape_text(why));
  for (const Json& restart : run["restarts"]) text += restart_text(restart);
  text += failures_text(run["failures"]);
  const Json& checkpoints = run["checkpoints"];
  Table table({{"step", right},
               {"outcome"},
               {"blocked", right},
               {"raw", right},
               {"stored", right},
               {"after", right},
               {"levels"}});
  for (size_t i = checkpoints.size() > kCheckpointsShown ? checkpoints.size() - kCheckpointsShown : 0;
       i < checkpoints.size(); ++i) {
    const Json& one = checkpoints[i];
    table.add_row({step_of(one), one["outcome"].get<std::string>(),
                   format_seconds(one["blocked_seconds"].get<double>()),
                   one.contains("raw_bytes") ? format_size(one["raw_bytes"].get<uint64_t>()) : "-",
                   one.contains("stored_bytes") ? format_size(one["stored_bytes"].get<uint64_t>()) : "-",
                   seconds_between(one["begin"], one["stored"]), levels_text(one)});
  }
  if (!table.empty()) text += table.render("  ");
  if (checkpoints.size() > kCheckpointsShown)
    text +=
        fmt::format("  and {} before them (the page and --json have all)\n", checkpoints.size() - kCheckpointsShown);
  return text;
}

std::string timeline_text(const Json& timeline) {
  std::string text = blocked_text(timeline);
  size_t number = 0;
  for (const Json& run : timeline["runs"]) text += run_text(run, ++number);
  return text;
}

class TimelineCommand final : public Command {
 public:
  std::string_view name() const override { return "timeline"; }
  std::string_view summary() const override {
    return "show what became of each checkpoint of a job's runs, and what the program waited for";
  }
  bool uses_servers() const override { return false; }

  void declare(Arguments& arguments) override {
    arguments.positional("JOB", job_, "whose runs");
    arguments.text("--log-file", "FILE", log_,
                   "the log, in place of the one beside the sets of the store, or of the levels that VARVE_LEVELS or "
                   "varve.toml name");
    arguments.text("--output", "FILE", page_path_,
                   "the HTML page to write (default: varve-timeline.html, or none with --json)");
    arguments.examples(
        "  varve timeline heat                              of the runs with the options that are in effect here\n"
        "  varve timeline heat --store /lustre/varve --output heat.html\n"
        "  varve timeline heat --log-file times/heat.timeline --json\n");
  }

  Result<ExitCode> run(Session& session) override {
    VARVE_ASSIGN(const Json timeline, read(session));
    const auto skipped = timeline["skipped_lines"].get<uint64_t>();
    if (skipped > 0)
      session.warn(Status::corrupt(fmt::format("{} of the log made no sense, and {} left out",
                                               format_count(skipped, "line", "lines"), skipped == 1 ? "is" : "are"),
                                   path_));
    const std::string text = timeline_text(timeline);
    const std::string page_path = page_path_.empty() && !session.json() ? "varve-timeline.html" : page_path_;
    if (!page_path.empty()) VARVE_TRY(write_page(page_path, timeline_page(timeline, text)));
    if (session.json()) {
      session.print_facts(timeline);
    } else {
      session.print(text + fmt::format("\nwrote {}\n", quote_name(page_path)));
    }
    return ExitCode::success;
  }

 private:
  Result<Json> read(const Session& session) {
    VARVE_TRY(check_job_name(job_));
    if (!log_.empty()) return read_timeline(path_ = log_, job_);
    SettingsSources sources = SettingsSources::of_process();
    sources.command_line = {{"store", session.said_store()}};
    VARVE_ASSIGN(Settings settings, resolve_settings({}, sources));
    // What is said here counts, wherever the runs that are under way here have their logs.
    if (settings.timeline == "none" || !session.said_store().empty()) settings.timeline = "auto";
    const std::vector<std::string> places = timeline_places(settings, sources.node(), job_);
    for (const std::string& place : places) {
      Result<Json> timeline = read_timeline(path_ = place, job_);
      if (timeline.status().code() != StatusCode::not_found) return timeline;
    }
    if (places.empty())
      return Status::not_found("a log is beside the sets of a store that is a folder, and there is none", job_,
                               "set VARVE_TIMELINE to a folder for the run, and name the log with --log-file");
    return Status::not_found("there is no log of the runs of this job", places.front(),
                             "name the job, and the store or the levels that its runs have (--store, VARVE_LEVELS), or "
                             "the log itself (--log-file)");
  }

  static Status write_page(const std::string& path, std::string_view contents) {
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    file.write(contents.data(), static_cast<std::streamsize>(contents.size()));
    file.close();
    return file ? Status() : Status::from_errno(errno != 0 ? errno : EIO, "write", path);
  }

  std::string job_, log_, page_path_;
  std::string path_;  ///< of the log that was read
};
}  // namespace

std::unique_ptr<Command> make_timeline_command() { return std::make_unique<TimelineCommand>(); }

}  // namespace varve::cli
