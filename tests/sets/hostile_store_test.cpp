// Stores that somebody made to do harm: all checksums and scores are right, what they say is not.

#include <gtest/gtest.h>

#include <cstdio>
#include <functional>

#include "core/memory_file_system.h"
#include "engine/inspect.h"
#include "sets/peak_memory.h"
#include "sets/saving.h"
#include "store/prune.h"
#include "store/test_sets.h"
#include "store/verify.h"

namespace varve {
namespace {

using test::clear_peak;
using test::peak_memory_bytes;
using test::SetMaker;
using test::TempFolder;

const SetName kName{"evil", 1};

constexpr uint64_t kMemoryGrowthMax = 400_MiB;

struct HostileStore : testing::Test {
  MemoryFileSystem fs;
  std::unique_ptr<Store> store = test::make_store(fs);
  TempFolder place;

  static ByteVector chunk(size_t bytes = 1000) { return test::random_bytes(bytes, bytes); }

  /// Commits a set whose only leaf holds these files, which may refer to a pack of 1000 bytes.
  void commit_files(const std::vector<TreeFile>& files) {
    SetMaker maker(*store);
    Leaf leaf;
    leaf.packs.push_back(maker.pack({chunk()}));
    leaf.class_keys.push_back("key");
    leaf.files = files;
    ASSERT_TRUE(maker.commit(kName, maker.root({maker.leaf(leaf)})).ok());
  }
  /// Commits a set whose leaf has this content.
  void commit_leaf(ByteSpan content) {
    SetMaker maker(*store);
    ASSERT_TRUE(maker.commit(kName, maker.root({maker.node(content)})).ok());
  }
  /// Commits a set of one file that is all of a pack made by `make`.
  void commit_pack(const std::function<PackLink(SetMaker&)>& make, uint64_t bytes) {
    SetMaker maker(*store);
    Leaf leaf;
    leaf.packs.push_back(make(maker));
    leaf.files.push_back(SetMaker::plain_file("file", {{0, 0, bytes}}));
    ASSERT_TRUE(maker.commit(kName, maker.root({maker.leaf(leaf)})).ok());
  }

