#include "store/job_lease.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <ctime>
#include <set>
#include <span>

#include "core/patience.h"
#include "core/process.h"
#include "store/commit.h"

namespace varve {

namespace {
constexpr uint64_t kTextBytesMax = 4096;
constexpr size_t kBegunRunsMax = 100, kBegunBytesMax = 8192;
constexpr std::string_view kFirstLine = "varve run 1\n";
/// Between looks whether a holder shows that it lives.
constexpr double kLookSeconds = 0.5;
/// Runs that are faster than this one, one after the other.
constexpr int kTriesMax = 100;

std::string lease_path(const Store& store, const std::string& job) {
  return join_path(store.runs_path(), job + ".lease");
}

ByteVector text_of(const LeaseHolder& holder) {
  std::string text =
      fmt::format("{}run {}\nhost {}\nboot {}\npid_namespace {}\nstart_ticks {}\nprocess {}\nstarted {}\n", kFirstLine,
                  holder.run.hex(), holder.host, holder.process.boot.hex(), holder.process.pid_namespace,
                  holder.process.start_ticks, holder.process.pid, holder.started_s);
  if (holder.taken_from != UniqueId()) text += fmt::format("taken_from {}\n", holder.taken_from.hex());
  if (holder.has_ended) text += "ended 1\n";
  const ByteSpan bytes = as_bytes(text);
  return {bytes.begin(), bytes.end()};
}

/// What follows `name` and a blank on a line of its own.
std::optional<std::string_view> field(std::string_view text, std::string_view name) {
  const std::string start = fmt::format("\n{} ", name);
  const size_t at = text.find(start);
  if (at == std::string_view::npos) return std::nullopt;
  const size_t begin = at + start.size(), end = text.find('\n', begin);
  if (end == std::string_view::npos) return std::nullopt;
  return text.substr(begin, end - begin);
}

template <class Number>
bool take_number(std::string_view text, std::string_view name, Number& into) {
  const std::optional<std::string_view> said = field(text, name);
  if (!said) return false;
  const auto [end, failure] = std::from_chars(said->data(), said->data() + said->size(), into);
  return failure == std::errc() && end == said->data() + said->size();
}

bool take_id(std::string_view text, std::string_view name, UniqueId& into) {
  const std::optional<std::string_view> said = field(text, name);
  const Result<UniqueId> id = said ? UniqueId::parse(*said) : Status::corrupt("an id is missing");
  if (id.ok()) into = *id;
  return id.ok();
}

std::optional<LeaseHolder> parse_holder(std::string_view text) {
  LeaseHolder holder;
  const std::optional<std::string_view> host = field(text, "host");
  const bool whole = text.starts_with(kFirstLine) && host && take_id(text, "run", holder.run) &&
                     take_id(text, "boot", holder.process.boot) &&
                     take_number(text, "pid_namespace", holder.process.pid_namespace) &&
                     take_number(text, "start_ticks", holder.process.start_ticks) &&
                     take_number(text, "process", holder.process.pid) && take_number(text, "started", holder.started_s);
  if (!whole) return std::nullopt;
  holder.host = *host;
  holder.has_ended = field(text, "ended").has_value();
  if (field(text, "taken_from") && !take_id(text, "taken_from", holder.taken_from)) return std::nullopt;
  return holder;
}

/// The runs of this process that hold leases, or try to.
class RunsHere {
 public:
  void add(const UniqueId& run) {
    const MutexLock lock(mutex_);
    runs_.insert(run);
  }
  void remove(const UniqueId& run) {
    const MutexLock lock(mutex_);
    runs_.erase(run);
  }
  bool has(const UniqueId& run) {
    const MutexLock lock(mutex_);
    return runs_.contains(run);
  }

