// The parts of the saving pipeline: scanning, reading, cutting, packing, and what was laid down before.

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <fstream>

#include "core/file_system.h"
#include "engine/folder_source.h"
#include "engine/pack_builder.h"
#include "sets/saving.h"

namespace varve {
namespace {

using test::TempFolder;

struct Reading : testing::Test {
  TempFolder folder;
  std::vector<SourceFile> scan() { return scan_source_tree(folder.path(), null_progress()).value(); }

  /// One stream over all of each file.
  static std::vector<Stream> whole_streams(const std::vector<SourceFile>& files) {
    std::vector<Stream> streams;
    for (uint32_t i = 0; i < files.size(); ++i) {
      Stream stream;
      stream.file = i;
      stream.bytes = files[i].bytes;
      stream.extents = {{0, files[i].bytes}};
      streams.push_back(stream);
    }
    return streams;
  }

  struct Cut {
    ByteVector bytes;  ///< of all chunks, in order
    std::vector<BatchChunk> chunks;
    size_t batch_count = 0;
  };
  Cut cut(const std::vector<Stream>& streams, const std::vector<SourceFile>& files, const std::string& chunker_text,
          size_t buffer_bytes, bool cells = false, const Chunker* by_content = nullptr) {
    const std::unique_ptr<Chunker> chunker = make_chunker(parse_chunker(chunker_text).value()).value();
    FolderSource source(folder.path(), files, test::layout_service(), {});
    BatchReader reader(streams, source, WorkOrder(streams, Scheme::agnostic, 64_KiB), *chunker, 4096, cells,
                       by_content);
    ChunkBatch batch(std::max(buffer_bytes, BatchReader::bytes_ahead(*chunker, cells, by_content)));
    Cut result;
    while (true) {
      const Status filled = reader.fill(batch);
      EXPECT_TRUE(filled.ok()) << filled.to_string();
      if (!filled.ok() || batch.chunks.empty()) return result;
      score_batch(batch, ScoreFunction::preferred());
      ++result.batch_count;
      for (const BatchChunk& chunk : batch.chunks) {
        result.chunks.push_back(chunk);
        const size_t at = result.bytes.size();
        result.bytes.resize(at + chunk.bytes);
        std::byte pattern[8];
        if (chunk.pattern) store_le<uint64_t>(pattern, *chunk.pattern);
        for (uint64_t i = 0; i < chunk.bytes; ++i) {
          result.bytes[at + i] = chunk.pattern ? pattern[i % 8] : batch.bytes_of(chunk)[i];
        }
      }
    }
  }
};

TEST_F(Reading, CutsNoiseIntoCells) {
  const auto file_of = [](std::string_view begin, uint64_t seed) {
    ByteVector bytes = test::random_bytes(300'000, seed);
    std::copy_n(as_bytes(begin).begin(), begin.size(), bytes.begin());
    std::fill(bytes.begin() + 140'000, bytes.begin() + 150'000, std::byte{1});  // in the third cell
    return bytes;
  };
  ByteVector all;
  size_t seed = 0;
  for (const auto& [name, begin] : {std::pair("a.gz", "\x1f\x8b\x08"),
                                    {"b.zlib", "\x78\x9c"},
                                    {"c.zlib", "\x48\x89"},
                                    {"d.encoded", "abc"},
                                    {"e.random", "abc"},
                                    {"f.doubles", "abc"},
                                    {"g.records", "abc"},
                                    {"h.moves", "abc"},
                                    {"i.gz", "\x1f\x8b\x08"}}) {
    ByteVector bytes = file_of(begin, ++seed);
    for (size_t i = 7; name[0] == 'f' && i < bytes.size(); i += 8) bytes[i] = std::byte{0x3f};
    test::write_file(folder / name, bytes);
    all.insert(all.end(), bytes.begin(), bytes.end());
  }
  const auto files = scan();
  auto streams = whole_streams(files);
  streams[3].encoded = true;  // by its format, as the chunks of an array
  streams[6].type = {ElementKind::opaque, ByteOrder::little, 96};
  streams[7].moves = streams[8].moves = true;
  const std::unique_ptr<Chunker> by_content = make_chunker(parse_chunker("gear:8192").value()).value();
  std::vector<std::vector<uint64_t>> found;
  for (const size_t buffer_bytes : {size_t{64'000}, size_t{1} << 20}) {
    const Cut result = cut(streams, files, "fixed:8192", buffer_bytes, /*cells=*/true, by_content.get());
    EXPECT_EQ(result.bytes, all);
    std::vector<std::vector<uint64_t>> lengths(files.size());
    for (const BatchChunk& chunk : result.chunks) lengths[chunk.stream].push_back(chunk.bytes);
    if (found.empty()) found = lengths;
    EXPECT_EQ(found, lengths) << "cuts depend on the buffer";
  }
  // Two cells, one of eight chunks, another cell, and the rest.
  const std::vector<uint64_t> cells{65536, 65536, 8192,  8192, 8192, 8192, 8192, 8192,
                                    8192,  8192,  65536, 8192, 8192, 8192, 8192, 5088};
  for (const size_t stream : {0, 1, 2, 3, 4, 8}) EXPECT_EQ(found[stream], cells) << stream;
  std::vector<uint64_t> chunks(36, 8192);
  chunks.push_back(5088);
  EXPECT_EQ(found[5], chunks) << "a byte in eight is always the same";
  EXPECT_EQ(std::count(found[6].begin(), found[6].end(), 65536), 0) << "cells would cut elements";
  EXPECT_EQ(std::count(found[7].begin(), found[7].end(), 65536), 0) << "it moves";
}

TEST_F(Reading, CutsStreamsWithoutLosingAByteWhateverTheBuffer) {
  test::write_file(folder / "a", test::random_bytes(100'000, 1));
  test::write_file(folder / "b", test::random_bytes(33, 2));
  test::write_file(folder / "c", test::random_bytes(8192, 3));
  const auto files = scan();
  const auto streams = whole_streams(files);
  ByteVector all;
  for (const char* name : {"a", "b", "c"}) {
    const ByteVector part = read_file(posix_file_system(), folder / name, 1_MiB).value();
    all.insert(all.end(), part.begin(), part.end());
  }
  for (const char* chunker : {"fixed:1000", "fixed:8192", "gear:1024", "rabin:512"}) {
    std::vector<uint64_t> lengths;
    for (size_t buffer_bytes : {size_t{1}, size_t{20'000}, size_t{1} << 20}) {
      const Cut result = cut(streams, files, chunker, buffer_bytes);
      EXPECT_EQ(result.bytes, all) << chunker;
      std::vector<uint64_t> found;
      for (const BatchChunk& chunk : result.chunks) found.push_back(chunk.bytes);
      if (lengths.empty()) lengths = found;
      EXPECT_EQ(found, lengths) << "cuts depend on the buffer: " << chunker;
    }
  }
}

TEST_F(Reading, CutsWhatMovesByItsContentButForWhatAProgramHasCompressed) {
  ByteVector compressed = test::random_bytes(100'000, 3);
  std::copy_n(as_bytes(std::string_view("BZh")).begin(), 3, compressed.begin());
  test::write_file(folder / "a", test::random_bytes(100'000, 1));
  test::write_file(folder / "b", test::random_bytes(100'000, 2));
  test::write_file(folder / "c", compressed);
  const auto files = scan();
  auto streams = whole_streams(files);
  const auto lengths_in = [&](const Cut& cut, uint32_t stream) {
    std::vector<uint64_t> lengths;
    for (const BatchChunk& chunk : cut.chunks) {
      if (chunk.stream == stream) lengths.push_back(chunk.bytes);
    }
    return lengths;
  };
  const Cut fixed = cut(streams, files, "fixed:8192", 1_MiB, /*cells=*/true),
            gear = cut(streams, files, "gear:8192", 1_MiB);
  streams[1].moves = streams[2].moves = true;
  const std::unique_ptr<Chunker> by_content = make_chunker(parse_chunker("gear:8192").value()).value();
  for (const size_t buffer_bytes : {size_t{1}, size_t{1} << 20}) {
    const Cut mixed = cut(streams, files, "fixed:8192", buffer_bytes, /*cells=*/true, by_content.get());
    EXPECT_EQ(mixed.bytes, fixed.bytes);
    EXPECT_EQ(lengths_in(mixed, 0), lengths_in(fixed, 0));
    EXPECT_EQ(lengths_in(mixed, 1), lengths_in(gear, 1));
    EXPECT_EQ(lengths_in(mixed, 2), lengths_in(fixed, 2));
  }
}

TEST_F(Reading, GathersScatteredExtents) {
  const ByteVector contents = test::random_bytes(200'000, 9);
  test::write_file(folder / "a", contents);
  const auto files = scan();
  Stream stream;
  ByteVector expected;
  for (uint64_t offset = 150'000; offset > 40'000; offset -= 777) {
    const uint64_t bytes = offset % 3 == 0 ? 5'000 : 100;
    stream.extents.push_back({offset, bytes});
    stream.bytes += bytes;
    expected.insert(expected.end(), contents.begin() + static_cast<ptrdiff_t>(offset),
                    contents.begin() + static_cast<ptrdiff_t>(offset + bytes));
  }
  EXPECT_EQ(cut({stream}, files, "fixed:4096", 64_KiB).bytes, expected);
  FolderSource source(folder.path(), files, test::layout_service(), {});
  StreamGatherer reader(source);
  for (uint64_t offset : {uint64_t{70'000}, uint64_t{0}, uint64_t{12'345}, stream.bytes - 10}) {
    ByteVector part(10);
    ASSERT_TRUE(reader.read(stream, offset, part).ok());
    EXPECT_TRUE(std::equal(part.begin(), part.end(), expected.begin() + static_cast<ptrdiff_t>(offset)));
  }
}

TEST_F(Reading, TakesHolesWithoutReadingThemAndCutsAfterThemAsIfTheyWereThere) {
  const std::string path = folder / "sparse";
  const ByteVector data = test::random_bytes(20'000, 4);
  ByteVector all(30'000'000);
  std::ofstream(path).close();
  ASSERT_EQ(::truncate(path.c_str(), static_cast<off_t>(all.size())), 0);
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  for (size_t offset : {size_t{0}, size_t{10'000'000}, size_t{29'000'001}}) {
    file.seekp(static_cast<std::streamoff>(offset));
    file.write(as_text(data).data(), static_cast<std::streamsize>(data.size()));
    std::copy(data.begin(), data.end(), all.begin() + static_cast<ptrdiff_t>(offset));
  }
  file.close();
  const auto files = scan();
  if (!files[0].sparse) GTEST_SKIP() << "this file system stores holes";
  const Cut result = cut(whole_streams(files), files, "fixed:4096", 64_KiB);
  EXPECT_EQ(result.bytes, all);
  EXPECT_LT(result.chunks.size(), 100u);
  for (const BatchChunk& chunk : result.chunks) EXPECT_EQ(chunk.stream_offset % 4096, 0u);
}

TEST_F(Reading, FindsPatternsOfEightBytesAndScoresTheRest) {
  ByteVector contents;
  ByteWriter w(contents);
  for (int i = 0; i < 512; ++i) w.le64(0x3ff0000000000000);
  for (int i = 0; i < 512; ++i) w.le64(static_cast<uint64_t>(i));
  contents.resize(contents.size() + 4096);
  test::write_file(folder / "a", contents);
  test::write_file(folder / "b", "aaaaa");
  const auto files = scan();
  const Cut result = cut(whole_streams(files), files, "fixed:4096", 64_KiB);
  ASSERT_EQ(result.chunks.size(), 4u);
  EXPECT_EQ(result.chunks[0].pattern, 0x3ff0000000000000u);
  EXPECT_FALSE(result.chunks[1].pattern);
  EXPECT_EQ(result.chunks[1].score, ScoreFunction::preferred()(ByteSpan(contents).subspan(4096, 4096)));
  EXPECT_EQ(result.chunks[2].pattern, 0u);
  EXPECT_FALSE(result.chunks[3].pattern) << "too short to be a pattern";
}

TEST_F(Reading, CutsWholeElements) {
  test::write_file(folder / "a", test::random_bytes(12'000, 5));
  const auto files = scan();
  std::vector<Stream> streams = whole_streams(files);
  streams[0].type = {ElementKind::opaque, ByteOrder::little, 12};
  for (const BatchChunk& chunk : cut(streams, files, "fixed:1000", 64_KiB).chunks) EXPECT_EQ(chunk.bytes % 12, 0u);
  for (const BatchChunk& chunk : cut(streams, files, "gear:512", 64_KiB).chunks) EXPECT_EQ(chunk.bytes % 12, 0u);
}

TEST_F(Reading, SaysThatAFileBecameShorter) {
  test::write_file(folder / "a", test::random_bytes(100'000, 5));
  const auto files = scan();
  const auto streams = whole_streams(files);
  ASSERT_EQ(::truncate((folder / "a").c_str(), 50'000), 0);
  FolderSource source(folder.path(), files, test::layout_service(), {});
  StreamGatherer reader(source);
  ByteVector part(70'000);
  EXPECT_EQ(reader.read(streams[0], 0, part).code(), StatusCode::busy);
  ByteVector small(10);
  EXPECT_EQ(reader.read(streams[0], 99'000, small).code(), StatusCode::busy);
  EXPECT_EQ(check_unchanged(folder.path(), files[0]).code(), StatusCode::busy);
}

TEST_F(Reading, NoticesEveryChangeOfAFile) {
  auto changed_by = [&](const std::function<void(const std::string&)>& change) {
    const std::string path = folder / "a";
    std::filesystem::remove_all(path);
    test::write_file(path, "contents");
    const auto files = scan();
    EXPECT_TRUE(check_unchanged(folder.path(), files[0]).ok());
    let_times_pass(files);
    change(path);
    return check_unchanged(folder.path(), files[0]).code();
  };
  EXPECT_EQ(changed_by([](const std::string& path) { test::write_file(path, "CONTENTS"); }), StatusCode::busy);
  EXPECT_EQ(changed_by([](const std::string& path) { std::filesystem::remove(path); }), StatusCode::busy);
  EXPECT_EQ(changed_by([](const std::string& path) { ASSERT_EQ(::chmod(path.c_str(), 0600), 0); }), StatusCode::busy);
  EXPECT_EQ(changed_by([](const std::string& path) {
              struct stat before {};
              ASSERT_EQ(::stat(path.c_str(), &before), 0);
              test::write_file(path, "CONTENTS");
              const timespec times[2] = {before.st_atim, before.st_mtim};
              ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
            }),
            StatusCode::busy)
      << "a change whose time was set back";
}

TEST_F(Reading, BeginsWhenFilesOfThisMomentAreOfAnEarlierOne) {
  const auto now_ns = [] {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch())
        .count();
  };
  constexpr int64_t second_ns = 1'000'000'000;
  const auto seen_at = [](int64_t s, uint32_t ns) {
    SourceFile file;
    file.changed_s = s;
    file.changed_ns = ns;
    return std::vector<SourceFile>{file};
  };
  const int64_t s = now_ns() / second_ns;
  let_times_pass(seen_at(s, 0));
  EXPECT_GE(now_ns(), (s + (s % 2 == 0 ? 2 : 1)) * second_ns) << "of a file system without fractions of seconds";
  const int64_t fine = now_ns();
  let_times_pass(seen_at(fine / second_ns, static_cast<uint32_t>(fine % second_ns)));
  EXPECT_GE(now_ns(), fine + 10'000'000);
}

TEST_F(Reading, SaysThatAFileBecameAPipe) {
  test::write_file(folder / "a", "contents");
  const auto files = scan();
  std::filesystem::remove(folder / "a");
  ASSERT_EQ(::mkfifo((folder / "a").c_str(), 0600), 0);
  SourceReader reader(folder.path(), files);
  ByteVector part(4);
  EXPECT_EQ(reader.read(0, 0, part).code(), StatusCode::busy);
}

TEST_F(Reading, ListsATreeWithoutFollowingLinks) {
  test::write_file(folder / "b/file", "x");
  std::filesystem::create_directory(folder / "empty");
  std::filesystem::create_symlink("..", folder / "b/up");
  std::filesystem::create_symlink("nowhere", folder / "a");
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  std::vector<std::string> paths;
  for (const SourceFile& file : scan()) paths.push_back(file.path);
  EXPECT_EQ(paths, (std::vector<std::string>{"a", "b", "b/file", "b/up", "empty"}));
  EXPECT_FALSE(scan_source_tree(folder / "none", null_progress()).ok());
}

struct Packing : testing::Test {
  static Stream stream(uint32_t class_id, uint64_t elements, std::vector<uint64_t> dims = {}) {
    Stream made;
    made.class_id = class_id;
    made.type = {ElementKind::floating, ByteOrder::little, 8};
    made.bytes = 8 * elements;
    made.dims = std::move(dims);
    return made;
  }
  uint64_t add(PackBuilder& builder, const Stream& from, uint64_t offset, uint64_t bytes) {
    const ByteVector raw = test::random_bytes(bytes, ++seed);
    return builder.add(from, offset, raw, score(raw));
  }
  ScoreFunction score = ScoreFunction::preferred();
  uint64_t seed = 0;
};

TEST_F(Packing, JoinsNeighboursIntoRunsAndKnowsWholeArrays) {
  PackBuilder builder(1_MiB, Scheme::aware);
  EXPECT_TRUE(builder.empty());
  const Stream whole = stream(1, 200, {10, 20}), part = stream(1, 200, {10, 20});
  EXPECT_EQ(add(builder, whole, 0, 800), 0u);
  EXPECT_EQ(add(builder, whole, 800, 800), 800u);
  EXPECT_EQ(add(builder, part, 0, 400), 1600u);
  EXPECT_EQ(add(builder, part, 1200, 400), 2000u);
  const PendingPack pack = builder.take("key", score);
  EXPECT_TRUE(builder.empty());
  ASSERT_EQ(pack.shape.runs.size(), 3u);
  EXPECT_EQ(pack.shape.runs[0].elements, 200u);
  EXPECT_TRUE(pack.shape.runs[0].whole);
  EXPECT_EQ(pack.shape.runs[0].dims, (std::vector<uint64_t>{10, 20}));
  EXPECT_EQ(pack.shape.runs[1].elements, 50u);
  EXPECT_FALSE(pack.shape.runs[1].whole);
  EXPECT_EQ(pack.shape.runs[2].elements, 50u);
  EXPECT_EQ(pack.bytes().size(), 2400u);
  EXPECT_EQ(pack.meta.chunks.size(), 4u);
  EXPECT_EQ(pack.meta.score, pack_score(score, pack.meta.chunks));
  EXPECT_EQ(pack.meta.class_key, "key");
}

TEST_F(Packing, TakesOneClassAndTypeUpToItsSize) {
  PackBuilder builder(1000, Scheme::aware);
  const Stream first = stream(1, 1000);
  EXPECT_TRUE(builder.accepts(first, 5000)) << "a chunk larger than a pack has one of its own";
  add(builder, first, 0, 800);
  EXPECT_TRUE(builder.accepts(first, 200));
  EXPECT_FALSE(builder.accepts(first, 201));
  EXPECT_FALSE(builder.accepts(stream(2, 1000), 8));
  Stream other_type = stream(1, 1000);
  other_type.type.order = ByteOrder::big;
  EXPECT_FALSE(builder.accepts(other_type, 8));
}

TEST_F(Packing, EndsWithWhatARankHasIfThatIsMuch) {
  const auto of_rank = [](int64_t rank, uint64_t bytes) {
    Stream made = stream(1, bytes / 8);
    made.rank = rank;
    made.position = 1;
    return made;
  };
  const auto takes_both = [&](const Stream& first, const Stream& second, Scheme scheme = Scheme::aware) {
    PackBuilder builder(1_MiB, scheme);
    add(builder, first, 0, first.bytes);
    return builder.accepts(second, 8_KiB);
  };
  EXPECT_FALSE(takes_both(of_rank(0, 128_KiB), of_rank(1, 128_KiB)));
  EXPECT_FALSE(takes_both(of_rank(0, 128_KiB), of_rank(1, 8_KiB)));
  EXPECT_FALSE(takes_both(of_rank(0, 64_KiB), of_rank(1, 64_KiB)));
  EXPECT_TRUE(takes_both(of_rank(0, 56_KiB), of_rank(1, 56_KiB)));
  EXPECT_TRUE(takes_both(of_rank(1, 128_KiB), of_rank(1, 128_KiB))) << "the same rank's";
  EXPECT_TRUE(takes_both(of_rank(-1, 128_KiB), of_rank(-1, 128_KiB))) << "nobody's";
  Stream skeleton = of_rank(1, 128_KiB);
  skeleton.position = 0;
  EXPECT_TRUE(takes_both(of_rank(0, 128_KiB), skeleton)) << "nearly the same for all";
  Stream wide = of_rank(1, 128_KiB);
  wide.pack_bytes = 16_MiB;
  EXPECT_TRUE(takes_both(of_rank(0, 128_KiB), wide)) << "what comes again from far away";
  EXPECT_TRUE(takes_both(of_rank(0, 128_KiB), of_rank(1, 128_KiB), Scheme::aware_block)) << "blocks of ranks in turn";

  const auto ranks_in_a_pack = [&](uint64_t bytes) {
    PackBuilder builder(1_MiB, Scheme::aware);
    std::deque<Stream> ranks;
    do {
      ranks.push_back(of_rank(static_cast<int64_t>(ranks.size()), bytes));
      for (uint64_t at = 0; at < bytes; at += bytes / 2) add(builder, ranks.back(), at, bytes / 2);
    } while (builder.accepts(of_rank(static_cast<int64_t>(ranks.size()), bytes), bytes / 2));
    return ranks.size();
  };
  EXPECT_EQ(ranks_in_a_pack(56_KiB), 2u);
  EXPECT_EQ(ranks_in_a_pack(24_KiB), 3u);
  EXPECT_EQ(ranks_in_a_pack(16_KiB), 64u) << "little: packs of a rank would be small";

  PackBuilder sparse(1_MiB, Scheme::aware);
  const Stream known = of_rank(0, 512_KiB), next = of_rank(1, 512_KiB);
  add(sparse, known, 0, 8_KiB);
  EXPECT_TRUE(sparse.accepts(next, 8_KiB)) << "little of it is new";

  PackBuilder full(1_MiB, Scheme::aware);
  const Stream longer = of_rank(0, 1084_KiB), much_longer = of_rank(0, 1200_KiB), nobodys = of_rank(-1, 1084_KiB);
  add(full, longer, 0, 1024_KiB);
  EXPECT_TRUE(full.accepts(longer, 60_KiB)) << "what is left of it";
  EXPECT_FALSE(full.accepts(much_longer, 8_KiB));
  EXPECT_FALSE(full.accepts(nobodys, 8_KiB));
}

TEST_F(Packing, CopiesWhatStaysWhereItIsOnlyIfItIsNotTogether) {
  PackBuilder builder(1_MiB, Scheme::aware);
  const Stream from = stream(1, 300);
  const ByteVector memory = test::random_bytes(2400, 1);
  const auto add_at = [&](uint64_t offset, bool stays) {
    const ByteSpan bytes = ByteSpan(memory).subspan(offset, 800);
    return builder.add(from, offset, bytes, score(bytes), stays);
  };
  EXPECT_EQ(add_at(0, true), 0u);
  EXPECT_EQ(add_at(800, true), 800u);
  const PendingPack together = builder.take("key", score);
  EXPECT_EQ(together.bytes().data(), memory.data());
  EXPECT_EQ(together.bytes().size(), 1600u);

  for (const bool last_stays : {true, false}) {
    EXPECT_EQ(add_at(0, true), 0u);
    EXPECT_EQ(add_at(1600, last_stays), 800u) << "something between them was known";
    const PendingPack apart = builder.take("key", score);
    ByteVector wanted(memory.begin(), memory.begin() + 800);
    wanted.insert(wanted.end(), memory.begin() + 1600, memory.end());
    EXPECT_TRUE(std::ranges::equal(apart.bytes(), wanted));
  }
  EXPECT_EQ(add_at(0, false), 0u);
  EXPECT_EQ(add_at(800, true), 800u);
  EXPECT_TRUE(std::ranges::equal(builder.take("key", score).bytes(), ByteSpan(memory).first(1600)));
}

TEST_F(Packing, BeginsANewRunWithANewPack) {
  PackBuilder builder(1_MiB, Scheme::aware);
  const Stream from = stream(1, 300);
  add(builder, from, 0, 800);
  builder.take("key", score);
  add(builder, from, 800, 1600);
  const PendingPack second = builder.take("key", score);
  ASSERT_EQ(second.shape.runs.size(), 1u);
  EXPECT_EQ(second.shape.runs[0].elements, 200u);
  EXPECT_FALSE(second.shape.runs[0].whole);
}

TEST(ChunksLaidDown, AreFoundByScoreAndLength) {
  FreshChunks fresh(1_MiB, 100);
  const Score score = ScoreFunction::preferred()(as_bytes("chunk"));
  EXPECT_FALSE(fresh.find(score, 5));
  fresh.insert(score, 5, {3, 400});
  ASSERT_TRUE(fresh.find(score, 5));
  EXPECT_EQ(fresh.find(score, 5)->pack, 3u);
  EXPECT_EQ(fresh.find(score, 5)->offset, 400u);
  EXPECT_FALSE(fresh.find(score, 6));
}

TEST(ChunksLaidDown, AreFoundWhereTheyLieInTheirPacks) {
  constexpr uint32_t packs = 100, chunks_of_a_pack = 64;
  const auto score_of = [](uint32_t pack, uint32_t chunk) {
    return ScoreFunction::preferred()(as_bytes(fmt::format("{} {}", pack, chunk)));
  };
  const auto bytes_of = [](uint32_t pack, uint32_t chunk) { return 1000 + 7 * pack + chunk; };
  FreshChunks fresh(1_MiB);
  // Of every third pack, something comes before them that is not told.
  const auto each = [&](const auto& act) {
    for (uint32_t pack = 0; pack < packs; ++pack) {
      uint32_t offset = pack % 3 == 0 ? 12'345 : 0;
      for (uint32_t chunk = 0; chunk < chunks_of_a_pack; offset += bytes_of(pack, chunk), ++chunk)
        act(score_of(pack, chunk), bytes_of(pack, chunk), FreshChunks::Place{pack, offset});
    }
  };
  each([&](const Score& score, size_t bytes, const FreshChunks::Place& place) { fresh.insert(score, bytes, place); });
  size_t right = 0;
  each([&](const Score& score, size_t bytes, const FreshChunks::Place& place) {
    const std::optional<FreshChunks::Place> found = fresh.find(score, bytes);
    right += found && found->pack == place.pack && found->offset == place.offset ? 1 : 0;
  });
  EXPECT_EQ(right, size_t{packs} * chunks_of_a_pack);

  // What is laid down anew is found there.
  fresh.insert(score_of(5, 6), bytes_of(5, 6), {packs, 77});
  ASSERT_TRUE(fresh.find(score_of(5, 6), bytes_of(5, 6)));
  EXPECT_EQ(fresh.find(score_of(5, 6), bytes_of(5, 6))->pack, packs);
  EXPECT_EQ(fresh.find(score_of(5, 6), bytes_of(5, 6))->offset, 77u);
  EXPECT_EQ(fresh.find(score_of(5, 7), bytes_of(5, 7))->pack, 5u);
}

TEST(ChunksLaidDown, AreForgottenInTheOrderOfTheirAgeOnceTheyAreTooMany) {
  FreshChunks fresh(0);
  auto score_of = [](uint64_t number) {
    Score score;
    store_le<uint64_t>(score.bytes.data(), number);
    return score;
  };
  size_t found = 0;
  for (uint64_t number = 0; number < 10'000; ++number) {
    fresh.insert(score_of(number), 1, {static_cast<uint32_t>(number), 0});
    EXPECT_TRUE(fresh.find(score_of(number), 1));
  }
  for (uint64_t number = 0; number < 10'000; ++number) found += fresh.find(score_of(number), 1) ? 1 : 0;
  EXPECT_GE(found, 1024u);
  EXPECT_LE(found, 2048u);
  EXPECT_FALSE(fresh.find(score_of(0), 1));
  EXPECT_FALSE(fresh.each_prefix([](uint64_t) { ADD_FAILURE() << "some are forgotten"; }));
}

TEST(ChunksLaidDown, AreToldToTheIndexThoughOnlyTheLastOnesAreFound) {
  auto score_of = [](uint64_t number) {
    Score score;
    store_le<uint64_t>(score.bytes.data(), number);
    return score;
  };
  constexpr uint64_t told_max = 8'000;
  FreshChunks fresh(told_max * 32, 0, 0);
  for (uint64_t number = 0; number < 9'000; ++number) fresh.insert(score_of(number), 1, {});
  EXPECT_FALSE(fresh.find(score_of(6'000), 1));
  EXPECT_TRUE(fresh.find(score_of(8'000), 1));
  uint64_t told = 0;
  EXPECT_TRUE(fresh.each_prefix([&](uint64_t prefix) { EXPECT_EQ(prefix, score_of(told++).prefix()); }));
  EXPECT_EQ(told, 9'000u);

  for (uint64_t number = 9'000; number < 12'000; ++number) fresh.insert(score_of(number), 1, {});
  EXPECT_FALSE(fresh.each_prefix([](uint64_t) { ADD_FAILURE() << "there are too many"; }));
}

TEST(ChunksLaidDown, AreFoundHoweverManyWereExpected) {
  auto score_of = [](uint64_t number) {
    Score score;
    store_le<uint64_t>(score.bytes.data(), number * 0x9e3779b97f4a7c15);
    return score;
  };
  for (const uint64_t expected : {0, 1, 100, 5'000, 1'000'000'000}) {
    FreshChunks fresh(1_MiB, expected);
    for (uint64_t number = 0; number < 5'000; ++number)
      fresh.insert(score_of(number), 1, {static_cast<uint32_t>(number), 0});
    for (uint64_t number = 0; number < 5'000; ++number) {
      ASSERT_TRUE(fresh.find(score_of(number), 1)) << number << " of " << expected;
      EXPECT_EQ(fresh.find(score_of(number), 1)->pack, number);
    }
    EXPECT_FALSE(fresh.find(score_of(5'000), 1));
    uint64_t told = 0;
    EXPECT_TRUE(fresh.each_prefix([&](uint64_t prefix) { EXPECT_EQ(prefix, score_of(told++).prefix()); }));
    EXPECT_EQ(told, 5'000u);
  }
}

}  // namespace
}  // namespace varve
