#include "mount/stored_set.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <random>
#include <thread>

#include "core/memory_file_system.h"
#include "mount/set_listing.h"
#include "sets/saving.h"
#include "store/catalog.h"
#include "store/stored_copies.h"

namespace varve {
namespace {

using test::TempFolder;

/// A set with one file of all that a file can be made of: new bytes, constant ones, holes.
class AStoredFile : public testing::Test {
 protected:
  AStoredFile() {
    contents_ = test::random_bytes(700'000, 1);
    contents_.resize(1'200'000);
    const ByteVector field = test::smooth_field(50'000, 2);
    contents_.insert(contents_.end(), field.begin(), field.end());
    test::write_file(folder_ / "set/file", contents_);
    store_ = test::make_store(fs_);
    EXPECT_TRUE(test::save(*store_, folder_ / "set", "run", 1).ok());
    const SetRecord record = Catalog(*store_).read({"run", 1}).value();
    listing_ = SetListing::read(*store_, record).value();
    leaf_ = read_leaf(*store_, listing_->leaf(0)).value();
    const uint32_t file = listing_->find(SetListing::kTop, "file").value();
    map_ = std::make_shared<FileMap>(map_file(leaf_, leaf_.files[listing_->entry(file).file]).value());
  }

  PackCache::ReadPack read_pack() {
    return [this](const PackLink& link, std::span<const Extent> ranges) {
      ++packs_read_;
      return varve::read_pack(*store_, link, ranges);
    };
  }

  TempFolder folder_;
  MemoryFileSystem fs_;
  ByteVector contents_;
  std::unique_ptr<Store> store_;
  std::shared_ptr<SetListing> listing_;
  Leaf leaf_;
  std::shared_ptr<const FileMap> map_;
  std::atomic<int> packs_read_{0};
  MountLog log_ = [](const std::string&) {};
};

TEST_F(AStoredFile, ReadsAsItWasFromAnywhere) {
  PackCache packs(read_pack(), 1_MiB, 1);
  StoredFile file(map_, packs, log_, "run@1:file");
  std::mt19937_64 random(4);
  ByteVector bytes(200'000);
  for (int i = 0; i < 200; ++i) {
    const uint64_t offset = random() % (contents_.size() + 1000);
    const size_t wanted = random() % bytes.size();
    const size_t there = offset >= contents_.size() ? 0 : std::min<size_t>(wanted, contents_.size() - offset);
    const MountResult<size_t> got = file.read(offset, MutableByteSpan(bytes).first(wanted));
    ASSERT_TRUE(got.ok());
    ASSERT_EQ(*got, there);
    ASSERT_TRUE(std::equal(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(there),
                           contents_.begin() + static_cast<ptrdiff_t>(std::min<uint64_t>(offset, contents_.size()))));
  }
}

TEST_F(AStoredFile, HasItsPacksDecodedOnceForAllThreads) {
  PackCache packs(read_pack(), 64_MiB, 2);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      StoredFile file(map_, packs, log_, "run@1:file");
      ByteVector bytes(contents_.size());
      const MountResult<size_t> got = file.read(0, bytes);
      EXPECT_TRUE(got.ok());
      EXPECT_EQ(bytes, contents_);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(packs_read_, static_cast<int>(map_->packs.size()));
}

TEST_F(AStoredFile, TellsWhereItsHoleIs) {
  PackCache packs(read_pack(), 1_MiB, 1);
  StoredFile file(map_, packs, log_, "run@1:file");
  const MountResult<uint64_t> hole = file.seek(0, SEEK_HOLE);
  ASSERT_TRUE(hole.ok());
  EXPECT_GE(*hole, 700'000u);
  EXPECT_LT(*hole, 720'000u);
  EXPECT_LE(*file.seek(*hole, SEEK_DATA), 1'200'000u);
  EXPECT_EQ(*file.seek(1'300'000, SEEK_HOLE), contents_.size());
  EXPECT_EQ(file.seek(contents_.size(), SEEK_DATA).error().number, ENXIO);
}

TEST_F(AStoredFile, GivesAnErrorAndALineForWhatIsDamaged) {
  std::string line;
  MountLog log = [&](const std::string& said) { line = said; };
  PackCache packs([](const PackLink&, std::span<const Extent>) -> Result<Pack> { return Status::corrupt("bad pack"); },
                  1_MiB, 1);
  StoredFile file(map_, packs, log, "run@1:file");
  std::byte bytes[100];
  EXPECT_EQ(file.read(10, bytes).error().number, EIO);
  EXPECT_NE(line.find("run@1:file"), std::string::npos);
  EXPECT_NE(line.find("bad pack"), std::string::npos);
}

}  // namespace
}  // namespace varve
