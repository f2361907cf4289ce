#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <map>

#include "cli/child_program.h"
#include "cli/command.h"
#include "cli/job_starts.h"
#include "cli/slurm_job.h"
#include "cli/text.h"
#include "core/quantity.h"
#include "level/store_access.h"
#include "runtime/settings.h"

namespace varve::cli {

namespace {
/// Of a job that was stopped, and has work left: sysexits.h calls it a temporary failure. slurm.conf's RequeueExit= is
/// to name it.
constexpr int kRequeueCode = 75;
/// Slurm's own KillWait, where nobody has set another.
constexpr double kGracePreset = 30;
constexpr uint32_t kCrashLimitPreset = 3;

/// What is done with a job that was stopped and has work left.
enum class Requeue : uint8_t {
  automatic,  ///< in Slurm by_code or by_command, whichever works; elsewhere by_code
  by_code,
  by_command,
  none,
};

Status take_requeue(Requeue& into, const std::string& text) {
  for (const auto& [name, value] : {std::pair("auto", Requeue::automatic),
                                    {"code", Requeue::by_code},
                                    {"scontrol", Requeue::by_command},
                                    {"no", Requeue::none}}) {
    if (text != name) continue;
    into = value;
    return {};
  }
  return Status::invalid_argument("auto, code, scontrol or no is wanted", text);
}

Status take_signal(int& into, const std::string& text) {
  for (const auto& [name, number] : {std::pair("USR1", SIGUSR1), {"TERM", SIGTERM}}) {
    if (text != name && text != std::string("SIG") + name) continue;
    into = number;
    return {};
  }
  return Status::invalid_argument("USR1 or TERM is wanted", text);
}

class RunCommand final : public Command {
 public:
  std::string_view name() const override { return "run"; }
  std::string_view summary() const override { return "run a program that may be stopped, and put back into the queue"; }

  void declare(Arguments& arguments) override {
    arguments.optional_positional_list("COMMAND", command_, "behind --: the program, or the launcher that starts it");
    arguments.text("--levels", "LEVELS", levels_,
                   "where checkpoints go, in place of --store: nearest first, separated by \";\" (default: "
                   "$VARVE_LEVELS, else those of varve.toml)");
    arguments.text("--job", "NAME", job_, "the job's name (default: $VARVE_JOB, or what the program says)");
    arguments.duration("--grace", grace_,
                       "between the signal that asks for a stop and the end (default: $VARVE_GRACE, else 30s)");
    arguments.number("--end-time", "SECONDS", end_time_,
                     "when the job is ended, in seconds since 1970 (default: in Slurm, what that says)");
    arguments.value(
        "--signal", "SIGNAL", [this](const std::string& text) { return take_signal(signal_, text); },
        "what SIGTERM and SIGUSR1 are passed on as: USR1 (the default; mpirun ends its ranks at once on SIGTERM) or "
        "TERM");
    arguments.value(
        "--requeue", "HOW", [this](const std::string& text) { return take_requeue(requeue_, text); },
        "what is done when there is work left: code (ends with 75), scontrol (calls `scontrol requeue`), no (ends with "
        "0), or auto (the default: code, if slurm.conf has RequeueExit=75, or there is no Slurm)");
    arguments.text("--state", "FILE", state_,
                   "counts the starts of the job; the program's session writes FILE.note (default: in the folder of "
                   "the nearest store that all nodes share, or beside it until it is made, else in the working "
                   "directory)");
    arguments.count("--crash-limit", "N", crash_limit_,
                    "so many starts in a row may fail that went on from the same step (default: 3)");
    arguments.flag("--reset", reset_, "count starts and failures anew");
    arguments.examples(
        "  varve run --store /lustre/me/store -- srun ./solver\n"
        "  varve run --levels \"memory; local:/nvme/me; dir:/lustre/me/store every=10\" --grace 90s -- mpirun "
        "./solver\n"
        "  varve run --reset -- srun ./solver              after a loop of crashes\n");
  }

  bool prints_facts() const override { return false; }

  Result<ExitCode> run(Session& session) override {
    if (command_.empty() && !reset_)
      return Status::invalid_argument("a program to run is wanted", "", "varve run [OPTIONS] -- PROGRAM [ARGUMENTS]");
    const std::optional<SlurmJob> slurm = SlurmJob::find();
    VARVE_ASSIGN(const Settings settings, find_settings(session));
    VARVE_TRY(choose_state(settings, slurm));
    if (reset_) VARVE_TRY(forget());
    if (command_.empty()) return ExitCode::success;
    // From before the start is noted until all is: what comes between is not to end us, nor to be missed.
    const HeldSignals signals;
    VARVE_TRY(begin());
    if (session.is_verbose())
      session.log(fmt::format("start {} of the job", starts_.starts), {{"event", "start"}, {"starts", starts_.starts}});
    ChildProgram child;
    child.command = command_;
    child.environment = environment_of(session, settings, slurm);
    child.stop_signal = signal_;
    child.note_stop = [this, &session](const char* signal) { note_stop(session, signal); };
    const Result<ChildEnd> end = run_child(child, signals);
    if (!end.ok() || !end->not_started.ok()) forget().ignore("it was not started");
    VARVE_TRY(end.status());
    not_started_ = !end->not_started.ok();
    VARVE_TRY(end->not_started);
    return conclude(session, *end, slurm);
  }

