// A store over several places: where things go, that it behaves as any store, and how it grows.

#include "store/spread.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <numeric>
#include <set>
#include <thread>

#include "backend/folder_backend.h"
#include "core/faulty_file_system.h"
#include "core/memory_file_system.h"
#include "core/paused_file_system.h"
#include "sets/fault_kinds.h"
#include "sets/saving.h"
#include "store/condemn.h"
#include "store/prune.h"
#include "store/stored_copies.h"
#include "store/verify.h"

namespace varve {
namespace {

const std::string kPath = "/store";

/// So many places in memory, each a file system of its own.
struct Places {
  explicit Places(size_t count) : disks(count) {}
  Places(const Places& other) {
    for (const auto& disk : other.disks) disks.push_back(disk->after_crash({.kind = CrashPolicy::Kind::keep_all}));
  }
  struct Disk {
    Disk() : Disk(std::make_unique<MemoryFileSystem>()) {}
    Disk(std::unique_ptr<MemoryFileSystem> made)
        : fs(std::move(made)), backend(std::make_unique<FolderBackend>(*fs, kPath)) {}
    MemoryFileSystem* operator->() const { return fs.get(); }
    std::unique_ptr<MemoryFileSystem> fs;
    std::unique_ptr<FolderBackend> backend;
  };
  std::vector<Backend*> all() const { return first(disks.size()); }
  std::vector<Backend*> first(size_t count) const {
    std::vector<Backend*> list;
    for (size_t i = 0; i < count; ++i) list.push_back(disks[i].backend.get());
    return list;
  }
  std::vector<Disk> disks;
};

/// An open store over places named in any order.
struct OpenSpread {
  explicit OpenSpread(const std::vector<Backend*>& named)
      : backend(order_places(named).value()), store(Store::open(backend, nullptr, backend.spread()).value()) {}
  SpreadBackend backend;
  std::unique_ptr<Store> store;
};

PruneOptions thorough_prune() {
  PruneOptions options;
  options.live_share_min = 0.99;
  options.wait_seconds = 0;
  options.silence_seconds = 0;
  return options;
}

size_t arena_count(FileSystem& fs) {
  const auto entries = fs.list(kPath + "/arenas");
  return entries.ok() ? entries->size() : 0;
}

struct SpreadStores : testing::Test {
  void SetUp() override {
    // Enough packs for every place to get some.
    std::string text;
    for (uint64_t i = 0; text.size() < 3'000'000; ++i) text += std::to_string(i * 7919) + ",";
    test::write_file(folder.path() + "/rank0.dat", text);
    test::write_file(folder.path() + "/rank1.dat", text.substr(500'000));
    saved = test::snapshot_of(folder.path());
  }
  test::TempFolder folder;
  test::Snapshot saved;
};

TEST_F(SpreadStores, PutPacksAtThePlacesOfTheirScores) {
  Places places(3);
  ASSERT_TRUE(create_spread_store(places.all()).ok());
  OpenSpread open(places.all());
  ASSERT_TRUE(test::save(*open.store, folder.path(), "run", 1).ok());
  uint32_t used = 0;
  for (uint32_t place = 0; place < 3; ++place) {
    if (arena_count(*places.disks[place].fs) == 0) continue;  // no pack has a score of its share
    ++used;
    ASSERT_EQ(arena_count(*places.disks[place].fs), 1u) << place;
    const auto name = places.disks[place]->list(kPath + "/arenas").value().front().name;
    const ArenaId id = ArenaId::parse(name.substr(0, 32)).value();
    EXPECT_EQ(open.backend.spread().place_of(id), place);
    const auto arena = open.store->arena(id).value();
    for (const FrameEntry& pack : arena->index().packs) EXPECT_EQ(open.backend.spread().place_of(pack.score), place);
  }
  EXPECT_GE(used, 2u);
  EXPECT_TRUE(test::restores_as(*open.store, {"run", 1}, saved));
  EXPECT_TRUE(test::is_whole(*open.store));
}

TEST_F(SpreadStores, HaveTheRoomOfAllTheirPlaces) {
  test::TempFolder places;
  FileSystem& disk = posix_file_system();
  for (const char* name : {"a", "b"}) std::filesystem::create_directories((places / name) + "/arenas");
  FolderBackend a(disk, places / "a"), b(disk, places / "b");
  SpreadBackend both({&a, &b});
  const double room = static_cast<double>(disk.free_bytes(places.path()).value());
  EXPECT_NEAR(static_cast<double>(both.free_bytes(both.root() + "/arenas").value()), 2 * room, room / 2);
  EXPECT_NEAR(static_cast<double>(both.free_bytes(both.root()).value()), room, room / 2);
}

TEST_F(SpreadStores, BehaveAsAnyStore) {
  Places places(2);
  ASSERT_TRUE(create_spread_store(places.all()).ok());
  OpenSpread open(places.all());
  ASSERT_TRUE(test::save(*open.store, folder.path(), "run", 1).ok());
  const auto again = test::save(*open.store, folder.path(), "run", 2);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->record.new_bytes, 0u);
  ASSERT_TRUE(Catalog(*open.store).remove({"run", 1}).ok());
  ASSERT_TRUE(prune_store(*open.store, thorough_prune()).ok());
  EXPECT_TRUE(test::restores_as(*open.store, {"run", 2}, saved));
  ASSERT_TRUE(Catalog(*open.store).remove({"run", 2}).ok());
  ASSERT_TRUE(prune_store(*open.store, thorough_prune()).ok());
  EXPECT_EQ(arena_count(*places.disks[0].fs) + arena_count(*places.disks[1].fs), 0u);
}

TEST_F(SpreadStores, MayBeNamedInAnyOrderButOnlyWhole) {
  Places places(3);
  ASSERT_TRUE(create_spread_store(places.all()).ok());
  const auto disks = places.all();
  const std::vector<Backend*> mixed = {disks[2], disks[0], disks[1]};
  const std::vector<Backend*> ordered = order_places(mixed).value();
  for (size_t i = 0; i < disks.size(); ++i) EXPECT_EQ(ordered.at(i), disks[i]);
  EXPECT_EQ(order_places(places.first(2)).status().code(), StatusCode::invalid_argument);
  EXPECT_EQ(order_places({disks[1], disks[2]}).status().code(), StatusCode::invalid_argument);
  EXPECT_EQ(order_places({disks[0], disks[1], disks[1]}).status().code(), StatusCode::invalid_argument);
  for (Backend* const alone : disks)
    EXPECT_EQ(Store::open(*alone).status().code(), StatusCode::invalid_argument) << "a place is no store";
  Places strangers(1);
  ASSERT_TRUE(Store::create(*strangers.disks[0].fs, kPath).ok());
  EXPECT_FALSE(order_places({disks[0], disks[1], strangers.all()[0]}).ok());
}

TEST_F(SpreadStores, AreNotMadeOverOnePlaceTwiceNorOverWhatIsNotEmptyAndThenNothingIsWritten) {
  Places places(3);
  const auto disks = places.all();
  EXPECT_EQ(create_spread_store({disks[0], disks[1], disks[0]}).code(), StatusCode::invalid_argument);
  ASSERT_TRUE(places.disks[2]->create_directory(kPath).ok());
  ASSERT_TRUE(places.disks[2]->create(kPath + "/thesis.tex").ok());
  EXPECT_EQ(create_spread_store(disks).code(), StatusCode::already_exists);
  EXPECT_EQ(create_spread_store({disks[2], disks[0]}).code(), StatusCode::already_exists);
  for (const size_t untouched : {0u, 1u})
    EXPECT_EQ(places.disks[untouched]->list(kPath).status().code(), StatusCode::not_found);
  EXPECT_TRUE(create_spread_store(places.first(2)).ok());
  EXPECT_EQ(create_spread_store(places.first(2)).code(), StatusCode::already_exists);
}

TEST_F(SpreadStores, GrowFromOneFolderOverMorePlaces) {
  Places places(4);
  ASSERT_TRUE(Store::create(*places.disks[0].fs, kPath).ok());
  {
    const auto store = Store::open(*places.disks[0].fs, kPath).value();
    for (uint64_t step = 1; step <= 12; ++step) {
      test::write_file(folder.path() + "/extra.dat", "step " + std::to_string(step));
      ASSERT_TRUE(test::save(*store, folder.path(), "run", step).ok());
    }
  }
  const test::Snapshot last = test::snapshot_of(folder.path());
  for (size_t count : {2u, 3u, 4u}) {
    const auto report = rebalance(places.first(count));
    ASSERT_TRUE(report.ok()) << report.status().to_string();
    EXPECT_EQ(report->arenas, 12u);
    EXPECT_GT(report->moved_arenas, 0u);
    OpenSpread open(places.first(count));
    EXPECT_TRUE(test::restores_as(*open.store, {"run", 12}, last));
    EXPECT_TRUE(test::is_whole(*open.store));
    size_t arenas = 0;
    for (size_t i = 0; i < count; ++i) arenas += arena_count(*places.disks[i].fs);
    EXPECT_EQ(arenas, 12u) << "each once";
  }
  EXPECT_EQ(rebalance(places.all())->moved_arenas, 0u) << "nothing is left to do";
  EXPECT_FALSE(rebalance(places.first(3)).ok()) << "a place cannot be left out";
}

TEST_F(SpreadStores, TellWhoHasThemOpenWithFewerPlacesThatTheyHaveGrownAndNotThatSomethingIsDamaged) {
  Places places(2);
  ASSERT_TRUE(Store::create(*places.disks[0].fs, kPath).ok());
  const auto before = Store::open(*places.disks[0].fs, kPath).value();
  for (uint64_t step = 1; step <= 6; ++step) {
    test::write_file(folder.path() + "/extra.dat", "step " + std::to_string(step));
    ASSERT_TRUE(test::save(*before, folder.path(), "run", step).ok());
  }
  ASSERT_GT(rebalance(places.all())->moved_arenas, 0u);
  before->drop_arena_cache();
  uint32_t failed = 0;
  for (uint64_t step = 1; step <= 6; ++step) {
    const Status read = read_root(*before, Catalog(*before).read({"run", step}).value().groups.at(0).root,
                                  Catalog(*before).read({"run", step}).value().groups.at(0).hint)
                            .status();
    if (read.ok()) continue;
    ++failed;
    EXPECT_EQ(read.code(), StatusCode::io_error) << read.to_string();
  }
  EXPECT_GT(failed, 0u);
}

/// The bytes of the arenas of each place.
std::vector<std::vector<uint64_t>> arena_bytes(const Places& places) {
  std::vector<std::vector<uint64_t>> all;
  for (Backend* const place : places.all()) {
    std::vector<uint64_t>& bytes = all.emplace_back();
    for (const auto& [name, status] : place->list_with_status(kPath + "/arenas").value())
      bytes.push_back(status->bytes);
  }
  return all;
}

TEST_F(SpreadStores, HaveNoPlaceThatIsFullerThanAnotherByMoreThanItsSmallestArena) {
  Places places(3);
  ASSERT_TRUE(create_spread_store(places.first(2)).ok());
  {
    OpenSpread open(places.first(2));
    for (uint64_t step = 1; step <= 6; ++step) {
      test::write_file(folder.path() + "/rank2.dat", std::string(as_text(test::random_bytes(400'000 * step, step))));
      ASSERT_TRUE(test::save(*open.store, folder.path(), "run", step).ok());
    }
  }
  const test::Snapshot last = test::snapshot_of(folder.path());
  const auto report = rebalance(places.all());
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  const std::vector<std::vector<uint64_t>> arenas = arena_bytes(places);
  std::vector<uint64_t> sums;
  for (const std::vector<uint64_t>& there : arenas)
    sums.push_back(std::accumulate(there.begin(), there.end(), uint64_t{0}));
  EXPECT_EQ(report->bytes_of_places, sums);
  EXPECT_EQ(std::accumulate(sums.begin(), sums.end(), uint64_t{0}), report->bytes);
  const uint64_t least = *std::min_element(sums.begin(), sums.end());
  EXPECT_GT(least, report->bytes / 6) << "there are enough arenas to be even";
  for (size_t place = 0; place < 3; ++place)
    EXPECT_LE(sums[place] - least, *std::min_element(arenas[place].begin(), arenas[place].end())) << place;
  EXPECT_EQ(rebalance(places.all())->moved_arenas, 0u) << "nothing is left to do";
  OpenSpread open(places.all());
  EXPECT_TRUE(test::is_whole(*open.store));
  EXPECT_TRUE(test::restores_as(*open.store, {"run", 6}, last));
  EXPECT_TRUE(open.backend.list(kPath + "/writers").value().empty());
}

/// A store on two places with an arena that lies at both, as after a rebalance that was stopped.
struct StoreWithACopy : SpreadStores {
  void SetUp() override {
    SpreadStores::SetUp();
    ASSERT_TRUE(create_spread_store(places.all()).ok());
    ASSERT_TRUE(test::save(*OpenSpread(places.all()).store, folder.path(), "run", 1).ok());
    const std::string name = places.disks[1]->list(kPath + "/arenas").value().at(0).name;
    path = kPath + "/arenas/" + name;
    put_copy(read_file(*places.disks[1].fs, path, 64_MiB).value());
  }
  void put_copy(const ByteVector& raw) {
    places.disks[0]->remove(path).ignore("it may be new");
    ASSERT_TRUE(places.disks[0]->create(path).value()->write_at(0, raw).ok());
  }
  size_t copies() const { return places.disks[0]->stat(path).ok() + places.disks[1]->stat(path).ok(); }
  Places places{2};
  std::string path;
};

TEST_F(StoreWithACopy, IsLeftWithWhatItHasOnce) {
  ASSERT_TRUE(rebalance(places.all()).ok());
  EXPECT_EQ(copies(), 0u) << "under another name";
  EXPECT_TRUE(OpenSpread(places.all()).backend.list(kPath + "/condemned").value().empty());
  EXPECT_TRUE(test::restores_as(*OpenSpread(places.all()).store, {"run", 1}, saved));
}

TEST_F(StoreWithACopy, LosesNothingIfTheyDiffer) {
  for (const uint32_t damaged : {0u, 1u}) {
    Places own(places);
    ByteVector raw = read_file(*own.disks[damaged].fs, path, 64_MiB).value();
    raw.at(raw.size() / 2) ^= std::byte{1};
    ASSERT_TRUE(own.disks[damaged]->remove(path).ok());
    ASSERT_TRUE(own.disks[damaged]->create(path).value()->write_at(0, raw).ok());
    rebalance(own.all()).status().ignore("it may have seen the damaged one");
    const bool there = own.disks[1 - damaged]->stat(path).ok();
    EXPECT_TRUE(there || test::restores_as(*OpenSpread(own.all()).store, {"run", 1}, saved));
  }
}

TEST_F(StoreWithACopy, IsLeftAloneAsLongAsAnotherMoverLives) {
  const std::string lease = kPath + "/writers/00000000" + to_hex(as_bytes("arena mover."));
  ASSERT_TRUE(places.disks[0]->create(lease).ok());
  {
    std::atomic<bool> ending = false;
    std::thread heart([&] {
      while (!ending) {
        EXPECT_TRUE(places.disks[0]->touch(lease).ok());
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
    });
    EXPECT_EQ(rebalance(places.all(), {.silence_seconds = 60}).status().code(), StatusCode::busy);
    ending = true;
    heart.join();
  }
  EXPECT_EQ(copies(), 2u);
  ASSERT_TRUE(rebalance(places.all(), {.silence_seconds = 0.5}).ok()) << "it is dead";
  EXPECT_EQ(copies(), 0u);
  EXPECT_FALSE(places.disks[0]->stat(lease).ok());
}

TEST_F(SpreadStores, ArePrunedByNobodyWhoKnowsFewerPlacesThanThereAre) {
  for (const size_t before : {1u, 2u}) {
    Places places(3);
    ASSERT_TRUE(create_spread_store(places.first(before)).ok());
    const OpenSpread old(places.first(before));
    ASSERT_TRUE(prune_store(*old.store, thorough_prune()).ok());
    ASSERT_TRUE(rebalance(places.all()).ok());
    const OpenSpread grown(places.all());
    ASSERT_TRUE(test::save(*grown.store, folder.path(), "run", 1).ok());
    std::set<ArenaId> unknown;
    for (const ArenaId& arena : grown.store->list_arenas().value()) {
      if (old.store->arena(arena).status().code() == StatusCode::not_found) unknown.insert(arena);
    }
    ASSERT_FALSE(unknown.empty());
    ASSERT_TRUE(condemn_arenas(*grown.store, unknown).ok());
    ASSERT_TRUE(Catalog(*grown.store).remove({"run", 1}).ok());
    const Status pruned = prune_store(*old.store, thorough_prune()).status();
    EXPECT_EQ(pruned.code(), StatusCode::invalid_argument) << pruned.to_string();
    EXPECT_NE(pruned.to_string().find("3 places"), std::string::npos) << pruned.to_string();
    EXPECT_EQ(list_condemned(*grown.store).value(), std::vector<ArenaId>(unknown.begin(), unknown.end()));
    ASSERT_TRUE(prune_store(*grown.store, thorough_prune()).ok());
    EXPECT_TRUE(list_condemned(*grown.store)->empty());
    EXPECT_TRUE(grown.store->list_arenas()->empty());
  }
}

TEST_F(SpreadStores, AreReadWhileTheyGrow) {
  Places places(2);
  ASSERT_TRUE(Store::create(*places.disks[0].fs, kPath).ok());
  {
    const auto store = Store::open(*places.disks[0].fs, kPath).value();
    ASSERT_TRUE(test::save(*store, folder.path(), "run", 1).ok());
  }
  // Nothing was moved yet: all is at the first place, as likely as not where it does not belong.
  ASSERT_TRUE(places.disks[1]->create_directory(kPath).ok());
  ASSERT_TRUE(places.disks[1]->create_directory(kPath + "/arenas").ok());
  SpreadBackend both(places.all());
  const std::string arena = both.list(kPath + "/arenas").value().front().name;
  const auto file = both.open(kPath + "/arenas/" + arena).value();
  EXPECT_TRUE(both.status(kPath + "/arenas/" + arena).ok());
  EXPECT_GT(file->size().value(), 0u);
}

TEST_F(SpreadStores, SayAtWhichPlaceADamagedArenaLies) {
  Places places(2);
  FolderBackend a(*places.disks[0].fs, "/a"), b(*places.disks[1].fs, "/b");
  ASSERT_TRUE(create_spread_store({&a, &b}).ok());
  SpreadBackend spread({&a, &b});
  const auto store = Store::open(spread, nullptr, spread.spread()).value();
  ASSERT_TRUE(test::save(*store, folder.path(), "run", 1).ok());
  const std::vector<ArenaId> arenas = store->list_arenas().value();
  const auto at_second =
      std::find_if(arenas.begin(), arenas.end(), [&](const ArenaId& id) { return spread.spread().place_of(id) == 1; });
  ASSERT_NE(at_second, arenas.end());
  const std::string name = at_second->hex() + ".arena";
  EXPECT_EQ(arena_name(*store, *at_second), "/b/arenas/" + name);
  const FrameEntry pack = store->arena(*at_second).value()->index().packs.at(0);
  ByteVector raw = b.read_record("/b/arenas/" + name, 64_MiB).value();
  raw.at(pack.offset + kFrameHeaderBytes + pack.meta_bytes + 7) ^= std::byte{1};
  for (FolderBackend* const place : {&b, &a}) {
    const std::string there = place->root() + "/arenas/" + name;
    ASSERT_TRUE(place->records().replace(there, raw).ok());
    if (place == &a) b.remove("/b/arenas/" + name).ignore("as rebalancing does");
    store->drop_arena_cache();
    const VerifyReport report = verify_store(*store, true).value();
    ASSERT_FALSE(report.whole());
    EXPECT_TRUE(report.damages.at(0).what.subject().starts_with(there)) << report.damages[0].what.to_string();
    const test::TempFolder target;
    const Status restored = restore_set(*store, {"run", 1}, target.path() + "/back", {}).status();
    EXPECT_TRUE(restored.subject().starts_with(there)) << restored.to_string();
  }
}

TEST_F(SpreadStores, DoNotGrowOverWhatIsNotEmpty) {
  Places places(2);
  ASSERT_TRUE(Store::create(*places.disks[0].fs, kPath).ok());
  ASSERT_TRUE(places.disks[1]->create_directory(kPath).ok());
  ASSERT_TRUE(places.disks[1]->create(kPath + "/thesis.tex").ok());
  EXPECT_EQ(rebalance(places.all()).status().code(), StatusCode::already_exists);
  EXPECT_TRUE(Store::open(*places.disks[0].fs, kPath).ok()) << "the store is as before";
  Places stores(2);
  ASSERT_TRUE(Store::create(*stores.disks[0].fs, kPath).ok());
  ASSERT_TRUE(Store::create(*stores.disks[1].fs, kPath).ok());
  EXPECT_FALSE(rebalance(stores.all()).ok());
}

/// While one that moves arenas is paused, whose lease somebody then takes for dead, the sets are dropped but for one,
/// and the store is pruned and rebalanced again.
TEST_F(SpreadStores, LoseNothingWhenARebalanceIsOvertakenAtAnyMoment) {
  Places before(2);
  ASSERT_TRUE(Store::create(*before.disks[0].fs, kPath).ok());
  constexpr uint64_t kSteps = 6;
  std::map<uint64_t, test::Snapshot> snapshots;
  {
    const auto store = Store::open(*before.disks[0].fs, kPath).value();
    for (uint64_t step = 1; step <= kSteps; ++step) {
      const test::TempFolder own;
      test::write_file(own.path() + "/rank0.dat", test::random_bytes(20'000, step));
      snapshots[step] = test::snapshot_of(own.path());
      ASSERT_TRUE(test::save(*store, own.path(), "run", step).ok());
    }
  }
  const RebalanceOptions at_once{.silence_seconds = 0};
  uint64_t pauses = 0;
  for (size_t paused_place = 0; paused_place < 2; ++paused_place) {
    for (uint64_t at = 0;; ++at) {
      const uint64_t kept = 1 + at % kSteps;
      SCOPED_TRACE("paused before operation " + std::to_string(at) + " at place " + std::to_string(paused_place) +
                   ", kept " + std::to_string(kept));
      Places places(before);
      auto overtake = [&] {
        if (!order_places(places.all()).ok()) return;  // it has only begun
        {
          OpenSpread open(places.all());
          for (uint64_t step = 1; step <= kSteps; ++step) {
            if (step == kept) continue;
            ASSERT_TRUE(Catalog(*open.store).remove({"run", step}).ok());
          }
          ASSERT_TRUE(prune_store(*open.store, thorough_prune()).ok());
        }
        ASSERT_TRUE(rebalance(places.all(), at_once).ok());
      };
      auto named = places.all();
      PausedFileSystem paused(*places.disks[paused_place].fs, at, overtake);
      FolderBackend slow(paused, kPath);
      named[paused_place] = &slow;
      // It may find that it was overtaken.
      rebalance(named, at_once).status().ignore("what is there is looked at");
      if (!paused.paused()) break;
      ++pauses;
      ASSERT_TRUE(rebalance(places.all(), at_once).ok());
      OpenSpread open(places.all());
      ASSERT_TRUE(test::is_whole(*open.store));
      ASSERT_TRUE(test::restores_as(*open.store, {"run", kept}, snapshots.at(kept)));
    }
  }
  EXPECT_GT(pauses, 20u);
}

struct InterruptedRebalance : SpreadStores, testing::WithParamInterface<FaultKind> {};

TEST_P(InterruptedRebalance, LosesNothingAndIsDoneAgain) {
  Places before(3);
  {
    ASSERT_TRUE(create_spread_store(before.first(2)).ok());
    OpenSpread open(before.first(2));
    for (uint64_t step = 1; step <= 4; ++step) {
      test::write_file(folder.path() + "/extra.dat", "step " + std::to_string(step));
      ASSERT_TRUE(test::save(*open.store, folder.path(), "run", step).ok());
    }
  }
  const test::Snapshot last = test::snapshot_of(folder.path());
  const RebalanceOptions at_once{.silence_seconds = 0};  // a lease that could not be removed is not waited for
  size_t struck_count = 0;
  for (size_t faulty_place = 0; faulty_place < 3; ++faulty_place) {
    for (uint64_t operation = 0;; ++operation) {
      Places places(before);
      auto named = places.all();
      FaultyFileSystem faulty(*places.disks[faulty_place].fs, {{.kind = GetParam(), .at_operation = operation}});
      FolderBackend bad(faulty, kPath);
      named[faulty_place] = &bad;
      const auto report = rebalance(named, at_once);
      if (!faulty.struck()) break;
      ++struck_count;
      if (GetParam() == FaultKind::crash)
        places.disks[faulty_place] =
            places.disks[faulty_place]->after_crash({.kind = CrashPolicy::Kind::drop_unsynced});
      // Either still a store of two places, or one of three.
      const bool grown = order_places(places.all()).ok();
      {
        OpenSpread open(grown ? places.all() : places.first(2));
        ASSERT_TRUE(test::restores_as(*open.store, {"run", 4}, last)) << faulty.trace();
      }
      const auto again = rebalance(places.all(), at_once);
      ASSERT_TRUE(again.ok()) << again.status().to_string() << "\n" << faulty.trace();
      OpenSpread open(places.all());
      ASSERT_TRUE(test::is_whole(*open.store)) << faulty.trace();
      ASSERT_TRUE(test::restores_as(*open.store, {"run", 4}, last)) << faulty.trace();
    }
  }
  EXPECT_GT(struck_count, 5u) << "how many arenas move is chance, as their ids are";
}

INSTANTIATE_TEST_SUITE_P(EveryFault, InterruptedRebalance,
                         testing::Values(FaultKind::crash, FaultKind::no_space, FaultKind::io_error,
                                         FaultKind::short_write, FaultKind::failed_sync, FaultKind::failed_rename),
                         test::fault_name);

}  // namespace
}  // namespace varve
