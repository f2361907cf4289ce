#include <fmt/format.h>

#include <chrono>

#include "backend/throttled_backend.h"
#include "cli/command.h"
#include "cli/process.h"
#include "cli/text.h"
#include "core/sync.h"
#include "engine/transfer.h"
#include "runtime/command_levels.h"
#include "serve/gather_service.h"

namespace varve::cli {

namespace {
/// What stands for the store that the server of the other one was started with.
constexpr std::string_view kNextLevel = "next";

/// What one of a command's sets came to.
struct CopiedSet {
  std::string set;  ///< its name; as it was asked for, if a server alone knows which one that is
  TransferReport report;
};

/// `push` and `pull`: the same, seen from either store.
class TransferCommand final : public Command {
 public:
  explicit TransferCommand(TransferDirection direction) : push_(direction == TransferDirection::push) {}

  std::string_view name() const override { return push_ ? "push" : "pull"; }
  std::string_view summary() const override {
    return push_ ? "copy sets to another store, sending only what it lacks"
                 : "copy sets from another store, fetching only what is missing";
  }

  void declare(Arguments& arguments) override {
    arguments.optional_positional("SET", set_, std::string(kSetForms) + "; with --all: JOB");
    if (push_) {
      arguments.text(
          "--to", "STORE", other_,
          std::string("the store to copy to: ") + kStoreForms + "; next: your store's server copies to its next level");
      arguments.text("--from", "STORE", own_, "the store to copy from (default: --store)");
    } else {
      arguments.text("--from", "STORE", other_,
                     std::string("the store to copy from: ") + kStoreForms +
                         "; next: your store's server copies from its next level");
      arguments.text("--to", "STORE", own_, "the store to copy to (default: --store)");
    }
    arguments.flag("--all", all_, "all sets that the other store lacks, oldest first: of one job, or of all");
    if (push_) {
      arguments.flag(
          "--backlog", backlog_,
          "all sets that a level should have and lacks, oldest first: of one job, or of all; then drop older "
          "sets as keep= says");
      arguments.text("--levels", "LEVELS", levels_,
                     "with --backlog: the levels (default: $VARVE_LEVELS, else those of varve.toml)");
    }
    auto take_recode = [this](const std::string& text) -> Status {
      VARVE_ASSIGN(options_.recode, CodecPolicy::parse(text));
      return {};
    };
    arguments.value("--recode", "EFFORT", take_recode,
                    "compress again on the way, and keep what is smaller: fast, balanced, best or a codec chain");
    arguments.bandwidth("--bandwidth", bytes_per_second_, "write at most so many bytes per second, e.g. 200MB/s");
    arguments.flag("--deep", options_.check_held, "also read what is there already, and copy again what is damaged");
    arguments.flag("--quick", quick_, "check what is copied against checksums only, not every chunk against its hash");
    arguments.memory("--memory", options_.memory_bytes, "memory for what is being copied, about (default: 256MiB)");
    arguments.threads(thread_count_, "threads (default: one per processor)");
    arguments.examples(push_ ? "  varve push run@7 --to /archive/store                 one set\n"
                               "  varve push run --to /archive/store                   the newest\n"
                               "  varve push --all --to s3://checkpoints/me            all that it lacks\n"
                               "  varve push run@7 --to /archive/store --recode best   smaller there\n"
                               "  varve push --backlog --levels 'local:/nvme/me keep=2; dir:/lustre/me'\n"
                             : "  varve pull run@7 --from /archive/store\n"
                               "  varve pull run --from /archive/store --all --bandwidth 200MB/s\n");
  }

  Result<ExitCode> run(Session& session) override {
    const auto begin = MonotonicClock::now();
    if (backlog_) return push_backlog(session);
    VARVE_TRY(check_arguments());
    options_.check_chunks = !quick_;
    options_.thread_count = thread_count_;
    keep_freed_memory();
    VARVE_ASSIGN(const std::string own_path, own_.empty() ? session.store_path() : Result<std::string>(own_));
    if (other_ == kNextLevel) return run_on_server(session, own_path);
    VARVE_ASSIGN(const auto from, session.open_source(push_ ? own_path : other_));
    VARVE_ASSIGN(StorePlace* const target, session.open_place(push_ ? other_ : own_path));
    std::optional<ThrottledBackend> slow;
    if (bytes_per_second_ > 0) slow.emplace(target->backend(), bytes_per_second_);
    VARVE_ASSIGN(const auto to, open_store(*target, slow ? &*slow : nullptr));
    VARVE_ASSIGN(const std::vector<SetName> names, choose_sets(*from, *to));
    const Status copied = copy(session, *from, *to, names);
    session.end_progress();
    if (!copied.ok() && !all_) return copied;
    print(session, to->path(), copied.ok(), std::chrono::duration<double>(MonotonicClock::now() - begin).count());
    if (!copied.ok()) return copied;
    return ExitCode::success;
  }

