// Files of so many pieces that what is to be said of them does not fit into one node of a set's tree.

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "core/memory_file_system.h"
#include "engine/diff.h"
#include "engine/folder_source.h"
#include "engine/inspect.h"
#include "engine/repair.h"
#include "engine/transfer.h"
#include "mount/set_listing.h"
#include "mount/spool.h"
#include "sets/saving.h"
#include "store/prune.h"
#include "store/stored_copies.h"
#include "store/verify.h"

namespace varve {
namespace {

constexpr uint32_t kChunkBytes = 512;

/// Chunks that are all new, constant, or there before, by turns: no two references join.
ByteVector bytes_in_pieces(uint64_t pieces, uint64_t seed) {
  ByteVector bytes;
  const ByteVector same = test::random_bytes(kChunkBytes, 1);
  for (uint64_t i = 0; i < pieces; ++i) {
    ByteVector chunk = i % 3 == 0 ? test::random_bytes(kChunkBytes, 1000 * seed + i) : same;
    if (i % 3 == 1) chunk.assign(kChunkBytes, static_cast<std::byte>(i));
    bytes.insert(bytes.end(), chunk.begin(), chunk.end());
  }
  return bytes;
}

SaveOptions cutting(const std::string& job, uint64_t step, uint64_t node_bytes_max) {
  SaveOptions options = test::save_options(job, step);
  options.chunker = {.kind = ChunkerKind::fixed, .bytes_average = kChunkBytes};
  options.tree.node_bytes_max = node_bytes_max;
  return options;
}

/// A set whose leaf lies in many pieces.
struct LongLeaf : testing::Test {
  void SetUp() override {
    test::write_file(folder.path() + "/rank0.dat", bytes_in_pieces(900, 1));
    test::write_file(folder.path() + "/rank1.dat", bytes_in_pieces(10, 2));
    saved = test::snapshot_of(folder.path());
    ASSERT_TRUE(save({"run", 1}).ok());
    record = Catalog(*store).read({"run", 1}).value();
  }
  Status save(const SetName& name) {
    return save_folder(*store, folder.path(), cutting(name.job, name.step, 1000), test::layout_service()).status();
  }
  std::vector<NodeLink> pieces() const {
    const Root root = read_root(*store, record.groups.at(0).root, record.groups[0].hint).value();
    std::vector<NodeLink> all;
    for (const LeafLink& link : root.leaves) {
      const Leaf leaf = read_leaf(*store, link).value();
      all.insert(all.end(), leaf.pieces.begin(), leaf.pieces.end());
    }
    return all;
  }
  MemoryFileSystem fs;
  std::unique_ptr<Store> store = test::make_store(fs);
  test::TempFolder folder;
  test::Snapshot saved;
  SetRecord record;
};

TEST_F(LongLeaf, IsCutIntoPiecesAndReadBack) {
  EXPECT_GT(pieces().size(), 4u);
  EXPECT_TRUE(test::restores_as(*store, {"run", 1}, saved));
  EXPECT_TRUE(test::is_whole(*store));
}

TEST_F(LongLeaf, IsComparedAndLookedAtAsAnyOther) {
  ASSERT_TRUE(save({"run", 2}).ok());
  const auto difference = diff_sets(*store, {"run", 1}, {"run", 2});
  ASSERT_TRUE(difference.ok()) << difference.status().to_string();
  ByteVector read;
  const Status given = read_set_file(*store, {"run", 1}, "rank0.dat", "", [&](ByteSpan bytes) -> Status {
    read.insert(read.end(), bytes.begin(), bytes.end());
    return {};
  });
  ASSERT_TRUE(given.ok()) << given.to_string();
  EXPECT_EQ(read, bytes_in_pieces(900, 1));
  const auto files = scan_source_tree(folder.path(), null_progress()).value();
  EXPECT_EQ(match_folder(*store, record, files).value(), FolderMatch::whole);
  SourceReader reader(folder.path(), files);
  const Status same = check_saved(*store, record, reader);
  EXPECT_TRUE(same.ok()) << same.to_string();
  const auto listing = SetListing::read(*store, record).value();
  const auto entry = listing->entry(listing->find(SetListing::kTop, "rank0.dat").value());
  const Leaf leaf = read_leaf(*store, listing->leaf(entry.leaf)).value();
  const auto map = map_file(leaf, leaf.files.at(entry.file));
  EXPECT_TRUE(map.ok()) << map.status().to_string();
}

TEST_F(LongLeaf, KeepsItsPiecesWhenArenasAreRewritten) {
  test::write_file(folder.path() + "/more.dat", test::random_bytes(2'000'000, 7));
  ASSERT_TRUE(save({"gone", 1}).ok());
  ASSERT_TRUE(Catalog(*store).remove({"gone", 1}).ok());
  PruneOptions options;
  options.wait_seconds = 0;
  options.silence_seconds = 0;
  options.live_share_min = 1.1;  // all of them
  const auto report = prune_store(*store, options);
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_GE(report->removed_arenas, 2u);
  EXPECT_TRUE(test::restores_as(*store, {"run", 1}, saved));
  EXPECT_TRUE(test::is_whole(*store));
}

TEST_F(LongLeaf, IsCopiedToAnotherStoreAndMendedFromThere) {
  MemoryFileSystem other_fs;
  const auto other = test::make_store(other_fs);
  const auto sent = copy_set(*store, *other, {"run", 1}, {});
  ASSERT_TRUE(sent.ok()) << sent.status().to_string();
  EXPECT_TRUE(test::restores_as(*other, {"run", 1}, saved));
  EXPECT_TRUE(test::is_whole(*other));
  // All that the store has is lost but for the record.
  for (const ArenaId& id : store->list_arenas().value()) ASSERT_TRUE(fs.remove(store->arena_path(id)).ok());
  store->drop_arena_cache();
  EXPECT_FALSE(test::is_whole(*store));
  const auto repaired = repair_store(*store, {{"the other", other.get()}}, {});
  ASSERT_TRUE(repaired.ok()) << repaired.status().to_string();
  EXPECT_TRUE(test::restores_as(*test::open_store(fs), {"run", 1}, saved));
}

TEST_F(LongLeaf, OfWhichAPieceIsDamagedIsToldByVerify) {
  const NodeLink piece = pieces().at(2);
  const auto arena = store->arena(piece.hint).value();
  const FrameEntry entry = arena->index().nodes.at(arena->find_node(piece.score).value());
  const std::string path = store->arena_path(piece.hint);
  ByteVector raw = read_file(fs, path, 64_MiB).value();
  raw.at(entry.offset + kFrameHeaderBytes + entry.meta_bytes) ^= std::byte{1};
  ASSERT_TRUE(fs.remove(path).ok());
  ASSERT_TRUE(fs.create(path).value()->write_at(0, raw).ok());
  const auto damaged = test::open_store(fs);
  const VerifyReport report = verify_store(*damaged, true).value();
  ASSERT_FALSE(report.whole());
  EXPECT_EQ(report.damages.at(0).affected_sets, std::vector<std::string>{"run@1"});
}

TEST_F(LongLeaf, OfTooManyPiecesIsRefusedBeforeTheRestIsSaved) {
  struct Counting final : ProgressSink {
    void phase(std::string_view) override {}
    void total(uint64_t) override {}
    void advance(uint64_t bytes) override { done += bytes; }
    bool cancelled() const override { return false; }
    void warning(const Status&) override {}
    uint64_t done = 0;
  } progress;
  const test::TempFolder large;
  const ByteVector bytes = bytes_in_pieces(9000, 3);
  test::write_file(large.path() + "/rank0.dat", bytes);
  SaveOptions options = cutting("run", 3, 1000);
  options.tree.references_max = 100;
  const Status refused = save_folder(*store, large.path(), options, test::layout_service(), progress).status();
  EXPECT_EQ(refused.code(), StatusCode::resource_limit) << refused.to_string();
  EXPECT_LT(progress.done, bytes.size() / 2);
  EXPECT_EQ(Catalog(*store).read({"run", 3}).status().code(), StatusCode::not_found);
}

RC_GTEST_PROP(LongLeafProperty, ComesBackFromNodesOfAnySize, ()) {
  MemoryFileSystem fs;
  const auto store = test::make_store(fs);
  const test::TempFolder folder;
  const auto files = *rc::gen::inRange<uint64_t>(1, 4);
  for (uint64_t file = 0; file < files; ++file) {
    test::write_file(folder.path() + "/rank" + std::to_string(file) + ".dat",
                     bytes_in_pieces(*rc::gen::inRange<uint64_t>(0, 300), file));
  }
  const test::Snapshot saved = test::snapshot_of(folder.path());
  const SaveOptions options = cutting("run", 1, *rc::gen::inRange<uint64_t>(40, 3000));
  const auto report = save_folder(*store, folder.path(), options, test::layout_service());
  if (!report.ok()) RC_FAIL(report.status().to_string());
  RC_ASSERT(static_cast<bool>(test::restores_as(*store, {"run", 1}, saved)));
  RC_ASSERT(static_cast<bool>(test::is_whole(*store)));
}

}  // namespace
}  // namespace varve
