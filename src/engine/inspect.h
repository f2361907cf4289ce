#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/progress.h"
#include "engine/stored_files.h"
#include "format/set_record.h"
#include "format/tree.h"
#include "layout/layout.h"
#include "store/catalog.h"
#include "store/store.h"

namespace varve {

/// A pattern as it looks `skip` bytes into its reference.
uint64_t pattern_at(const Reference& reference, uint64_t skip);
/// What refers to so many bytes of it from there.
Reference part_of(const Reference& reference, uint64_t skip, uint64_t bytes);

/// Where the bytes of a regular file are, in file order, whatever its streams are.
class FileReferences {
 public:
  /// Borrows nothing.
  explicit FileReferences(const TreeFile& file);

  /// The whole file.
  std::vector<Reference> all() const;
  /// A stream that consists of these extents of the file.
  std::vector<Reference> of(const std::vector<Extent>& extents) const;

 private:
  struct Slice {
    uint64_t file_offset;
    Reference reference;
  };
  std::vector<Slice> slices_;
};

/// Makes variables like all others of the small ones, each with a stream of its own, behind those that are there. None
/// of them has a class_of: they are in the skeleton's.
void unfold_small_variables(TreeFile& file);

/// Ranges of packs' raw bytes, one for each reference.
using PackUses = std::map<Score, std::vector<Extent>>;

/// What of some references is shared.
struct Sharing {
  uint64_t bytes = 0;                ///< that an earlier set refers to as well
  std::map<SetName, uint64_t> with;  ///< how many of them each earlier set does; several may refer to the same
};

/// Looks for `uses`, which are of the set of `record`, in the trees of the sets that were saved before it and are still
/// there. Of a set that was saved in the same second, only another step of the same job can tell that it came later.
/// Warns of a set whose tree is damaged, and takes it to share nothing. Progress is in raw bytes of sets.
Result<Sharing> find_sharing(const Store& store, const SetRecord& record, const PackUses& uses, ProgressSink& progress);

struct VariableDetails {
  std::string name;
  ElementType type;
  std::vector<uint64_t> shape;
  std::string class_key;
  uint64_t bytes = 0;
  bool encoded = false;
};

struct FileDetails {
  std::string path;
  FileType type = FileType::regular;
  int64_t rank = -1;
  uint64_t bytes = 0;
  int64_t modified_s = 0;
  std::string format;
  uint64_t skeleton_bytes = 0;             ///< of no variable that has a name here
  uint64_t unnamed_variable_count = 0;     ///< small ones that are only counted
  std::vector<VariableDetails> variables;  ///< small ones, of the skeleton's class, last
};

/// What a set consists of, and what it shares: each raw byte is in a pattern, or in a pack that earlier sets refer to
/// as well, or it is the set's own: written when it was saved, or left by sets that have been dropped since.
struct SetDetails {
  SetRecord record;
  uint64_t pattern_bytes = 0;
  uint64_t own_bytes = 0;
  uint64_t shared_bytes = 0;
  std::map<SetName, uint64_t> shared_with;  ///< shared bytes by earlier set; several may have the same ones
  std::vector<FileDetails> files;
};
/// Reads the trees of earlier sets only if there are bytes that were not written for this one.
Result<SetDetails> inspect_set(const Store& store, const SetName& name, const FileFilter& filter = {},
                               ProgressSink& progress = null_progress());

enum class ChangeKind : uint8_t { same, changed, added, removed };

/// How a variable (or a file's skeleton, or a whole file) of one set differs from the same one of another.
struct VariableChange {
  std::string file{};      ///< path in the newer set, or the older if it was removed
  std::string variable{};  ///< empty: the skeleton, or the whole file
  bool whole_file = false;
  ChangeKind kind = ChangeKind::same;
  uint64_t old_bytes = 0, new_bytes = 0;  ///< in either set; 0 where it is not
  uint64_t changed_bytes = 0;             ///< in elements that differ, or that only one of the sets has
  /// For numeric variables of equal type and size: the largest absolute difference of two elements, and the root of
  /// their mean square. NaN: some difference is not finite.
  std::optional<double> difference_max{}, difference_rms{};
  /// Of a variable that is in both: the first element that differs, counted from 0 in the order in which they lie in
  /// the file, of so many bytes each.
  std::optional<uint64_t> first_changed{};
  uint64_t element_bytes = 1;
  std::vector<uint64_t> shape{};  ///< of the elements, slowest dimension first; empty: not known

  uint64_t larger_bytes() const { return std::max(old_bytes, new_bytes); }
};

struct SetDifference {
  SetName a, b;
  uint64_t bytes = 0;  ///< of all that was compared, the larger of both sizes
  uint64_t changed_bytes = 0;
  std::vector<VariableChange> changes;  ///< all that are not `same`; in the order of files
  uint64_t same_count = 0;
};
/// Compares two sets. Ranges with the same references are equal and are not read. Files are matched by path, else by
/// rank and name without digits; their variables by name. A file that was read as another format, or has no variable
/// in common, is compared as a whole.
Result<SetDifference> diff_sets(const Store& store, const SetName& a, const SetName& b,
                                ProgressSink& progress = null_progress());

struct ShareStatistics {
  uint64_t pack_count = 0, raw_bytes = 0, stored_bytes = 0;
};
struct StoreStatistics {
  uint64_t set_count = 0, arena_count = 0;
  uint64_t raw_bytes = 0;       ///< of all sets, as their programs wrote them
  uint64_t distinct_bytes = 0;  ///< raw bytes of the chunks that packs hold: after deduplication
  uint64_t packed_bytes = 0;    ///< the same after compression
  uint64_t metadata_bytes = 0;  ///< arenas without the bodies of packs, and set records
  uint64_t index_bytes = 0;     ///< disposable
  std::map<std::string, ShareStatistics> classes, chains;
  std::vector<SetName> damaged_sets;  ///< that need what no arena has: the sizes are without it
  Status first_damage;                ///< of them
  uint64_t stored_bytes() const { return packed_bytes + metadata_bytes; }
};
Result<StoreStatistics> store_statistics(const Store& store);

/// Gives the bytes of a regular file, which is one of `leaf`, in order, verified, to `take`.
Status read_leaf_file(const Store& store, const Leaf& leaf, const TreeFile& file,
                      const std::function<Status(ByteSpan)>& take);

/// Gives a file's bytes (or one variable's stored bytes) in order, verified, to `take`. not_found if the set has no
/// such file or variable. Progress is in bytes that were taken.
Status read_set_file(const Store& store, const SetName& name, const std::string& path, const std::string& variable,
                     const std::function<Status(ByteSpan)>& take, ProgressSink& progress = null_progress());

}  // namespace varve
