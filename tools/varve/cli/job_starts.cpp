#include "cli/job_starts.h"

#include <fmt/format.h>

#include "core/quantity.h"

namespace varve::cli {

namespace {
constexpr std::string_view kStartsFirstLine = "varve starts 1";
constexpr uint64_t kStartsBytesMax = 4096;

Status take_starts_line(JobStarts& starts, std::string_view name, std::string_view value) {
  if (name == "under_way") starts.is_under_way = true;
  if (name == "asked") starts.was_asked = true;
  if (name != "starts" && name != "crashes" && name != "step") return {};
  const Result<uint64_t> number = parse_number(std::string(value), UINT64_MAX);
  if (!number.ok()) return Status::corrupt("a count that is no number", std::string(value));
  if (name == "starts") starts.starts = *number;
  if (name == "crashes") starts.crashes = *number;
  if (name == "step") starts.step = *number;
  return {};
}
}  // namespace

std::string JobStarts::text() const {
  std::string text = fmt::format("{}\nstarts {}\ncrashes {}\n", kStartsFirstLine, starts, crashes);
  if (step) text += fmt::format("step {}\n", *step);
  if (is_under_way) text += "under_way yes\n";
  if (was_asked) text += "asked yes\n";
  return text;
}

Result<JobStarts> JobStarts::parse(std::string_view text) {
  JobStarts starts;
  bool first = true;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    if (end == std::string_view::npos) return Status::corrupt("a line has no end");
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end + 1);
    if (first && line != kStartsFirstLine) return Status::corrupt("it does not say how often a job was started");
    first = false;
    const size_t blank = line.find(' ');
    if (blank != std::string_view::npos)
      VARVE_TRY(take_starts_line(starts, line.substr(0, blank), line.substr(blank + 1)));
  }
  if (first) return Status::corrupt("it is empty");
  return starts;
}

void JobStarts::note_crash(std::optional<uint64_t> restarted_from) {
  const bool is_same = crashes > 0 && step == restarted_from;
  crashes = is_same ? crashes + 1 : 1;
  step = restarted_from;
  is_under_way = was_asked = false;
}

void JobStarts::note_good_end() {
  crashes = 0;
  step.reset();
  is_under_way = was_asked = false;
}

void JobStarts::note_start(const std::optional<RunNote>& note) {
  if (is_under_way && !was_asked) note_crash(note ? note->restarted_from : std::nullopt);
  if (is_under_way && was_asked) note_good_end();
  ++starts;
  is_under_way = true;
  was_asked = false;
}

Result<JobStarts> read_job_starts(FileSystem& files, const std::string& path) {
  const Result<ByteVector> text = read_file(files, path, kStartsBytesMax);
  if (text.status().code() == StatusCode::not_found) return JobStarts();
  VARVE_TRY(text.status());
  Result<JobStarts> starts = JobStarts::parse(as_text(*text));
  if (starts.ok()) return starts;
  return Status::corrupt(
      fmt::format("the file that counts the job's starts makes no sense: {}", starts.status().message()), path,
      "`varve run --reset` counts anew");
}

Status write_job_starts(FileSystem& files, const std::string& path, const JobStarts& starts) {
  return write_file_durably(files, path, as_bytes(starts.text()));
}

}  // namespace varve::cli
