#include "cli/completion.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <vector>

namespace varve::cli {

namespace {
/// An option as shells see it.
struct ShellOption {
  std::vector<std::string> names;  ///< "-h", "--help"
  bool has_value;
  std::string meaning;
};

std::vector<ShellOption> options_of(const CLI::App& app) {
  std::vector<ShellOption> found;
  for (const CLI::Option* const option : app.get_options()) {
    if (!option->nonpositional()) continue;
    ShellOption& added = found.emplace_back(ShellOption{{}, option->get_type_size() != 0, option->get_description()});
    for (const std::string& name : option->get_snames()) added.names.push_back("-" + name);
    for (const std::string& name : option->get_lnames()) added.names.push_back("--" + name);
  }
  return found;
}

std::vector<const CLI::App*> commands_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

/// With a backslash before each of these characters.
std::string escaped(const std::string& text, std::string_view characters) {
  std::string out;
  for (const char character : text) {
    if (characters.find(character) != std::string_view::npos) out += '\\';
    out += character;
  }
  return out;
}

/// Within single quotes of a Bourne shell.
std::string quoted(const std::string& text) {
  std::string out;
  for (const char character : text) out += character == '\'' ? std::string("'\\''") : std::string(1, character);
  return "'" + out + "'";
}

void add_names(std::string& words, const std::vector<ShellOption>& options, bool with_value_only) {
  for (const ShellOption& option : options) {
    if (with_value_only && !option.has_value) continue;
    for (const std::string& name : option.names) words += (words.empty() ? "" : " ") + name;
  }
}

std::string bash_script(const CLI::App& app) {
  std::string commands, cases;
  for (const CLI::App* const command : commands_of(app)) {
    commands += (commands.empty() ? "" : " ") + command->get_name();
    std::string options, with_value;
    add_names(options, options_of(*command), false);
    add_names(with_value, options_of(*command), true);
    cases += fmt::format("    {}) options=\"{}\"; with_value=\"{}\" ;;\n", command->get_name(), options, with_value);
  }
  std::string options, with_value;
  add_names(options, options_of(app), false);
  add_names(with_value, options_of(app), true);
  return fmt::format(R"(# bash completion for varve
_varve() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} command= i
  local options="{0}" with_value="{1}"
  local commands="{2}"
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; ++i)); do
    if [[ " $with_value " == *" ${{COMP_WORDS[i]}} "* ]]; then ((++i)); continue; fi
    if [[ ${{COMP_WORDS[i]}} != -* ]]; then command=${{COMP_WORDS[i]}}; break; fi
  done
  case $command in
{3}  esac
  if [[ $word == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$options" -- "$word")
  elif [[ " $with_value " == *" $before "* ]]; then
    mapfile -t COMPREPLY < <(compgen -f -- "$word")
  elif [[ -z $command || $command == help ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$commands" -- "$word")
  else
    mapfile -t COMPREPLY < <(compgen -f -- "$word")
  fi
}}
complete -o filenames -o bashdefault -F _varve varve
)",
                     options, with_value, commands, cases);
}

std::string zsh_options(const CLI::App& app) {
  std::string lines;
  for (const ShellOption& option : options_of(app)) {
    for (const std::string& name : option.names) {
      const std::string text =
          name + "[" + escaped(option.meaning, "[]:\\") + "]" + (option.has_value ? ":value:_files" : "");
      lines += " \\\n        " + quoted(text);
    }
  }
  return lines;
}

std::string zsh_script(const CLI::App& app) {
  std::string commands, cases;
  for (const CLI::App* const command : commands_of(app)) {
    commands += "    " + quoted(escaped(command->get_name(), ":") + ":" + command->get_description()) + "\n";
    const bool is_help = command->get_name() == "help";
    cases += fmt::format("    {})\n      _arguments -s{} \\\n        {}\n      ;;\n", command->get_name(),
                         zsh_options(*command),
                         is_help ? "'1:command:{_describe -t commands command commands}'" : "'*:file:_files'");
  }
  return fmt::format(R"(#compdef varve
_varve() {{
  local -a commands
  local context state line curcontext="$curcontext"
  commands=(
{0}  )
  _arguments -C -s{1} \
    '1:command:->command' '*::argument:->argument' && return
  case $state in
    command) _describe -t commands command commands; return ;;
  esac
  case $line[1] in
{2}  esac
}}
if [[ $funcstack[1] == _varve ]]; then
  _varve "$@"
else
  compdef _varve varve
fi
)",
                     commands, zsh_options(app), cases);
}

std::string fish_options(const CLI::App& app, const std::string& condition) {
  std::string lines;
  for (const ShellOption& option : options_of(app)) {
    lines += "complete -c varve -n " + quoted(condition);
    for (const std::string& name : option.names)
      lines += name[1] == '-' ? " -l " + name.substr(2) : " -s " + name.substr(1);
    lines += std::string(option.has_value ? " -r" : "") + " -d '" + escaped(option.meaning, "'\\") + "'\n";
  }
  return lines;
}

std::string fish_script(const CLI::App& app) {
  std::string with_value, text, names;
  add_names(with_value, options_of(app), true);
  text = fmt::format(R"(# fish completion for varve
function __varve_command_is
  set -l words (commandline -opc)[2..]
  while set -q words[1]
    if contains -- $words[1] {}
      set -e words[1]
    else if not string match -q -- '-*' $words[1]
      test "$words[1]" = "$argv[1]"
      return
    end
    set -e words[1]
  end
  test "$argv[1]" = none
end
)",
                     with_value);
  text += fish_options(app, "__varve_command_is none");
  for (const CLI::App* const command : commands_of(app)) {
    text += fmt::format("complete -c varve -f -n '__varve_command_is none' -a {} -d '{}'\n", command->get_name(),
                        escaped(command->get_description(), "'\\"));
    text += fish_options(*command, "__varve_command_is " + command->get_name());
    names += (names.empty() ? "" : " ") + command->get_name();
  }
  return text + "complete -c varve -f -n '__varve_command_is help' -a '" + names + "'\n";
}
}  // namespace

Result<std::string> completion_script(const CLI::App& app, const std::string& shell) {
  if (shell == "bash") return bash_script(app);
  if (shell == "zsh") return zsh_script(app);
  if (shell == "fish") return fish_script(app);
  return Status::invalid_argument("no completion for this shell", shell, "there is one for bash, zsh and fish");
}

}  // namespace varve::cli
