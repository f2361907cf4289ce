#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <set>

#include "cli/command.h"
#include "cli/process.h"
#include "cli/remedies.h"
#include "cli/save_command.h"
#include "cli/text.h"
#include "cli/watch_explanation.h"
#include "cli/watch_levels.h"
#include "core/process.h"
#include "core/state_folder.h"
#include "core/sync.h"
#include "engine/folder_source.h"
#include "monitor/metrics_outlet.h"
#include "runtime/command_levels.h"
#include "serve/offer.h"
#include "service/location.h"
#include "store/catalog.h"
#include "watch/watch_status.h"
#include "watch/watcher.h"

namespace varve::cli {

namespace {
/// A tenth of a processor's time beside a program that wants all of it, and the disk when nobody else does.
void give_way() {
  constexpr int niceness = 10, idle_class = 3, class_shift = 13, this_process = 1;
  ::setpriority(PRIO_PROCESS, 0, niceness);
  ::syscall(SYS_ioprio_set, this_process, 0, idle_class << class_shift);
}

const char* state_name(WatchState state) {
  switch (state) {
    case WatchState::waiting: return "waiting";
    case WatchState::saved: return "saved";
    case WatchState::differs: return "differs";
    case WatchState::failed: return "failed";
  }
  return "";
}

/// Passes warnings on, and ends the watcher when a signal came.
class WatchProgress final : public ProgressSink {
 public:
  explicit WatchProgress(Session& session) : session_(session) {}
  void total(uint64_t) override {}
  void advance(uint64_t) override {}
  void phase(std::string_view) override {}
  void warning(const Status& what) override { session_.warn(what); }
  bool cancelled() const override { return interrupted(); }

 private:
  Session& session_;
};

/// The files of a set, which are unchanged only if no others have come.
class WatchedSource final : public Source {
 public:
  WatchedSource(Source& files, const SetToSave& set) : files_(files), set_(set) {}
  const std::vector<SourceFile>& files() const override { return files_.files(); }
  Result<std::vector<Layout>> layouts(ProgressSink& progress) override { return files_.layouts(progress); }
  Status read(uint32_t file, uint64_t offset, MutableByteSpan into) override { return files_.read(file, offset, into); }
  Result<uint64_t> hole_bytes(uint32_t file, uint64_t offset, uint64_t bytes_max) override {
    return files_.hole_bytes(file, offset, bytes_max);
  }
  Status check_unchanged() override {
    VARVE_TRY(files_.check_unchanged());
    return set_.check_as_found();
  }

 private:
  Source& files_;
  const SetToSave& set_;
};

/// Says a line for each event, and keeps the status file.
class Reporter final : public WatchListener {
 public:
  /// `nearest` is what is saved to, and is called `level`.
  Reporter(Session& session, std::string to, const Store& nearest, const std::string& level)
      : session_(session), levels_(nearest, level, calendar_seconds()) {
    status_.to = std::move(to);
    status_.host = host_name();
    status_.process = ::getpid();
    status_.started_s = calendar_seconds();
  }
  ~Reporter() override {
    status_.running = false;
    publish();
  }
  Status open(const std::vector<std::string>& folders, const std::string& as, const std::string& metrics) {
    status_.folders = folders;
    if (!metrics.empty()) {
      VARVE_ASSIGN(outlet_, MetricsOutlet::open(metrics));
    }
    VARVE_ASSIGN(const std::string state, state_folder());
    VARVE_ASSIGN(file_, StatusFile::open(state, folders, status_.to, as));
    publish();
    return file_->write(status_);
  }

  void begins(const SetName& name) override {
    status_.saving = name.to_string();
    write();
  }

  void happened(const WatchEvent& event) override {
    count(event);
    write();  // who reads the line may look at once
    const std::string set = event.entry.name.to_string();
    if (session_.json()) {
      session_.print_facts(facts_of(event, set));
    } else if (session_.log_form() != LogForm::text) {
      log(event, set);
    } else {
      session_.print(fmt::format("{}  {}\n", format_time(calendar_seconds()), line_of(event, quote_name(set))));
    }
    if (Status printed = session_.finish_printing(); !printed.ok()) session_.warn(printed);
  }