 private:
  /// What could not be copied when it was its turn.
  Result<ExitCode> push_backlog(Session& session) {
    const auto begin = MonotonicClock::now();
    if (!other_.empty() || !own_.empty() || all_)
      return Status::invalid_argument("--backlog goes by the levels", "", "leave --to, --from and --all out");
    if (set_.find('@') != std::string::npos)
      return Status::invalid_argument("the backlog is that of a job", set_, "write JOB, or nothing for all jobs");
    VARVE_ASSIGN(const std::unique_ptr<CommandLevels> levels, session.open_levels(levels_, CommandLevels::Use::save));
    std::vector<std::string> jobs{set_};
    if (set_.empty()) {
      VARVE_ASSIGN(jobs, Catalog(*levels->nearest()).jobs());
    }
    ProgressSink& progress = session.begin_progress();
    std::vector<Status> failures;
    uint64_t sent_bytes = 0;
    Json copies = Json::array();
    std::string lines;
    for (const std::string& job : jobs) {
      const Onward onward = levels->bring_along(job, progress);
      for (const LevelCopy& copy : onward.copies) {
        sent_bytes += copy.sent_bytes;
        copies.push_back(to_json(copy));
        lines += line_of(copy);
      }
      failures.insert(failures.end(), onward.given_up.begin(), onward.given_up.end());
      failures.insert(failures.end(), onward.failures.begin(), onward.failures.end());
    }
    session.end_progress();
    const double seconds = std::chrono::duration<double>(MonotonicClock::now() - begin).count();
    if (session.json()) {
      session.print_facts(Json{{"copied", std::move(copies)}, {"sent_bytes", sent_bytes}, {"seconds", seconds}});
    } else {
      session.print(lines.empty() && failures.empty() ? "all levels have what they should have\n" : lines);
    }
    for (size_t i = 1; i < failures.size(); ++i) session.warn(failures[i]);
    if (!failures.empty()) return failures.front();
    return ExitCode::success;
  }

  /// The store's server copies the set to or from its next level: nothing travels through this process.
  Result<ExitCode> run_on_server(Session& session, const std::string& location) {
    const auto begin = MonotonicClock::now();
    if (all_) return Status::invalid_argument("a server copies one set at a time", "", "leave --all out");
    VARVE_ASSIGN(StorePlace* const place, session.open_place(location));
    const std::vector<ServerLink*> servers = place->servers();
    if (servers.size() != 1) {
      return Status::unsupported("only a store on one server has a next level", location,
                                 "name the other store, or let --store be a server's");
    }
    VARVE_ASSIGN(const std::unique_ptr<Store> own, open_store(*place));
    // The newest of a job is that of the store it is taken from: by the time it is copied, the own one may have a
    // newer.
    std::string set = set_;
    if (push_) {
      VARVE_ASSIGN(const SetName name, Catalog(*own).resolve(set_));
      set = name.to_string();
    }
    SetTransfer what{.set = set,
                     .recode = options_.recode ? options_.recode->name() : "",
                     .check_held = options_.check_held,
                     .bytes_per_second = bytes_per_second_};
    VARVE_ASSIGN(const TransferNumbers numbers,
                 transfer_on_server(*servers.front(), push_ ? TransferDirection::push : TransferDirection::pull, what));
    CopiedSet copied;
    copied.set = std::move(set);
    copied.report = report_of(numbers);
    copied_.push_back(std::move(copied));
    print(session, push_ ? "the server's next level" : place->backend().root(), true,
          std::chrono::duration<double>(MonotonicClock::now() - begin).count());
    return ExitCode::success;
  }

  static TransferReport report_of(const TransferNumbers& numbers) {
    TransferReport report;
    report.was_there = numbers.was_there != 0;
    report.sent_packs = numbers.sent_packs;
    report.sent_nodes = numbers.sent_nodes;
    report.sent_bytes = numbers.sent_bytes;
    report.held_packs = numbers.held_packs;
    report.held_bytes = numbers.held_bytes;
    report.recoded_packs = numbers.recoded_packs;
    report.recoded_from_bytes = numbers.recoded_from_bytes;
    report.recoded_to_bytes = numbers.recoded_to_bytes;
    report.unchecked_packs = numbers.unchecked_packs;
    return report;
  }

  Status check_arguments() const {
    if (other_.empty()) {
      return push_ ? Status::invalid_argument("copy to which store?", "", "give --to STORE")
                   : Status::invalid_argument("copy from which store?", "", "give --from STORE");
    }
    if (!all_ && set_.empty())
      return Status::invalid_argument("which set is to be copied?", "", "write JOB@STEP or JOB, or give --all");
    if (all_ && set_.find('@') != std::string::npos)
      return Status::invalid_argument("--all copies all sets of a job", set_, "write JOB, or leave --all out");
    if (quick_ && options_.recode) {
      return Status::invalid_argument("--quick and --recode exclude one another", "",
                                      "what is encoded anew is decoded, and checked by that");
    }
    return {};
  }

