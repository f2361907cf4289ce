#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "runtime/settings.h"

namespace varve {

/// How an option is written, in the options file and in an environment variable.
enum class OptionForm : uint8_t {
  text,      ///< a string; "none" is a string like others
  word,      ///< a string from a list; or a number, where the option says so
  number,    ///< an integer, or a string
  size,      ///< an integer of bytes, or a string such as "512M"
  duration,  ///< a number of seconds, or a string such as "30min"
  rate,      ///< a number of bytes per second, or a string such as "100MB/s"
  list,      ///< a string, or an array of strings, which are joined by ";"
  yes_no,    ///< a boolean; in the environment true, false, yes, no, on, off, 1 or 0
};

/// One option of a run: what it is called, and what its text means. Whatever an option comes from, it comes as text and
/// through `take`, so that a value is checked alike wherever it was said.
struct OptionRule {
  std::string_view name;  ///< of the member of SessionOptions, if it has one, and in the options file
  OptionForm form;
  std::string_view preset;  ///< the default; empty: the program's name
  /// What the program says; none if nothing.
  std::optional<std::string> (*said_by)(const SessionOptions& code);
  /// invalid_argument: `text` makes no sense; the caller adds which option, and where.
  Status (*take)(Settings& settings, const std::string& text);
};

/// All options but options_file, in the order of docs/GUIDE.md.
std::span<const OptionRule> option_rules();
/// Null: there is none of this name.
const OptionRule* find_option(std::string_view name);
/// The option whose name is nearly this one; empty: none is.
std::string_view nearest_option(std::string_view name);
/// "VARVE_EVERY_STEPS" of "every_steps".
std::string environment_name(std::string_view option);

}  // namespace varve