  /// As shells have it, so that it is told from what the program itself ends with.
  ExitCode exit_code_for(const Status& failure) const override {
    if (!not_started_) return Command::exit_code_for(failure);
    return failure.code() == StatusCode::not_found ? ExitCode::no_such_program : ExitCode::cannot_execute;
  }

 private:
  Result<Settings> find_settings(const Session& session) {
    SettingsSources sources = SettingsSources::of_process();
    sources.command_line = {{"levels", levels_},
                            {"store", levels_.empty() ? session.said_store() : std::string()},
                            {"job", job_},
                            {"key_file", session.reach().key_file},
                            {"s3_endpoint", session.reach().s3_endpoint}};
    if (!levels_.empty() && !session.said_store().empty())
      return Status::invalid_argument("--store and --levels say both where checkpoints go", "",
                                      "--store STORE is short for --levels \"memory; dir:STORE\"");
    sources.program.clear();
    return resolve_settings({}, sources);
  }

  /// Beside the lease of the job, where all starts of it find it, wherever they are.
  Status choose_state(const Settings& settings, const std::optional<SlurmJob>& slurm) {
    if (!state_.empty()) return {};
    const auto option = std::find_if(settings.options.begin(), settings.options.end(),
                                     [](const EffectiveOption& one) { return one.name == "job"; });
    std::string job = settings.job;
    const bool is_said = option != settings.options.end() && option->origin != OptionOrigin::preset;
    if (!is_said && slurm && check_job_name(slurm->name()).ok()) job = slurm->name();
    if (!is_said && !slurm && !command_.empty() && check_job_name(base_name(command_.front())).ok())
      job = base_name(command_.front());
    for (const LevelSpec& level : settings.levels) {
      if (level.kind != &kFolderLevel) continue;
      return choose_state_of(level, job, settings.reach);
    }
    state_ = "varve-run-" + job + ".starts";
    return {};
  }

  /// A program that makes no checkpoint leaves nothing behind, and no store either: until there is one, what is counted
  /// lies beside its place, and is brought into it by the next start.
  Status choose_state_of(const LevelSpec& level, const std::string& job, const ReachOptions& reach) {
    std::string place = level.place;
    while (place.size() > 1 && place.ends_with('/')) place.pop_back();
    const std::string beside = place + "." + job + ".starts";
    const Result<FileStatus> there = files_.stat(level.place);
    if (there.status().code() == StatusCode::not_found) {
      state_ = beside;
      return {};
    }
    VARVE_TRY(there.status());
    VARVE_TRY(LevelStore::prepare(files_, level, level.place, reach).status());
    const std::string folder = join_path(level.place, "runs");
    VARVE_TRY(files_.create_directory(folder));
    state_ = join_path(folder, job + ".starts");
    // The note first: without what was counted beside it nobody looks for it there again.
    for (const char* const kind : {".note", ""}) {
      const Status moved = files_.rename(beside + kind, state_ + kind);
      if (moved.code() != StatusCode::not_found) VARVE_TRY(moved);
    }
    return {};
  }

  std::string note_path() const { return state_ + ".note"; }

  Status forget() {
    for (const std::string& path : {state_, note_path()}) {
      const Status removed = files_.remove(path);
      if (!removed.ok() && removed.code() != StatusCode::not_found) return removed;
    }
    return {};
  }

  /// Counts this start. Fails if those before it have shown that it will fail, too.
  Status begin() {
    VARVE_ASSIGN(starts_, read_job_starts(files_, state_));
    const Result<RunNote> note = read_run_note(files_, note_path());
    JobStarts next = starts_;
    next.note_start(note.ok() ? std::optional(*note) : std::nullopt);
    if (next.crashes >= crash_limit_) {
      const std::string where = next.step ? fmt::format("going on from step {}", step_text(*next.step))
                                          : std::string("before any checkpoint");
      return {StatusCode::resource_limit,
              fmt::format("the job has failed {} times in a row, each time {} and without a newer checkpoint, and is "
                          "not started again",
                          next.crashes, where),
              state_, "look at what the program said last; `varve run --reset` lets it be started again"};
    }
    starts_ = next;
    const Status removed = files_.remove(note_path());
    if (!removed.ok() && removed.code() != StatusCode::not_found) return removed;
    return write_job_starts(files_, state_, starts_);
  }

