#include "runtime/placement.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

namespace varve {
namespace {

int own_nice() { return ::getpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid))); }

TEST(Placement, KnowsTheProcessorsThatThisThreadIsBoundTo) {
  const auto bound = bound_processors();
  ASSERT_TRUE(bound.ok()) << bound.status().to_string();
  ASSERT_FALSE(bound->empty());
  EXPECT_TRUE(std::is_sorted(bound->begin(), bound->end()));
#ifdef VARVE_WITH_HWLOC
  for (const uint32_t number : *bound) {
    const auto machine = usable_processors();
    EXPECT_TRUE(std::any_of(machine.begin(), machine.end(), [&](const Processor& p) { return p.number == number; }))
        << number;
  }
#else
  EXPECT_TRUE(usable_processors().empty());
#endif
}

TEST(Placement, BindsAThreadAndThoseItStartsButNoOther) {
  const auto all = bound_processors();
  ASSERT_TRUE(all.ok());
  const ProcessorSet one = {all->back()};
  std::thread([&] {
    EXPECT_TRUE(place_calling_thread(one, true).ok());
    EXPECT_EQ(*bound_processors(), one);
    std::thread([&] { EXPECT_EQ(*bound_processors(), one); }).join();
  }).join();
  EXPECT_EQ(*bound_processors(), *all);
}

TEST(Placement, LowersThePriorityOfAThreadAndThoseItStartsButOfNoOther) {
  const int nice_before = own_nice();
  std::thread([&] {
    EXPECT_TRUE(place_calling_thread({}, true).ok());
    EXPECT_GE(own_nice(), std::max(5, nice_before));
    EXPECT_EQ(::sched_getscheduler(0), SCHED_OTHER);
    std::thread([&] { EXPECT_GE(own_nice(), std::max(5, nice_before)); }).join();
  }).join();
  EXPECT_EQ(own_nice(), nice_before);
  EXPECT_EQ(::sched_getscheduler(0), SCHED_OTHER);
}

TEST(Placement, LetsAThreadOfLowPriorityWakeGentlyAndNoOther) {
  std::thread([] {
    EXPECT_TRUE(place_calling_thread({}, true).ok());
    const int nice = own_nice();
    {
      const GentleWaking gentle;
      EXPECT_EQ(::sched_getscheduler(0), SCHED_BATCH);
      EXPECT_EQ(own_nice(), nice);
    }
    EXPECT_EQ(::sched_getscheduler(0), SCHED_OTHER);
    EXPECT_EQ(own_nice(), nice);
  }).join();
  if (own_nice() >= 5) return;
  const GentleWaking none;
  EXPECT_EQ(::sched_getscheduler(0), SCHED_OTHER);
}

TEST(Placement, LeavesAThreadAsItIsUnlessToldOtherwise) {
  const int nice_before = own_nice();
  std::thread([&] {
    EXPECT_TRUE(place_calling_thread({}, false).ok());
    EXPECT_EQ(own_nice(), nice_before);
  }).join();
}

TEST(Placement, LowersThePriorityWhereAProcessorIsRefused) {
  std::thread([] {
    EXPECT_TRUE(place_calling_thread({60'000}, true).ok());
    EXPECT_GE(own_nice(), 5);
  }).join();
  std::thread([] { EXPECT_FALSE(place_calling_thread({60'000}, false).ok()); }).join();
}

/// Each rank on a thread that is bound to one processor of `bound`, round and round.
std::vector<ProcessorSet> agree(const std::vector<uint32_t>& bound, const std::vector<std::string>& nodes,
                                const GroupRule& rule, bool concurrent) {
  std::vector<ProcessorSet> found(nodes.size());
  auto ranks = make_thread_communicators(static_cast<uint32_t>(nodes.size()));
  std::vector<RankPlace> places;
  for (const std::string& node : nodes) places.push_back({node, 0, node});
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < nodes.size(); ++rank) {
    threads.emplace_back([&, rank] {
      EXPECT_TRUE(place_calling_thread({bound[rank % bound.size()]}, false).ok());
      auto free = agree_on_free_processors(*ranks[rank], plan_groups(places, rule, concurrent, rank));
      ASSERT_TRUE(free.ok()) << free.status().to_string();
      found[rank] = *free;
    });
  }
  for (std::thread& thread : threads) thread.join();
  return found;
}

TEST(Placement, GivesLeadersWhatNoRankOfTheirNodeUses) {
  const std::vector<Processor> machine = usable_processors();
  if (machine.size() < 2) GTEST_SKIP() << "one processor only, or not known";
  ProcessorSet others;
  for (const Processor& processor : machine) others.push_back(processor.number);
  std::sort(others.begin(), others.end());
  const uint32_t mine = others.front();
  others.erase(others.begin());
  for (const bool concurrent : {true, false}) {
    const auto found = agree({mine}, {"node", "node"}, {.kind = GroupRule::Kind::node}, concurrent);
    ASSERT_FALSE(found[0].empty());
    EXPECT_TRUE(std::includes(others.begin(), others.end(), found[0].begin(), found[0].end()));
    EXPECT_TRUE(found[1].empty());  // leads no group
  }
}

TEST(Placement, DoesNotCountTheRanksOfOtherNodes) {
  const std::vector<Processor> machine = usable_processors();
  if (machine.size() != 2) GTEST_SKIP() << "made for two processors";
  const GroupRule rule{.kind = GroupRule::Kind::rank};
  for (const bool concurrent : {true, false}) {
    const auto together = agree({machine[0].number, machine[1].number}, {"node", "node"}, rule, concurrent);
    EXPECT_TRUE(together[0].empty() && together[1].empty());
    const auto apart = agree({machine[0].number, machine[1].number}, {"one", "other"}, rule, concurrent);
    EXPECT_EQ(apart[0], ProcessorSet{machine[1].number});
    EXPECT_EQ(apart[1], ProcessorSet{machine[0].number});
  }
}

}  // namespace
}  // namespace varve
