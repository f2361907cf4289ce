#pragma once

#include <cstdint>
#include <vector>

#include "core/bytes.h"
#include "engine/stored_files.h"
#include "format/tree.h"
#include "reader/stored_variables.h"
#include "varve/status.h"

namespace varve {

/// Bytes of a file of a set, to be read anywhere: those of a part, or all of them. Borrows the part, or the leaf and
/// the file. Immutable.
class PartStream {
 public:
  explicit PartStream(const StoredPart& part);
  PartStream(const Leaf& leaf, const TreeFile& file);

  uint64_t bytes() const { return ends_.empty() ? 0 : ends_.back(); }
  /// Fills `into` from `offset`; corrupt: there is not as much, or the store is damaged, which a remedy says. Any
  /// thread, each with a reader of its own.
  Status read(StreamReader& reader, uint64_t offset, MutableByteSpan into) const;

 private:
  const std::vector<Reference>& references() const { return references_ != nullptr ? *references_ : own_; }
  void find_ends();

  const Leaf& leaf_;
  const std::vector<Reference>* references_ = nullptr;  ///< null: `own_`
  std::vector<Reference> own_;
  std::vector<uint64_t> ends_;  ///< of each reference, in the stream
};

}  // namespace varve
