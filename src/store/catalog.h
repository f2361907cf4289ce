#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "format/set_record.h"
#include "store/store.h"

namespace varve {

struct SetRemarks;

/// The committed sets of a store. Stateless: each call looks at the folder as it is now.
class Catalog {
 public:
  explicit Catalog(const Store& store) : store_(store) {}

  Result<std::vector<std::string>> jobs() const;
  /// The steps of `job`, ascending; empty if there is no such job.
  Result<std::vector<uint64_t>> steps(const std::string& job) const;
  /// The same in the order in which they were committed, as the file system has stamped their records.
  Result<std::vector<uint64_t>> steps_by_age(const std::string& job) const;
  /// The number that the next set of `job` gets (SetRecord::number). Sets of versions that did not number them count as
  /// one each, and so do damaged ones that came last.
  Result<uint64_t> next_number(const std::string& job) const { return next_number(job, Unreadable::fails); }
  /// What cannot be read now, but may be later, either fails it, or counts as what is damaged does: for a run that
  /// makes sets all the same, which are then newer than these as far as can be told.
  enum class Unreadable : uint8_t { fails, counts };
  Result<uint64_t> next_number(const std::string& job, Unreadable unreadable) const;
  /// All sets by job and step.
  Result<std::vector<SetName>> sets() const;
  Result<SetRecord> read(const SetName& name) const;
  /// Whether a set of this name is committed.
  Result<bool> has(const SetName& name) const;
  /// The committed set that people mean by this name: it, or, for a count that is not there, the time of that many.
  /// None: there is none.
  Result<std::optional<SetName>> find(const SetName& name) const;
  /// Whether steps of the job are times, so that "1" is one, too.
  Result<bool> has_times(const std::string& job) const;
  /// already_exists if a set of this name is committed, with a hint what to do.
  Status check_is_new(const SetName& name, Hint hint = {}) const;
  /// The status to report for a `status` met while the set was read: a set that is dropped takes its arenas with it, in
  /// time, so that what looks corrupt is not_found if the set is gone by now.
  Status unless_dropped(const SetName& name, Status status) const;
  /// "JOB@STEP", "JOB@TAG" for the newest of its sets that has the tag, or "JOB" for its newest. not_found names what
  /// there is instead.
  Result<SetName> resolve(std::string_view text) const;
  /// Makes durable which sets of `job` are there: for who relies on one that he has not committed himself, and whose
  /// saver may not have come to it. He has a PowerWatch from before he saw it.
  Status make_durable(const std::string& job) const;
  /// Makes a set invisible, whatever it is. Its space comes back with the next prune.
  Status remove(const SetName& name) const;
  /// Whether a set is to go, as it is right before, with what is said of it, if anything. Another one that somebody has
  /// committed under its name meanwhile, however late, stays.
  using StillGoes = std::function<bool(const SetRecord& record, const SetRemarks* said)>;
  enum class Removal : uint8_t { removed, was_gone, is_another, is_pinned };
  /// The same for one of which no part is left (remove_used_parts()), if it still goes.
  Result<Removal> remove_if(const SetName& name, const StillGoes& goes) const;
  /// The same for many, at the cost of few; those that are not there are left out. What has gone for good is added to
  /// `removed`, also by a call that fails. `goes` is asked by several threads; what is pinned stays then. None: all go,
  /// and one that is pinned has all stay (permission_denied).
  Status remove_all(std::span<const SetName> names, std::vector<SetName>& removed, const StillGoes& goes = {}) const;
  /// Makes sets visible again that removals which were stopped have hidden, though they were not to go; and brings to
  /// their end those that were.
  Status unhide(const std::string& job) const;

  /// What a look at all jobs' folders shows.
  struct Listed {
    std::vector<SetName> sets{};       ///< by job and step
    std::vector<std::string> aside{};  ///< records that somebody removes, or has hidden (Records::remove_committed())
  };
  Result<Listed> list() const;

  std::string job_path(const std::string& job) const { return join_path(store_.sets_path(), job); }
  std::string record_path(const SetName& name) const {
    return join_path(job_path(name.job), std::to_string(name.step) + ".set");
  }

 private:
  Result<SetRecord> decode(const SetName& name, ByteSpan raw) const;
  Result<SetName> resolve_tag(const std::string& job, std::string_view tag) const;
  Result<Removal> remove_record(const SetName& name, const SetRemarks* said, const StillGoes& goes) const;
  Status forget_gone(const std::map<SetName, SetRemarks>& remarks, std::span<const SetName> gone,
                     std::vector<SetName>& removed) const;
  Result<std::vector<DirectoryEntry>> entries_of(const std::string& job) const;
  Status settle_after_removal(const std::string& job) const;

  const Store& store_;
};

}  // namespace varve
