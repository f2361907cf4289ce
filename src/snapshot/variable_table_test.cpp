#include "snapshot/variable_table.h"

#include <gtest/gtest.h>

#include <numeric>

#include "snapshot/image_copy.h"

namespace varve {
namespace {

constexpr ElementType kReal = element_type_of<double>();
constexpr ElementType kInt = element_type_of<int>();

Status protect_vector(VariableTable& table, std::string_view name, std::vector<double>& values) {
  return table.protect_vector(
      name, kReal, [&values] { return std::as_bytes(std::span(values)); },
      [&values](uint64_t count) {
        values.resize(count);
        return std::as_writable_bytes(std::span(values));
      });
}

/// The whole image, as stage 1 makes it.
ByteVector image_of(VariableTable& table) {
  EXPECT_TRUE(table.refresh().ok());
  ByteVector image(table.image().image_bytes);
  copy_image(table, 0, image.size(), image.data());
  return image;
}

/// In pieces of so many bytes, the last one first.
Status load(VariableTable& table, const ByteVector& image, uint64_t piece_bytes = 100) {
  VARVE_ASSIGN(const ImageTable decoded, decode_image_header(image, image.size()));
  VARVE_ASSIGN(ImageTarget * target, table.begin_load(decoded));
  const uint64_t pieces = (image.size() + piece_bytes - 1) / piece_bytes;
  for (uint64_t piece = pieces; piece-- > 0;) {
    const uint64_t at = piece * piece_bytes;
    const ByteSpan bytes = ByteSpan(image).subspan(at, std::min<uint64_t>(piece_bytes, image.size() - at));
    const MutableByteSpan memory = target->memory(at, bytes.size());
    if (memory.empty()) {
      target->put(at, bytes);
    } else {
      EXPECT_EQ(memory.size(), bytes.size());
      std::copy(bytes.begin(), bytes.end(), memory.begin());
    }
  }
  return table.finish_load();
}

#define EXPECT_INVALID(expression) EXPECT_EQ((expression).code(), StatusCode::invalid_argument)

TEST(VariableTable, RefusesNamesThatAreNone) {
  VariableTable table;
  double value = 0;
  EXPECT_INVALID(table.protect_scalar("", kReal, &value));
  EXPECT_INVALID(table.protect_scalar("a\tb", kReal, &value));
  EXPECT_INVALID(table.protect_scalar(std::string(1001, 'n'), kReal, &value));
  EXPECT_TRUE(table.empty());
}

TEST(VariableTable, RefusesAnotherTypeOrKindUnderTheSameName) {
  VariableTable table;
  double value = 0;
  int number = 0;
  ASSERT_TRUE(table.protect_scalar("x", kReal, &value).ok());
  EXPECT_INVALID(table.protect_scalar("x", kInt, &number));
  const auto save = [](ByteVector&) { return Status(); };
  const auto read = [](ByteSpan) { return Status(); };
  EXPECT_INVALID(table.protect_object("x", save, read));
  EXPECT_TRUE(table.protect_scalar("x", kReal, &value).ok());
  ASSERT_TRUE(table.unprotect("x").ok());
  EXPECT_TRUE(table.empty()) << "it took the place of what was there";
  EXPECT_TRUE(table.protect_scalar("x", kInt, &number).ok());
}

TEST(VariableTable, RefusesShapesThatDoNotFit) {
  VariableTable table;
  std::vector<double> data(60);
  auto protect = [&](const ArrayShape& shape) { return table.protect_array("a", kReal, data.data(), 60, shape); };
  EXPECT_INVALID(protect({.cells = {6, 9}}));
  EXPECT_INVALID(protect({.cells = {1ULL << 40, 1ULL << 40}}));
  EXPECT_INVALID(protect({.cells = {6, 10}, .ghosts_low = {1}}));
  EXPECT_INVALID(protect({.cells = {6, 10}, .ghosts_low = {4, 0}, .ghosts_high = {3, 0}}));
  EXPECT_INVALID(protect({.cells = {6, 10}, .ghosts_low = {~0ULL, 0}, .ghosts_high = {2, 0}}));
  EXPECT_INVALID(protect({.cells = {6, 10}, .global_offset = {0, 0}}));
  EXPECT_INVALID(protect({.cells = {6, 10}, .global_cells = {12, 9}}));
  EXPECT_INVALID(protect({.cells = {6, 10}, .global_cells = {12, 10}, .global_offset = {7, 0}}));
  EXPECT_INVALID(protect({.cells = std::vector<uint64_t>(kDimensionsMax + 1, 1)}));
  EXPECT_INVALID(table.protect_array("a", kReal, nullptr, 1, {}));
  EXPECT_INVALID(table.protect_array("a", {ElementKind::floating, ByteOrder::little, 0}, data.data(), 60, {}));
  EXPECT_TRUE(table.empty());
  EXPECT_TRUE(protect({.cells = {6, 10},
                       .ghosts_low = {1, 1},
                       .ghosts_high = {1, 1},
                       .global_cells = {12, 10},
                       .global_offset = {8, 2}})
                  .ok());
  EXPECT_TRUE(table.protect_array("nothing", kReal, nullptr, 0, {}).ok());
}

TEST(VariableTable, SaysWhatIsNotProtected) {
  VariableTable table;
  EXPECT_EQ(table.unprotect("x").code(), StatusCode::not_found);
}

struct Everything {
  std::vector<double> field = std::vector<double>(12 * 20);
  std::vector<double> list{1, 2, 3};
  int step = 42;
  std::string text = "object";
  VariableTable table;

