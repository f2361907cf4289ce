#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "core/sync.h"
#include "format/set_record.h"
#include "level/store_level.h"
#include "store/remarks.h"
#include "varve/status.h"

namespace varve::cli {

/// What --json prints. Keys are the names of the engine's fields, in their order; sizes are bytes; a set is "job@step".
/// Stable: keys may be added, but none changes its meaning (docs/GUIDE.md, "JSON").
using Json = nlohmann::ordered_json;

/// {"code", "message", "subject", "hint", "remedy", "remedy_argument"}; subject, hint and argument may be empty.
Json to_json(const Status& status);
/// A time as the decimal number that it is.
Json step_to_json(uint64_t step);
Json to_json(const SetRecord& record);
/// {"pinned", "tags", "has_note"}
Json to_json(const SetRemarks& remarks);
Json to_json(const LevelCopy& copy);
Json to_json(const std::vector<SetName>& names);

/// One line. Bytes of names that are not UTF-8 become U+FFFD; numbers that are not finite become null.
std::string json_line(const Json& json);

/// How messages are written: for people, or for what collects logs.
enum class LogForm : uint8_t { text, logfmt, json };
/// "text", "logfmt" or "json".
Result<LogForm> parse_log_form(const std::string& text);

enum class LogLevel : uint8_t { error, warning, info };
/// A line of a log as programs read it, with its time and its end; `facts` are members of it, in logfmt without those
/// that are objects or arrays. Not for LogForm::text.
std::string log_line(LogForm form, LogLevel level, std::string_view message, const Json& facts = Json::object());

struct LogRule {
  LogForm form = LogForm::text;
  bool quiet = false;    ///< no warnings
  bool verbose = false;  ///< what is being done, too
};

/// The one writer to standard error: errors and warnings, and the line at the terminal's bottom that shows progress.
/// Thread-safe.
class MessageWriter {
 public:
  /// With `json`, one object a line, {"error": {...}} or {"warning": {...}}, unless `log` has another form.
  /// `progress`: {"progress": {...}} as well.
  MessageWriter(bool json, bool progress, LogRule log);

  /// "varve: message: subject", then the hint on a line of its own. What the journal reads has the priority before each
  /// line (sd-daemon(3)).
  void error(const Status& what);
  void warning(const Status& what);
  /// A line of a log; `facts` go with it where programs read it (log_line()).
  void event(std::string_view what, const Json& facts = Json::object(), LogLevel level = LogLevel::info);
  bool is_verbose() const { return log_.verbose; }
  LogForm form() const { return log_.form; }

  /// Of several processes that say the same, only one does. Before begin_progress().
  void be_silent(bool silent) { silent_ = silent; }

  /// Whether standard error is a terminal that can redraw a line.
  bool can_redraw() const { return can_redraw_ && !silent_; }
  /// Whether a program wants to know how far it is.
  bool tells_progress() const { return json_ && progress_ && !silent_; }
  void progress(const std::string& phase, uint64_t done_bytes, uint64_t total_bytes);
  /// Columns of the terminal.
  size_t columns() const;
  /// Replaces the line at the bottom; empty takes it away. Only where can_redraw().
  void show_line(std::string line);

 private:
  void write(LogLevel level, const Status& what);
  void write(std::string text);
  std::string text_of(LogLevel level, const Status& what) const;

  const bool json_, progress_;
  const LogRule log_;
  const bool to_journal_;
  const bool can_redraw_;
  bool silent_ = false;
  Mutex mutex_;  ///< orders what is written
  std::string line_ VARVE_GUARDED_BY(mutex_);
};

}  // namespace varve::cli
