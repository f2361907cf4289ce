#include <exception>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/command_line.h"
#include "cli/message_writer.h"
#include "cli/session.h"

namespace varve::cli {

std::vector<std::unique_ptr<Command>> make_all_commands() {
  std::vector<std::unique_ptr<Command>> commands;
  commands.push_back(make_init_command());
  commands.push_back(make_save_command());
  commands.push_back(make_restore_command());
  commands.push_back(make_list_command());
  commands.push_back(make_show_command());
  commands.push_back(make_diff_command());
  commands.push_back(make_stat_command());
  commands.push_back(make_cat_command());
  commands.push_back(make_verify_command());
  commands.push_back(make_drop_command());
  commands.push_back(make_prune_command());
  commands.push_back(make_model_command());
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
    return Status::resource_limit("out of memory", "", "give less with --memory, where the command has it");
  } catch (const std::exception& unexpected) {
    return Status::internal(unexpected.what());
  }
}

ExitCode run_program(const std::vector<std::string>& arguments) {
  const std::vector<std::unique_ptr<Command>> commands = make_all_commands();
  CommonOptions common;
  Result<ParsedCommandLine> parsed = parse_command_line(arguments, commands, common);
  MessageWriter messages(common.json);
  auto fail = [&messages](const Status& failure) {
    messages.error(failure);
    return exit_code_of(failure.code());
  };
  if (!parsed.ok()) return fail(parsed.status());
  Session session(common, messages);
  Result<ExitCode> outcome = run_command(parsed->command, parsed->text, session);
  session.end_progress();
  Status printed = session.finish_printing();
  if (!outcome.ok()) return fail(outcome.status());
  if (!printed.ok()) return fail(printed);
  return *outcome;
}
}  // namespace

}  // namespace varve::cli

int main(int argc, char** argv) {
  return static_cast<int>(varve::cli::run_program(std::vector<std::string>(argv + (argc > 0 ? 1 : 0), argv + argc)));
}
