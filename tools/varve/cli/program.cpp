#include "cli/program.h"

#include <fmt/format.h>

#include <chrono>
#include <exception>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/command_line.h"
#include "cli/json.h"
#include "cli/launcher.h"
#include "cli/process.h"
#include "cli/session.h"
#include "cli/text.h"
#include "core/process.h"

namespace varve::cli {

std::vector<std::unique_ptr<Command>> make_all_commands() {
  std::vector<std::unique_ptr<Command>> commands;
  commands.push_back(make_init_command());
  commands.push_back(make_save_command());
  commands.push_back(make_restore_command());
  commands.push_back(make_list_command());
  commands.push_back(make_show_command());
  commands.push_back(make_find_command());
  commands.push_back(make_diff_command());
  commands.push_back(make_stat_command());
  commands.push_back(make_cat_command());
  commands.push_back(make_export_command());
  commands.push_back(make_verify_command());
  commands.push_back(make_pin_command());
  commands.push_back(make_unpin_command());
  commands.push_back(make_tag_command());
  commands.push_back(make_note_command());
  commands.push_back(make_rename_command());
  commands.push_back(make_drop_command());
  commands.push_back(make_prune_command());
  commands.push_back(make_push_command());
  commands.push_back(make_pull_command());
  commands.push_back(make_levels_command());
  commands.push_back(make_repair_command());
  commands.push_back(make_run_command());
  commands.push_back(make_drain_command());
  commands.push_back(make_serve_command());
  commands.push_back(make_mount_command());
  commands.push_back(make_seal_command());
  commands.push_back(make_unmount_command());
  commands.push_back(make_watch_command());
  commands.push_back(make_status_command());
  commands.push_back(make_top_command());
  commands.push_back(make_timeline_command());
  commands.push_back(make_rebalance_command());
  commands.push_back(make_model_command());
  commands.push_back(make_study_command());
  return commands;
}

namespace {
Result<ExitCode> run_command(Command* command, const std::string& text, Session& session) {
  if (command == nullptr) {
    session.print(text);
    return ExitCode::success;
  }
  try {
    return command->run(session);
  } catch (const std::bad_alloc&) {
    return session.give_up(
        Status::resource_limit("out of memory", "", "give less with --memory, where the command has it"));
  } catch (const std::exception& unexpected) {
    return session.give_up(Status::internal(unexpected.what()));
  }
}

/// Whether this process is one of several, and not the one that speaks for them.
bool is_silent() {
  const Launch launch = find_launch();
  return launch.process_count > 1 && launch.process > 0;
}
}  // namespace

ExitCode run_program(const std::vector<std::string>& arguments, ProgramRanks& ranks) {
  hold_standard_streams();
  raise_descriptor_limit();
  const std::vector<std::unique_ptr<Command>> commands = make_all_commands();
  CommonOptions common;
  Result<ParsedCommandLine> parsed = parse_command_line(arguments, commands, common);
  const auto begin = MonotonicClock::now();
  MessageWriter messages(common.json, common.progress, common.log);
  auto fail = [&messages](const Status& failure) {
    messages.error(failure);
    return exit_code_of(failure.code());
  };
  const bool together = parsed.ok() && parsed->command != nullptr && parsed->command->works_together();
  if (!parsed.ok() || together) messages.be_silent(is_silent());
  if (!parsed.ok()) {
    // A launcher ends all processes once the first has failed: so they end together, when the one that speaks has
    // spoken.
    if (find_launch().process_count > 1 && ranks.prepare(arguments).ok())
      ranks.join().status().ignore("what is to be said is another failure");
    return fail(parsed.status());
  }
  if (together) {
    const Status ready = ranks.prepare(arguments);
    if (!ready.ok()) return fail(ready);
  }
  Session session(common, messages, ranks);
  Result<ExitCode> outcome = run_command(parsed->command, parsed->text, session);
  session.end_progress();
  if (outcome.status().code() != StatusCode::cancelled) session.mark_damage();
  Status printed = session.finish_printing();
  if (messages.is_verbose() && parsed->command != nullptr) {
    const double seconds = std::chrono::duration<double>(MonotonicClock::now() - begin).count();
    messages.event(fmt::format("{} has taken {}", parsed->command->name(), format_seconds(seconds)));
  }
  if (!outcome.ok()) {
    if (together) ranks.join().status().ignore("what is to be said is another failure");
    fail(outcome.status());
    return parsed->command->exit_code_for(outcome.status());
  }
  if (!printed.ok()) return fail(printed);
  return *outcome;
}

}  // namespace varve::cli
