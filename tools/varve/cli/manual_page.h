#pragma once

#include <string>

namespace CLI {
class App;
}

namespace varve::cli {

/// What help_text() says, as a manual page of section 1 (man(7)), for a program or a command that is called as `name`
/// ("varve save"). Without a date, so that it is the same wherever it is made.
std::string manual_page(const CLI::App& app, const std::string& name);

}  // namespace varve::cli
