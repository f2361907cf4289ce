#pragma once

#include <memory>
#include <string>

#include "core/sync.h"
#include "mount/open_folder.h"
#include "mount/spool.h"

namespace varve {

/// A set that programs write: its folder, and what is noted of it in the spool. Stages:
///
///     open -> sealing -> sealed
///       ^--------'  the seal failed
///
/// Its folder is frozen while it is being sealed, and stays so: once it is sealed, only files that were open can still
/// be read. Thread-safe.
class OpenSet {
 public:
  /// Of a folder of the spool, with all that is in it already. What the last mount left in writing makes the set
  /// unfinished, which is noted in the spool. `realm`: the folder's number in the mount. `spool` and `clock` outlive
  /// it.
  static Result<std::shared_ptr<OpenSet>> load(uint32_t realm, SpooledSet spooled, const Spool& spool, Clock& clock,
                                               OpenFolderOptions options);

  uint32_t realm() const { return realm_; }
  const std::shared_ptr<OpenFolder>& folder() const { return folder_; }
  /// Its name cannot change while it is being sealed.
  SpooledSet spooled() const;
  /// The folder's name in the mount becomes another one. EBUSY: it is being sealed.
  Errno set_name(const std::string& name);
  /// A program was killed while it wrote: from now on the set is not sealed by itself, in this mount and, if this
  /// returns OK, in all later ones.
  Status note_unfinished();

  struct Summary {
    OpenFolder::Tally written;
    bool sealing = false;
    bool unfinished = false;
    Status failure;  ///< of the last attempt to seal it
  };
  Summary summary() const;

  /// Freezes its folder, and fails as that does.
  Errno begin_sealing(double quiet_seconds = 0);
  /// It failed: everything may change again.
  void give_up_sealing(const Status& why);
  void finish_sealing();

 private:
  enum class Stage : uint8_t { open, sealing, sealed };

  OpenSet(uint32_t realm, SpooledSet spooled, const Spool& spool, std::shared_ptr<OpenFolder> folder)
      : realm_(realm), spool_(spool), folder_(std::move(folder)), spooled_(std::move(spooled)) {}

  const uint32_t realm_;
  const Spool& spool_;
  const std::shared_ptr<OpenFolder> folder_;

  mutable Mutex mutex_;
  SpooledSet spooled_ VARVE_GUARDED_BY(mutex_);
  Stage stage_ VARVE_GUARDED_BY(mutex_) = Stage::open;
  Status failure_ VARVE_GUARDED_BY(mutex_);
};

}  // namespace varve
