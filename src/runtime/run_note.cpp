#include "runtime/run_note.h"

#include <fmt/format.h>

#include "core/bytes.h"
#include "core/quantity.h"

namespace varve {

namespace {
constexpr std::string_view kNoteFirstLine = "varve note 1";
constexpr uint64_t kNoteBytesMax = 64_KiB;

/// A line's value ends with the line.
std::string in_one_line(std::string text) {
  for (char& letter : text) {
    if (letter == '\n') letter = ' ';
  }
  return text;
}

Status take_line(RunNote& note, std::string_view name, std::string_view value) {
  if (name == "place") note.place = value;
  if (name == "stopped_by") note.stopped_by = value;
  if (name == "ended") note.ended = true;
  if (name != "restarted_from" && name != "last_step") return {};
  const Result<uint64_t> step = parse_number(std::string(value), UINT64_MAX);
  if (!step.ok()) return Status::corrupt("a step that is no number", std::string(value));
  (name == "last_step" ? note.last_step : note.restarted_from) = *step;
  return {};
}
}  // namespace

std::string RunNote::text() const {
  std::string text = fmt::format("{}\n", kNoteFirstLine);
  if (restarted_from) text += fmt::format("restarted_from {}\n", *restarted_from);
  if (last_step) text += fmt::format("last_step {}\n", *last_step);
  if (!place.empty()) text += fmt::format("place {}\n", in_one_line(place));
  if (!stopped_by.empty()) text += fmt::format("stopped_by {}\n", in_one_line(stopped_by));
  if (ended) text += "ended yes\n";
  return text;
}

Result<RunNote> RunNote::parse(std::string_view text) {
  RunNote note;
  bool first = true;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    if (end == std::string_view::npos) return Status::corrupt("a line of a run's note has no end");
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end + 1);
    if (first && line != kNoteFirstLine) return Status::corrupt("it is no note of a run");
    first = false;
    const size_t blank = line.find(' ');
    if (blank != std::string_view::npos) VARVE_TRY(take_line(note, line.substr(0, blank), line.substr(blank + 1)));
  }
  if (first) return Status::corrupt("a run's note is empty");
  return note;
}

Status write_run_note(FileSystem& files, const std::string& path, const RunNote& note) {
  return write_file_durably(files, path, as_bytes(note.text()));
}

Result<RunNote> read_run_note(FileSystem& files, const std::string& path) {
  VARVE_ASSIGN(const ByteVector text, read_file(files, path, kNoteBytesMax));
  Result<RunNote> note = RunNote::parse(as_text(text));
  return note.ok() ? note : note.status().with_context(path);
}

}  // namespace varve
