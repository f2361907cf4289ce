#include "format/tree.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "store/needs.h"

namespace varve {
namespace {

constexpr size_t kScoreBytes = 32;

Score score_from(uint64_t number) {
  Score score;
  store_le<uint64_t>(score.bytes.data() + 8, number);
  return score;
}
ArenaId arena_from(uint64_t number) {
  ArenaId id;
  store_le<uint64_t>(id.bytes.data(), number);
  return id;
}

/// References that cover `bytes` exactly.
std::vector<Reference> arbitrary_stream(uint64_t bytes, size_t pack_count) {
  std::vector<Reference> stream;
  while (bytes > 0) {
    Reference reference;
    reference.bytes = *rc::gen::inRange<uint64_t>(1, bytes + 1);
    if (pack_count == 0 || *rc::gen::arbitrary<bool>()) {
      reference.pack = Reference::kPattern;
      reference.offset = *rc::gen::arbitrary<uint64_t>();
    } else {
      reference.pack = *rc::gen::inRange<uint32_t>(0, static_cast<uint32_t>(pack_count));
      reference.offset = *rc::gen::inRange<uint64_t>(0, uint64_t{1} << 26);
    }
    bytes -= reference.bytes;
    stream.push_back(reference);
  }
  return stream;
}

void add_variables(TreeFile& file, size_t class_count) {
  const std::vector<ElementType> types = {
      {}, {ElementKind::floating, ByteOrder::big, 8}, {ElementKind::text, ByteOrder::little, 80}};
  uint64_t offset = 0;
  for (auto count = *rc::gen::inRange<size_t>(0, 5); count > 0; --count) {
    Variable variable;
    variable.name = "/Grid" + std::to_string(count);
    variable.type = *rc::gen::elementOf(types);
    variable.encoded = *rc::gen::arbitrary<bool>();
    variable.shape.resize(*rc::gen::inRange<size_t>(0, 4), *rc::gen::arbitrary<uint64_t>());
    for (auto extents = *rc::gen::inRange<size_t>(0, 4); extents > 0; --extents) {
      offset += *rc::gen::inRange<uint64_t>(0, 100);
      variable.extents.push_back({offset, variable.type.bytes * *rc::gen::inRange<uint64_t>(1, 50)});
      offset += variable.extents.back().bytes;
    }
    if (*rc::gen::arbitrary<bool>()) {
      file.small_variables.push_back(std::move(variable));
      continue;
    }
    file.layout.variables.push_back(std::move(variable));
    file.class_of.push_back(*rc::gen::inRange<uint32_t>(0, static_cast<uint32_t>(class_count)));
  }
  file.bytes = offset + *rc::gen::inRange<uint64_t>(0, 1000);
}

TreeFile arbitrary_file(size_t number, size_t pack_count, size_t class_count) {
  TreeFile file;
  file.path = "folder/file" + std::to_string(number);
  file.type = *rc::gen::element(FileType::regular, FileType::directory, FileType::symlink);
  file.mode = *rc::gen::inRange<uint32_t>(0, 010000);
  file.modified_s = *rc::gen::arbitrary<int64_t>();
  file.modified_ns = *rc::gen::inRange<uint32_t>(0, 1'000'000'000);
  file.rank = *rc::gen::inRange<int64_t>(-1, 1'000'000);
  if (file.type == FileType::symlink) file.link_target = "../somewhere";
  if (file.type != FileType::regular) return file;
  file.layout.format = *rc::gen::element<std::string>("raw", "hdf5", "");
  file.unnamed_variable_count = *rc::gen::arbitrary<uint64_t>();
  add_variables(file, class_count);
  for (size_t i = 0; i <= file.layout.variables.size(); ++i) {
    uint64_t bytes = 0;
    for (const Extent& extent : stream_extents(file, i)) bytes += extent.bytes;
    file.streams.push_back(arbitrary_stream(bytes, pack_count));
  }
  return file;
}

Leaf arbitrary_leaf() {
  Leaf leaf;
  for (auto count = *rc::gen::inRange<uint64_t>(0, 6); count > 0; --count)
    leaf.packs.push_back({score_from(count), arena_from(count % 3)});
  for (auto count = *rc::gen::inRange<size_t>(1, 4); count > 0; --count)
    leaf.class_keys.push_back("/key" + std::to_string(count));
  for (auto count = *rc::gen::inRange<size_t>(0, 5); count > 0; --count) {
    leaf.files.push_back(arbitrary_file(count, leaf.packs.size(), leaf.class_keys.size()));
  }
  return leaf;
}

bool equal(const TreeFile& a, const TreeFile& b) {
  return a.path == b.path && a.type == b.type && a.mode == b.mode && a.modified_s == b.modified_s &&
         a.modified_ns == b.modified_ns && a.rank == b.rank && a.link_target == b.link_target && a.bytes == b.bytes &&
         a.layout == b.layout && a.small_variables == b.small_variables &&
         a.unnamed_variable_count == b.unnamed_variable_count && a.class_of == b.class_of && a.streams == b.streams;
}

/// If it decodes at all, nothing of it is dangerous.
void check_safe(const Result<Leaf>& leaf) {
  if (!leaf.ok()) return;
  for (const TreeFile& file : leaf->files) {
    RC_ASSERT(path_is_safe(file.path));
    RC_ASSERT(file.type != FileType::regular || file.streams.size() == file.layout.variables.size() + 1);
    for (uint32_t id : file.class_of) RC_ASSERT(id < leaf->class_keys.size());
    for (size_t i = 0; i < file.streams.size(); ++i) {
      uint64_t extent_bytes = 0, reference_bytes = 0;
      for (const Extent& extent : stream_extents(file, i)) {
        RC_ASSERT(extent.offset + extent.bytes <= file.bytes);
        extent_bytes += extent.bytes;
      }
      for (const Reference& reference : file.streams[i]) {
        RC_ASSERT(reference.pack == Reference::kPattern || reference.pack < leaf->packs.size());
        reference_bytes += reference.bytes;
      }
      RC_ASSERT(extent_bytes == reference_bytes);
    }
  }
}

RC_GTEST_PROP(Leaf, ComesBackAsItWasAndIsRefusedCutOff, ()) {
  const Leaf leaf = arbitrary_leaf();
  const ByteVector raw = encode_leaf(leaf, kScoreBytes);
  const Result<Leaf> decoded = decode_leaf(raw, kScoreBytes);
  if (!decoded.ok()) RC_FAIL(decoded.status().to_string());
  RC_ASSERT(decoded->class_keys == leaf.class_keys);
  RC_ASSERT(std::equal(decoded->packs.begin(), decoded->packs.end(), leaf.packs.begin(), leaf.packs.end(),
                       [](const PackLink& a, const PackLink& b) { return a.score == b.score && a.hint == b.hint; }));
  RC_ASSERT(std::equal(decoded->files.begin(), decoded->files.end(), leaf.files.begin(), leaf.files.end(), equal));
  for (size_t bytes = 0; bytes < raw.size(); ++bytes)
    RC_ASSERT(!decode_leaf(ByteSpan(raw).first(bytes), kScoreBytes).ok());
}

/// As many files as are written by column: those of a solver's folder, with others among them.
Leaf leaf_of_many() {
  Leaf leaf = arbitrary_leaf();
  const auto count = *rc::gen::inRange<size_t>(256, 300);
  while (leaf.files.size() < count) {
    const size_t number = leaf.files.size();
    TreeFile file;
    file.path = "d" + std::to_string(number / 100) + "/f" + std::to_string(number * 7) + ".dat";
    file.modified_ns = static_cast<uint32_t>(number * 1'000'003 % 1'000'000'000);
    file.rank = -1;
    if (number % 100 == 7) {
      file.type = FileType::directory;
    } else {
      file.bytes = 280 + number % 3;
      const bool is_known = number % 50 == 9;
      file.layout = opaque_layout(file.bytes, is_known ? "/density" : "/" + file.path.substr(file.path.find('/') + 1));
      file.class_of = {static_cast<uint32_t>(number % leaf.class_keys.size())};
      file.streams = {{}, arbitrary_stream(file.bytes, leaf.packs.size())};
    }
    leaf.files.push_back(std::move(file));
  }
  return leaf;
}

RC_GTEST_PROP(LeafOfManyFiles, ComesBackAsItWasAndIsRefusedCutOffOrSafe, ()) {
  const Leaf leaf = leaf_of_many();
  ByteVector raw = encode_leaf(leaf, kScoreBytes);
  RC_ASSERT(raw.front() == std::byte{'F'});
  const Result<Leaf> decoded = decode_leaf(raw, kScoreBytes);
  if (!decoded.ok()) RC_FAIL(decoded.status().to_string());
  RC_ASSERT(std::equal(decoded->files.begin(), decoded->files.end(), leaf.files.begin(), leaf.files.end(), equal));
  RC_ASSERT(encode_leaf(*decoded, kScoreBytes) == raw);
  for (int i = 0; i < 50; ++i)
    RC_ASSERT(!decode_leaf(ByteSpan(raw).first(*rc::gen::inRange<size_t>(0, raw.size())), kScoreBytes).ok());
  for (int i = 0; i < 20; ++i) {
    ByteVector flipped = raw;
    flipped[*rc::gen::inRange<size_t>(0, raw.size())] = std::byte{*rc::gen::arbitrary<uint8_t>()};
    check_safe(decode_leaf(flipped, kScoreBytes));
  }
}

/// What comes before the paths of `count` files by column.
ByteVector columns_of(uint64_t count) {
  ByteVector raw;
  ByteWriter w(raw);
  w.u8('F');
  for (const uint64_t none_or_files : {uint64_t{0}, uint64_t{0}, uint64_t{0}, count}) w.varint(none_or_files);
  return raw;
}

TEST(LeafOfManyFiles, TakesNoMoreOfThePathBeforeThanThatHas) {
  for (const bool at_end : {false, true}) {
    ByteVector raw = columns_of(2);
    ByteWriter w(raw);
    for (const uint64_t part : {0, at_end ? 2 : 4, 0, at_end ? 2 : 0, 3, 1}) w.varint(part);
    w.bytes(as_bytes(std::string_view("abcd")));
    raw.resize(raw.size() + 100);
    const Status status = decode_leaf(raw, kScoreBytes).status();
    EXPECT_EQ(status.code(), StatusCode::corrupt);
    EXPECT_NE(status.to_string().find("one before"), std::string::npos) << status.to_string();
  }
}

TEST(LeafOfManyFiles, HasNoPathsThatGrowFromFewBytes) {
  // 200,000 paths of 200 bytes, each but one byte.
  constexpr uint64_t files = 200'000, path_bytes = 200;
  ByteVector raw = columns_of(files);
  ByteWriter w(raw);
  for (uint64_t i = 0; i < files; ++i) w.varint(i == 0 ? 0 : path_bytes - 1);
  for (uint64_t i = 0; i < files; ++i) w.varint(0);
  for (uint64_t i = 0; i < files; ++i) w.varint(i == 0 ? path_bytes : 1);
  raw.resize(raw.size() + path_bytes + 9 * files, std::byte{'x'});
  const Status status = decode_leaf(raw, kScoreBytes).status();
  EXPECT_EQ(status.code(), StatusCode::corrupt);
  EXPECT_NE(status.to_string().find("longer than they may be"), std::string::npos) << status.to_string();
}

/// A leaf cut into pieces of so many bytes, and what lists them; the pieces by their score's first byte.
struct CutLeaf {
  CutLeaf(const ByteVector& leaf, size_t piece_bytes) {
    LeafPieces list{leaf.size(), {}};
    for (size_t at = 0; at < leaf.size(); at += piece_bytes) {
      pieces.push_back(encode_leaf_piece(ByteSpan(leaf).subspan(at, std::min(piece_bytes, leaf.size() - at))));
      list.pieces.push_back({score_from(pieces.size()), arena_from(pieces.size() % 3)});
      links.push_back(list.pieces.back());
    }
    node = encode_leaf_pieces(list, kScoreBytes);
  }
  Result<std::optional<ByteVector>> read(const Score& score, const ArenaId& hint) const {
    for (size_t i = 0; i < links.size(); ++i) {
      if (links[i].score == score && links[i].hint == hint) return std::optional(pieces[i]);
    }
    return Status::not_found("no such piece", "");
  }
  Result<std::optional<Leaf>> decode() const {
    return decode_leaf_of(node, kScoreBytes,
                          [this](const Score& score, const ArenaId& hint) { return read(score, hint); });
  }
  std::vector<NodeLink> links;
  std::vector<ByteVector> pieces;
  ByteVector node;
};

RC_GTEST_PROP(Leaf, ComesBackFromAnyPiecesAndIsRefusedIfOneIsNotAsItWas, ()) {
  const ByteVector raw = encode_leaf(arbitrary_leaf(), kScoreBytes);
  CutLeaf cut(raw, *rc::gen::inRange<size_t>(std::max<size_t>(1, raw.size() / 200), raw.size() + 2));
  const Result<std::optional<Leaf>> leaf = cut.decode();
  if (!leaf.ok()) RC_FAIL(leaf.status().to_string());
  RC_ASSERT((*leaf)->pieces.size() == cut.pieces.size());
  RC_ASSERT(encode_leaf(**leaf, kScoreBytes) == raw);
  ByteVector& piece = cut.pieces[*rc::gen::inRange<size_t>(0, cut.pieces.size())];
  const ByteVector whole = piece;
  piece.pop_back();
  RC_ASSERT(cut.decode().status().code() == StatusCode::corrupt);
  piece = whole;
  piece.push_back(std::byte{0});
  RC_ASSERT(cut.decode().status().code() == StatusCode::corrupt);
  piece = whole;
  piece.front() = std::byte{'L'};
  RC_ASSERT(cut.decode().status().code() == StatusCode::corrupt);
  for (size_t bytes = 1; bytes < cut.node.size(); ++bytes) {
    CutLeaf shorter = cut;
    shorter.node.resize(bytes);
    RC_ASSERT(!shorter.decode().ok());
  }
}

TEST(Leaf, OfWhichAPieceIsLeftOutIsLeftOut) {
  const CutLeaf cut(encode_leaf({}, kScoreBytes), 2);
  ASSERT_GT(cut.pieces.size(), 1u);
  size_t asked = 0;
  const auto leaf = decode_leaf_of(cut.node, kScoreBytes,
                                   [&](const Score& score, const ArenaId& hint) -> Result<std::optional<ByteVector>> {
                                     if (asked++ == 0) return std::optional<ByteVector>();
                                     return cut.read(score, hint);
                                   });
  ASSERT_TRUE(leaf.ok());
  EXPECT_FALSE(leaf->has_value());
  EXPECT_EQ(asked, cut.pieces.size());
}

TEST(Leaf, InPiecesThatClaimTooMuchIsRefusedBeforeAnyIsRead) {
  const ByteVector node = encode_leaf_pieces({kLeafBytesMax + 1, {{score_from(1), arena_from(1)}}}, kScoreBytes);
  const auto leaf =
      decode_leaf_of(node, kScoreBytes, [](const Score&, const ArenaId&) -> Result<std::optional<ByteVector>> {
        ADD_FAILURE();
        return std::optional<ByteVector>();
      });
  EXPECT_EQ(leaf.status().code(), StatusCode::corrupt);
}

RC_GTEST_PROP(Leaf, DecodesFromDamagedBytesToNothingDangerous, ()) {
  ByteVector raw = encode_leaf(arbitrary_leaf(), kScoreBytes);
  for (auto flips = *rc::gen::inRange<int>(1, 6); flips > 0; --flips) {
    raw[*rc::gen::inRange<size_t>(0, raw.size())] = std::byte{*rc::gen::arbitrary<uint8_t>()};
  }
  check_safe(decode_leaf(raw, kScoreBytes));
}

RC_GTEST_PROP(Root, ComesBackAsItWasAndIsRefusedCutOff, ()) {
  Root root;
  for (auto count = *rc::gen::inRange<uint64_t>(0, 20); count > 0; --count) {
    root.leaves.push_back(
        {score_from(count), arena_from(count % 4), *rc::gen::arbitrary<uint64_t>(), *rc::gen::arbitrary<uint64_t>()});
  }
  const ByteVector raw = encode_root(root, 20);
  const Result<Root> decoded = decode_root(raw, 20);
  RC_ASSERT(decoded.ok());
  RC_ASSERT(std::equal(decoded->leaves.begin(), decoded->leaves.end(), root.leaves.begin(), root.leaves.end(),
                       [](const LeafLink& a, const LeafLink& b) {
                         return a.score == b.score && a.hint == b.hint && a.file_count == b.file_count &&
                                a.bytes == b.bytes;
                       }));
  for (size_t bytes = 0; bytes < raw.size(); ++bytes) RC_ASSERT(!decode_root(ByteSpan(raw).first(bytes), 20).ok());
}

TEST(Path, IsSafeOnlyIfItStaysInItsFolder) {
  for (const char* good : {"a", "a/b", "..a", "a..", "...", "a b", ".hidden", "a/.b/c", "\xff\xfe", "a\nb"}) {
    EXPECT_TRUE(path_is_safe(good)) << good;
  }
  for (const char* bad : {"", "/", "/a", "a/", "a//b", ".", "..", "../a", "a/..", "a/../b", "./a", "a/."}) {
    EXPECT_FALSE(path_is_safe(bad)) << bad;
  }
  EXPECT_FALSE(path_is_safe(std::string_view("a\0b", 3)));
  EXPECT_TRUE(path_is_safe(std::string(255, 'x')));
  EXPECT_FALSE(path_is_safe(std::string(256, 'x')));
  std::string deep;
  while (deep.size() < kPathBytesMax + 1) deep += "d/";
  EXPECT_FALSE(path_is_safe(deep + "x"));
}

RC_GTEST_PROP(PackRanges, JoinedAreSortedApartAndCoverTheSameBytes, ()) {
  std::vector<bool> covered(400, false);
  std::vector<Extent> ranges;
  for (auto count = *rc::gen::inRange<int>(0, 40); count > 0; --count) {
    const Extent range{*rc::gen::inRange<uint64_t>(0, 300), *rc::gen::inRange<uint64_t>(1, 60)};
    std::fill_n(covered.begin() + static_cast<ptrdiff_t>(range.offset), range.bytes, true);
    add_range(ranges, range);
  }
  join_ranges(ranges);
  std::vector<bool> joined(400, false);
  for (size_t i = 0; i < ranges.size(); ++i) {
    // Not in one condition: the macro takes its operands apart, and computes both.
    if (i > 0) RC_ASSERT(ranges[i - 1].offset + ranges[i - 1].bytes < ranges[i].offset);
    std::fill_n(joined.begin() + static_cast<ptrdiff_t>(ranges[i].offset), ranges[i].bytes, true);
  }
  RC_ASSERT(joined == covered);

  PackMeta meta;
  for (int i = 0; i < 40; ++i) meta.chunks.push_back({10, Score{}});
  const std::vector<bool> inside = chunks_in_ranges(meta, ranges);
  for (size_t chunk = 0; chunk < inside.size(); ++chunk) {
    const auto begin = covered.begin() + static_cast<ptrdiff_t>(10 * chunk);
    RC_ASSERT(inside[chunk] == std::any_of(begin, begin + 10, [](bool b) { return b; }));
  }
}

}  // namespace
}  // namespace varve
