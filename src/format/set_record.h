#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/step_text.h"
#include "core/unique_id.h"
#include "format/frame.h"

namespace varve {

/// Names a checkpoint set: what all ranks of `job` saved at `step`.
struct SetName {
  std::string job;
  uint64_t step = 0;
  auto operator<=>(const SetName&) const = default;
  /// As people write it: "run@7", "run@0.02".
  std::string to_string() const { return job + "@" + step_text(step); }
  /// As names of files and messages have it: the step is its number, whatever it is called.
  std::string key() const { return job + "@" + std::to_string(step); }
};

/// When a set of a job was made. What is newer has a higher step *and* was made later: what a run has left behind when
/// it went back gives way to nothing that it makes then, and pushes nothing of that out, where only so many are kept.
struct SetAge {
  uint64_t step = 0;
  uint64_t number = 0;  ///< SetRecord::number
  bool is_newer_than(const SetAge& other) const { return step > other.step && number >= other.number; }
};

/// One group of ranks in a set's record: the root of its tree, and the arena that was written for it.
struct GroupRecord {
  Score root;
  ArenaId hint;              ///< where the root was when the record was written
  uint64_t arena_bytes = 0;  ///< written for this group
};

/// A committed set (FORMAT.md, "Set record"). The set exists once the record lies in the catalog.
struct SetRecord {
  SetName name;
  int64_t created_s = 0;                       ///< by the clock of the machine that saved; for people only
  std::string scheme, policy, chunker, match;  ///< how it was saved, as on the command line
  uint64_t rank_count = 0;
  uint64_t file_count = 0;
  uint64_t raw_bytes = 0;  ///< of all regular files
  uint64_t new_bytes = 0;  ///< raw bytes that were not in the store before
  /// Counts the sets of a job as they are made, from 1; goes on over restarts, and with the set to other stores. 0: not
  /// known, in sets of older versions. `every=` of levels counts by it.
  uint64_t number = 0;
  UniqueId run;            ///< of the program that made the set; zeros: no program did, or it is not known
  uint64_t run_ranks = 0;  ///< that this run had on all nodes; 0: not known
  std::vector<GroupRecord> groups;

  uint64_t stored_bytes() const;  ///< written for this set
  /// Not so of a set in a node's own store that has only the ranks of its node: that is a checkpoint only together with
  /// what the other nodes have.
  bool has_all_ranks() const { return run_ranks == 0 || rank_count == run_ranks; }
};

/// Whether damaged bytes were the record of this set once: they begin as it does, up to the time of its making, or have
/// most of its roots. Said of another set of that name only if that was made in the very same second.
bool may_have_been(ByteSpan damaged, const SetRecord& record, const ScoreFunction& score);

/// Whether both have the same trees, group by group, and so the same content. Others may have it, too, in other trees.
bool same_trees(const SetRecord& a, const SetRecord& b);

ByteVector encode_set_record(const SetRecord& record, const ScoreFunction& score);
Result<SetRecord> decode_set_record(ByteSpan raw, const ScoreFunction& score);

/// Limits on names: a job's is 1 to 100 bytes, without '/' , '@' and control characters, and does not begin with '.' or
/// '-'.
Status check_job_name(std::string_view job);

inline constexpr uint64_t kSetRecordBytesMax = 64_MiB;

}  // namespace varve
