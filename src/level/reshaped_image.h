#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "core/cell_box.h"
#include "format/image.h"
#include "level/checkpoint_parts.h"
#include "level/level.h"
#include "snapshot/variable_table.h"
#include "varve/status.h"

namespace varve {

/// Whether a rank can go on with what one rank has saved: an image of a run of as many ranks, in which each of the
/// rank's variables lies where it does now.
bool is_same_part(const RankWish& wish, uint32_t rank_count, const ImageTable& table);

/// Ranks that follow each other.
struct RankRange {
  uint32_t first = 0, end = 0;
};

/// Of a vector that is divided: how many elements came to a rank, and how many all ranks had saved.
struct DividedElements {
  uint64_t taken = 0, saved = 0;
  uint64_t owners = 0;  ///< a hash of whose each of them is, in their order; 0: it is divided evenly
};

/// What a rank wants of a checkpoint, taken from the parts of the ranks that made it, however many these were:
///
/// - Of a variable that says where it lies in the whole (ImageVariable::global_shape), the cells that the rank has now,
///   each from the lowest rank that saved it.
/// - Of anything else, if the run has as many ranks as the one before, what the rank of the same number saved; unless
///   arrays are divided anew, and it is a vector that is to be divided by owners.
/// - Of a vector that is to be divided evenly, the rank's share of all elements, in the order of ranks; of one that is
///   to be divided by owners, those that are the rank's.
/// - Of the rest, what all ranks have saved alike, or nothing, as Redistribution says. An array or vector that has one
///   value throughout says nothing: all ranks may have begun with it.
class ReshapedImage final : public RankImage {
 public:
  /// invalid_argument: a variable is not in the checkpoint, or of another type or whole shape there, or what the ranks
  /// saved of it differs and it does not say how it is to be divided; corrupt: the parts are not all there. Collective
  /// where the parts are read so (CheckpointParts::serve()), as is load().
  static Result<std::unique_ptr<RankImage>> plan(const RankWish& wish, std::unique_ptr<CheckpointParts> parts,
                                                 size_t threads);

  const ImageTable& table() const override { return table_; }
  Status load(ImageTarget& target) override;
  std::optional<SetOrigin> origin() const override { return parts_->origin(); }
  std::vector<Status> left_out() const override { return left_out_; }
  const ReshapedImage* as_reshaped() const override { return this; }

  /// Whether there are as many ranks as before, and this one has arrays at other places.
  bool is_divided_anew() const { return is_divided_anew_; }
  /// Variables that the checkpoint has, and of which nothing comes back (Redistribution::ignore).
  const std::set<std::string>& ignored() const { return ignored_; }
  /// Of vectors that are divided, by name.
  const std::map<std::string, DividedElements>& divided() const { return divided_; }
  /// One of `of` equal shares of the ranks that have saved it.
  RankRange share(size_t ordinal, size_t of) const;
  /// Of arrays that lie in a whole, by name, a box around what these have saved.
  std::map<std::string, CellBox> boxes_around(const RankRange& share) const;
  /// Of such arrays, which cells no rank wants that one of these had saved, in words. `wanted`: of all, at least what
  /// has cells of boxes_around().
  Result<std::vector<Status>> unwanted(const RankBoxes& wanted, const RankRange& share) const;
  bool is_of_own_node() const override { return parts_->is_of_own_node(); }

 private:
  /// Cells of a variable that one rank has.
  struct Source {
    uint32_t rank = 0;
    CellBox part;              ///< of the whole array
    CellBox from;              ///< what the rank has of it
    uint64_t from_offset = 0;  ///< of that in the rank's image
    CellBox to;                ///< what is wanted
    size_t variable = 0;       ///< its ordinal
    /// In place of all cells of the part, which is the whole of what the rank has: these, in their order.
    std::shared_ptr<const OwnedElements> owned{};
  };
  class Planner;
  class FromRank;

  ReshapedImage(std::unique_ptr<CheckpointParts> parts, size_t threads) : parts_(std::move(parts)), threads_(threads) {}

  const std::unique_ptr<CheckpointParts> parts_;
  const size_t threads_;
  ImageTable table_;
  std::vector<Source> sources_;  ///< by rank
  std::vector<Status> left_out_;
  bool is_divided_anew_ = false;
  std::set<std::string> ignored_;
  std::map<std::string, DividedElements> divided_;
};

}  // namespace varve
