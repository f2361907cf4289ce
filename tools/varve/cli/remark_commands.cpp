// What people say of sets: pin, unpin, tag, note; and rename, as it is of names too.
#include <fmt/format.h>
#include <unistd.h>

#include <set>

#include "cli/command.h"
#include "cli/text.h"
#include "store/catalog.h"
#include "store/remarks.h"
#include "store/rename_job.h"

namespace varve::cli {

namespace {
/// All of them, before anything is done to the first.
Result<std::vector<SetName>> resolve_all(const Catalog& catalog, const std::vector<std::string>& sets) {
  std::vector<SetName> names;
  for (const std::string& set : sets) {
    VARVE_ASSIGN(SetName name, catalog.resolve(set));
    names.push_back(std::move(name));
  }
  return names;
}

class PinCommand final : public Command {
 public:
  std::string_view name() const override { return "pin"; }
  std::string_view summary() const override { return "keep sets from being dropped, by whatever rule"; }

  void declare(Arguments& arguments) override {
    arguments.positional_list("SET", sets_, std::string(kSetForms) + "; one or more");
    arguments.examples(
        "  varve pin run@7               drop, prune and the keep= of levels leave it alone\n"
        "  varve unpin run@7\n");
  }

  Result<ExitCode> run(Session& session) override {
    VARVE_ASSIGN(const std::unique_ptr<Store> store, session.open_store());
    VARVE_ASSIGN(const std::vector<SetName> names, resolve_all(Catalog(*store), sets_));
    for (const SetName& set : names) VARVE_TRY(Remarks(*store).pin(set));
    if (session.json()) {
      session.print_facts(Json{{"pinned", to_json(names)}});
    } else {
      for (const SetName& set : names) session.print("pinned " + quote_name(set.to_string()) + "\n");
    }
    return ExitCode::success;
  }

 private:
  std::vector<std::string> sets_;
};

class UnpinCommand final : public Command {
 public:
  std::string_view name() const override { return "unpin"; }
  std::string_view summary() const override { return "let pinned sets be dropped again"; }

  void declare(Arguments& arguments) override {
    arguments.positional_list("SET", sets_, std::string(kSetForms) + "; one or more");
    arguments.examples("  varve unpin run@7\n");
  }

  Result<ExitCode> run(Session& session) override {
    VARVE_ASSIGN(const std::unique_ptr<Store> store, session.open_store());
    std::vector<SetName> names;
    for (const std::string& set : sets_) {
      VARVE_ASSIGN(SetName name, find(*store, set));
      names.push_back(std::move(name));
    }
    std::vector<SetName> unpinned;
    for (const SetName& set : names) {
      VARVE_ASSIGN(const bool was_pinned, Remarks(*store).unpin(set));
      if (was_pinned) unpinned.push_back(set);
      if (!session.json())
        session.print(quote_name(set.to_string()) + (was_pinned ? " is no longer pinned\n" : " was not pinned\n"));
    }
    if (session.json()) session.print_facts(Json{{"unpinned", to_json(unpinned)}});
    return ExitCode::success;
  }

 private:
  /// Also one that a late drop has hidden.
  static Result<SetName> find(const Store& store, const std::string& set) {
    Result<SetName> there = Catalog(store).resolve(set);
    if (there.status().code() != StatusCode::not_found) return there;
    VARVE_ASSIGN(const std::set<SetName> pinned, Remarks(store).pinned());
    for (const SetName& name : pinned) {
      if (name.to_string() == set) return name;
    }
    return there;
  }

  std::vector<std::string> sets_;
};

class TagCommand final : public Command {
 public:
  std::string_view name() const override { return "tag"; }
  std::string_view summary() const override { return "give a set tags, or take them away"; }

  void declare(Arguments& arguments) override {
    arguments.positional("SET", set_, kSetForms);
    arguments.optional_positional_list("TAG", tags_,
                                       "letters, digits, '-', '_' and '.'; without one, its tags are listed");
    arguments.flag("--remove", remove_, "take these tags away");
    arguments.examples(
        "  varve tag run@7 best converged\n"
        "  varve tag run@7\n"
        "  varve tag run@7 best --remove\n"
        "  varve prune --keep-last 3 --keep-tag best\n");
  }

  Result<ExitCode> run(Session& session) override {
    if (remove_ && tags_.empty()) return Status::invalid_argument("which tags are to be removed?", set_);
    VARVE_ASSIGN(const std::unique_ptr<Store> store, session.open_store());
    VARVE_ASSIGN(const SetName set, Catalog(*store).resolve(set_));
    const Remarks remarks(*store);
    for (const std::string& tag : tags_) VARVE_TRY(check_tag(tag));
    for (const std::string& tag : tags_) {
      if (remove_) {
        VARVE_TRY(remarks.remove_tag(set, tag).status());
      } else {
        VARVE_TRY(remarks.add_tag(set, tag));
      }
    }
    VARVE_ASSIGN(const SetRemarks said, remarks.of(set));
    if (session.json()) {
      session.print_facts(Json{{"set", set.to_string()}, {"tags", said.tags}});
    } else {
      session.print(quote_name(set.to_string()) + ": " + (said.tags.empty() ? "no tags" : pin_and_tags_of(said)) +
                    "\n");
    }
    return ExitCode::success;
  }

