#include "core/box_search.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace varve {

namespace {
/// So few are looked at one after the other.
constexpr size_t kLeafBoxes = 4;
/// Of a leaf with more, which could not be cut, it is not looked for boxes that are alone.
constexpr size_t kComparedBoxesMax = 64;

/// The last that is the box's, which is not empty.
uint64_t last_of(const CellBox& box, size_t dimension) {
  const uint64_t begin = box.offset[dimension];
  return begin + std::min(box.cells[dimension] - 1, UINT64_MAX - begin);
}

bool lie_across(const CellBox& a, const CellBox& b) {
  for (size_t d = 0; d < a.cells.size(); ++d) {
    if (a.offset[d] > last_of(b, d) || b.offset[d] > last_of(a, d)) return false;
  }
  return true;
}
}  // namespace

BoxSearch::BoxSearch(std::vector<CellBox> boxes, size_t dimensions)
    : boxes_(std::move(boxes)), dimensions_(dimensions), is_alone_(boxes_.size(), true) {
  std::vector<size_t> all;
  for (size_t i = 0; i < boxes_.size(); ++i) {
    if (boxes_[i].cells.size() == dimensions_ && !boxes_[i].empty()) all.push_back(i);
  }
  // As many again as there are boxes may be on both sides of cuts.
  const size_t twice_max = all.size();
  build(std::move(all), twice_max);
}

void BoxSearch::build(std::vector<size_t> boxes, size_t twice_max) {
  const std::optional<Cut> cut = boxes.size() > kLeafBoxes ? find_cut(boxes) : std::nullopt;
  if (!cut || cut->twice > twice_max) return add_leaf(std::move(boxes));
  std::vector<size_t> before, behind;
  for (const size_t i : boxes) {
    if (boxes_[i].offset[cut->dimension] < cut->at) before.push_back(i);
    if (last_of(boxes_[i], cut->dimension) >= cut->at) behind.push_back(i);
  }
  // What is left of it is shared out as the boxes are.
  const size_t left = twice_max - cut->twice;
  const size_t left_before = left * before.size() / (before.size() + behind.size());
  const size_t node = nodes_.size();
  nodes_.push_back({cut->dimension, cut->at, 0, {}});
  build(std::move(before), left_before);
  nodes_[node].other = nodes_.size();
  build(std::move(behind), left - left_before);
}

/// Between as many boxes on the one side as on the other, where that leaves fewest on the larger side. None: nearly all
/// are on one side.
std::optional<BoxSearch::Cut> BoxSearch::find_cut(const std::vector<size_t>& boxes) const {
  std::optional<Cut> best;
  const size_t fewer_min = std::max<size_t>(boxes.size() / 8, 1);  // so that cuts of cuts come to an end soon
  std::vector<uint64_t> firsts(boxes.size()), lasts(boxes.size());
  for (size_t d = 0; d < dimensions_; ++d) {
    for (size_t i = 0; i < boxes.size(); ++i) {
      firsts[i] = boxes_[boxes[i]].offset[d];
      lasts[i] = last_of(boxes_[boxes[i]], d);
    }
    std::sort(firsts.begin(), firsts.end());
    std::sort(lasts.begin(), lasts.end());
    const uint64_t middle_last = lasts[(lasts.size() - 1) / 2];
    for (const uint64_t at : {firsts[firsts.size() / 2], middle_last + (middle_last < UINT64_MAX ? 1 : 0)}) {
      const auto before = static_cast<size_t>(std::lower_bound(firsts.begin(), firsts.end(), at) - firsts.begin());
      const auto behind = static_cast<size_t>(lasts.end() - std::lower_bound(lasts.begin(), lasts.end(), at));
      const Cut cut{static_cast<uint32_t>(d), at, std::max(before, behind), before + behind - boxes.size()};
      if (cut.larger + fewer_min <= boxes.size() && (!best || cut.larger < best->larger)) best = cut;
    }
  }
  return best;
}

void BoxSearch::add_leaf(std::vector<size_t> boxes) {
  // Two with a common cell meet in the leaf that has it.
  for (size_t i = 1; i < boxes.size(); ++i) {
    const auto is_shared = [&](size_t earlier) { return lie_across(boxes_[earlier], boxes_[boxes[i]]); };
    if (boxes.size() > kComparedBoxesMax ||
        std::any_of(boxes.begin(), boxes.begin() + static_cast<ptrdiff_t>(i), is_shared))
      is_alone_[boxes[i]] = false;
  }
  nodes_.push_back({Node::kLeaf, 0, 0, std::move(boxes)});
}

bool BoxSearch::has(size_t box, const std::vector<uint64_t>& cell) const {
  const CellBox& of = boxes_[box];
  for (size_t d = 0; d < dimensions_; ++d) {
    if (cell[d] < of.offset[d] || cell[d] - of.offset[d] >= of.cells[d]) return false;
  }
  return true;
}

std::optional<size_t> BoxSearch::first_with(const std::vector<uint64_t>& cell) {
  if (cell.size() != dimensions_) return std::nullopt;
  if (last_ != SIZE_MAX && is_alone_[last_] && has(last_, cell)) return last_;
  size_t node = 0;
  while (nodes_[node].dimension != Node::kLeaf)
    node = cell[nodes_[node].dimension] < nodes_[node].at ? node + 1 : nodes_[node].other;
  const std::vector<size_t>& boxes = nodes_[node].boxes;
  const auto found = std::find_if(boxes.begin(), boxes.end(), [&](size_t box) { return has(box, cell); });
  if (found == boxes.end()) return std::nullopt;
  last_ = *found;
  return last_;
}

std::vector<size_t> BoxSearch::all_across(const CellBox& box) const {
  std::vector<size_t> found;
  if (box.cells.size() != dimensions_ || box.empty()) return found;
  std::vector<size_t> to_look_at = {0};
  while (!to_look_at.empty()) {
    const size_t place = to_look_at.back();
    const Node& node = nodes_[place];
    to_look_at.pop_back();
    if (node.dimension == Node::kLeaf) {
      std::copy_if(node.boxes.begin(), node.boxes.end(), std::back_inserter(found),
                   [&](size_t i) { return lie_across(boxes_[i], box); });
      continue;
    }
    if (box.offset[node.dimension] < node.at) to_look_at.push_back(place + 1);
    if (last_of(box, node.dimension) >= node.at) to_look_at.push_back(node.other);
  }
  // One that a cut goes through is in several leaves.
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

}  // namespace varve
