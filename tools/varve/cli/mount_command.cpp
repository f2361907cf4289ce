#include "cli/mount_command.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <syslog.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <filesystem>
#include <memory>
#include <utility>

#include "cli/command.h"
#include "cli/process.h"
#include "cli/save_command.h"
#include "cli/text.h"
#include "core/process.h"
#include "level/level_spec.h"
#include "mount/mount_point.h"
#include "mount/mount_run.h"
#include "mount/seal_request.h"
#include "service/location.h"

namespace varve::cli {

namespace {
std::string now_text() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::localtime_r(&now, &parts);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &parts)};
}
}  // namespace

Result<MountLog> open_mount_log(const std::string& path, LogForm form) {
  auto file = std::make_shared<UniqueFd>(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!file->valid()) return Status::from_errno(errno, "open", path);
  return MountLog([file, form](const std::string& line) {
    // One call, so that lines of several threads do not mix. A log that cannot be written stops nothing.
    const std::string text =
        form == LogForm::text ? now_text() + " " + escape_text(line) + "\n" : log_line(form, LogLevel::info, line);
    if (::write(file->get(), text.data(), text.size()) < 0) return;
  });
}

MountLog system_mount_log(LogForm form) {
  ::openlog("varve-mount", LOG_PID, LOG_USER);
  return [form](const std::string& line) {
    const std::string text = form == LogForm::text ? escape_text(line) : log_line(form, LogLevel::info, line);
    ::syslog(LOG_NOTICE, "%s", text.c_str());
  };
}

namespace {
Result<std::string> absolute_path(const std::string& path) {
  std::error_code error;
  const std::filesystem::path full = std::filesystem::absolute(path, error);
  if (error) return Status::from_errno(error.value(), "find", path);
  return full.string();
}

/// The same store, wherever the process goes.
Result<std::string> lasting_location(const std::string& text) {
  VARVE_ASSIGN(const Location location, Location::parse(text));
  if (!location.is_folder()) return text;
  VARVE_ASSIGN(const std::string folder, absolute_path(location.folder));
  return "dir:" + folder;
}

class MountCommand final : public Command {
 public:
  std::string_view name() const override { return "mount"; }
  std::string_view summary() const override { return "show a store as a folder that programs read and write"; }
  bool works_on_store() const override { return false; }
  bool uses_servers() const override { return true; }
  bool prints_facts() const override { return false; }

  void declare(Arguments& arguments) override {
    arguments.positional("STORE", options_.store, std::string("the store: ") + kStoreForms);
    arguments.optional_positional("DIR", options_.folder, "an empty folder, in which the store appears");
    arguments.text("--levels", "LEVELS", options_.levels,
                   "levels in place of STORE: the nearest is mounted, and sealed sets are copied to the others");
    arguments.text(
        "--spool", "DIR", options_.spool,
        "a folder on a local disk for sets that are being written (default: ~/.local/state/varve/spool/STORE-ID)");
    arguments.seconds(
        "--seal-after", options_.seal_seconds,
        "seal a set when all its files are closed and nothing was written for so long (default: 30; 0: never)");
    arguments.flag("--read-only", options_.read_only, "show committed sets, and allow no changes");
    arguments.flag("--no-delete", options_.no_delete, "do not allow committed sets to be removed");
    arguments.flag("--allow-other", options_.allow_other, "allow other users to use the mount");
    arguments.memory("--memory", options_.memory_bytes, "memory for reading, about (default: 256MiB)");
    arguments.memory("--save-memory", saving_.options.memory_bytes, "memory for sealing, about (default: 512MiB)");
    arguments.threads(saving_.options.thread_count, "threads for sealing (default: one per processor)");
    saving_.declare_grouping(arguments);
    saving_.declare_shrinking(arguments);
    arguments.flag("--foreground", foreground_, "stay in the foreground until unmounted");
    arguments.text("--log-file", "FILE", log_,
                   "where to log (default: the system log, or standard error with --foreground)");
    arguments.examples(
        "  varve mount store ckpt                      then write to ckpt/JOB/STEP.tmp, and rename it\n"
        "  cp -a output ckpt/run/7.tmp && mv ckpt/run/7.tmp ckpt/run/7\n"
        "  varve mount store ckpt --spool /nvme/me/spool --seal-after 5 --log-file mount.log\n"
        "  varve mount unix:/run/varve/store.sock ckpt --read-only\n"
        "  varve mount --levels \"dir:/nvme/me/store keep=3; dir:/lustre/me/store\" ckpt\n"
        "  varve unmount ckpt\n");
  }

