#include <fmt/format.h>
#include <unistd.h>

#include <optional>

#include "cli/chosen_array.h"
#include "cli/command.h"
#include "cli/set_argument.h"
#include "core/sync.h"
#include "engine/inspect.h"

namespace varve::cli {

namespace {
class CatCommand final : public Command {
 public:
  std::string_view name() const override { return "cat"; }
  std::string_view summary() const override {
    return "write a file of a set, a variable, or a box of it, to standard output";
  }
  bool prints_facts() const override { return false; }
  std::string_view hint_for_more() const override {
    return "`varve restore SET --tar --files GLOB` writes several files";
  }

  void declare(Arguments& arguments) override {
    arguments.positional("PART", file_,
                         "JOB@STEP:FILE or JOB@TAG:FILE, or JOB:FILE for the job's newest set; in place of the file "
                         "a variable that a session saved, or FILE:VARIABLE, and a box of it, as in "
                         "JOB@STEP:VARIABLE[0:10,:,5]");
    arguments.text("--variable", "NAME", variable_, "only this variable of the file, as its bytes are there");
    arguments.number("--rank", "N", rank_,
                     "of a variable, only what this rank saved of it; not needed where all ranks have the same");
    arguments.examples(
        "  varve cat run@7:parameters.txt\n"
        "  varve cat run@7:out.cpu0003 --variable /Density > density.bin\n"
        "  varve cat run@7:temperature > temperature.bin         what all ranks have of it, as one array\n"
        "  varve cat 'run@7:temperature[0:10,:,5]' | od -t f8    some rows of one plane\n"
        "  varve cat run@7:particles --rank 3 > particles.bin\n"
        "  varve restore run@7 --tar --files '*.txt' > texts.tar     several files\n");
  }

  Result<ExitCode> run(Session& session) override {
    if (!names_part_of_set(file_)) {
      return Status::invalid_argument("which file of which set?", file_,
                                      "write JOB@STEP:FILE, or JOB:FILE for the job's newest set; `varve restore SET "
                                      "--tar` writes all files");
    }
    if (rank_ && !variable_.empty()) {
      return Status::invalid_argument("--variable is of a file, which is of one rank, and takes no --rank", variable_,
                                      "write JOB@STEP:VARIABLE");
    }
    VARVE_ASSIGN(std::unique_ptr<Store> store, session.open_store());
    const Catalog catalog(*store);
    VARVE_ASSIGN(const PartOfSet wanted, find_part_of_set(catalog, file_));
    VARVE_ASSIGN(const SetName name, catalog.resolve(wanted.set));
    auto write = [&session](ByteSpan bytes) {
      session.print(as_text(bytes));
      return session.finish_printing();
    };
    // What goes to a terminal shows by itself how it goes on, and a bar would get between.
    ProgressSink& progress = ::isatty(STDOUT_FILENO) == 1 ? null_progress() : session.begin_progress();
    Status no_file;
    if (!rank_) {
      no_file = read_set_file(*store, name, wanted.part, variable_, write, progress);
      // Where there is no such file, a variable may be called so.
      if (!variable_.empty() || no_file.remedy() != Remedy::list_files) VARVE_TRY(no_file);
      if (no_file.ok()) return ExitCode::success;
    }
    VARVE_TRY(write_variable(*store, name, wanted.part, no_file, write, progress));
    return ExitCode::success;
  }

 private:
  Status write_variable(const Store& store, const SetName& name, const std::string& text, const Status& no_file,
                        const std::function<Status(ByteSpan)>& write, ProgressSink& progress) const {
    const Catalog catalog(store);
    VARVE_ASSIGN(const SetRecord record, catalog.read(name));
    const Result<StoredVariables> variables = StoredVariables::read(store, record);
    if (!variables.ok()) return catalog.unless_dropped(name, variables.status());
    VariableReader reader(store, *variables, processor_count());
    const Result<ChosenArray> chosen = ChosenArray::choose(*variables, reader, text, rank_);
    if (!no_file.ok() && chosen.status().remedy() == Remedy::list_variables) {
      const bool is_pattern = text.find_first_of("*?") != std::string::npos;
      return Status::not_found(
          "the set has no such file, and no such variable", name.to_string() + ":" + text,
          is_pattern ? Hint(fmt::format("`varve restore {} --tar --files '{}'` writes the files that match",
                                        name.to_string(), text))
                     : Hint(Remedy::list_variables, name.to_string()));
    }
    VARVE_TRY(chosen.status());
    progress.phase("reading");
    progress.total(chosen->bytes());
    return chosen->read(
        reader, [&](const CellBox&, ByteSpan bytes) { return write(bytes); }, progress);
  }

  std::string file_, variable_;
  std::optional<uint64_t> rank_;
};
}  // namespace

std::unique_ptr<Command> make_cat_command() { return std::make_unique<CatCommand>(); }

}  // namespace varve::cli