 private:
  Mutex mutex_;
  std::set<UniqueId> runs_ VARVE_GUARDED_BY(mutex_);
};

RunsHere& runs_here() {
  // Never destroyed: a run may end in a destructor of the program's own statics, which come later.
  static auto* const runs = new RunsHere;
  return *runs;
}

/// Of a process of this machine; another's numbers mean nothing here.
Liveness liveness_of(const std::optional<LeaseHolder>& holder, const Result<ProcessIdentity>& own) {
  if (!holder || !own.ok() || holder->process.boot != own->boot) return Liveness::unknown;
  // A run of this very process has ended, and could not give its lease back.
  if (holder->process == *own && !runs_here().has(holder->run)) return Liveness::dead;
  return liveness(holder->process);
}

/// Whether the run is known to be over, without waiting for a sign of life.
bool is_over(const std::optional<LeaseHolder>& holder, const std::vector<UniqueId>& ended) {
  if (holder && (holder->has_ended || std::count(ended.begin(), ended.end(), holder->run) > 0)) return true;
  return liveness_of(holder, ProcessIdentity::own()) == Liveness::dead;
}

Status taken_over(const std::optional<LeaseHolder>& by, const std::string& job) {
  return Status::busy(fmt::format("another run has taken this job over, and this one saves nothing any more: {}",
                                  by ? by->to_string() : "one that cannot be told"),
                      job);
}
}  // namespace

std::string LeaseHolder::to_string() const {
  constexpr int64_t kYear3000 = 32'503'680'000;
  const auto started = static_cast<std::time_t>(std::clamp(started_s, int64_t{0}, kYear3000));
  return fmt::format("process {} on {}, started {:%Y-%m-%d %H:%M:%S} UTC", process.pid, host, fmt::gmtime(started));
}

JobLease::JobLease(const Store& store, Terms terms, Clock& clock)
    : store_(store), terms_(std::move(terms)), clock_(clock), path_(lease_path(store, terms_.job)) {
  runs_here().add(terms_.run);
}

Result<std::unique_ptr<JobLease>> JobLease::acquire(const Store& store, Terms terms, Clock& clock) {
  std::unique_ptr<JobLease> lease(new JobLease(store, std::move(terms), clock));
  LeaseHolder& own = lease->own_;
  own.run = lease->terms_.run;
  own.host = host_name();
  VARVE_ASSIGN(own.process, ProcessIdentity::own());
  own.started_s = calendar_seconds();
  lease->text_ = text_of(own);
  VARVE_TRY(make_folder_durably(store.backend(), store.runs_path()));
  VARVE_TRY(lease->take());
  lease->held_ = true;
  {
    const MutexLock lock(lease->mutex_);
    lease->confirmed_seconds_ = lease->tried_seconds_ = clock.seconds();
  }
  VARVE_ASSIGN(lease->heart_, start_thread([raw = lease.get()] { raw->beat(); }));
  return lease;
}

JobLease::~JobLease() {
  release().ignore("a lease that nobody touches is taken by the next run");
  runs_here().remove(terms_.run);
}

Result<JobLease::Seen> JobLease::look() const {
  Seen seen;
  VARVE_ASSIGN(seen.text, store_.backend().read_record(path_, kTextBytesMax));
  VARVE_ASSIGN(const FileStatus status, store_.backend().status(path_));
  seen.modified_ns = status.modified_ns;
  seen.holder = parse_holder(as_text(seen.text));
  return seen;
}

/// Of several runs that come at once, one gets it: the names of files decide.
Status JobLease::take() {
  for (int tries = 0; tries < kTriesMax; ++tries) {
    const Status named = store_.backend().records().publish(path_, text_);
    if (named.ok()) return {};
    const bool is_taken = named.code() == StatusCode::already_exists;
    const Result<Seen> seen = Patience(clock_)([&] { return look(); }, [] {});
    const bool is_own = seen.ok() && seen->holder && seen->holder->run == terms_.run;
    // It may be there after all, though it could not be made durable.
    if (!is_taken && (!seen.ok() || is_own)) return named;
    // By a try before, whose answer was lost.
    if (is_own) return {};
    if (seen.status().code() == StatusCode::not_found) continue;
    VARVE_TRY(seen.status());
    const bool has_ended = is_over(seen->holder, terms_.ended);
    if (!terms_.take_over && !has_ended) {
      VARVE_ASSIGN(const bool dead, await_death(*seen));
      if (!dead) continue;
    }
    // A full disk refuses before anybody has looked at the name. A dead run's lease goes all the same, as this run
    // could not save beside it once there is room; one that a run would miss which may yet live stays.
    if (!is_taken && !(has_ended && seen->holder->taken_from == UniqueId())) return named;
    // A run that was faster may have taken it meanwhile.
    VARVE_TRY(store_.backend().records().remove_unchanged(path_, seen->text));
    if (!is_taken) return named;
    if (seen->holder) own_.taken_from = has_ended ? seen->holder->taken_from : seen->holder->run;
    text_ = text_of(own_);
  }
  return Status::busy("many runs of this job are being started", terms_.job);
}

/// How long ago the last sign of life was, by what the store stamps files with now.
Result<double> JobLease::silence_of(const Seen& seen) const {
  VARVE_ASSIGN(const int64_t now_ns, store_.backend().records().now());
  return static_cast<double>(now_ns - seen.modified_ns) * 1e-9;
}

Result<bool> JobLease::await_death(const Seen& first) {
  const Liveness known = liveness_of(first.holder, ProcessIdentity::own());
  if (known == Liveness::dead) return true;
  // A store that is full may not tell what time it is there.
  const Result<double> silence = silence_of(first);
  if (silence.ok() && *silence >= terms_.silence_seconds) return true;
  if (known == Liveness::alive) return running_already(first);
  if (terms_.notice) {
    terms_.notice(
        Status::busy(fmt::format("waiting for up to {:.0f} s to see whether another run of this job still lives: {}",
                                 terms_.silence_seconds,
                                 first.holder ? first.holder->to_string() : "its lease cannot be understood"),
                     terms_.job));
  }
  // By the own clock, too: the store's may be set back.
  const double begin = clock_.seconds();
  while (clock_.seconds() - begin < terms_.silence_seconds) {
    clock_.sleep(kLookSeconds);
    const Result<Seen> now = look();
    if (now.status().code() == StatusCode::not_found) return false;  // it has ended, and left it free
    VARVE_TRY(now.status());
    if (now->text != first.text) return false;  // another one, which may live or not
    if (now->modified_ns != first.modified_ns) return running_already(first);
    const Result<double> silent = silence_of(first);
    if (silent.ok() && *silent >= terms_.silence_seconds) return true;
  }
  return true;
}

Status JobLease::running_already(const Seen& seen) const {
  return Status::busy(
      fmt::format("the job is running already: {}", seen.holder ? seen.holder->to_string() : "nobody can tell where"),
      terms_.job, Remedy::take_job_over);
}

// Signs of life

void JobLease::beat() {
  MutexLock lock(mutex_);
  const std::chrono::duration<double> pause(terms_.beat_seconds);
  for (;;) {
    wanted_.wait_for(mutex_, pause, [this]() VARVE_REQUIRES(mutex_) { return ending_ || look_wanted_; });
    if (ending_) return;
    look_wanted_ = false;
    if (lost_.ok()) {
      lock.unlock();
      std::optional<LeaseHolder> other;
      const Result<bool> own = beat_once(other);
      lock.lock();
      tried_seconds_ = clock_.seconds();
      if (own.ok() && *own) confirmed_seconds_ = tried_seconds_;
      if (own.ok() && !*own) lost_ = taken_over(other, terms_.job);
    }
    ++beat_count_;
    beaten_.notify_all();
  }
}

Result<bool> JobLease::beat_once(std::optional<LeaseHolder>& other) {
  Result<Seen> seen = look();
  if (seen.status().code() == StatusCode::not_found) {
    // Somebody has removed it, or is about to put it back.
    store_.backend().records().publish(path_, text_).ignore("the next sign of life makes it anew");
    seen = look();
  }
  VARVE_TRY(seen.status());
  other = seen->holder;
  if (seen->text != text_) return false;
  VARVE_TRY(store_.backend().records().touch(path_));
  return true;
}

Status JobLease::check() {
  const MutexLock lock(mutex_);
  const double now = clock_.seconds(), long_ago = terms_.silence_seconds / 2;
  // If it was tried a moment ago, we were not paused: the store cannot be reached, and nobody waits for that.
  if (!lost_.ok() || now - confirmed_seconds_ < long_ago || now - tried_seconds_ < long_ago) return lost_;
  if (waited_count_ == beat_count_) return lost_;
  const uint64_t seen = beat_count_;
  look_wanted_ = true;
  wanted_.notify_all();
  const auto beaten = [&]() VARVE_REQUIRES(mutex_) { return beat_count_ != seen; };
  if (!beaten_.wait_for(mutex_, std::chrono::seconds(1), beaten)) waited_count_ = seen;
  return lost_;
}

Status JobLease::release() {
  bool reached = false;
  {
    const MutexLock lock(mutex_);
    ending_ = true;
    reached = confirmed_seconds_ == tried_seconds_;
  }
  wanted_.notify_all();
  if (heart_.joinable()) heart_.join();
  // One that stays behind is that of a process that has ended, or has no such run any more.
  if (!held_ || !reached) return {};
  held_ = false;
  const Result<Seen> seen = look();
  if (!seen.ok() || seen->text != text_) return {};
  VARVE_TRY(store_.backend().records().remove_unchanged(path_, text_));
  if (own_.taken_from == UniqueId()) return {};
  own_.has_ended = true;
  return store_.backend().records().publish(path_, text_of(own_));
}

namespace {
constexpr std::string_view kBegunFirstLine = "varve begun 1\n";
constexpr std::string_view kBegunLine = "run ", kBegunFirst = " first ";

std::string begun_path(const Store& store, const std::string& job) {
  return join_path(store.runs_path(), job + ".begun");
}

std::string text_of(std::span<const JobBeginning> beginnings) {
  std::string text(kBegunFirstLine);
  for (const JobBeginning& one : beginnings)
    text += fmt::format("{}{}{}{}\n", kBegunLine, one.run.hex(), kBegunFirst, one.first_number);
  return text;
}

std::optional<JobBeginning> parse_beginning(std::string_view line) {
  if (!line.starts_with(kBegunLine)) return std::nullopt;
  line.remove_prefix(kBegunLine.size());
  JobBeginning beginning;
  const size_t first = line.find(kBegunFirst);  // earlier versions do not say it
  const Result<UniqueId> run = UniqueId::parse(line.substr(0, first));
  if (!run.ok()) return std::nullopt;
  beginning.run = *run;
  if (first == std::string_view::npos) return beginning;
  const std::string_view digits = line.substr(first + kBegunFirst.size());
  const auto [end, failure] = std::from_chars(digits.data(), digits.data() + digits.size(), beginning.first_number);
  if (failure != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return beginning;
}
}  // namespace

std::vector<JobBeginning> read_beginnings(const Store& store, const std::string& job) {
  const Result<ByteVector> read = store.backend().read_record(begun_path(store, job), kBegunBytesMax);
  if (!read.ok()) return {};
  std::string_view text = as_text(*read);
  if (!text.starts_with(kBegunFirstLine)) return {};
  text.remove_prefix(kBegunFirstLine.size());
  std::vector<JobBeginning> beginnings;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    if (end == std::string_view::npos) return {};
    const std::optional<JobBeginning> beginning = parse_beginning(text.substr(0, end));
    if (!beginning) return {};
    beginnings.push_back(*beginning);
    text.remove_prefix(end + 1);
  }
  return beginnings;
}

Status write_beginnings(const Store& store, const std::string& job, const std::vector<JobBeginning>& beginnings) {
  VARVE_TRY(make_folder_durably(store.backend(), store.runs_path()));
  // The oldest have been replaced by what came after them, most likely.
  const size_t kept = std::min(beginnings.size(), kBegunRunsMax);
  const std::string text = text_of(std::span(beginnings).last(kept));
  return store.backend().records().replace(begun_path(store, job), as_bytes(text));
}

Result<std::optional<LeaseHolder>> living_lease_holder(const Store& store, const std::string& job,
                                                       const std::vector<UniqueId>& ended) {
  const std::string path = lease_path(store, job);
  const Result<ByteVector> text = store.backend().read_record(path, kTextBytesMax);
  if (text.status().code() == StatusCode::not_found) return std::optional<LeaseHolder>();
  VARVE_TRY(text.status());
  std::optional<LeaseHolder> holder = parse_holder(as_text(*text));
  if (is_over(holder, ended)) return std::optional<LeaseHolder>();
  const Result<FileStatus> status = store.backend().status(path);
  if (status.status().code() == StatusCode::not_found) return std::optional<LeaseHolder>();
  VARVE_TRY(status.status());
  VARVE_ASSIGN(const int64_t now_ns, store.backend().records().now());
  if (is_silent(status->modified_ns, now_ns, kRunSilenceSeconds)) return std::optional<LeaseHolder>();
  return holder ? holder : std::optional(LeaseHolder());
}

Status check_job_untaken(const Store& store, const std::string& job, const UniqueId& run) {
  const Result<std::optional<LeaseHolder>> living = living_lease_holder(store, job, {});
  return living.ok() && *living && (*living)->run != run ? taken_over(*living, job) : Status();
}

Status check_job_lease(const Store& store, const std::string& job, const UniqueId& run) {
  const Result<ByteVector> text = store.backend().read_record(lease_path(store, job), kTextBytesMax);
  if (!text.ok()) return {};
  const std::optional<LeaseHolder> holder = parse_holder(as_text(*text));
  return holder && holder->run != run ? taken_over(holder, job) : Status();
}

}  // namespace varve
