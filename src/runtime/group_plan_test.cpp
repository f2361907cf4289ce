#include "runtime/group_plan.h"

#include <gtest/gtest.h>

#include <set>

namespace varve {
namespace {

using Kind = GroupRule::Kind;
using Groups = std::vector<std::vector<uint32_t>>;

/// Two nodes with two sockets each, filled in the order of ranks: two ranks on each socket.
std::vector<RankPlace> two_nodes() {
  return {{"a", 0}, {"a", 0}, {"a", 1}, {"a", 1}, {"b", 0}, {"b", 0}, {"b", 1}, {"b", 1}};
}

Groups groups_of(const std::vector<RankPlace>& places, const GroupRule& rule, bool concurrent = false) {
  Groups groups;
  for (const RankGroup& group : plan_groups(places, rule, concurrent, 0).groups) groups.push_back(group.members);
  return groups;
}

TEST(GroupPlan, GivesEachRankAThreadOfItsOwn) {
  EXPECT_EQ(groups_of({{"a", 0}, {"a", 0}, {"b", 0}}, {Kind::rank}), (Groups{{0}, {1}, {2}}));
}

TEST(GroupPlan, GathersTheRanksOfANode) {
  EXPECT_EQ(groups_of(two_nodes(), {Kind::node}), (Groups{{0, 1, 2, 3}, {4, 5, 6, 7}}));
}

TEST(GroupPlan, GathersTheRanksOfASocketOfEachNode) {
  EXPECT_EQ(groups_of(two_nodes(), {Kind::socket}), (Groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}}));
}

TEST(GroupPlan, NamesTheNodesAndKnowsTheirGroups) {
  const std::vector<RankPlace> places = {{"1", 0, "a"}, {"2", 0, "b"}, {"1", 0, "a"}, {"2", 1, "b"}, {"3", 0, "a"}};
  const GroupPlan plan = plan_groups(places, {Kind::socket}, false, 3);
  EXPECT_EQ(plan.nodes, (std::vector<RankNode>{{"a", {0, 2}}, {"b", {1, 3}}, {"a#2", {4}}}));
  EXPECT_EQ(plan.own_node, 1u);
  EXPECT_EQ(plan.node().leader(), 1u);
  EXPECT_EQ(plan.groups_of_node(), (std::vector<uint32_t>{1, 2}));
  EXPECT_EQ(plan.own, 2u);
  EXPECT_EQ(plan.own_of_node(), 1u);
}

TEST(GroupPlan, SplitsGroupsThatAreToStayOnNodes) {
  const GroupRule rule{.kind = Kind::count, .count = 3, .stay_on_nodes = true};
  EXPECT_EQ(groups_of(two_nodes(), rule, /*concurrent=*/true), (Groups{{0, 1, 2}, {3}, {4, 5}, {6, 7}}));
  const GroupPlan plan = plan_groups(two_nodes(), rule, true, 0);
  ASSERT_EQ(plan.warnings.size(), 1u);
  EXPECT_NE(plan.warnings[0].to_string().find("store of its own"), std::string::npos);
}

TEST(GroupPlan, FindsNodesThatAreFilledInTurns) {
  const std::vector<RankPlace> places = {{"b", 0}, {"a", 0}, {"b", 0}, {"a", 0}};
  EXPECT_EQ(groups_of(places, {Kind::node}), (Groups{{0, 2}, {1, 3}}));
}

TEST(GroupPlan, TakesAsManyRanksAsAreWanted) {
  const std::vector<RankPlace> places(5, {"a", 0});
  EXPECT_EQ(groups_of(places, {Kind::count, 2}), (Groups{{0, 1}, {2, 3}, {4}}));
  EXPECT_EQ(groups_of(places, {Kind::count, 9}), (Groups{{0, 1, 2, 3, 4}}));
}

TEST(GroupPlan, CrossesNodesOnlyIfRanksCanSendBesideTheProgram) {
  const GroupPlan crossing = plan_groups(two_nodes(), {Kind::count, 3}, true, 0);
  EXPECT_EQ(groups_of(two_nodes(), {Kind::count, 3}, true), (Groups{{0, 1, 2}, {3, 4, 5}, {6, 7}}));
  EXPECT_TRUE(crossing.crosses_nodes);
  EXPECT_EQ(crossing.groups[0].remote, std::vector<uint32_t>{});
  EXPECT_EQ(crossing.groups[1].remote, (std::vector<uint32_t>{4, 5}));
  EXPECT_TRUE(crossing.warnings.empty());

  const GroupPlan split = plan_groups(two_nodes(), {Kind::count, 3}, false, 0);
  EXPECT_EQ(groups_of(two_nodes(), {Kind::count, 3}, false), (Groups{{0, 1, 2}, {3}, {4, 5}, {6, 7}}));
  EXPECT_FALSE(split.crosses_nodes);
  ASSERT_EQ(split.warnings.size(), 1u);
  EXPECT_EQ(split.warnings[0].code(), StatusCode::unsupported);
}

TEST(GroupPlan, DoesNotWarnOfGroupsThatStayOnTheirNodes) {
  EXPECT_TRUE(plan_groups(two_nodes(), {Kind::count, 2}, false, 0).warnings.empty());
}

TEST(GroupPlan, IsTheSameForAllRanksButForWhereTheyAre) {
  for (const GroupRule& rule : {GroupRule{Kind::rank}, {Kind::socket}, {Kind::node}, {Kind::count, 3}}) {
    std::set<uint32_t> seen;
    const GroupPlan first = plan_groups(two_nodes(), rule, false, 0);
    for (uint32_t rank = 0; rank < 8; ++rank) {
      const GroupPlan plan = plan_groups(two_nodes(), rule, false, rank);
      EXPECT_EQ(plan.groups, first.groups);
      EXPECT_EQ(plan.node_rank_count, 4u);
      const std::vector<uint32_t>& members = plan.own_group().members;
      EXPECT_EQ(std::count(members.begin(), members.end(), rank), 1);
      seen.insert(plan.own);
    }
    EXPECT_EQ(seen.size(), first.groups.size());
  }
}

}  // namespace
}  // namespace varve
