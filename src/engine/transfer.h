#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "codec/chooser.h"
#include "core/progress.h"
#include "store/catalog.h"
#include "store/commit.h"
#include "store/store.h"

namespace varve {

struct TransferOptions {
  /// Encode packs by this policy on the way, and keep the smaller of old and new. Scores do not change by it.
  std::optional<CodecPolicy> recode;
  /// Decode what travels, and check each of its chunks against its score, so that nothing damaged is passed on as good.
  /// Without it, frames are only checked against their checksums, and tables of chunks against their packs' scores.
  bool check_chunks = true;
  /// Read what the target has already, and send again what is damaged there. Without it, a pack counts as there if its
  /// table says so.
  bool check_held = false;
  size_t thread_count = 0;                ///< 0: as many as processors
  uint64_t memory_bytes = 256_MiB;        ///< for packs on their way; beside it, 150 bytes for each pack of the set
  bool direct_io = true;                  ///< write past the page cache where the file system can
  IfExists if_exists = IfExists::refuse;  ///< what to do with another set of that name in the target
  std::function<Status()> may_publish{};  ///< asked before the set or part is made visible; none: it may be
};

struct TransferReport {
  SetRecord record;        ///< of the set in the target
  bool was_there = false;  ///< the set was in the target before; only what it lacked there, if anything, was sent
  uint64_t sent_packs = 0, sent_nodes = 0;
  uint64_t sent_bytes = 0;                                ///< written to the target
  uint64_t held_packs = 0, held_bytes = 0;                ///< needed, and in the target already; bytes as stored there
  uint64_t recoded_packs = 0;                             ///< of sent_packs: came out smaller
  uint64_t recoded_from_bytes = 0, recoded_to_bytes = 0;  ///< of these: stored in the source, and in the target
  uint64_t unchecked_packs =
      0;  ///< of sent_packs: by a codec that this build lacks, so that only checksums were checked
};

/// Makes a set of `from` be in `to` as well, with the same content and scores, durably. Only packs and nodes that `to`
/// lacks travel. `to` may be written, read and pruned meanwhile, as may `from`; whatever fails, the set is in `to`
/// whole or not at all. If it is there, but something of it was lost, that is made good.
///
/// not_found: `from` has no such set (any more), or lacks something of it. corrupt: something of it is damaged in
/// `from`; or `to` has a set of that name, and damage in one of the stores, which the failure names, keeps the two from
/// being compared; or that set has the same files in other trees, and with `check_held` it was read and is damaged:
/// such trees cannot be sent, but repair_store() may mend them. already_exists: `to` has another set of that name, and
/// it is not to be replaced. invalid_argument: the stores have scores of different kinds, or what `from` has is of one
/// node's ranks alone. busy: a prune of `to` took this writer for dead, time and again.
Result<TransferReport> copy_set(const Store& from, const Store& to, const SetName& name,
                                const TransferOptions& options = {}, ProgressSink& progress = null_progress());

/// The same for what one of several writers has of a set, each in a store of its own: makes a part (store/commit.h)
/// of `to` of the set `part.set` of `from`, durably. complete_set() makes the set of all parts. Each group of the part
/// has an arena of its own in `to`, with its root at least, as FORMAT.md wants it ("Parts of a set").
///
/// A part of that name that is there is this one (`was_there`), or was left of another set of the step, or is damaged,
/// and is replaced. One that cannot be told from this one, as `from` is damaged, stays: corrupt. Fails else as
/// copy_set(); the report's `record` is the part's.
Result<TransferReport> copy_part(const Store& from, const Store& to, const PartName& part,
                                 const TransferOptions& options = {}, ProgressSink& progress = null_progress());

/// Whether two sets have the same files.
enum class Sameness : uint8_t {
  same,
  differs,
  unknown,  ///< something cannot be read that would tell
};

struct ContentComparison {
  Sameness sameness = Sameness::unknown;
  Status source_unread, there_unread;  ///< if unknown: why the set in `from` or `to`, or both, could not be read
};

/// Compares the files of two sets, whatever packs and trees they lie in: a folder that is saved twice may get other
/// trees, as more of it is in packs that are known then. Reads trees and tables of packs, not what is in these.
ContentComparison compare_content(const Store& from, const SetRecord& source, const Store& to, const SetRecord& there);
/// Whether they are known to have the same files: false also if that cannot be told.
bool same_content(const Store& from, const SetRecord& source, const Store& to, const SetRecord& there);

/// The sets of `job` (of all jobs, if it is empty) that `from` has, and `to` has not, or has otherwise, or so damaged
/// that this cannot be told; by job and step. Whether those that are there are whole is not looked at.
Result<std::vector<SetName>> sets_lacking(const Store& from, const Store& to, const std::string& job);

}  // namespace varve
