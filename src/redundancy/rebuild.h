#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/file_system.h"
#include "redundancy/member_files.h"
#include "redundancy/node_exchange.h"
#include "redundancy/parity_group.h"
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

// Redundancy over node failures: every member of a failure group calls these functions for itself, on its own folder,
// with the same group or plan as the others, and gets the others' blocks by an exchange. Memory is bounded: K + 1
// blocks of kParityBlockBytes, and what describes the group.
//
// Protect: describe_member() on each; all members put together make the ParityGroup; make_parity() on each.
// Rebuild: read_member_header() on each; agree_on_group(); survey_member() on each; RebuildPlan::create() of all
// surveys; rebuild() on each.
//
// Both may be stopped at any point, by a crash too, and done again: what was whole before stays whole, and no file gets
// its name before it is complete, checked and durable. A member that fails goes on with the rounds of the exchange, so
// that the others need not wait for it, and returns its first failure. The others' parity or files are good all the
// same; only all members' OK together mean that the whole group is protected. Not two at a time in one folder; files
// there whose names end in kUnfinishedSuffix are taken for leftovers, and removed.

/// Makes a member's redundancy file anew, durably. corrupt if a file of a member is not what the group says of it.
Status make_parity(FileSystem& fs, const std::string& folder, const ParityGroup& group, uint32_t position,
                   BlockExchange& exchange);

/// Makes what a member lost anew, durably: files that are damaged are replaced. OK at once, but for the rounds, if it
/// has lost nothing. corrupt if blocks of another member are not what they were, or a rebuilt file is not what it was:
/// then look again at what is whole (survey_member()).
Status rebuild(FileSystem& fs, const std::string& folder, const RebuildPlan& plan, uint32_t position,
               BlockExchange& exchange);

}  // namespace varve