  std::map<std::string, std::optional<std::string>> environment_of(const Session& session, const Settings& settings,
                                                                   const std::optional<SlurmJob>& slurm) const {
    std::map<std::string, std::optional<std::string>> variables;
    if (!levels_.empty()) variables = {{"VARVE_LEVELS", levels_}, {"VARVE_STORE", std::nullopt}};
    if (!session.said_store().empty())
      variables = {{"VARVE_STORE", session.said_store()}, {"VARVE_LEVELS", std::nullopt}};
    if (!job_.empty()) variables["VARVE_JOB"] = job_;
    if (!session.reach().key_file.empty()) variables["VARVE_KEY_FILE"] = session.reach().key_file;
    if (!session.reach().s3_endpoint.empty()) variables["VARVE_S3_ENDPOINT"] = session.reach().s3_endpoint;
    const double grace = grace_ > 0 ? grace_ : settings.stop.grace.value_or(kGracePreset);
    variables["VARVE_GRACE"] = fmt::format("{}", grace);
    std::optional<int64_t> end;
    if (end_time_) end = static_cast<int64_t>(*end_time_);
    if (!end && settings.stop.end_time) end = static_cast<int64_t>(*settings.stop.end_time);
    if (!end && slurm) end = slurm->end_time(calendar_seconds());
    if (end) variables["VARVE_END_TIME"] = fmt::format("{}", *end);
    variables["VARVE_NOTE_FILE"] = absolute(note_path());
    return variables;
  }

  static std::string absolute(const std::string& path) {
    std::error_code error;
    const std::filesystem::path made = std::filesystem::absolute(path, error);
    return error ? path : made.string();
  }

  /// At once: nobody may be left to write it down later.
  void note_stop(Session& session, const char* signal) {
    starts_.was_asked = true;
    const Status noted = write_job_starts(files_, state_, starts_);
    if (!noted.ok()) session.warn(noted.with_context(fmt::format("{} came, which could not be written down", signal)));
  }

  Result<ExitCode> conclude(Session& session, const ChildEnd& end, const std::optional<SlurmJob>& slurm) {
    const Result<RunNote> read = read_run_note(files_, note_path());
    const std::optional<RunNote> note = read.ok() ? std::optional(*read) : std::nullopt;
    const bool stopped_well = end.code == 0 && note && note->ended && !note->stopped_by.empty();
    const bool killed_while_stopping = end.code != 0 && end.asked_by;
    // Without an end of its session, as after exit(): nobody has said that the work is done.
    const bool left_early = end.code == 0 && end.asked_by && note && !note->ended;
    if (end.code == 0 && !stopped_well && !left_early) {
      const Status forgotten = forget();
      if (!forgotten.ok()) session.warn(forgotten);
      return ExitCode::success;
    }
    if (stopped_well || left_early || killed_while_stopping) {
      starts_.note_good_end();
    } else {
      starts_.note_crash(note ? note->restarted_from : std::nullopt);
    }
    const Status written = write_job_starts(files_, state_, starts_);
    if (!written.ok()) session.warn(written);
    const bool has_work_left = stopped_well || left_early || (killed_while_stopping && !end.interrupted);
    if (!has_work_left) return static_cast<ExitCode>(end.code);
    session.warn(Status::cancelled(what_happened(end, note, stopped_well)));
    return put_back(session, slurm);
  }

  static std::string what_happened(const ChildEnd& end, const std::optional<RunNote>& note, bool stopped_well) {
    const std::string why = stopped_well ? note->stopped_by : *end.asked_by;
    if (!stopped_well) return fmt::format("the program ended with {} after {}, and has work left", end.code, why);
    if (!note->last_step) return fmt::format("the program was stopped by {}, and has work left", why);
    return fmt::format("the program was stopped by {} at step {}, which is in {}, and has work left", why,
                       step_text(*note->last_step), note->place);
  }

  /// Where Slurm requeues by the code, it knows by itself that a job that was cancelled is not to come back.
  ExitCode put_back(Session& session, const std::optional<SlurmJob>& slurm) const {
    if (requeue_ == Requeue::none) return ExitCode::success;
    const bool by_command = requeue_ == Requeue::by_command ||
                            (requeue_ == Requeue::automatic && slurm && !slurm->is_requeued_by(kRequeueCode));
    if (by_command && slurm) {
      const Status requeued = slurm->requeue();
      if (!requeued.ok() && requeued.code() != StatusCode::busy)
        session.warn(requeued.with_context("the job could not be put back into the queue"));
    }
    return static_cast<ExitCode>(kRequeueCode);
  }

  std::vector<std::string> command_;
  std::string levels_, job_, state_;
  double grace_ = 0;
  std::optional<uint64_t> end_time_;
  int signal_ = SIGUSR1;
  Requeue requeue_ = Requeue::automatic;
  uint32_t crash_limit_ = kCrashLimitPreset;
  bool reset_ = false;
  FileSystem& files_ = posix_file_system();
  JobStarts starts_;
  bool not_started_ = false;  ///< as there is no such program, or it cannot be executed
};
}  // namespace

std::unique_ptr<Command> make_run_command() { return std::make_unique<RunCommand>(); }

}  // namespace varve::cli
