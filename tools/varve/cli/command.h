#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "cli/arguments.h"
#include "cli/process.h"
#include "cli/session.h"
#include "varve/status.h"

namespace varve::cli {

/// A sub-command: it declares what it takes, and does its work with what was given. An object serves one run of the
/// program.
class Command {
 public:
  virtual ~Command() = default;
  virtual std::string_view name() const = 0;
  /// One line for the list of commands.
  virtual std::string_view summary() const = 0;
  virtual void declare(Arguments& arguments) = 0;
  /// Whether it prints facts, and so has --json.
  virtual bool prints_facts() const { return true; }
  /// Whether it takes --store.
  virtual bool works_on_store() const { return true; }
  /// Whether it takes --key-file, for servers that its arguments or the options name.
  virtual bool uses_servers() const { return works_on_store(); }
  /// Whether the processes that a launcher has started do it together.
  virtual bool works_together() const { return false; }
  /// How what is meant by more arguments than it takes is done; empty: its help says what it takes.
  virtual std::string_view hint_for_more() const { return {}; }
  /// What went wrong without the command's own words about it is a Status, which the caller reports.
  virtual Result<ExitCode> run(Session& session) = 0;
  /// What the program ends with where run() has failed so.
  virtual ExitCode exit_code_for(const Status& failure) const { return exit_code_of(failure.code()); }
};

std::unique_ptr<Command> make_init_command();
std::unique_ptr<Command> make_save_command();
std::unique_ptr<Command> make_restore_command();
std::unique_ptr<Command> make_list_command();
std::unique_ptr<Command> make_show_command();
std::unique_ptr<Command> make_find_command();
std::unique_ptr<Command> make_diff_command();
std::unique_ptr<Command> make_stat_command();
std::unique_ptr<Command> make_verify_command();
std::unique_ptr<Command> make_pin_command();
std::unique_ptr<Command> make_unpin_command();
std::unique_ptr<Command> make_tag_command();
std::unique_ptr<Command> make_note_command();
std::unique_ptr<Command> make_rename_command();
std::unique_ptr<Command> make_drop_command();
std::unique_ptr<Command> make_prune_command();
std::unique_ptr<Command> make_push_command();
std::unique_ptr<Command> make_pull_command();
std::unique_ptr<Command> make_levels_command();
std::unique_ptr<Command> make_repair_command();
std::unique_ptr<Command> make_rebalance_command();
std::unique_ptr<Command> make_cat_command();
std::unique_ptr<Command> make_export_command();
std::unique_ptr<Command> make_run_command();
std::unique_ptr<Command> make_drain_command();
std::unique_ptr<Command> make_serve_command();
std::unique_ptr<Command> make_watch_command();
std::unique_ptr<Command> make_status_command();
std::unique_ptr<Command> make_top_command();
std::unique_ptr<Command> make_timeline_command();
std::unique_ptr<Command> make_mount_command();
std::unique_ptr<Command> make_seal_command();
std::unique_ptr<Command> make_unmount_command();
std::unique_ptr<Command> make_model_command();
std::unique_ptr<Command> make_study_command();

/// All of them, in the order of the help.
std::vector<std::unique_ptr<Command>> make_all_commands();

}  // namespace varve::cli
