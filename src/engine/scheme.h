#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/source.h"
#include "format/tree.h"
#include "varve/element_type.h"

namespace varve {

/// The order in which chunks are laid down before they are compressed (mcrEngine, section III-B).
enum class Scheme : uint8_t { agnostic, agnostic_block, aware, aware_block };
Result<Scheme> parse_scheme(std::string_view name);
std::string_view scheme_name(Scheme scheme);

/// The bytes of one variable, or of a file's skeleton, on their way into the store.
struct Stream {
  uint32_t file = 0;      ///< ordinal in the group
  uint32_t position = 0;  ///< in TreeFile::streams: 0 is the skeleton
  uint32_t class_id = 0;
  int64_t rank = -1;
  uint64_t bytes = 0;
  ElementType type;
  std::vector<uint64_t> dims;  ///< of the array that a run of it lies in, fastest first (codec.h, Run)
  std::vector<Extent> extents;
  std::vector<Reference> references;  ///< filled by the saver; `pack` is an ordinal in the group's packs
};

/// A part of a stream that is chunked on its own.
struct WorkItem {
  uint32_t stream = 0;
  uint64_t begin = 0, end = 0;
};

/// Gives the parts of a group's streams in the order of a scheme: by class (all of one class for the agnostic schemes),
/// then rank and file; the block schemes take a block of each stream in turn.
class WorkOrder {
 public:
  /// `streams` must outlive this. `block_bytes` counts for the block schemes.
  WorkOrder(const std::vector<Stream>& streams, Scheme scheme, uint64_t block_bytes);
  std::optional<WorkItem> next();

 private:
  std::optional<WorkItem> next_whole();
  std::optional<WorkItem> next_block();
  /// One past the last of order_ that has the class of `from`.
  size_t class_end(size_t from) const;

  const std::vector<Stream>& streams_;
  const bool blocks_;
  const bool by_class_;
  const uint64_t block_bytes_;
  std::vector<uint32_t> order_;
  size_t at_ = 0;  ///< next in order_
  size_t class_begin_ = 0, class_end_ = 0;
  size_t active_end_ = 0;  ///< of the class: the streams after it have no more blocks
  uint64_t block_ = 0;
  bool found_in_round_ = false;
};

/// Finds the rank of each regular file from the numbers in the names. Files whose paths differ only in digits are a
/// family; in a family of several the last number that varies is the rank; a file alone in its family has one if the
/// number follows a word such as `rank`, `cpu`, `proc`, `pe`, `task` or `node`. Others belong to no rank
/// (-1). `regex`, if not empty, decides instead: its first group (or all of the match) is the rank; files that it does
/// not match belong to none.
Status assign_ranks(std::vector<SourceFile>& files, const std::string& regex);

/// invalid_argument: this is no regular expression. An empty one decides nothing.
Status check_rank_regex(const std::string& regex);

/// The path with each run of digits replaced by '#'.
std::string path_family(std::string_view path);

}  // namespace varve
