#pragma once

#include <cstdint>
#include <string>

#include "core/file_system.h"
#include "redundancy/block_exchange.h"
#include "redundancy/parity_group.h"
#include "redundancy/rebuild_plan.h"
#include "varve/status.h"

namespace varve {

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
