#include "redundancy/node_redundancy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "redundancy/parity_group.h"

namespace varve {
namespace {

/// `node_count` nodes with `ranks_each` ranks each, filled one after another.
std::vector<std::string> nodes_of_ranks(uint32_t node_count, uint32_t ranks_each = 2) {
  std::vector<std::string> nodes;
  for (uint32_t rank = 0; rank < node_count * ranks_each; ++rank) {
    nodes.push_back("node" + std::to_string(rank / ranks_each));
  }
  return nodes;
}

TEST(Redundancy, IsReadAndWritten) {
  using Scheme = Redundancy::Scheme;
  EXPECT_EQ(Redundancy::parse("partner").value(), (Redundancy{Scheme::partner, 1, 1}));
  EXPECT_EQ(Redundancy::parse("xor:5").value(), (Redundancy{Scheme::exclusive_or, 4, 1}));
  EXPECT_EQ(Redundancy::parse("rs:4+2").value(), (Redundancy{Scheme::reed_solomon, 4, 2}));
  for (const char* text : {"partner", "xor:2", "xor:8", "xor:255", "rs:1+1", "rs:4+2", "rs:254+1", "rs:1+254"}) {
    EXPECT_EQ(Redundancy::parse(text).value().text(), text);
  }
}

TEST(Redundancy, RefusesWhatIsNone) {
  for (const char* text : {"",
                           "Partner",
                           "partner:2",
                           "xor",
                           "xor:",
                           "xor:0",
                           "xor:1",
                           "xor:256",
                           "xor:-3",
                           "xor:4 ",
                           "xor:99999999999999999999",
                           "rs:",
                           "rs:4",
                           "rs:4+",
                           "rs:+2",
                           "rs:0+2",
                           "rs:4+0",
                           "rs:254+2",
                           "rs:4+2+1",
                           "rs:4-2",
                           "raid5"}) {
    const Status status = Redundancy::parse(text).status();
    EXPECT_EQ(status.code(), StatusCode::invalid_argument) << text;
    EXPECT_FALSE(status.hint().empty());
  }
}

TEST(FailureGroups, TakeNodesFarFromEachOther) {
  const FailureGroups plan = plan_failure_groups(nodes_of_ranks(8), *Redundancy::parse("xor:4")).value();
  ASSERT_EQ(plan.groups.size(), 2u);
  EXPECT_EQ(plan.groups[0].nodes, (std::vector<uint32_t>{0, 2, 4, 6}));
  EXPECT_EQ(plan.groups[1].nodes, (std::vector<uint32_t>{1, 3, 5, 7}));
  EXPECT_EQ(plan.node_of_rank[15], 7u);
  EXPECT_EQ(plan.place_of_node[7], (FailureGroups::Place{1, 3}));
}

TEST(FailureGroups, LetLeftOverNodesJoin) {
  const FailureGroups partners = plan_failure_groups(nodes_of_ranks(5), Redundancy{}).value();
  ASSERT_EQ(partners.groups.size(), 2u);
  EXPECT_EQ(partners.groups[0].nodes, (std::vector<uint32_t>{0, 2, 4}));
  EXPECT_EQ(partners.groups[1].nodes, (std::vector<uint32_t>{1, 3}));
}

TEST(FailureGroups, RefuseTooFewNodes) {
  for (const char* scheme : {"partner", "xor:4", "rs:3+2"}) {
    const Redundancy redundancy = *Redundancy::parse(scheme);
    for (uint32_t nodes = 0; nodes < redundancy.nodes_min(); ++nodes) {
      const Status status = plan_failure_groups(nodes_of_ranks(nodes), redundancy).status();
      EXPECT_EQ(status.code(), StatusCode::invalid_argument);
      EXPECT_EQ(status.subject(), scheme);
      EXPECT_FALSE(status.hint().empty());
    }
    EXPECT_TRUE(plan_failure_groups(nodes_of_ranks(redundancy.nodes_min()), redundancy).ok());
  }
}

TEST(FailureGroups, HaveEveryNodeOnceAndAreEven) {
  for (const char* scheme : {"partner", "xor:3", "xor:4", "rs:2+1", "rs:3+2", "rs:4+2"}) {
    const Redundancy redundancy = *Redundancy::parse(scheme);
    for (uint32_t nodes = redundancy.nodes_min(); nodes < 40; ++nodes) {
      const FailureGroups plan = plan_failure_groups(nodes_of_ranks(nodes, 3), redundancy).value();
      std::set<uint32_t> seen;
      size_t smallest = nodes, largest = 0;
      for (uint32_t group = 0; group < plan.groups.size(); ++group) {
        const std::vector<uint32_t>& members = plan.groups[group].nodes;
        smallest = std::min(smallest, members.size());
        largest = std::max(largest, members.size());
        for (uint32_t position = 0; position < members.size(); ++position) {
          EXPECT_TRUE(seen.insert(members[position]).second);
          EXPECT_EQ(plan.place_of_node[members[position]], (FailureGroups::Place{group, position}));
        }
      }
      EXPECT_EQ(seen.size(), nodes);
      EXPECT_GE(smallest, redundancy.nodes_min());
      EXPECT_LE(largest, smallest + 1);
    }
  }
}

TEST(FailureGroups, DependOnNothingButTheNodes) {
  std::vector<std::string> in_turns;
  for (uint32_t rank = 0; rank < 12; ++rank) in_turns.push_back("n" + std::to_string(rank % 4));
  const FailureGroups plan = plan_failure_groups(in_turns, Redundancy{}).value();
  EXPECT_EQ(plan, plan_failure_groups(in_turns, Redundancy{}).value());
  EXPECT_EQ(plan.nodes, (std::vector<std::string>{"n0", "n1", "n2", "n3"}));
  EXPECT_EQ(plan.groups.size(), 2u);
}

struct StripeShape {
  uint32_t members, data, parity;
};
const StripeShape kStripeShapes[] = {{2, 1, 1}, {3, 1, 1}, {3, 2, 1}, {5, 4, 1}, {7, 4, 1},
                                     {3, 1, 2}, {6, 4, 2}, {9, 4, 2}, {11, 3, 3}};

StripeGeometry geometry_of(const StripeShape& shape, std::vector<uint64_t> bytes = {}) {
  bytes.resize(shape.members, 1000);
  return StripeGeometry::create(shape.data, shape.parity, std::move(bytes)).value();
}

TEST(StripeGeometry, PutsThePartsOfAStripeOnDifferentMembers) {
  for (const StripeShape& shape : kStripeShapes) {
    const StripeGeometry geometry = geometry_of(shape);
    for (uint32_t stripe = 0; stripe < geometry.stripes(); ++stripe) {
      std::set<uint32_t> members;
      for (uint32_t d = 0; d < shape.data; ++d) {
        members.insert(geometry.data_member(stripe, d));
        EXPECT_EQ(geometry.stripe_of_piece(geometry.data_member(stripe, d), d), stripe);
      }
      for (uint32_t row = 0; row < shape.parity; ++row) {
        members.insert(geometry.parity_member(stripe, row));
        EXPECT_EQ(geometry.stripe_of_parity(geometry.parity_member(stripe, row), row), stripe);
      }
      EXPECT_EQ(members.size(), shape.data + shape.parity);
    }
  }
}

TEST(StripeGeometry, CutsAStreamIntoPiecesAndBlocksWithoutGaps) {
  for (uint64_t bytes : {uint64_t{0}, uint64_t{1}, uint64_t{3}, uint64_t{4}, uint64_t{5}, 4 * kParityBlockBytes,
                         4 * kParityBlockBytes + 1, 11 * kParityBlockBytes + 7}) {
    const StripeGeometry geometry = geometry_of({6, 4, 2}, {bytes});
    uint64_t end = 0;
    for (uint32_t d = 0; d < 4; ++d) {
      const ByteRange piece = geometry.piece(0, d);
      EXPECT_EQ(piece.begin, end);
      const uint32_t stripe = geometry.stripe_of_piece(0, d);
      EXPECT_GE(geometry.stripe_bytes(stripe), piece.bytes());
      for (uint64_t block = 0; block < parity_blocks(geometry.stripe_bytes(stripe)); ++block) {
        const ByteRange range = geometry.block_of_piece(0, d, block);
        EXPECT_EQ(range.begin, end);
        EXPECT_LE(range.bytes(), geometry.block_bytes(stripe, block));
        end = range.end;
      }
      EXPECT_EQ(piece.end, end);
    }
    EXPECT_EQ(end, bytes);
  }
}

TEST(StripeGeometry, RefusesWhatIsNoGroup) {
  EXPECT_EQ(StripeGeometry::create(2, 1, {1, 2}).status().code(), StatusCode::invalid_argument);
  EXPECT_EQ(StripeGeometry::create(0, 1, {1, 2}).status().code(), StatusCode::invalid_argument);
  EXPECT_EQ(StripeGeometry::create(1, 0, {1, 2}).status().code(), StatusCode::invalid_argument);
  EXPECT_EQ(StripeGeometry::create(UINT32_MAX, 2, {1, 2}).status().code(), StatusCode::invalid_argument);
  EXPECT_EQ(StripeGeometry::create(1, 1, std::vector<uint64_t>(1025)).status().code(), StatusCode::invalid_argument);
  EXPECT_EQ(StripeGeometry::create(1, 1, {1, kStreamBytesMax + 1}).status().code(), StatusCode::resource_limit);
}

}  // namespace
}  // namespace varve
