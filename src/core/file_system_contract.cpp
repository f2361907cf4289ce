#include "core/file_system_contract.h"

#include <algorithm>
#include <thread>

namespace varve {

void EveryFileSystem::write(const std::string& name, std::string_view text) {
  auto file = fs_.create(path(name));
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  ASSERT_TRUE((*file)->write_at(0, as_bytes(text)).ok());
  ASSERT_TRUE((*file)->sync().ok());
}

std::string EveryFileSystem::read(const std::string& name) {
  auto contents = read_file(fs_, path(name), 1_MiB);
  return contents.ok() ? std::string(as_text(*contents)) : "error: " + contents.status().to_string();
}

std::vector<std::string> EveryFileSystem::names() {
  const auto entries = fs_.list(subject_->directory);
  std::vector<std::string> found;
  for (const DirectoryEntry& entry : *entries) {
    found.push_back(entry.is_directory ? entry.name + "/" : entry.name);
  }
  std::sort(found.begin(), found.end());
  return found;
}

TEST_P(EveryFileSystem, ReadsBackWhatWasWrittenAnywhere) {
  auto file = fs_.create(path("a")).value();
  ASSERT_TRUE(file->write_at(5, as_bytes("world")).ok());
  ASSERT_TRUE(file->write_at(0, as_bytes("hello")).ok());
  ASSERT_TRUE(file->write_at(3, {}).ok());
  EXPECT_EQ(*file->size(), 10u);
  ASSERT_TRUE(file->sync().ok());
  EXPECT_EQ(read("a"), "helloworld");
  ByteVector buffer(4);
  EXPECT_EQ(*file->read_at(3, buffer), 4u);
  EXPECT_EQ(as_text(buffer), "lowo");
}

TEST_P(EveryFileSystem, FillsHolesWithZeros) {
  auto file = fs_.create(path("a")).value();
  ASSERT_TRUE(file->write_at(3, as_bytes("x")).ok());
  EXPECT_EQ(read("a"), std::string("\0\0\0x", 4));
}

TEST_P(EveryFileSystem, ReadsShortOnlyAtTheEnd) {
  write("a", "0123456789");
  auto file = fs_.open_read(path("a")).value();
  ByteVector buffer(100);
  EXPECT_EQ(*file->read_at(7, buffer), 3u);
  EXPECT_EQ(*file->read_at(10, buffer), 0u);
  EXPECT_EQ(*file->read_at(1000, buffer), 0u);
  EXPECT_EQ(read_exactly(*file, 0, buffer, "a").code(), StatusCode::corrupt);
  EXPECT_TRUE(read_exactly(*file, 2, MutableByteSpan(buffer).first(8), "a").ok());
}

TEST_P(EveryFileSystem, ReadsIntoSeveralPlacesAtOnce) {
  write("a", "0123456789");
  auto file = fs_.open_read(path("a")).value();
  for (const std::vector<size_t>& sizes :
       std::vector<std::vector<size_t>>{{10}, {3, 7}, {0, 4}, {2, 3, 4}, {4, 100}, {20, 5}}) {
    for (const uint64_t offset : {0, 1, 8, 10, 1000}) {
      std::vector<ByteVector> places;
      for (const size_t size : sizes) places.emplace_back(size, std::byte{'-'});
      const std::vector<MutableByteSpan> parts(places.begin(), places.end());
      const std::string all = std::string("0123456789").substr(std::min<uint64_t>(offset, 10));
      std::string expected;
      size_t there = 0;
      for (const size_t size : sizes) {
        std::string part = all.substr(std::min(there, all.size()), size);
        there += part.size();
        part.resize(size, '-');
        expected += part;
      }
      EXPECT_EQ(*file->read_parts(offset, parts), there);
      std::string got;
      for (const ByteVector& place : places) got += as_text(place);
      EXPECT_EQ(got, expected) << "from " << offset;
    }
  }
}

TEST_P(EveryFileSystem, RefusesToWriteToAFileOpenedForReading) {
  write("a", "text");
  auto file = fs_.open_read(path("a")).value();
  EXPECT_FALSE(file->write_at(0, as_bytes("x")).ok());
  EXPECT_FALSE(file->truncate(0).ok());
  EXPECT_EQ(read("a"), "text");
}

TEST_P(EveryFileSystem, CutsAndExtendsFiles) {
  auto file = fs_.create(path("a")).value();
  ASSERT_TRUE(file->write_at(0, as_bytes("0123456789")).ok());
  ASSERT_TRUE(file->truncate(4).ok());
  EXPECT_EQ(read("a"), "0123");
  ASSERT_TRUE(file->truncate(6).ok());
  EXPECT_EQ(read("a"), std::string("0123\0\0", 6));
}

TEST_P(EveryFileSystem, CreatesOnlyWhatIsNotThere) {
  write("a", "first");
  EXPECT_EQ(fs_.create(path("a")).status().code(), StatusCode::already_exists);
  EXPECT_EQ(fs_.create(path("no/such/folder")).status().code(), StatusCode::not_found);
  EXPECT_EQ(fs_.create(path("a/b")).status().code(), StatusCode::not_found);
  EXPECT_EQ(read("a"), "first");
}

TEST_P(EveryFileSystem, NamesWhatItDidNotFind) {
  const auto opened = fs_.open_read(path("ghost"));
  EXPECT_EQ(opened.status().code(), StatusCode::not_found);
  EXPECT_EQ(opened.status().subject(), path("ghost"));
  EXPECT_EQ(fs_.stat(path("ghost")).status().code(), StatusCode::not_found);
  EXPECT_EQ(fs_.list(path("ghost")).status().code(), StatusCode::not_found);
  EXPECT_EQ(fs_.touch(path("ghost")).code(), StatusCode::not_found);
  EXPECT_EQ(fs_.remove(path("ghost")).code(), StatusCode::not_found);
  EXPECT_EQ(fs_.remove_directory(path("ghost")).code(), StatusCode::not_found);
  EXPECT_EQ(fs_.sync_directory(path("ghost")).code(), StatusCode::not_found);
  EXPECT_EQ(fs_.rename(path("ghost"), path("b")).code(), StatusCode::not_found);
  EXPECT_EQ(fs_.rename_no_replace(path("ghost"), path("b")).code(), StatusCode::not_found);
}

TEST_P(EveryFileSystem, DoesNotOpenDirectoriesAsFiles) {
  ASSERT_TRUE(fs_.create_directory(path("d")).ok());
  EXPECT_EQ(fs_.open_read(path("d")).status().code(), StatusCode::invalid_argument);
  EXPECT_FALSE(fs_.remove(path("d")).ok());
}

TEST_P(EveryFileSystem, RenamesOverAnExistingFile) {
  write("a", "new");
  write("b", "old");
  ASSERT_TRUE(fs_.rename(path("a"), path("b")).ok());
  EXPECT_EQ(read("b"), "new");
  EXPECT_EQ(names(), std::vector<std::string>{"b"});
}

TEST_P(EveryFileSystem, RenamesBetweenDirectories) {
  ASSERT_TRUE(fs_.create_directory(path("d")).ok());
  write("a", "text");
  ASSERT_TRUE(fs_.rename(path("a"), path("d/b")).ok());
  EXPECT_EQ(read("d/b"), "text");
  EXPECT_EQ(names(), std::vector<std::string>{"d/"});
}

TEST_P(EveryFileSystem, DoesNotReplaceWhenAskedNotTo) {
  write("a", "new");
  write("b", "old");
  EXPECT_EQ(fs_.rename_no_replace(path("a"), path("b")).code(), StatusCode::already_exists);
  EXPECT_EQ(read("a"), "new");
  EXPECT_EQ(read("b"), "old");
  ASSERT_TRUE(fs_.rename_no_replace(path("a"), path("c")).ok());
  EXPECT_EQ(names(), (std::vector<std::string>{"b", "c"}));
}

TEST_P(EveryFileSystem, CreatesADirectoryOnce) {
  EXPECT_TRUE(fs_.create_directory(path("d")).ok());
  EXPECT_TRUE(fs_.create_directory(path("d")).ok());
  EXPECT_TRUE(fs_.stat(path("d"))->is_directory);
  write("f", "");
  EXPECT_EQ(fs_.create_directory(path("f")).code(), StatusCode::already_exists);
  EXPECT_EQ(fs_.create_directory(path("no/such")).code(), StatusCode::not_found);
}

TEST_P(EveryFileSystem, RemovesOnlyEmptyDirectories) {
  ASSERT_TRUE(fs_.create_directory(path("d")).ok());
  write("d/f", "x");
  EXPECT_EQ(fs_.remove_directory(path("d")).code(), StatusCode::already_exists);
  ASSERT_TRUE(fs_.remove(path("d/f")).ok());
  ASSERT_TRUE(fs_.remove_directory(path("d")).ok());
  EXPECT_TRUE(names().empty());
}

TEST_P(EveryFileSystem, ListsFilesAndDirectories) {
  EXPECT_TRUE(names().empty());
  write("b", "x");
  write(".hidden", "x");
  ASSERT_TRUE(fs_.create_directory(path("d")).ok());
  EXPECT_EQ(names(), (std::vector<std::string>{".hidden", "b", "d/"}));
  EXPECT_EQ(fs_.list(path("b")).status().code(), StatusCode::not_found);
}

TEST_P(EveryFileSystem, KeepsAnOpenFileThatIsRemoved) {
  write("a", "still here");
  auto file = fs_.open_read(path("a")).value();
  ASSERT_TRUE(fs_.remove(path("a")).ok());
  ByteVector buffer(10);
  EXPECT_TRUE(read_exactly(*file, 0, buffer, "a").ok());
  EXPECT_EQ(as_text(buffer), "still here");
}

TEST_P(EveryFileSystem, MovesTheModificationTimeOnTouch) {
  write("a", "x");
  const int64_t before = fs_.stat(path("a"))->modified_ns;
  std::this_thread::sleep_for(
      std::chrono::milliseconds(20));  // a kernel's clock may tick only a hundred times a second
  ASSERT_TRUE(fs_.touch(path("a")).ok());
  EXPECT_NE(fs_.stat(path("a"))->modified_ns, before);
  EXPECT_EQ(read("a"), "x");
}

TEST_P(EveryFileSystem, TellsTheSizeOfAFile) {
  write("a", std::string(5000, 'x'));
  EXPECT_EQ(fs_.stat(path("a"))->bytes, 5000u);
  EXPECT_GE(fs_.stat(path("a"))->allocated_bytes, 5000u);
  EXPECT_FALSE(fs_.stat(path("a"))->is_directory);
}

TEST_P(EveryFileSystem, WritesDirectlyInAlignedBlocksAndReadsAnywhere) {
  auto file = fs_.create(path("a"), {.direct = true}).value();
  alignas(kDirectAlignment) std::byte block[2 * kDirectAlignment];
  for (size_t i = 0; i < sizeof block; ++i) block[i] = static_cast<std::byte>(i % 251);
  ASSERT_TRUE(file->write_at(0, block).ok());
  ASSERT_TRUE(file->write_at(sizeof block, ByteSpan(block).first(kDirectAlignment)).ok());
  ASSERT_TRUE(file->truncate(sizeof block + 100).ok());
  ASSERT_TRUE(file->sync().ok());
  ByteVector odd(77);
  ASSERT_TRUE(read_exactly(*file, 4093, odd, "a").ok());
  EXPECT_TRUE(std::equal(odd.begin(), odd.end(), block + 4093));
  EXPECT_EQ(*file->size(), sizeof block + 100);
  EXPECT_EQ(file->write_at(1, ByteSpan(block).first(kDirectAlignment)).code(), StatusCode::invalid_argument);
  EXPECT_EQ(file->write_at(0, ByteSpan(block).first(100)).code(), StatusCode::invalid_argument);
  EXPECT_EQ(file->write_at(0, ByteSpan(block).subspan(8, kDirectAlignment)).code(), StatusCode::invalid_argument);
}

TEST_P(EveryFileSystem, WritesLongFilesDirectlyFromSeveralThreads) {
  constexpr size_t kBlocks = 40, kBlockBytes = 1_MiB, kThreads = 3;
  auto file = fs_.create(path("a"), {.direct = true}).value();
  std::vector<std::thread> threads;
  for (size_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      AlignedBlock block(kBlockBytes);
      for (size_t i = thread; i < kBlocks; i += kThreads) {
        std::fill_n(block.data(), kBlockBytes, static_cast<std::byte>(i));
        EXPECT_TRUE(file->write_at(i * kBlockBytes, block.first(kBlockBytes)).ok());
      }
    });
  }
  for (auto& thread : threads) thread.join();
  const uint64_t bytes = kBlocks * kBlockBytes - 100;
  ASSERT_TRUE(file->truncate(bytes).ok());
  ASSERT_TRUE(file->sync().ok());
  EXPECT_EQ(*file->size(), bytes);
  // Nothing that was set aside for it is left.
  EXPECT_LE(fs_.stat(path("a"))->allocated_bytes, bytes + kBlockBytes);
  ByteVector back(kBlockBytes - 100);
  for (size_t i = 0; i < kBlocks; ++i) {
    ASSERT_TRUE(read_exactly(*file, i * kBlockBytes, back, "a").ok());
    EXPECT_EQ(back, ByteVector(back.size(), static_cast<std::byte>(i)));
  }
}

