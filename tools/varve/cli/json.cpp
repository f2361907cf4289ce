#include "cli/json.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "cli/remedies.h"
#include "cli/text.h"
#include "core/step_text.h"

namespace varve::cli {

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

void write_to_stderr(const std::string& text) { std::fwrite(text.data(), 1, text.size(), stderr); }
}  // namespace

MessageWriter::MessageWriter(bool json, bool progress)
    : json_(json), progress_(progress), can_redraw_(!progress && terminal_can_redraw()) {}

void MessageWriter::error(const Status& what) { write("error", "varve: ", what); }
void MessageWriter::warning(const Status& what) { write("warning", "varve: warning: ", what); }

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

void MessageWriter::write(std::string_view kind, std::string_view prefix, const Status& what) {
  if (silent_) return;
  std::string text;
  if (json_) {
    text = json_line(Json{{kind, to_json(what)}});
  } else {
    text = std::string(prefix) + escape_text(what.message());
    if (!what.subject().empty()) text += ": " + quote_name(what.subject());
    text += '\n';
    if (const std::string hint = hint_of(what); !hint.empty()) text += "  hint: " + escape_text(hint) + '\n';
  }
  const MutexLock lock(mutex_);
  if (!line_.empty()) text = std::string(kEraseLine) + text + line_;
  write_to_stderr(text);
}

}  // namespace varve::cli
