#pragma once

#include <vector>

#include "store/tree.h"

namespace varve {

/// A pattern as it looks `skip` bytes into its reference.
uint64_t pattern_at(const Reference& reference, uint64_t skip);

/// Where the bytes of a regular file are, in file order, whatever its streams are.
class FileReferences {
 public:
  /// Borrows nothing.
  explicit FileReferences(const TreeFile& file);

  /// Of the whole file.
  std::vector<Reference> all() const;
  /// Of a stream that consists of these extents of the file.
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

}  // namespace varve
