#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "redundancy/member_files.h"
#include "redundancy/parity_group.h"
#include "redundancy/stripe_geometry.h"
#include "varve/status.h"

namespace varve {

/// What has to be made anew in a failure group, and of what: found from what is whole on all members, and the same on
/// all that ask. Immutable; refers to the group, which must outlive it.
class RebuildPlan {
 public:
  /// A block of one part of a stripe. Parts are numbered as in ErasureCode: data, then parity.
  struct Task {
    uint32_t stripe = 0, part = 0;
    uint64_t block = 0;
  };

  /// `surveys` by position (internal for another number). not_found if more is lost than can be rebuilt: it names the
  /// nodes and what each of them lost.
  ///
  /// What is lost is looked at block by block, so that files of more nodes than promised can be rebuilt as long as they
  /// do not fall on one another.
  static Result<RebuildPlan> create(const ParityGroup& group, std::vector<MemberSurvey> surveys);

  const ParityGroup& group() const { return *group_; }
  const MemberSurvey& survey(uint32_t position) const { return surveys_[position]; }

  /// What a member has to make: its parity in the order of its redundancy file, then data in the order of its stream.
  std::vector<Task> tasks(uint32_t position) const;
  /// The most tasks that a member has.
  uint64_t rounds() const { return rounds_; }
  /// K parts of the task's stripe of which its part can be made; those first that need not be read.
  std::vector<uint32_t> sources(const Task& task) const;

  uint32_t member_of(uint32_t stripe, uint32_t part) const;
  /// What a data part has in a block: a range of its member's stream; the rest of the block is zeros.
  ByteRange data_range(uint32_t stripe, uint32_t part, uint64_t block) const;
  bool is_parity(uint32_t part) const { return part >= group_->geometry().data_parts(); }

 private:
  RebuildPlan(const ParityGroup& group, std::vector<MemberSurvey> surveys);
  bool is_lost(uint32_t stripe, uint32_t part, uint64_t block) const;
  uint32_t lost_parts(uint32_t stripe, uint64_t block) const;
  uint64_t blocks(uint32_t stripe) const { return parity_blocks(group_->geometry().stripe_bytes(stripe)); }
  /// OK if no block of any stripe lost more parts than there is parity.
  Status check() const;
  Status too_much_lost() const;

  const ParityGroup* group_;
  std::vector<MemberSurvey> surveys_;
  std::vector<std::vector<ByteRange>> lost_ranges_;  ///< of each member's stream, ascending
  uint64_t rounds_ = 0;
};

}  // namespace varve
