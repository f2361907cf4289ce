#include <gtest/gtest.h>

#include <random>
#include <set>

#include "backend/folder_backend.h"
#include "core/faulty_file_system.h"
#include "core/memory_file_system.h"
#include "sets/stopping_progress.h"
#include "store/arena_reader.h"
#include "store/arena_writer.h"

namespace varve {
namespace {

ByteVector random_bytes(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  ByteVector bytes(count);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  return bytes;
}

/// Of which each file takes several writes at once.
class WideFileSystem final : public ForwardingFileSystem {
 public:
  using ForwardingFileSystem::ForwardingFileSystem;
  Result<std::unique_ptr<File>> create(const std::string& path, CreateOptions options) override {
    VARVE_ASSIGN(std::unique_ptr<File> file, ForwardingFileSystem::create(path, options));
    return std::unique_ptr<File>(std::make_unique<WideFile>(std::move(file)));
  }

 private:
  class WideFile final : public ForwardingFile {
   public:
    using ForwardingFile::ForwardingFile;
    size_t writes_at_once() const override { return 3; }
  };
};

constexpr ArenaWriterOptions kInTurn{.direct = false, .background = false, .buffer_bytes = 8_KiB};
constexpr size_t kPackCount = 12, kNodeCount = 5;

/// An arena of a few packs and nodes, and what is in it.
struct Arena : testing::Test {
  void SetUp() override { ASSERT_TRUE(fs.create_directory("/a").ok()); }

  static const ByteVector& pack_body(size_t i) {
    static const std::vector<ByteVector> bodies = [] {
      std::vector<ByteVector> made;
      for (size_t k = 0; k < kPackCount; ++k) made.push_back(random_bytes(500 + 700 * k, k));
      return made;
    }();
    return bodies[i];
  }
  static ByteVector node_content(size_t i) { return ByteVector(200 + 3000 * i, static_cast<std::byte>('a' + i)); }

  Status write(FileSystem& file_system, ArenaWriterOptions options) {
    FolderBackend there(file_system, "/a");
    VARVE_ASSIGN(auto writer, ArenaWriter::create(there, "/a/sealed", header, options));
    for (size_t i = 0; i < kPackCount; ++i) {
      const ByteVector& body = pack_body(i);
      PackMeta meta;
      meta.class_key = "class";
      meta.recipe = {std::byte{0}};
      for (size_t offset = 0; offset < body.size(); offset += 256) {
        const ByteSpan chunk = ByteSpan(body).subspan(offset, std::min<size_t>(256, body.size() - offset));
        meta.chunks.push_back({static_cast<uint32_t>(chunk.size()), score(chunk)});
      }
      meta.score = pack_score(score, meta.chunks);
      // Every other body is copied when it is written, and is gone once nobody needs it.
      auto keeper = i % 2 == 0 ? nullptr : std::make_shared<const ByteVector>(body);
      const ByteSpan appended = keeper ? *keeper : body;
      if (keeper) kept.push_back(keeper);
      VARVE_TRY(writer->append_pack(meta, appended, std::move(keeper)).status());
      if (i >= kNodeCount) continue;
      const ByteVector content = node_content(i);
      VARVE_TRY(writer->append_node(score(content), content).status());
    }
    return writer->seal();
  }

  Result<std::shared_ptr<ArenaReader>> open(const std::string& path = "/a/sealed") {
    return ArenaReader::open(folder, path, header.arena, header.store, score);
  }

  /// How many packs and nodes of the arena come back, those also that are read into a given room; those that do are as
  /// they were.
  size_t whole_frames(const ArenaReader& reader) {
    size_t count = 0;
    for (size_t i = 0; i < reader.index().packs.size(); ++i) {
      Result<Pack> pack = reader.read_pack(i);
      const bool is_whole = pack.ok() && pack->verify_all().ok();
      ByteVector room(reader.index().packs[i].raw_bytes);
      Result<Pack> placed = reader.read_pack(i, room);
      EXPECT_EQ(placed.ok() && placed->verify_all().ok(), is_whole);
      if (!is_whole) continue;
      EXPECT_EQ(placed->range(0, room.size())->data(), room.data());
      const Result<ByteSpan> all = pack->range(0, room.size());
      EXPECT_TRUE(std::equal(all->begin(), all->end(), room.begin()));
      bool known = false;
      for (size_t k = 0; k < kPackCount; ++k) {
        const ByteVector& body = pack_body(k);
        if (pack->meta().raw_bytes() != body.size()) continue;
        Result<ByteSpan> range = pack->range(0, body.size());
        known = known || (range.ok() && std::equal(range->begin(), range->end(), body.begin()));
      }
      EXPECT_TRUE(known);
      ++count;
    }
    for (size_t i = 0; i < reader.index().nodes.size(); ++i) {
      Result<ByteVector> content = reader.read_node(i);
      if (!content.ok()) continue;
      EXPECT_EQ(score(*content), reader.index().nodes[i].score);
      ++count;
    }
    return count;
  }

