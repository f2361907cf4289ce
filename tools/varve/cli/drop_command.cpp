#include <fmt/format.h>

#include <set>

#include "cli/command.h"
#include "cli/text.h"
#include "store/catalog.h"
#include "store/commit.h"
#include "store/remarks.h"

namespace varve::cli {

namespace {
class DropCommand final : public Command {
 public:
  std::string_view name() const override { return "drop"; }
  std::string_view summary() const override { return "remove sets; `varve prune` then frees their space"; }

  void declare(Arguments& arguments) override {
    arguments.positional_list("SET", sets_, "JOB@STEP or JOB@TAG; one or more");
    arguments.examples(
        "  varve drop run@3\n"
        "  varve drop run@3 run@4 && varve prune\n");
  }

  Result<ExitCode> run(Session& session) override {
    VARVE_ASSIGN(std::unique_ptr<Store> store, session.open_store());
    const Catalog catalog(*store);
    std::vector<SetName> names;
    for (const std::string& set : sets_) {  // all of them, before the first is removed
      if (set.find('@') == std::string::npos)
        return Status::invalid_argument("which step is to be dropped?", set, "write JOB@STEP");
      VARVE_ASSIGN(SetName name, catalog.resolve(set));
      names.push_back(std::move(name));
    }
    // Else the next restart of a job would make a set again of what is left of its parts.
    VARVE_TRY(remove_used_parts(*store).status());
    std::vector<SetName> removed;
    VARVE_TRY(said_of_pins(*store, names, catalog.remove_all(names, removed)));
    if (session.json()) {
      session.print_facts(Json{{"dropped", to_json(removed)}});
    } else {
      for (const SetName& name : removed) session.print("dropped " + quote_name(name.to_string()) + "\n");
    }
    return ExitCode::success;
  }

 private:
  /// What a pin forbids is no failure of the system, as what a file system forbids is.
  static Status said_of_pins(const Store& store, const std::vector<SetName>& names, Status failure) {
    if (failure.code() != StatusCode::permission_denied) return failure;
    VARVE_ASSIGN(const std::set<SetName> pinned, Remarks(store).pinned());
    for (const SetName& name : names) {
      if (pinned.contains(name))
        return Status::invalid_argument("the set is pinned", name.to_string(),
                                        fmt::format("`varve unpin {}` lets it be dropped", name.to_string()));
    }
    return failure;
  }

  std::vector<std::string> sets_;
};
}  // namespace

std::unique_ptr<Command> make_drop_command() { return std::make_unique<DropCommand>(); }

}  // namespace varve::cli
