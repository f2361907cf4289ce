#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/progress.h"
#include "engine/folder_source.h"
#include "engine/stored_files.h"
#include "store/catalog.h"
#include "varve/element_type.h"

namespace varve {

/// Adds up by how much elements of one numeric type differ. Integers are subtracted as such, so that no digit is lost
/// before the difference is known.
class ElementDifference {
 public:
  explicit ElementDifference(const ElementType& type) : type_(type) {}
  /// Whether elements of `type` can be subtracted here.
  static bool is_defined_for(const ElementType& type);

  /// Two elements as they lie in their files.
  void add(const std::byte* old_element, const std::byte* new_element);

  /// The largest absolute difference, 0 if there is none. NaN: some difference is not a finite number.
  double largest() const;
  /// The root of the mean square over `element_count` elements, of which those that were not added are equal. NaN
  /// likewise.
  double rms(uint64_t element_count) const;

 private:
  const ElementType type_;
  double largest_ = 0;
  double root_of_squares_ = 0;
  bool finite_ = true;
};

/// A stream, and the leaf that says where its bytes are. Borrows both.
struct StoredStream {
  const Leaf& leaf;
  const std::vector<Reference>& references;
  uint64_t bytes() const;
};

/// Compares streams of sets. Ranges that refer to the same bytes are equal and are not read. One thread.
class StreamComparer {
 public:
  StreamComparer(const Store& store, ProgressSink& progress) : progress_(progress), old_(store), new_(store) {}

  struct Outcome {
    uint64_t changed_bytes = 0;               ///< in elements that differ, or are only in one of the streams
    std::optional<uint64_t> first_changed{};  ///< where in the stream the first element is that differs, in bytes
    /// As in VariableChange.
    std::optional<double> difference_max{}, difference_rms{};
  };
  /// `type`: of the elements of both; what cannot be subtracted is compared byte by byte, as are streams of different
  /// lengths.
  Result<Outcome> compare(const StoredStream& a, const StoredStream& b, const ElementType& type);
  /// Reads no further than to the first difference.
  Result<bool> equal(const StoredStream& a, const StoredStream& b);

 private:
  /// Gives what may differ of the first `bytes` to `visit`, with where it begins, in windows of whole elements, until
  /// that returns false.
  Status visit_windows(const StoredStream& a, const StoredStream& b, uint64_t bytes,
                       const std::function<bool(uint64_t at, ByteSpan, ByteSpan)>& visit);

  ProgressSink& progress_;
  StreamReader old_, new_;
  ByteVector old_window_, new_window_;
};

enum class FolderMatch : uint8_t {
  whole,    ///< the set has these files, and no others
  part,     ///< it has these files, and more
  differs,  ///< some of these it has not, or otherwise
};

/// Whether a set has `files`, as scan_source_tree() finds them: by paths, types, sizes, modes, times and link targets.
/// Folders count by their paths alone, for their times change with what is in them. Reads trees, but no data.
Result<FolderMatch> match_folder(const Store& store, const SetRecord& record, const std::vector<SourceFile>& files);

/// Reads the files of `reader` and what a set has of them, and compares all bytes. corrupt: a file differs, or the set
/// lacks it, or it cannot be read back. Progress is in raw bytes.
Status check_saved(const Store& store, const SetRecord& record, SourceReader& reader,
                   ProgressSink& progress = null_progress());

}  // namespace varve
