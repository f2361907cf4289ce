#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/box_search.h"
#include "core/cell_box.h"
#include "snapshot/variable_table.h"
#include "varve/communicator.h"
#include "varve/status.h"

namespace varve {

/// A rank's box of an array, slowest dimension first.
struct RankBox {
  uint32_t rank = 0;
  CellBox box;
};
/// Of arrays, by their names: what each rank has of them, in the order of ranks.
using RankBoxes = std::map<std::string, std::vector<RankBox>>;

/// What all ranks have of the arrays whose cells name owners (ElementOwners::array), as they have protected them now.
/// Collective.
Result<RankBoxes> agree_on_boxes(Communicator& ranks, const std::vector<WantedVariable>& variables);

/// The same of all arrays that lie in a whole; of those that are `around`, by name, only what has cells of that box.
/// Collective.
Result<RankBoxes> agree_on_all_boxes(Communicator& ranks, const std::vector<WantedVariable>& variables,
                                     const std::map<std::string, CellBox>& around);

/// Whether all ranks want variables of the same names, by the same rules. Collective.
Result<bool> want_alike(Communicator& ranks, const std::vector<WantedVariable>& variables);

/// Of what one rank has saved of a vector, the elements that come to a rank, one run after the other.
struct OwnedElements {
  std::vector<CellRun> runs;  ///< from: the ordinal there; to: here
  uint64_t saved = 0;         ///< elements there
};

/// Asks for the owners of elements, in their order. One for each restart and key.
class OwnerSearch {
 public:
  /// `key` is the vector, as it is protected. All of these outlive it.
  OwnerSearch(const OwnerRule& rule, const std::vector<WantedVariable>& variables, const RankBoxes& boxes,
              uint32_t rank_count);

  /// The next elements' owners, one after the other. invalid_argument: one is nobody's.
  Status find(ByteSpan elements, uint64_t element_bytes, const std::function<void(uint32_t owner)>& visit);

 private:
  Result<uint32_t> owner_of(const std::byte* element);
  /// Of `cell_`.
  Result<uint32_t> owner_of_cell();

  const OwnerRule& rule_;
  const std::vector<RankBox>* boxes_ = nullptr;
  std::optional<BoxSearch> search_;  ///< of them: of several that have a cell, the first counts
  const uint32_t rank_count_;
  std::vector<uint64_t> cell_;
  bool reversed_ = false;  ///< the program names the fastest dimension first
};

}  // namespace varve
