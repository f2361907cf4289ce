#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "backend/backend.h"
#include "core/sync.h"
#include "s3/s3_client.h"

namespace varve {

/// What is called how in a part of a bucket (FORMAT.md, "In a bucket"): names begin with the part's address, keys with
/// its prefix.
class BucketNames {
 public:
  explicit BucketNames(const S3Place& place) : root_(place.to_string()), prefix_(place.prefix) {}

  const std::string& root() const { return root_; }
  const std::string& prefix() const { return prefix_; }
  Result<std::string> key_of(const std::string& name) const;
  /// What lies below a key, as a name; none if no name of ours has this key.
  static std::optional<std::string> name_of(std::string_view key);

 private:
  const std::string root_, prefix_;
};

/// The records in a part of a bucket. A record becomes an object by one PUT that fails if the name is taken, or by what
/// was not looked at; the request is signed as of a moment at which the record did not yet say what is to be committed,
/// and no service takes it later than 15 minutes after that. So others may remove a record that says so when it has
/// said the same for late_commit_seconds(), and not before.
///
/// Services remove without conditions. So who removes what may be made anew under its name says so before, by a note in
/// `removing/` that stays as long as the request may yet take effect; and who makes such an object looks for notes
/// before that and afterwards (COMMIT.md, "In a bucket").
class S3Records final : public Records {
 public:
  /// `client` and `names` outlive it.
  S3Records(S3Client& client, const BucketNames& names) : client_(client), names_(names) {}

  Status publish(const std::string& name, ByteSpan contents) override;
  Status replace(const std::string& name, ByteSpan contents) override;
  Result<std::unique_ptr<HeldRecord>> hold(const std::string& name, ByteSpan contents) override;
  Status touch(const std::string& name) override;
  Status remove_unchanged(const std::string& name, ByteSpan contents) override;
  Result<bool> remove_committed(const std::string& name, ByteSpan contents) override;
  // Nothing is put aside here.
  Status unhide(const std::string&, bool) override { return {}; }
  Status remove_hidden(const std::string&) override { return {}; }
  Status confirm(const std::string& name, ByteSpan contents) override;
  double late_commit_seconds() const override { return 3600; }
  Result<int64_t> now() override;

  /// Whether `name` may be made anew once it was removed: a set, or a remark of one.
  bool may_be_made_anew(const std::string& name) const;
  /// Removes such an object; OK if there is none.
  Status remove_noted(const std::string& name);

  /// Whether this record may become an object yet, whatever become() has said: what it needs must stay.
  bool is_undecided(const std::string& name);

 private:
  /// A record of which this process knows what it says.
  struct Held {
    Held(ByteSpan says, std::string is, int64_t at)
        : contents(says.begin(), says.end()), etag(std::move(is)), written_at(at) {}
    Mutex mutex;  ///< orders all writes of the record
    ByteVector contents VARVE_GUARDED_BY(mutex);
    std::string etag VARVE_GUARDED_BY(mutex);
    /// By the service's clock: the record has never said this before. A sign of life changes nothing of that: it leaves
    /// the same ETag, so that who is taking the record away would not see it.
    int64_t written_at VARVE_GUARDED_BY(mutex);
    /// Whether its maker has written it since it was made, and has had an answer. If not, it may have been taken away
    /// when it said nothing that is to be committed.
    bool rewritten VARVE_GUARDED_BY(mutex) = false;
  };
  class Record;
  std::shared_ptr<Held> held(const std::string& name);
  Status write(Held& held, const std::string& name, ByteSpan contents) VARVE_REQUIRES(held.mutex);
  void note_undecided(const std::string& name, int64_t since);
  /// Those that are so no more.
  void forget_decided() VARVE_REQUIRES(mutex_);
  Status make(const std::string& name, ByteSpan contents, const S3Condition& condition);
  /// Removes an object that may be made anew, if it says this; none: whatever it says. False: it says something else.
  Result<bool> remove_if(const std::string& name, std::optional<ByteSpan> contents);
  /// What must be so for an object to be made, or to be replaced by another.
  Result<S3Condition> condition_of(const std::string& key, IfExists if_exists);
  std::string notes_of(const std::string& key) const;
  /// Whether a removal that was begun before may yet take away what has the name. Removes notes, also those of other
  /// names, that say nothing more.
  Result<bool> is_being_removed(const std::string& key);
  Status outlast_removals(const std::string& name, const std::string& key);

  S3Client& client_;
  const BucketNames& names_;
  Mutex mutex_;
  std::map<std::string, std::shared_ptr<Held>> held_ VARVE_GUARDED_BY(mutex_);
  std::map<std::string, int64_t> undecided_ VARVE_GUARDED_BY(mutex_);  ///< and since when, by the service's clock
};

}  // namespace varve
