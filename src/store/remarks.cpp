#include "store/remarks.h"

#include <algorithm>
#include <charconv>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/put_aside.h"
#include "store/catalog.h"
#include "store/commit.h"
#include "store/stored_copies.h"

namespace varve {

namespace {
constexpr std::string_view kPin = "pin", kPinningPrefix = "pinning.", kNote = "note", kTagPrefix = "tag.";
constexpr size_t kTagBytesMax = 100;
/// Of files that are being written (Records::publish()).
constexpr std::string_view kDraftSuffix = ".tmp";

bool is_id_text(std::string_view text) {
  return text.size() == 2 * sizeof(UniqueId::bytes) &&
         std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

/// What the name of a file says: "JOB@STEP.pin", "JOB@STEP.tag.best".
struct RemarkName {
  SetName set;
  std::string kind;

  bool is_pinning() const { return kind.starts_with(kPinningPrefix); }
};

/// Without the ending that a draft has beside the name of what it becomes (Records::replace()), if it has it.
std::string_view without_draft_ending(std::string_view file) {
  if (!file.ends_with(kDraftSuffix)) return file;
  const std::string_view rest = file.substr(0, file.size() - kDraftSuffix.size());
  if (is_id_text(rest)) return {};
  const size_t dot = rest.rfind('.');
  return dot != std::string_view::npos && is_id_text(rest.substr(dot + 1)) ? rest.substr(0, dot) : file;
}

bool is_kind(std::string_view kind) {
  if (kind.starts_with(kTagPrefix)) return check_tag(kind.substr(kTagPrefix.size())).ok();
  if (kind.starts_with(kPinningPrefix)) return is_id_text(kind.substr(kPinningPrefix.size()));
  return kind == kPin || kind == kNote;
}

/// None: a draft, or nothing of ours.
std::optional<RemarkName> parse_remark_name(std::string_view file) {
  if (without_draft_ending(file) != file) return std::nullopt;
  const size_t at = file.rfind('@');
  const size_t dot = at == std::string_view::npos ? at : file.find('.', at);
  if (dot == std::string_view::npos || !is_kind(file.substr(dot + 1))) return std::nullopt;
  RemarkName name;
  name.set.job = file.substr(0, at);
  name.kind = file.substr(dot + 1);
  std::from_chars(file.data() + at + 1, file.data() + dot, name.set.step);
  if (name.set.key() != file.substr(0, dot) || !check_job_name(name.set.job).ok()) return std::nullopt;
  return name;
}

std::string tag_kind(std::string_view tag) { return std::string(kTagPrefix) + std::string(tag); }

std::vector<RemarkName> remarks_among(const std::vector<DirectoryEntry>& entries) {
  std::vector<RemarkName> names;
  for (const DirectoryEntry& entry : entries) {
    if (std::optional<RemarkName> name = parse_remark_name(entry.name)) names.push_back(*std::move(name));
  }
  return names;
}

Result<std::vector<RemarkName>> list_remarks(Backend& backend, const std::string& folder) {
  const Result<std::vector<DirectoryEntry>> entries = backend.list(folder);
  if (entries.status().code() == StatusCode::not_found)
    return std::vector<RemarkName>();  // nobody has said anything yet
  VARVE_TRY(entries.status());
  return remarks_among(*entries);
}
}  // namespace

Status check_tag(std::string_view tag) {
  const auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
           c == '.';
  };
  if (parse_step(tag)) return Status::invalid_argument("a step or a time is no tag", std::string(tag));
  if (!tag.empty() && tag.size() <= kTagBytesMax && std::all_of(tag.begin(), tag.end(), fits)) return {};
  return Status::invalid_argument("a tag is 1 to 100 letters, digits, '-', '_' and '.'", std::string(tag));
}

RemarkFile remark_file_of(std::string_view name) {
  const std::string_view becomes = without_draft_ending(name);
  if (becomes != name) {
    const bool is_of_remark = becomes.empty() || remark_file_of(becomes) == RemarkFile::remark;
    return is_of_remark ? RemarkFile::draft : RemarkFile::none;
  }
  const std::optional<RemarkName> parsed = parse_remark_name(name);
  if (!parsed) return RemarkFile::none;
  return parsed->is_pinning() ? RemarkFile::pinning : RemarkFile::remark;
}

std::string Remarks::file_path(const SetName& name, std::string_view kind) const {
  return join_path(path(), name.key() + "." + std::string(kind));
}

Result<std::map<SetName, SetRemarks>> Remarks::all() const {
  VARVE_ASSIGN(const std::vector<RemarkName> names, list_remarks(store_.backend(), path()));
  std::map<SetName, SetRemarks> all;
  for (const RemarkName& name : names) {
    if (name.is_pinning()) continue;  // not yet, and perhaps never
    SetRemarks& remarks = all[name.set];
    if (name.kind == kPin) {
      remarks.pinned = true;
    } else if (name.kind == kNote) {
      remarks.has_note = true;
    } else {
      remarks.tags.insert(name.kind.substr(kTagPrefix.size()));
    }
  }
  return all;
}

Result<SetRemarks> Remarks::of(const SetName& name) const {
  VARVE_ASSIGN(auto remarks, all());
  return std::move(remarks[name]);
}

Result<std::set<SetName>> Remarks::pinned() const {
  VARVE_ASSIGN(const std::vector<RemarkName> names, list_remarks(store_.backend(), path()));
  std::set<SetName> pinned;
  for (const RemarkName& name : names) {
    if (name.kind == kPin) pinned.insert(name.set);
  }
  return pinned;
}

Status Remarks::check_is_there(const SetName& name) const {
  VARVE_TRY(check_job_name(name.job));
  VARVE_ASSIGN(const bool gone, is_gone(name));
  return gone ? Catalog(store_).read(name).status() : Status();  // which says that there is no such set
}

Status Remarks::publish(const std::string& file, ByteSpan contents) const {
  VARVE_TRY(make_folder_durably(store_.backend(), path()));
  Records& records = store_.backend().records();
  const Status published = records.publish(file, contents);
  if (published.code() != StatusCode::already_exists) return published;
  const Result<ByteVector> there = store_.backend().read_record(file, kSetRecordBytesMax);
  if (there.ok() && std::equal(there->begin(), there->end(), contents.begin(), contents.end()))
    return store_.backend().settle(path());  // who published it may not have come to that
  return records.replace(file, contents);
}

Result<bool> Remarks::remove(const std::string& file) const {
  const Status removed = store_.backend().remove(file);
  if (removed.code() == StatusCode::not_found) return false;
  VARVE_TRY(removed);
  VARVE_TRY(store_.backend().settle(path()));
  return true;
}

Status Remarks::pin(const SetName& name) const {
  VARVE_TRY(check_job_name(name.job));
  VARVE_ASSIGN(const std::unique_ptr<PowerWatch> power, store_.backend().watch_power());
  constexpr int kTriesMax = 3;
  Status pinned;
  for (int tries = 0; tries < kTriesMax; ++tries) {
    pinned = pin_once(name);
    if (pinned.code() != StatusCode::busy) break;
  }
  VARVE_TRY(pinned);
  return bring_back(name);
}

/// busy: the set was replaced just now, or a prune took this for a leftover.
Status Remarks::pin_once(const SetName& name) const {
  const Catalog catalog(store_);
  const std::string record_path = catalog.record_path(name);
  VARVE_ASSIGN(const ByteVector record, read_record_of(name));
  VARVE_TRY(decode_set_record(record, store_.score()).status().with_subject(record_path));
  VARVE_ASSIGN(const UniqueId id, UniqueId::random());
  const std::string pinning = file_path(name, std::string(kPinningPrefix) + id.hex());
  VARVE_TRY(make_folder_durably(store_.backend(), path()));
  VARVE_ASSIGN(const std::unique_ptr<HeldRecord> held, store_.backend().records().hold(pinning, record));
  const Status pinned = [&]() -> Status {
    VARVE_TRY(held->rewrite(record));
    // If the set is there still, all prunes that did not see it as such see that it is being pinned.
    VARVE_ASSIGN(const ByteVector now, read_record_of(name));
    if (now != record) return Status::busy("the set was replaced while it was pinned", name.to_string());
    VARVE_TRY(catalog.make_durable(name.job));
    Status become = held->become(file_path(name, kPin), IfExists::refuse);
    if (become.code() == StatusCode::already_exists) {
      const Result<ByteVector> pin = store_.backend().read_record(file_path(name, kPin), kSetRecordBytesMax);
      if (pin.ok() && *pin == record) {
        VARVE_TRY(store_.backend().remove_if_there(pinning));
        return store_.backend().settle(path());  // who has pinned it may not have come to that
      }
      become = held->become(file_path(name, kPin), IfExists::replace);
    }
    if (become.code() == StatusCode::not_found) return Status::busy("pinning the set took too long", name.to_string());
    VARVE_TRY(become);
    VARVE_TRY(store_.backend().settle(path()));
    // Whoever replaces a set looks for its pin before.
    const Result<ByteVector> after = read_record_of(name);
    if (after.ok() && *after != record)
      return Status::busy("the set was replaced while it was pinned", name.to_string());
    return {};
  }();
  if (!pinned.ok()) store_.backend().remove_if_there(pinning).ignore("a prune removes it in time");
  return pinned;
}

Result<ByteVector> Remarks::read_record_of(const SetName& name) const {
  const Catalog catalog(store_);
  Result<ByteVector> record = store_.backend().read_record(catalog.record_path(name), kSetRecordBytesMax);
  return record.status().code() == StatusCode::not_found ? catalog.read(name).status() : std::move(record);
}

/// Makes a set that has a pin visible again, if it is not: its record is committed anew, while it is pinned.
Status Remarks::bring_back(const SetName& name) const {
  VARVE_ASSIGN(const bool gone, is_gone(name));
  if (!gone) return {};
  const std::string pin = file_path(name, kPin);
  const auto committed = start_over_if_lost(null_progress(), [&]() -> Result<bool> {
    const Result<ByteVector> raw = store_.backend().read_record(pin, kSetRecordBytesMax);
    if (raw.status().code() == StatusCode::not_found) return false;  // it is not pinned
    VARVE_TRY(raw.status());
    VARVE_ASSIGN(const SetRecord record, decode_set_record(*raw, store_.score()));
    if (record.name != name) return Status::corrupt("a pin has another set's record", pin);
    VARVE_ASSIGN(const std::unique_ptr<WriterLease> lease, WriterLease::acquire(store_));
    VARVE_TRY(lease->prepare(record));
    // From now on prunes keep what it needs; before, they did so if it was pinned all the time.
    const Result<ByteVector> now = store_.backend().read_record(pin, kSetRecordBytesMax);
    if (now.status().code() == StatusCode::not_found) return false;
    VARVE_TRY(now.status());
    if (*now != *raw) return Status::busy("the set was pinned anew at the same time", name.to_string());
    for (const GroupRecord& group : record.groups) VARVE_TRY(read_root(store_, group.root, group.hint).status());
    const Status done = lease->commit_prepared(name, IfExists::refuse);
    if (done.code() != StatusCode::already_exists) VARVE_TRY(done);
    return true;
  });
  return committed.status();
}

Result<bool> Remarks::unpin(const SetName& name) const {
  VARVE_TRY(check_job_name(name.job));
  const Status there = bring_back(name);
  // A pin of which nothing can be made is given up.
  if (there.code() != StatusCode::corrupt && there.code() != StatusCode::not_found) VARVE_TRY(there);
  VARVE_TRY(Catalog(store_).make_durable(name.job));  // who has brought it back may not have come to that
  return remove(file_path(name, kPin));
}

Status Remarks::check_may_replace(const SetName& name, const SetRecord* by) const {
  const Result<ByteVector> raw = store_.backend().read_record(file_path(name, kPin), kSetRecordBytesMax);
  if (raw.status().code() == StatusCode::not_found) return {};
  VARVE_TRY(raw.status());
  const Result<SetRecord> pinned = decode_set_record(*raw, store_.score());
  if (pinned.status().code() == StatusCode::corrupt) return {};
  VARVE_TRY(pinned.status());
  if (by != nullptr && same_trees(*pinned, *by)) return {};
  for (const GroupRecord& group : pinned->groups) {
    const Status read = read_root(store_, group.root, group.hint).status();
    if (read.code() == StatusCode::corrupt || read.code() == StatusCode::not_found)
      return {};  // there is nothing to lose
    VARVE_TRY(read);
  }
  return {StatusCode::permission_denied, "the set is pinned, and another was to take its place", name.to_string(),
          "unpin it to give it up, or save under another job name"};
}

Status Remarks::add_tag(const SetName& name, std::string_view tag) const {
  VARVE_TRY(check_tag(tag));
  VARVE_TRY(check_is_there(name));
  return publish(file_path(name, tag_kind(tag)), as_bytes("tag\n"));
}

Result<bool> Remarks::remove_tag(const SetName& name, std::string_view tag) const {
  VARVE_TRY(check_tag(tag));
  VARVE_TRY(check_job_name(name.job));
  return remove(file_path(name, tag_kind(tag)));
}

Status Remarks::write_note(const SetName& name, std::string_view text) const {
  if (text.size() > kNoteBytesMax) return Status::invalid_argument("a note has 64 KiB at most", name.to_string());
  VARVE_TRY(check_is_there(name));
  if (text.empty()) return remove(file_path(name, kNote)).status();
  return publish(file_path(name, kNote), as_bytes(text));
}

Result<std::string> Remarks::note(const SetName& name) const {
  const Result<ByteVector> text = store_.backend().read_record(file_path(name, kNote), kNoteBytesMax);
  if (text.status().code() == StatusCode::not_found) return std::string();
  VARVE_TRY(text.status());
  return std::string(as_text(*text));
}

Status Remarks::forget(const std::set<SetName>& gone) const {
  VARVE_ASSIGN(const std::vector<RemarkName> names, list_remarks(store_.backend(), path()));
  for (const RemarkName& name : names) {
    if (!gone.contains(name.set) || name.kind == kPin || name.is_pinning()) continue;
    VARVE_TRY(store_.backend().remove_if_there(file_path(name.set, name.kind)));
  }
  return {};
}

Result<uint64_t> Remarks::tidy(ProgressSink& progress) const {
  const Result<std::vector<DirectoryEntry>> entries = store_.backend().list(path());
  if (entries.status().code() == StatusCode::not_found) return uint64_t{0};
  VARVE_TRY(entries.status());
  VARVE_ASSIGN(uint64_t removed_count, remove_old_drafts(*entries));
  for (const RemarkName& name : remarks_among(*entries)) {
    const std::string file = file_path(name.set, name.kind);
    if (name.kind == kPin) {
      const Status back = bring_back(name.set);
      if (!back.ok()) {
        progress.warning(back.with_context("the pinned set " + name.set.to_string() +
                                           " was dropped, and cannot be brought back; what it needs is kept"));
      }
      continue;
    }
    VARVE_ASSIGN(const bool useless, name.is_pinning() ? is_old(file) : is_gone_for_good(name.set));
    if (!useless) continue;
    VARVE_ASSIGN(const bool removed, remove(file));
    removed_count += removed ? 1 : 0;
  }
  return removed_count;
}

/// Those of killed writers.
Result<uint64_t> Remarks::remove_old_drafts(const std::vector<DirectoryEntry>& entries) const {
  uint64_t removed_count = 0;
  for (const DirectoryEntry& entry : entries) {
    const std::string file = join_path(path(), entry.name);
    if (remark_file_of(entry.name) != RemarkFile::draft) continue;
    VARVE_ASSIGN(const bool old, is_old(file));
    if (!old) continue;
    VARVE_TRY(store_.backend().remove_if_there(file));
    ++removed_count;
  }
  return removed_count;
}

Result<bool> Remarks::is_gone(const SetName& name) const {
  const Status there = store_.backend().status(Catalog(store_).record_path(name)).status();
  if (there.code() == StatusCode::not_found) return true;
  VARVE_TRY(there);
  return false;
}

/// Neither there nor hidden, so that it may come back.
Result<bool> Remarks::is_gone_for_good(const SetName& name) const {
  VARVE_ASSIGN(const bool before, is_gone(name));
  if (!before) return false;
  const Catalog catalog(store_);
  const Result<std::vector<DirectoryEntry>> entries = store_.backend().list(catalog.job_path(name.job));
  if (entries.status().code() != StatusCode::not_found) {
    VARVE_TRY(entries.status());
    const std::string record = base_name(catalog.record_path(name));
    for (const DirectoryEntry& entry : *entries) {
      const std::optional<PutAside> aside = PutAside::parse(entry.name);
      if (aside && aside->name == record) return false;
    }
  }
  return is_gone(name);  // it may have come back before it was come to in the list
}

Result<bool> Remarks::is_old(const std::string& file) const {
  VARVE_ASSIGN(const int64_t now_ns, store_.backend().records().now());
  return is_left_for(store_.backend(), file, now_ns, kUnfinishedSecondsMax);
}

Result<std::vector<Remarks::PinnedRecord>> Remarks::pinned_records(int lists) const {
  std::vector<PinnedRecord> records;
  std::set<std::string> read;
  // One that is being pinned may get its name as a pin after a list has passed that, and before it comes to the other
  // name. It gets it once: so a second list, which begins when the first has ended, sees it, as long as nothing has
  // vanished between a list and what was read by it.
  for (int whole_lists = 0; whole_lists < lists;) {
    VARVE_ASSIGN(const std::vector<RemarkName> names, list_remarks(store_.backend(), path()));
    bool vanished = false;
    for (const RemarkName& name : names) {
      if (name.kind != kPin && !name.is_pinning()) continue;
      const std::string file = file_path(name.set, name.kind);
      if (read.contains(file)) continue;
      Result<ByteVector> raw = store_.backend().read_record(file, kSetRecordBytesMax);
      // It is being written: who pins looks for the set after that.
      if (name.is_pinning() && raw.status().code() == StatusCode::corrupt) continue;
      if (raw.status().code() == StatusCode::not_found) {
        vanished = true;
        continue;
      }
      VARVE_TRY(raw.status());
      records.push_back({name.set, name.kind == kPin, *std::move(raw)});
      read.insert(file);
    }
    whole_lists = vanished ? 0 : whole_lists + 1;
  }
  return records;
}

}  // namespace varve
