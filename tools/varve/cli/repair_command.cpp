#include "engine/repair.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/command.h"
#include "cli/text.h"
#include "store/lost_headers.h"

namespace varve::cli {

namespace {
class RepairCommand final : public Command {
 public:
  std::string_view name() const override { return "repair"; }
  std::string_view summary() const override {
    return "replace what is damaged or lost, from other stores and other sets";
  }

  void declare(Arguments& arguments) override {
    arguments.list(
        "--from", "STORE", from_,
        std::string("a store that may have what is lost: ") + kStoreForms + "; several may be given, nearest first");
    arguments.threads(thread_count_, "threads (default: one per processor)");
    arguments.examples(
        "  varve repair --from /lustre/store                        take what is damaged from there\n"
        "  varve repair --from /nvme/store --from tcp://archive:7070\n"
        "  varve repair                                             only from other sets of this store\n");
  }

  Result<ExitCode> run(Session& session) override {
    VARVE_ASSIGN(const std::string location, session.store_path());
    VARVE_ASSIGN(StorePlace* const place, session.open_place(location));
    VARVE_ASSIGN(const std::vector<std::string> headers, restore_store_headers(place->places()));
    for (const std::string& header : headers) {
      if (!session.json()) session.print(fmt::format("made the store's header anew: {}\n", quote_name(header)));
    }
    VARVE_ASSIGN(const std::unique_ptr<Store> store, open_store(*place));
    std::vector<std::unique_ptr<Store>> stores;
    std::vector<RepairSource> sources;
    VARVE_TRY(open_sources(session, stores, sources));
    RepairOptions options;
    options.thread_count = thread_count_;
    VARVE_ASSIGN(const RepairReport report, repair_store(*store, sources, options, session.begin_progress()));
    session.end_progress();
    if (session.json()) {
      print_json(session, report, headers);
    } else {
      print_text(session, report);
    }
    return report.after.whole() ? ExitCode::success : ExitCode::damaged;
  }

 private:
  /// Those of --from that can be reached: one away is not in the way of the others, all of them are.
  Status open_sources(Session& session, std::vector<std::unique_ptr<Store>>& stores,
                      std::vector<RepairSource>& sources) const {
    std::vector<Status> failures;
    for (const std::string& location : from_) {
      Result<std::unique_ptr<Store>> store = session.open_source(location);
      if (store.ok()) {
        sources.push_back({location, store->get()});
        stores.push_back(std::move(*store));
      } else if (store.status().code() == StatusCode::invalid_argument) {
        return store.status();
      } else {
        failures.push_back(store.status());
      }
    }
    if (sources.empty() && !failures.empty()) return failures.front();
    for (const Status& failure : failures) session.warn(failure.with_context("nothing is taken from a store"));
    return {};
  }

  static void print_json(Session& session, const RepairReport& report, const std::vector<std::string>& headers) {
    Json mended = Json::array();
    for (const MendedFrom& from : report.mended) {
      mended.push_back({{"from", from.source},
                        {"packs", from.packs},
                        {"nodes", from.nodes},
                        {"records", from.records},
                        {"bytes", from.bytes}});
    }
    session.print_facts(Json{{"whole", report.after.whole()},
                             {"was_whole", report.before.whole()},
                             {"mended_sets", to_json(report.mended_sets)},
                             {"partly_mended_sets", to_json(report.partly_mended_sets)},
                             {"mended", std::move(mended)},
                             {"removed_arenas", report.removed_arenas},
                             {"restored_headers", headers},
                             {"damages", damages_json(report.after)}});
  }

  static void print_text(Session& session, const RepairReport& report) {
    if (report.before.whole()) {
      session.print(fmt::format("{}, {} checked, every byte: no damage\n",
                                format_count(report.before.set_count, "set", "sets"),
                                format_size(report.before.checked_bytes)));
      return;
    }
    for (const MendedFrom& from : report.mended) {
      session.print(fmt::format("from {}: {}, {}, {}, {}\n", quote_name(from.source),
                                format_count(from.packs, "pack", "packs"),
                                format_count(from.nodes, "tree node", "tree nodes"),
                                format_count(from.records, "record", "records"), format_size(from.bytes)));
    }
    if (report.removed_arenas > 0) {
      session.print(fmt::format("removed {}, after all that is needed was brought out of {}\n",
                                format_count(report.removed_arenas, "damaged arena", "damaged arenas"),
                                report.removed_arenas == 1 ? "it" : "them"));
    }
    for (const Damage& damage : report.after.damages) print_damage(session, damage);
    std::string outcome = format_count(report.mended_sets.size(), "set", "sets") + " mended";
    if (!report.partly_mended_sets.empty()) outcome += fmt::format(", {} in part", report.partly_mended_sets.size());
    session.print(outcome + "; " + what_is_left(report.after) + "\n");
  }

  static std::string what_is_left(const VerifyReport& after) {
    if (after.whole()) return "no damage is left";
    const auto harmful = std::count_if(after.damages.begin(), after.damages.end(),
                                       [](const Damage& damage) { return !damage.affected_sets.empty(); });
    // A damaged arena stays as long as anything is in it that nobody has, with what was mended elsewhere.
    return fmt::format("{} left, {} of which affect{} a set", format_count(after.damages.size(), "damage", "damages"),
                       harmful, harmful == 1 ? "s" : "");
  }

  std::vector<std::string> from_;
  uint32_t thread_count_ = 0;
};
}  // namespace

std::unique_ptr<Command> make_repair_command() { return std::make_unique<RepairCommand>(); }

}  // namespace varve::cli
