#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "aggregate/set_files.h"
#include "core/progress.h"

namespace varve {

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
    uint64_t changed_bytes = 0;  ///< in elements that differ, or are only in one of the streams
    /// As in VariableChange.
    std::optional<double> difference_max{}, difference_rms{};
  };
  /// `type`: of the elements of both; what cannot be subtracted is compared byte by byte, as are streams of different
  /// lengths.
  Result<Outcome> compare(const StoredStream& a, const StoredStream& b, const ElementType& type);
  /// Reads no further than to the first difference.
  Result<bool> equal(const StoredStream& a, const StoredStream& b);

 private:
  /// Gives what may differ of the first `bytes` to `visit`, in windows of whole elements, until that returns false.
  Status visit_windows(const StoredStream& a, const StoredStream& b, uint64_t bytes,
                       const std::function<bool(ByteSpan, ByteSpan)>& visit);

  ProgressSink& progress_;
  StreamReader old_, new_;
  ByteVector old_window_, new_window_;
};

}  // namespace varve
