#include "core/box_search.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <chrono>

namespace varve {
namespace {

/// The plain twin: one box after the other.
std::optional<size_t> first_of_all(const std::vector<CellBox>& boxes, const std::vector<uint64_t>& cell) {
  const auto found = std::find_if(boxes.begin(), boxes.end(), [&](const CellBox& box) {
    return box.cells.size() == cell.size() && have_common_cells(box, {cell, std::vector<uint64_t>(cell.size(), 1)});
  });
  if (found == boxes.end()) return std::nullopt;
  return static_cast<size_t>(found - boxes.begin());
}

uint64_t below(uint64_t end) { return *rc::gen::inRange<uint64_t>(0, end); }

void find_all_cells(const std::vector<CellBox>& boxes, const std::vector<uint64_t>& array) {
  BoxSearch search(boxes, array.size());
  for (int i = 0; i < 200; ++i) {
    std::vector<uint64_t> cell;
    for (const uint64_t extent : array) cell.push_back(below(extent + 2));
    RC_ASSERT(search.first_with(cell) == first_of_all(boxes, cell));
  }
  for (int i = 0; i < 50; ++i) {
    CellBox wanted;
    for (const uint64_t extent : array) {
      wanted.offset.push_back(below(extent + 2));
      wanted.cells.push_back(below(extent));
    }
    std::vector<size_t> across;
    for (size_t box = 0; box < boxes.size(); ++box) {
      const bool is_like_it = boxes[box].cells.size() == array.size() && !wanted.empty();
      if (is_like_it && have_common_cells(boxes[box], wanted)) across.push_back(box);
    }
    RC_ASSERT(search.all_across(wanted) == across);
  }
}

RC_GTEST_PROP(BoxSearch, FindsTheFirstBoxWhateverLiesAcrossWhat, ()) {
  const size_t dimensions = below(4);
  const std::vector<uint64_t> array(dimensions, 1 + below(30));
  const uint64_t cells_max = 1 + below(array.empty() ? 1 : array[0]);
  std::vector<CellBox> boxes(below(100));
  for (CellBox& box : boxes) {
    const size_t own_dimensions = below(20) == 0 ? below(4) : dimensions;
    for (size_t d = 0; d < own_dimensions; ++d) {
      box.offset.push_back(below(array.empty() ? 1 : array[0]));
      box.cells.push_back(below(cells_max + 1));
    }
  }
  find_all_cells(boxes, array);
}

RC_GTEST_PROP(BoxSearch, FindsTheBoxOfAnArrayThatIsDividedAnyhow, ()) {
  const std::vector<uint64_t> array(1 + below(3), 1 + below(60));
  std::vector<CellBox> boxes = {{std::vector<uint64_t>(array.size(), 0), array}};
  for (size_t i = below(200); i > 0; --i) {
    CellBox& cut = boxes[below(boxes.size())];
    const size_t d = below(array.size());
    if (cut.cells[d] < 2) continue;
    CellBox rest = cut;
    cut.cells[d] = 1 + below(cut.cells[d] - 1);
    rest.offset[d] += cut.cells[d];
    rest.cells[d] -= cut.cells[d];
    boxes.push_back(std::move(rest));
  }
  // Some with a halo, which belongs to the first that has it.
  for (size_t i = below(10); i > 0; --i) {
    CellBox& box = boxes[below(boxes.size())];
    for (uint64_t& cells : box.cells) ++cells;
  }
  find_all_cells(boxes, array);
}

TEST(BoxSearch, TakesBoxesUpToTheLastCellThatCanBeTold) {
  std::vector<CellBox> boxes;
  for (uint64_t i = 0; i < 20; ++i) boxes.push_back({{UINT64_MAX - 10 * i}, {i == 0 ? 1u : 5u}});
  boxes.push_back({{UINT64_MAX - 3}, {UINT64_MAX}});
  BoxSearch search(boxes, 1);
  EXPECT_EQ(search.first_with({UINT64_MAX}), 0u);
  EXPECT_EQ(search.first_with({UINT64_MAX - 1}), 20u);
  EXPECT_EQ(search.first_with({UINT64_MAX - 6}), 1u);
  EXPECT_EQ(search.first_with({UINT64_MAX - 4}), std::nullopt);
  EXPECT_EQ(BoxSearch({}, 0).first_with({}), std::nullopt);
}

TEST(BoxSearch, OfAMillionCellsInTenThousandBoxesTakesMoments) {
  constexpr uint64_t extent = 8;
  std::vector<CellBox> boxes;
  for (uint64_t x = 0; x < 16; ++x) {
    for (uint64_t y = 0; y < 24; ++y) {
      for (uint64_t z = 0; z < 24; ++z)
        boxes.push_back({{x * extent, y * extent, z * extent}, {extent, extent, extent}});
    }
  }
  const auto begin = std::chrono::steady_clock::now();
  BoxSearch search(boxes, 3);
  uint64_t state = 1, wrong = 0;
  for (int i = 0; i < 1'000'000; ++i) {
    state = state * 6364136223846793005 + 1442695040888963407;
    const std::vector<uint64_t> cell = {(state >> 33) % (16 * extent), (state >> 40) % (24 * extent),
                                        (state >> 48) % (24 * extent)};
    const uint64_t expected = (cell[0] / extent * 24 + cell[1] / extent) * 24 + cell[2] / extent;
    if (search.first_with(cell) != expected) ++wrong;
  }
  EXPECT_EQ(wrong, 0u);
  // Some 0.3 s; one box after the other takes 20.
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
}

}  // namespace
}  // namespace varve
