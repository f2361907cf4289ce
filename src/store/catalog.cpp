#include "store/catalog.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <utility>

#include "backend/put_aside.h"
#include "core/sync.h"
#include "core/thread_pool.h"
#include "store/commit.h"
#include "store/remarks.h"

namespace varve {

namespace {
/// Of "STEP.set", where every step is a number as it is.
std::optional<uint64_t> step_of_record(std::string_view file_name) {
  constexpr std::string_view kSuffix = ".set";
  if (!file_name.ends_with(kSuffix)) return std::nullopt;
  const std::string_view digits = file_name.substr(0, file_name.size() - kSuffix.size());
  uint64_t step = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  const bool canonical = error == std::errc() && end == digits.data() + digits.size() && std::to_string(step) == digits;
  return canonical ? std::optional(step) : std::nullopt;
}

Status no_such_set(const SetName& name) {
  return Status::not_found("no such set", name.to_string(), Remedy::list_sets);
}
}  // namespace

Result<std::vector<std::string>> Catalog::jobs() const {
  VARVE_ASSIGN(std::vector<DirectoryEntry> entries, store_.backend().list(store_.sets_path()));
  std::vector<std::string> names;
  for (DirectoryEntry& entry : entries) {
    if (entry.is_directory && check_job_name(entry.name).ok()) names.push_back(std::move(entry.name));
  }
  std::sort(names.begin(), names.end());
  return names;
}

namespace {
/// What `list` gives of a folder, with what was hidden there. To who may not write there that stays hidden until
/// somebody has looked who may.
template <class List, class NameOf>
auto list_unhidden(Backend& backend, const std::string& folder, const List& list, const NameOf& name_of) {
  auto listed = list();
  const auto is_aside = [&](const auto& entry) { return PutAside::parse(name_of(entry)).has_value(); };
  if (!listed.ok() || std::none_of(listed->begin(), listed->end(), is_aside)) return listed;
  backend.records().unhide(folder, /*finish=*/false).ignore("they stay hidden");
  return list();
}
}  // namespace

/// Empty if there is no such job.
Result<std::vector<DirectoryEntry>> Catalog::entries_of(const std::string& job) const {
  Backend& backend = store_.backend();
  const std::string folder = job_path(job);
  auto entries = list_unhidden(
      backend, folder, [&] { return backend.list(folder); }, [](const DirectoryEntry& entry) { return entry.name; });
  if (entries.status().code() == StatusCode::not_found) return std::vector<DirectoryEntry>();
  return entries;
}

Result<std::vector<uint64_t>> Catalog::steps(const std::string& job) const {
  VARVE_TRY(check_job_name(job));
  VARVE_ASSIGN(const std::vector<DirectoryEntry> entries, entries_of(job));
  std::vector<uint64_t> steps;
  for (const DirectoryEntry& entry : entries) {
    const std::optional<uint64_t> step = entry.is_directory ? std::nullopt : step_of_record(entry.name);
    if (step) steps.push_back(*step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

Result<std::vector<uint64_t>> Catalog::steps_by_age(const std::string& job) const {
  VARVE_TRY(check_job_name(job));
  Backend& backend = store_.backend();
  const std::string folder = job_path(job);
  const auto records = list_unhidden(
      backend, folder, [&] { return backend.list_with_status(folder); },
      [](const auto& record) { return record.first; });
  if (records.status().code() == StatusCode::not_found) return std::vector<uint64_t>{};
  VARVE_TRY(records.status());
  std::vector<std::pair<int64_t, uint64_t>> aged;
  for (const auto& [name, status] : *records) {
    const std::optional<uint64_t> step = step_of_record(name);
    if (!step) continue;
    VARVE_TRY(status.status());
    aged.emplace_back(status->modified_ns, *step);
  }
  std::sort(aged.begin(), aged.end());
  std::vector<uint64_t> by_age;
  by_age.reserve(aged.size());
  for (const auto& [modified_ns, step] : aged) by_age.push_back(step);
  return by_age;
}

Result<uint64_t> Catalog::next_number(const std::string& job, Unreadable unreadable) const {
  VARVE_ASSIGN(const std::vector<uint64_t> by_age, steps_by_age(job));
  uint64_t newest = by_age.size(), damaged = 0;
  if (by_age.empty()) return newest + 1;
  // The last one and the highest differ where a run fell back, or the store's files were copied.
  const uint64_t highest = *std::max_element(by_age.begin(), by_age.end());
  bool knows_last = false;
  for (auto step = by_age.rbegin(); step != by_age.rend(); ++step) {
    if (knows_last && *step != highest) continue;
    const Result<SetRecord> record = read({job, *step});
    if (record.status().code() == StatusCode::not_found) continue;  // it was dropped just now
    if (record.status().code() == StatusCode::corrupt || (!record.ok() && unreadable == Unreadable::counts)) {
      ++damaged;
      continue;
    }
    VARVE_TRY(record.status().with_hint("try again; drop the set if its record can never be read"));
    newest = std::max(newest, record->number);
    knows_last = true;
  }
  return newest + damaged + 1;
}

Result<std::vector<SetName>> Catalog::sets() const {
  VARVE_ASSIGN(Listed listed, list());
  if (listed.aside.empty()) return std::move(listed.sets);
  for (const std::string& path : listed.aside)
    store_.backend().records().unhide(parent_path(path), /*finish=*/false).ignore("they stay hidden");
  VARVE_ASSIGN(listed, list());
  return std::move(listed.sets);
}

Result<Catalog::Listed> Catalog::list() const {
  VARVE_ASSIGN(const std::vector<std::string> records, store_.backend().list_in_folders(store_.sets_path()));
  Listed listed;
  for (const std::string& record : records) {
    const std::string job = parent_path(record);
    if (!check_job_name(job).ok()) continue;
    if (const std::optional<uint64_t> step = step_of_record(base_name(record))) listed.sets.push_back({job, *step});
    if (PutAside::parse(record)) listed.aside.push_back(join_path(store_.sets_path(), record));
  }
  std::sort(listed.sets.begin(), listed.sets.end());
  return listed;
}

Result<SetRecord> Catalog::read(const SetName& name) const {
  const Result<ByteVector> raw = store_.backend().read_record(record_path(name), kSetRecordBytesMax);
  if (!raw.ok()) {
    return raw.status().code() == StatusCode::not_found ? no_such_set(name) : raw.status();
  }
  return decode(name, *raw);
}

Result<SetRecord> Catalog::decode(const SetName& name, ByteSpan raw) const {
  const std::string path = record_path(name);
  Result<SetRecord> record = decode_set_record(raw, store_.score());
  if (!record.ok()) {
    return record.status().with_subject(path).with_hint({Remedy::drop_set, name.to_string()});
  }
  if (record->name != name) return Status::corrupt("a set record lies under another set's name", path);
  return record;
}

Result<bool> Catalog::has(const SetName& name) const {
  const Status looked_at = store_.backend().status(record_path(name)).status();
  if (looked_at.code() == StatusCode::not_found) return false;
  VARVE_TRY(looked_at);
  return true;
}

Result<std::optional<SetName>> Catalog::find(const SetName& name) const {
  VARVE_ASSIGN(const bool is_there, has(name));
  if (is_there) return std::optional(name);
  const std::optional<uint64_t> time = time_of_step(name.step) ? std::nullopt : namesake_of_step(name.step);
  if (!time) return std::optional<SetName>();
  const SetName namesake{name.job, *time};
  VARVE_ASSIGN(const bool is_time, has(namesake));
  return is_time ? std::optional(namesake) : std::nullopt;
}

Result<bool> Catalog::has_times(const std::string& job) const {
  VARVE_ASSIGN(const std::vector<uint64_t> job_steps, steps(job));
  return !job_steps.empty() && time_of_step(job_steps.back()).has_value();
}

Status Catalog::check_is_new(const SetName& name, Hint hint) const {
  VARVE_ASSIGN(const bool is_there, has(name));
  return is_there ? Status::already_exists("the set is in the store already", name.to_string(), std::move(hint))
                  : Status();
}

Status Catalog::unless_dropped(const SetName& name, Status status) const {
  if (status.code() != StatusCode::corrupt || read(name).status().code() != StatusCode::not_found) return status;
  return Status::not_found("the set was dropped while it was read", name.to_string());
}

Result<SetName> Catalog::resolve(std::string_view text) const {
  const size_t at = text.rfind('@');
  if (at != std::string_view::npos) {
    const std::string job(text.substr(0, at));
    const std::optional<uint64_t> step = parse_step(text.substr(at + 1));
    if (!step) return resolve_tag(job, text.substr(at + 1));
    SetName name{job, *step};
    VARVE_TRY(check_job_name(name.job));
    VARVE_ASSIGN(std::optional<SetName> there, find(name));
    if (!there) {
      VARVE_TRY(steps(name.job).status());  // which brings back what is hidden
      VARVE_ASSIGN(there, find(name));
    }
    if (there) return *std::move(there);
    return no_such_set(name);
  }
  VARVE_ASSIGN(std::vector<uint64_t> job_steps, steps(std::string(text)));
  if (job_steps.empty()) {
    return Status::not_found("the store has no set of this job", std::string(text), Remedy::list_sets);
  }
  return SetName{std::string(text), job_steps.back()};
}

Result<SetName> Catalog::resolve_tag(const std::string& job, std::string_view tag) const {
  VARVE_TRY(check_job_name(job));
  const std::string text = job + "@" + std::string(tag);
  if (!check_tag(tag).ok()) {
    return Status::invalid_argument("neither a step, nor a time, nor a tag", text,
                                    "write JOB@STEP, or JOB for its newest set");
  }
  VARVE_ASSIGN(const auto remarks, Remarks(store_).all());
  std::optional<SetName> newest;
  for (const auto& [name, said] : remarks) {
    if (name.job != job || !said.tags.contains(tag)) continue;
    VARVE_ASSIGN(const bool is_there, has(name));
    if (is_there) newest = name;
  }
  if (newest) return *std::move(newest);
  return Status::not_found("no set of the job has this tag", text, Remedy::list_sets);
}

Status Catalog::make_durable(const std::string& job) const {
  const Status synced = store_.backend().settle(job_path(job));
  if (synced.code() != StatusCode::not_found) VARVE_TRY(synced);  // its last set was dropped
  return store_.backend().settle(store_.sets_path());
}

Status Catalog::remove(const SetName& name) const {
  VARVE_TRY(check_job_name(name.job));
  VARVE_ASSIGN(const std::unique_ptr<PowerWatch> power, store_.backend().watch_power());
  // Else the next restart of the job would make the set again of what is left of its parts.
  VARVE_TRY(remove_used_parts(store_, &name).status());
  std::vector<SetName> removed;
  VARVE_TRY(remove_all({&name, 1}, removed));
  return removed.empty() ? no_such_set(name) : Status();
}

Result<Catalog::Removal> Catalog::remove_if(const SetName& name, const StillGoes& goes) const {
  VARVE_TRY(check_job_name(name.job));
  VARVE_ASSIGN(const std::unique_ptr<PowerWatch> power, store_.backend().watch_power());
  VARVE_ASSIGN(const auto remarks, Remarks(store_).all());
  const auto said = remarks.find(name);
  VARVE_ASSIGN(const Removal removal, remove_record(name, said == remarks.end() ? nullptr : &said->second, goes));
  if (removal != Removal::removed) return removal;
  std::vector<SetName> removed;
  VARVE_TRY(forget_gone(remarks, {&name, 1}, removed));
  return removal;
}

Status Catalog::remove_all(std::span<const SetName> names, std::vector<SetName>& removed, const StillGoes& goes) const {
  for (const SetName& name : names) VARVE_TRY(check_job_name(name.job));
  VARVE_ASSIGN(const std::unique_ptr<PowerWatch> power, store_.backend().watch_power());
  VARVE_ASSIGN(const auto remarks, Remarks(store_).all());
  for (const SetName& name : names) {
    const auto said = remarks.find(name);
    if (!goes && said != remarks.end() && said->second.pinned)
      return Status(StatusCode::permission_denied, "the set is pinned", name.to_string(), "unpin it first");
  }
  Mutex mutex;
  std::vector<SetName> gone;
  const Status failure = parallel_for(names.size(), store_.backend().operations_at_once(), [&](size_t i) -> Status {
    const auto said = remarks.find(names[i]);
    VARVE_ASSIGN(const Removal removal, remove_record(names[i], said == remarks.end() ? nullptr : &said->second, goes));
    const MutexLock lock(mutex);
    if (removal == Removal::removed) gone.push_back(names[i]);
    return {};
  });
  std::sort(gone.begin(), gone.end());
  const Status forgotten = forget_gone(remarks, gone, removed);
  return failure.ok() ? forgotten : failure;
}

/// What is left to do for sets that were removed; those that are gone for good are added to `removed`.
Status Catalog::forget_gone(const std::map<SetName, SetRemarks>& remarks, std::span<const SetName> gone,
                            std::vector<SetName>& removed) const {
  Status failure;
  std::map<std::string, std::vector<SetName>> gone_of;
  std::set<SetName> remarked_gone;
  for (const SetName& name : gone) {
    gone_of[name.job].push_back(name);
    if (remarks.contains(name)) remarked_gone.insert(name);
  }
  for (auto& [job, sets] : gone_of) {
    const Status settled = settle_after_removal(job);
    if (failure.ok()) failure = settled;
    if (settled.ok()) removed.insert(removed.end(), sets.begin(), sets.end());
  }
  if (!remarked_gone.empty()) {
    const Status forgotten = Remarks(store_).forget(remarked_gone);
    if (failure.ok()) failure = forgotten;
  }
  return failure;
}

/// Without `goes`: whatever it is.
Result<Catalog::Removal> Catalog::remove_record(const SetName& name, const SetRemarks* said,
                                                const StillGoes& goes) const {
  Backend& backend = store_.backend();
  const std::string path = record_path(name);
  if (!goes) {
    // Else it would come back in its place.
    VARVE_TRY(backend.records().remove_hidden(path));
    const Status removed = backend.remove(path);
    if (removed.code() == StatusCode::not_found) return Removal::was_gone;
    VARVE_TRY(removed);
    return Removal::removed;
  }
  if (said != nullptr && said->pinned) return Removal::is_pinned;
  const Result<ByteVector> raw = backend.read_record(path, kSetRecordBytesMax);
  if (raw.status().code() == StatusCode::not_found) return Removal::was_gone;
  VARVE_TRY(raw.status());
  VARVE_ASSIGN(const SetRecord record, decode(name, *raw));
  if (!goes(record, said)) return Removal::is_another;
  VARVE_ASSIGN(const bool is_gone, backend.records().remove_committed(path, *raw));
  return is_gone ? Removal::removed : Removal::is_another;
}

Status Catalog::unhide(const std::string& job) const {
  VARVE_TRY(check_job_name(job));
  return store_.backend().records().unhide(job_path(job), /*finish=*/true);
}

Status Catalog::settle_after_removal(const std::string& job) const {
  // Somebody else who dropped the job's last set may have tidied its folder away just now.
  Status synced = store_.backend().settle(job_path(job));
  if (synced.code() == StatusCode::not_found) synced = store_.backend().settle(store_.sets_path());
  VARVE_TRY(synced);
  // An empty job folder is only untidy, and a save may be putting its first record there right now.
  store_.backend().remove_folder(job_path(job)).ignore("not empty, or taken by a new save");
  return {};
}

}  // namespace varve
