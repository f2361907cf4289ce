#pragma once

#include <optional>
#include <vector>

#include "snapshot/control_block.h"
#include "snapshot/segment_names.h"
#include "store/set_part.h"

namespace varve {

/// Makes the set of which a group has published its part, or sees that another group has done it, or that nobody will.
class SetCompletion {
 public:
  struct Set {
    SetRecord record;
    bool by_us = false;  ///< of all groups, this one committed it
  };

  /// `part` is the record of the part `own`, which is published.
  SetCompletion(const Store& store, PartName own, SetRecord part, IfExists if_exists)
      : store_(store), own_(std::move(own)), part_(std::move(part)), if_exists_(if_exists) {}

  /// The set; or nothing, as parts are missing that may still come. Fails if there will be none: already_exists (there
  /// is another of that name), as another group has told why it could not write its part, io_error (another group has
  /// gone on without a word), or as the store does, time after time.
  Result<std::optional<Set>> try_now();
  /// The groups whose parts have not come, as far as can be seen now.
  std::vector<uint32_t> missing() const;
  /// Takes the own part back, as it will be of no use.
  Status withdraw();

 private:
  Result<std::optional<Set>> look_at_catalog(const Status& why);
  Result<std::optional<Set>> look_at_parts();
  /// Whether the newest set is later, and of the same run.
  bool has_newer_of_run() const;
  Status failure_of_others() const;

  const Store& store_;
  const PartName own_;
  const SetRecord part_;
  const IfExists if_exists_;
  uint32_t failures_ = 0;
};

/// The leaders of the other groups on this node, as far as their memory tells of a checkpoint that failed.
class GroupSiblings {
 public:
  explicit GroupSiblings(const std::vector<SegmentOwner>& leaders);
  /// Whether one of them will do nothing more for the set of `step`: it gave it up, saw it complete, or died. Ask this,
  /// and then look for the set.
  bool any_is_done_with(uint64_t step) const;

 private:
  std::vector<ControlBlock> leaders_;
};

}  // namespace varve
