#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <optional>

#include "cli/command.h"
#include "engine/inspect.h"

namespace varve::cli {

namespace {
struct FileOfSet {
  std::string set, path;
};

/// "JOB@STEP:FILE". The name of a job has no '@' and no '/', that of a file may have any.
std::optional<FileOfSet> parse_with_step(const std::string& text) {
  const size_t at = text.find_first_of("@/");
  if (at == 0 || at == std::string::npos || text[at] == '/') return {};
  const size_t end = text.find_first_not_of("0123456789", at + 1);
  if (end == std::string::npos || end == at + 1 || text[end] != ':' || end + 1 == text.size()) return {};
  return FileOfSet{text.substr(0, end), text.substr(end + 1)};
}

/// "JOB:FILE" in all the ways in which it can be read, as both names may have colons.
std::vector<FileOfSet> parse_without_step(const std::string& text) {
  std::vector<FileOfSet> ways;
  const size_t end = std::min(text.find_first_of("@/"), text.size() - 1);
  for (size_t colon = text.find(':', 1); colon < end; colon = text.find(':', colon + 1))
    ways.push_back({text.substr(0, colon), text.substr(colon + 1)});
  return ways;
}

Result<FileOfSet> find_file_of_set(const Catalog& catalog, const std::string& text) {
  VARVE_ASSIGN(const std::vector<std::string> jobs, catalog.jobs());
  auto is_there = [&](const std::string& job) { return std::find(jobs.begin(), jobs.end(), job) != jobs.end(); };
  const std::optional<FileOfSet> exact = parse_with_step(text);
  if (exact && is_there(exact->set.substr(0, exact->set.find('@')))) return *exact;
  const std::vector<FileOfSet> ways = parse_without_step(text);
  std::vector<FileOfSet> found;
  std::copy_if(ways.begin(), ways.end(), std::back_inserter(found),
               [&](const FileOfSet& way) { return is_there(way.set); });
  if (found.size() > 1) {
    return Status::invalid_argument("this may mean a file of the job " + found[0].set + " or of " + found[1].set, text,
                                    "write JOB@STEP:FILE");
  }
  if (found.size() == 1) return found[0];
  // The set that is not there is named by who looks for it.
  if (exact) return *exact;
  return ways.front();
}

class CatCommand final : public Command {
 public:
  std::string_view name() const override { return "cat"; }
  std::string_view summary() const override { return "write a file of a set, or one variable, to standard output"; }
  bool prints_facts() const override { return false; }

  void declare(Arguments& arguments) override {
    arguments.positional("SET:FILE", file_, "JOB@STEP:FILE, or JOB:FILE for the job's newest set");
    arguments.text("--variable", "NAME", variable_, "only this variable, as its bytes are in the file");
    arguments.examples(
        "  varve cat run@7:parameters.txt\n"
        "  varve cat run@7:out.cpu0003 --variable /Density > density.bin\n");
  }

  Result<ExitCode> run(Session& session) override {
    if (!parse_with_step(file_) && parse_without_step(file_).empty()) {
      return Status::invalid_argument("which file of which set?", file_,
                                      "write JOB@STEP:FILE, or JOB:FILE for the job's newest set");
    }
    VARVE_ASSIGN(std::unique_ptr<Store> store, session.open_store());
    const Catalog catalog(*store);
    VARVE_ASSIGN(const FileOfSet wanted, find_file_of_set(catalog, file_));
    VARVE_ASSIGN(SetName name, catalog.resolve(wanted.set));
    auto write = [&session](ByteSpan bytes) {
      session.print(as_text(bytes));
      return session.finish_printing();
    };
    // What goes to a terminal shows by itself how it goes on, and a bar would get between.
    ProgressSink& progress = ::isatty(STDOUT_FILENO) == 1 ? null_progress() : session.begin_progress();
    VARVE_TRY(read_set_file(*store, name, wanted.path, variable_, write, progress));
    return ExitCode::success;
  }

 private:
  std::string file_, variable_;
};
}  // namespace

std::unique_ptr<Command> make_cat_command() { return std::make_unique<CatCommand>(); }

}  // namespace varve::cli
