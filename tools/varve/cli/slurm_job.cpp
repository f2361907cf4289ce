#include "cli/slurm_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "format/set_record.h"

namespace varve::cli {

namespace {
struct PipeEnd {
  void operator()(std::FILE* pipe) const { ::pclose(pipe); }
};

Result<std::string> ask_shell(const std::string& command) {
  std::unique_ptr<std::FILE, PipeEnd> pipe(::popen(command.c_str(), "re"));
  if (!pipe) return Status::from_errno(errno, "run", command);
  std::string said;
  char buffer[4096];
  while (const size_t got = std::fread(buffer, 1, sizeof buffer, pipe.get())) said.append(buffer, got);
  if (::pclose(pipe.release()) != 0) return Status::io_error("a command of Slurm has failed", command);
  return said;
}

std::optional<int64_t> whole_number(std::string_view text) {
  int64_t number = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_number = failure == std::errc() && end == text.data() + text.size() && number >= 0;
  return is_number ? std::optional(number) : std::nullopt;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.remove_suffix(1);
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  return text;
}
}  // namespace

std::optional<int64_t> parse_slurm_duration(std::string_view text) {
  int64_t days = 0;
  text = trimmed(text);
  if (const size_t dash = text.find('-'); dash != std::string_view::npos) {
    const std::optional<int64_t> said = whole_number(text.substr(0, dash));
    if (!said) return std::nullopt;
    days = *said;
    text.remove_prefix(dash + 1);
  }
  int64_t seconds = 0;
  for (;;) {
    const size_t colon = text.find(':');
    const std::optional<int64_t> part = whole_number(text.substr(0, colon));
    if (!part || *part > 10'000'000) return std::nullopt;
    seconds = 60 * seconds + *part;
    if (colon == std::string_view::npos) break;
    text.remove_prefix(colon + 1);
  }
  return days * 86'400 + seconds;
}

std::optional<SlurmJob> SlurmJob::find(const Variable& variable, Ask ask) {
  const char* const id = variable("SLURM_JOB_ID");
  // It becomes a word of a command line.
  if (id == nullptr || !whole_number(id)) return std::nullopt;
  const char* const name = variable("SLURM_JOB_NAME");
  const char* const end = variable("SLURM_JOB_END_TIME");
  return SlurmJob(id, name == nullptr ? "" : name, end == nullptr ? std::nullopt : whole_number(end), std::move(ask));
}

std::optional<SlurmJob> SlurmJob::find() {
  return find([](const char* name) { return std::getenv(name); }, ask_shell);  // NOLINT(concurrency-mt-unsafe)
}

std::optional<int64_t> SlurmJob::end_time(int64_t now_s) const {
  if (said_end_) return said_end_;
  const Result<std::string> left = ask_(fmt::format("squeue --noheader --job {} --format %L 2>/dev/null", id_));
  const std::optional<int64_t> seconds = left.ok() ? parse_slurm_duration(*left) : std::nullopt;
  return seconds ? std::optional(now_s + *seconds) : std::nullopt;
}

bool SlurmJob::is_requeued_by(int exit_code) const {
  const Result<std::string> config = ask_("scontrol show config 2>/dev/null");
  if (!config.ok()) return false;
  size_t at = config->find("\nRequeueExit ");
  if (at == std::string::npos) return false;
  at = config->find('=', at);
  const size_t end = config->find('\n', at);
  std::string_view codes = std::string_view(*config).substr(at + 1, end - at - 1);
  while (!codes.empty()) {
    const size_t comma = codes.find(',');
    const std::string_view range = trimmed(codes.substr(0, comma));
    const size_t dash = range.find('-');
    const std::optional<int64_t> first = whole_number(range.substr(0, dash));
    const std::optional<int64_t> last = dash == std::string_view::npos ? first : whole_number(range.substr(dash + 1));
    if (first && last && *first <= exit_code && exit_code <= *last) return true;
    if (comma == std::string_view::npos) break;
    codes.remove_prefix(comma + 1);
  }
  return false;
}

Status SlurmJob::requeue() const {
  VARVE_ASSIGN(const std::string job, ask_(fmt::format("scontrol --oneliner show job {} 2>/dev/null", id_)));
  if (job.find("JobState=RUNNING") == std::string::npos)
    return Status::busy("the job runs no more, and Slurm has decided what becomes of it", id_);
  return ask_(fmt::format("scontrol requeue {} 2>&1", id_)).status();
}

}  // namespace varve::cli
