#include "runtime/placement.h"

#include <gtest/gtest.h>

#include <numeric>

namespace varve {
namespace {

/// Sockets of so many cores of so many hardware threads, numbered as Linux does on most machines: first a processor of
/// each core, then the siblings.
std::vector<Processor> machine(uint32_t sockets, uint32_t cores_each, uint32_t threads_each) {
  std::vector<Processor> processors;
  for (uint32_t thread = 0; thread < threads_each; ++thread) {
    for (uint32_t core = 0; core < sockets * cores_each; ++core) {
      processors.push_back({thread * sockets * cores_each + core, core, core / cores_each});
    }
  }
  return processors;
}

ProcessorSet range(uint32_t first, uint32_t last) {
  ProcessorSet set(last - first + 1);
  std::iota(set.begin(), set.end(), first);
  return set;
}

TEST(Processors, AreWrittenAndReadAsTheKernelDoes) {
  for (const char* text : {"", "0", "0-3", "0-3,8", "1,3,5", "65535"}) {
    const auto set = parse_processors(text);
    ASSERT_TRUE(set.ok()) << text;
    EXPECT_EQ(processors_text(*set), text);
  }
  EXPECT_EQ(*parse_processors("3,1-2,2"), range(1, 3));
}

TEST(Processors, AreRefusedWhenTheyAreNone) {
  for (const char* text : {"x", "-1", "1-", "1,", ",1", "1 ", "0-99999999", "65536"}) {
    EXPECT_EQ(parse_processors(text).status().code(), StatusCode::invalid_argument) << text;
  }
}

TEST(Processors, BelongToTheSocketThatHasMostOfThem) {
  EXPECT_EQ(socket_of(machine(2, 4, 1), {1, 4, 5}), 1u);
  EXPECT_EQ(socket_of(machine(2, 4, 1), {3, 4}), 0u);
  EXPECT_EQ(socket_of(machine(2, 4, 1), {99}), 0u);
  EXPECT_EQ(socket_of({}, {1}), 0u);
}

TEST(FreeProcessors, AreCoresThatNobodyUsesOnTheSameSocket) {
  EXPECT_EQ(choose_free_processors(machine(2, 4, 2), {4, 5}, {4}, 0, 1), (ProcessorSet{6, 7, 14, 15}));
}

TEST(FreeProcessors, AreSiblingsWhereAllCoresAreInUse) {
  // Ranks on all cores of socket 1, one hardware thread each.
  EXPECT_EQ(choose_free_processors(machine(2, 4, 2), {4, 5, 6, 7}, {4}, 0, 1), range(12, 15));
}

TEST(FreeProcessors, AreOnAnotherSocketOnlyWhenThisOneIsFull) {
  ProcessorSet taken = range(0, 3);
  taken.insert(taken.end(), {8, 9, 10, 11});
  EXPECT_EQ(choose_free_processors(machine(2, 4, 2), taken, {0}, 0, 1), (ProcessorSet{4, 5, 6, 7, 12, 13, 14, 15}));
}

TEST(FreeProcessors, AreNoneWhenTheProgramUsesAll) {
  EXPECT_EQ(choose_free_processors(machine(1, 2, 1), {0, 1}, {0, 1}, 0, 1), ProcessorSet());
  EXPECT_EQ(choose_free_processors({}, {0, 1}, {0, 1}, 0, 1), ProcessorSet());
}

TEST(FreeProcessors, AreDividedAmongTheGroupsThatShareThem) {
  const std::vector<Processor> all = machine(1, 8, 1);
  EXPECT_EQ(choose_free_processors(all, {0, 1, 2, 3}, {0}, 0, 2), (ProcessorSet{4, 5}));
  EXPECT_EQ(choose_free_processors(all, {0, 1, 2, 3}, {2}, 1, 2), (ProcessorSet{6, 7}));
  // Three processors for two: each has at least one, none has two groups.
  EXPECT_EQ(choose_free_processors(all, range(0, 4), {0}, 0, 2), (ProcessorSet{5}));
  EXPECT_EQ(choose_free_processors(all, range(0, 4), {2}, 1, 2), (ProcessorSet{6, 7}));
}

TEST(FreeProcessors, AreSharedWhenThereAreFewerThanGroups) {
  EXPECT_EQ(choose_free_processors(machine(1, 8, 1), range(0, 6), {0}, 0, 4), (ProcessorSet{7}));
  EXPECT_EQ(choose_free_processors(machine(1, 8, 1), range(0, 6), {3}, 3, 4), (ProcessorSet{7}));
}

}  // namespace
}  // namespace varve
