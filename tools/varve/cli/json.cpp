#include "cli/json.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>

#include "cli/remedies.h"
#include "cli/text.h"
#include "core/step_text.h"

namespace varve::cli {

Result<LogForm> parse_log_form(const std::string& text) {
  if (text == "text") return LogForm::text;
  if (text == "logfmt") return LogForm::logfmt;
  if (text == "json") return LogForm::json;
  return Status::invalid_argument("messages are text, logfmt or json", text);
}

Json to_json(const Status& status) {
  return {{"code", status_code_name(status.code())},
          {"message", status.message()},
          {"subject", status.subject()},
          {"hint", hint_of(status)},
          {"remedy", remedy_name(status.remedy())},
          {"remedy_argument", status.remedy_argument()}};
}

Json step_to_json(uint64_t step) {
  const std::optional<double> time = time_of_step(step);
  return time ? Json(*time) : Json(step);
}

Json to_json(const SetRecord& record) {
  return {{"name", record.name.to_string()},
          {"job", record.name.job},
          {"step", step_to_json(record.name.step)},
          {"number", record.number == 0 ? Json(nullptr) : Json(record.number)},
          {"created_s", record.created_s},
          {"scheme", record.scheme},
          {"policy", record.policy},
          {"chunker", record.chunker},
          {"match", record.match},
          {"rank_count", record.rank_count},
          {"file_count", record.file_count},
          {"raw_bytes", record.raw_bytes},
          {"new_bytes", record.new_bytes},
          {"stored_bytes", record.stored_bytes()},
          {"group_count", record.groups.size()}};
}

Json to_json(const SetRemarks& remarks) {
  return {{"pinned", remarks.pinned}, {"tags", remarks.tags}, {"has_note", remarks.has_note}};
}

Json to_json(const LevelCopy& copy) {
  return {{"level", copy.level}, {"set", copy.name.to_string()}, {"sent_bytes", copy.sent_bytes}};
}

Json to_json(const std::vector<SetName>& names) {
  Json list = Json::array();
  for (const SetName& name : names) list.push_back(name.to_string());
  return list;
}

std::string json_line(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace) + '\n'; }

namespace {
constexpr std::string_view kEraseLine = "\r\x1b[K";
constexpr size_t kUsualColumns = 80;

bool terminal_can_redraw() {
  const char* terminal = std::getenv("TERM");
  return ::isatty(STDERR_FILENO) == 1 && terminal != nullptr && std::string_view(terminal) != "dumb";
}

/// Whether a service manager has connected it so (JOURNAL_STREAM in systemd.exec(5)).
bool standard_error_is_the_journal() {
  const char* const stream = std::getenv("JOURNAL_STREAM");
  struct stat status {};
  if (stream == nullptr || ::fstat(STDERR_FILENO, &status) != 0) return false;
  return stream == fmt::format("{}:{}", status.st_dev, status.st_ino);
}

void write_to_stderr(const std::string& text) { std::fwrite(text.data(), 1, text.size(), stderr); }
}  // namespace

MessageWriter::MessageWriter(bool json, bool progress, LogRule log)
    : json_(json),
      progress_(progress),
      log_(log),
      to_journal_(standard_error_is_the_journal()),
      can_redraw_(!progress && log.form == LogForm::text && terminal_can_redraw()) {}

void MessageWriter::error(const Status& what) { write(LogLevel::error, what); }
void MessageWriter::warning(const Status& what) {
  if (!log_.quiet) write(LogLevel::warning, what);
}
void MessageWriter::event(std::string_view what, const Json& facts, LogLevel level) {
  if (log_.quiet && level == LogLevel::warning) return;
  if (log_.form != LogForm::text) return write(log_line(log_.form, level, what, facts));
  write(level, Status(StatusCode::internal, std::string(what)));  // a code is not shown with it
}

size_t MessageWriter::columns() const {
  winsize size{};
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kUsualColumns;
}

void MessageWriter::show_line(std::string line) {
  const MutexLock lock(mutex_);
  if (line.empty() && line_.empty()) return;
  line_ = std::move(line);
  write_to_stderr(std::string(kEraseLine) + line_);
}

void MessageWriter::progress(const std::string& phase, uint64_t done_bytes, uint64_t total_bytes) {
  const Json told{{"phase", phase}, {"done_bytes", done_bytes}, {"total_bytes", total_bytes}};
  const MutexLock lock(mutex_);
  write_to_stderr(json_line(Json{{"progress", told}}));
}

namespace {
constexpr std::string_view kLevelNames[] = {"error", "warning", "info"};

/// A value as logfmt has it: in quotes where it is more than a word.
std::string logfmt_value(std::string_view value) {
  const bool is_word = !value.empty() && std::none_of(value.begin(), value.end(), [](char c) {
    return static_cast<unsigned char>(c) <= ' ' || c == '"' || c == '=' || c == '\\' || c == 0x7F;
  });
  return is_word ? std::string(value) : Json(value).dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// As in RFC 3339, by UTC.
std::string log_time() {
  const std::time_t now = static_cast<std::time_t>(calendar_seconds());
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts)};
}
}  // namespace

std::string log_line(LogForm form, LogLevel level, std::string_view message, const Json& facts) {
  const std::string_view name = kLevelNames[static_cast<size_t>(level)];
  if (form == LogForm::json) {
    Json line{{"time", log_time()}, {"level", name}, {"message", message}};
    line.update(facts);
    return json_line(line);
  }
  std::string line = fmt::format("time={} level={} msg={}", log_time(), name, logfmt_value(message));
  for (const auto& [key, value] : facts.items()) {
    if (value.is_structured()) continue;
    line += fmt::format(" {}={}", key, value.is_string() ? logfmt_value(value.get<std::string>()) : value.dump());
  }
  return line + '\n';
}

std::string MessageWriter::text_of(LogLevel level, const Status& what) const {
  constexpr std::string_view kPrefixes[] = {"varve: ", "varve: warning: ", "varve: "};
  constexpr std::string_view kPriorities[] = {"<3>", "<4>", "<6>"};
  const auto number = static_cast<size_t>(level);
  const std::string hint = hint_of(what);
  if (log_.form == LogForm::json) return log_line(log_.form, level, what.message(), to_json(what));
  if (log_.form == LogForm::logfmt) {
    Json facts = Json::object();
    if (!what.subject().empty()) facts["subject"] = what.subject();
    facts["code"] = status_code_name(what.code());
    if (!hint.empty()) facts["hint"] = hint;
    return log_line(log_.form, level, what.message(), facts);
  }
  if (json_) {
    const Json said = level == LogLevel::info ? Json{{"message", what.message()}} : to_json(what);
    return json_line(Json{{kLevelNames[number], said}});
  }
  const std::string priority(to_journal_ ? kPriorities[number] : "");
  std::string text = priority + std::string(kPrefixes[number]) + escape_text(what.message());
  if (!what.subject().empty()) text += ": " + quote_name(what.subject());
  text += '\n';
  if (level != LogLevel::info && !hint.empty()) text += priority + "  hint: " + escape_text(hint) + '\n';
  return text;
}

void MessageWriter::write(LogLevel level, const Status& what) { write(text_of(level, what)); }

void MessageWriter::write(std::string text) {
  if (silent_) return;
  const MutexLock lock(mutex_);
  if (!line_.empty()) text = std::string(kEraseLine) + text + line_;
  write_to_stderr(text);
}

}  // namespace varve::cli
