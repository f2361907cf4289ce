#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>

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

Json number_or_null(const std::optional<double>& difference) {
  return difference && std::isfinite(*difference) ? Json(*difference) : Json(nullptr);
}

class DiffCommand final : public Command {
 public:
  std::string_view name() const override { return "diff"; }
  std::string_view summary() const override { return "show which variables differ between two sets, and by how much"; }

  void declare(Arguments& arguments) override {
    arguments.positional("A", a_, std::string("the older set: ") + kSetForms + "; with --first, a job");
    arguments.positional("B", b_, "the newer set, or the other job");
    arguments.flag("--first", first_,
                   "of two jobs: the first step that both have and in which they differ, and where in it");
    arguments.examples(
        "  varve diff run@6 run@7\n"
        "  varve diff --first run run_with_new_compiler\n"
        "  varve diff run@6 other_run@6 --json\n");
  }

  Result<ExitCode> run(Session& session) override {
    VARVE_ASSIGN(std::unique_ptr<Store> store, session.open_store());
    const Catalog catalog(*store);
    if (first_) return find_first(session, *store, catalog);
    VARVE_ASSIGN(SetName a, catalog.resolve(a_));
    VARVE_ASSIGN(SetName b, catalog.resolve(b_));
    VARVE_ASSIGN(SetDifference difference, diff_sets(*store, a, b, session.begin_progress()));
    session.end_progress();
    if (session.json()) {
      session.print_facts(difference_json(difference));
    } else {
      print_text(session, difference);
    }
    return ExitCode::success;
  }

 private:
  Result<ExitCode> find_first(Session& session, const Store& store, const Catalog& catalog) const {
    std::vector<uint64_t> steps[2];
    const std::string* const jobs[] = {&a_, &b_};
    for (size_t i = 0; i < 2; ++i) {
      VARVE_ASSIGN(steps[i], catalog.steps(*jobs[i]));
      if (steps[i].empty()) return Status::not_found("the store has no set of this job", *jobs[i], Remedy::list_sets);
    }
    std::vector<uint64_t> common;
    std::set_intersection(steps[0].begin(), steps[0].end(), steps[1].begin(), steps[1].end(),
                          std::back_inserter(common));
    if (common.empty()) return Status::not_found("the jobs have no step in common", a_ + ", " + b_, Remedy::list_sets);
    ProgressSink& progress = session.begin_progress();
    std::optional<SetDifference> found;
    uint64_t equal_count = 0;
    for (const uint64_t step : common) {
      const SetName a{a_, step}, b{b_, step};
      Result<SetDifference> difference = diff_sets(store, a, b, progress);
      if (!difference.ok())
        return difference.status().with_context("cannot compare " + a.to_string() + " with " + b.to_string());
      if (!difference->changes.empty()) {
        found = std::move(*difference);
        break;
      }
      ++equal_count;
    }
    session.end_progress();
    print_first(session, found, equal_count);
    return ExitCode::success;
  }

  void print_first(Session& session, const std::optional<SetDifference>& found, uint64_t equal_count) const {
    if (session.json()) {
      Json facts{{"equal_count", equal_count}, {"first", nullptr}};
      if (found) facts["first"] = difference_json(*found);
      return session.print_facts(facts);
    }
    const std::string before = format_count(equal_count, "step is", "steps are") + " the same";
    if (!found) {
      return session.print(
          fmt::format("{} and {}: {} in all that both have\n", quote_name(a_), quote_name(b_), before));
    }
    session.print(fmt::format("{} and {} are the first that differ; {} before\n", quote_name(found->a.to_string()),
                              quote_name(found->b.to_string()), before));
    const VariableChange& change = found->changes.front();
    session.print(fmt::format("  first in {}{}{}\n", quote_name(change.file),
                              change.variable.empty() ? std::string() : ": " + quote_name(change.variable),
                              place_of(change)));
    print_text(session, *found);
  }

  /// "", " at 12 of 4000", " at [3, 0, 12]".
  static std::string place_of(const VariableChange& change) {
    if (!change.first_changed) return {};
    uint64_t elements = 1;
    for (const uint64_t extent : change.shape) elements *= extent;
    uint64_t rest = *change.first_changed;
    if (change.shape.empty() || elements * change.element_bytes != change.new_bytes)
      return fmt::format(" at {} {}", change.element_bytes > 1 ? "element" : "byte", rest);
    std::vector<uint64_t> place(change.shape.size());
    for (size_t i = place.size(); i-- > 0; rest /= change.shape[i]) place[i] = rest % change.shape[i];
    return fmt::format(" at [{}]", fmt::join(place, ", "));
  }

  static Json difference_json(const SetDifference& difference) {
    Json changes = Json::array();
    for (const VariableChange& change : difference.changes) {
      changes.push_back({{"file", change.file},
                         {"variable", change.variable},
                         {"kind", change_kind_name(change.kind)},
                         {"whole_file", change.whole_file},
                         {"bytes", change.kind == ChangeKind::removed ? change.old_bytes : change.new_bytes},
                         {"old_bytes", change.old_bytes},
                         {"changed_bytes", change.changed_bytes},
                         {"difference_max", number_or_null(change.difference_max)},
                         {"difference_rms", number_or_null(change.difference_rms)},
                         {"first_changed", change.first_changed ? Json(*change.first_changed) : Json(nullptr)}});
    }
    return {{"a", difference.a.to_string()},       {"b", difference.b.to_string()},
            {"bytes", difference.bytes},           {"changed_bytes", difference.changed_bytes},
            {"same_count", difference.same_count}, {"changes", std::move(changes)}};
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
  bool first_ = false;
};
}  // namespace

std::unique_ptr<Command> make_diff_command() { return std::make_unique<DiffCommand>(); }

}  // namespace varve::cli
