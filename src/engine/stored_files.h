#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "format/tree.h"
#include "store/catalog.h"
#include "store/store.h"

namespace varve {

/// Which files of a set are meant. Empty: all.
struct FileFilter {
  std::vector<std::string> globs;  ///< shell patterns; one without '/' may match the last component alone
  std::optional<int64_t> rank;
  bool all() const { return globs.empty() && !rank; }
  bool matches(const TreeFile& file) const;
};

/// The patterns of a filter that no file has matched yet: a slip in one of several is not to go unnoticed.
class IdlePatterns {
 public:
  explicit IdlePatterns(const FileFilter& filter);
  void note(const TreeFile& file);
  /// A warning about each that is left.
  std::vector<Status> warnings() const;

 private:
  std::vector<FileFilter> each_;  ///< one pattern in each
};

/// Whether something is damaged or missing, and not only out of reach now.
inline bool is_damage(const Status& status) {
  return status.code() == StatusCode::corrupt || status.code() == StatusCode::not_found;
}

/// A part of a set's tree that is damaged or missing, and with it the names of the files that it lists.
struct LostLeaves {
  Status why;
  Score node;               ///< that cannot be read
  uint64_t file_count = 0;  ///< that it lists; 0: not known
};

/// Visits the leaves of a set's tree in order, each verified. It ends at the first that cannot be read; with `lost`, it
/// tells of those that are damaged or missing, and goes on if that gives OK.
Status for_each_leaf(const Store& store, const SetRecord& record, const std::function<Status(const Leaf&)>& visit,
                     const std::function<Status(const LostLeaves&)>& lost = {});

/// Where some consecutive bytes of a file lie: in a stream.
struct FilePiece {
  uint64_t file_offset = 0, bytes = 0;
  size_t stream = 0;
  uint64_t stream_offset = 0;
};
/// All of a file, in order.
std::vector<FilePiece> file_pieces(const TreeFile& file);

/// Reads streams out of packs, keeping the last few packs decoded. One thread.
class StreamReader {
 public:
  explicit StreamReader(const Store& store, size_t packs_max = 16) : store_(store), packs_max_(packs_max) {}
  /// Fills `into` with the bytes of a stream from `offset`, verified. `leaf` is the one that holds the stream.
  Status read(const Leaf& leaf, const std::vector<Reference>& stream, uint64_t offset, MutableByteSpan into);

 private:
  Result<ByteSpan> range(const PackLink& link, const Extent& range);
  const Store& store_;
  const size_t packs_max_;
  std::list<std::pair<Score, Pack>> packs_;  ///< last used first
};

/// Fills `into` with a pattern as it lies `offset` bytes into its reference.
void fill_pattern(uint64_t pattern, uint64_t offset, MutableByteSpan into);

}  // namespace varve
