#include "store/commit.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "core/memory_file_system.h"
#include "format/store_header.h"
#include "store/test_sets.h"

namespace varve {
namespace {

using test::SetMaker;

struct Lease : testing::Test {
  Lease() {
    EXPECT_TRUE(Store::create(fs, "/s").ok());
    store = Store::open(fs, "/s").value();
  }
  size_t lease_count() { return fs.list(store->writers_path()).value().size(); }
  std::string only_lease() { return fs.list(store->writers_path()).value().at(0).name; }
  static SetRecord record(const SetName& name) {
    SetRecord made;
    made.name = name;
    return made;
  }

  MemoryFileSystem fs;
  std::unique_ptr<Store> store;
};

TEST_F(Lease, IsThereWhileTheWriterWorksAndGoneAfterwards) {
  {
    const auto lease = WriterLease::acquire(*store).value();
    EXPECT_EQ(lease_count(), 1u);
    EXPECT_FALSE(lease->lost());
  }
  EXPECT_EQ(lease_count(), 0u);
}

TEST_F(Lease, BecomesTheRecordWhenTheSetIsCommitted) {
  const auto lease = WriterLease::acquire(*store).value();
  ASSERT_TRUE(lease->commit(record({"job", 3})).ok());
  EXPECT_EQ(lease_count(), 0u);
  EXPECT_TRUE(Catalog(*store).read({"job", 3}).ok());
  EXPECT_FALSE(lease->lost());
}

TEST_F(Lease, CommitsASetThatSurvivesAPowerCut) {
  ASSERT_TRUE(WriterLease::acquire(*store).value()->commit(record({"job", 3})).ok());
  const auto left = fs.after_crash({.kind = CrashPolicy::Kind::drop_unsynced});
  EXPECT_TRUE(Catalog(*Store::open(*left, "/s").value()).read({"job", 3}).ok());
}

TEST_F(Lease, CommitsNothingWhereAnotherStoreIsByNow) {
  const auto lease = WriterLease::acquire(*store).value();
  const ByteVector own = read_file(fs, "/s/varve.store", 4096).value();
  const auto put_header = [&](ByteSpan header) {
    ASSERT_TRUE(fs.remove("/s/varve.store").ok());
    ASSERT_TRUE(write_file_durably(fs, "/s/varve.store", header).ok());
  };
  StoreHeader other = decode_store_header(own, "header").value();
  other.store = UniqueId::random().value();
  put_header(encode_store_header(other));
  EXPECT_EQ(lease->commit(record({"job", 3})).code(), StatusCode::io_error);
  EXPECT_EQ(Catalog(*store).read({"job", 3}).status().code(), StatusCode::not_found);
  put_header(ByteVector(own.size()));
  EXPECT_TRUE(lease->commit(record({"job", 3})).ok()) << "one that is damaged is nobody's";
}

TEST_F(Lease, LetsOneOfTwoWritersOfASetCommit) {
  const auto first = WriterLease::acquire(*store).value(), second = WriterLease::acquire(*store).value();
  SetRecord winner = record({"job", 3});
  winner.file_count = 42;
  ASSERT_TRUE(first->commit(winner).ok());
  EXPECT_EQ(second->commit(record({"job", 3})).code(), StatusCode::already_exists);
  EXPECT_EQ(Catalog(*store).read({"job", 3}).value().file_count, 42u);
}

TEST_F(Lease, LetsExactlyOneOfManyConcurrentWritersCommit) {
  for (uint64_t step = 0; step < 20; ++step) {
    std::atomic<int> winners{0}, losers{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        const Status status = WriterLease::acquire(*store).value()->commit(record({"job", step}));
        if (status.ok()) ++winners;
        if (status.code() == StatusCode::already_exists) ++losers;
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(winners, 1);
    EXPECT_EQ(losers, 3);
  }
  EXPECT_EQ(lease_count(), 0u);
}

TEST_F(Lease, ThatAPruneTookAwayCannotCommit) {
  const auto lease = WriterLease::acquire(*store).value();
  ASSERT_TRUE(fs.remove(join_path(store->writers_path(), only_lease())).ok());
  EXPECT_TRUE(lease->lost());
  EXPECT_EQ(lease->commit(record({"job", 3})).code(), StatusCode::busy);
  EXPECT_TRUE(Catalog(*store).sets().value().empty());
}

TEST_F(Lease, CommitsEvenIfTheJobsFolderIsTidiedAwayBetween) {
  ASSERT_TRUE(WriterLease::acquire(*store).value()->commit(record({"job", 1})).ok());
  const auto lease = WriterLease::acquire(*store).value();
  ASSERT_TRUE(Catalog(*store).remove({"job", 1}).ok());
  EXPECT_TRUE(lease->commit(record({"job", 2})).ok());
}

TEST_F(Lease, OwnsItsArenasAndNoOthers) {
  const auto first = WriterLease::acquire(*store).value();
  const std::string first_name = only_lease();
  const auto second = WriterLease::acquire(*store).value();
  std::set<ArenaId> ids;
  for (uint32_t ordinal : {0u, 1u, 1000u, UINT32_MAX}) {
    EXPECT_TRUE(WriterLease::owns(first_name, first->arena_id(ordinal)));
    EXPECT_FALSE(WriterLease::owns(first_name, second->arena_id(ordinal)));
    ids.insert(first->arena_id(ordinal));
  }
  EXPECT_EQ(ids.size(), 4u);
  EXPECT_FALSE(WriterLease::owns("not a lease", first->arena_id(0)));
}

TEST_F(Lease, SeesTheMarksThatWereThereBefore) {
  const ArenaId marked = UniqueId::random().value();
  const auto lease = WriterLease::acquire(*store).value();
  EXPECT_TRUE(lease->condemned().value().empty());
  ASSERT_TRUE(fs.create(join_path(store->condemned_path(), marked.hex())).ok());
  EXPECT_EQ(lease->condemned().value(), std::set<ArenaId>{marked});
}

TEST_F(Lease, OfAProcessThatIsGoneIsKnownToBeDead) {
  const auto lease = WriterLease::acquire(*store).value();
  EXPECT_FALSE(WriterLease::known_dead(*store, only_lease()));
  EXPECT_FALSE(WriterLease::known_dead(*store, "no such lease"));
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  const std::string path = join_path(store->writers_path(), only_lease());
  std::string text(as_text(read_file(fs, path, 4096).value()));
  text.replace(0, text.find(' '), std::to_string(child));
  ASSERT_TRUE(fs.create("/dead").value()->write_at(0, as_bytes(text)).ok());
  ASSERT_TRUE(fs.rename("/dead", path).ok());
  EXPECT_TRUE(WriterLease::known_dead(*store, only_lease()));
  // On another machine there may be such a process.
  ASSERT_TRUE(fs.create("/far").value()->write_at(0, as_bytes(std::to_string(child) + " another-machine\n")).ok());
  ASSERT_TRUE(fs.rename("/far", path).ok());
  EXPECT_FALSE(WriterLease::known_dead(*store, only_lease()));
}

}  // namespace
}  // namespace varve
