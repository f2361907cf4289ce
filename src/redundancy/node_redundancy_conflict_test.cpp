// Redundancy of node-local stores where others have been at work in them: what a rebuild replaces, and what it never
// does.
#include <gtest/gtest.h>

#include <map>
#include <utility>

#include "core/file_system.h"
#include "redundancy/node_folder.h"
#include "redundancy/node_redundancy.h"
#include "redundancy/test_nodes.h"
#include "store/prune.h"
#include "store/remarks.h"

namespace varve {
namespace {

using test::Nodes;

const SetName kContested{"job", 1};

TEST(NodeRedundancy, NeverReplacesAStoreWithSomethingElse) {
  Nodes nodes(3);
  nodes.save(kContested);
  ASSERT_TRUE(nodes.protect(kContested, "xor:3").ok());
  nodes.lose(1, "x");
  ASSERT_TRUE(Store::create(nodes.fs(1), Nodes::path()).ok());
  ASSERT_TRUE(
      test::save_numbers(*Store::open(nodes.fs(1), Nodes::path()).value(), {"other", 1}, test::numbers_between(1, 9))
          .ok());
  const auto before = nodes.files(1);
  const Status status = nodes.restore().value().at(0).status;
  EXPECT_EQ(status.code(), StatusCode::already_exists) << status.to_string();
  EXPECT_EQ(nodes.files(1), before);
}

/// Another job comes to the node just as a rebuild makes the folders of its store there.
class OtherJobMeanwhile final : public ForwardingFileSystem {
 public:
  OtherJobMeanwhile(FileSystem& inner, std::function<void()> act) : ForwardingFileSystem(inner), act_(std::move(act)) {}
  Status create_directory(const std::string& path) override {
    if (path == Nodes::path() && act_) std::exchange(act_, nullptr)();
    return ForwardingFileSystem::create_directory(path);
  }

