#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <set>

#include "engine/save.h"
#include "engine/scheme.h"
#include "engine/similarity.h"

namespace varve {
namespace {

/// The ranks that files of these names get.
std::vector<int64_t> ranks_of(const std::vector<std::string>& paths, const std::string& regex = "") {
  std::vector<SourceFile> files(paths.size());
  for (size_t i = 0; i < paths.size(); ++i) files[i].path = paths[i];
  const Status assigned = assign_ranks(files, regex);
  EXPECT_TRUE(assigned.ok()) << assigned.to_string();
  std::vector<int64_t> ranks;
  for (const SourceFile& file : files) ranks.push_back(file.rank);
  return ranks;
}
using Ranks = std::vector<int64_t>;

TEST(RankOfAFile, IsTheNumberThatVariesInEnzosNames) {
  EXPECT_EQ(ranks_of({"XX1000", "XX1000.boundary", "XX1000.boundary.hdf", "XX1000.cpu0000", "XX1000.cpu0001",
                      "XX1000.cpu0010", "XX1000.hierarchy"}),
            (Ranks{-1, -1, -1, 0, 1, 10, -1}));
}

TEST(RankOfAFile, IsTheNumberThatVariesInLuleshsAndLammpsNames) {
  EXPECT_EQ(ranks_of({"lulesh_00300.0", "lulesh_00300.13", "lulesh_00300.26"}), (Ranks{0, 13, 26}));
  EXPECT_EQ(ranks_of({"restart.40.0", "restart.40.1", "restart.40.15", "restart.40.base"}), (Ranks{0, 1, 15, -1}));
}

TEST(RankOfAFile, IsTheOneOfItsFolder) {
  EXPECT_EQ(ranks_of({"rank0/ckpt.h5", "rank1/ckpt.h5", "rank10/ckpt.h5"}), (Ranks{0, 1, 10}));
  EXPECT_EQ(ranks_of({"rank0/part7.h5", "rank1/part7.h5"}), (Ranks{0, 1}));
}

TEST(RankOfAFile, IsTheLastNumberOfSeveralThatVary) {
  EXPECT_EQ(ranks_of({"step1/out.0", "step1/out.1", "step2/out.0", "step2/out.1"}), (Ranks{0, 1, 0, 1}));
}

TEST(RankOfAFile, IsTheOneAfterAWordThatSaysSoIfSeveralVary) {
  EXPECT_EQ(ranks_of({"ckpt_rank0_pid4711.dmtcp", "ckpt_rank1_pid4708.dmtcp"}), (Ranks{0, 1}));
  EXPECT_EQ(ranks_of({"rank0/level0.bin", "rank0/level1.bin", "rank1/level0.bin"}), (Ranks{0, 0, 1}));
  EXPECT_EQ(ranks_of({"node0/p7.dat", "node1/p8.dat"}), (Ranks{7, 8}));
}

TEST(RankOfAFile, AloneInItsFamilyNeedsAWordThatSaysSo) {
  EXPECT_EQ(ranks_of({"dump.cpu0003"}), (Ranks{3}));
  EXPECT_EQ(ranks_of({"rank_007.dat"}), (Ranks{7}));
  EXPECT_EQ(ranks_of({"PROC-12"}), (Ranks{12}));
  EXPECT_EQ(ranks_of({"dump0003"}), (Ranks{-1}));
  EXPECT_EQ(ranks_of({"notes.txt"}), (Ranks{-1}));
  EXPECT_EQ(ranks_of({"icpu3"}), (Ranks{-1}));
}

TEST(RankOfAFile, IsOfNoUseIfItHasTooManyDigits) {
  EXPECT_EQ(ranks_of({"rank99999999999999999999"}), (Ranks{-1}));
  EXPECT_EQ(ranks_of({"x20240607120000000", "x20240607120000001"}), (Ranks{-1, -1}));
}

TEST(RankOfAFile, IsNoNumberThatMakesNoSenseAsOne) {
  EXPECT_EQ(ranks_of({"log_20240607", "log_20240608"}), (Ranks{-1, -1}));
  EXPECT_EQ(ranks_of({"out.133", "out.261"}), (Ranks{133, 261})) << "those of one node of 128";
  EXPECT_EQ(ranks_of({"frame0.png", "frame5000.png"}), (Ranks{-1, -1}));
  EXPECT_EQ(ranks_of({"#confout.gro.1#", "#confout.gro.2#", "notes.~1~", "notes.~2~"}), (Ranks{-1, -1, -1, -1}));
}

TEST(RankOfAFile, IsNoPlaceInAnArray) {
  EXPECT_EQ(ranks_of({"h/.zarray", "h/0.0", "h/0.1", "h/1.0"}), (Ranks{-1, -1, -1, -1}));
  EXPECT_EQ(ranks_of({"h/zarr.json", "h/c/0/0", "h/c/0/1", "u.0", "u.1"}), (Ranks{-1, -1, -1, 0, 1}));
  EXPECT_EQ(ranks_of({"rank0/h/.zarray", "rank0/h/0.0", "rank1/h/.zarray", "rank1/h/0.0", "rank1/h/0.1"}),
            (Ranks{0, 0, 1, 1, 1}));
}

/// Files `stem` + number, so many from `first` on and each `apart` from the next.
std::vector<SourceFile> numbered(const std::string& stem, size_t count, uint64_t bytes, size_t first = 0,
                                 size_t apart = 1) {
  std::vector<SourceFile> files(count);
  for (size_t i = 0; i < count; ++i) {
    files[i].path = stem + std::to_string(first + i * apart);
    files[i].bytes = bytes;
  }
  return files;
}
std::vector<SourceFile> operator+(std::vector<SourceFile> files, const std::vector<SourceFile>& more) {
  files.insert(files.end(), more.begin(), more.end());
  return files;
}
/// How many ranks the files get.
size_t rank_count(std::vector<SourceFile> files) {
  EXPECT_TRUE(assign_ranks(files, "").ok());
  std::set<int64_t> ranks;
  for (const SourceFile& file : files) ranks.insert(file.rank);
  ranks.erase(-1);
  return ranks.size();
}

TEST(RankOfAFile, IsNoneWhereVeryManyWouldHaveLittleDataEach) {
  EXPECT_EQ(rank_count(numbered("part", 20'000, 1000)), 0u);
  EXPECT_EQ(rank_count(numbered("part", 999, 1000)), 999u) << "so many may have little";
  EXPECT_EQ(rank_count(numbered("part", 20'000, 16_KiB)), 20'000u);
  EXPECT_EQ(rank_count(numbered("cpu", 20'000, 1000)), 20'000u) << "a word says so";
  EXPECT_EQ(rank_count(numbered("data.", 4096, 1_MiB) + numbered("facts.", 4096, 100)), 4096u)
      << "small files beside large ones of the same ranks";
  EXPECT_EQ(rank_count(numbered("cpu", 4096, 1000) + numbered("facts.", 4096, 100)), 4096u)
      << "they are the ranks that a word tells";
  std::vector<SourceFile> files = numbered("part", 2000, 1000);
  ASSERT_TRUE(assign_ranks(files, "", 2000).ok());
  EXPECT_EQ(files.back().rank, 1999) << "somebody says so";
  EXPECT_EQ(rank_count(numbered("out.", 16, 1_GiB) + numbered("frame", 20'000, 1000)), 16u);
}

TEST(RankOfAFile, IsNoneOfVeryManyNumbersOfWhichMostAreLacking) {
  EXPECT_EQ(rank_count(numbered("dump.", 2000, 1_MiB, 0, 100)), 0u);
  EXPECT_EQ(rank_count(numbered("dump.", 2000, 1_MiB, 1)), 2000u);
}

TEST(RankOfAFile, IsSaidToBeDoubtedWhereItIsNoneForWantOfData) {
  for (const auto& [bytes, doubted] : {std::pair{uint64_t{1000}, 20'000u}, std::pair{uint64_t{1_MiB}, 0u}}) {
    std::vector<SourceFile> files = numbered("part", 20'000, bytes);
    ASSERT_TRUE(assign_ranks(files, "").ok());
    EXPECT_EQ(count_doubted_ranks(files), doubted);
  }
  std::vector<SourceFile> others(20'000);
  for (size_t i = 0; i < others.size(); ++i) others[i].path = std::string(1 + i % 100, 'x') + std::string(i / 100, 'y');
  EXPECT_EQ(count_doubted_ranks(others), 0u);
}

TEST(GroupsOfFiles, AreFewerWhereFilesAreSmall) {
  std::vector<SourceFile> files(1000);
  for (size_t i = 0; i < files.size(); ++i) {
    files[i].path = "out." + std::to_string(i);
    files[i].rank = static_cast<int64_t>(i);
    files[i].bytes = 1000;
  }
  SaveOptions options;
  EXPECT_EQ(split_into_groups(files, options).size(), 32u);
  options.ranks.group_bytes_min = 100'000;
  const auto groups = split_into_groups(files, options);
  ASSERT_EQ(groups.size(), 10u);
  EXPECT_EQ(groups[0].size(), 100u);
  EXPECT_EQ(groups[9].front().rank, 900);
  options.ranks.group_bytes_min = 16_MiB;
  EXPECT_EQ(split_into_groups(files, options).size(), 1u);
  // As many processes as save together have some.
  options.ranks.smaller_groups = true;
  EXPECT_GE(split_into_groups(files, options, 4).size(), 4u);
}

TEST(RankOfAFile, IsWhatTheExpressionSays) {
  EXPECT_EQ(ranks_of({"a7b3.dat", "a8b4.dat", "notes"}, "a([0-9]+)"), (Ranks{7, 8, -1}));
  EXPECT_EQ(ranks_of({"a7b3.dat", "a8b4.dat"}, "[0-9]+(?=\\.)"), (Ranks{3, 4}));
  std::vector<SourceFile> files(1);
  files[0].path = "rankx";
  EXPECT_EQ(assign_ranks(files, "rank(.)").code(), StatusCode::invalid_argument);
  EXPECT_EQ(assign_ranks(files, "rank(").code(), StatusCode::invalid_argument);
}

TEST(RankOfAFile, IsNotGivenToFoldersAndLinks) {
  std::vector<SourceFile> files(2);
  files[0].path = "rank0";
  files[0].type = FileType::directory;
  files[1].path = "rank1";
  files[1].type = FileType::symlink;
  ASSERT_TRUE(assign_ranks(files, "").ok());
  EXPECT_EQ(files[0].rank, -1);
  EXPECT_EQ(files[1].rank, -1);
}

TEST(PathFamily, ReplacesRunsOfDigits) {
  EXPECT_EQ(path_family("DD0006/XX1000.cpu0012"), "DD#/XX#.cpu#");
  EXPECT_EQ(path_family("plain"), "plain");
  EXPECT_EQ(path_family("1a22b333"), "#a#b#");
  EXPECT_EQ(path_family(""), "");
}

Variable variable(const std::string& name, const ElementType& type, std::vector<uint64_t> shape) {
  Variable made;
  made.name = name;
  made.type = type;
  made.shape = std::move(shape);
  return made;
}

TEST(ClassKey, NamesGroupVariableTypeAndClass) {
  const ElementType f32{ElementKind::floating, ByteOrder::big, 4};
  const MatchRule rule;
  EXPECT_EQ(rule.class_key(variable("/Grid00000142/Density", f32, {50, 50}), false), "/Grid#/Density_F32BE_Array2D");
  EXPECT_EQ(rule.class_key(variable("/Grid1/velocity_1", f32, {50}), false), "/Grid#/velocity_1_F32BE_Array1D");
  EXPECT_EQ(rule.class_key(variable("time", f32, {}), false), "time_F32BE_Scalar");
  EXPECT_EQ(rule.class_key(variable("/restart.40.7", ElementType{}, {100}), true), "/restart.#.#_BYTES_Array1D");
  Variable encoded = variable("/a/b", f32, {10});
  encoded.encoded = true;
  EXPECT_EQ(rule.class_key(encoded, false), "/a/b_ENCODED_Array1D");
}

TEST(ClassKey, FollowsTheRule) {
  const Variable v = variable("/Grid12/Density7", ElementType{}, {5});
  EXPECT_EQ(MatchRule::parse("exact")->class_key(v, false), "/Grid12/Density7_BYTES_Array1D");
  EXPECT_EQ(MatchRule::parse("digits")->class_key(v, false), "/Grid#/Density7_BYTES_Array1D");
  EXPECT_EQ(MatchRule::parse("Grid[0-9]+/")->class_key(v, false), "/#Density7_BYTES_Array1D");
  EXPECT_EQ(MatchRule::parse("(").status().code(), StatusCode::invalid_argument);
  EXPECT_EQ(MatchRule::parse("Grid[0-9]+/")->text(), "Grid[0-9]+/");
}

TEST(ClassKey, TakesLongNamesAsTheyAre) {
  const std::string name = "/" + std::string(60'000, 'a');
  EXPECT_EQ(MatchRule::parse("(/|[a-z])*x")->class_key(variable(name, ElementType{}, {5}), false),
            name + "_BYTES_Array1D");
}

/// A stream of a rank's file, of a class and a length.
Stream stream(uint32_t file, uint32_t position, uint32_t class_id, int64_t rank, uint64_t bytes) {
  Stream made;
  made.file = file;
  made.position = position;
  made.class_id = class_id;
  made.rank = rank;
  made.bytes = bytes;
  made.extents = {{0, bytes}};
  return made;
}

/// The order in which a scheme takes streams apart: "stream:begin-end" of each item.
std::vector<std::string> order_of(const std::vector<Stream>& streams, Scheme scheme, uint64_t block_bytes) {
  std::vector<std::string> items;
  WorkOrder order(streams, scheme, block_bytes);
  while (auto item = order.next()) {
    items.push_back(std::to_string(item->stream) + ":" + std::to_string(item->begin) + "-" + std::to_string(item->end));
  }
  return items;
}
using Items = std::vector<std::string>;

/// Two ranks with two variables each (classes 0 and 1); rank 1's file comes first.
std::vector<Stream> two_ranks() {
  return {stream(0, 1, 0, 1, 25), stream(0, 2, 1, 1, 10), stream(1, 1, 0, 0, 15), stream(1, 2, 1, 0, 10)};
}

TEST(Order, AgnosticIsByRankAndPlaceInTheFile) {
  EXPECT_EQ(order_of(two_ranks(), Scheme::agnostic, 10), (Items{"2:0-15", "3:0-10", "0:0-25", "1:0-10"}));
}
TEST(Order, AgnosticBlockTakesABlockOfEachInTurn) {
  EXPECT_EQ(order_of(two_ranks(), Scheme::agnostic_block, 10),
            (Items{"2:0-10", "3:0-10", "0:0-10", "1:0-10", "2:10-15", "0:10-20", "0:20-25"}));
}
TEST(Order, AwareIsByClassThenRank) {
  EXPECT_EQ(order_of(two_ranks(), Scheme::aware, 10), (Items{"2:0-15", "0:0-25", "3:0-10", "1:0-10"}));
}
TEST(Order, AwareBlockIsByClassThenBlockThenRank) {
  EXPECT_EQ(order_of(two_ranks(), Scheme::aware_block, 10),
            (Items{"2:0-10", "0:0-10", "2:10-15", "0:10-20", "0:20-25", "3:0-10", "1:0-10"}));
}
/// Of two ranks with three classes: the class 1 predicts the class 0, and the class 2 goes with neither. A turn is half
/// of 2048 bytes.
Items order_of_bundle(uint64_t bytes_of_a_rank) {
  std::vector<Stream> streams;
  for (uint32_t rank = 0; rank < 2; ++rank) {
    for (uint32_t id = 0; id < 3; ++id) streams.push_back(stream(rank, id + 1, id, rank, bytes_of_a_rank));
  }
  for (Stream& each : streams) {
    if (each.class_id < 2) each.bundle = {.number = 1, .position = 1 - each.class_id, .classes = 2, .reference = {}};
  }
  WorkOrder order(streams, Scheme::aware, 10, /*pack_bytes=*/512, /*chunk_bytes=*/100);
  Items items;
  while (auto item = order.next()) {
    items.push_back(std::to_string(item->stream) + ":" + std::to_string(item->begin) + "-" + std::to_string(item->end));
  }
  return items;
}
TEST(Order, TheClassesOfABundleTakeTurnsInItsOrder) {
  EXPECT_EQ(order_of_bundle(200), (Items{"1:0-200", "4:0-200", "0:0-200", "3:0-200", "2:0-200", "5:0-200"}));
}
TEST(Order, TurnsOfABundleEndWithWhatARankHas) {
  EXPECT_EQ(order_of_bundle(1500), (Items{"1:0-1100", "0:0-1100", "1:1100-1500", "0:1100-1500", "4:0-1100", "3:0-1100",
                                          "4:1100-1500", "3:1100-1500", "2:0-1500", "5:0-1500"}));
  EXPECT_EQ(order_of_bundle(1300), (Items{"1:0-1300", "0:0-1300", "4:0-1300", "3:0-1300", "2:0-1300", "5:0-1300"}))
      << "a short rest goes with what is before it";
}
TEST(Order, SkipsEmptyStreams) {
  const std::vector<Stream> streams = {stream(0, 0, 0, 0, 0), stream(0, 1, 1, 0, 5), stream(1, 0, 0, 1, 0)};
  for (Scheme scheme : {Scheme::agnostic, Scheme::agnostic_block, Scheme::aware, Scheme::aware_block}) {
    EXPECT_EQ(order_of(streams, scheme, 100), (Items{"1:0-5"}));
    EXPECT_EQ(order_of({}, scheme, 100), Items{});
  }
}

RC_GTEST_PROP(Order, CoversEveryByteOnceAndEachStreamFromFrontToBack, ()) {
  std::vector<Stream> streams;
  for (auto count = *rc::gen::inRange<uint32_t>(0, 12); count > 0; --count) {
    streams.push_back(stream(count, 0, *rc::gen::inRange<uint32_t>(0, 3), *rc::gen::inRange<int64_t>(-1, 4),
                             *rc::gen::inRange<uint64_t>(0, 60)));
  }
  const Scheme scheme = *rc::gen::element(Scheme::agnostic, Scheme::agnostic_block, Scheme::aware, Scheme::aware_block);
  WorkOrder order(streams, scheme, *rc::gen::inRange<uint64_t>(1, 30));
  std::vector<uint64_t> reached(streams.size(), 0);
  std::set<uint32_t> classes_left;
  std::optional<uint32_t> last_class;
  const bool aware = scheme == Scheme::aware || scheme == Scheme::aware_block;
  while (auto item = order.next()) {
    RC_ASSERT(item->begin == reached[item->stream]);
    RC_ASSERT(item->end > item->begin);
    reached[item->stream] = item->end;
    const uint32_t id = streams[item->stream].class_id;
    if (last_class && *last_class != id) classes_left.insert(*last_class);
    last_class = id;
    RC_ASSERT(!aware || !classes_left.contains(id));
  }
  for (size_t i = 0; i < streams.size(); ++i) RC_ASSERT(reached[i] == streams[i].bytes);
}

TEST(SchemeName, IsReadAsItIsWritten) {
  for (Scheme scheme : {Scheme::agnostic, Scheme::agnostic_block, Scheme::aware, Scheme::aware_block}) {
    EXPECT_EQ(parse_scheme(scheme_name(scheme)).value(), scheme);
  }
  EXPECT_EQ(parse_scheme("random").status().code(), StatusCode::invalid_argument);
}

}  // namespace
}  // namespace varve
