#include "cli/help_text.h"

#include <CLI/CLI.hpp>
#include <sstream>
#include <vector>

namespace varve::cli {

namespace {
constexpr size_t kColumns = 90;
constexpr size_t kNameColumns = 34;         ///< of options and arguments
constexpr size_t kCommandNameColumns = 14;  ///< of commands

/// The words of `text` in lines of at most so many columns.
std::vector<std::string> broken(const std::string& text, size_t columns) {
  std::vector<std::string> lines(1);
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    std::string& line = lines.back();
    if (line.empty()) {
      line = word;
    } else if (line.size() + 1 + word.size() <= columns) {
      line += " " + word;
    } else {
      lines.push_back(word);
    }
  }
  return lines;
}

/// A name with what it means beside it.
void add_entry(std::string& into, const std::string& name, const std::string& meaning,
               size_t name_columns = kNameColumns) {
  std::string line = "  " + name;
  if (line.size() >= name_columns) {
    into += line + "\n";
    line.clear();
  }
  for (const std::string& text : broken(meaning, kColumns - name_columns)) {
    line.resize(name_columns, ' ');
    into += line + text + "\n";
    line.clear();
  }
}

std::string name_of_option(const CLI::Option& option) {
  const std::string value = option.get_type_size() == 0 ? std::string() : option.get_type_name();
  return option.get_name(false, true) + (value.empty() ? "" : " " + value);
}
}  // namespace

std::string argument_name(const CLI::Option& argument) {
  return argument.get_name(true) + (argument.get_expected_max() > 1 ? "..." : "");
}

std::string help_text(const CLI::App& app, const std::string& name) {
  const std::vector<const CLI::App*> commands = app.get_subcommands([](const CLI::App*) { return true; });
  std::string usage = "Usage: " + name + " [OPTIONS]" + (commands.empty() ? "" : " COMMAND");
  std::string arguments, options, list;
  for (const CLI::Option* const option : app.get_options()) {
    if (option->nonpositional()) {
      add_entry(options, name_of_option(*option), option->get_description());
      continue;
    }
    const std::string argument = argument_name(*option);
    usage += option->get_required() ? " " + argument : " [" + argument + "]";
    add_entry(arguments, argument, option->get_description());
  }
  for (const CLI::App* const command : commands)
    add_entry(list, command->get_name(), command->get_description(), kCommandNameColumns);
  std::string text = app.get_description() + "\n\n" + usage + "\n";
  if (!arguments.empty()) text += "\nArguments:\n" + arguments;
  if (!options.empty()) text += "\nOptions:\n" + options;
  if (!list.empty()) text += "\nCommands:\n" + list;
  return text + "\n" + app.get_footer();
}

}  // namespace varve::cli
