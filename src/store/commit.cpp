#include "store/commit.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <map>
#include <set>

#include "core/process.h"
#include "core/status_codec.h"
#include "store/remarks.h"

namespace varve {

namespace {
constexpr std::chrono::seconds kHeartbeat(5);
/// What a lease says of its writer until the record takes its place.
std::string lease_text(uint32_t process) { return fmt::format("{} {}\n", process, host_name()); }

std::string part_path(const Store& store, const PartName& name, PartName::Kind kind = PartName::Kind::delivered) {
  return join_path(parts_path(store), name.file_name(kind));
}
}  // namespace

bool is_silent(int64_t beat_ns, int64_t now_ns, double silence_seconds) {
  const double seconds = static_cast<double>(now_ns - beat_ns) * 1e-9;
  return seconds >= silence_seconds || seconds < -kClocksApartSecondsMax;
}

Result<bool> is_left_for(Backend& backend, const std::string& path, int64_t now_ns, double seconds) {
  const Result<FileStatus> status = backend.status(path);
  if (status.status().code() == StatusCode::not_found) return false;
  VARVE_TRY(status.status());
  const double age_seconds = static_cast<double>(now_ns - status->modified_ns) * 1e-9;
  if (age_seconds < -kClocksApartSecondsMax) backend.records().touch(path).ignore("it goes later");
  return age_seconds >= seconds;
}

namespace {
/// A copy of a store may lack folders in which there was nothing.
Status make_missing_folders(const Store& store) {
  Backend& backend = store.backend();
  VARVE_TRY(backend.status(store_header_path(store.path())).status());
  VARVE_TRY(store.check_identity());
  for (const std::string_view folder : kStoreFolders) VARVE_TRY(backend.make_folder(join_path(store.path(), folder)));
  return backend.settle(store.path());
}
}  // namespace

Result<std::unique_ptr<WriterLease>> WriterLease::acquire(const Store& store, std::optional<UniqueId> id) {
  if (!id) {
    VARVE_ASSIGN(id, UniqueId::random());
  }
  VARVE_TRY(store.make_durable());
  std::unique_ptr<WriterLease> lease(new WriterLease(store, *id));
  VARVE_ASSIGN(lease->power_, store.backend().watch_power());
  lease->path_ = join_path(store.writers_path(), id->hex());
  const std::string text = lease_text(own_process_number());
  Result<std::unique_ptr<HeldRecord>> record = store.backend().records().hold(lease->path_, as_bytes(text));
  if (record.status().code() == StatusCode::not_found && make_missing_folders(store).ok())
    record = store.backend().records().hold(lease->path_, as_bytes(text));
  if (!record.ok()) {
    if (record.status().code() != StatusCode::permission_denied) return record.status();
    return record.status().with_hint("the store is not writable by this user");
  }
  lease->record_ = std::move(*record);
  VARVE_ASSIGN(lease->heart_, start_thread([raw = lease.get()] { raw->beat(); }));
  // What was open may have been removed before the lease was there, and must not be found by its old reader.
  store.drop_arena_cache();
  return lease;
}

Result<std::set<ArenaId>> WriterLease::condemned() const {
  // A prune that marks an arena after this sees the lease and waits for it.
  VARVE_ASSIGN(const std::vector<ArenaId> marked, list_condemned(store_));
  store_.drop_arena_cache();
  return std::set<ArenaId>(marked.begin(), marked.end());
}

WriterLease::~WriterLease() {
  {
    const MutexLock lock(mutex_);
    ending_ = true;
  }
  ended_.notify_all();
  if (heart_.joinable()) heart_.join();
  record_.reset();
  if (!committed_) store_.backend().remove_if_there(path_).ignore("prune removes the leases of dead writers");
}

bool WriterLease::owns(const std::string& lease_name, const ArenaId& arena) {
  Result<UniqueId> writer = UniqueId::parse(lease_name);
  return writer.ok() && std::equal(writer->bytes.begin() + 4, writer->bytes.end(), arena.bytes.begin() + 4);
}

bool WriterLease::known_dead(const Store& store, const std::string& lease_name) {
  Result<ByteVector> raw = store.backend().read_record(join_path(store.writers_path(), lease_name), 4096);
  if (!raw.ok()) return false;
  const std::string text(as_text(*raw));
  uint32_t process = 0;
  std::from_chars(text.data(), text.data() + text.size(), process);
  return process > 0 && text == lease_text(process) && is_process_gone(process);
}

bool WriterLease::is_plain(std::string_view text) {
  return text.empty() || (text[0] >= '0' && text[0] <= '9' && text.ends_with('\n'));
}

Result<bool> WriterLease::give_up(const Store& store, const std::string& lease_name, double silent_seconds) {
  return give_up(store.backend(), join_path(store.writers_path(), lease_name), silent_seconds);
}

Result<bool> WriterLease::give_up(Backend& backend, const std::string& path, double silent_seconds) {
  if (backend.records().late_commit_seconds() == 0) {
    const Status removed = backend.remove_if_there(path);
    // A server says so whose store is in a bucket, where the lease may become a set yet.
    if (removed.code() == StatusCode::busy) return false;
    VARVE_TRY(removed);
    return true;
  }
  const Result<ByteVector> raw = backend.read_record(path, kSetRecordBytesMax);
  if (raw.status().code() == StatusCode::not_found) return true;
  VARVE_TRY(raw.status());
  if (!is_plain(as_text(*raw))) {
    const double late_seconds = backend.records().late_commit_seconds();
    if (silent_seconds < late_seconds) return false;
    // That was seen before: it may say what is to be committed since a moment ago.
    const Result<FileStatus> status = backend.status(path);
    if (status.status().code() == StatusCode::not_found) return true;
    VARVE_TRY(status.status());
    VARVE_ASSIGN(const int64_t now_ns, backend.records().now());
    if (static_cast<double>(now_ns - status->modified_ns) * 1e-9 < late_seconds) return false;
  }
  VARVE_TRY(backend.records().remove_unchanged(path, *raw));
  return backend.status(path).status().code() == StatusCode::not_found;
}

void WriterLease::beat() {
  const MutexLock lock(mutex_);
  while (!ended_.wait_for(mutex_, kHeartbeat, [this]() VARVE_REQUIRES(mutex_) { return ending_; })) {
    store_.backend().records().touch(path_).ignore("a lost lease is noticed at the commit");
  }
}

Status WriterLease::lost_status(const SetName& set) {
  return Status::busy("a prune took this writer for dead before it could commit", set.to_string(), Remedy::save_again);
}

bool WriterLease::lost() const {
  return !committed_ && store_.backend().status(path_).status().code() == StatusCode::not_found;
}

Status WriterLease::commit(const SetRecord& record, IfExists if_exists) {
  VARVE_TRY(prepare(record));
  return commit_prepared(record.name, if_exists);
}

Status WriterLease::prepare(const SetRecord& record) {
  VARVE_TRY(store_.backend().settle(store_.arenas_path()));  // whatever the record names must be durable before it
  return prepare_of_settled(record);
}

Status WriterLease::prepare_of_settled(const SetRecord& record) {
  const ByteVector raw = encode_set_record(record, store_.score());
  if (raw.size() > kSetRecordBytesMax) {
    return Status::resource_limit("the set has more groups than a record can hold", record.name.to_string(),
                                  Remedy::lay_more_ranks_together);
  }
  return prepare_of_settled(record, raw);
}

Status WriterLease::prepare_of_settled(const SetRecord& record, ByteSpan encoded) {
  prepared_ = record;
  const Status written = record_->rewrite(encoded);
  return written.code() == StatusCode::not_found ? lost_status(record.name) : written;
}

Status WriterLease::commit_prepared(const SetName& name, IfExists if_exists) {
  // The lease is there alone: if this is the store now, it is so until the commit.
  VARVE_TRY(store_.check_identity());
  if (if_exists == IfExists::replace) {
    VARVE_TRY(Remarks(store_).check_may_replace(name, prepared_ ? &*prepared_ : nullptr));
  }
  return publish(name, if_exists);
}

Status WriterLease::publish(const SetName& name, IfExists if_exists) {
  const Catalog catalog(store_);
  Backend& backend = store_.backend();
  const Status published = record_->become(catalog.record_path(name), if_exists);  // the commit point
  if (published.code() == StatusCode::already_exists) {
    return Status::already_exists("the set is in the store already", name.to_string(),
                                  {Remedy::choose_another_step, name.to_string()});
  }
  if (published.code() == StatusCode::not_found) return lost_status(name);
  VARVE_TRY(published);
  committed_ = true;
  Status durable = backend.settle(catalog.job_path(name.job));
  // The job's own name once more: a drop may have tidied it away, and another save made it anew, since it was synced.
  if (durable.ok()) durable = backend.settle(store_.sets_path());
  return durable.with_context("the set is in the catalog, but might not survive a power cut");
}

Status WriterLease::publish_part(const PartName& name, const SetRecord& record, PartSync sync) {
  VARVE_TRY(prepare(record));
  const Status published = record_->become(part_path(store_, name), IfExists::refuse);
  if (published.code() == StatusCode::already_exists) {
    return Status::already_exists("this part of the set is in the store already", name.to_string());
  }
  if (published.code() == StatusCode::not_found) return lost_status(name.set);
  VARVE_TRY(published);
  committed_ = true;
  if (sync == PartSync::with_its_set) return {};
  Status durable = store_.backend().settle(parts_path(store_));
  if (durable.ok()) durable = store_.make_folders_durable();
  return durable.with_context("a part of a set was published, but might not survive a power cut");
}

namespace {
constexpr uint64_t kFailureBytesMax = 64_KiB;

constexpr std::string_view suffix_of(PartName::Kind kind) {
  switch (kind) {
    case PartName::Kind::delivered: return ".part";
    case PartName::Kind::failed: return ".failed";
  }
  return {};
}
constexpr std::string_view kOf = "-of-";
constexpr size_t kRunDigits = 32;

/// A decimal number in its shortest form.
template <class Number>
std::optional<Number> parse_decimal(std::string_view digits) {
  Number number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  const bool canonical =
      error == std::errc() && end == digits.data() + digits.size() && std::to_string(number) == digits;
  return canonical ? std::optional(number) : std::nullopt;
}

/// What a writer is told that comes too early, or too late.
Status not_all_there(const Store& store, const SetName& name) {
  VARVE_TRY(Catalog(store).check_is_new(name));
  return Status::not_found("not all parts of the set are there", name.to_string());
}

std::vector<PartName> names_of_all(const UniqueId& run, const SetName& name, uint32_t count) {
  std::vector<PartName> names;
  for (uint32_t ordinal = 0; ordinal < count; ++ordinal) names.push_back({name, run, ordinal, count});
  return names;
}

/// Whether `set` was made with the groups of `part`. Every group has an arena of its own, written for it alone.
bool is_made_of(const SetRecord& set, const SetRecord& part) {
  return !part.groups.empty() && std::all_of(part.groups.begin(), part.groups.end(), [&](const GroupRecord& of_part) {
    return std::any_of(set.groups.begin(), set.groups.end(), [&](const GroupRecord& of_set) {
      return of_set.root == of_part.root && of_set.hint == of_part.hint;
    });
  });
}

bool is_made_of_all(const SetRecord& set, const std::vector<SetRecord>& parts) {
  return std::all_of(parts.begin(), parts.end(), [&](const SetRecord& part) { return is_made_of(set, part); });
}

/// The records of all parts; not_found, as not_all_there(), if one is missing.
Result<std::vector<SetRecord>> read_parts(const Store& store, const std::vector<PartName>& names) {
  std::vector<SetRecord> parts;
  for (const PartName& name : names) {
    Result<SetRecord> part = read_part(store, name);
    if (part.status().code() == StatusCode::not_found) return not_all_there(store, name.set);
    VARVE_TRY(part.status());
    parts.push_back(std::move(*part));
  }
  return parts;
}

/// The set that the parts make, in their order.
Result<SetRecord> compose(const SetName& name, const std::vector<SetRecord>& parts) {
  SetRecord set = parts.front();
  std::set<ArenaId> arenas;
  set.groups.clear();
  set.rank_count = set.file_count = set.raw_bytes = set.new_bytes = 0;
  for (const SetRecord& part : parts) {
    if (part.scheme != set.scheme || part.policy != set.policy || part.chunker != set.chunker ||
        part.match != set.match) {
      return Status::invalid_argument("the parts of a set were saved with different options", name.to_string());
    }
    // One may be left of an earlier run, or of what this one has made of the step before it went back.
    if (part.run != set.run || part.number != set.number) {
      return Status::corrupt("the parts are of different sets of this step", name.to_string());
    }
    set.created_s = std::max(set.created_s, part.created_s);
    set.rank_count += part.rank_count;
    set.file_count += part.file_count;
    set.raw_bytes += part.raw_bytes;
    set.new_bytes += part.new_bytes;
    for (const GroupRecord& group : part.groups) {
      if (!arenas.insert(group.hint).second) {
        return Status::corrupt("two parts of a set have the same group", name.to_string());
      }
      set.groups.push_back(group);
    }
  }
  return set;
}

/// Removes the parts that the set in the catalog was made of, which is durable: they may be all that a power cut would
/// leave of it else.
Status remove_parts(const Store& store, const std::vector<PartName>& names) {
  for (const PartName& name : names) VARVE_TRY(remove_part(store, name));
  return store.backend().settle(parts_path(store));
}
}  // namespace

std::string PartName::file_name(Kind kind) const {
  return set.key() + "." + run.hex() + "." + std::to_string(ordinal) + std::string(kOf) + std::to_string(count) +
         std::string(suffix_of(kind));
}

std::string PartName::to_string() const {
  return set.to_string() + " (part " + std::to_string(uint64_t{ordinal} + 1) + " of " + std::to_string(count) + ")";
}

std::optional<PartName> PartName::parse(std::string_view file_name, Kind kind) {
  const std::string_view suffix = suffix_of(kind);
  const size_t at = file_name.find('@'), run_dot = file_name.find('.', at);
  if (run_dot == std::string_view::npos || !file_name.ends_with(suffix)) return std::nullopt;
  const size_t run_begin = run_dot + 1, ordinal_begin = run_begin + kRunDigits + 1;
  const size_t of = file_name.find(kOf, ordinal_begin), end = file_name.size() - suffix.size();
  if (of == std::string_view::npos || of + kOf.size() > end || file_name[ordinal_begin - 1] != '.') return std::nullopt;
  const auto step = parse_decimal<uint64_t>(file_name.substr(at + 1, run_dot - at - 1));
  const Result<UniqueId> run = UniqueId::parse(file_name.substr(run_begin, kRunDigits));
  const auto ordinal = parse_decimal<uint32_t>(file_name.substr(ordinal_begin, of - ordinal_begin));
  const auto count = parse_decimal<uint32_t>(file_name.substr(of + kOf.size(), end - of - kOf.size()));
  if (!step || !run.ok() || !ordinal || !count || *ordinal >= *count || *count > kPartCountMax) return std::nullopt;
  PartName name{{std::string(file_name.substr(0, at)), *step}, *run, *ordinal, *count};
  return check_job_name(name.set.job).ok() ? std::optional(std::move(name)) : std::nullopt;
}

bool ListedParts::has(const PartName& part) const {
  return std::binary_search(delivered.begin(), delivered.end(), part);
}

bool ListedParts::has_all_of(const PartName& part) const {
  const std::vector<PartName> names = names_of_all(part.run, part.set, part.count);
  return std::includes(delivered.begin(), delivered.end(), names.begin(), names.end());
}

Result<ListedParts> list_all_parts(const Store& store) {
  Result<std::vector<DirectoryEntry>> entries = store.backend().list(parts_path(store));
  if (entries.status().code() == StatusCode::not_found) return ListedParts();
  VARVE_TRY(entries.status());
  ListedParts parts;
  for (const DirectoryEntry& entry : *entries) {
    if (entry.is_directory) continue;
    if (auto delivered = PartName::parse(entry.name)) parts.delivered.push_back(std::move(*delivered));
    if (auto failed = PartName::parse(entry.name, PartName::Kind::failed)) parts.failed.push_back(std::move(*failed));
  }
  std::sort(parts.delivered.begin(), parts.delivered.end());
  std::sort(parts.failed.begin(), parts.failed.end());
  return parts;
}

Result<std::vector<PartName>> list_parts(const Store& store, PartName::Kind kind) {
  VARVE_ASSIGN(ListedParts parts, list_all_parts(store));
  return kind == PartName::Kind::delivered ? std::move(parts.delivered) : std::move(parts.failed);
}

Result<SetRecord> read_part(const Store& store, const PartName& name) {
  const std::string path = part_path(store, name);
  VARVE_ASSIGN(const ByteVector raw, store.backend().read_record(path, kSetRecordBytesMax));
  return decode_part(store, name, raw);
}

Result<SetRecord> decode_part(const Store& store, const PartName& name, ByteSpan raw) {
  const std::string path = part_path(store, name);
  Result<SetRecord> record = decode_set_record(raw, store.score());
  if (!record.ok()) return record.status().with_subject(path);
  if (record->name != name.set) return Status::corrupt("a part of a set lies under another set's name", path);
  return record;
}

Status remove_part(const Store& store, const PartName& name) {
  return store.backend().remove_if_there(part_path(store, name));
}

Status publish_failure(const Store& store, const PartName& name, const Status& why) {
  VARVE_TRY(make_folder_durably(store.backend(), parts_path(store)));
  // The name alone tells that the part will not come.
  const Status told =
      store.backend().records().hold(part_path(store, name, PartName::Kind::failed), encode_status(why)).status();
  return told.code() == StatusCode::already_exists ? Status() : told;
}

Status read_failure(const Store& store, const PartName& name) {
  VARVE_ASSIGN(const ByteVector raw,
               store.backend().read_record(part_path(store, name, PartName::Kind::failed), kFailureBytesMax));
  Status why;
  VARVE_TRY(decode_status(raw, why));
  return why.ok() ? Status::corrupt("what is told as a failure is none", name.to_string()) : why;
}

Status remove_failure(const Store& store, const PartName& name) {
  return store.backend().remove_if_there(part_path(store, name, PartName::Kind::failed));
}

Result<SetRecord> complete_set(const Store& store, const UniqueId& run, const SetName& name, uint32_t count,
                               IfExists if_exists, PartNames part_names, const std::vector<SetRecord>* told) {
  VARVE_TRY(check_job_name(name.job));
  if (count == 0 || count > kPartCountMax) return Status::invalid_argument("a set has at least one part");
  const Catalog catalog(store);
  const std::vector<PartName> names = names_of_all(run, name, count);
  // A look first: every writer tries, and all but the last come too early.
  const PartName first = names.front();
  const bool is_told = told != nullptr && told->size() == count && part_names == PartNames::used_once;
  if (!is_told) {
    VARVE_ASSIGN(const ListedParts there, list_all_parts(store));
    if (!there.has_all_of(first)) return not_all_there(store, name);
  }

  VARVE_ASSIGN(std::unique_ptr<WriterLease> lease, WriterLease::acquire(store));
  std::vector<SetRecord> parts;
  if (is_told) {
    parts = *told;
  } else {
    VARVE_ASSIGN(parts, read_parts(store, names));
  }
  VARVE_ASSIGN(SetRecord set, compose(name, parts));
  // Each part's writer has made the names durable of all that it needs.
  VARVE_TRY(lease->prepare_of_settled(set));
  // From here on prunes see in the lease what the set needs; until now they have seen it in the parts, if these are
  // still there. Were one gone, so could be its data: another writer may have made the set, and somebody dropped it. A
  // part of the same name may be another one by now, unless names are used once.
  if (part_names == PartNames::used_once) {
    VARVE_ASSIGN(const ListedParts still_there, list_all_parts(store));
    if (!still_there.has_all_of(first)) return not_all_there(store, name);
  } else {
    VARVE_ASSIGN(parts, read_parts(store, names));
    if (!is_made_of_all(set, parts)) return not_all_there(store, name);
  }
  const Status committed = lease->commit_prepared(name, if_exists);
  if (committed.code() == StatusCode::already_exists) {
    const Result<SetRecord> earlier = catalog.read(name);
    // The writer that was first may have been killed before it removed the parts.
    if (earlier.ok() && is_made_of_all(*earlier, parts) && catalog.make_durable(name.job).ok()) {
      remove_parts(store, names).ignore("the next attempt, prune or drop removes them");
    }
    return committed;
  }
  VARVE_TRY(committed);
  // The set is there and durable. Parts that stay cost space, until a prune removes them.
  remove_parts(store, names).ignore("the next prune removes them");
  return set;
}

Result<std::vector<SetName>> complete_leftover_parts(const Store& store, const std::string& job) {
  VARVE_ASSIGN(std::vector<PartName> parts, list_parts(store));
  std::map<PartName, uint32_t> found;  // of each would-be set, by the name of its first part
  for (const PartName& part : parts) {
    if (part.set.job == job) ++found[{part.set, part.run, 0, part.count}];
  }
  std::vector<SetName> completed;
  Status first_failure;
  for (const auto& [first, part_count] : found) {
    if (part_count < first.count) continue;
    const Status status = complete_set(store, first.run, first.set, first.count).status();
    if (status.ok()) {
      completed.push_back(first.set);
    } else if (status.code() != StatusCode::already_exists && status.code() != StatusCode::not_found &&
               first_failure.ok()) {
      first_failure = status;
    }
  }
  if (completed.empty() && !first_failure.ok()) return first_failure;
  return completed;
}

Result<uint64_t> first_number_of_run(const Store& store, const std::string& job) {
  VARVE_ASSIGN(const std::vector<PartName> parts, list_parts(store));
  // Afterwards: what has become a set meanwhile is seen as one.
  VARVE_ASSIGN(uint64_t next, Catalog(store).next_number(job));
  std::set<std::pair<UniqueId, uint64_t>> seen;  // by run and step: the parts of a set have its number
  for (const PartName& part : parts) {
    if (part.set.job != job || seen.contains({part.run, part.set.step})) continue;
    const Result<SetRecord> record = read_part(store, part);
    // Damaged ones, or those that have gone just now, become no sets.
    if (record.status().code() == StatusCode::corrupt || record.status().code() == StatusCode::not_found) continue;
    VARVE_TRY(record.status());
    next = std::max(next, record->number + 1);
    seen.insert({part.run, part.set.step});
  }
  return next;
}

Result<uint64_t> remove_used_parts(const Store& store, const SetName* only) {
  VARVE_ASSIGN(const std::unique_ptr<PowerWatch> power, store.backend().watch_power());
  VARVE_ASSIGN(std::vector<PartName> names, list_parts(store));
  const Catalog catalog(store);
  uint64_t removed = 0;
  for (const PartName& name : names) {
    if (only != nullptr && name.set != *only) continue;
    const Result<SetRecord> set = catalog.read(name.set);
    if (!set.ok()) continue;  // not there, or nobody can say what it was made of
    const Result<SetRecord> part = read_part(store, name);
    if (!part.ok() || !is_made_of(*set, *part)) continue;
    VARVE_TRY(catalog.make_durable(name.set.job));
    VARVE_TRY(remove_parts(store, {name}));
    ++removed;
  }
  return removed;
}

}  // namespace varve
