#include "store/prune.h"

#include <fmt/format.h>

#include <set>
#include <string>

#include "cli/command.h"
#include "cli/text.h"
#include "store/remarks.h"

namespace varve::cli {

namespace {
class PruneCommand final : public Command {
 public:
  std::string_view name() const override { return "prune"; }
  std::string_view summary() const override { return "drop sets by a rule, and free the space that no set needs"; }

  void declare(Arguments& arguments) override {
    KeepRules& keep = options_.keep;
    arguments.number("--keep-last", "N", keep.last, "keep the newest N sets of each job");
    arguments.number("--keep-every", "K", keep.every,
                     "keep the sets whose step is a multiple of K, and the newest of each job");
    arguments.number("--keep-hourly", "N", keep.hourly,
                     "keep the newest set of each of the last N hours that have one");
    arguments.number("--keep-daily", "N", keep.daily,
                     "keep the newest set of each of the last N days that have one (UTC)");
    arguments.duration("--keep-within", within_seconds_, "keep the sets that were saved no longer ago than this");
    arguments.list("--keep-tag", "TAG", keep.tags, "keep the sets that have this tag; several may be given");
    arguments.size("--max-size", max_bytes_,
                   "of those that other rules keep, or of all, keep the newest that take no more in the store; the "
                   "newest of each job and pinned ones stay in any case",
                   1);
    arguments.text("--job", "NAME", options_.job, "drop sets of this job only");
    arguments.flag("--dry-run", options_.dry_run, "only say which sets would be dropped");
    arguments.value(
        "--rewrite-below", "SHARE",
        [this](const std::string& text) -> Status {
          VARVE_ASSIGN(options_.live_share_min, parse_share(text));
          return {};
        },
        "rewrite arenas of which less than this share is needed (default: 50%); 0: only remove arenas that no set "
        "needs");
    arguments.seconds("--wait", options_.wait_seconds, "how long to wait for saves under way (default: 30)");
    arguments.examples(
        "  varve prune                                      only free the space of dropped sets\n"
        "  varve prune --keep-last 5 --keep-every 100       drop the rest\n"
        "  varve prune --keep-within 2h --keep-hourly 24 --keep-daily 7\n"
        "  varve prune --keep-last 5 --keep-tag best\n"
        "  varve prune --max-size 200GiB                    drop the oldest\n"
        "  varve prune --keep-last 5 --job run --dry-run    look first\n"
        "  varve prune --rewrite-below 95%                  free more space, at the cost of more writing\n");
  }

  Result<ExitCode> run(Session& session) override {
    if (within_seconds_ > 0) options_.keep.within_seconds = within_seconds_;
    if (max_bytes_ > 0) options_.keep.bytes_max = max_bytes_;
    VARVE_TRY(check_rule());
    VARVE_ASSIGN(std::unique_ptr<Store> store, session.open_store());
    if (!options_.job.empty()) {
      VARVE_ASSIGN(std::vector<uint64_t> steps, Catalog(*store).steps(options_.job));
      if (steps.empty())
        return Status::not_found("the store has no set of this job", options_.job, "`varve list` shows all sets");
    }
    if (!options_.keep.tags.empty()) VARVE_TRY(check_tags_are_there(*store));
    VARVE_ASSIGN(PruneReport report, prune_store(*store, options_, session.begin_progress()));
    session.end_progress();
    print(session, report);
    return ExitCode::success;
  }

 private:
  Status check_rule() const {
    const KeepRules& keep = options_.keep;
    for (const std::string& tag : keep.tags) VARVE_TRY(check_tag(tag));
    for (const std::optional<uint64_t>& count : {keep.last, keep.every, keep.hourly, keep.daily}) {
      if (count == 0u)
        return Status::invalid_argument("what --keep-last and the like count begins at 1", "",
                                        "`varve drop` removes single sets");
    }
    if (!keep.any() && !options_.job.empty()) {
      return Status::invalid_argument("which sets of the job are to be kept?", options_.job,
                                      "add --keep-last, or another --keep-...");
    }
    return {};
  }

  /// Else a mistyped tag would drop all that it was to keep.
  Status check_tags_are_there(const Store& store) const {
    VARVE_ASSIGN(const std::vector<SetName> names, Catalog(store).sets());
    VARVE_ASSIGN(const auto remarks, Remarks(store).all());
    std::set<std::string> there;
    for (const SetName& name : names) {
      const auto said = remarks.find(name);
      if (said != remarks.end() && (options_.job.empty() || name.job == options_.job))
        there.insert(said->second.tags.begin(), said->second.tags.end());
    }
    for (const std::string& tag : options_.keep.tags) {
      if (!there.contains(tag))
        return Status::not_found(options_.job.empty() ? "no set has the tag" : "no set of the job has the tag", tag,
                                 "nothing was dropped; `varve list` shows the tags");
    }
    return {};
  }

  void print(Session& session, const PruneReport& report) const {
    if (session.json()) {
      // Only a prune that is done knows what it gives back.
      const auto known = [this](uint64_t number) { return options_.dry_run ? Json() : Json(number); };
      session.print_facts(Json{{"dropped", to_json(report.dropped)},
                               {"dry_run", options_.dry_run},
                               {"removed_arenas", known(report.removed_arenas)},
                               {"rewritten_packs", known(report.rewritten_packs)},
                               {"leftover_files", known(report.leftover_files)},
                               {"waiting_arenas", known(report.waiting_arenas)},
                               {"bytes_before", known(report.bytes_before)},
                               {"bytes_after", known(report.bytes_after)}});
      return;
    }
    for (const SetName& name : report.dropped) {
      session.print((options_.dry_run ? "would drop " : "dropped ") + quote_name(name.to_string()) + "\n");
    }
    if (options_.dry_run) {
      if (report.dropped.empty()) session.print("would drop no set\n");
      return;
    }
    session.print(fmt::format("pruned: {} → {}; {} removed, {} rewritten, {} of killed saves removed\n",
                              format_size(report.bytes_before), format_size(report.bytes_after),
                              format_count(report.removed_arenas, "arena", "arenas"),
                              format_count(report.rewritten_packs, "pack", "packs"),
                              format_count(report.leftover_files, "leftover", "leftovers")));
    if (max_bytes_ > 0 && report.bytes_after > max_bytes_) {
      session.print(fmt::format(
          "  more than --max-size {}: the newest set of each job{} and pinned ones stay, as do half-needed arenas\n",
          format_size(max_bytes_), options_.job.empty() ? "" : ", other jobs' sets"));
    }
    if (report.waiting_arenas > 0) {
      session.print(fmt::format("  {} wait for a save that is under way; the next prune removes them\n",
                                format_count(report.waiting_arenas, "arena", "arenas")));
    }
  }

  PruneOptions options_;
  double within_seconds_ = 0;  ///< not given
  uint64_t max_bytes_ = 0;     ///< not given
};
}  // namespace

std::unique_ptr<Command> make_prune_command() { return std::make_unique<PruneCommand>(); }

}  // namespace varve::cli
