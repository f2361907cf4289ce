#pragma once

#include <string>

#include "varve/status.h"

namespace CLI {
class App;
}

namespace varve::cli {

/// A script with which a shell (bash, zsh or fish) completes the commands and options of a program. invalid_argument:
/// there is none for that shell.
Result<std::string> completion_script(const CLI::App& app, const std::string& shell);

}  // namespace varve::cli
