#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include "cli/command.h"
#include "cli/text.h"
#include "store/catalog.h"

namespace varve::cli {

namespace {
class ListCommand final : public Command {
 public:
  std::string_view name() const override { return "list"; }
  std::string_view summary() const override { return "list the sets of the store"; }

  void declare(Arguments& arguments) override {
    arguments.optional_positional("JOB", job_, "only the sets of this job");
    arguments.examples(
        "  varve list\n"
        "  varve list run --json\n");
  }

  Result<ExitCode> run(Session& session) override {
    VARVE_ASSIGN(std::unique_ptr<Store> store, session.open_store());
    const Catalog catalog(*store);
    VARVE_ASSIGN(std::vector<SetName> names, names_of(catalog));
    std::vector<SetRecord> records;
    ExitCode code = ExitCode::success;
    for (const SetName& name : names) {
      Result<SetRecord> record = catalog.read(name);
      if (record.ok()) {
        records.push_back(std::move(*record));
      } else if (record.status().code() != StatusCode::not_found) {  // else it was dropped just now
        session.warn(record.status().with_context("cannot read the set " + name.to_string()));
        if (code != ExitCode::damaged) code = exit_code_of(record.status().code());
      }
    }
    const Result<std::map<SetName, SetRemarks>> remarks = Remarks(*store).all();
    if (!remarks.ok()) session.warn(remarks.status().with_context("cannot read what is said of the sets"));
    print(session, records, remarks.ok() ? *remarks : std::map<SetName, SetRemarks>());
    return code;
  }

 private:
  Result<std::vector<SetName>> names_of(const Catalog& catalog) const {
    if (job_.empty()) return catalog.sets();
    if (job_.find('@') != std::string::npos)
      return Status::invalid_argument("that is one set, and a job's are listed", job_,
                                      "`varve show " + job_ + "` shows it");
    VARVE_ASSIGN(std::vector<uint64_t> steps, catalog.steps(job_));
    if (steps.empty()) return Status::not_found("the store has no set of this job", job_, Remedy::list_sets);
    std::vector<SetName> names;
    for (uint64_t step : steps) names.push_back({job_, step});
    return names;
  }

  static void print(Session& session, const std::vector<SetRecord>& records,
                    const std::map<SetName, SetRemarks>& remarks) {
    const auto said_of = [&remarks](const SetName& name) {
      const auto found = remarks.find(name);
      return found == remarks.end() ? SetRemarks() : found->second;
    };
    if (session.json()) {
      Json sets = Json::array();
      for (const SetRecord& record : records) {
        Json& set = sets.emplace_back(to_json(record));
        set.update(to_json(said_of(record.name)));
      }
      session.print_facts(Json{{"sets", std::move(sets)}});
      return;
    }
    if (records.empty()) return session.print("no sets yet; `varve save DIR` makes the first\n");
    using enum Table::Align;
    const bool any_said = std::any_of(records.begin(), records.end(),
                                      [&](const SetRecord& record) { return !words_of(said_of(record.name)).empty(); });
    std::vector<Table::Column> columns{{"set"},          {"made", right},   {"saved"},
                                       {"files", right}, {"ranks", right},  {"size", right},
                                       {"new", right},   {"stored", right}, {"ratio", right}};
    std::map<std::string, std::set<uint64_t>> numbers;
    for (const SetRecord& record : records) numbers[record.name.job].insert(record.number);
    // Runs leave out many numbers.
    const auto place_of = [&numbers](const SetRecord& record) {
      const std::set<uint64_t>& of_job = numbers.at(record.name.job);
      return std::distance(of_job.upper_bound(0), of_job.upper_bound(record.number));
    };
    if (any_said) columns.push_back({"tags"});
    Table table(columns);
    for (const SetRecord& record : records) {
      std::vector<std::string> row{quote_name(record.name.to_string()),
                                   record.number == 0 ? "-" : std::to_string(place_of(record)),
                                   format_time(record.created_s),
                                   std::to_string(record.file_count),
                                   std::to_string(record.rank_count),
                                   format_size(record.raw_bytes),
                                   format_size(record.new_bytes),
                                   format_size(record.stored_bytes()),
                                   format_ratio(record.raw_bytes, record.stored_bytes())};
      if (any_said) row.push_back(words_of(said_of(record.name)));
      table.add_row(std::move(row));
    }
    session.print(table.render());
  }

  std::string job_;
};
}  // namespace

std::unique_ptr<Command> make_list_command() { return std::make_unique<ListCommand>(); }

}  // namespace varve::cli
