#include <fmt/format.h>

#include "cli/command.h"
#include "cli/text.h"
#include "store/spread.h"

namespace varve::cli {

namespace {
class RebalanceCommand final : public Command {
 public:
  std::string_view name() const override { return "rebalance"; }
  std::string_view summary() const override { return "spread a store evenly over its servers, or over more servers"; }

  void declare(Arguments& arguments) override {
    arguments.examples(
        "  varve serve --place --listen tcp://b:7070 --key-file secret --dir /nvme/place   the new one, on b\n"
        "  varve rebalance --store tcp://a:7070,b:7070                                     then use these two\n");
  }

  Result<ExitCode> run(Session& session) override {
    VARVE_ASSIGN(const std::string location, session.store_path());
    VARVE_ASSIGN(StorePlace* const place, session.open_any_servers(location));
    VARVE_ASSIGN(const RebalanceReport report, rebalance(place->places(), {}, session.begin_progress()));
    session.end_progress();
    if (session.json()) {
      session.print_facts(Json{{"moved_arenas", report.moved_arenas},
                               {"moved_bytes", report.moved_bytes},
                               {"waiting_arenas", report.waiting_arenas},
                               {"arenas", report.arenas},
                               {"bytes", report.bytes},
                               {"bytes_of_places", report.bytes_of_places}});
      return ExitCode::success;
    }
    session.print(fmt::format("moved {}, {}; of {} there are\n", format_count(report.moved_arenas, "arena", "arenas"),
                              format_size(report.moved_bytes), format_size(report.bytes)));
    for (size_t i = 0; i < report.bytes_of_places.size(); ++i)
      session.print(fmt::format("  at place {}: {}\n", i + 1, format_size(report.bytes_of_places[i])));
    if (report.waiting_arenas > 0) {
      session.print(fmt::format(
          "  {} also lie where they were, for a save that is under way; the next prune removes them there\n",
          format_count(report.waiting_arenas, "arena", "arenas")));
    }
    return ExitCode::success;
  }
};
}  // namespace

std::unique_ptr<Command> make_rebalance_command() { return std::make_unique<RebalanceCommand>(); }

}  // namespace varve::cli
