#include "cli/manual_page.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <sstream>
#include <vector>

#include "cli/help_text.h"
#include "varve/version.h"

namespace varve::cli {

namespace {
/// So that no character of `text` means anything to the formatter.
std::string plain(const std::string& text) {
  std::string escaped;
  for (const char character : text) {
    if (character == '\\') {
      escaped += "\\e";
    } else if (character == '-') {
      escaped += "\\-";
    } else if (character == '\'') {
      escaped += "\\(aq";
    } else if (character == '`') {
      escaped += "\\(ga";
    } else if (character == '^') {
      escaped += "\\(ha";
    } else if (character == '~') {
      escaped += "\\(ti";
    } else {
      escaped += character;
    }
  }
  return escaped.empty() || escaped[0] != '.' ? escaped : "\\&" + escaped;
}

std::string bold(const std::string& text) { return "\\fB" + plain(text) + "\\fR"; }

/// The title of a page: "varve save" is varve-save.
std::string page_name(std::string name) {
  std::replace(name.begin(), name.end(), ' ', '-');
  return name;
}

std::string upper(std::string text) {
  for (char& character : text) {
    if (character >= 'a' && character <= 'z') character = static_cast<char>(character - 'a' + 'A');
  }
  return text;
}

std::string entry(const std::string& name, const std::string& meaning) {
  return ".TP\n" + name + "\n" + plain(meaning) + "\n";
}

/// The parts of a footer: a line at the margin is a title, and what is indented below it stays as it is.
std::string footer_sections(const std::string& footer) {
  std::istringstream lines(footer);
  std::string text;
  bool open = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.empty()) continue;
    if (line[0] != ' ') {
      if (open) text += ".EE\n";
      if (line.back() == ':') line.pop_back();
      text += ".SH " + upper(plain(line)) + "\n.EX\n";
      open = true;
    } else {
      text += plain(line.substr(std::min<size_t>(2, line.size()))) + "\n";
    }
  }
  return open ? text + ".EE\n" : text;
}
}  // namespace

std::string manual_page(const CLI::App& app, const std::string& name) {
  const std::vector<const CLI::App*> commands = app.get_subcommands([](const CLI::App*) { return true; });
  std::string synopsis = bold(name) + " [OPTIONS]" + (commands.empty() ? "" : " COMMAND");
  std::string arguments, options, list, others;
  for (const CLI::Option* const option : app.get_options()) {
    if (option->nonpositional()) {
      const std::string value = option->get_type_size() == 0 ? std::string() : option->get_type_name();
      options += entry(bold(option->get_name(false, true)) + (value.empty() ? "" : " " + plain(value)),
                       option->get_description());
      continue;
    }
    const std::string argument = argument_name(*option);
    synopsis += option->get_required() ? " " + plain(argument) : " [" + plain(argument) + "]";
    arguments += entry(plain(argument), option->get_description());
  }
  for (const CLI::App* const command : commands) {
    list += entry(bold(command->get_name()), command->get_description());
    others += (others.empty() ? "" : ",\n") + bold(page_name(name + " " + command->get_name())) + "(1)";
  }
  // The program describes itself in sentences, a command in a line.
  const std::string summary = commands.empty() ? app.get_description() : "keep checkpoints of parallel programs";
  std::string page =
      fmt::format(".TH {} 1 \"\" \"varve {}\" \"Varve\"\n", upper(plain(page_name(name))), version_text());
  page += ".SH NAME\n" + plain(page_name(name)) + " \\- " + plain(summary) + "\n";
  page += ".SH SYNOPSIS\n" + synopsis + "\n";
  if (!commands.empty()) page += ".SH DESCRIPTION\n" + plain(app.get_description()) + "\n";
  if (!arguments.empty()) page += ".SH ARGUMENTS\n" + arguments;
  if (!options.empty()) page += ".SH OPTIONS\n" + options;
  if (!list.empty()) page += ".SH COMMANDS\n" + list;
  page += footer_sections(app.get_footer());
  return page + ".SH SEE ALSO\n" + (commands.empty() ? bold("varve") + "(1)" : others) + "\n";
}

}  // namespace varve::cli
