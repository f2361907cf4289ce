#pragma once

#include <deque>
#include <optional>
#include <string>
#include <string_view>

#include "snapshot/segment_names.h"
#include "snapshot/shared_segment.h"

namespace varve {

/// The grids of a rank: shared memory that the program computes in, and lends. One thread at a time.
class GridPool {
 public:
  enum class Use {
    program,   ///< the program's, to read and write
    spare,     ///< nobody's
    lent,      ///< for the next checkpoint; the program may read it
    snapshot,  ///< a slot refers to it
  };
  struct Grid {
    std::string name;
    SharedSegment memory;
    uint64_t bytes = 0;  ///< that were asked for
    Use use = Use::program;
    uint64_t fill_number = 0;  ///< of the snapshot that refers to it; 0: none
  };

  GridPool(SegmentOwner owner, uint32_t spares) : owner_(std::move(owner)), spares_(spares) {}

  /// Zeroed and touched. With the second grid of a name come its spares. invalid_argument: earlier ones of that name
  /// have another size; no_space.
  Result<std::byte*> make(std::string_view name, uint64_t bytes);
  /// Makes the spares of a name that are not there yet.
  Status make_spares(std::string_view name);
  /// The number of the grid that begins at `data`.
  std::optional<uint32_t> find(std::string_view name, const std::byte* data) const;
  Grid& at(uint32_t grid) { return grids_[grid]; }
  const Grid& at(uint32_t grid) const { return grids_[grid]; }
  uint32_t size() const { return static_cast<uint32_t>(grids_.size()); }
  /// Removes the files; the memory stays mapped to the end.
  Status unlink() const;

 private:
  Status add(std::string_view name, uint64_t bytes, Use use);

  SegmentOwner owner_;
  uint32_t spares_;
  std::deque<Grid> grids_;  ///< by number; none ever goes, since the program has its address
};

}  // namespace varve
