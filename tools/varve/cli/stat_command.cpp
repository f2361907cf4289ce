#include <fmt/format.h>

#include <algorithm>

#include "cli/command.h"
#include "cli/text.h"
#include "core/metrics.h"
#include "engine/inspect.h"
#include "monitor/metrics_outlet.h"
#include "monitor/store_facts.h"
#include "service/location.h"
#include "store/store.h"

namespace varve::cli {

namespace {
/// Rows of a table for people; --json has all.
constexpr size_t kRowsMax = 30;

class StatCommand final : public Command {
 public:
  std::string_view name() const override { return "stat"; }
  std::string_view summary() const override {
    return "show what deduplication and compression gain, by class and by codec";
  }

  void declare(Arguments& arguments) override {
    arguments.text("--metrics", "FILE", metrics_,
                   "write what the store has, and how old its newest sets are, for node_exporter's textfile collector, "
                   "in place of printing it");
    arguments.examples(
        "  varve stat\n"
        "  varve stat --metrics /var/lib/prometheus/node-exporter/varve.prom\n"
        "  varve stat --json\n");
  }

  Result<ExitCode> run(Session& session) override {
    if (!metrics_.empty() && !MetricsOutlet::is_file(metrics_))
      return Status::invalid_argument("this command ends at once: its metrics go to a file, not to a port", metrics_,
                                      "name one in a folder, or one that ends in .prom");
    VARVE_ASSIGN(std::unique_ptr<Store> store, session.open_store());
    VARVE_ASSIGN(StoreStatistics statistics, store_statistics(*store));
    if (!metrics_.empty()) {
      VARVE_TRY(write_metrics(session, *store, statistics));
    } else if (session.json()) {
      print_json(session, statistics);
    } else {
      print_text(session, statistics);
    }
    if (statistics.damaged_sets.empty()) return ExitCode::success;
    session.warn(statistics.first_damage.with_context(fmt::format(
        "{} not whole, beginning with {}",
        statistics.damaged_sets.size() == 1 ? "1 set is" : fmt::format("{} sets are", statistics.damaged_sets.size()),
        statistics.damaged_sets.front().to_string())));
    return ExitCode::damaged;
  }

 private:
  using Shares = std::map<std::string, ShareStatistics>;

  static Json shares_json(const Shares& shares) {
    Json object = Json::object();
    for (const auto& [key, share] : shares) {
      object[key] = {
          {"pack_count", share.pack_count}, {"raw_bytes", share.raw_bytes}, {"stored_bytes", share.stored_bytes}};
    }
    return object;
  }

  Status write_metrics(const Session& session, const Store& store, const StoreStatistics& statistics) const {
    const auto number = [](auto value) { return static_cast<double>(value); };
    VARVE_ASSIGN(const std::string location, session.store_path());
    Metrics metrics = Metrics::with({{"store", absolute_location(location)}});
    VARVE_ASSIGN(const StoreFacts facts, look_at_store(store));
    tell(facts, metrics);
    // Where a set is not whole it may not be known what it needs.
    if (const Result<uint64_t> garbage = garbage_bytes(store, null_progress()); garbage.ok())
      tell_garbage(*garbage, metrics);
    metrics.gauge("varve_store_index_bytes", "What the index takes.").sample(number(statistics.index_bytes));
    metrics.gauge("varve_store_raw_bytes", "What all sets would take as files.").sample(number(statistics.raw_bytes));
    metrics.gauge("varve_store_distinct_bytes", "What of that is not repeated.")
        .sample(number(statistics.distinct_bytes));
    metrics.gauge("varve_store_damaged_sets", "Sets that are not whole.")
        .sample(number(statistics.damaged_sets.size()));
    return write_metrics_file(metrics_, metrics);
  }

  static void print_json(Session& session, const StoreStatistics& statistics) {
    session.print_facts(Json{{"set_count", statistics.set_count},
                             {"arena_count", statistics.arena_count},
                             {"raw_bytes", statistics.raw_bytes},
                             {"distinct_bytes", statistics.distinct_bytes},
                             {"packed_bytes", statistics.packed_bytes},
                             {"metadata_bytes", statistics.metadata_bytes},
                             {"index_bytes", statistics.index_bytes},
                             {"stored_bytes", statistics.stored_bytes()},
                             {"classes", shares_json(statistics.classes)},
                             {"chains", shares_json(statistics.chains)},
                             {"damaged_sets", to_json(statistics.damaged_sets)}});
  }

  static void print_text(Session& session, const StoreStatistics& statistics) {
    // Where sets lack something, a ratio of what they were to what is left says nothing.
    auto ratio = [&](uint64_t bytes) {
      return statistics.damaged_sets.empty() ? format_ratio(statistics.raw_bytes, bytes) : "-";
    };
    using enum Table::Align;
    Table totals({{format_count(statistics.set_count, "set", "sets")}, {"size", right}, {"ratio", right}});
    totals.add_row({"raw", format_size(statistics.raw_bytes), "1.00x"});
    auto add_total = [&](const char* stage, uint64_t bytes) {
      totals.add_row({stage, format_size(bytes), ratio(bytes)});
    };
    add_total("after deduplication", statistics.distinct_bytes);
    add_total("after compression", statistics.packed_bytes);
    add_total("with metadata", statistics.stored_bytes());
    session.print(totals.render());
    session.print(fmt::format("{}; the index, which can be rebuilt, takes {} more\n",
                              format_count(statistics.arena_count, "arena", "arenas"),
                              format_size(statistics.index_bytes)));
    print_shares(session, "class", statistics.classes);
    print_shares(session, "codec", statistics.chains);
  }

  static void print_shares(Session& session, const std::string& title, const Shares& shares) {
    std::vector<const Shares::value_type*> sorted;
    for (const auto& share : shares) sorted.push_back(&share);
    std::stable_sort(sorted.begin(), sorted.end(),
                     [](const auto* a, const auto* b) { return a->second.stored_bytes > b->second.stored_bytes; });
    using enum Table::Align;
    Table table({{title}, {"packs", right}, {"distinct", right}, {"stored", right}, {"ratio", right}});
    for (size_t i = 0; i < std::min(sorted.size(), kRowsMax); ++i) {
      const auto& [key, share] = *sorted[i];
      table.add_row({quote_name(key), std::to_string(share.pack_count), format_size(share.raw_bytes),
                     format_size(share.stored_bytes), format_ratio(share.raw_bytes, share.stored_bytes)});
    }
    if (table.empty()) return;
    session.print("\n" + table.render());
    if (sorted.size() > kRowsMax)
      session.print(fmt::format("and {} more, which take less (--json has all)\n", sorted.size() - kRowsMax));
  }

  std::string metrics_;
};
}  // namespace

std::unique_ptr<Command> make_stat_command() { return std::make_unique<StatCommand>(); }

}  // namespace varve::cli