 private:
  std::string set_;
  std::vector<std::string> tags_;
  bool remove_ = false;
};

class NoteCommand final : public Command {
 public:
  std::string_view name() const override { return "note"; }
  std::string_view summary() const override { return "write a note on a set, or read it"; }

  void declare(Arguments& arguments) override {
    arguments.positional("SET", set_, kSetForms);
    arguments.optional_positional("TEXT", text_, "in the place of an earlier note; without it, the note is printed");
    arguments.flag("--remove", remove_, "remove the note");
    arguments.examples(
        "  varve note run@7 'converged; figures 3 and 4 of the paper'\n"
        "  varve note run@7\n"
        "  varve note run@7 --remove\n");
  }

  Result<ExitCode> run(Session& session) override {
    if (remove_ && !text_.empty()) return Status::invalid_argument("a note is written or removed, not both", set_);
    VARVE_ASSIGN(const std::unique_ptr<Store> store, session.open_store());
    VARVE_ASSIGN(const SetName set, Catalog(*store).resolve(set_));
    const Remarks remarks(*store);
    VARVE_ASSIGN(const std::string before, remarks.note(set));
    if (remove_ || !text_.empty()) VARVE_TRY(remarks.write_note(set, text_));
    VARVE_ASSIGN(const std::string note, remarks.note(set));
    if (note.empty() && !remove_)
      return Status::not_found("the set has no note", set.to_string(),
                               fmt::format("`varve note {} TEXT` writes one", set.to_string()));
    if (session.json()) {
      session.print_facts(Json{{"set", set.to_string()}, {"note", note}});
    } else if (note.empty()) {
      session.print(quote_name(set.to_string()) + (before.empty() ? " has no note\n" : " has no note any more\n"));
    } else {
      session.print(shown(note));
    }
    return ExitCode::success;
  }

 private:
  /// As it was written, for a program; for a terminal, so that it cannot play tricks on that.
  static std::string shown(const std::string& note) {
    const std::string text = ::isatty(STDOUT_FILENO) == 1 ? escape_lines(note) : note;
    return text.ends_with('\n') ? text : text + '\n';
  }

  std::string set_, text_;
  bool remove_ = false;
};

class RenameCommand final : public Command {
 public:
  std::string_view name() const override { return "rename"; }
  std::string_view summary() const override { return "give all sets of a job another job's name"; }

  void declare(Arguments& arguments) override {
    arguments.positional("JOB", from_, "the job, of which no program may be at work");
    arguments.positional("NAME", to_, "its new name");
    arguments.flag("--join", join_,
                   "put its sets beside those of a job that is called so; also: go on with a rename that was stopped");
    arguments.examples(
        "  varve rename test heat         test@40 is heat@40 from now on\n"
        "  varve rename test heat --store /archive/store    other stores have the old name until they are told\n");
  }

  Result<ExitCode> run(Session& session) override {
    VARVE_ASSIGN(const std::unique_ptr<Store> store, session.open_store());
    const Result<std::vector<DirectoryEntry>> protection =
        store->backend().list(join_path(store->path(), kRedundancyFolder));
    if (protection.ok() && !protection->empty()) {
      return Status::unsupported("the store of a node has what protects its sets by their names", store->path(),
                                 "rename the job in the stores behind it");
    }
    VARVE_TRY(check_is_new(Catalog(*store)));
    VARVE_TRY(rename_job(*store, from_, to_, session.begin_progress()));
    session.end_progress();
    if (session.json()) {
      session.print_facts(Json{{"renamed", from_}, {"to", to_}});
    } else {
      session.print(fmt::format("the sets of {} are called {} now\n", quote_name(from_), quote_name(to_)));
    }
    return ExitCode::success;
  }

 private:
  /// Once two jobs are one, nothing tells them apart again.
  Status check_is_new(const Catalog& catalog) const {
    if (join_ || from_ == to_) return {};
    VARVE_TRY(check_job_name(to_));
    VARVE_ASSIGN(const std::vector<uint64_t> steps, catalog.steps(to_));
    if (steps.empty()) return {};
    return Status::already_exists("there is a job of this name", to_,
                                  "--join makes one job of both, or goes on with a rename that was stopped");
  }

  std::string from_, to_;
  bool join_ = false;
};
}  // namespace

std::unique_ptr<Command> make_pin_command() { return std::make_unique<PinCommand>(); }
std::unique_ptr<Command> make_unpin_command() { return std::make_unique<UnpinCommand>(); }
std::unique_ptr<Command> make_tag_command() { return std::make_unique<TagCommand>(); }
std::unique_ptr<Command> make_note_command() { return std::make_unique<NoteCommand>(); }
std::unique_ptr<Command> make_rename_command() { return std::make_unique<RenameCommand>(); }

}  // namespace varve::cli
