#include "core/cell_box.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

namespace varve {

namespace {
/// More than any division of an array among ranks leaves on the way.
constexpr size_t kMissingBoxesMax = 100'000;
}  // namespace

bool CellBox::empty() const { return std::find(cells.begin(), cells.end(), 0) != cells.end(); }

uint64_t CellBox::cell_count() const {
  uint64_t count = 1;
  for (const uint64_t extent : cells) count *= extent;
  return count;
}

bool lies_in(const CellBox& box, const std::vector<uint64_t>& cells) {
  if (box.offset.size() != cells.size() || box.cells.size() != cells.size()) return false;
  for (size_t d = 0; d < cells.size(); ++d) {
    if (box.cells[d] > cells[d] || box.offset[d] > cells[d] - box.cells[d]) return false;
  }
  return true;
}

std::optional<CellBox> overlap(const CellBox& a, const CellBox& b) {
  CellBox both;
  for (size_t d = 0; d < a.cells.size(); ++d) {
    const uint64_t begin = std::max(a.offset[d], b.offset[d]);
    const uint64_t end = std::min(a.offset[d] + a.cells[d], b.offset[d] + b.cells[d]);
    if (begin >= end) return std::nullopt;
    both.offset.push_back(begin);
    both.cells.push_back(end - begin);
  }
  return both;
}

std::vector<CellBox> without(const CellBox& box, const CellBox& hole) {
  const std::optional<CellBox> common = overlap(box, hole);
  if (!common) return {box};
  std::vector<CellBox> rest;
  CellBox middle = box;  // what is cut in the dimensions from here on
  for (size_t d = 0; d < box.cells.size(); ++d) {
    const uint64_t begin = middle.offset[d], end = begin + middle.cells[d];
    const uint64_t cut_begin = common->offset[d], cut_end = cut_begin + common->cells[d];
    for (const auto& [from, to] : {std::pair(begin, cut_begin), std::pair(cut_end, end)}) {
      if (from == to) continue;
      CellBox& slab = rest.emplace_back(middle);
      slab.offset[d] = from;
      slab.cells[d] = to - from;
    }
    middle.offset[d] = cut_begin;
    middle.cells[d] = cut_end - cut_begin;
  }
  return rest;
}

bool have_common_cells(const CellBox& a, const CellBox& b) {
  for (size_t d = 0; d < a.cells.size(); ++d) {
    const uint64_t begin = std::max(a.offset[d], b.offset[d]);
    if (begin >= a.offset[d] + a.cells[d] || begin >= b.offset[d] + b.cells[d]) return false;
  }
  return true;
}

namespace {
/// Shares out the cells of one box after another to those that want them.
class CellSharing {
 public:
  CellSharing(std::span<const CellBox> boxes, size_t across) : boxes_(boxes), twice_max_(across) {}

  /// `across`: the boxes that have cells of `wanted`, ascending.
  Status share(const CellBox& wanted, const std::vector<size_t>& across) {
    const std::optional<std::pair<CellBox, CellBox>> halves =
        across.size() > kTogetherMax ? halve(wanted, across) : std::nullopt;
    if (!halves) return share_together(wanted, across);
    for (const CellBox& half : {halves->first, halves->second}) {
      std::vector<size_t> of_half;
      for (const size_t i : across) {
        if (have_common_cells(half, boxes_[i])) of_half.push_back(i);
      }
      VARVE_TRY(share(half, of_half));
    }
    return {};
  }
  CellShares take() {
    std::stable_sort(found_.shares.begin(), found_.shares.end(),
                     [](const CellShare& a, const CellShare& b) { return a.box < b.box; });
    return std::move(found_);
  }

 private:
  /// Of more boxes, each would be compared with the many pieces that those before it leave.
  static constexpr size_t kTogetherMax = 32;

  /// Between as many boxes on the one side as on the other, where few lie on both. None: nearly all do.
  std::optional<std::pair<CellBox, CellBox>> halve(const CellBox& wanted, const std::vector<size_t>& across) {
    size_t larger_of_best = across.size() - across.size() / 8, twice_of_best = 0;
    std::optional<std::pair<size_t, uint64_t>> best;
    std::vector<uint64_t> begins(across.size());
    for (size_t d = 0; d < wanted.cells.size(); ++d) {
      std::transform(across.begin(), across.end(), begins.begin(), [&](size_t i) { return boxes_[i].offset[d]; });
      const auto middle = begins.begin() + static_cast<ptrdiff_t>(begins.size() / 2);
      std::nth_element(begins.begin(), middle, begins.end());
      const uint64_t at = *middle;
      if (at <= wanted.offset[d] || at >= wanted.offset[d] + wanted.cells[d]) continue;
      size_t before = 0, behind = 0;
      for (const size_t i : across) {
        before += boxes_[i].offset[d] < at ? 1 : 0;
        behind += boxes_[i].offset[d] + boxes_[i].cells[d] > at ? 1 : 0;
      }
      const size_t twice = before + behind - across.size();
      if (std::max(before, behind) >= larger_of_best || twice > twice_max_) continue;
      larger_of_best = std::max(before, behind);
      twice_of_best = twice;
      best = {d, at};
    }
    if (!best) return std::nullopt;
    twice_max_ -= twice_of_best;
    const auto [d, at] = *best;
    std::pair<CellBox, CellBox> halves(wanted, wanted);
    halves.first.cells[d] = at - wanted.offset[d];
    halves.second.offset[d] = at;
    halves.second.cells[d] -= halves.first.cells[d];
    return halves;
  }

