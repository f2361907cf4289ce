#include "store/catalog.h"

#include <gtest/gtest.h>

#include "core/memory_file_system.h"
#include "store/remarks.h"
#include "store/test_sets.h"

namespace varve {
namespace {

using test::numbers_between;
using test::save_numbers;

/// A store of which a file may be unreadable.
struct ACatalog : testing::Test {
  void save(uint64_t step, uint64_t number) {
    ASSERT_TRUE(save_numbers(*store, {"job", step}, numbers_between(10 * step, 10 * step + 3), number).ok());
  }
  void damage(uint64_t step) {
    ASSERT_TRUE(write_file_durably(disk, catalog.record_path({"job", step}), as_bytes("no record")).ok());
  }

  MemoryFileSystem disk;
  test::UnreadableFile files{disk};
  const bool is_made = Store::create(disk, "/store").ok();
  const std::unique_ptr<Store> store = Store::open(files, "/store").value();
  const Catalog catalog{*store};
};

TEST_F(ACatalog, DoesNotTakeASetThatCannotBeLookedAtForNone) {
  save(7, 1);
  EXPECT_TRUE(catalog.has({"job", 7}).value());
  EXPECT_FALSE(catalog.has({"job", 8}).value());
  files.name = "7.set";
  EXPECT_EQ(catalog.has({"job", 7}).status().code(), StatusCode::io_error);
  EXPECT_EQ(catalog.find({"job", 7}).status().code(), StatusCode::io_error);
  EXPECT_EQ(catalog.check_is_new({"job", 7}).code(), StatusCode::io_error);
}

TEST_F(ACatalog, NamesNoOlderSetWhereTheNewestOfATagCannotBeLookedAt) {
  for (const uint64_t step : {7u, 8u}) {
    save(step, step);
    ASSERT_TRUE(Remarks(*store).add_tag({"job", step}, "final").ok());
  }
  EXPECT_EQ(catalog.resolve("job@final").value(), (SetName{"job", 8}));
  files.name = "8.set";
  EXPECT_EQ(catalog.resolve("job@final").status().code(), StatusCode::io_error);
  EXPECT_EQ(catalog.resolve("job@8").status().code(), StatusCode::io_error);
}

TEST_F(ACatalog, GivesNoNumberTwiceWhereTheNewestCannotBeRead) {
  EXPECT_EQ(catalog.next_number("job").value(), 1u);
  save(3, 11);
  save(4, 12);
  EXPECT_EQ(catalog.next_number("job").value(), 13u);
  files.name = "4.set";
  EXPECT_EQ(catalog.next_number("job").status().code(), StatusCode::io_error);
  files.name.clear();
  damage(4);
  EXPECT_EQ(catalog.next_number("job").value(), 13u);
  damage(3);
  EXPECT_EQ(catalog.next_number("job").value(), 5u) << "nothing tells more than that there are two";
}

}  // namespace
}  // namespace varve
