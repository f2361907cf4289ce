#include <fmt/format.h>

#include "cli/command.h"
#include "cli/text.h"
#include "core/state_folder.h"
#include "watch/watch_status.h"

namespace varve::cli {

namespace {
class StatusCommand final : public Command {
 public:
  std::string_view name() const override { return "status"; }
  std::string_view summary() const override { return "show what the watchers on this machine are doing"; }
  bool works_on_store() const override { return false; }

  void declare(Arguments& arguments) override {
    arguments.examples(
        "  varve status\n"
        "  varve status --json\n");
  }

  Result<ExitCode> run(Session& session) override {
    VARVE_ASSIGN(const std::string state, state_folder());
    VARVE_ASSIGN(const std::vector<WatchStatus> statuses, read_watch_statuses(state));
    if (session.json()) {
      Json watchers = Json::array();
      for (const WatchStatus& status : statuses) watchers.push_back(facts_of(status));
      session.print_facts(Json{{"watchers", std::move(watchers)}});
      return ExitCode::success;
    }
    if (statuses.empty()) session.print("no watchers; `varve watch DIR` starts one\n");
    for (const WatchStatus& status : statuses) print(session, status);
    return ExitCode::success;
  }

 private:
  static Json facts_of(const WatchStatus& status) {
    Json facts = to_json(status);
    facts["running"] = status.alive;
    return facts;
  }

  static void print(Session& session, const WatchStatus& status) {
    std::string folders;
    for (const std::string& folder : status.folders)
      folders.append(folders.empty() ? "" : ", ").append(quote_name(folder));
    session.print(fmt::format("{} → {}: {}\n", folders, quote_name(status.to),
                              status.alive
                                  ? fmt::format("process {}, since {}", status.process, format_time(status.started_s))
                                  : "not running"));
    session.print(fmt::format(
        "  saved {}, {} → {}{}{}\n", format_count(status.saved_sets, "set", "sets"), format_size(status.raw_bytes),
        format_size(status.stored_bytes), status.newest.empty() ? "" : ", newest " + quote_name(status.newest),
        status.removed_sets == 0 ? "" : fmt::format("; removed the originals of {}", status.removed_sets)));
    if (!status.saving.empty())
      session.print(fmt::format("  {} {}\n", status.alive ? "saving" : "was saving", quote_name(status.saving)));
    for (const WatchStatus::Pending& set : status.pending)
      session.print(fmt::format("  {} {}{}\n", set.state, quote_name(set.set), set.why.empty() ? "" : ": " + set.why));
  }
};
}  // namespace

std::unique_ptr<Command> make_status_command() { return std::make_unique<StatusCommand>(); }

}  // namespace varve::cli
