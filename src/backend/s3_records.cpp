#include "backend/s3_records.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <utility>

#include "core/unique_id.h"

namespace varve {

namespace {
constexpr uint64_t kBucketRecordBytesMax = 64_MiB;
/// Who commits a record that he wrote longer ago than this begins anew: services take the request for 15 minutes after
/// that, and it may have to be tried again.
constexpr int64_t kCommitSecondsMax = 600;
/// Services take a request for 15 minutes after it was signed, which is before its note is there; more, as their clocks
/// and ours are not quite the same.
constexpr int64_t kRemovalSecondsMax = 20 * 60;
constexpr std::string_view kRemoving = "removing/";
/// Who has made an object waits so long for the removal of an older one, which takes no time unless a reply was lost.
constexpr std::chrono::milliseconds kRemovalPause(50);
constexpr int kRemovalPausesMax = 40;
/// What a record says from when it is taken away until it is gone. It looks like a lease whose writer is not known.
constexpr std::string_view kTakenAway = "0 taken away\n";

bool is_plain_in_keys(char letter) {
  return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') || (letter >= '0' && letter <= '9') ||
         letter == '-' || letter == '.' || letter == '_' || letter == '/';
}

/// Keys have few kinds of letters (check_s3_key()): of others, and of "~", the hexadecimal number stands behind a "~".
std::string escaped(std::string_view name) {
  std::string key;
  for (const char letter : name) {
    if (is_plain_in_keys(letter)) {
      key.push_back(letter);
    } else {
      key += fmt::format("~{:02x}", static_cast<unsigned char>(letter));
    }
  }
  return key;
}

std::optional<unsigned> hex_digit(char digit) {
  if (digit >= '0' && digit <= '9') return static_cast<unsigned>(digit - '0');
  if (digit >= 'a' && digit <= 'f') return static_cast<unsigned>(digit - 'a') + 10;
  return std::nullopt;
}

/// A write that needs its object unchanged, and finds another or none.
Status gone_if_busy(const Status& status, const std::string& name) {
  return status.code() == StatusCode::busy ? Status::not_found("somebody has taken the record away", name) : status;
}
}  // namespace

Result<std::string> BucketNames::key_of(const std::string& name) const {
  if (name == root_) return prefix_;
  if (!name.starts_with(root_ + "/")) return Status::internal("this is no name in the bucket's part", name);
  return prefix_ + escaped(std::string_view(name).substr(root_.size() + 1));
}

std::optional<std::string> BucketNames::name_of(std::string_view key) {
  std::string name;
  for (size_t i = 0; i < key.size(); ++i) {
    if (key[i] != '~') {
      name.push_back(key[i]);
      continue;
    }
    const auto high = i + 2 < key.size() ? hex_digit(key[i + 1]) : std::nullopt;
    const auto low = high ? hex_digit(key[i + 2]) : std::nullopt;
    if (!low) return std::nullopt;
    name.push_back(static_cast<char>(16 * *high + *low));
    i += 2;
  }
  // One spelling alone.
  return escaped(name) == key ? std::optional(name) : std::nullopt;
}

bool S3Records::is_undecided(const std::string& name) {
  const MutexLock lock(mutex_);
  forget_decided();
  return undecided_.contains(name);
}

void S3Records::note_undecided(const std::string& name, int64_t since) {
  const MutexLock lock(mutex_);
  forget_decided();
  undecided_[name] = since;
}

void S3Records::forget_decided() {
  const int64_t now = client_.server_seconds();
  std::erase_if(undecided_,
                [&](const auto& one) { return static_cast<double>(now - one.second) >= late_commit_seconds(); });
}

/// Makes `contents`, which may be its own, all that it says, if nobody has taken it away.
Status S3Records::write(Held& held, const std::string& name, ByteSpan contents) {
  VARVE_ASSIGN(const std::string key, names_.key_of(name));
  if (!std::equal(contents.begin(), contents.end(), held.contents.begin(), held.contents.end())) {
    // Noted before, as it may say so from then on also if this fails.
    held.contents.assign(contents.begin(), contents.end());
    held.written_at = client_.server_seconds();
    held.rewritten = false;
  }
  const Result<std::string> etag = client_.put(key, held.contents, S3Condition::if_unchanged(held.etag));
  if (!etag.ok()) return gone_if_busy(etag.status(), name);
  held.etag = *etag;
  return {};
}

Result<S3Condition> S3Records::condition_of(const std::string& key, IfExists if_exists) {
  if (if_exists == IfExists::refuse) return S3Condition::if_absent();
  const Result<S3Object> there = client_.head(key);
  if (there.ok()) return S3Condition::if_unchanged(there->etag);
  return there.status().code() == StatusCode::not_found ? S3Condition::if_absent()
                                                        : Result<S3Condition>(there.status());
}

class S3Records::Record final : public HeldRecord {
 public:
  Record(S3Records& records, std::string name, std::string key, std::shared_ptr<Held> held)
      : records_(records), name_(std::move(name)), key_(std::move(key)), held_(std::move(held)) {}
  ~Record() override {
    if (removal_.joinable()) removal_.join();
    const MutexLock lock(records_.mutex_);
    // A newer one may have the name by now.
    const auto own = records_.held_.find(name_);
    if (own != records_.held_.end() && own->second == held_) records_.held_.erase(own);
  }

