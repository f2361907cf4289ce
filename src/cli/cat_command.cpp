#include "aggregate/inspect.h"
#include "cli/command.h"

namespace varve::cli {

namespace {
struct FileOfSet {
  std::string set, path;
};

/// "JOB@STEP:FILE" or "JOB:FILE". The name of a job has no '@' and no '/', that of a file may have any.
Result<FileOfSet> parse_file_of_set(const std::string& text) {
  const size_t at = text.find('@');
  size_t colon = text.find(':');
  if (at != std::string::npos && text.find('/') > at) {
    const size_t end = text.find_first_not_of("0123456789", at + 1);
    if (end != std::string::npos && end > at + 1 && text[end] == ':') colon = end;
  }
  if (colon == std::string::npos || colon == 0 || colon + 1 == text.size()) {
    return Status::invalid_argument("which file of which set?", text,
                                    "write JOB@STEP:FILE, or JOB:FILE for the job's newest set");
  }
  return FileOfSet{text.substr(0, colon), text.substr(colon + 1)};
}

class CatCommand final : public Command {
 public:
  std::string_view name() const override { return "cat"; }
  std::string_view summary() const override { return "write a file of a set, or a variable of it, to standard output"; }
  bool prints_facts() const override { return false; }

  void declare(Arguments& arguments) override {
    arguments.positional("SET:FILE", file_, "JOB@STEP:FILE, or JOB:FILE for the job's newest set");
    arguments.text("--variable", "NAME", variable_, "only the stored bytes of this variable");
    arguments.examples(
        "  varve cat run@7:parameters.txt\n"
        "  varve cat run@7:out.cpu0003 --variable /Density > density.bin\n");
  }

  Result<ExitCode> run(Session& session) override {
    VARVE_ASSIGN(const FileOfSet wanted, parse_file_of_set(file_));
    VARVE_ASSIGN(std::unique_ptr<Store> store, session.open_store());
    VARVE_ASSIGN(SetName name, Catalog(*store).resolve(wanted.set));
    auto write = [&session](ByteSpan bytes) {
      session.print(as_text(bytes));
      return session.finish_printing();
    };
    VARVE_TRY(read_set_file(*store, name, wanted.path, variable_, write));
    return ExitCode::success;
  }

 private:
  std::string file_, variable_;
};
}  // namespace

std::unique_ptr<Command> make_cat_command() { return std::make_unique<CatCommand>(); }

}  // namespace varve::cli