  void rests(const SetTracker& sets) override {
    left_out_.clear();
    std::vector<WatchStatus::Pending> pending;
    status_.pending_bytes = 0;
    made_s_.clear();
    for (const auto& [key, entry] : sets.entries()) {
      if (entry.state == WatchState::saved) continue;
      if (entry.state != WatchState::differs) note_unsaved(entry);
      left_out_.push_back({entry.name, entry.state, entry.failure.ok() ? Status::busy(entry.lacking) : entry.failure});
      pending.push_back({entry.name.to_string(), state_name(entry.state),
                         entry.failure.ok() ? entry.lacking : in_one_line(entry.failure)});
    }
    auto same = [](const WatchStatus::Pending& a, const WatchStatus::Pending& b) {
      return a.set == b.set && a.state == b.state && a.why == b.why;
    };
    if (status_.saving.empty() &&
        std::equal(pending.begin(), pending.end(), status_.pending.begin(), status_.pending.end(), same)) {
      if (MonotonicClock::now() >= next_publication_) publish();
      return;
    }
    status_.saving.clear();
    status_.pending = std::move(pending);
    write();
  }

  /// That sets were brought to the levels behind the nearest.
  void note_brought(const std::string& job, const Onward& onward, const Levels& levels) {
    if (outlet_) levels_.note_brought(job, onward, levels);
  }

  /// Says at the end which sets are not in the store. The code is that of the first that failed, or else of the first
  /// that is not whole.
  ExitCode conclude() {
    if (left_out_.empty()) return ExitCode::success;
    if (session_.json()) {
      Json sets = Json::array();
      for (const LeftOut& one : left_out_)
        sets.push_back({{"set", one.name.to_string()}, {"state", state_name(one.state)}, {"error", to_json(one.why)}});
      session_.print_facts(Json{{"event", "left_out"}, {"time_s", calendar_seconds()}, {"sets", std::move(sets)}});
    } else if (session_.log_form() != LogForm::text) {
      session_.log(line_of_left_out(), {{"event", "left_out"}}, LogLevel::warning);
    } else {
      session_.print(fmt::format("{}  {}\n", format_time(calendar_seconds()), line_of_left_out()));
    }
    const auto failed = std::find_if(left_out_.begin(), left_out_.end(),
                                     [](const LeftOut& one) { return one.state != WatchState::waiting; });
    return exit_code_of((failed != left_out_.end() ? *failed : left_out_.front()).why.code());
  }

 private:
  struct LeftOut {
    SetName name;
    WatchState state;
    Status why;
  };

  std::string line_of_left_out() const {
    std::string line = fmt::format("left out {}: ", format_count(left_out_.size(), "set", "sets"));
    for (const LeftOut& one : left_out_) {
      line += fmt::format("{}{} ({})", &one == &left_out_.front() ? "" : ", ", quote_name(one.name.to_string()),
                          escape_text(one.why.message()));
    }
    return line;
  }

  /// Of a set that is not in the store, how large it is and when it was written last.
  void note_unsaved(const SetTracker::Entry& entry) {
    int64_t& made_s = made_s_[entry.name.job];
    for (const SourceFile& file : entry.found.files) {
      status_.pending_bytes += file.bytes;
      made_s = std::max(made_s, file.modified_s);
    }
  }

  void count(const WatchEvent& event) {
    // Which reads its record: for those alone who are told of it.
    if (outlet_ && event.kind == WatchEvent::Kind::was_saved) levels_.note_there(event.entry.name);
    if (event.kind == WatchEvent::Kind::saved) levels_.note_saved(event.report->record);
    if (event.kind == WatchEvent::Kind::removed) ++status_.removed_sets;
    if (event.kind == WatchEvent::Kind::failed) ++status_.failures;
    if (event.kind != WatchEvent::Kind::saved) return;
    ++status_.saved_sets;
    status_.raw_bytes += event.report->record.raw_bytes;
    status_.stored_bytes += event.report->record.stored_bytes();
    status_.newest = event.entry.name.to_string();
    status_.newest_s = calendar_seconds();
  }

  void log(const WatchEvent& event, const std::string& set) {
    using enum WatchEvent::Kind;
    Json facts = facts_of(event, set);
    facts.erase("time_s");  // each line has its time
    if (event.kind == saved) {
      facts.erase("record");
      facts["raw_bytes"] = event.report->record.raw_bytes;
      facts["stored_bytes"] = event.report->record.stored_bytes();
    }
    const bool is_bad = event.kind == differs || event.kind == failed;
    if (is_bad) facts["code"] = facts["error"]["code"];
    session_.log(line_of(event, quote_name(set)), facts, is_bad ? LogLevel::warning : LogLevel::info);
  }

