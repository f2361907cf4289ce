#include "engine/restore.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>

#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/launcher.h"
#include "cli/tar_output.h"
#include "cli/text.h"
#include "comm/agreement.h"
#include "core/sync.h"
#include "store/catalog.h"

namespace varve::cli {

namespace {
class RestoreCommand final : public Command {
 public:
  std::string_view name() const override { return "restore"; }
  std::string_view summary() const override { return "put the files of a set into a folder, or write them as tar"; }

  bool works_together() const override { return true; }

  void declare(Arguments& arguments) override {
    arguments.positional("SET", set_, kSetForms);
    arguments.optional_positional("DIR", folder_, "the folder to restore into; made if missing");
    declare_file_filter(arguments, options_.filter);
    arguments.flag("--overwrite", options_.overwrite, "replace files that are there already");
    arguments.flag("--keep-going", options_.keep_going, "if something is damaged, restore what is whole");
    arguments.flag("--tar", tar_, "write them to standard output as a tar archive; no DIR");
    arguments.flag("--no-sync", no_sync_, "return before the files are durable");
    arguments.memory("--memory", options_.memory_bytes, "memory to use at most, about (default: 512MiB)");
    arguments.threads(options_.thread_count, "threads (default: two per processor, at least 8)");
    arguments.examples(
        "  varve restore run@7 back                         the whole set\n"
        "  varve restore run back --overwrite               the newest set, over what is there\n"
        "  varve restore run@7 back --rank 3                one rank's files\n"
        "  varve restore run@7 --tar | ssh far tar -x -C back\n"
        "  varve restore run@7 --tar --files '*.txt' > texts.tar\n"
        "  varve restore run@7 back --files '*.h5' --files 'grid/*'\n");
  }

  Result<ExitCode> run(Session& session) override {
    const auto begin = MonotonicClock::now();
    options_.sync = !no_sync_;
    VARVE_TRY(check_patterns(options_.filter.globs));
    if (folder_.empty() != tar_)
      return Status::invalid_argument(tar_ ? "--tar writes to standard output, and to no folder" : "where to?", folder_,
                                      "name a folder, or say --tar");
    if (folder_ == "-")
      return Status::invalid_argument("files are restored into a folder", folder_,
                                      "--tar writes them to standard output; a folder of this name is ./-");
    if (tar_) return restore_as_tar(session);
    VARVE_ASSIGN(Communicator* const ranks, session.join());
    const Result<std::unique_ptr<Store>> store = session.open_store();
    VARVE_TRY(agree(*ranks, store.status()));
    SetName name;
    VARVE_TRY(follow_first(*ranks, ranks->rank() == 0 ? resolve(**store, name) : Status()));
    VARVE_ASSIGN(RestoreReport report,
                 restore_set_together(**store, name, folder_, options_, *ranks, session.begin_progress()));
    session.end_progress();
    print(session, report, std::chrono::duration<double>(MonotonicClock::now() - begin).count());
    return report.whole() ? ExitCode::success : ExitCode::damaged;
  }

 private:
  Result<ExitCode> restore_as_tar(Session& session) {
    if (find_launch().process_count > 1) return Status::invalid_argument("standard output is of one process", "--tar");
    if (options_.keep_going)
      return Status::invalid_argument("an archive has all that it was asked for, or lacks its end", "--keep-going",
                                      "restore into a folder, or choose what is whole with --files");
    if (session.json() || isatty(STDOUT_FILENO) != 0)
      return Status::invalid_argument(
          session.json() ? "the archive and --json both go to standard output" : "an archive is not for a terminal",
          "--tar", "say where to: varve restore " + set_ + " --tar > set.tar");
    VARVE_ASSIGN(const std::unique_ptr<Store> store, session.open_store());
    VARVE_ASSIGN(const SetName name, Catalog(*store).resolve(set_));
    const Status written =
        write_tar(*store, name, options_.filter, options_.memory_bytes, session.begin_progress()).status();
    session.end_progress();
    VARVE_TRY(written);
    return ExitCode::success;
  }

  Status resolve(const Store& store, SetName& name) const {
    VARVE_ASSIGN(name, Catalog(store).resolve(set_));
    return {};
  }

  static void print(Session& session, const RestoreReport& report, double seconds) {
    if (session.json()) {
      session.print_facts(Json{{"set", report.set.to_string()},
                               {"file_count", report.file_count},
                               {"raw_bytes", report.raw_bytes},
                               {"read_bytes", report.read_bytes},
                               {"lost_files", report.lost_files},
                               {"lost_leaf_count", report.lost_leaf_count},
                               {"unnamed_file_count", report.unnamed_file_count},
                               {"seconds", seconds}});
      return;
    }
    session.print(fmt::format("restored {}: {}, {}, {}\n", quote_name(report.set.to_string()),
                              format_count(report.file_count, "file", "files"), format_size(report.raw_bytes),
                              format_seconds(seconds)));
    for (const std::string& lost : report.lost_files) session.print("  lost: " + quote_name(lost) + "\n");
    if (report.lost_leaf_count == 0) return;
    session.print(fmt::format("  lost: {} of the set's list of files, and so the names of {}\n",
                              format_count(report.lost_leaf_count, "part", "parts"),
                              report.unnamed_file_count == 0
                                  ? "files"
                                  : format_count(report.unnamed_file_count, "file", "files") + " at least"));
  }

  std::string set_, folder_;
  RestoreOptions options_;
  bool no_sync_ = false, tar_ = false;
};
}  // namespace

std::unique_ptr<Command> make_restore_command() { return std::make_unique<RestoreCommand>(); }

}  // namespace varve::cli
