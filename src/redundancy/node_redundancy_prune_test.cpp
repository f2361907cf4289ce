// Redundancy of node-local stores beside the prunes and the openings of other jobs in them, which come at any moment.
#include <gtest/gtest.h>

#include <functional>
#include <utility>

#include "core/paused_file_system.h"
#include "redundancy/node_folder.h"
#include "redundancy/node_redundancy.h"
#include "redundancy/test_nodes.h"
#include "store/prune.h"

namespace varve {
namespace {

using test::Nodes;

const SetName kDropped{"job", 1}, kSet{"job", 2};
constexpr uint32_t kStruck = 1;
const std::vector<uint64_t> kFew{3, 50, 99};

/// What another job does in the same store. It knows nothing of redundancy, and waits for no writer.
PruneOptions of_another_job(double silence_seconds = kLeaseSilenceSeconds) {
  PruneOptions options;
  options.wait_seconds = 0;
  options.silence_seconds = silence_seconds;
  return options;
}

Status prune(FileSystem& fs, const PruneOptions& options = of_another_job()) {
  VARVE_ASSIGN(const auto store, Store::open(fs, Nodes::path()));
  return prune_store(*store, options).status();
}

/// Three nodes with a set; on the struck one, most of the arena that has it is needed by nobody.
Nodes mostly_dead() {
  Nodes nodes(3);
  const auto store = Store::open(nodes.fs(kStruck), Nodes::path()).value();
  EXPECT_TRUE(test::save_numbers(*store, kDropped, test::numbers_between(1, 100)).ok());
  EXPECT_TRUE(test::save_numbers(*store, kSet, kFew).ok());
  EXPECT_TRUE(Catalog(*store).remove(kDropped).ok());
  for (const uint32_t node : {0u, 2u}) {
    const auto other = Store::open(nodes.fs(node), Nodes::path()).value();
    EXPECT_TRUE(test::save_numbers(*other, kSet, nodes.numbers(node, 2)).ok());
  }
  return nodes;
}

/// The struck node has the set, and with what protects it there, another node that is lost comes back.
void expect_still_protected(Nodes& nodes) {
  EXPECT_TRUE(test::check_numbers(*Store::open(nodes.fs(kStruck), Nodes::path()).value(), kSet, kFew).ok());
  EXPECT_TRUE(verify_store(*Store::open(nodes.fs(kStruck), Nodes::path()).value(), true).value().whole());
  nodes.lose(0, "new");
  const auto restored = nodes.restore().value();
  ASSERT_EQ(restored.size(), 1u);
  EXPECT_TRUE(restored[0].status.ok()) << Nodes::describe(restored);
  EXPECT_TRUE(nodes.check(0, kSet, 0).ok());
  EXPECT_TRUE(test::check_numbers(*Store::open(nodes.fs(kStruck), Nodes::path()).value(), kSet, kFew).ok());
}

/// Whatever `act` does on the struck node, it is stopped for `meanwhile` once, each time before another operation.
void at_every_moment(const Nodes& start, const std::function<Status(Nodes&, FileSystem&)>& act,
                     const std::function<void(Nodes&)>& meanwhile,
                     const std::function<void(Nodes&, const Status&)>& check) {
  bool paused = true;
  for (uint64_t at = 0; paused; ++at) {
    SCOPED_TRACE("before operation " + std::to_string(at));
    Nodes nodes = start.copy();
    PausedFileSystem slow(nodes.fs(kStruck), at, [&] { meanwhile(nodes); });
    const Status status = act(nodes, slow);
    paused = slow.paused();
    check(nodes, status);
    if (testing::Test::HasFailure()) return;
  }
}

void protect(Nodes& nodes) {
  const Status status = nodes.protect(kSet, "xor:3");
  EXPECT_TRUE(status.ok()) << status.to_string();
}

TEST(NodeRedundancyBesidePrunes, CoversWhatIsProtectedAtAnyMomentOfAPrune) {
  at_every_moment(
      mostly_dead(), [](Nodes&, FileSystem& own) { return prune(own); }, protect,
      [](Nodes& nodes, const Status& pruned) {
        EXPECT_TRUE(pruned.ok()) << pruned.to_string();
        if (!nodes.fs(kStruck).stat(NodeFolder::set_path(Nodes::path(), kSet)).ok()) protect(nodes);  // it was over
        expect_still_protected(nodes);
      });
}

TEST(NodeRedundancyBesidePrunes, CoversWhatIsPrunedAtAnyMomentOfAProtection) {
  const auto act = [](Nodes& nodes, FileSystem& own) { return nodes.protect(kSet, "xor:3", true, {{kStruck, &own}}); };
  const auto check = [](Nodes& nodes, const Status& status) {
    EXPECT_TRUE(status.ok()) << status.to_string();
    expect_still_protected(nodes);
  };
  const auto prune_now = [](Nodes& nodes) { EXPECT_TRUE(prune(nodes.fs(kStruck)).ok()); };
  // One that takes it for dead, too.
  const auto give_up = [](Nodes& nodes) { EXPECT_TRUE(prune(nodes.fs(kStruck), of_another_job(0)).ok()); };
  at_every_moment(mostly_dead(), act, prune_now, check);
  at_every_moment(mostly_dead(), act, give_up, check);
}

TEST(NodeRedundancyBesidePrunes, ReliesOnNoArenaThatAPruneMayRemove) {
  Nodes nodes = mostly_dead();
  const auto store = Store::open(nodes.fs(kStruck), Nodes::path()).value();
  const std::vector<ArenaId> marked = store->list_arenas().value();
  ASSERT_EQ(marked.size(), 2u);
  const auto mark_of = [&](const ArenaId& id) { return join_path(store->condemned_path(), id.hex()); };
  for (const ArenaId& id : marked) ASSERT_TRUE(nodes.fs(kStruck).create(mark_of(id)).ok());
  protect(nodes);
  // A prune that had asked for what protects arenas before that goes on.
  for (const ArenaId& id : marked) {
    ASSERT_TRUE(nodes.fs(kStruck).remove(store->arena_path(id)).ok());
    ASSERT_TRUE(nodes.fs(kStruck).remove(mark_of(id)).ok());
  }
  expect_still_protected(nodes);
}

TEST(NodeRedundancyBesidePrunes, HoldsNoPruneUpThatRemovesWhatNobodyNeeds) {
  Nodes nodes(3);
  nodes.save(kSet);
  const auto store = Store::open(nodes.fs(kStruck), Nodes::path()).value();
  ASSERT_TRUE(test::save_numbers(*store, kDropped, test::numbers_between(1, 100)).ok());
  ASSERT_TRUE(Catalog(*store).remove(kDropped).ok());
  uint64_t removed = 0;
  // Its lease is there.
  PausedFileSystem slow(nodes.fs(kStruck), 20, [&] {
    EXPECT_FALSE(nodes.fs(kStruck).list(store->writers_path()).value().empty());
    removed = prune_store(*store, of_another_job()).value().removed_arenas;
  });
  const Status status = nodes.protect(kSet, "xor:3", true, {{kStruck, &slow}});
  EXPECT_TRUE(status.ok()) << status.to_string();
  EXPECT_EQ(removed, 1u);
}

/// Three nodes with a protected set, of which the struck one has a new disk.
Nodes replaced() {
  Nodes nodes(3);
  nodes.save(kSet);
  EXPECT_TRUE(nodes.protect(kSet, "xor:3").ok());
  nodes.lose(kStruck, "new");
  return nodes;
}

Status rebuild_on(Nodes& nodes, FileSystem& own) {
  VARVE_ASSIGN(const std::vector<RestoredSet> sets, nodes.restore(true, {{kStruck, &own}}, {.job = "job"}));
  return sets.size() == 1 ? sets[0].status : Status::not_found("the set");
}

void expect_rebuilt(Nodes& nodes, const Status& status) {
  EXPECT_TRUE(status.ok()) << status.to_string();
  const Status checked = nodes.check(kStruck, kSet, kStruck);
  EXPECT_TRUE(checked.ok()) << checked.to_string();
}

TEST(NodeRedundancyBesidePrunes, KeepsWhatIsRebuiltWhenAnotherJobPrunesAtAnyMoment) {
  at_every_moment(
      replaced(), rebuild_on, [](Nodes& nodes) { prune(nodes.fs(kStruck)).ignore("there may be no store yet"); },
      expect_rebuilt);
}

TEST(NodeRedundancyBesidePrunes, RebuildsWhatIsLostThoughAnotherJobPrunesWhatIsLeftAtAnyMoment) {
  // Its set was dropped there: of the arenas nobody on this node needs anything.
  Nodes dropped(3);
  dropped.save(kSet);
  ASSERT_TRUE(dropped.protect(kSet, "xor:3").ok());
  ASSERT_TRUE(drop_redundancy(dropped.place(kStruck), kSet).ok());
  ASSERT_TRUE(Catalog(*Store::open(dropped.fs(kStruck), Nodes::path()).value()).remove(kSet).ok());
  uint64_t removed = 0;
  at_every_moment(
      dropped, rebuild_on,
      [&](Nodes& nodes) {
        const auto store = Store::open(nodes.fs(kStruck), Nodes::path()).value();
        const Result<PruneReport> pruned = prune_store(*store, of_another_job());
        if (pruned.ok()) removed += pruned->removed_arenas;
      },
      expect_rebuilt);
  EXPECT_GT(removed, 0u);
}

TEST(NodeRedundancyBesidePrunes, RebuildsAnewWhatAPruneTookForDead) {
  uint64_t given_up = 0;
  at_every_moment(
      replaced(), rebuild_on,
      [&](Nodes& nodes) {
        const auto store = Store::open(nodes.fs(kStruck), Nodes::path());
        if (!store.ok()) return;  // there is none yet
        const Result<PruneReport> pruned = prune_store(**store, of_another_job(0));
        if (pruned.ok()) given_up += pruned->leftover_files;
      },
      expect_rebuilt);
  EXPECT_GT(given_up, 0u);
}

TEST(NodeRedundancyBesidePrunes, RebuildsWhileAnotherJobOpensAtAnyMoment) {
  at_every_moment(
      replaced(), rebuild_on, [](Nodes& nodes) { EXPECT_TRUE(tidy_redundancy(nodes.place(kStruck), "another").ok()); },
      [](Nodes& nodes, const Status& status) {
        expect_rebuilt(nodes, status);
        for (const std::string_view folder : kStoreFolders)
          EXPECT_TRUE(nodes.fs(kStruck).stat(join_path(Nodes::path(), folder)).ok()) << folder;
      });
}

TEST(NodeRedundancyBesidePrunes, LeavesAStoreThatCameIntoBeingAllItsFolders) {
  // The opening of another job is stopped while the store is rebuilt, and removes what it had found empty.
  bool paused = true;
  for (uint64_t at = 0; paused; ++at) {
    SCOPED_TRACE("before operation " + std::to_string(at));
    Nodes nodes = replaced();
    ASSERT_TRUE(NodeFolder(nodes.fs(kStruck), Nodes::path(), {"another", 1}).prepare().ok());
    Status rebuilt;
    PausedFileSystem slow(nodes.fs(kStruck), at, [&] { rebuilt = rebuild_on(nodes, nodes.fs(kStruck)); });
    NodePlace place = nodes.place(kStruck);
    place.fs = &slow;
    EXPECT_TRUE(tidy_redundancy(place, "another").ok());
    paused = slow.paused();
    if (!paused) rebuilt = rebuild_on(nodes, nodes.fs(kStruck));
    expect_rebuilt(nodes, rebuilt);
    for (const std::string_view folder : kStoreFolders)
      EXPECT_TRUE(nodes.fs(kStruck).stat(join_path(Nodes::path(), folder)).ok()) << folder;
    ASSERT_FALSE(HasFailure());
  }
}

}  // namespace
}  // namespace varve