  Status rewrite(ByteSpan contents) override {
    const MutexLock lock(held_->mutex);
    VARVE_TRY(records_.write(*held_, name_, contents));
    held_->rewritten = true;
    return {};
  }

  Status become(const std::string& name, IfExists if_exists) override {
    VARVE_ASSIGN(const std::string key, records_.names_.key_of(name));
    const MutexLock lock(held_->mutex);
    const int64_t age_seconds = records_.client_.server_seconds() - held_->written_at;
    if (!held_->rewritten || std::abs(age_seconds) > kCommitSecondsMax)
      return Status::not_found("the record may have been taken away since it was written", name_);
    const bool may_be_anew = records_.may_be_made_anew(name);
    // Nobody is to see, and to rely on, what an older removal may take away.
    if (may_be_anew) VARVE_TRY(records_.outlast_removals(name, key));
    VARVE_ASSIGN(const S3Condition condition, records_.condition_of(key, if_exists));
    // Nobody takes the record away until it has said this for late_commit_seconds(), and the request is of no effect 15
    // minutes after it began to, however long this process is stopped in between.
    const S3Outcome published = records_.client_.put_as_of(key, held_->contents, condition, held_->written_at);
    const StatusCode code = published.status.code();
    // Busy: it came too late, or another object is there by now. That, too, says what became of the last try alone.
    const bool refused = code == StatusCode::already_exists || code == StatusCode::busy;
    if (published.repeated || (!published.status.ok() && !refused)) records_.note_undecided(name_, held_->written_at);
    if (code == StatusCode::already_exists && if_exists == IfExists::replace)
      return Status::busy("somebody else has made the object at the same time", name, "do it again");
    if (!published.status.ok() && !refused)
      return published.status.with_context("nobody knows whether " + name + " was published");
    if (published.status.ok() && may_be_anew) {
      const Status stays = records_.confirm(name, held_->contents);
      if (stays.code() == StatusCode::busy) records_.note_undecided(name_, held_->written_at);
      VARVE_TRY(stays);
    }
    if (published.status.ok() && !records_.is_undecided(name_)) remove_later();
    return published.status;
  }

 private:
  /// The set is there: nobody needs to wait for that.
  void remove_later() {
    const auto remove = [this] { records_.client_.remove(key_).ignore("a prune removes it in time"); };
    Result<Thread> started = start_thread(remove);
    if (!started.ok()) return remove();
    removal_ = *std::move(started);
  }

