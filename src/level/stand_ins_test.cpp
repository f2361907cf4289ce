#include "level/stand_ins.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/memory_file_system.h"

namespace varve {
namespace {

using Paths = std::vector<std::string>;

TEST(StandIns, OfOneJobAreNoneOfAnother) {
  MemoryFileSystem fs;
  const Paths of_a{"/local/node-x.stand-in-a-1", "/local/node-x.stand-in-a-2"},
      of_a_1{"/local/node-x.stand-in-a-1-1", "/local/node-x.stand-in-a-1-12"};
  ASSERT_TRUE(fs.create_directory("/local").ok());
  for (const Paths& paths : {Paths{"/local/node-x", "/local/node-xy.stand-in-a-1"}, of_a, of_a_1}) {
    for (const std::string& path : paths) {
      ASSERT_TRUE(fs.create_directory(path).ok());
      ASSERT_TRUE(fs.create_directory(path + "/sets").ok());
      ASSERT_TRUE(fs.create(path + "/varve.store").ok());
    }
  }
  for (const char* store : {"/local/node-x", "/local/node-x/"}) {
    EXPECT_EQ(list_stand_ins(fs, store, "a").value(), of_a);
    EXPECT_EQ(list_stand_ins(fs, store, "a-1").value(), of_a_1);
    EXPECT_EQ(list_stand_ins(fs, store, "b").value(), Paths());
  }
  ASSERT_TRUE(remove_stand_ins(fs, "/local/node-x", "a").ok());
  EXPECT_EQ(list_stand_ins(fs, "/local/node-x", "a").value(), Paths());
  EXPECT_EQ(list_stand_ins(fs, "/local/node-x", "a-1").value(), of_a_1);
  ASSERT_TRUE(remove_stand_ins(fs, "/local/node-x", "a-1").ok());
  EXPECT_EQ(list_stand_ins(fs, "/local/node-x", "a-1").value(), Paths());
  EXPECT_EQ(fs.list("/local").value().size(), 2u) << "the store, and another one's stand-in";
  EXPECT_EQ(list_stand_ins(fs, "/nowhere/node-x", "a").value(), Paths());
}

}  // namespace
}  // namespace varve