  Status share_together(const CellBox& wanted, const std::vector<size_t>& across) {
    std::vector<CellBox> missing = {wanted};
    for (const size_t i : across) {
      std::vector<CellBox> still_missing;
      for (CellBox& box : missing) {
        if (std::optional<CellBox> common = overlap(box, boxes_[i])) {
          found_.shares.push_back({i, std::move(*common)});
          for (CellBox& rest : without(box, boxes_[i])) still_missing.push_back(std::move(rest));
        } else {
          still_missing.push_back(std::move(box));
        }
      }
      missing = std::move(still_missing);
      if (found_.missing.size() + missing.size() > kMissingBoxesMax)
        return Status::resource_limit("the parts of an array lie across each other in too many pieces");
      if (missing.empty()) break;
    }
    std::move(missing.begin(), missing.end(), std::back_inserter(found_.missing));
    return {};
  }

  const std::span<const CellBox> boxes_;
  size_t twice_max_;  ///< so many boxes may be on both sides of cuts, all in all
  CellShares found_;
};
}  // namespace

Result<CellShares> share_cells(const CellBox& wanted, std::span<const CellBox> boxes) {
  std::vector<size_t> across;
  for (size_t i = 0; i < boxes.size(); ++i) {
    if (have_common_cells(wanted, boxes[i])) across.push_back(i);
  }
  CellSharing sharing(boxes, across.size());
  if (!wanted.empty()) VARVE_TRY(sharing.share(wanted, across));
  return sharing.take();
}

uint64_t cell_ordinal(const CellBox& box, const std::vector<uint64_t>& cell) {
  uint64_t ordinal = 0;
  for (size_t d = 0; d < cell.size(); ++d) ordinal = ordinal * box.cells[d] + (cell[d] - box.offset[d]);
  return ordinal;
}

Status for_each_cell_run(const CellBox& part, const CellBox& from, const CellBox& to,
                         const std::function<Status(const CellRun&)>& visit) {
  if (part.empty()) return {};
  // Runs go along the dimensions from `joined` on.
  size_t joined = part.cells.size();
  uint64_t run_cells = 1;
  while (joined > 0) {
    run_cells *= part.cells[--joined];
    if (part.cells[joined] != from.cells[joined] || part.cells[joined] != to.cells[joined]) break;
  }
  std::vector<uint64_t> cell = part.offset;
  while (true) {
    VARVE_TRY(visit({cell_ordinal(from, cell), cell_ordinal(to, cell), run_cells}));
    size_t d = joined;
    for (; d > 0; --d) {
      if (++cell[d - 1] < part.offset[d - 1] + part.cells[d - 1]) break;
      cell[d - 1] = part.offset[d - 1];
    }
    if (d == 0) return {};
  }
}

Status for_each_slab(const CellBox& box, uint64_t cells_max, const std::function<Status(const CellBox&)>& visit) {
  if (box.empty()) return {};
  // The dimensions behind `cut` are whole in each slab, those before it have one cell.
  size_t cut = box.cells.size();
  uint64_t row_cells = 1;  // in what is behind `cut`
  while (cut > 0 && row_cells * box.cells[cut - 1] <= cells_max) row_cells *= box.cells[--cut];
  if (cut == 0) return visit(box);
  --cut;
  const uint64_t thickness = cells_max / row_cells;
  CellBox slab = box;
  std::fill_n(slab.cells.begin(), cut, uint64_t{1});
  while (true) {
    const uint64_t end = box.offset[cut] + box.cells[cut];
    for (slab.offset[cut] = box.offset[cut]; slab.offset[cut] < end; slab.offset[cut] += slab.cells[cut]) {
      slab.cells[cut] = std::min(thickness, end - slab.offset[cut]);
      VARVE_TRY(visit(slab));
    }
    size_t d = cut;
    for (; d > 0; --d) {
      if (++slab.offset[d - 1] < box.offset[d - 1] + box.cells[d - 1]) break;
      slab.offset[d - 1] = box.offset[d - 1];
    }
    if (d == 0) return {};
  }
}

Status for_each_box_of_run(const std::vector<uint64_t>& array, uint64_t first, uint64_t cells,
                           const std::function<Status(const CellBox&)>& visit) {
  const size_t dimensions = array.size();
  std::vector<uint64_t> behind(dimensions + 1, 1);  // cells of one index of the dimension before
  for (size_t d = dimensions; d > 0; --d) behind[d - 1] = behind[d] * array[d - 1];
  while (cells > 0) {
    // The first dimension of which whole indices begin here.
    size_t cut = 0;
    while (cut < dimensions && (first % behind[cut + 1] != 0 || cells < behind[cut + 1])) ++cut;
    CellBox box;
    uint64_t rest = first;
    for (size_t d = 0; d < dimensions; ++d) {
      box.offset.push_back(rest / behind[d + 1]);
      box.cells.push_back(d < cut ? 1 : array[d]);
      rest %= behind[d + 1];
    }
    if (cut < dimensions) box.cells[cut] = std::min(array[cut] - box.offset[cut], cells / behind[cut + 1]);
    VARVE_TRY(visit(box));
    const uint64_t done = box.cell_count();
    first += done;
    cells -= done;
  }
  return {};
}

}  // namespace varve
