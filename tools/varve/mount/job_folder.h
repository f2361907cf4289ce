#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/sync.h"
#include "mount/mount_context.h"
#include "mount/set_listing.h"

namespace varve {

/// A job's folder in a mount: its sets, committed and open, and links to steps. A set is made as a folder, is sealed by
/// a rename to a name that is not temporary, and is dropped with its folder, once everything in that was removed.
class JobFolder final : public MountedFolder, public std::enable_shared_from_this<JobFolder> {
 public:
  /// `realm`: its number. `context` outlives it.
  JobFolder(MountContext& context, uint32_t realm, std::string name)
      : context_(context), realm_(realm), name_(std::move(name)) {}

  const std::string& name() const { return name_; }
  /// Whether it is there even without any set.
  bool is_spooled() const;
  void note_spooled();
  /// Removes the job, if it has no sets.
  Errno remove_job();

  /// Shows a set of the spool, which is open.
  Result<std::shared_ptr<OpenSet>> adopt(SpooledSet spooled);
  /// Commits an open set under the step that `alias` tells, unless something came in the last `quiet_seconds`.
  Status seal(const std::shared_ptr<OpenSet>& set, const std::string& alias, double quiet_seconds);
  /// Seals the sets that have become quiet. What fails is tried again later, ever less often.
  void seal_quiet_sets();

  MountResult<NodeView> look(uint32_t id) override;
  MountResult<NodeView> find(uint32_t folder, const std::string& name) override;
  MountResult<std::vector<ListedName>> list(uint32_t folder) override;
  MountResult<std::string> read_link(uint32_t id) override;
  MountResult<NodeView> make_folder(uint32_t folder, const std::string& name, uint32_t mode) override;
  Errno remove(uint32_t folder, const std::string& name, int flags) override;
  Errno rename(uint32_t folder, const std::string& name, uint32_t new_folder, const std::string& new_name,
               unsigned flags) override;

 private:
  struct Writing {
    std::shared_ptr<OpenSet> set;
    double retry_at = 0, retry_pause = 0;  ///< of sealing it by itself
  };

  std::shared_ptr<OpenSet> open_set(const std::string& name) const;
  /// What parse_step_name() says of a name among what there is of the job, stored and open.
  std::optional<StepName> step_named(const std::string& name) const;
  MountResult<std::shared_ptr<StoredSet>> stored_set(uint64_t step);
  /// That a name leads to a set of another one, by a link.
  void note_alias(const std::string& name, uint64_t step) VARVE_REQUIRES(mutex_);
  void show_sealed(OpenSet& set, const SetRecord& record, const std::string& alias);
  Errno discard(OpenSet& set, const std::string& name);
  Errno drop(uint64_t step);

  MountContext& context_;
  const uint32_t realm_;
  const std::string name_;

  mutable Mutex mutex_;  ///< nothing is waited for under it
  bool spooled_ VARVE_GUARDED_BY(mutex_) = false;
  bool latest_hidden_ VARVE_GUARDED_BY(mutex_) = false;
  std::map<std::string, Writing> open_ VARVE_GUARDED_BY(mutex_);
  /// Those that somebody has asked for.
  std::map<uint64_t, std::shared_ptr<StoredSet>> stored_ VARVE_GUARDED_BY(mutex_);
  /// Names that open sets had, of the sets that they became.
  std::map<std::string, uint64_t> aliases_ VARVE_GUARDED_BY(mutex_);
  std::map<uint32_t, uint64_t> alias_links_ VARVE_GUARDED_BY(mutex_);  ///< their numbers
};

/// The root of a mount: the folders of all jobs, those of the store and those that only the spool has.
class RootFolder final : public MountedFolder {
 public:
  explicit RootFolder(MountContext& context) : context_(context) {}

  /// Takes up what the spool holds from an earlier mount.
  Status take_up_spool();
  void seal_quiet_sets();

  MountResult<NodeView> look(uint32_t id) override;
  MountResult<NodeView> find(uint32_t folder, const std::string& name) override;
  MountResult<std::vector<ListedName>> list(uint32_t folder) override;
  MountResult<std::string> read_link(uint32_t) override { return Errno{EINVAL}; }
  MountResult<NodeView> make_folder(uint32_t folder, const std::string& name, uint32_t mode) override;
  Errno remove(uint32_t folder, const std::string& name, int flags) override;

 private:
  /// The folder for a job of that name, made if it is new.
  std::shared_ptr<JobFolder> job_named(const std::string& name);
  /// The job of that name, if the store or the spool has it.
  MountResult<std::shared_ptr<JobFolder>> find_job(const std::string& name);
  /// Drops a set from the spool if it was committed, else takes it up as open.
  Status take_up(JobFolder& job, const SpooledSet& spooled);
  /// All that were asked for, by name.
  std::vector<std::shared_ptr<JobFolder>> known_jobs() const;

  MountContext& context_;
  mutable Mutex mutex_;
  std::map<std::string, std::shared_ptr<JobFolder>> jobs_ VARVE_GUARDED_BY(mutex_);
};

}  // namespace varve
