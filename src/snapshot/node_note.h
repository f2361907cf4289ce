#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/bytes.h"
#include "core/process.h"
#include "core/unique_id.h"
#include "snapshot/control_block.h"
#include "snapshot/shared_segment.h"
#include "varve/status.h"

namespace varve {

/// What a run says of itself in the memory of a node, beside its snapshots, so that somebody who never ran the program
/// can bring these to the next level once it is dead: a job's key (SegmentFamily) tells neither its name nor its
/// levels. The rank that speaks for the node writes it, whenever the run begins to save.
struct NodeNote {
  /// Ranks of this node that save one part of a set together.
  struct Group {
    uint32_t ordinal = 0, count = 1;  ///< of the part, where the run saves first (PartName)
    std::vector<uint32_t> members{};  ///< ascending, never empty
    bool crosses_nodes = false;       ///< some are on other nodes
    bool operator==(const Group&) const = default;
  };

  /// As which the same processes saved before they went back; of what they have made so, the run goes on behind what
  /// has neither a higher step nor a higher number. All else they have left behind.
  struct Earlier {
    UniqueId run;
    uint64_t last_step = 0, last_number = 0;
    bool operator==(const Earlier&) const = default;
  };

  UniqueId run;             ///< as which it saves: parts of its sets are called by it
  uint32_t rank_count = 1;  ///< on all nodes
  std::string job{};
  std::string levels{};  ///< as parse_levels() takes them; places as they are known from any folder
  std::string node{};    ///< as VARVE_NODE says, or empty
  uint32_t node_ordinal = 0, node_count = 1;
  std::string key_file{}, s3_endpoint{};
  std::string scheme{}, codec{};  ///< parts of one set are saved alike
  std::vector<Group> groups{};
  std::vector<std::string> spill_folders{};
  std::vector<Earlier> earlier{};
  /// Of the sets that the run makes since it went back, the first has it; 0: it did not. What it then kept in memory
  /// may have a number that a set has which was left behind.
  uint64_t first_number = 0;
  /// What the run went on from where that was in memory alone: it saves it anew, as its own.
  std::optional<CheckpointId> copies{};
  bool operator==(const NodeNote&) const = default;
};

ByteVector encode_node_note(const NodeNote& note);
/// corrupt: it is none. What comes from it is as long as it can be, and no count is larger than its bytes allow.
Result<NodeNote> decode_node_note(ByteSpan raw);

/// Puts it beside the snapshots of `speaker`, in the place of the one that is there. If this fails there is none: an
/// older one would have what the run went back behind taken for its newest.
Status write_node_note(const SegmentOwner& speaker, const NodeNote& note);
Status remove_node_note(const SegmentOwner& speaker);

/// A note that was found, and whose it is.
struct FoundNote {
  SegmentOwner speaker;  ///< its family has the note's spill folders
  NodeNote note;
  int64_t written_ns = 0;  ///< when, by the folder's file system
};
/// The notes of this user's runs in a folder of shared memory. One that makes no sense (corrupt), or cannot be read, is
/// left out, and told of in `damaged`.
Result<std::vector<FoundNote>> find_node_notes(const std::string& folder, std::vector<Status>& damaged);

/// One process at a time on a node brings what a job has left there to other levels. A lock of a file, which goes with
/// its process.
class NodeDrainLock {
 public:
  /// none: another process has it.
  static Result<std::optional<NodeDrainLock>> try_take(const SegmentFamily& family);
  NodeDrainLock(NodeDrainLock&& other) noexcept = default;
  NodeDrainLock& operator=(NodeDrainLock&& other) noexcept = default;
  ~NodeDrainLock();

  /// Whether somebody has it.
  static bool is_taken(const SegmentFamily& family);

 private:
  NodeDrainLock(std::string path, UniqueFd file) : path_(std::move(path)), file_(std::move(file)) {}
  std::string path_;
  UniqueFd file_;
};

}  // namespace varve
