#include <fmt/format.h>

#include "cli/command.h"
#include "cli/text.h"
#include "engine/stored_files.h"
#include "store/catalog.h"

namespace varve::cli {

namespace {
class FindCommand final : public Command {
 public:
  std::string_view name() const override { return "find"; }
  std::string_view summary() const override { return "find files by their names in all sets"; }

  void declare(Arguments& arguments) override {
    arguments.positional("GLOB", glob_, "a shell pattern; one without '/' is compared with the last part of the path");
    arguments.text("--job", "NAME", job_, "only in sets of this job");
    arguments.examples(
        "  varve find '*.cpt'\n"
        "  varve find 'processor0/*/U' --job case\n");
  }

  Result<ExitCode> run(Session& session) override {
    VARVE_TRY(check_patterns({glob_}));
    VARVE_ASSIGN(const std::unique_ptr<Store> store, session.open_store());
    const Catalog catalog(*store);
    VARVE_ASSIGN(std::vector<SetName> names, catalog.sets());
    if (!job_.empty()) {
      std::erase_if(names, [this](const SetName& set) { return set.job != job_; });
      if (names.empty()) return Status::not_found("the store has no set of this job", job_, Remedy::list_sets);
    }
    const FileFilter filter{.globs = {glob_}, .rank = {}};
    bool damaged = false;
    for (const SetName& set : names) {
      const Status searched = search(*store, catalog, set, filter);
      if (searched.ok() || searched.code() == StatusCode::not_found) continue;  // it was dropped just now
      session.warn(searched.with_context("cannot look into " + set.to_string()));
      damaged = true;
    }
    print(session);
    if (damaged) return ExitCode::damaged;
    if (found_.empty())
      return Status::not_found(
          job_.empty() ? "no file of this name is in the store" : "no file of this name is in the job", glob_);
    return ExitCode::success;
  }

 private:
  struct Found {
    SetName set;
    std::string path;
    uint64_t bytes;
    int64_t modified_s;
  };

  Status search(const Store& store, const Catalog& catalog, const SetName& set, const FileFilter& filter) {
    VARVE_ASSIGN(const SetRecord record, catalog.read(set));
    Status lost_first;
    Status read = for_each_leaf(
        store, record,
        [&](const Leaf& leaf) -> Status {
          for (const TreeFile& file : leaf.files) {
            if (file.type != FileType::directory && filter.matches(file))
              found_.push_back({set, file.path, file.bytes, file.modified_s});
          }
          return {};
        },
        [&](const LostLeaves& lost) -> Status {
          if (lost_first.ok()) lost_first = lost.why;
          return {};
        });
    if (read.ok()) read = lost_first;
    return catalog.unless_dropped(set, read);
  }

  void print(Session& session) const {
    if (session.json()) {
      Json files = Json::array();
      for (const Found& file : found_)
        files.push_back({{"set", file.set.to_string()},
                         {"path", file.path},
                         {"bytes", file.bytes},
                         {"modified_s", file.modified_s}});
      session.print_facts(Json{{"files", std::move(files)}});
      return;
    }
    if (found_.empty()) return;
    using enum Table::Align;
    Table table({{"file"}, {"size", right}, {"changed"}});
    for (const Found& file : found_)
      table.add_row(
          {quote_name(file.set.to_string() + ":" + file.path), format_size(file.bytes), format_time(file.modified_s)});
    session.print(table.render());
  }

  std::string glob_, job_;
  std::vector<Found> found_;
};
}  // namespace

std::unique_ptr<Command> make_find_command() { return std::make_unique<FindCommand>(); }

}  // namespace varve::cli