  Result<std::vector<SetName>> choose_sets(const Store& from, const Store& to) {
    if (all_) {
      if (!set_.empty()) VARVE_TRY(Catalog(from).resolve(set_).status());
      return sets_lacking(from, to, set_);
    }
    VARVE_ASSIGN(SetName name, Catalog(from).resolve(set_));
    return std::vector<SetName>{std::move(name)};
  }

  /// With --all, a set that cannot be copied does not keep the others, as far as it is the set's own fault.
  Status copy(Session& session, const Store& from, const Store& to, const std::vector<SetName>& names) {
    ProgressSink& progress = session.begin_progress();
    Status failure;
    for (const SetName& name : names) {
      Result<TransferReport> report = copy_set(from, to, name, options_, progress);
      if (report.ok()) {
        copied_.push_back({name.to_string(), std::move(*report)});
        continue;
      }
      const StatusCode code = report.status().code();
      const bool own_fault =
          code == StatusCode::corrupt || code == StatusCode::not_found || code == StatusCode::already_exists;
      if (!all_ || !own_fault) return report.status();
      if (Catalog(from).read(name).status().code() == StatusCode::not_found) continue;  // dropped just now
      failed_.push_back(name);
      if (failure.ok()) {
        failure = report.status();
      } else {
        progress.warning(report.status());
      }
    }
    return failure;
  }

  void print(Session& session, const std::string& to, bool all_went_well, double seconds) const {
    if (session.json()) return print_json(session, to, seconds);
    for (const CopiedSet& set : copied_) print_set(session, set, to);
    if (copied_.empty() && all_went_well) session.print(quote_name(to) + " has all sets already\n");
    if (copied_.size() < 2) return;
    uint64_t sent_bytes = 0;
    for (const CopiedSet& set : copied_) sent_bytes += set.report.sent_bytes;
    session.print(fmt::format("{}, {} written, {}\n", format_count(copied_.size(), "set", "sets"),
                              format_size(sent_bytes), format_seconds(seconds)));
  }

  static void print_set(Session& session, const CopiedSet& set, const std::string& to) {
    const TransferReport& report = set.report;
    const std::string name = quote_name(set.set);
    if (report.was_there && report.sent_bytes == 0) {
      session.print(fmt::format("{} is in {} already\n", name, quote_name(to)));
      return;
    }
    session.print(fmt::format("{} {} to {}: {}, {} written; {}, {} were there\n",
                              report.was_there ? "copied what was lost of" : "copied", name, quote_name(to),
                              format_count(report.sent_packs, "pack", "packs"), format_size(report.sent_bytes),
                              format_count(report.held_packs, "pack", "packs"), format_size(report.held_bytes)));
    if (report.recoded_packs > 0) {
      session.print(fmt::format("  compressed anew: {}, {} → {}\n", format_count(report.recoded_packs, "pack", "packs"),
                                format_size(report.recoded_from_bytes), format_size(report.recoded_to_bytes)));
    }
  }

  void print_json(Session& session, const std::string& to, double seconds) const {
    Json sets = Json::array();
    for (const CopiedSet& set : copied_) {
      const TransferReport& report = set.report;
      sets.push_back({{"set", set.set},
                      {"was_there", report.was_there},
                      {"sent_packs", report.sent_packs},
                      {"sent_bytes", report.sent_bytes},
                      {"held_packs", report.held_packs},
                      {"held_bytes", report.held_bytes},
                      {"recoded_packs", report.recoded_packs},
                      {"recoded_from_bytes", report.recoded_from_bytes},
                      {"recoded_to_bytes", report.recoded_to_bytes},
                      {"unchecked_packs", report.unchecked_packs}});
    }
    session.print_facts(
        Json{{"to", to}, {"sets", std::move(sets)}, {"failed", to_json(failed_)}, {"seconds", seconds}});
  }

  const bool push_;
  std::string set_, other_, own_;
  std::string levels_;
  bool all_ = false, backlog_ = false, quick_ = false;
  double bytes_per_second_ = 0;
  uint32_t thread_count_ = 0;
  TransferOptions options_;
  std::vector<CopiedSet> copied_;
  std::vector<SetName> failed_;
};
}  // namespace

std::unique_ptr<Command> make_push_command() { return std::make_unique<TransferCommand>(TransferDirection::push); }
std::unique_ptr<Command> make_pull_command() { return std::make_unique<TransferCommand>(TransferDirection::pull); }

}  // namespace varve::cli
