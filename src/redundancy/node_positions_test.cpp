#include "redundancy/node_positions.h"

#include <gtest/gtest.h>

namespace varve {
namespace {

using Found = NodeClaim::Found;

/// Groups of nodes that protect nothing, named as given.
std::vector<ParityGroup> groups_of(const std::vector<std::vector<std::string>>& names) {
  std::vector<ParityGroup> groups;
  for (const auto& members : names) {
    ProtectedGroup group{
        "job@1.1-of-1", Redundancy::parse("partner").value(), ScoreFunction::preferred().algorithm(), {}};
    for (const std::string& name : members) group.members.push_back({name, {}, {}});
    groups.push_back(ParityGroup::create(std::move(group)).value());
  }
  return groups;
}

NodeClaim claim(std::string node, Found found, GroupPosition at) { return {found, at, true, false, std::move(node)}; }
NodeClaim empty(std::string node) { return {Found::by_nothing, {}, true, true, std::move(node)}; }

using Ranks = std::vector<std::vector<uint32_t>>;

TEST(NodePositions, AreThoseThatNodesClaim) {
  const auto groups = groups_of({{"a", "c"}, {"b", "d"}});
  const std::vector<NodeClaim> claims = {claim("d", Found::by_redundancy_file, {1, 1}),
                                         claim("a", Found::by_header, {0, 0}), claim("x", Found::by_arena, {0, 1}),
                                         claim("b", Found::by_redundancy_file, {1, 0})};
  EXPECT_EQ(assign_positions(groups, claims).value(), (Ranks{{1, 2}, {3, 0}}));
}

TEST(NodePositions, GoToWhoIsKnownByMoreAndThenByRank) {
  const auto groups = groups_of({{"a", "b"}});
  std::vector<NodeClaim> claims = {claim("x", Found::by_header, {0, 0}), claim("y", Found::by_redundancy_file, {0, 0}),
                                   claim("z", Found::by_redundancy_file, {0, 0}), empty("e")};
  EXPECT_EQ(assign_positions(groups, claims).value(), (Ranks{{1, 3}}));
  claims.pop_back();
  EXPECT_EQ(assign_positions(groups, claims).status().code(), StatusCode::already_exists);
}

TEST(NodePositions, ThatNobodyClaimsGoToFreeNodesByNameThenInOrder) {
  const auto groups = groups_of({{"a", "c", "e"}, {"b", "d", "f"}});
  const std::vector<NodeClaim> claims = {empty("x"), empty("c"), empty("y"), empty("z"), empty("f"), empty("w")};
  // In order a, b, d, e are left for x, y, z, w.
  EXPECT_EQ(assign_positions(groups, claims).value(), (Ranks{{0, 1, 5}, {2, 3, 4}}));
}

TEST(NodePositions, NeedEnoughNodesWithStores) {
  const auto groups = groups_of({{"a", "b"}});
  std::vector<NodeClaim> claims = {empty("a"), NodeClaim()};
  const Status status = assign_positions(groups, claims).status();
  EXPECT_EQ(status.code(), StatusCode::not_found);
  EXPECT_NE(status.to_string().find("node b"), std::string::npos) << status.to_string();
}

TEST(NodePositions, OfNodesThatAreNotNeededAreNone) {
  const auto groups = groups_of({{"a", "b"}});
  const std::vector<NodeClaim> claims = {empty("x"), claim("a", Found::by_header, {0, 0}), empty("b")};
  EXPECT_EQ(assign_positions(groups, claims).value(), (Ranks{{1, 2}}));
}

TEST(NodeClaim, RoundTripsAndRefusesGarbage) {
  const auto groups = groups_of({{"a", "b"}});
  const NodeClaim sent = claim("node", Found::by_arena, {0, 1});
  const ByteVector bytes = sent.encode();
  const NodeClaim received = NodeClaim::decode(bytes, groups).value();
  EXPECT_EQ(received.found, sent.found);
  EXPECT_EQ(received.at, sent.at);
  EXPECT_TRUE(received.has_store && !received.is_free);
  EXPECT_EQ(received.node, "node");
  for (size_t count = 0; count < bytes.size(); ++count) {
    EXPECT_EQ(NodeClaim::decode(ByteSpan(bytes).first(count), groups).status().code(), StatusCode::corrupt);
  }
  EXPECT_EQ(NodeClaim::decode(claim("n", Found::by_arena, {1, 0}).encode(), groups).status().code(),
            StatusCode::corrupt);
  EXPECT_EQ(NodeClaim::decode(claim("n", Found::by_arena, {0, 2}).encode(), groups).status().code(),
            StatusCode::corrupt);
}

}  // namespace
}  // namespace varve