TEST_P(EveryFileSystem, ServesSeveralThreadsOnOneFile) {
  auto file = fs_.create(path("a")).value();
  std::vector<std::thread> threads;
  for (size_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      const ByteVector block(1000, static_cast<std::byte>('a' + thread));
      for (size_t i = 0; i < 20; ++i) EXPECT_TRUE(file->write_at((4 * i + thread) * 1000, block).ok());
    });
  }
  for (auto& thread : threads) thread.join();
  const std::string text = read("a");
  ASSERT_EQ(text.size(), 80'000u);
  for (size_t i = 0; i < text.size(); ++i) ASSERT_EQ(text[i], static_cast<char>('a' + i / 1000 % 4));
}

TEST_P(EveryFileSystem, WritesASmallFileDurablyAndReplacesIt) {
  ASSERT_TRUE(write_file_durably(fs_, path("record"), as_bytes("one")).ok());
  ASSERT_TRUE(write_file_durably(fs_, path("record"), as_bytes("two")).ok());
  EXPECT_EQ(read("record"), "two");
  EXPECT_EQ(names(), std::vector<std::string>{"record"});
  EXPECT_FALSE(write_file_durably(fs_, path("no/such/record"), as_bytes("x")).ok());
}

TEST_P(EveryFileSystem, DoesNotReadAFileThatIsTooLarge) {
  write("a", "12345");
  EXPECT_EQ(read_file(fs_, path("a"), 4).status().code(), StatusCode::resource_limit);
  EXPECT_TRUE(read_file(fs_, path("a"), 5).ok());
}

}  // namespace varve