  Everything() {
    std::iota(field.begin(), field.end(), 0.5);
    EXPECT_TRUE(
        table.protect_array("field", kReal, field.data(), field.size(), ArrayShape::with_ghosts({12, 20}, 2)).ok());
    EXPECT_TRUE(protect_vector(table, "list", list).ok());
    EXPECT_TRUE(table.protect_scalar("step", kInt, &step).ok());
    const auto save = [this](ByteVector& out) {
      const ByteSpan bytes = as_bytes(text);
      out.insert(out.end(), bytes.begin(), bytes.end());
      return Status();
    };
    const auto read = [this](ByteSpan bytes) {
      text = as_text(bytes);
      return Status();
    };
    EXPECT_TRUE(table.protect_object("text", save, read).ok());
  }
};

TEST(VariableTable, BringsEverythingBackAndLeavesGhostCellsAlone) {
  Everything program;
  const ByteVector image = image_of(program.table);
  const std::vector<double> before = program.field;

  for (const uint64_t piece_bytes : {1, 7, 64, 100, 1'000'000}) {
    std::fill(program.field.begin(), program.field.end(), -1);
    program.list = {9};
    program.step = 0;
    program.text.clear();
    ASSERT_TRUE(load(program.table, image, piece_bytes).ok());
    EXPECT_EQ(program.list, (std::vector<double>{1, 2, 3}));
    EXPECT_EQ(program.step, 42);
    EXPECT_EQ(program.text, "object");
    for (size_t row = 0; row < 12; ++row) {
      for (size_t column = 0; column < 20; ++column) {
        const bool ghost = row < 2 || row >= 10 || column < 2 || column >= 18;
        EXPECT_EQ(program.field[row * 20 + column], ghost ? -1 : before[row * 20 + column]);
      }
    }
  }
}

TEST(VariableTable, GivesTheSameImageInPiecesOfAnySize) {
  Everything program;
  std::vector<double> wide(64 * 1024);
  std::iota(wide.begin(), wide.end(), 3);
  ASSERT_TRUE(program.table
                  .protect_array("wide", kReal, wide.data(), wide.size(),
                                 {.cells = {64, 1024}, .ghosts_low = {0, 1}, .ghosts_high = {0, 2}})
                  .ok());
  const ByteVector whole = image_of(program.table);
  for (uint64_t piece : {1, 63, 64, 100, 4096, 20'000, 100'000}) {
    ByteVector image(whole.size());
    for (uint64_t at = 0; at < image.size(); at += piece) {
      copy_image(program.table, at, std::min<uint64_t>(piece, image.size() - at), image.data() + at);
    }
    EXPECT_EQ(image, whole) << piece;
  }
}

TEST(VariableTable, PlansAnewOnlyWhenSomethingChanged) {
  Everything program;
  ASSERT_TRUE(program.table.refresh().ok());
  const uint64_t number = program.table.image_number();
  program.step = 43;
  program.text = "OBJECT";
  ASSERT_TRUE(program.table.refresh().ok());
  EXPECT_EQ(program.table.image_number(), number);
  program.list.push_back(4);
  ASSERT_TRUE(program.table.refresh().ok());
  EXPECT_GT(program.table.image_number(), number);
  EXPECT_EQ(program.table.image().variables[1].shape, std::vector<uint64_t>{4});
}

TEST(VariableTable, RefusesToLoadWhatDiffersAndWritesNothing) {
  Everything saved;
  const ByteVector image = image_of(saved.table);
  {
    Everything program;
    ASSERT_TRUE(program.table.unprotect("list").ok());
    program.step = 1;
    const Status status = load(program.table, image);
    EXPECT_INVALID(status);
    EXPECT_NE(status.to_string().find("list"), std::string::npos);
    EXPECT_EQ(program.step, 1);
  }
  {
    Everything program;
    double extra = 0;
    for (const std::string_view name : {"a first one", "middle", "z last"}) {
      ASSERT_TRUE(program.table.protect_scalar(name, kReal, &extra).ok());
      const Status status = load(program.table, image);
      EXPECT_INVALID(status);
      EXPECT_NE(status.to_string().find(name), std::string::npos);
      ASSERT_TRUE(program.table.unprotect(name).ok());
    }
  }
  {
    Everything program;
    ASSERT_TRUE(program.table.unprotect("step").ok());
    ASSERT_TRUE(program.table.protect_scalar("step", kReal, program.field.data()).ok());
    EXPECT_INVALID(load(program.table, image));
  }
  {
    Everything program;
    ASSERT_TRUE(program.table.protect_array("field", kReal, program.field.data(), 240, {.cells = {240}}).ok());
    EXPECT_INVALID(load(program.table, image));
  }
}

TEST(VariableTable, DoesNotTakeWhatAFailedLoadHasBegunToWriteForWhatAVariableHeld) {
  Everything newer, older;
  ASSERT_TRUE(older.table.unprotect("list").ok());
  const ByteVector with = image_of(newer.table), without = image_of(older.table);
  Everything program;
  program.table.let_change();
  ASSERT_TRUE(load(program.table, without).ok()) << "it keeps what it holds";
  ASSERT_TRUE(program.table.begin_load(*decode_image_header(with, with.size())).ok());
  const Status lost = load(program.table, without);
  EXPECT_INVALID(lost);
  EXPECT_NE(lost.to_string().find("list"), std::string::npos);
  ASSERT_TRUE(load(program.table, with).ok());
  EXPECT_TRUE(load(program.table, without).ok());
}

TEST(VariableTable, StopsWhatCallbacksThrowAndReturnsWhatTheyReturn) {
  VariableTable table;
  const auto fails = [](ByteVector&) -> Status { return Status::io_error("no pen"); };
  const auto read = [](ByteSpan) -> Status { throw std::runtime_error("cannot read"); };
  ASSERT_TRUE(table.protect_object("object", fails, read).ok());
  EXPECT_EQ(table.refresh().code(), StatusCode::io_error);
  ASSERT_TRUE(table
                  .protect_object(
                      "object", [](ByteVector&) -> Status { throw 5; }, read)
                  .ok());
  EXPECT_INVALID(table.refresh());
  ASSERT_TRUE(table
                  .protect_object(
                      "object", [](ByteVector&) { return Status(); }, read)
                  .ok());
  const ByteVector image = image_of(table);
  const Status status = load(table, image);
  EXPECT_INVALID(status);
  EXPECT_NE(status.to_string().find("cannot read"), std::string::npos);
}

TEST(VariableTable, ALentVariableMustBeLentAgainOrProtectedAnew) {
  VariableTable table;
  std::vector<double> own(10), grid(10);
  ASSERT_TRUE(table.protect_array("f", kReal, own.data(), 10, {}).ok());
  const LentGrid lent{.grid = 3, .data = reinterpret_cast<std::byte*>(grid.data()), .bytes = 80};
  ASSERT_TRUE(table.lend("f", lent).ok());
  EXPECT_EQ(table.lent_grid("f"), 3U);
  EXPECT_INVALID(table.unprotect("f"));
  EXPECT_INVALID(table.protect_array("f", kReal, own.data(), 10, {}));
  ASSERT_TRUE(table.refresh().ok());
  EXPECT_EQ(table.memory()[0].base, lent.data);
  EXPECT_EQ(table.memory()[0].lent_grid, 3U);
  EXPECT_EQ(table.take_lent(), std::vector<uint32_t>{3});

  const Status stale = table.refresh();
  EXPECT_INVALID(stale);
  EXPECT_FALSE(stale.hint().empty());
  ASSERT_TRUE(table.protect_array("f", kReal, own.data(), 10, {}).ok());
  ASSERT_TRUE(table.refresh().ok());
  EXPECT_FALSE(table.memory()[0].lent_grid);
}

TEST(VariableTable, LendsOnlyForArraysOfTheSameSize) {
  Everything program;
  const LentGrid lent{.grid = 0, .data = nullptr, .bytes = 80};
  EXPECT_INVALID(program.table.lend("nothing", lent));
  EXPECT_INVALID(program.table.lend("list", lent));
  EXPECT_INVALID(program.table.lend("step", lent));
  EXPECT_INVALID(program.table.lend("text", lent));
  EXPECT_INVALID(program.table.lend("field", lent));
}

}  // namespace
}  // namespace varve
