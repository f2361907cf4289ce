// Redundancy among ranks that share nothing, over a communicator: by messages, by collective calls, in groups.
#include "redundancy/node_exchange.h"

#include <gtest/gtest.h>

#include "core/faulty_file_system.h"
#include "redundancy/member_files.h"
#include "redundancy/rebuild.h"
#include "redundancy/test_node_group.h"
#include "redundancy/test_nodes.h"

namespace varve {
namespace {

using test::NodeGroup;

/// What each rank does, at the same time as all others, with a communicator with messages or without.
void on_ranks(uint32_t count, bool messages, const std::function<void(Communicator&)>& act) {
  std::vector<std::thread> threads;
  for (auto& ranks : make_thread_communicators(count)) {
    threads.emplace_back([&, own = std::move(ranks)] {
      test::CollectiveOnly collective(*own);
      act(messages ? *own : collective);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

std::vector<uint32_t> all_ranks(uint32_t count) {
  std::vector<uint32_t> ranks;
  for (uint32_t rank = 0; rank < count; ++rank) ranks.push_back(rank);
  return ranks;
}

class CommunicatorExchangeTest : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(All, CommunicatorExchangeTest, testing::Bool(),
                         [](const auto& messages) { return messages.param ? "messages" : "collective"; });

TEST_P(CommunicatorExchangeTest, MakesAndRebuildsWhatOneProcessWould) {
  test::FileSizes sizes(6, {{"a.arena", 5000}, {"b.set", 100}});
  sizes[2]["a.arena"] = 6 * kParityBlockBytes + 17;
  sizes[4] = {};
  NodeGroup in_turns("rs:3+2", sizes, 1), cluster("rs:3+2", sizes, 1);
  ASSERT_TRUE(in_turns.protect().ok());
  const ParityGroup group = cluster.describe().value();
  const auto run = [&](const std::function<Status(uint32_t, BlockExchange&)>& act) {
    on_ranks(6, GetParam(), [&](Communicator& ranks) {
      MemberReader reader(cluster.fs(ranks.rank()), cluster.folder(), group.member(ranks.rank()).files);
      CommunicatorExchange exchange(ranks, all_ranks(6), &reader);
      const Status status = act(ranks.rank(), exchange);
      EXPECT_TRUE(status.ok()) << status.to_string();
      EXPECT_TRUE(exchange.finish().ok());
    });
  };
  run([&](uint32_t position, BlockExchange& exchange) {
    return make_parity(cluster.fs(position), cluster.folder(), group, position, exchange);
  });
  EXPECT_TRUE(cluster.same_files(in_turns));
  cluster.lose(2);
  cluster.lose(3);
  const NodeGroup::Rebuilding rebuilding = cluster.look().value();
  run([&](uint32_t position, BlockExchange& exchange) {
    return rebuild(cluster.fs(position), cluster.folder(), rebuilding.plan, position, exchange);
  });
  EXPECT_TRUE(cluster.same_files(in_turns));
}

TEST_P(CommunicatorExchangeTest, ServesBlocksOfAllSizesToOneself) {
  NodeGroup cluster("partner", {{{"a", 2 * kParityBlockBytes}}, {}}, 2);
  const ParityGroup group = cluster.describe().value();
  const ByteVector whole = cluster.contents(0, "a");
  on_ranks(1, GetParam(), [&](Communicator& ranks) {
    MemberReader reader(cluster.fs(0), cluster.folder(), group.member(0).files);
    CommunicatorExchange exchange(ranks, {0, 0}, &reader);
    for (const uint64_t bytes : {uint64_t{0}, uint64_t{1}, kParityBlockBytes}) {
      ByteVector into(bytes);
      const BlockRequest request{0, BlockRequest::Kind::stream, 7, bytes};
      const MutableByteSpan span = into;
      EXPECT_TRUE(exchange.fetch(std::span(&request, 1), std::span(&span, 1)).ok());
      EXPECT_TRUE(std::equal(into.begin(), into.end(), whole.begin() + 7));
    }
    EXPECT_TRUE(exchange.finish().ok());
  });
}

TEST_P(CommunicatorExchangeTest, WorksAlone) {
  auto single = make_single_communicator();
  NodeGroup cluster("partner", {{{"a", 100}}, {}}, 3);
  const ParityGroup group = cluster.describe().value();
  MemberReader reader(cluster.fs(0), cluster.folder(), group.member(0).files);
  test::CollectiveOnly collective(*single);
  CommunicatorExchange exchange(GetParam() ? *single : collective, {0}, &reader);
  ByteVector into(100);
  const BlockRequest request{0, BlockRequest::Kind::stream, 0, 100};
  const MutableByteSpan span = into;
  EXPECT_TRUE(exchange.fetch(std::span(&request, 1), std::span(&span, 1)).ok());
  EXPECT_EQ(into, cluster.contents(0, "a"));
  EXPECT_TRUE(exchange.finish().ok());
}

TEST_P(CommunicatorExchangeTest, TellsWhoAskedWhatCannotBeReadAndGoesOnForTheOthers) {
  NodeGroup cluster("xor:3", test::FileSizes(3, {{"a", 1000}}), 4);
  const ParityGroup group = cluster.describe().value();
  on_ranks(3, GetParam(), [&](Communicator& ranks) {
    MemberReader reader(cluster.fs(ranks.rank()), cluster.folder(), group.member(ranks.rank()).files);
    CommunicatorExchange exchange(ranks, all_ranks(3), &reader);
    for (int round = 0; round < 5; ++round) {
      // The first asks for what is behind the end, the second for a redundancy file that is not there.
      const BlockRequest request{(ranks.rank() + 1) % 3,
                                 ranks.rank() == 1 ? BlockRequest::Kind::parity_file : BlockRequest::Kind::stream,
                                 ranks.rank() == 0 ? uint64_t{500} : uint64_t{0}, 900};
      ByteVector into(900);
      const MutableByteSpan span = into;
      const Status status = exchange.fetch(std::span(&request, 1), std::span(&span, 1));
      const StatusCode expected[] = {StatusCode::invalid_argument, StatusCode::not_found, StatusCode::ok};
      EXPECT_EQ(status.code(), expected[ranks.rank()]) << status.to_string();
    }
    EXPECT_TRUE(exchange.finish().ok());
  });
}

TEST_P(CommunicatorExchangeTest, LetsRanksHaveDifferentNumbersOfRounds) {
  NodeGroup cluster("xor:4", test::FileSizes(4, {{"a", 4000}}), 5);
  const ParityGroup group = cluster.describe().value();
  on_ranks(4, GetParam(), [&](Communicator& ranks) {
    MemberReader reader(cluster.fs(ranks.rank()), cluster.folder(), group.member(ranks.rank()).files);
    CommunicatorExchange exchange(ranks, all_ranks(4), ranks.rank() == 3 ? nullptr : &reader);
    for (uint32_t round = 0; round < 3 * ranks.rank(); ++round) {
      const BlockRequest request{round % 3, BlockRequest::Kind::stream, round, 100};
      ByteVector into(100);
      const MutableByteSpan span = into;
      EXPECT_TRUE(exchange.fetch(std::span(&request, 1), std::span(&span, 1)).ok());
      const ByteVector whole = cluster.contents(round % 3, "a");
      EXPECT_TRUE(std::equal(into.begin(), into.end(), whole.begin() + round));
    }
    EXPECT_TRUE(exchange.finish().ok());
  });
}

TEST_P(CommunicatorExchangeTest, RefusesTooMuchAtOnceAndStillTakesPart) {
  NodeGroup cluster("partner", {{{"a", 100}}, {{"a", 100}}}, 6);
  const ParityGroup group = cluster.describe().value();
  on_ranks(2, GetParam(), [&](Communicator& ranks) {
    MemberReader reader(cluster.fs(ranks.rank()), cluster.folder(), group.member(ranks.rank()).files);
    CommunicatorExchange exchange(ranks, all_ranks(2), &reader);
    ByteVector into(2 * kParityBlockBytes);
    const uint64_t bytes = ranks.rank() == 0 ? into.size() : 100;
    const BlockRequest request{1 - ranks.rank(), BlockRequest::Kind::stream, 0, bytes};
    const MutableByteSpan span = MutableByteSpan(into).first(bytes);
    const Status status = exchange.fetch(std::span(&request, 1), std::span(&span, 1));
    EXPECT_EQ(status.code(), ranks.rank() == 0 ? StatusCode::internal : StatusCode::ok);
    EXPECT_TRUE(exchange.finish().ok());
  });
}

TEST_P(CommunicatorExchangeTest, TakesGarbageForNothing) {
  NodeGroup cluster("partner", {{{"a", 100}}, {{"a", 100}}}, 7);
  const ParityGroup group = cluster.describe().value();
  on_ranks(2, GetParam(), [&](Communicator& ranks) {
    if (ranks.rank() == 1) {
      // Asks for nothing that makes sense, in five ways, and then says that it is done.
      const std::vector<ByteVector> garbage = {
          {},
          {std::byte{0}, std::byte{0xff}, std::byte{0xff}, std::byte{0xff}, std::byte{0x7f}},
          {std::byte{0}, std::byte{1}, std::byte{9}, std::byte{0}, std::byte{0}, std::byte{1}},  // of rank 9
          {std::byte{0}, std::byte{1}, std::byte{0}, std::byte{7}, std::byte{0}, std::byte{1}},  // of no kind
          {std::byte{0}, std::byte{1}, std::byte{0}, std::byte{0}, std::byte{0}, std::byte{0xff}, std::byte{0xff},
           std::byte{0xff}, std::byte{0x7f}},  // long
      };
      for (const ByteVector& each : garbage) EXPECT_TRUE(ranks.all_gather(each).ok());
      EXPECT_TRUE(ranks.all_gather(ByteVector{std::byte{1}, std::byte{0}}).ok());
      return;
    }
    MemberReader reader(cluster.fs(0), cluster.folder(), group.member(0).files);
    CommunicatorExchange exchange(ranks, all_ranks(2), &reader);
    EXPECT_TRUE(exchange.finish().ok());
  });
}

TEST_P(CommunicatorExchangeTest, FailsForAllWhenARankHasEnded) {
  NodeGroup cluster("xor:3", test::FileSizes(3, {{"a", 5000}}), 8);
  const ParityGroup group = cluster.describe().value();
  on_ranks(3, GetParam(), [&](Communicator& ranks) {
    if (ranks.rank() == 1) return;
    MemberReader reader(cluster.fs(ranks.rank()), cluster.folder(), group.member(ranks.rank()).files);
    CommunicatorExchange exchange(ranks, all_ranks(3), &reader);
    const Status status = make_parity(cluster.fs(ranks.rank()), cluster.folder(), group, ranks.rank(), exchange);
    EXPECT_EQ(status.code(), StatusCode::io_error) << status.to_string();
    EXPECT_EQ(exchange.finish().code(), StatusCode::io_error);
  });
  for (uint32_t position : {0, 2}) EXPECT_EQ(cluster.file_names(position), std::vector<std::string>{"a"});
}

TEST_P(CommunicatorExchangeTest, GoesOnForTheOthersWhenAMemberFails) {
  NodeGroup cluster("xor:4", test::FileSizes(4, {{"a.arena", kParityBlockBytes}}), 9), whole = cluster.copy();
  ASSERT_TRUE(whole.protect().ok());
  const ParityGroup group = cluster.describe().value();
  on_ranks(4, GetParam(), [&](Communicator& ranks) {
    const uint32_t position = ranks.rank();
    FaultyFileSystem full(cluster.fs(position), {{.kind = FaultKind::no_space, .at_operation = 1, .persistent = true}});
    FileSystem& own = position == 1 ? static_cast<FileSystem&>(full) : cluster.fs(position);
    MemberReader reader(own, cluster.folder(), group.member(position).files);
    CommunicatorExchange exchange(ranks, all_ranks(4), &reader);
    const Status status = make_parity(own, cluster.folder(), group, position, exchange);
    EXPECT_EQ(status.code(), position == 1 ? StatusCode::no_space : StatusCode::ok);
    EXPECT_TRUE(exchange.finish().ok());
    EXPECT_EQ(cluster.same_files_of(whole, position), position != 1);
  });
}

TEST_P(CommunicatorExchangeTest, KeepsGroupsOfLeadersApart) {
  // Two groups, and a leader that is in none; the groups have different numbers of rounds.
  NodeGroup even("xor:3", test::FileSizes(3, {{"a", kParityBlockBytes + 5}}), 10);
  NodeGroup odd("xor:2", test::FileSizes(2, {{"a", 700}}), 11);
  const ParityGroup even_group = even.describe().value(), odd_group = odd.describe().value();
  on_ranks(6, GetParam(), [&](Communicator& leaders) {
    const uint32_t rank = leaders.rank();
    const bool is_even = rank % 2 == 0;
    std::vector<uint32_t> members = is_even ? std::vector<uint32_t>{4, 0, 2} : std::vector<uint32_t>{3, 1};
    if (rank == 5) members.clear();
    const auto group = LeaderGroup::create(leaders, members).value();
    EXPECT_EQ(group->is_member(), rank != 5);
    EXPECT_EQ(group->takes_part(), rank != 5 || !GetParam());
    if (!group->takes_part()) return;
    const auto gathered = group->gather(as_bytes(std::to_string(rank))).value();
    ASSERT_EQ(gathered.size(), members.size());
    for (size_t i = 0; i < members.size(); ++i) EXPECT_EQ(as_text(gathered[i]), std::to_string(members[i]));
    NodeGroup& cluster = is_even ? even : odd;
    const ParityGroup& parity = is_even ? even_group : odd_group;
    std::optional<MemberReader> reader;
    if (rank != 5)
      reader.emplace(cluster.fs(group->position()), cluster.folder(), parity.member(group->position()).files);
    const auto exchange = group->make_exchange(reader ? &*reader : nullptr);
    if (rank != 5) {
      const Status status =
          make_parity(cluster.fs(group->position()), cluster.folder(), parity, group->position(), *exchange);
      EXPECT_TRUE(status.ok()) << status.to_string();
    }
    EXPECT_TRUE(exchange->finish().ok());
  });
  for (NodeGroup* cluster : {&even, &odd}) {
    const NodeGroup made = cluster->copy();
    ASSERT_TRUE(cluster->protect().ok());
    EXPECT_TRUE(cluster->same_files(made));
  }
}

TEST(SurveyCodec, GivesBackWhatItWasGivenAndRefusesGarbage) {
  test::FileSizes sizes(2);
  for (int i = 0; i < 11; ++i) sizes[0]["f" + std::to_string(i)] = 1;
  NodeGroup cluster("partner", sizes, 12);
  const ParityGroup group = cluster.describe().value();
  MemberSurvey survey = MemberSurvey::all_whole(group, 0);
  survey.lost_files[3] = survey.lost_files[8] = survey.lost_files[10] = true;
  survey.parity_lost = true;
  for (int i = 0; i < 6; ++i) survey.damages.push_back(Status::corrupt("damage " + std::to_string(i), "f3"));
  const ByteVector encoded = encode_survey(survey);
  const MemberSurvey decoded = decode_survey(encoded, group, 0).value();
  EXPECT_EQ(decoded.lost_files, survey.lost_files);
  EXPECT_TRUE(decoded.parity_lost);
  ASSERT_EQ(decoded.damages.size(), 4u);
  EXPECT_EQ(decoded.damages[1].to_string(), survey.damages[1].to_string());
  EXPECT_EQ(decode_survey(encoded, group, 1).status().code(), StatusCode::corrupt) << "a member with other files";
  for (size_t bytes = 0; bytes < encoded.size(); ++bytes) {
    EXPECT_EQ(decode_survey(ByteSpan(encoded).first(bytes), group, 0).status().code(), StatusCode::corrupt);
  }
  ByteVector longer = encoded;
  longer.push_back(std::byte{0});
  EXPECT_EQ(decode_survey(longer, group, 0).status().code(), StatusCode::corrupt);
  ByteVector wrong = encoded;
  wrong[0] = std::byte{2};
  EXPECT_EQ(decode_survey(wrong, group, 0).status().code(), StatusCode::corrupt);
}

}  // namespace
}  // namespace varve
