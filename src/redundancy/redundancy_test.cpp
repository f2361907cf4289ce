#include "redundancy/rebuild.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "redundancy/node_redundancy.h"
#include "redundancy/test_node_group.h"

namespace varve {
namespace {

using test::FileSizes;
using test::NodeGroup;

/// Files of unequal lengths; one node has none at all, some files are empty, one spans several blocks of several
/// pieces.
FileSizes unequal_sizes(uint32_t members, uint64_t largest) {
  FileSizes sizes(members);
  for (uint32_t i = 0; i < members; ++i) sizes[i] = {{"a.arena", 100 + 977 * i}, {"b.arena", 3}, {"c.set", 0}};
  sizes[1] = {};
  sizes[0]["a.arena"] = largest;
  sizes[members - 1]["z.set"] = 0;
  return sizes;
}

FileSizes even_sizes(uint32_t members) {
  return FileSizes(members, {{"a.arena", 5000}, {"b.arena", 1234}, {"c.set", 77}});
}

struct GroupShape {
  const char* scheme;
  uint32_t members;
};
const GroupShape kGroupShapes[] = {{"partner", 2}, {"partner", 3}, {"xor:2", 2},  {"xor:2", 3},  {"xor:3", 3},
                                   {"xor:3", 5},   {"xor:4", 4},   {"xor:5", 5},  {"xor:5", 7},  {"rs:1+1", 2},
                                   {"rs:1+2", 3},  {"rs:2+1", 3},  {"rs:2+1", 4}, {"rs:3+2", 5}, {"rs:3+2", 6},
                                   {"rs:4+2", 6},  {"rs:4+2", 8}};

/// Loses all nodes of `lost` (a bit each), rebuilds, and compares; or is refused, and then nothing else has changed.
void check_group_loss(const NodeGroup& whole, uint32_t lost, bool must_refuse) {
  NodeGroup cluster = whole.copy();
  for (uint32_t position = 0; position < cluster.members(); ++position) {
    if (lost >> position & 1) cluster.lose(position);
  }
  const NodeGroup before = cluster.copy();
  const Status status = cluster.rebuild();
  const auto lost_count = static_cast<uint32_t>(std::popcount(lost));
  if (status.ok()) {
    EXPECT_TRUE(cluster.same_files(whole)) << "lost " << lost;
    EXPECT_FALSE(must_refuse && lost_count > whole.redundancy().losses_max()) << "lost " << lost;
    return;
  }
  EXPECT_GT(lost_count, whole.redundancy().losses_max()) << "lost " << lost << ": " << status.to_string();
  EXPECT_EQ(status.code(), StatusCode::not_found) << status.to_string();
  EXPECT_TRUE(cluster.same_files(before)) << "lost " << lost;
}

TEST(Redundancy, RebuildsEveryLossOfNodesThatItPromisesAndRefusesOthers) {
  for (const GroupShape& shape : kGroupShapes) {
    SCOPED_TRACE(std::string(shape.scheme) + " on " + std::to_string(shape.members));
    NodeGroup cluster(shape.scheme, even_sizes(shape.members), 1);
    ASSERT_TRUE(cluster.protect().ok());
    const bool minimal = cluster.redundancy().nodes_min() == shape.members;
    for (uint32_t lost = 0; lost < 1u << shape.members; ++lost) check_group_loss(cluster, lost, minimal);
  }
}

TEST(Redundancy, RebuildsFilesOfUnequalLengths) {
  for (const GroupShape& shape : kGroupShapes) {
    SCOPED_TRACE(std::string(shape.scheme) + " on " + std::to_string(shape.members));
    NodeGroup cluster(shape.scheme, unequal_sizes(shape.members, 40'000), 2);
    ASSERT_TRUE(cluster.protect().ok());
    for (uint32_t lost = 0; lost < 1u << shape.members; ++lost) check_group_loss(cluster, lost, false);
  }
}

TEST(Redundancy, RebuildsFilesOfManyBlocks) {
  for (const GroupShape& shape : {GroupShape{"partner", 3}, {"xor:4", 4}, {"rs:2+1", 4}, {"rs:4+2", 6}}) {
    SCOPED_TRACE(std::string(shape.scheme) + " on " + std::to_string(shape.members));
    NodeGroup cluster(shape.scheme, unequal_sizes(shape.members, 9 * kParityBlockBytes + 12'345), 3);
    ASSERT_TRUE(cluster.protect().ok());
    for (uint32_t lost = 1; lost < 1u << shape.members; lost = lost * 2 + (lost == 1 ? 1 : 0)) {
      check_group_loss(cluster, lost, false);
    }
    check_group_loss(cluster, 0b101, false);
  }
}

TEST(Redundancy, ProtectsNodesThatHaveNothing) {
  NodeGroup cluster("xor:3", FileSizes(3), 4);
  ASSERT_TRUE(cluster.protect().ok());
  for (uint32_t lost : {1, 2, 4}) check_group_loss(cluster, lost, false);
}

TEST(Redundancy, TakesAPartnersFilesAsTheyAre) {
  NodeGroup cluster("partner", {{{"a", 10}}, {{"b", 2000}}}, 5);
  ASSERT_TRUE(cluster.protect().ok());
  const ByteVector parity = cluster.contents(0, std::string(kParityFileName)), copied = cluster.contents(1, "b");
  EXPECT_TRUE(std::equal(copied.begin(), copied.end(), parity.end() - 2000));
}

TEST(Redundancy, SpreadsParityEvenly) {
  for (const GroupShape& shape : kGroupShapes) {
    NodeGroup cluster(shape.scheme, even_sizes(shape.members), 6);
    ASSERT_TRUE(cluster.protect().ok());
    for (uint32_t position = 1; position < shape.members; ++position) {
      EXPECT_EQ(cluster.contents(position, std::string(kParityFileName)).size(),
                cluster.contents(0, std::string(kParityFileName)).size());
    }
  }
}

TEST(Redundancy, NamesNodesAndFilesWhereItRefuses) {
  NodeGroup cluster("xor:3", even_sizes(3), 7);
  ASSERT_TRUE(cluster.protect().ok());
  cluster.lose(0);
  cluster.remove(2, "b.arena");
  const Status status = cluster.rebuild();
  EXPECT_EQ(status.code(), StatusCode::not_found);
  for (const char* part : {"node0", "everything", "node2", "b.arena", "xor:3", "job@7"}) {
    EXPECT_NE(status.to_string().find(part), std::string::npos) << status.to_string();
  }
  EXPECT_EQ(status.to_string().find("node1"), std::string::npos) << status.to_string();
}

TEST(Redundancy, RebuildsDamagedFilesOfOneNode) {
  std::mt19937_64 random(8);
  for (const GroupShape& shape : kGroupShapes) {
    SCOPED_TRACE(std::string(shape.scheme) + " on " + std::to_string(shape.members));
    NodeGroup whole(shape.scheme, unequal_sizes(shape.members, 40'000), 8);
    ASSERT_TRUE(whole.protect().ok());
    for (int round = 0; round < 20; ++round) {
      NodeGroup cluster = whole.copy();
      const auto position = static_cast<uint32_t>(random() % shape.members);
      for (uint64_t damages = 1 + random() % 4; damages > 0; --damages) cluster.damage_some_file(position, random());
      const Status status = cluster.rebuild();
      ASSERT_TRUE(status.ok()) << status.to_string();
      ASSERT_TRUE(cluster.same_files(whole)) << "round " << round;
    }
  }
}

TEST(Redundancy, RebuildsDamageOfMoreNodesWhereItDoesNotFallOnOneAnother) {
  NodeGroup whole("xor:3", even_sizes(3), 9);
  ASSERT_TRUE(whole.protect().ok());
  NodeGroup cluster = whole.copy();
  // All redundancy files but one, with all data there: nothing is missing that could not be made again.
  for (uint32_t position : {0, 1}) cluster.remove(position, kParityFileName);
  EXPECT_TRUE(cluster.rebuild().ok());
  EXPECT_TRUE(cluster.same_files(whole));
}

TEST(Redundancy, NeverRebuildsAnythingWrong) {
  std::mt19937_64 random(10);
  uint32_t rebuilt = 0, refused = 0;
  for (int round = 0; round < 300; ++round) {
    const GroupShape& shape = kGroupShapes[random() % std::size(kGroupShapes)];
    NodeGroup whole(shape.scheme, unequal_sizes(shape.members, 20'000), random());
    ASSERT_TRUE(whole.protect().ok());
    NodeGroup cluster = whole.copy();
    for (uint64_t damages = 1 + random() % 5; damages > 0; --damages) {
      const auto position = static_cast<uint32_t>(random() % shape.members);
      if (random() % 4 == 0) cluster.lose(position);
      if (random() % 2 == 0) cluster.damage_some_file(position, random());
    }
    const Status status = cluster.rebuild();
    ++(status.ok() ? rebuilt : refused);
    EXPECT_TRUE(status.ok() ? cluster.same_files(whole) : status.code() == StatusCode::not_found)
        << status.to_string() << " in round " << round;
  }
  EXPECT_GT(rebuilt, 50u);
  EXPECT_GT(refused, 20u);
}

TEST(Redundancy, OfNothingLostChangesNothing) {
  NodeGroup cluster("rs:2+1", even_sizes(3), 11);
  ASSERT_TRUE(cluster.protect().ok());
  FaultyFileSystem watched(cluster.fs(1));
  EXPECT_TRUE(cluster.rebuild_with(1, watched).ok());
  EXPECT_EQ(watched.operation_count().mutating, 0u);
}

TEST(Redundancy, MadeAgainIsTheSame) {
  NodeGroup cluster("rs:2+2", unequal_sizes(5, 30'000), 12);
  ASSERT_TRUE(cluster.protect().ok());
  const NodeGroup before = cluster.copy();
  ASSERT_TRUE(cluster.protect().ok());
  EXPECT_TRUE(cluster.same_files(before));
}

TEST(Redundancy, NoticesFilesThatChangeWhileItIsMade) {
  NodeGroup cluster("xor:3", even_sizes(3), 13);
  const ParityGroup group = cluster.describe().value();
  cluster.put(1, "a.arena", ByteVector(5000, std::byte{1}));
  uint32_t corrupt = 0;
  for (uint32_t position = 0; position < 3; ++position) {
    FolderExchange exchange(group, cluster.places());
    const Status status = make_parity(cluster.fs(position), cluster.folder(), group, position, exchange);
    corrupt += status.code() == StatusCode::corrupt ? 1 : 0;
    EXPECT_TRUE(position == 1 || !status.ok());
  }
  EXPECT_EQ(corrupt, 2u);
}

TEST(Redundancy, RefusesRedundancyFilesThatContradictEachOther) {
  NodeGroup cluster("xor:3", even_sizes(3), 14);
  ASSERT_TRUE(cluster.protect().ok());
  const ByteVector stale = cluster.contents(0, std::string(kParityFileName));
  cluster.put(1, "a.arena", ByteVector(100));
  ASSERT_TRUE(cluster.protect().ok());
  cluster.put(0, std::string(kParityFileName), stale);
  EXPECT_EQ(cluster.rebuild().code(), StatusCode::corrupt);
  // One of another set is none.
  cluster.relabel("job@8");
  EXPECT_EQ(cluster.rebuild().code(), StatusCode::not_found);
}

/// Passes blocks on, counts the rounds, and spoils the blocks of some.
class SpoiledExchange final : public BlockExchange {
 public:
  SpoiledExchange(BlockExchange& inner, uint64_t spoil_from) : inner_(inner), spoil_from_(spoil_from) {}
  Status fetch(std::span<const BlockRequest> requests, std::span<const MutableByteSpan> into) override {
    VARVE_TRY(inner_.fetch(requests, into));
    if (rounds_++ >= spoil_from_ && !into.empty()) into.back()[into.back().size() / 2] ^= std::byte{4};
    return {};
  }
  uint64_t rounds() const { return rounds_; }

 private:
  BlockExchange& inner_;
  uint64_t spoil_from_, rounds_ = 0;
};

TEST(Redundancy, NoticesBlocksThatAreSpoiledOnTheWay) {
  NodeGroup cluster("rs:3+2", unequal_sizes(5, 10 * kParityBlockBytes), 15);
  ASSERT_TRUE(cluster.protect().ok());
  cluster.lose(0);
  cluster.lose(3);
  const NodeGroup before = cluster.copy();
  const NodeGroup::Rebuilding rebuilding = cluster.look().value();
  for (uint64_t from : {uint64_t{0}, uint64_t{3}}) {
    FolderExchange folders(*rebuilding.group, cluster.places());
    SpoiledExchange exchange(folders, from);
    EXPECT_EQ(rebuild(cluster.fs(0), cluster.folder(), rebuilding.plan, 0, exchange).code(), StatusCode::corrupt);
    EXPECT_EQ(exchange.rounds(), rebuilding.plan.rounds());
  }
  EXPECT_TRUE(cluster.same_files(before)) << "no file of a failed rebuild gets its name, and nothing is left over";
}

TEST(Redundancy, HasTheSameRoundsForAllMembers) {
  NodeGroup cluster("rs:3+2", unequal_sizes(6, 7 * kParityBlockBytes), 16);
  ASSERT_TRUE(cluster.protect().ok());
  cluster.lose(0);
  const NodeGroup::Rebuilding rebuilding = cluster.look().value();
  EXPECT_GT(rebuilding.plan.rounds(), 5u);
  for (uint32_t position = 0; position < 6; ++position) {
    FolderExchange folders(*rebuilding.group, cluster.places());
    SpoiledExchange exchange(folders, UINT64_MAX);
    FaultyFileSystem full(cluster.fs(position), {{.kind = FaultKind::no_space, .persistent = true}});
    EXPECT_EQ(rebuild(full, cluster.folder(), rebuilding.plan, position, exchange).ok(), position != 0);
    EXPECT_EQ(exchange.rounds(), rebuilding.plan.rounds());
  }
}

/// Whatever strikes one member while it rebuilds: it says so, or all is well; and the next attempt succeeds.
void check_fault(const NodeGroup& lossy, const NodeGroup& whole, const Fault& fault) {
  NodeGroup cluster = lossy.copy();
  FaultyFileSystem faulty(cluster.fs(0), {fault});
  const Status status = cluster.rebuild_with(0, faulty);
  EXPECT_TRUE(faulty.struck() || status.ok());
  if (status.ok()) {
    EXPECT_TRUE(cluster.same_files_of(whole, 0)) << faulty.trace();
  }
  const Status again = cluster.rebuild();
  EXPECT_TRUE(again.ok()) << again.to_string() << faulty.trace();
  EXPECT_TRUE(cluster.same_files(whole)) << faulty.trace();
}

TEST(Redundancy, SurvivesEveryFaultOfARebuild) {
  NodeGroup whole("rs:2+1", FileSizes(3, {{"a.arena", 3000}, {"b.arena", 700}, {"c.set", 0}}), 17);
  ASSERT_TRUE(whole.protect().ok());
  NodeGroup lossy = whole.copy();
  lossy.damage(0, "a.arena");
  for (std::string_view name : {std::string_view("c.set"), kParityFileName}) {
    lossy.remove(0, name);
  }
  NodeGroup counted = lossy.copy();
  FaultyFileSystem counter(counted.fs(0));
  ASSERT_TRUE(counted.rebuild_with(0, counter).ok());
  const FaultyFileSystem::OperationCount count = counter.operation_count();
  EXPECT_GT(count.mutating, 8u);
  for (const FaultKind kind : {FaultKind::no_space, FaultKind::io_error, FaultKind::short_write, FaultKind::failed_sync,
                               FaultKind::failed_rename}) {
    for (uint64_t operation = 0; operation < count.mutating; ++operation) {
      check_fault(lossy, whole, {.kind = kind, .at_operation = operation, .seed = operation});
    }
  }
  for (const FaultKind kind : {FaultKind::failed_read, FaultKind::flipped_bit}) {
    for (uint64_t operation = 0; operation < count.reading; ++operation) {
      check_fault(lossy, whole, {.kind = kind, .at_operation = operation, .seed = operation});
    }
  }
}

/// The member's disk after a crash at some operation of `act`, for each operation and each kind of crash.
template <class Act, class Check>
void for_each_group_crash(const NodeGroup& start, uint32_t position, const Act& act, const Check& check) {
  NodeGroup counted = start.copy();
  FaultyFileSystem counter(counted.fs(position));
  ASSERT_TRUE(act(counted, counter).ok());
  const uint64_t count = counter.operation_count().mutating;
  for (uint64_t operation = 0; operation <= count; ++operation) {
    for (const CrashPolicy& policy : {CrashPolicy{CrashPolicy::Kind::keep_all},
                                      {CrashPolicy::Kind::drop_unsynced},
                                      {CrashPolicy::Kind::torn, 1},
                                      {CrashPolicy::Kind::torn, 2},
                                      {CrashPolicy::Kind::torn, 3}}) {
      NodeGroup cluster = start.copy();
      Status status;
      {
        FaultyFileSystem faulty(cluster.fs(position),
                                {{.kind = FaultKind::crash, .at_operation = operation, .seed = policy.seed}});
        status = act(cluster, faulty);
      }
      cluster.crash(position, policy);
      SCOPED_TRACE("crash at " + std::to_string(operation));
      check(cluster, status);
    }
  }
}

TEST(Redundancy, SurvivesACrashAtAnyStepOfARebuild) {
  NodeGroup whole("rs:2+1", FileSizes(3, {{"a.arena", 3000}, {"b.arena", 700}, {"c.set", 0}}), 18);
  ASSERT_TRUE(whole.protect().ok());
  NodeGroup lossy = whole.copy();
  lossy.damage(0, "a.arena");
  for (std::string_view name : {std::string_view("c.set"), kParityFileName}) {
    lossy.remove(0, name);
  }
  for_each_group_crash(
      lossy, 0, [](NodeGroup& cluster, FaultyFileSystem& faulty) { return cluster.rebuild_with(0, faulty); },
      [&](NodeGroup& cluster, const Status& status) {
        if (status.ok()) {
          EXPECT_TRUE(cluster.same_files_of(whole, 0)) << "it said that all was durable";
        }
        EXPECT_EQ(cluster.contents(0, "b.arena"), whole.contents(0, "b.arena"));
        const Status again = cluster.rebuild();
        EXPECT_TRUE(again.ok()) << again.to_string();
        EXPECT_TRUE(cluster.same_files(whole));
      });
}

TEST(Redundancy, SurvivesACrashAtAnyStepOfMakingIt) {
  NodeGroup plain("xor:3", FileSizes(3, {{"a.arena", 3000}, {"c.set", 10}}), 19);
  NodeGroup whole = plain.copy();
  ASSERT_TRUE(whole.protect().ok());
  for (const NodeGroup* start : {&plain, &whole}) {
    for_each_group_crash(
        *start, 1, [](NodeGroup& cluster, FaultyFileSystem& faulty) { return cluster.protect_with(1, faulty); },
        [&](NodeGroup& cluster, const Status& status) {
          EXPECT_EQ(cluster.contents(1, "a.arena"), whole.contents(1, "a.arena"));
          const bool has_it =
              cluster.contents(1, std::string(kParityFileName)) == whole.contents(1, std::string(kParityFileName));
          EXPECT_TRUE(has_it || (!status.ok() && start == &plain));
          EXPECT_TRUE(cluster.protect().ok());
          EXPECT_TRUE(cluster.same_files(whole));
        });
  }
}

TEST(ProtectedMember, IsDescribedFromItsFiles) {
  NodeGroup cluster("xor:3", FileSizes(3, {{"a", 2500}, {"b", 0}}), 20);
  MemoryFileSystem& fs = cluster.fs(0);
  const Redundancy redundancy = cluster.redundancy();
  const ProtectedMember member = describe_member(fs, "/node", "n", {"b", "a"}, redundancy).value();
  EXPECT_EQ(member.files[0].name, "a");
  EXPECT_EQ(member.files[0].sum, ScoreFunction::preferred()(cluster.contents(0, "a")));
  EXPECT_EQ(member.files[1].sum, ScoreFunction::preferred()({}));
  EXPECT_EQ(member.block_sums.size(), 2u);
  EXPECT_EQ(member.block_sums[0], crc32c(ByteSpan(cluster.contents(0, "a")).first(1250)));
  EXPECT_EQ(describe_member(fs, "/node", "n", {"a", "a"}, redundancy).status().code(), StatusCode::invalid_argument);
  EXPECT_EQ(describe_member(fs, "/node", "n", {"../a"}, redundancy).status().code(), StatusCode::invalid_argument);
  EXPECT_EQ(describe_member(fs, "/node", "n", {"c"}, redundancy).status().code(), StatusCode::not_found);
  EXPECT_EQ(describe_member(fs, "/", "n", {"node"}, redundancy).status().code(), StatusCode::invalid_argument);
}

TEST(MemberReader, RefusesWhatIsBehindTheEnd) {
  NodeGroup cluster("partner", {{{"a", 10}, {"b", 5}}, {}}, 21);
  const ParityGroup group = cluster.describe().value();
  ByteVector bytes(15);
  MemberReader reader(cluster.fs(0), cluster.folder(), group.member(0).files);
  EXPECT_TRUE(reader.read_stream(0, bytes).ok());
  EXPECT_EQ(ByteVector(bytes.begin() + 10, bytes.end()), cluster.contents(0, "b"));
  EXPECT_EQ(reader.read_stream(1, bytes).code(), StatusCode::invalid_argument);
  EXPECT_EQ(reader.read_stream(UINT64_MAX, bytes).code(), StatusCode::invalid_argument);
  MemberReader empty(cluster.fs(1), cluster.folder(), group.member(1).files);
  EXPECT_TRUE(empty.read_stream(0, {}).ok());
  EXPECT_EQ(empty.read_stream(0, bytes).code(), StatusCode::invalid_argument);
}

}  // namespace
}  // namespace varve
