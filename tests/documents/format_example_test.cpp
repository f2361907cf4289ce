// The example in docs/EXAMPLE.md is what the library writes and reads.
#include <gtest/gtest.h>

#include <numeric>
#include <string>

#include "backend/folder_backend.h"
#include "core/memory_file_system.h"
#include "documents/documented_bytes.h"
#include "redundancy/parity_file.h"
#include "store/arena_writer.h"
#include "store/catalog.h"
#include "store/store.h"
#include "store/stored_copies.h"
#include "store/verify.h"

namespace varve {
namespace {

constexpr const char* kStorePath = "/store";
constexpr const char* kText = "one layer for each year\n";
constexpr uint64_t kZeroBytes = 16;
constexpr int64_t kTime = 1'700'000'000;

/// The bytes of the documented store's files.
struct ExampleFiles {
  ByteVector store_header, arena, set_record;
};

UniqueId id_from(uint8_t first) {
  UniqueId id;
  for (size_t i = 0; i < id.bytes.size(); ++i) id.bytes[i] = static_cast<std::byte>(first + i);
  return id;
}
const UniqueId kStoreId = id_from(0xa0);
const ArenaId kArenaId = id_from(0xb0);

ScoreFunction example_score() { return *ScoreFunction::create(ScoreAlgorithm::sha256, 20); }
SetName example_set() { return {"example", 7}; }
std::string arena_path() { return join_path(kStorePath, "arenas/" + kArenaId.hex() + ".arena"); }
std::string record_path() { return join_path(kStorePath, "sets/example/7.set"); }

PackMeta example_pack() {
  const ScoreFunction score = example_score();
  const ByteSpan text = as_bytes(kText);
  PackMeta meta;
  meta.class_key = "small-files_BYTES";
  meta.recipe = {std::byte{0}};
  meta.chunks = {{16, score(text.first(16))}, {8, score(text.subspan(16))}};
  meta.score = pack_score(score, meta.chunks);
  return meta;
}

Leaf example_leaf(const PackMeta& pack) {
  TreeFile file;
  file.path = "note.txt";
  file.modified_s = kTime;
  file.rank = 0;
  file.bytes = std::string_view(kText).size() + kZeroBytes;
  file.layout = opaque_layout(file.bytes, "/note.txt");
  file.class_of = {0};
  file.streams = {{}, {{0, 0, std::string_view(kText).size()}, {Reference::kPattern, 0, kZeroBytes}}};
  return {{{pack.score, kArenaId}}, {pack.class_key}, {file}};
}

/// The arena of the example; `record` gets its group.
Status write_arena(FileSystem& fs, const std::string& path, SetRecord& record) {
  const ScoreFunction score = example_score();
  const ArenaHeader header{kArenaId, kStoreId, score.algorithm(), static_cast<uint8_t>(score.score_bytes())};
  FolderBackend backend(fs, parent_path(path));
  VARVE_ASSIGN(auto writer, ArenaWriter::create(backend, path, header,
                                                {.direct = false, .background = false, .buffer_bytes = 64_KiB}));
  const PackMeta pack = example_pack();
  VARVE_TRY(writer->append_pack(pack, as_bytes(kText)).status());
  const ByteVector leaf = encode_leaf(example_leaf(pack), score.score_bytes());
  VARVE_TRY(writer->append_node(score(leaf), leaf).status());
  const ByteVector root = encode_root({{{score(leaf), kArenaId, 1, record.raw_bytes}}}, score.score_bytes());
  VARVE_TRY(writer->append_node(score(root), root).status());
  VARVE_TRY(writer->seal());
  record.groups = {{score(root), kArenaId, writer->bytes()}};
  return {};
}

Result<ExampleFiles> write_example() {
  ExampleFiles files;
  ByteWriter header(files.store_header);
  header.bytes(as_bytes("VARVESTO"));
  header.le16(1);
  header.u8(static_cast<uint8_t>(ScoreAlgorithm::sha256));
  header.u8(20);
  header.bytes(kStoreId.bytes);
  files.store_header.resize(44);
  header.le32(crc32c(files.store_header));

  SetRecord record;
  record.name = example_set();
  record.created_s = kTime;
  record.scheme = "aware";
  record.policy = "store";
  record.chunker = "fixed:8192";
  record.match = "digits";
  record.rank_count = 1;
  record.file_count = 1;
  record.raw_bytes = std::string_view(kText).size() + kZeroBytes;
  record.new_bytes = std::string_view(kText).size();
  MemoryFileSystem fs;
  VARVE_TRY(write_arena(fs, "/example.arena", record));
  VARVE_ASSIGN(files.arena, read_file(fs, "/example.arena", 64_KiB));
  files.set_record = encode_set_record(record, example_score());
  return files;
}

ByteVector documented(const std::string& name) { return test::documented_bytes(VARVE_FORMAT_DOCUMENT, name); }

void put_file(FileSystem& fs, const std::string& path, ByteSpan contents) {
  auto file = fs.create(path);
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  ASSERT_TRUE((*file)->write_at(0, contents).ok());
}

/// A store that holds nothing but what the document shows.
void put_documented_store(FileSystem& fs) {
  ASSERT_TRUE(fs.create_directory(kStorePath).ok());
  for (const char* folder : {"sets", "sets/example", "arenas", "writers", "condemned", "index"}) {
    ASSERT_TRUE(fs.create_directory(join_path(kStorePath, folder)).ok());
  }
  put_file(fs, join_path(kStorePath, "varve.store"), documented("store header"));
  put_file(fs, arena_path(), documented("arena"));
  put_file(fs, record_path(), documented("set record"));
}

TEST(FormatExample, IsWhatTheLibraryWrites) {
  const Result<ExampleFiles> written = write_example();
  ASSERT_TRUE(written.ok()) << written.status().to_string();
  EXPECT_EQ(to_hex(documented("store header")), to_hex(written->store_header));
  EXPECT_EQ(to_hex(documented("arena")), to_hex(written->arena));
  EXPECT_EQ(to_hex(documented("set record")), to_hex(written->set_record));
}

TEST(FormatExample, IsReadBackByTheLibrary) {
  MemoryFileSystem fs;
  ASSERT_NO_FATAL_FAILURE(put_documented_store(fs));
  const Result<std::unique_ptr<Store>> store = Store::open(fs, kStorePath);
  ASSERT_TRUE(store.ok()) << store.status().to_string();
  EXPECT_EQ((*store)->id(), kStoreId);

  const Result<SetRecord> record = Catalog(**store).read(example_set());
  ASSERT_TRUE(record.ok()) << record.status().to_string();
  ASSERT_EQ(record->groups.size(), 1u);
  const Result<Root> root = read_root(**store, record->groups[0].root, record->groups[0].hint);
  ASSERT_TRUE(root.ok()) << root.status().to_string();
  ASSERT_EQ(root->leaves.size(), 1u);
  const Result<Leaf> leaf = read_leaf(**store, root->leaves[0]);
  ASSERT_TRUE(leaf.ok()) << leaf.status().to_string();
  ASSERT_EQ(leaf->files.size(), 1u);
  EXPECT_EQ(leaf->files[0].path, "note.txt");
  EXPECT_EQ(leaf->files[0].streams, example_leaf(example_pack()).files[0].streams);

  Result<Pack> pack = read_pack(**store, leaf->packs[0], {});
  ASSERT_TRUE(pack.ok()) << pack.status().to_string();
  const Result<ByteSpan> text = pack->range(0, std::string_view(kText).size());
  ASSERT_TRUE(text.ok()) << text.status().to_string();
  EXPECT_EQ(as_text(*text), kText);
}

TEST(FormatExample, IsAWholeStore) {
  MemoryFileSystem fs;
  ASSERT_NO_FATAL_FAILURE(put_documented_store(fs));
  const Result<std::unique_ptr<Store>> store = Store::open(fs, kStorePath);
  ASSERT_TRUE(store.ok()) << store.status().to_string();
  const Result<VerifyReport> report = verify_store(**store, true);
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_TRUE(report->damages.empty()) << report->damages[0].what.to_string();
  EXPECT_EQ(report->set_count, 1u);
  EXPECT_EQ(report->arena_count, 1u);
}

/// What a node protects: one file, with these contents.
ProtectedMember protecting(const std::string& node, const std::string& name, std::string_view contents) {
  const ScoreFunction score = *ScoreFunction::create(ScoreAlgorithm::sha256, 32);
  return {node, {{name, contents.size(), score(as_bytes(contents))}}, {crc32c(as_bytes(contents))}};
}

TEST(FormatExample, OfARedundancyFileIsWhatTheLibraryWritesAndReads) {
  const Result<ParityGroup> group =
      ParityGroup::create({"example@7",
                           Redundancy{},
                           ScoreAlgorithm::sha256,
                           {protecting("a", "x", "tick"), protecting("b", "y", "tock!")}});
  ASSERT_TRUE(group.ok()) << group.status().to_string();
  MemoryFileSystem fs;
  Result<ParityFileWriter> writer = ParityFileWriter::create(fs, "/written", *group, 0);
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE(writer->append(as_bytes("tock!")).ok());
  ASSERT_TRUE(writer->finish().ok());
  EXPECT_EQ(to_hex(documented("redundancy file")), to_hex(read_file(fs, "/written", 64_KiB).value()));

  put_file(fs, "/documented", documented("redundancy file"));
  const Status whole = verify_parity_file(fs, "/documented", *group, 0);
  EXPECT_TRUE(whole.ok()) << whole.to_string();
}

}  // namespace
}  // namespace varve