  static std::string line_of(const WatchEvent& event, const std::string& set) {
    using enum WatchEvent::Kind;
    switch (event.kind) {
      case found: return fmt::format("found {} in {}", set, quote_name(event.entry.found.folder));
      case saved: {
        const SetRecord& record = event.report->record;
        return fmt::format("saved {}: {}, {} → {} stored ({}), {}", set,
                           format_count(record.file_count, "file", "files"), format_size(record.raw_bytes),
                           format_size(record.stored_bytes()), format_ratio(record.raw_bytes, record.stored_bytes()),
                           format_seconds(event.seconds));
      }
      case was_saved: return fmt::format("{} is in the store already", set);
      case removed: return fmt::format("removed the originals of {}", set);
      case differs:
      case failed: return fmt::format("{}: {}", set, in_one_line(event.entry.failure));
    }
    return {};
  }

  static Json facts_of(const WatchEvent& event, const std::string& set) {
    using enum WatchEvent::Kind;
    static constexpr const char* names[] = {"found", "saved", "was_saved", "removed", "differs", "failed"};
    Json facts{{"event", names[static_cast<size_t>(event.kind)]},
               {"time_s", calendar_seconds()},
               {"set", set},
               {"folder", event.entry.found.folder}};
    if (event.kind == saved) {
      facts["record"] = to_json(event.report->record);
      facts["seconds"] = event.seconds;
    }
    if (event.kind == differs || event.kind == failed) facts["error"] = to_json(event.entry.failure);
    return facts;
  }

  void write() {
    const Status written = file_->write(status_);
    if (!written.ok() && !warned_) session_.warn(written.with_context("varve status does not see this watcher"));
    warned_ = !written.ok();
    publish();
  }

  void publish() {
    if (!outlet_) return;
    status_.updated = calendar_time();
    status_.levels = levels_.now(made_s_);
    next_publication_ = MonotonicClock::now() + kPublicationInterval;
    const Status published = outlet_->publish(metrics_of(status_));
    if (!published.ok() && !warned_of_metrics_) session_.warn(published.with_context("metrics are not told"));
    warned_of_metrics_ = !published.ok();
  }

  /// Where nothing happens.
  static constexpr std::chrono::seconds kPublicationInterval{5};

  Session& session_;
  WatchStatus status_;
  WatchLevels levels_;
  std::map<std::string, int64_t> made_s_;  ///< by job: when the newest of what is not saved was written
  Moment next_publication_{};
  std::optional<StatusFile> file_;
  std::unique_ptr<MetricsOutlet> outlet_;  ///< null: nobody asks
  bool warned_ = false, warned_of_metrics_ = false;
  std::vector<LeftOut> left_out_;  ///< when the watcher rested last
};

class WatchCommand final : public Command {
 public:
  std::string_view name() const override { return "watch"; }
  std::string_view summary() const override {
    return "save the sets that a program writes into folders, as they appear";
  }

