#include <fmt/format.h>

#include <cmath>

#include "cli/command.h"
#include "cli/text.h"
#include "engine/inspect.h"

namespace varve::cli {

namespace {
std::string_view change_kind_name(ChangeKind kind) {
  switch (kind) {
    case ChangeKind::same: return "same";
    case ChangeKind::changed: return "changed";
    case ChangeKind::added: return "added";
    case ChangeKind::removed: return "removed";
  }
  return "unknown";
}

std::string format_share(uint64_t part, uint64_t whole) {
  return whole == 0 ? "-" : fmt::format("{:.1f} %", 100 * static_cast<double>(part) / static_cast<double>(whole));
}

std::string format_sizes(const VariableChange& change) {
  if (change.kind != ChangeKind::changed || change.old_bytes == change.new_bytes)
    return format_size(change.larger_bytes());
  return format_size(change.old_bytes) + " → " + format_size(change.new_bytes);
}

std::string format_difference(const std::optional<double>& difference) {
  if (!difference) return "-";
  return std::isfinite(*difference) ? fmt::format("{:.3g}", *difference) : "not finite";
}

Json difference_json(const std::optional<double>& difference) {
  return difference && std::isfinite(*difference) ? Json(*difference) : Json(nullptr);
}

class DiffCommand final : public Command {
 public:
  std::string_view name() const override { return "diff"; }
  std::string_view summary() const override { return "show which variables differ between two sets, and by how much"; }

  void declare(Arguments& arguments) override {
    arguments.positional("A", a_, "the older set: JOB@STEP, or JOB for its newest");
    arguments.positional("B", b_, "the newer set");
    arguments.examples(
        "  varve diff run@6 run@7\n"
        "  varve diff run@6 other_run@6 --json\n");
  }

  Result<ExitCode> run(Session& session) override {
    VARVE_ASSIGN(std::unique_ptr<Store> store, session.open_store());
    const Catalog catalog(*store);
    VARVE_ASSIGN(SetName a, catalog.resolve(a_));
    VARVE_ASSIGN(SetName b, catalog.resolve(b_));
    VARVE_ASSIGN(SetDifference difference, diff_sets(*store, a, b, session.begin_progress()));
    session.end_progress();
    if (session.json()) {
      print_json(session, difference);
    } else {
      print_text(session, difference);
    }
    return ExitCode::success;
  }

 private:
  static void print_json(Session& session, const SetDifference& difference) {
    Json changes = Json::array();
    for (const VariableChange& change : difference.changes) {
      changes.push_back({{"file", change.file},
                         {"variable", change.variable},
                         {"kind", change_kind_name(change.kind)},
                         {"whole_file", change.whole_file},
                         {"bytes", change.kind == ChangeKind::removed ? change.old_bytes : change.new_bytes},
                         {"old_bytes", change.old_bytes},
                         {"changed_bytes", change.changed_bytes},
                         {"difference_max", difference_json(change.difference_max)},
                         {"difference_rms", difference_json(change.difference_rms)}});
    }
    session.print_facts(Json{{"a", difference.a.to_string()},
                             {"b", difference.b.to_string()},
                             {"bytes", difference.bytes},
                             {"changed_bytes", difference.changed_bytes},
                             {"same_count", difference.same_count},
                             {"changes", std::move(changes)}});
  }

  static void print_text(Session& session, const SetDifference& difference) {
    using enum Table::Align;
    Table table(
        {{"file"}, {"variable"}, {"change"}, {"size", right}, {"differs", right}, {"largest", right}, {"rms", right}});
    for (const VariableChange& change : difference.changes) {
      const std::string variable = !change.variable.empty() ? quote_name(change.variable)
                                   : change.whole_file      ? "(whole file)"
                                                            : "(skeleton)";
      table.add_row({quote_name(change.file), variable, std::string(change_kind_name(change.kind)),
                     format_sizes(change), format_share(change.changed_bytes, change.larger_bytes()),
                     format_difference(change.difference_max), format_difference(change.difference_rms)});
    }
    if (!table.empty()) session.print(table.render() + "\n");
    session.print(fmt::format("{} → {}: {} differ, {} are the same; {} of {} differ ({})\n",
                              quote_name(difference.a.to_string()), quote_name(difference.b.to_string()),
                              difference.changes.size(), difference.same_count, format_size(difference.changed_bytes),
                              format_size(difference.bytes), format_share(difference.changed_bytes, difference.bytes)));
  }

  std::string a_, b_;
};
}  // namespace

std::unique_ptr<Command> make_diff_command() { return std::make_unique<DiffCommand>(); }

}  // namespace varve::cli