  S3Records& records_;
  const std::string name_, key_;
  const std::shared_ptr<Held> held_;
  Thread removal_;
};

Status S3Records::publish(const std::string& name, ByteSpan contents) {
  return make(name, contents, S3Condition::if_absent());
}

Status S3Records::replace(const std::string& name, ByteSpan contents) {
  return make(name, contents, S3Condition::none());
}

Status S3Records::make(const std::string& name, ByteSpan contents, const S3Condition& condition) {
  VARVE_ASSIGN(const std::string key, names_.key_of(name));
  const bool may_be_anew = may_be_made_anew(name);
  if (may_be_anew) VARVE_TRY(outlast_removals(name, key));
  VARVE_TRY(client_.put(key, contents, condition).status());
  return may_be_anew ? confirm(name, contents) : Status();
}

Result<std::unique_ptr<HeldRecord>> S3Records::hold(const std::string& name, ByteSpan contents) {
  VARVE_ASSIGN(const std::string key, names_.key_of(name));
  const int64_t written_at = client_.server_seconds();
  VARVE_ASSIGN(std::string etag, client_.put(key, contents, S3Condition::if_absent()));
  auto held = std::make_shared<Held>(contents, std::move(etag), written_at);
  auto record = std::make_unique<Record>(*this, name, key, held);
  const MutexLock lock(mutex_);
  held_[name] = std::move(held);
  return std::unique_ptr<HeldRecord>(std::move(record));
}

std::shared_ptr<S3Records::Held> S3Records::held(const std::string& name) {
  const MutexLock lock(mutex_);
  const auto found = held_.find(name);
  return found == held_.end() ? nullptr : found->second;
}

Status S3Records::touch(const std::string& name) {
  if (const std::shared_ptr<Held> own = held(name)) {
    const MutexLock lock(own->mutex);
    return write(*own, name, own->contents);
  }
  VARVE_ASSIGN(const std::string key, names_.key_of(name));
  VARVE_ASSIGN(const S3Contents contents, client_.read_all(key, kBucketRecordBytesMax));
  return gone_if_busy(client_.put(key, contents.bytes, S3Condition::if_unchanged(contents.etag)).status(), name);
}

Status S3Records::remove_unchanged(const std::string& name, ByteSpan contents) {
  VARVE_ASSIGN(const std::string key, names_.key_of(name));
  const Result<S3Contents> there = client_.read_all(key, kBucketRecordBytesMax);
  if (there.status().code() == StatusCode::not_found) return {};
  VARVE_TRY(there.status());
  if (as_text(there->bytes) != as_text(contents)) return {};
  // Services remove without conditions alone. What says this can be nobody's any more.
  const Status taken = client_.put(key, as_bytes(kTakenAway), S3Condition::if_unchanged(there->etag)).status();
  if (taken.code() == StatusCode::busy) return {};
  VARVE_TRY(taken);
  return client_.remove(key);
}

bool S3Records::may_be_made_anew(const std::string& name) const {
  if (name.starts_with(names_.root() + "/sets/")) return true;
  // But for what has a name of its own, and becomes a remark.
  return name.starts_with(names_.root() + "/remarks/") && name.find(".pinning.") == std::string::npos &&
         !name.ends_with(".tmp");
}

/// What the keys of all notes of removals of this object begin with.
std::string S3Records::notes_of(const std::string& key) const {
  return names_.prefix() + std::string(kRemoving) + key.substr(names_.prefix().size()) + ".";
}

Status S3Records::remove_noted(const std::string& name) { return remove_if(name, std::nullopt).status(); }

Result<bool> S3Records::remove_committed(const std::string& name, ByteSpan contents) {
  return remove_if(name, contents);
}

Result<bool> S3Records::remove_if(const std::string& name, std::optional<ByteSpan> contents) {
  VARVE_ASSIGN(const std::string key, names_.key_of(name));
  VARVE_ASSIGN(const UniqueId id, UniqueId::random());
  // Of a name that is never used again, so that it does not matter when it is removed.
  const std::string note = notes_of(key) + id.hex();
  // Noted before: whoever finds the note old knows that the removal is, however long this process was stopped.
  const int64_t signed_at = client_.server_seconds();
  const Status noted = client_.put(note, as_bytes("removal\n"), S3Condition::if_absent()).status();
  // Where there is no room for it, removals have to make some.
  if (noted.code() != StatusCode::no_space) VARVE_TRY(noted);
  const auto take_note_away = [&] { client_.remove(note).ignore("it says nothing more in a while"); };
  if (contents) {
    // Nobody relies on anything that takes its place from here on, until the note is gone.
    const Result<S3Contents> there = client_.read_all(key, kBucketRecordBytesMax);
    if (!there.ok() || as_text(there->bytes) != as_text(*contents)) {
      take_note_away();
      if (there.ok()) return false;
      if (there.status().code() != StatusCode::not_found) return there.status();
      return true;
    }
  }
  const S3Outcome removed = client_.remove_as_of(key, signed_at);
  if (removed.status.ok() && !removed.repeated) take_note_away();
  VARVE_TRY(removed.status);
  return true;
}

Result<bool> S3Records::is_being_removed(const std::string& key) {
  // All of them, as somebody has to remove the old ones, also those of what is never made anew.
  VARVE_ASSIGN(const S3Listing notes, client_.list(names_.prefix() + std::string(kRemoving)));
  const std::string own = notes_of(key);
  bool any = false;
  std::vector<std::string> old;
  for (const S3Object& note : notes.objects) {
    const int64_t age_seconds = client_.server_seconds() - note.modified_seconds;
    any = any || (note.key.starts_with(own) && age_seconds < kRemovalSecondsMax);
    if (static_cast<double>(age_seconds) >= late_commit_seconds()) old.push_back(note.key);
  }
  client_.remove_many(old).ignore("who makes the next object does");
  return any;
}

/// Waits for the removals of an older object of this name that are on their way. busy: they may be so still.
Status S3Records::outlast_removals(const std::string& name, const std::string& key) {
  for (int pauses = 0;; ++pauses) {
    const Result<bool> removing = is_being_removed(key);
    if (removing.ok() && !*removing) return {};
    if (removing.ok() && pauses < kRemovalPausesMax) {
      sleep_for(kRemovalPause);
      continue;
    }
    return Status::busy(removing.ok() ? "what had this name before may still be on its way out"
                                      : "nobody knows whether what had this name before is still on its way out: " +
                                            removing.status().to_string(),
                        name, "do it again in 20 minutes");
  }
}

Status S3Records::confirm(const std::string& name, ByteSpan contents) {
  VARVE_ASSIGN(const std::string key, names_.key_of(name));
  if (may_be_made_anew(name)) VARVE_TRY(outlast_removals(name, key));
  // Also where there is no note of a removal now: it may have begun after its maker's first look, and have ended since.
  const Result<S3Contents> there = client_.read_all(key, kBucketRecordBytesMax);
  if (there.ok() && as_text(there->bytes) == as_text(contents)) return {};
  if (there.ok() || there.status().code() == StatusCode::not_found)
    return Status::not_found("it was removed as soon as it was there", name);
  return Status::busy("nobody knows whether it is there: " + there.status().to_string(), name,
                      "do it again in 20 minutes");
}

Result<int64_t> S3Records::now() {
  VARVE_ASSIGN(const std::string key, names_.key_of(join_path(names_.root(), "varve.store")));
  const Status asked = client_.head(key).status();
  if (asked.code() != StatusCode::not_found) VARVE_TRY(asked);
  return client_.server_seconds() * 1'000'000'000;
}

}  // namespace varve