  void declare(Arguments& arguments) override {
    arguments.positional_list("DIR", options_.folders, "folders to watch, each with the sets of one job");
    arguments.text("--to", "STORE", to_, std::string("the store to save to, as --store: ") + kStoreForms);
    arguments.text("--levels", "LEVELS", levels_,
                   "levels to save to, in place of --to, as for varve save: sets are saved to the first, and copied to "
                   "the others");
    auto take_pattern = [this](const std::string& text) -> Status {
      VARVE_ASSIGN(options_.patterns, parse_patterns(text));
      return {};
    };
    arguments.value(
        "--pattern", "PATTERN", take_pattern,
        "how names tell step or time and rank, e.g. 'restart.{step}.{rank}' or 'processor{rank}/{time}/**', or a "
        "program: openfoam, gromacs, lammps, enzo, qe; without a step in it, what it names is a new set whenever it "
        "has "
        "changed (default: '*{step}/**', each folder whose name ends with a number, or is a time)");
    arguments.metrics(metrics_);
    arguments.flag("--explain", explain_, "show what would be taken for sets, steps and ranks, and why; save nothing");
    arguments.text("--job", "NAME", options_.job, "the job's name (default: the watched folder's name)");
    arguments.count("--ranks", "N", rank_count_, "a set is complete when it has files of N ranks");
    arguments.text("--end-marker", "NAME", options_.completeness.end_marker,
                   "a set is complete when it has a file of this name; {step} in it stands for the step");
    arguments.seconds(
        "--quiet", quiet_seconds_,
        "a set is complete when nothing has changed for so long (default: 10; 1 with --ranks or --end-marker)");
    arguments.count("--nodes", "N", node_count_,
                    "each set lies on N nodes, with a watcher on each; the server given by --to puts them together");
    arguments.text("--node", "NAME", node_,
                   "this node's name, with --nodes (default: $VARVE_NODE, else the host's name)");
    arguments.flag("--remove-originals", options_.remove_originals,
                   "remove a set's files once the saved set was read back and is identical, byte for byte");
    arguments.flag(
        "--once", once_,
        "save the sets that are complete, and exit; the exit code tells whether a set was left out, and why");
    saving_.declare_grouping(arguments);
    saving_.declare_shrinking(arguments);
    arguments.memory("--memory", saving_.options.memory_bytes, "memory to use at most, about (default: 512MiB)");
    arguments.threads(saving_.options.thread_count, "threads (default: 1)");
    arguments.examples(
        "  varve watch run --to /lustre/varve               run/dump0007 becomes run@7\n"
        "  varve watch restarts --pattern 'restart.{step}.{rank}' --ranks 64 --job melt\n"
        "  varve watch case --pattern openfoam --explain    which sets it finds, and what they would be called\n"
        "  varve watch out --end-marker DONE --remove-originals\n"
        "  varve watch out --levels 'local:/nvme/me keep=2; dir:/lustre/me every=10'\n"
        "  varve watch /nvme/out --ranks 8 --nodes 4 --to tcp://io1:7070\n"
        "  varve status                                     what all watchers are doing\n");
  }

  Result<ExitCode> run(Session& session) override {
    options_.completeness.rank_count = rank_count_;
    if (quiet_seconds_ >= 0) {
      options_.quiet_seconds = quiet_seconds_;
    } else if (options_.completeness.asks_for_something()) {
      options_.quiet_seconds = 1;
    }
    VARVE_ASSIGN(SaveOptions saving, saving_.take(false));
    if (saving.thread_count == 0) saving.thread_count = 1;
    KeptEncoders encoders;
    saving.encoders = &encoders;
    options_.rank_regex = saving.ranks.rank_regex;
    if (explain_) return explain_watch(session, options_);
    // It forks, so it comes before any thread.
    VARVE_ASSIGN(const std::unique_ptr<LayoutService> layouts, LayoutService::start());
    Target target;
    VARVE_TRY(open(session, target));
    give_way();
    note_interrupts();
    Reporter reporter(session, target.location, *target.store, target.level);
    WatchDuty duty;
    duty.saves_with_others = node_count_ > 1;
    duty.save = [&](const SetToSave& set, const SetName& name, ProgressSink& progress) -> Result<SaveReport> {
      up_to_date_.erase(name.job);
      if (node_count_ == 0)
        return save_files(*target.store, set.folder, set.files, name, saving, *layouts, progress, set.check_as_found);
      FolderSource files(set.folder, set.files, *layouts, saving.variables.layouts);
      WatchedSource source(files, set);
      const SetOffer offer{name, node_name(), node_count_, saving};
      VARVE_TRY(offer_set(*target.place->servers().front(), offer, source, progress));
      SaveReport report;
      VARVE_ASSIGN(report.record, Catalog(*target.store).read(name));
      return report;
    };
    if (target.levels) {
      saving.next_number = [&target](const std::string& job) { return target.levels->next_number(job); };
      duty.bring_along = [&](const SetName& name, ProgressSink& progress) {
        return bring_along(session, *target.levels, name, progress, reporter);
      };
      duty.find = [&](const SetName& name) { return find_set(target.levels->levels(), name); };
    }
    VARVE_ASSIGN(const std::unique_ptr<Watcher> watcher,
                 Watcher::open(*target.store, options_, std::move(duty), reporter));
    std::string saved_as = options_.job;
    for (const SetPattern& pattern : options_.patterns) {
      if (pattern.is_said()) saved_as.append("\n").append(pattern.text());
    }
    VARVE_TRY(reporter.open(watcher->folders(), saved_as, metrics_));
    WatchProgress progress(session);
    VARVE_TRY(watcher->run(once_, progress));
    if (!once_) return ExitCode::success;
    const auto is_empty = [](const std::string& folder) {
      std::error_code error;
      return std::filesystem::is_empty(folder, error);
    };
    const std::vector<std::string> folders = watcher->folders();
    if (!watcher->has_found_any() && !interrupted() && !std::all_of(folders.begin(), folders.end(), is_empty)) {
      session.warn(Status(StatusCode::not_found, "no set is found", folders.front(),
                          "the same with --explain shows what was looked for; --pattern has patterns for programs "
                          "by name"));
    }
    return interrupted() ? ExitCode::interrupted : reporter.conclude();
  }

