#pragma once

#include <string>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace varve::cli {

/// The help of a program or a command that is called as `name`. The same everywhere: it depends neither on the terminal
/// nor on the environment, nor on the version of CLI11 (docs/COMMANDS.md is made of it). Descriptions are broken into
/// lines here.
std::string help_text(const CLI::App& app, const std::string& name);

/// "SET..." for an argument that may be given several times.
std::string argument_name(const CLI::Option& argument);

}  // namespace varve::cli
