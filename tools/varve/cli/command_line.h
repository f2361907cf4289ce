#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/session.h"
#include "varve/status.h"

namespace varve::cli {

/// What a command line asks for: that `command` is run, or, if it is null, that `text` (help or version) is printed.
struct ParsedCommandLine {
  Command* command = nullptr;
  std::string text;
};

/// Parses the program's arguments without its name; what the commands declared and `common` are filled in.
/// invalid_argument: they make no sense.
Result<ParsedCommandLine> parse_command_line(const std::vector<std::string>& arguments,
                                             const std::vector<std::unique_ptr<Command>>& commands,
                                             CommonOptions& common);

}  // namespace varve::cli