  Result<ExitCode> run(Session& session) override {
    VARVE_ASSIGN(options_.save, saving_.take(false));
    options_.reach = session.reach();
    VARVE_TRY(take_places());
    shown_ = (options_.levels.empty() ? options_.store : options_.levels) + " is at " + options_.folder;
    if (options_.levels.empty()) {
      VARVE_ASSIGN(options_.store, lasting_location(options_.store));
    }
    for (std::string* path : {&options_.folder, &options_.spool, &log_, &options_.reach.key_file}) {
      if (path->empty()) continue;
      VARVE_ASSIGN(*path, absolute_path(*path));
    }
    if (foreground_) {
      MountLog log = [&session](const std::string& line) { session.log(line); };
      if (!log_.empty()) {
        VARVE_ASSIGN(log, open_mount_log(log_, session.log_form()));
      }
      VARVE_TRY(run_mount(options_, log, [&] { return announce(session); }));
      return ExitCode::success;
    }
    auto work = [this, form = session.log_form()](const std::function<Status()>& ready) -> Status {
      MountLog log = system_mount_log(form);
      if (!log_.empty()) {
        VARVE_ASSIGN(log, open_mount_log(log_, form));
      }
      return run_mount(options_, log, ready);
    };
    VARVE_TRY(run_in_background(work));
    VARVE_TRY(announce(session));
    return ExitCode::success;
  }

 private:
  /// With levels, DIR stands alone.
  Status take_places() {
    if (options_.levels.empty()) {
      return options_.folder.empty()
                 ? Status::invalid_argument("where is the store to be seen?", options_.store, "name an empty folder")
                 : Status();
    }
    if (!options_.folder.empty())
      return Status::invalid_argument("with --levels, no other store is mounted", options_.store, "name DIR alone");
    options_.folder = std::exchange(options_.store, {});
    VARVE_ASSIGN(std::vector<LevelSpec> levels, parse_levels(options_.levels));
    for (LevelSpec& level : levels) {
      if (level.place.empty() || level.is_on_servers()) continue;
      VARVE_ASSIGN(level.place, absolute_path(level.place));
    }
    options_.levels = to_string(levels);
    return {};
  }

  Status announce(Session& session) const {
    session.announce(quote_name(shown_), {{"event", "mounted"}, {"folder", options_.folder}});
    return session.finish_printing();
  }

  MountOptions options_;
  SaveArguments saving_;
  bool foreground_ = false;
  std::string log_;
  std::string shown_;
};
}  // namespace

std::unique_ptr<Command> make_mount_command() { return std::make_unique<MountCommand>(); }

namespace {
class UnmountCommand final : public Command {
 public:
  std::string_view name() const override { return "unmount"; }
  std::string_view summary() const override { return "end a mount; sets that are not sealed stay in its spool"; }
  bool works_on_store() const override { return false; }
  bool prints_facts() const override { return false; }

  void declare(Arguments& arguments) override {
    arguments.positional("DIR", folder_, "where the store is mounted, even if the mount has died");
    arguments.examples("  varve unmount ckpt\n");
  }

  Result<ExitCode> run(Session& session) override {
    VARVE_TRY(unmount(folder_));
    session.print("unmounted " + quote_name(folder_) + "\n");
    return ExitCode::success;
  }

 private:
  std::string folder_;
};
}  // namespace

std::unique_ptr<Command> make_unmount_command() { return std::make_unique<UnmountCommand>(); }

namespace {
class SealCommand final : public Command {
 public:
  std::string_view name() const override { return "seal"; }
  std::string_view summary() const override { return "commit sets that were written into a mounted store"; }
  bool works_on_store() const override { return false; }
  bool prints_facts() const override { return false; }

  void declare(Arguments& arguments) override {
    arguments.positional_list("DIR/JOB/STEP", folders_, "folders of open sets in a mount");
    arguments.flag("--status", only_ask_, "only show their state");
    arguments.examples(
        "  varve seal ckpt/run/7\n"
        "  varve seal --status ckpt/run/8.tmp\n");
  }

  Result<ExitCode> run(Session& session) override {
    for (const std::string& folder : folders_) {
      if (only_ask_) {
        VARVE_ASSIGN(const std::string state, request_set_state(folder));
        session.print(fmt::format("{}: {}", quote_name(folder), state));
        continue;
      }
      VARVE_TRY(request_seal(folder));
      session.print(fmt::format("sealed {}\n", quote_name(folder)));
    }
    return ExitCode::success;
  }

 private:
  std::vector<std::string> folders_;
  bool only_ask_ = false;
};
}  // namespace

std::unique_ptr<Command> make_seal_command() { return std::make_unique<SealCommand>(); }

}  // namespace varve::cli
