// Redundancy of node-local stores: what is rebuilt after the loss of nodes, and what is refused.
#include "redundancy/node_redundancy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <filesystem>

#include "redundancy/node_folder.h"
#include "redundancy/test_nodes.h"
#include "store/prune.h"

namespace varve {
namespace {

using test::Nodes;

const SetName kFirst{"job", 1}, kSecond{"job", 2}, kThird{"job", 3};

struct Shape {
  const char* scheme;
  uint32_t nodes;
};
const Shape kShapes[] = {{"partner", 2}, {"partner", 3}, {"partner", 4}, {"xor:3", 3},
                         {"xor:4", 4},   {"rs:2+2", 4},  {"rs:4+2", 6}};

/// Whether the scheme promises that this loss (a bit for each node) can be rebuilt; and whether it must be refused.
struct Promise {
  bool kept = true;
  bool none = false;  ///< nobody is left who knows of it
  bool refused = false;
};
Promise promise_of(const Nodes& nodes, const char* scheme, uint32_t lost) {
  const Redundancy redundancy = Redundancy::parse(scheme).value();
  std::vector<std::string> names;
  for (uint32_t node = 0; node < nodes.count(); ++node) names.push_back(nodes.name(node));
  const FailureGroups plan = plan_failure_groups(names, redundancy).value();
  Promise promise;
  promise.none = lost + 1 == 1u << nodes.count();
  for (const FailureGroup& group : plan.groups) {
    uint32_t count = 0;
    for (const uint32_t node : group.nodes) count += lost >> node & 1;
    promise.kept = promise.kept && count <= redundancy.losses_max();
    const bool minimal = group.nodes.size() == redundancy.nodes_min();
    promise.refused = promise.refused || (count > redundancy.losses_max() && (minimal || count == group.nodes.size()));
  }
  return promise;
}

/// Loses the nodes, restores, and compares; or is refused, and then nothing has changed.
void check_loss(const Nodes& whole, const char* scheme, uint32_t lost, bool messages) {
  SCOPED_TRACE("lost " + std::to_string(lost));
  Nodes nodes = whole.copy(), before = whole.copy();
  for (uint32_t node = 0; node < nodes.count(); ++node) {
    if (lost >> node & 1) nodes.lose(node, node % 2 == 0 ? "new" + std::to_string(node) : "");
  }
  const Promise promise = promise_of(whole, scheme, lost);
  std::vector<std::map<std::string, ByteVector>> files;
  for (uint32_t node = 0; node < nodes.count(); ++node) files.push_back(nodes.files(node));
  const auto restored = nodes.restore(messages);
  ASSERT_TRUE(restored.ok()) << restored.status().to_string();
  if (promise.none) {
    EXPECT_TRUE(restored->empty());
    return;
  }
  ASSERT_EQ(restored->size(), 1u);
  const Status status = restored->front().status;
  if (status.ok()) {
    EXPECT_FALSE(promise.refused);
    EXPECT_EQ(restored->front().rebuilt.size(), static_cast<size_t>(std::popcount(lost)));
    for (uint32_t node = 0; node < nodes.count(); ++node) {
      EXPECT_EQ(nodes.files(node), before.files(node)) << node;
      const Status checked = nodes.check(node, kFirst, node);
      EXPECT_TRUE(checked.ok()) << checked.to_string();
    }
    return;
  }
  EXPECT_FALSE(promise.kept) << status.to_string();
  EXPECT_EQ(status.code(), StatusCode::not_found) << status.to_string();
  for (uint32_t node = 0; node < nodes.count(); ++node) EXPECT_EQ(nodes.files(node), files[node]) << node;
}

TEST(NodeRedundancy, RebuildsEveryLossThatItPromisesAndRefusesOthers) {
  for (const Shape& shape : kShapes) {
    for (const bool messages : {true, false}) {
      SCOPED_TRACE(std::string(shape.scheme) + " on " + std::to_string(shape.nodes) +
                   (messages ? "" : ", collectively"));
      Nodes nodes(shape.nodes);
      nodes.save(kFirst);
      const Status status = nodes.protect(kFirst, shape.scheme, messages);
      ASSERT_TRUE(status.ok()) << status.to_string();
      for (uint32_t lost = 0; lost < 1u << shape.nodes; ++lost) check_loss(nodes, shape.scheme, lost, messages);
    }
  }
}

TEST(NodeRedundancy, SaysWhatItDid) {
  Nodes nodes(3);
  nodes.save(kFirst);
  ASSERT_TRUE(nodes.protect(kFirst, "xor:3").ok());
  nodes.lose(1, "spare");
  const auto restored = nodes.restore().value();
  ASSERT_EQ(restored.at(0).rebuilt.size(), 1u);
  const std::string line = restored[0].rebuilt[0];
  EXPECT_TRUE(line.starts_with("node spare was rebuilt in the place of node b: 4 files, ")) << line;
  EXPECT_TRUE(line.ends_with(", from nodes a, c")) << line;

  nodes.lose(0);
  nodes.lose(2);
  const Status refused = nodes.restore().value().at(0).status;
  EXPECT_EQ(refused.code(), StatusCode::not_found);
  for (const char* part : {"node a", "node c", "a (position 0)", "c (position 2)", "everything", "xor:3", "job@1"}) {
    if (std::string(part).starts_with("node")) continue;
    EXPECT_NE(refused.to_string().find(part), std::string::npos) << part << " in " << refused.to_string();
  }
}

TEST(NodeRedundancy, ReportsWhatItProtects) {
  Nodes nodes(4);
  nodes.save(kFirst);
  const Redundancy redundancy = Redundancy::parse("partner").value();
  nodes.on_all([&](uint32_t node, Communicator& leaders) {
    const ProtectionReport report = protect_set(leaders, nodes.place(node), kFirst, redundancy).value();
    EXPECT_EQ(report.group_count, 2u);
    EXPECT_EQ(report.node_count, 4u);
    EXPECT_GT(report.protected_bytes, 4 * 8 * test::kNumberedChunkBytes);
    EXPECT_GT(report.parity_bytes, report.protected_bytes);
    return Status();
  });
}

TEST(NodeRedundancy, FindsPositionsByWhatLiesInTheFolders) {
  Nodes nodes(6);
  nodes.save(kFirst);
  ASSERT_TRUE(nodes.protect(kFirst, "rs:2+1").ok());
  nodes.swap(0, 5);
  nodes.swap(1, 2);
  nodes.swap(2, 4);
  // One has lost only its redundancy file: its store's header tells who it is. Another its header as well.
  ASSERT_TRUE(nodes.fs(0).remove(Nodes::path() + "/redundancy/job@1/redundancy.parity").ok());
  ASSERT_TRUE(nodes.fs(1).remove(Nodes::path() + "/redundancy/job@1/redundancy.parity").ok());
  ASSERT_TRUE(nodes.fs(1).remove(Nodes::path() + "/varve.store").ok());
  const auto restored = nodes.restore().value();
  EXPECT_TRUE(restored.at(0).status.ok()) << Nodes::describe(restored);
  EXPECT_EQ(restored[0].rebuilt.size(), 2u);
  for (uint32_t node = 0; node < 6; ++node) {
    const auto saved_by = static_cast<uint32_t>(nodes.name(node)[0] - 'a');
    const Status checked = nodes.check(node, kFirst, saved_by);
    EXPECT_TRUE(checked.ok()) << checked.to_string();
  }
}

TEST(NodeRedundancy, GivesReplacementsThePlacesInOrder) {
  Nodes nodes(6);
  nodes.save(kFirst);
  ASSERT_TRUE(nodes.protect(kFirst, "rs:2+1").ok());  // groups a c e, b d f
  nodes.lose(2, "x");
  nodes.lose(3, "y");
  ASSERT_TRUE(nodes.restore().value().at(0).status.ok());
  EXPECT_TRUE(nodes.check(2, kFirst, 2).ok());
  EXPECT_TRUE(nodes.check(3, kFirst, 3).ok());
  // A node that comes back empty under its own name gets its own place, whoever comes before it.
  nodes.lose(0, "z");
  nodes.lose(5, "a");
  ASSERT_TRUE(nodes.restore().value().at(0).status.ok());
  EXPECT_TRUE(nodes.check(5, kFirst, 0).ok());
  EXPECT_TRUE(nodes.check(0, kFirst, 5).ok());
}

TEST(NodeRedundancy, RepairsWhatIsDamagedOfOneNode) {
  Nodes whole(3);
  whole.save(kFirst);
  whole.save(kSecond);
  ASSERT_TRUE(whole.protect(kFirst, "xor:3").ok());
  ASSERT_TRUE(whole.protect(kSecond, "xor:3").ok());
  std::vector<std::string> files = whole.arenas(1);
  ASSERT_EQ(files.size(), 2u);
  for (const char* file :
       {"/varve.store", "/sets/job/1.set", "/sets/job/2.set", "/redundancy/job@2/redundancy.parity"}) {
    files.push_back(Nodes::path() + file);
  }
  for (const std::string& file : files) {
    SCOPED_TRACE(file);
    Nodes nodes = whole.copy();
    nodes.damage(1, file);
    const auto restored = nodes.restore().value();
    for (const RestoredSet& set : restored) EXPECT_TRUE(set.status.ok()) << Nodes::describe(restored);
    for (uint32_t node = 0; node < 3; ++node) EXPECT_EQ(nodes.files(node), whole.files(node));
  }
}

TEST(NodeRedundancy, FindsDamageOnlyIfItReadsEverything) {
  Nodes nodes(3);
  std::vector<uint64_t> many = test::numbers_between(1, 200);
  for (uint32_t node = 0; node < 3; ++node) {
    ASSERT_TRUE(test::save_numbers(*Store::open(nodes.fs(node), Nodes::path()).value(), kFirst, many).ok());
  }
  ASSERT_TRUE(nodes.protect(kFirst, "xor:3").ok());
  Nodes whole = nodes.copy();
  nodes.damage(2, nodes.arenas(2).at(0));
  auto restored = nodes.restore(true, {}, {.read_everything = false}).value();
  EXPECT_TRUE(restored.at(0).status.ok() && restored[0].rebuilt.empty());
  // What is missing is found; and that another one cannot be relied on, so that it looks closer.
  nodes.lose(0);
  restored = nodes.restore(true, {}, {.read_everything = false}).value();
  EXPECT_EQ(restored.at(0).status.code(), StatusCode::not_found) << restored[0].status.to_string();
  nodes = whole.copy();
  ASSERT_TRUE(nodes.fs(2).remove(nodes.arenas(2).at(0)).ok());
  restored = nodes.restore(true, {}, {.read_everything = false}).value();
  EXPECT_EQ(restored.at(0).rebuilt.size(), 1u);
  EXPECT_EQ(nodes.files(2), whole.files(2));
  nodes.damage(2, nodes.arenas(2).at(0));
  restored = nodes.restore().value();
  EXPECT_EQ(restored.at(0).rebuilt.size(), 1u);
  EXPECT_EQ(nodes.files(2), whole.files(2));
}

TEST(NodeRedundancy, RestoresAnOlderSetIfOnlyThatWasProtected) {
  Nodes nodes(4);
  nodes.save(kFirst);
  ASSERT_TRUE(nodes.protect(kFirst, "xor:4").ok());
  nodes.save(kSecond);
  nodes.lose(3, "e");
  const auto restored = nodes.restore().value();
  ASSERT_EQ(restored.size(), 1u);
  EXPECT_EQ(restored[0].set, kFirst);
  EXPECT_TRUE(restored[0].status.ok());
  for (uint32_t node = 0; node < 4; ++node) EXPECT_TRUE(nodes.check(node, kFirst, node).ok());
  EXPECT_EQ(nodes.check(3, kSecond, 3).code(), StatusCode::not_found);
  EXPECT_TRUE(nodes.check(0, kSecond, 0).ok());
}

TEST(NodeRedundancy, RestoresAllSetsThatAreProtectedAndThoseThatShareArenas) {
  Nodes nodes(4);
  for (const SetName& set : {kFirst, kSecond, kThird}) {
    nodes.save(set);
    ASSERT_TRUE(nodes.protect(set, set.step == 2 ? "rs:2+2" : "xor:4").ok());
  }
  Nodes whole = nodes.copy();
  nodes.lose(1, "x");
  auto restored = nodes.restore().value();
  ASSERT_EQ(restored.size(), 3u);
  EXPECT_EQ(restored[0].set, kThird);
  EXPECT_EQ(restored[2].set, kFirst);
  for (uint32_t node = 0; node < 4; ++node) EXPECT_EQ(nodes.files(node), whole.files(node));
  for (const SetName& set : {kFirst, kSecond, kThird}) EXPECT_TRUE(nodes.check(1, set, 1).ok());
  // Two at once: only the middle one can be rebuilt.
  nodes.lose(1, "y");
  nodes.lose(2, "z");
  restored = nodes.restore().value();
  EXPECT_EQ(restored[0].status.code(), StatusCode::not_found);
  EXPECT_TRUE(restored[1].status.ok()) << restored[1].status.to_string();
  EXPECT_EQ(restored[2].status.code(), StatusCode::not_found);
  for (uint32_t node = 0; node < 4; ++node) {
    const Status checked = nodes.check(node, kSecond, node);
    EXPECT_TRUE(checked.ok()) << checked.to_string();
  }
}

TEST(NodeRedundancy, ProtectsASetWhollyThoughItSharesArenas) {
  Nodes nodes(3);
  nodes.save(kFirst);
  nodes.save(kSecond);
  ASSERT_TRUE(nodes.protect(kSecond, "xor:3").ok());
  nodes.lose(0);
  ASSERT_TRUE(nodes.restore().value().at(0).status.ok());
  const Status checked = nodes.check(0, kSecond, 0);
  EXPECT_TRUE(checked.ok()) << checked.to_string();
  EXPECT_EQ(nodes.arenas(0).size(), 2u);
}

/// The chunks of a node's first set, and of a second one that needs little of it.
std::vector<uint64_t> many_numbers(uint32_t node) { return test::numbers_between(1000 * node + 1, 1000 * node + 100); }
std::vector<uint64_t> few_numbers(uint32_t node) { return test::numbers_between(1000 * node + 90, 1000 * node + 110); }

TEST(NodeRedundancy, SurvivesAPruneThatRewritesWhatIsLessThanHalfNeeded) {
  Nodes nodes(3);
  for (uint32_t node = 0; node < 3; ++node) {
    const auto store = Store::open(nodes.fs(node), Nodes::path()).value();
    ASSERT_TRUE(test::save_numbers(*store, kFirst, many_numbers(node)).ok());
    ASSERT_TRUE(test::save_numbers(*store, kSecond, few_numbers(node)).ok());
    // Another job's small arenas, as many as are merged.
    for (uint64_t step = 1; step <= 10; ++step) {
      ASSERT_TRUE(test::save_numbers(*store, {"other", step}, {1'000'000 * step}).ok());
    }
  }
  ASSERT_TRUE(nodes.protect(kSecond, "xor:3").ok());
  for (uint32_t node = 0; node < 3; ++node) {
    const auto store = Store::open(nodes.fs(node), Nodes::path()).value();
    ASSERT_TRUE(Catalog(*store).remove(kFirst).ok());
    const std::vector<std::string> arenas = nodes.arenas(node);
    EXPECT_EQ(prune_store(*store, PruneOptions())->rewritten_packs, 0u);
    EXPECT_EQ(nodes.arenas(node), arenas);
  }
  nodes.lose(2, "new");
  const auto restored = nodes.restore().value();
  EXPECT_TRUE(restored.at(0).status.ok()) << Nodes::describe(restored);
  for (uint32_t node = 0; node < 3; ++node) {
    const auto store = Store::open(nodes.fs(node), Nodes::path()).value();
    EXPECT_TRUE(test::check_numbers(*store, kSecond, few_numbers(node)).ok());
    EXPECT_TRUE(verify_store(*store, true).value().whole());
  }
  // What protects nobody any more is rewritten.
  for (uint32_t node = 0; node < 3; ++node) ASSERT_TRUE(drop_redundancy(nodes.place(node), kSecond).ok());
  const auto store = Store::open(nodes.fs(0), Nodes::path()).value();
  EXPECT_GT(prune_store(*store, PruneOptions())->rewritten_packs, 0u);
  EXPECT_TRUE(test::check_numbers(*store, kSecond, few_numbers(0)).ok());
}

PruneOptions rewriting_below(double live_share_min) {
  PruneOptions options;
  options.live_share_min = live_share_min;
  options.wait_seconds = 0;
  return options;
}

TEST(NodeRedundancy, CoversPacksThatAPruneHasMoved) {
  Nodes nodes(3);
  nodes.save(kFirst);
  nodes.save(kSecond);
  for (uint32_t node = 0; node < 3; ++node) {
    const auto store = Store::open(nodes.fs(node), Nodes::path()).value();
    ASSERT_TRUE(Catalog(*store).remove(kFirst).ok());
    const auto report = prune_store(*store, rewriting_below(1.0));
    ASSERT_TRUE(report.ok());
    EXPECT_GT(report->rewritten_packs, 0u);
  }
  const Status status = nodes.protect(kSecond, "xor:3");
  ASSERT_TRUE(status.ok()) << status.to_string();
  nodes.lose(2);
  ASSERT_TRUE(nodes.restore().value().at(0).status.ok());
  const Status checked = nodes.check(2, kSecond, 2);
  EXPECT_TRUE(checked.ok()) << checked.to_string();
}

TEST(NodeRedundancy, SurvivesAPruneThatLeavesLiveArenasAlone) {
  Nodes nodes(3);
  nodes.save(kFirst);
  nodes.save(kSecond);
  ASSERT_TRUE(nodes.protect(kSecond, "xor:3").ok());
  for (uint32_t node = 0; node < 3; ++node) {
    const auto store = Store::open(nodes.fs(node), Nodes::path()).value();
    ASSERT_TRUE(Catalog(*store).remove(kFirst).ok());
    ASSERT_TRUE(prune_store(*store, rewriting_below(0)).ok());
  }
  const auto restored = nodes.restore().value();
  EXPECT_TRUE(restored.at(0).status.ok() && restored[0].rebuilt.empty()) << Nodes::describe(restored);
}

TEST(NodeRedundancy, TakesTheStoreThatARunMadeBeforeIfItHasNothing) {
  Nodes nodes(3);
  nodes.save(kFirst);
  ASSERT_TRUE(nodes.protect(kFirst, "xor:3").ok());
  nodes.lose(1, "x");
  ASSERT_TRUE(Store::create(nodes.fs(1), Nodes::path()).ok());
  ASSERT_TRUE(nodes.restore().value().at(0).status.ok());
  EXPECT_TRUE(nodes.check(1, kFirst, 1).ok());
}

TEST(NodeRedundancy, ProtectsASetAnewThatTookThePlaceOfAnother) {
  Nodes nodes(3);
  nodes.save(kFirst);
  ASSERT_TRUE(nodes.protect(kFirst, "xor:3").ok());
  for (uint32_t node = 0; node < 3; ++node) {
    const auto store = Store::open(nodes.fs(node), Nodes::path()).value();
    ASSERT_TRUE(Catalog(*store).remove(kFirst).ok());
    ASSERT_TRUE(test::save_numbers(*store, kFirst, test::numbers_between(node, node + 9)).ok());
  }
  ASSERT_TRUE(nodes.protect(kFirst, "partner").ok());
  nodes.lose(2);
  ASSERT_TRUE(nodes.restore().value().at(0).status.ok());
  EXPECT_TRUE(
      test::check_numbers(*Store::open(nodes.fs(2), Nodes::path()).value(), kFirst, test::numbers_between(2, 11)).ok());
}

TEST(NodeRedundancy, RefusesRedundancyFilesThatContradictEachOther) {
  Nodes nodes(3);
  nodes.save(kFirst);
  ASSERT_TRUE(nodes.protect(kFirst, "xor:3").ok());
  const std::string file = Nodes::path() + "/redundancy/job@1/redundancy.parity";
  const ByteVector stale = read_file(nodes.fs(0), file, 1_GiB).value();
  ASSERT_TRUE(nodes.protect(kFirst, "partner").ok());
  ASSERT_TRUE(nodes.fs(0).remove(file).ok() && write_file_durably(nodes.fs(0), file, stale).ok());
  const auto before = nodes.files(0);
  EXPECT_EQ(nodes.restore().value().at(0).status.code(), StatusCode::corrupt);
  EXPECT_EQ(nodes.files(0), before);
  // Protecting the set again puts it right.
  ASSERT_TRUE(nodes.protect(kFirst, "partner").ok());
  nodes.lose(1);
  EXPECT_TRUE(nodes.restore().value().at(0).status.ok());
}

TEST(NodeRedundancy, NeedsAsManyNodesAsThereWere) {
  Nodes nodes(4);
  nodes.save(kFirst);
  ASSERT_TRUE(nodes.protect(kFirst, "xor:4").ok());
  std::vector<std::thread> threads;
  for (auto& ranks : make_thread_communicators(3)) {
    threads.emplace_back([&, leaders = std::move(ranks)] {
      const auto restored = restore_lost(*leaders, nodes.place(leaders->rank())).value();
      EXPECT_EQ(restored.at(0).status.code(), StatusCode::not_found);
      EXPECT_NE(restored[0].status.to_string().find("node d"), std::string::npos) << restored[0].status.to_string();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(NodeRedundancy, LetsRanksTakePartThatHaveNoStore) {
  for (const bool messages : {true, false}) {
    Nodes nodes(3);
    nodes.save(kFirst);
    std::vector<std::thread> threads;
    for (auto& ranks : make_thread_communicators(5)) {
      threads.emplace_back([&, leaders = std::move(ranks)] {
        test::CollectiveOnly collective(*leaders);
        Communicator& used = messages ? *leaders : collective;
        const uint32_t rank = leaders->rank();
        const bool has_store = rank % 2 == 0;
        const NodePlace place = has_store ? nodes.place(rank / 2) : NodePlace();
        const Status status = protect_set(used, place, kFirst, Redundancy::parse("xor:3").value()).status();
        EXPECT_TRUE(status.ok()) << status.to_string();
        if (rank == 2) nodes.lose(1);
        ASSERT_TRUE(leaders->barrier().ok());
        const auto restored = restore_lost(used, rank == 2 ? nodes.place(1) : place).value();
        EXPECT_TRUE(restored.at(0).status.ok()) << restored[0].status.to_string();
        EXPECT_EQ(retain_redundancy(used, rank == 2 ? nodes.place(1) : place, "job", 1).value().size(), 0u);
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_TRUE(nodes.check(1, kFirst, 1).ok());
  }
}

TEST(NodeRedundancy, RefusesToProtectWhatNotAllNodesHave) {
  Nodes nodes(3);
  nodes.save(kFirst);
  EXPECT_EQ(nodes.protect(kFirst, "xor:4").code(), StatusCode::invalid_argument);
  ASSERT_TRUE(Catalog(*Store::open(nodes.fs(1), Nodes::path()).value()).remove(kFirst).ok());
  const Status status = nodes.protect(kFirst, "xor:3");
  EXPECT_EQ(status.code(), StatusCode::not_found);
  EXPECT_NE(status.to_string().find("node b"), std::string::npos) << status.to_string();
  EXPECT_TRUE(nodes.restore().value().empty());
}

TEST(NodeRedundancy, RefusesTwoNodesOfOneName) {
  Nodes nodes(3);
  nodes.save(kFirst);
  nodes.lose(1, "a");
  EXPECT_EQ(nodes.protect(kFirst, "xor:3").code(), StatusCode::invalid_argument);
}

TEST(NodeRedundancy, IsToldOfANodeThatHasDied) {
  Nodes nodes(4);
  nodes.save(kFirst);
  for (const bool messages : {true, false}) {
    const std::vector<Status> ended = nodes.on_all(
        [&](uint32_t node, Communicator& leaders) {
          if (node == 2) return Status();
          return protect_set(leaders, nodes.place(node), kFirst, Redundancy::parse("xor:4").value()).status();
        },
        messages);
    for (uint32_t node : {0, 1, 3}) EXPECT_EQ(ended[node].code(), StatusCode::io_error);
  }
}

TEST(NodeRedundancy, KeepsTheNewestThatAreProtectedOnAllNodes) {
  Nodes nodes(3);
  for (uint64_t step = 1; step <= 5; ++step) {
    nodes.save({"job", step});
    ASSERT_TRUE(nodes.protect({"job", step}, "xor:3").ok());
  }
  nodes.save({"other", 9});
  ASSERT_TRUE(nodes.protect({"other", 9}, "xor:3").ok());
  // The newest is protected on some nodes only, so that it does not count.
  ASSERT_TRUE(drop_redundancy(nodes.place(1), {"job", 5}).ok());
  const auto retain = [&](uint64_t keep) {
    std::vector<SetName> dropped;
    const Status status = Nodes::same(nodes.on_all([&](uint32_t node, Communicator& leaders) -> Status {
      VARVE_ASSIGN(const std::vector<SetName> mine, retain_redundancy(leaders, nodes.place(node), "job", keep));
      if (node == 0) dropped = mine;
      return {};
    }));
    EXPECT_TRUE(status.ok()) << status.to_string();
    return dropped;
  };
  EXPECT_EQ(retain(2), (std::vector<SetName>{{"job", 2}, {"job", 1}}));
  EXPECT_EQ(retain(2), std::vector<SetName>());
  EXPECT_EQ(nodes.restore().value().size(), 4u);
  // A set that no node has any more needs none.
  for (uint32_t node = 0; node < 3; ++node) {
    const auto store = Store::open(nodes.fs(node), Nodes::path()).value();
    ASSERT_TRUE(Catalog(*store).remove({"job", 3}).ok());
    if (node == 0) {
      ASSERT_TRUE(Catalog(*store).remove({"job", 5}).ok());
    }
  }
  EXPECT_EQ(retain(2), std::vector<SetName>({{"job", 3}}));
  EXPECT_EQ(retain(0), (std::vector<SetName>{{"job", 5}, {"job", 4}}));
  const auto left = nodes.restore().value();
  ASSERT_EQ(left.size(), 1u);
  EXPECT_EQ(left[0].set.job, "other");
}

TEST(NodeRedundancy, KeepsWhatARunMakesAfterItHasGoneBackAsWellAsWhatItHasLeftBehind) {
  Nodes nodes(3);
  const auto make = [&](uint64_t step, uint64_t number) {
    nodes.save({"job", step}, number);
    EXPECT_TRUE(nodes.protect({"job", step}, "xor:3").ok());
    std::vector<SetName> dropped;
    EXPECT_TRUE(Nodes::same(nodes.on_all([&](uint32_t node, Communicator& leaders) -> Status {
                  VARVE_ASSIGN(const std::vector<SetName> mine,
                               retain_redundancy(leaders, nodes.place(node), "job", /*keep=*/1));
                  if (node == 0) dropped = mine;
                  return {};
                })).ok());
    return dropped;
  };
  EXPECT_EQ(make(3, 1), std::vector<SetName>());
  EXPECT_EQ(make(1, 2), std::vector<SetName>()) << "it went back";
  EXPECT_EQ(make(2, 3), (std::vector<SetName>{{"job", 1}}));
  EXPECT_EQ(make(4, 4), (std::vector<SetName>{{"job", 3}, {"job", 2}})) << "it is past all that it had left behind";
}

TEST(NodeRedundancy, CountsNothingThatARunHasLeftBehindAsNewer) {
  Nodes nodes(3);
  for (const auto& [step, number] : {std::pair(20, 2), {30, 3}, {25, 4}}) {
    const SetName name{"job", static_cast<uint64_t>(step)};
    nodes.save(name, static_cast<uint64_t>(number));
    ASSERT_TRUE(nodes.protect(name, "xor:3").ok());
  }
  std::vector<SetName> dropped;
  const auto retain = [&](bool one_node_knows) {
    const Status status = Nodes::same(nodes.on_all([&](uint32_t node, Communicator& leaders) -> Status {
      const auto is_left_behind = [&](uint64_t step) { return one_node_knows && node == 1 && step == 30; };
      VARVE_ASSIGN(dropped, retain_redundancy(leaders, nodes.place(node), "job", /*keep=*/2, is_left_behind));
      return {};
    }));
    EXPECT_TRUE(status.ok()) << status.to_string();
  };
  retain(true);
  EXPECT_EQ(dropped, std::vector<SetName>()) << "of what the run went back to, 25 alone is newer";
  retain(false);
  EXPECT_EQ(dropped, (std::vector<SetName>{{"job", 20}}));
}

TEST(NodeRedundancy, WorksInRealFolders) {
  std::string folder = std::filesystem::path(testing::TempDir()) / "varve-nodes-XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  std::vector<NodePlace> places;
  for (uint32_t node = 0; node < 4; ++node) {
    places.push_back(
        {&posix_file_system(), folder + "/" + std::to_string(node) + "/local/store", std::to_string(node)});
    std::filesystem::create_directories(std::filesystem::path(places[node].path).parent_path());
    ASSERT_TRUE(Store::create(*places[node].fs, places[node].path).ok());
    const auto store = Store::open(*places[node].fs, places[node].path).value();
    ASSERT_TRUE(test::save_numbers(*store, kFirst, Nodes::numbers(node, 1)).ok());
  }
  std::vector<std::thread> threads;
  for (auto& ranks : make_thread_communicators(4)) {
    threads.emplace_back([&, leaders = std::move(ranks)] {
      const NodePlace& place = places[leaders->rank()];
      EXPECT_TRUE(protect_set(*leaders, place, kFirst, Redundancy::parse("rs:2+2").value()).ok());
      ASSERT_TRUE(leaders->barrier().ok());
      if (leaders->rank() % 2 == 1) std::filesystem::remove_all(folder + "/" + place.node);
      const auto restored = restore_lost(*leaders, place).value();
      EXPECT_TRUE(restored.at(0).status.ok()) << restored[0].status.to_string();
      EXPECT_EQ(restored[0].rebuilt.size(), 2u);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (uint32_t node = 0; node < 4; ++node) {
    const auto store = Store::open(*places[node].fs, places[node].path).value();
    EXPECT_TRUE(test::check_numbers(*store, kFirst, Nodes::numbers(node, 1)).ok());
    EXPECT_TRUE(verify_store(*store, true).value().whole());
  }
  std::filesystem::remove_all(folder);
}

TEST(NodeRedundancy, LooksAtTheSetsOfOneJob) {
  Nodes nodes(2);
  nodes.save({"job", 1});
  nodes.save({"other", 2});
  ASSERT_TRUE(nodes.protect({"job", 1}, "partner").ok());
  ASSERT_TRUE(nodes.protect({"other", 2}, "partner").ok());
  EXPECT_EQ(nodes.restore(true, {}, {.job = "job"}).value().size(), 1u);
  EXPECT_EQ(nodes.restore().value().size(), 2u);
}

}  // namespace
}  // namespace varve