  ByteVector sealed_bytes() { return read_file(fs, "/a/sealed", 16_MiB).value(); }
  void replace_sealed(ByteSpan bytes) {
    ASSERT_TRUE(fs.remove("/a/sealed").ok());
    ASSERT_TRUE(fs.create("/a/sealed").value()->write_at(0, bytes).ok());
  }

  /// What verify() says, in one text.
  static std::vector<std::string> damages(const ArenaReader& reader) {
    std::vector<std::string> found;
    reader.verify(true, [&](const Status& what, std::optional<Score>) { found.push_back(what.to_string()); });
    return found;
  }

  std::vector<std::weak_ptr<const ByteVector>> kept;  ///< bodies whose writer was told of a keeper
  MemoryFileSystem fs;
  FolderBackend folder{fs, "/a"};
  ScoreFunction score = ScoreFunction::preferred();
  ArenaHeader header{UniqueId::random().value(), UniqueId::random().value(), score.algorithm(),
                     static_cast<uint8_t>(score.score_bytes())};
};

TEST_F(Arena, GivesBackWhatWasWrittenWhateverTheWritersOptions) {
  for (bool direct : {false, true}) {
    for (bool background : {false, true}) {
      for (uint64_t buffer_bytes : {4_KiB, 16_KiB, 4_MiB}) {
        WideFileSystem wide(fs);
        ASSERT_TRUE(write(wide, {direct, background, buffer_bytes, 4}).ok());
        for (const auto& body : kept) EXPECT_TRUE(body.expired());
        auto reader = open();
        ASSERT_TRUE(reader.ok()) << reader.status().to_string();
        EXPECT_TRUE((*reader)->index_status().ok());
        EXPECT_EQ(whole_frames(**reader), kPackCount + kNodeCount);
        EXPECT_EQ(damages(**reader), std::vector<std::string>{});
        ASSERT_TRUE(fs.remove("/a/sealed").ok());
      }
    }
  }
}

TEST_F(Arena, FindsPacksAndNodesByTheirScores) {
  ASSERT_TRUE(write(fs, kInTurn).ok());
  auto reader = open();
  ASSERT_TRUE(reader.ok());
  for (size_t i = 0; i < kPackCount; ++i) EXPECT_EQ((*reader)->find_pack((*reader)->index().packs[i].score), i);
  for (size_t i = 0; i < kNodeCount; ++i) EXPECT_EQ((*reader)->find_node(score(node_content(i))), i);
  EXPECT_FALSE((*reader)->find_pack(score(node_content(0))));
  EXPECT_FALSE((*reader)->find_node(Score{}));
}

TEST_F(Arena, IsVerifiedFrameByFrameSoThatItCanBeStopped) {
  ASSERT_TRUE(write(fs, kInTurn).ok());
  auto reader = open();
  ASSERT_TRUE(reader.ok());
  test::StoppingProgress patient(UINT64_MAX), impatient(1);
  for (test::StoppingProgress* watcher : {&patient, &impatient})
    (*reader)->verify(
        true, [](auto&&...) {}, *watcher);
  EXPECT_EQ(patient.bytes(), (*reader)->bytes());
  EXPECT_LT(impatient.bytes(), (*reader)->bytes() / 2);
}

TEST_F(Arena, IsGoneIfItsWriterGoesBeforeSealing) {
  {
    auto writer = ArenaWriter::create(folder, "/a/sealed", header, kInTurn);
    ASSERT_TRUE(writer.ok());
    ASSERT_TRUE((*writer)->append_node(score(node_content(0)), node_content(0)).ok());
    EXPECT_TRUE(fs.stat("/a/sealed.part").ok());
  }
  EXPECT_TRUE(fs.list("/a").value().empty());
}

TEST_F(Arena, NeverReplacesAnother) {
  ASSERT_TRUE(write(fs, kInTurn).ok());
  const ByteVector before = sealed_bytes();
  EXPECT_EQ(write(fs, kInTurn).code(), StatusCode::already_exists);
  EXPECT_EQ(sealed_bytes(), before);
  EXPECT_EQ(fs.list("/a").value().size(), 1u);
}

TEST_F(Arena, IsDurableOnceSealedAndItsNameSynced) {
  ASSERT_TRUE(write(fs, kInTurn).ok());
  ASSERT_TRUE(fs.sync_directory("/a").ok());
  ASSERT_TRUE(fs.sync_directory("/").ok());
  const auto left = fs.after_crash({.kind = CrashPolicy::Kind::drop_unsynced});
  FolderBackend left_folder(*left, "/a");
  auto reader = ArenaReader::open(left_folder, "/a/sealed", header.arena, header.store, score);
  ASSERT_TRUE(reader.ok()) << reader.status().to_string();
  EXPECT_EQ(whole_frames(**reader), kPackCount + kNodeCount);
}

TEST_F(Arena, ReportsEveryFailureToWriteAndLeavesNothing) {
  FaultyFileSystem counting(fs);
  ASSERT_TRUE(write(counting, kInTurn).ok());
  ASSERT_TRUE(fs.remove("/a/sealed").ok());
  const uint64_t operations = counting.operation_count().mutating;
  ASSERT_GT(operations, 5u);
  for (bool background : {false, true}) {
    for (FaultKind kind : {FaultKind::no_space, FaultKind::io_error, FaultKind::short_write, FaultKind::failed_sync,
                           FaultKind::failed_rename}) {
      for (uint64_t at = 0; at < operations; ++at) {
        FaultyFileSystem faulty(fs, {{.kind = kind, .at_operation = at, .persistent = false, .seed = at}});
        ArenaWriterOptions options = kInTurn;
        options.background = background;
        WideFileSystem wide(faulty);
        const Status written = write(wide, options);
        for (const auto& body : kept) EXPECT_TRUE(body.expired());
        EXPECT_NE(written.ok(), faulty.struck()) << faulty.trace();
        ASSERT_TRUE(!written.ok() || fs.remove("/a/sealed").ok());
        EXPECT_TRUE(fs.list("/a").value().empty()) << faulty.trace();
      }
    }
  }
}

TEST_F(Arena, OfAnotherNameOrStoreIsRefused) {
  ASSERT_TRUE(write(fs, kInTurn).ok());
  const ArenaId other = UniqueId::random().value();
  EXPECT_EQ(ArenaReader::open(folder, "/a/sealed", other, header.store, score).status().code(), StatusCode::corrupt);
  EXPECT_EQ(ArenaReader::open(folder, "/a/sealed", header.arena, other, score).status().code(), StatusCode::corrupt);
  EXPECT_EQ(ArenaReader::open(folder, "/a/none", header.arena, header.store, score).status().code(),
            StatusCode::not_found);
}

TEST_F(Arena, IsReadWithoutItsIndexFooterOrHeader) {
  ASSERT_TRUE(write(fs, kInTurn).ok());
  const ByteVector whole = sealed_bytes();
  const uint64_t index_offset = decode_arena_footer(ByteSpan(whole).last(kArenaFooterBytes)).value().index_offset;
  for (uint64_t at : {uint64_t{10}, index_offset + 2, index_offset + kFrameHeaderBytes + 5, whole.size() - 20}) {
    ByteVector damaged = whole;
    damaged[at] ^= std::byte{0x10};
    replace_sealed(damaged);
    auto reader = open();
    ASSERT_TRUE(reader.ok()) << "byte " << at << ": " << reader.status().to_string();
    EXPECT_EQ((*reader)->index_status().code(), StatusCode::corrupt) << "byte " << at;
    EXPECT_EQ(whole_frames(**reader), kPackCount + kNodeCount) << "byte " << at;
    EXPECT_FALSE(damages(**reader).empty()) << "byte " << at;
  }
}

TEST_F(Arena, CutOffAnywhereGivesTheFramesBeforeTheCut) {
  ASSERT_TRUE(write(fs, kInTurn).ok());
  const ByteVector whole = sealed_bytes();
  std::set<uint64_t> ends;
  {
    auto reader = open();
    ASSERT_TRUE(reader.ok());
    for (const auto* entries : {&(*reader)->index().packs, &(*reader)->index().nodes}) {
      for (const FrameEntry& e : *entries) ends.insert(e.offset + kFrameHeaderBytes + e.meta_bytes + e.body_bytes);
    }
  }
  for (size_t bytes = kArenaHeaderBytes; bytes < whole.size(); bytes += 97) {
    replace_sealed(ByteSpan(whole).first(bytes));
    auto reader = open();
    ASSERT_TRUE(reader.ok()) << reader.status().to_string();
    EXPECT_FALSE((*reader)->index_status().ok());
    EXPECT_EQ(whole_frames(**reader), static_cast<size_t>(std::distance(ends.begin(), ends.upper_bound(bytes))))
        << bytes;
  }
}

TEST_F(Arena, WithAnyBitFlippedIsReportedAndNeverGivesWrongBytes) {
  ASSERT_TRUE(write(fs, kInTurn).ok());
  const ByteVector whole = sealed_bytes();
  std::mt19937_64 random(7);
  for (int trial = 0; trial < 1500; ++trial) {
    ByteVector damaged = whole;
    const size_t bit = random() % (8 * whole.size());
    damaged[bit / 8] ^= std::byte{1} << (bit % 8);
    replace_sealed(damaged);
    auto reader = open();
    if (!reader.ok()) continue;
    EXPECT_FALSE(damages(**reader).empty()) << "bit " << bit;
    EXPECT_GE(whole_frames(**reader), kPackCount + kNodeCount - 1) << "bit " << bit;
  }
}

TEST_F(Arena, NoticesStaleAndMisplacedBlocks) {
  ASSERT_TRUE(write(fs, kInTurn).ok());
  ByteVector mixed = sealed_bytes();
  ASSERT_TRUE(fs.remove("/a/sealed").ok());
  const ArenaHeader first = header;
  header.arena = UniqueId::random().value();
  ASSERT_TRUE(write(fs, kInTurn).ok());
  const ByteVector other = sealed_bytes();
  header = first;
  // The same frames at the same places, but of another arena.
  std::copy(other.begin() + 8192, other.begin() + 3 * 8192, mixed.begin() + 8192);
  replace_sealed(mixed);
  auto reader = open();
  ASSERT_TRUE(reader.ok());
  EXPECT_FALSE(damages(**reader).empty());
}

TEST_F(Arena, CopiesFramesToAnotherAsTheyAre) {
  ASSERT_TRUE(write(fs, kInTurn).ok());
  auto from = open();
  ASSERT_TRUE(from.ok());
  ArenaHeader copy_header = header;
  copy_header.arena = UniqueId::random().value();
  {
    auto writer = ArenaWriter::create(folder, "/a/copy", copy_header, kInTurn);
    ASSERT_TRUE(writer.ok());
    for (FrameKind kind : {FrameKind::node, FrameKind::pack}) {
      const auto& entries = kind == FrameKind::pack ? (*from)->index().packs : (*from)->index().nodes;
      for (size_t i = 0; i < entries.size(); ++i) {
        auto frame = (*from)->read_raw(kind, i);
        ASSERT_TRUE(frame.ok());
        ASSERT_TRUE((*writer)->append_copy(kind, entries[i], frame->meta, frame->body).ok());
      }
    }
    ASSERT_TRUE((*writer)->seal().ok());
  }
  auto copy = ArenaReader::open(folder, "/a/copy", copy_header.arena, header.store, score);
  ASSERT_TRUE(copy.ok());
  EXPECT_EQ(whole_frames(**copy), kPackCount + kNodeCount);
  EXPECT_TRUE(damages(**copy).empty());
}

TEST_F(Arena, OfAnotherKindOfScoresIsRefused) {
  ASSERT_TRUE(write(fs, kInTurn).ok());
  const ScoreFunction shorter = ScoreFunction::create(score.algorithm(), 20).value();
  EXPECT_EQ(ArenaReader::open(folder, "/a/sealed", header.arena, header.store, shorter).status().code(),
            StatusCode::corrupt);
}

}  // namespace
}  // namespace varve