 private:
  std::function<void()> act_;
};

TEST(NodeRedundancy, NeverReplacesAStoreThatAnotherJobHasMadeOrUsedMeanwhile) {
  Nodes whole(3);
  whole.save(kContested);
  ASSERT_TRUE(whole.protect(kContested, "xor:3").ok());
  struct Other {
    bool makes = true, saves = true;
  };
  for (const Other other : {Other{.saves = false}, Other{}, Other{.makes = false}}) {
    SCOPED_TRACE(std::string(other.makes ? "makes it" : "") + (other.saves ? " saves" : ""));
    Nodes nodes = whole.copy();
    nodes.lose(1, "x");
    if (!other.makes) {
      ASSERT_TRUE(Store::create(nodes.fs(1), Nodes::path()).ok());
    }
    std::map<std::string, ByteVector> files;
    OtherJobMeanwhile disk(nodes.fs(1), [&] {
      if (other.makes) {
        EXPECT_TRUE(Store::create(nodes.fs(1), Nodes::path()).ok());
      }
      const auto store = Store::open(nodes.fs(1), Nodes::path()).value();
      if (other.saves) {
        EXPECT_TRUE(test::save_numbers(*store, {"other", 1}, test::numbers_between(1, 9)).ok());
      }
      files = nodes.files(1);
    });
    const Status status = nodes.restore(true, {{1, &disk}}).value().at(0).status;
    EXPECT_EQ(status.code(), StatusCode::already_exists) << status.to_string();
    EXPECT_FALSE(files.empty());
    EXPECT_EQ(nodes.files(1), files);
    for (const uint32_t node : {0u, 2u}) EXPECT_EQ(nodes.files(node), whole.files(node));
  }
}

TEST(NodeRedundancy, NeverReplacesASetByAnotherOfItsName) {
  Nodes nodes(3);
  nodes.save(kContested);
  ASSERT_TRUE(nodes.protect(kContested, "xor:3").ok());
  {
    const auto store = Store::open(nodes.fs(1), Nodes::path()).value();
    ASSERT_TRUE(Catalog(*store).remove(kContested).ok());
    ASSERT_TRUE(test::save_numbers(*store, kContested, test::numbers_between(1, 9)).ok());
  }
  const auto before = nodes.files(1);
  const Status status = nodes.restore().value().at(0).status;
  EXPECT_EQ(status.code(), StatusCode::already_exists) << status.to_string();
  EXPECT_EQ(nodes.files(1), before);
}

/// The chunks of a node's set that is made once more.
std::vector<uint64_t> anew(uint32_t node) { return test::numbers_between(1000 * node + 1, 1000 * node + 20); }

/// A set of this number takes the place of the one of its name.
void make_anew(Nodes& nodes, uint32_t node, const SetName& set, uint64_t number) {
  const auto store = Store::open(nodes.fs(node), Nodes::path()).value();
  ASSERT_TRUE(Catalog(*store).remove(set).ok());
  ASSERT_TRUE(test::save_numbers(*store, set, anew(node), number).ok());
}

TEST(NodeRedundancy, BringsANodeThatWasAwayToTheSetThatTheOthersHaveMadeAnewMeanwhile) {
  for (const bool still_protected : {true, false}) {
    SCOPED_TRACE(still_protected);
    Nodes nodes(3);
    nodes.save(kContested, 1);
    ASSERT_TRUE(nodes.protect(kContested, "xor:3").ok());
    Nodes::Away old = nodes.swap_out(2, "spare");
    ASSERT_TRUE(nodes.restore().value().at(0).status.ok());
    for (uint32_t node = 0; node < 3; ++node) make_anew(nodes, node, kContested, 2);
    ASSERT_TRUE(nodes.protect(kContested, "xor:3").ok());
    Nodes whole = nodes.copy();
    nodes.swap_in(2, std::move(old));
    if (!still_protected) {
      ASSERT_TRUE(drop_redundancy(nodes.place(2), kContested).ok());
    }
    const auto restored = nodes.restore().value();
    ASSERT_EQ(restored.size(), 1u);
    EXPECT_TRUE(restored[0].status.ok()) << Nodes::describe(restored);
    EXPECT_EQ(restored[0].rebuilt.size(), 1u);
    for (uint32_t node = 0; node < 3; ++node) {
      const auto store = Store::open(nodes.fs(node), Nodes::path()).value();
      EXPECT_EQ(Catalog(*store).read(kContested).value().number, 2u);
      EXPECT_TRUE(test::check_numbers(*store, kContested, anew(node)).ok()) << node;
      EXPECT_TRUE(verify_store(*store, true).value().whole());
    }
    for (const uint32_t node : {0u, 1u}) EXPECT_EQ(nodes.files(node), whole.files(node));
    // It protects the others as well as they it.
    nodes.lose(0, "new");
    EXPECT_TRUE(nodes.restore().value().at(0).status.ok());
    const auto store = Store::open(nodes.fs(0), Nodes::path()).value();
    EXPECT_TRUE(test::check_numbers(*store, kContested, anew(0)).ok());
  }
}

TEST(NodeRedundancy, BringsANodeToTheSetOfTheOthersAlsoWhereAnOlderOneOfItsNameIsPinned) {
  Nodes nodes(3);
  nodes.save(kContested, 1);
  ASSERT_TRUE(nodes.protect(kContested, "xor:3").ok());
  ASSERT_TRUE(Remarks(*Store::open(nodes.fs(2), Nodes::path()).value()).pin(kContested).ok());
  Nodes::Away old = nodes.swap_out(2, "spare");
  ASSERT_TRUE(nodes.restore().value().at(0).status.ok());
  for (uint32_t node = 0; node < 3; ++node) make_anew(nodes, node, kContested, 2);
  ASSERT_TRUE(nodes.protect(kContested, "xor:3").ok());
  nodes.swap_in(2, std::move(old));
  const auto restored = nodes.restore().value();
  ASSERT_EQ(restored.size(), 1u);
  EXPECT_TRUE(restored[0].status.ok()) << Nodes::describe(restored);
  const auto store = Store::open(nodes.fs(2), Nodes::path()).value();
  EXPECT_EQ(Catalog(*store).read(kContested).value().number, 2u);
  EXPECT_TRUE(test::check_numbers(*store, kContested, anew(2)).ok());
  // The pin keeps what it holds.
  PruneOptions options;
  options.wait_seconds = 0;
  ASSERT_TRUE(prune_store(*store, options).ok());
  EXPECT_EQ(Remarks(*store).check_may_replace(kContested, nullptr).code(), StatusCode::permission_denied);
}

TEST(NodeRedundancy, NeverReplacesASetThatWasMadeAfterTheProtectedOne) {
  Nodes nodes(3);
  nodes.save(kContested, 1);
  ASSERT_TRUE(nodes.protect(kContested, "xor:3").ok());
  for (const bool still_protected : {true, false}) {
    SCOPED_TRACE(still_protected);
    make_anew(nodes, 1, kContested, 2);
    if (!still_protected) {
      ASSERT_TRUE(drop_redundancy(nodes.place(1), kContested).ok());
    }
    const auto before = nodes.files(1);
    const Status status = nodes.restore().value().at(0).status;
    EXPECT_EQ(status.code(), StatusCode::already_exists) << status.to_string();
    EXPECT_EQ(nodes.files(1), before);
  }
}

TEST(NodeRedundancy, LeavesAloneWhatAnotherJobIsRebuilding) {
  const SetName own{"a-1", 1}, others{"a", 2};
  Nodes nodes(3);
  for (const SetName& set : {own, others}) {
    nodes.save(set);
    ASSERT_TRUE(nodes.protect(set, "xor:3").ok());
  }
  nodes.lose(1, "new");
  // The other job is at work on the new node, and on one that has its store.
  for (const uint32_t node : {0u, 1u}) {
    NodeFolder folder(nodes.fs(node), Nodes::path(), others);
    ASSERT_TRUE(folder.prepare().ok());
    const std::string unfinished = folder.place_of("record.rebuilding").value();
    ASSERT_TRUE(write_file_durably(nodes.fs(node), unfinished, as_bytes("unfinished")).ok());
  }
  std::vector<std::map<std::string, ByteVector>> files;
  for (uint32_t node = 0; node < 3; ++node) files.push_back(nodes.files(node));
  auto restored = nodes.restore(true, {}, {.job = own.job}).value();
  ASSERT_EQ(restored.size(), 1u);
  EXPECT_TRUE(restored[0].status.ok()) << Nodes::describe(restored);
  EXPECT_TRUE(nodes.check(1, own, 1).ok());
  for (const uint32_t node : {0u, 2u}) EXPECT_EQ(nodes.files(node), files[node]) << node;
  for (const auto& [path, contents] : files[1]) EXPECT_EQ(nodes.files(1).at(path), contents) << path;
  for (const SetName& set : {others, own}) {
    restored = nodes.restore(true, {}, {.job = set.job}).value();
    ASSERT_EQ(restored.size(), 1u);
    EXPECT_TRUE(restored[0].status.ok()) << Nodes::describe(restored);
    EXPECT_TRUE(nodes.check(1, set, 1).ok());
  }
  EXPECT_EQ(nodes.files(0).size(), files[0].size() - 1) << "what its own job has left unfinished is gone";
}

TEST(NodeRedundancy, TidiesUpAfterAnotherJobThatHasLongBeenSilent) {
  const SetName others{"other", 2};
  MemoryFileSystem fs;
  int64_t seconds = 1'000'000;
  fs.set_clock([&seconds] { return seconds * 1'000'000'000; });
  NodeFolder folder(fs, Nodes::path(), others);
  ASSERT_TRUE(folder.prepare().ok());
  const std::string unfinished = folder.place_of("record.rebuilding").value();
  ASSERT_TRUE(write_file_durably(fs, unfinished, as_bytes("unfinished")).ok());
  const NodePlace place{.fs = &fs, .path = Nodes::path(), .node = "a"};
  seconds += 3599;
  ASSERT_TRUE(tidy_redundancy(place, "job").ok());
  EXPECT_TRUE(fs.stat(unfinished).ok());
  seconds += 2;
  ASSERT_TRUE(tidy_redundancy(place, "job").ok());
  EXPECT_TRUE(fs.list(Nodes::path()).value().empty());
  EXPECT_TRUE(Store::create(fs, Nodes::path()).ok());
}

}  // namespace
}  // namespace varve