 private:
  /// Where the sets go. Ends before the session, which holds what reaches it.
  struct Target {
    std::string location, level;            ///< for people: all of it, and what is saved to
    StorePlace* place = nullptr;            ///< unless levels were named
    std::unique_ptr<Store> own;             ///< likewise
    std::unique_ptr<CommandLevels> levels;  ///< if they were
    const Store* store = nullptr;           ///< of the place, or the nearest level
  };

  Status open(Session& session, Target& target) const {
    if (!levels_.empty()) {
      if (!to_.empty() || node_count_ > 0)
        return Status::invalid_argument("--levels goes neither with --to nor with --nodes", levels_);
      VARVE_ASSIGN(target.levels, session.open_levels(levels_, CommandLevels::Use::save));
      target.store = &target.levels->for_saving();
      target.location = levels_;
      target.level = target.levels->levels().nearest().name();
      return {};
    }
    target.location = to_;
    if (target.location.empty()) {
      VARVE_ASSIGN(target.location, session.store_path());
    }
    VARVE_ASSIGN(target.place, session.open_place(target.location));
    target.location = absolute_location(target.location);  // watchers, and who asks for them, may be in other folders
    target.level = target.location;
    VARVE_ASSIGN(target.own, varve::open_store(*target.place));
    target.store = target.own.get();
    if (node_count_ == 0 || target.place->servers().size() == 1) return {};
    return Status::invalid_argument("sets of several nodes are put together by one server", target.location,
                                    "start one with `varve serve`, and name it with --to");
  }

  /// OK once the set is at all levels where it is to be. What else goes wrong at the levels is not the set's fault.
  Status bring_along(Session& session, CommandLevels& levels, const SetName& name, ProgressSink& progress,
                     Reporter& reporter) {
    const auto known = up_to_date_.find(name.job);
    if (known != up_to_date_.end() && known->second.contains(name.step)) return {};
    // Before: who else saves may have a later one, at which nobody has looked.
    const Result<std::vector<uint64_t>> steps = Catalog(*levels.nearest()).steps(name.job);
    const Onward onward = levels.bring_along(name.job, progress);
    reporter.note_brought(name.job, onward, levels.levels());
    for (const Status& given_up : onward.given_up) session.warn(given_up);
    if (onward.owed.empty() && onward.failures.empty() && steps.ok())
      up_to_date_[name.job] = {steps->begin(), steps->end()};
    const bool owed = onward.owed.contains(name.step);
    for (const Status& failure : onward.failures) {
      if (!owed) session.warn(failure);
    }
    if (!owed) return {};
    return onward.failures.empty() ? Status::cancelled("stopped") : onward.failures.front();
  }

  std::string node_name() const {
    if (!node_.empty()) return node_;
    const char* const node = std::getenv("VARVE_NODE");
    return node != nullptr && node[0] != '\0' ? node : host_name();
  }

  WatchOptions options_;
  SaveArguments saving_;
  std::string to_, levels_, metrics_;
  std::string node_;
  uint32_t node_count_ = 0;    ///< one, without a server to put sets together
  uint32_t rank_count_ = 0;    ///< any
  double quiet_seconds_ = -1;  ///< not given
  bool once_ = false, explain_ = false;
  /// By job: steps whose sets were at all levels when the last one was saved.
  std::map<std::string, std::set<uint64_t>> up_to_date_;
};
}  // namespace

std::unique_ptr<Command> make_watch_command() { return std::make_unique<WatchCommand>(); }

}  // namespace varve::cli