  /// Restoring the set is refused with a clear error, nothing appears anywhere, and no other way to look at it does
  /// harm.
  void expect_refused(bool verify_reports = true) {
    std::filesystem::create_directory(place / "outside");
    const test::Snapshot before = test::snapshot_of(place.path());
    clear_peak();
    const uint64_t memory_before = peak_memory_bytes();
    RestoreOptions options;
    options.sync = false;
    for (bool keep_going : {false, true}) {
      options.keep_going = keep_going;
      const Result<RestoreReport> restored = restore_set(*store, kName, place / "target", options);
      if (keep_going && restored.ok()) {
        EXPECT_FALSE(restored->lost_files.empty());
        EXPECT_EQ(restored->file_count, 0u);
        std::filesystem::remove_all(place / "target");
        continue;
      }
      ASSERT_FALSE(restored.ok());
      EXPECT_NE(restored.status().code(), StatusCode::internal);
      EXPECT_FALSE(restored.status().message().empty());
      EXPECT_FALSE(restored.status().subject().empty()) << restored.status().to_string();
    }
    EXPECT_EQ(test::snapshot_of(place.path()), before);

    const Result<VerifyReport> verified = verify_store(*store, true);
    EXPECT_NE(verified.ok() && verified->whole(), verify_reports);
    inspect_set(*store, kName).status().ignore("it must only do no harm");
    diff_sets(*store, kName, kName).status().ignore("likewise");
    uint64_t read_bytes = 0;
    auto take = [&](ByteSpan part) { return (read_bytes += part.size()) > 1_GiB ? Status::cancelled() : Status(); };
    read_set_file(*store, kName, "file", "", take).ignore("likewise");
    store_statistics(*store).status().ignore("likewise");
    PruneOptions prune_options;
    prune_options.wait_seconds = 0;
    prune_options.silence_seconds = 0;
    prune_store(*store, prune_options).status().ignore("likewise");
    EXPECT_LE(peak_memory_bytes(), memory_before + kMemoryGrowthMax);
  }
};

TreeFile link(const std::string& path, const std::string& target) {
  TreeFile file;
  file.path = path;
  file.type = FileType::symlink;
  file.link_target = target;
  return file;
}
TreeFile folder(const std::string& path) {
  TreeFile file;
  file.path = path;
  file.type = FileType::directory;
  file.mode = 0755;
  return file;
}
TreeFile file(const std::string& path) { return SetMaker::plain_file(path, {{0, 0, 1000}}); }

struct BadPath : HostileStore, testing::WithParamInterface<std::string> {};

TEST_P(BadPath, IsRefused) {
  commit_files({file("good"), file(GetParam())});
  expect_refused();
}
TEST_P(BadPath, OfAFolderOrALinkIsRefused) {
  commit_files({folder(GetParam())});
  expect_refused();
  store = nullptr;
  ASSERT_TRUE(fs.remove("/store/sets/evil/1.set").ok());
  store = test::open_store(fs);
  commit_files({link(GetParam(), "x")});
  expect_refused();
}
INSTANTIATE_TEST_SUITE_P(Paths, BadPath,
                         testing::Values("../x", "../../x", "a/../../x", "..", ".", "", "/absolute", "/etc/passwd",
                                         "a//b", "a/", "/", "./a", "a/./b", std::string("a\0b", 3),
                                         std::string(256, 'n'), std::string(5000, '/') + "x",
                                         "outside/" + std::string(300, 'x')));

TEST_F(HostileStore, LinkThatWouldLeadAFileOutsideIsRefused) {
  commit_files({link("a", place / "outside"), file("a/passwd")});
  expect_refused(false);
}
TEST_F(HostileStore, LinkAfterTheFileThatItWouldLeadOutsideIsRefused) {
  commit_files({file("a/passwd"), link("a", place / "outside")});
  expect_refused(false);
}
TEST_F(HostileStore, LinkInTheMiddleOfAPathIsRefused) {
  commit_files({folder("a"), link("a/b", place / "outside"), folder("a/b/c"), file("a/b/c/passwd")});
  expect_refused(false);
}
TEST_F(HostileStore, FileNamedTwiceIsRefused) {
  commit_files({file("a"), file("b"), file("a")});
  expect_refused(false);
}
TEST_F(HostileStore, FileThatIsAlsoAFolderOrALinkIsRefused) {
  commit_files({file("a"), folder("a")});
  expect_refused(false);
}
TEST_F(HostileStore, FileBelowAFileIsRefused) {
  commit_files({file("a"), file("a/b")});
  expect_refused(false);
}
TEST_F(HostileStore, FileThatBeforeItsFolderIsAFileIsRefused) {
  commit_files({file("x/y/z"), file("x")});
  expect_refused(false);
}

TEST_F(HostileStore, LinksThatLieInTheTargetAreNotFollowed) {
  commit_files({file("a/passwd")});
  std::filesystem::create_directories(place / "outside");
  std::filesystem::create_directories(place / "target");
  std::filesystem::create_symlink(place / "outside", place / "target/a");
  RestoreOptions options;
  for (bool overwrite : {false, true}) {
    options.overwrite = overwrite;
    EXPECT_FALSE(restore_set(*store, kName, place / "target", options).ok());
    EXPECT_TRUE(std::filesystem::is_empty(place / "outside"));
  }
}

TEST_F(HostileStore, ReferencesOutOfTheirPackAreRefused) {
  const Reference references[] = {{0, 0, 1001},  {0, 1000, 1},           {0, 999, 2},
                                  {0, 5000, 10}, {0, 4'000'000'000, 10}, {0, 0, 4'000'000'000}};
  uint64_t step = 1;
  for (const Reference& reference : references) {
    fs.remove("/store/sets/evil/1.set").ignore("there is none at first");
    commit_files({SetMaker::plain_file("file", {reference})});
    expect_refused();
    ++step;
  }
}

TEST_F(HostileStore, ReferencesNearTheEndOfNumbersAreRefused) {
  const Reference references[] = {{0, UINT64_MAX, 1}, {0, UINT64_MAX - 5, 10}, {0, uint64_t{1} << 32, 1}};
  for (const Reference& reference : references) {
    fs.remove("/store/sets/evil/1.set").ignore("there is none at first");
    commit_files({SetMaker::plain_file("file", {reference})});
    expect_refused();
  }
}

TEST_F(HostileStore, FileOfExbibytesIsRefusedWithoutFillingTheDisk) {
  TreeFile huge = SetMaker::plain_file("file", {{Reference::kPattern, 0x4141414141414141, uint64_t{1} << 61}});
  commit_files({huge});
  expect_refused(false);
  fs.remove("/store/sets/evil/1.set").ignore("there is none at first");
  commit_files({SetMaker::plain_file("file", {{Reference::kPattern, 1, uint64_t{1} << 63}})});
  expect_refused();
}

Variable variable(std::vector<Extent> extents) {
  Variable v;
  v.name = "/v";
  v.shape = {1};
  v.extents = std::move(extents);
  return v;
}

TEST_F(HostileStore, VariablesThatOverlapOrLeaveTheirFileAreRefused) {
  const std::vector<std::vector<Extent>> layouts[] = {
      {{{0, 100}}, {{50, 100}}},   {{{0, 100}, {99, 10}}}, {{{950, 100}}}, {{{UINT64_MAX - 9, 10}}},
      {{{UINT64_MAX, 2}}},         {{{0, UINT64_MAX}}},    {{{0, 0}}},     {{{5000, 1}}},
      {{{1, UINT64_MAX}, {0, 1}}},
  };
  for (const auto& layout : layouts) {
    fs.remove("/store/sets/evil/1.set").ignore("there is none at first");
    TreeFile bad = file("file");
    for (const auto& extents : layout) {
      bad.layout.variables.push_back(variable(extents));
      bad.class_of.push_back(0);
      bad.streams.push_back({{0, 0, 100}});
    }
    commit_files({bad});
    expect_refused();
  }
}

TEST_F(HostileStore, ImpossibleModesTimesAndTypesAreRefused) {
  std::vector<TreeFile> files(4, file("file"));
  files[0].mode = 0100644;
  files[1].modified_ns = 1'000'000'000;
  files[2].type = static_cast<FileType>(3);
  files[3] = link("link", "");
  for (const TreeFile& bad : files) {
    fs.remove("/store/sets/evil/1.set").ignore("there is none at first");
    commit_files({bad});
    expect_refused();
  }
}

/// A leaf written field by field: counts may be anything.
struct RawLeaf {
  ByteVector content;
  ByteWriter w{content};
  RawLeaf() { w.u8('L'); }
  void numbers(std::initializer_list<uint64_t> values) {
    for (uint64_t value : values) w.varint(value);
  }
  /// Empty tables, and the beginning of one regular file of `bytes`.
  void begin_file(uint64_t bytes) {
    numbers({0, 0, 0, 1});
    w.text("file");
    w.u8(0);
    numbers({0644, 0, 0, 0, bytes});
    w.text("raw");
    w.varint(0);
  }
};

TEST_F(HostileStore, CountsThatCannotBeTrueAreRefused) {
  for (uint64_t count : {uint64_t{1} << 20, uint64_t{1} << 32, uint64_t{1} << 60, UINT64_MAX}) {
    std::vector<RawLeaf> leaves(6);
    leaves[0].numbers({count});           // arenas
    leaves[1].numbers({0, count});        // packs
    leaves[2].numbers({0, 0, count});     // classes
    leaves[3].numbers({0, 0, 0, count});  // files
    leaves[4].begin_file(1000);
    leaves[4].numbers({count});  // variables
    leaves[5].begin_file(1000);
    leaves[5].numbers({0, count});  // references
    for (const RawLeaf& leaf : leaves) {
      fs.remove("/store/sets/evil/1.set").ignore("there is none at first");
      commit_leaf(leaf.content);
      expect_refused();
    }
  }
}

TEST_F(HostileStore, LeavesThatExpandToManyTimesTheirSizeAreRefused) {
  // A few kilobytes in the arena, the largest node allowed when decoded, and claims that its size just bears out.
  const uint64_t bytes = 60_MiB;
  std::vector<RawLeaf> leaves(3);
  leaves[0].begin_file(uint64_t{1} << 40);
  leaves[0].numbers({0, bytes - 10});     // references
  leaves[1].numbers({0, 0, bytes - 10});  // classes, all without a name
  leaves[2].begin_file(uint64_t{1} << 40);
  leaves[2].numbers({bytes / 8});  // variables
  for (RawLeaf& leaf : leaves) {
    fs.remove("/store/sets/evil/1.set").ignore("there is none at first");
    leaf.content.resize(bytes);
    commit_leaf(leaf.content);
    expect_refused();
  }
}

TEST_F(HostileStore, OrdinalsOutsideTheirTablesAreRefused) {
  RawLeaf pack;
  pack.begin_file(10);
  pack.numbers({0, 1, 4, 0});  // one reference, to pack 1 of none
  RawLeaf hint;
  hint.numbers({0, 1});
  write_score(hint.w, Score{}, store->score().score_bytes());
  hint.numbers({7});
  RawLeaf trailing;
  trailing.numbers({0, 0, 0, 0, 0});
  for (const RawLeaf* leaf : {&pack, &hint, &trailing}) {
    fs.remove("/store/sets/evil/1.set").ignore("there is none at first");
    commit_leaf(leaf->content);
    expect_refused();
  }
}

TEST_F(HostileStore, RootsAndLeavesInEachOthersPlacesAreRefused) {
  {
    SetMaker maker(*store);
    const LeafLink root = maker.root({});
    ASSERT_TRUE(maker.commit(kName, maker.root({root, root})).ok());
  }
  expect_refused();
  ASSERT_TRUE(fs.remove("/store/sets/evil/1.set").ok());
  {
    SetMaker maker(*store);
    ASSERT_TRUE(maker.commit(kName, maker.leaf({})).ok());
  }
  expect_refused();
}

TEST_F(HostileStore, NodeThatNamesItselfIsRefused) {
  SetMaker maker(*store);
  // A root under a score that is not its own, and that it names as its leaf.
  Score self;
  self.bytes.fill(std::byte{0x5a});
  const size_t score_bytes = store->score().score_bytes();
  const ByteVector content = encode_root({{{self, maker.arena(), 1, 1}}}, score_bytes);
  ASSERT_TRUE(maker.writer().append_node(self, content).ok());
  ASSERT_TRUE(maker.commit(kName, {self, maker.arena(), 0, 0}).ok());
  expect_refused();
}

TEST_F(HostileStore, LeafListedManyTimesIsRefused) {
  SetMaker maker(*store);
  Leaf leaf;
  leaf.packs.push_back(maker.pack({chunk()}));
  leaf.files = {file("file")};
  ASSERT_TRUE(maker.commit(kName, maker.root(std::vector<LeafLink>(10'000, maker.leaf(leaf)))).ok());
  expect_refused(false);
}

TEST_F(HostileStore, RootWithMoreLeavesThanBytesIsRefused) {
  ByteVector root;
  ByteWriter w(root);
  w.u8('R');
  w.varint(0);
  w.varint(uint64_t{1} << 50);
  SetMaker maker(*store);
  ASSERT_TRUE(maker.commit(kName, maker.node(root)).ok());
  expect_refused();
}

/// A pack whose meta part is made of these fields and a table of one chunk of `chunk_bytes`.
PackLink raw_pack(SetMaker& maker, const Store& store, uint64_t chunk_bytes, ByteSpan recipe, ByteSpan body) {
  const Score chunk_score = store.score()(body);
  const Score score = pack_score(store.score(), {{static_cast<uint32_t>(chunk_bytes), chunk_score}});
  ByteVector meta;
  ByteWriter w(meta);
  write_score(w, score, store.score().score_bytes());
  w.text("key");
  w.varint(recipe.size());
  w.bytes(recipe);
  for (uint64_t number : {uint64_t{0}, uint64_t{0}, uint64_t{1}, chunk_bytes, uint64_t{1}}) w.varint(number);
  write_score(w, chunk_score, store.score().score_bytes());
  FrameEntry entry;
  entry.score = score;
  entry.raw_bytes = chunk_bytes;
  entry.chunk_count = 1;
  EXPECT_TRUE(maker.writer().append_copy(FrameKind::pack, entry, meta, body).ok());
  return {score, maker.arena()};
}

ByteVector recipe_of(uint32_t codec, uint64_t in_bytes) {
  ByteVector recipe;
  ByteWriter w(recipe);
  w.u8(1);
  w.varint(codec);
  w.varint(in_bytes);
  w.varint(0);
  return recipe;
}

TEST_F(HostileStore, PackThatDeclaresExbibytesIsRefused) {
  const ByteVector store_recipe = {std::byte{0}};
  for (uint64_t bytes : {kPackBytesMax + 1, uint64_t{1} << 32, uint64_t{1} << 60, UINT64_MAX}) {
    fs.remove("/store/sets/evil/1.set").ignore("there is none at first");
    commit_pack([&](SetMaker& maker) { return raw_pack(maker, *store, bytes, store_recipe, chunk()); }, 1000);
    expect_refused();
  }
}

TEST_F(HostileStore, PackOfAnUnknownCodecIsRefused) {
  commit_pack([&](SetMaker& maker) { return raw_pack(maker, *store, 1000, recipe_of(9999, 1000), chunk()); }, 1000);
  expect_refused();
}

TEST_F(HostileStore, PackThatDecodesToFarMoreThanItDeclaresIsRefused) {
  const ByteVector zeros(60_MiB);
  const CodecChain chain = CodecChain::parse("zstd").value();
  const PackShape shape{ElementType{}, {varve::Run{zeros.size(), {}, false}}};
  const EncodedBytes encoded = encode_chain(chain, zeros, shape).value();
  ASSERT_LT(encoded.body.size(), 100'000u);
  commit_pack([&](SetMaker& maker) { return raw_pack(maker, *store, 1000, recipe_of(1, 1000), encoded.body); }, 1000);
  expect_refused();
}

TEST_F(HostileStore, ChainsOfManyStagesOrHugeStagesAreRefused) {
  ByteVector many = recipe_of(1, 1000);
  many[0] = std::byte{200};
  ByteVector huge;
  ByteWriter w(huge);
  w.u8(2);
  for (uint64_t in_bytes : {uint64_t{1000}, uint64_t{1} << 60}) {
    w.varint(1);
    w.varint(in_bytes);
    w.varint(0);
  }
  for (const ByteVector& recipe : {many, huge, ByteVector{}, recipe_of(1, uint64_t{1} << 60)}) {
    fs.remove("/store/sets/evil/1.set").ignore("there is none at first");
    commit_pack([&](SetMaker& maker) { return raw_pack(maker, *store, 1000, recipe, chunk()); }, 1000);
    expect_refused();
  }
}

TEST_F(HostileStore, RecordsThatLieAreRefused) {
  SetRecord record;
  record.name = kName;
  ASSERT_TRUE(fs.create_directory("/store/sets/evil").ok());
  auto put = [&](ByteSpan contents) {
    fs.remove("/store/sets/evil/1.set").ignore("there is none at first");
    ASSERT_TRUE(fs.create("/store/sets/evil/1.set").value()->write_at(0, contents).ok());
  };
  // Another set's name, a name that would leave the folder, a root that is nowhere.
  for (const SetName& name : {SetName{"evil", 2}, SetName{"../x", 1}, SetName{"", 1}, kName}) {
    record.name = name;
    record.groups.assign(1, {});
    put(encode_set_record(record, store->score()));
    expect_refused();
  }
  // More groups than bytes.
  record.name = kName;
  record.groups.clear();
  ByteVector raw = encode_set_record(record, store->score());
  raw.resize(raw.size() - store->score().score_bytes() - 1);
  ByteWriter(raw).varint(uint64_t{1} << 40);
  const Score score = store->score()(raw);
  ByteWriter w(raw);
  write_score(w, score, store->score().score_bytes());
  put(raw);
  expect_refused();
}

TEST_F(HostileStore, ArenaWhoseIndexLiesIsRefused) {
  const ArenaId arena = UniqueId::random().value();
  const size_t score_bytes = store->score().score_bytes();
  LeafLink root{{}, arena, 0, 0};
  root.score.bytes.fill(std::byte{7});
  for (uint64_t offset : {uint64_t{0}, uint64_t{64}, uint64_t{1} << 40, UINT64_MAX - 20}) {
    ArenaIndex index;
    index.nodes.push_back({root.score, offset, 100, kFrameBodyBytesMax, kPackBytesMax, 0, 0});
    ByteVector raw, body;
    encode_arena_header(arena_header(*store, arena), raw);
    encode_arena_index(index, score_bytes, body);
    FrameHeader frame{FrameKind::index, arena.tag(), raw.size(), 0, body.size(), crc32c({}), crc32c(body)};
    raw.resize(raw.size() + kFrameHeaderBytes);
    encode_frame_header(frame, raw.data() + kArenaHeaderBytes);
    raw.insert(raw.end(), body.begin(), body.end());
    encode_arena_footer({arena.tag(), kArenaHeaderBytes, raw.size() + kArenaFooterBytes}, raw);
    fs.remove(store->arena_path(arena)).ignore("there is none at first");
    fs.remove("/store/sets/evil/1.set").ignore("there is none at first");
    ASSERT_TRUE(fs.create(store->arena_path(arena)).value()->write_at(0, raw).ok());
    store = test::open_store(fs);
    ASSERT_TRUE(SetMaker(*store).commit(kName, root).ok());
    expect_refused();
  }
}

TEST_F(HostileStore, StoreHeaderThatCannotBeTrueIsRefused) {
  const ByteVector header = read_file(fs, "/store/varve.store", 4096).value();
  auto opened_with = [&](size_t at, uint8_t value) {
    ByteVector changed = header;
    changed[at] = std::byte{value};
    store_le<uint32_t>(changed.data() + 44, crc32c(ByteSpan(changed).first(44)));
    EXPECT_TRUE(fs.remove("/store/varve.store").ok());
    EXPECT_TRUE(fs.create("/store/varve.store").value()->write_at(0, changed).ok());
    return Store::open(fs, "/store").status().code();
  };
  EXPECT_EQ(opened_with(8, 2), StatusCode::unsupported);    // version
  EXPECT_EQ(opened_with(10, 99), StatusCode::unsupported);  // score algorithm
  EXPECT_NE(opened_with(11, 5), StatusCode::ok);            // score bytes
  EXPECT_NE(opened_with(11, 255), StatusCode::ok);
}

}  // namespace
}  // namespace varve
