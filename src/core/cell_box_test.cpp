#include "core/cell_box.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>
#include <numeric>
#include <set>

namespace varve {
namespace {

std::vector<uint64_t> ordinals_of(const CellBox& box, const CellBox& whole) {
  std::vector<uint64_t> ordinals;
  EXPECT_TRUE(for_each_cell_run(box, whole, box, [&](const CellRun& run) {
                for (uint64_t i = 0; i < run.cells; ++i) ordinals.push_back(run.from + i);
                return Status();
              }).ok());
  return ordinals;
}

CellBox some_box(const std::vector<uint64_t>& cells) {
  CellBox box;
  for (const uint64_t extent : cells) {
    box.offset.push_back(*rc::gen::inRange<uint64_t>(0, extent + 1));
    box.cells.push_back(*rc::gen::inRange<uint64_t>(0, extent - box.offset.back() + 1));
  }
  return box;
}

std::vector<uint64_t> some_array() {
  const auto dimensions = *rc::gen::inRange<size_t>(0, 5);
  return *rc::gen::container<std::vector<uint64_t>>(dimensions, rc::gen::inRange<uint64_t>(1, 6));
}

TEST(CellBox, LiesInAnArrayOnlyIfAllOfItDoes) {
  EXPECT_TRUE(lies_in({{1, 2}, {3, 4}}, {4, 6}));
  EXPECT_FALSE(lies_in({{1, 3}, {3, 4}}, {4, 6}));
  EXPECT_FALSE(lies_in({{UINT64_MAX, 0}, {3, 4}}, {4, 6}));
  EXPECT_FALSE(lies_in({{1}, {3}}, {4, 6}));
}

RC_GTEST_PROP(CellBox, WithoutAHoleHasEachOtherCellOnce, ()) {
  const std::vector<uint64_t> array = some_array();
  const CellBox whole{std::vector<uint64_t>(array.size(), 0), array};
  const CellBox box = some_box(array), hole = some_box(array);
  const std::vector<uint64_t> of_box = ordinals_of(box, whole), of_hole = ordinals_of(hole, whole);
  const std::set<uint64_t> holes(of_hole.begin(), of_hole.end());
  std::multiset<uint64_t> wanted, got;
  for (const uint64_t cell : of_box) {
    if (!holes.contains(cell)) wanted.insert(cell);
  }
  for (const CellBox& rest : without(box, hole)) {
    RC_ASSERT(!overlap(rest, hole));
    for (const uint64_t cell : ordinals_of(rest, whole)) got.insert(cell);
  }
  RC_ASSERT(got == wanted);
}

RC_GTEST_PROP(CellBox, BoxesOfARunHaveItsCellsInTheirOrder, ()) {
  const std::vector<uint64_t> array = some_array();
  const CellBox whole{std::vector<uint64_t>(array.size(), 0), array};
  const uint64_t all = whole.cell_count();
  const auto first = *rc::gen::inRange<uint64_t>(0, all + 1);
  const auto cells = *rc::gen::inRange<uint64_t>(0, all - first + 1);
  std::vector<uint64_t> got, wanted(cells);
  std::iota(wanted.begin(), wanted.end(), first);
  size_t boxes = 0;
  RC_ASSERT(for_each_box_of_run(array, first, cells, [&](const CellBox& box) {
              RC_ASSERT(lies_in(box, array));
              const std::vector<uint64_t> of_box = ordinals_of(box, whole);
              got.insert(got.end(), of_box.begin(), of_box.end());
              ++boxes;
              return Status();
            }).ok());
  RC_ASSERT(got == wanted);
  RC_ASSERT(boxes <= std::max<size_t>(2 * array.size(), 1));
}

RC_GTEST_PROP(CellBox, RunsBringEachCellToItsPlace, ()) {
  const std::vector<uint64_t> array = some_array();
  const CellBox whole{std::vector<uint64_t>(array.size(), 0), array};
  const CellBox from = some_box(array), to = some_box(array);
  const std::optional<CellBox> part = overlap(from, to);
  std::vector<uint64_t> values(whole.cell_count());
  std::iota(values.begin(), values.end(), 1);
  auto cut = [&](const CellBox& box) {
    std::vector<uint64_t> cut_out;
    for (const uint64_t cell : ordinals_of(box, whole)) cut_out.push_back(values[cell]);
    return cut_out;
  };
  const std::vector<uint64_t> source = cut(from), wanted = cut(to);
  std::vector<uint64_t> target(to.cell_count(), 0);
  if (part) {
    const Status copied = for_each_cell_run(*part, from, to, [&](const CellRun& run) {
      std::copy_n(source.begin() + static_cast<std::ptrdiff_t>(run.from), run.cells,
                  target.begin() + static_cast<std::ptrdiff_t>(run.to));
      return Status();
    });
    RC_ASSERT(copied.ok());
  }
  const std::vector<uint64_t> of_part = part ? cut(*part) : std::vector<uint64_t>();
  const std::set<uint64_t> common(of_part.begin(), of_part.end());
  for (size_t i = 0; i < wanted.size(); ++i) RC_ASSERT(target[i] == (common.contains(wanted[i]) ? wanted[i] : 0));
}

RC_GTEST_PROP(CellBox, EachCellIsSharedOutToTheFirstBoxThatHasIt, ()) {
  const std::vector<uint64_t> array = some_array();
  const CellBox whole{std::vector<uint64_t>(array.size(), 0), array};
  const CellBox wanted = some_box(array);
  std::vector<CellBox> boxes(*rc::gen::element<size_t>(0, 1, 2, 3, 5, 40, 100));
  for (CellBox& box : boxes) box = some_box(array);
  std::map<uint64_t, size_t> expected, got;
  for (const uint64_t cell : ordinals_of(wanted, whole)) expected[cell] = boxes.size();
  for (size_t i = boxes.size(); i-- > 0;) {
    for (const uint64_t cell : ordinals_of(boxes[i], whole)) {
      if (expected.contains(cell)) expected[cell] = i;
    }
  }
  const CellShares found = share_cells(wanted, boxes).value();
  size_t cells = 0;
  auto note = [&](const CellBox& box, size_t from) {
    for (const uint64_t cell : ordinals_of(box, whole)) {
      got[cell] = from;
      ++cells;
    }
  };
  for (const CellShare& share : found.shares) note(share.cells, share.box);
  for (const CellBox& missing : found.missing) note(missing, boxes.size());
  RC_ASSERT(got == expected);
  RC_ASSERT(cells == expected.size());
}

TEST(CellBox, BoxesThatLieAcrossEachOtherTooOftenAreALimit) {
  const CellBox whole{{0, 0, 0, 0}, {38, 38, 38, 38}};
  std::vector<CellBox> boxes;
  for (size_t d = 0; d < 4; ++d) {
    for (uint64_t i = 1; i < 38; i += 2) {
      CellBox& slab = boxes.emplace_back(whole);
      slab.offset[d] = i;
      slab.cells[d] = 1;
    }
  }
  EXPECT_EQ(share_cells(whole, boxes).status().code(), StatusCode::resource_limit);
  boxes.resize(3 * boxes.size() / 4);
  EXPECT_TRUE(share_cells(whole, boxes).ok());
}

RC_GTEST_PROP(CellBox, SlabsFollowEachOtherThroughTheBox, ()) {
  const std::vector<uint64_t> array = some_array();
  const CellBox box = some_box(array);
  const uint64_t cells_max = *rc::gen::inRange<uint64_t>(1, 60);
  uint64_t next = 0;
  RC_ASSERT(for_each_slab(box, cells_max, [&](const CellBox& slab) {
              RC_ASSERT(slab.cell_count() <= cells_max);
              for (const uint64_t cell : ordinals_of(slab, box)) RC_ASSERT(cell == next++);
              return Status();
            }).ok());
  RC_ASSERT(next == (box.empty() ? 0 : box.cell_count()));
}

}  // namespace
}  // namespace varve
