#include "backend/spread_backend.h"

#include <gtest/gtest.h>

#include "backend/backend_contract.h"
#include "backend/folder_backend.h"
#include "core/memory_file_system.h"

namespace varve {
namespace {

/// Three places, which know their folder by different names.
struct Spread : BackendSubject {
  Spread() {
    for (const std::string root : {"/s", "/other/t", "/u"}) {
      disks.push_back(std::make_unique<MemoryFileSystem>());
      for (const std::string& folder : {std::string("/other"), root}) {
        if (!disks.back()->create_directory(folder).ok()) std::abort();
      }
      places.push_back(std::make_unique<FolderBackend>(*disks.back(), root));
    }
    spread = std::make_unique<SpreadBackend>(std::vector<Backend*>{places[0].get(), places[1].get(), places[2].get()});
    backend = spread.get();
  }
  std::vector<std::unique_ptr<MemoryFileSystem>> disks;
  std::vector<std::unique_ptr<FolderBackend>> places;
  std::unique_ptr<SpreadBackend> spread;
};

INSTANTIATE_TEST_SUITE_P(Spread, EveryBackend,
                         testing::Values(BackendKind{"three_places", [] { return std::make_unique<Spread>(); }}),
                         [](const auto& kind) { return std::string(kind.param.name); });

struct ASpread : testing::Test, Spread {
  ASpread() { EXPECT_TRUE(spread->make_folder("/s/arenas").ok()); }
  ArenaId arena_of(uint32_t place) const { return spread->spread().arena_at(UniqueId{}, 7, place); }
  std::string name_of(uint32_t place) const { return "/s/arenas/" + arena_file_name(arena_of(place)); }
  void put(Backend& where, const std::string& name) const {
    const auto object = where.put(name).value();
    ASSERT_TRUE(object->write_at(0, as_bytes(name)).ok());
    ASSERT_TRUE(object->seal(name.size()).ok());
  }
};

TEST_F(ASpread, PutsEachArenaAtItsPlaceAndShowsAllOfThem) {
  for (uint32_t place = 0; place < 3; ++place) {
    put(*spread, name_of(place));
    const std::string there = places[place]->root() + "/arenas/" + arena_file_name(arena_of(place));
    EXPECT_TRUE(places[place]->status(there).ok()) << place;
    EXPECT_EQ(spread->shown_path(name_of(place)), there);
  }
  EXPECT_EQ(spread->list("/s/arenas")->size(), 3u);
  EXPECT_EQ(spread->list_with_status("/s/arenas")->size(), 3u);
  for (uint32_t place = 0; place < 3; ++place) ASSERT_TRUE(spread->remove(name_of(place)).ok());
  EXPECT_EQ(spread->remove(name_of(1)).code(), StatusCode::not_found);
  for (const auto& place : places) EXPECT_TRUE(place->list(place->root() + "/arenas")->empty());
}

TEST_F(ASpread, FindsAnArenaThatIsNotWhereItBelongs) {
  const std::string there = "/u/arenas/" + arena_file_name(arena_of(1));
  put(*places[2], there);
  EXPECT_EQ(as_text(spread->read_record(name_of(1), 4096).value()), there);
  EXPECT_EQ(spread->status(name_of(1))->bytes, there.size());
  EXPECT_EQ(spread->shown_path(name_of(1)), there);
  // Where it belongs counts most.
  const std::string home = "/other/t/arenas/" + arena_file_name(arena_of(1));
  put(*places[1], home);
  EXPECT_EQ(spread->list("/s/arenas")->size(), 1u);
  EXPECT_EQ(spread->shown_path(name_of(1)), home);
  EXPECT_EQ(spread->list_with_status("/s/arenas")->begin()->second->bytes, home.size());
  ASSERT_TRUE(spread->remove(name_of(1)).ok());
  for (const auto& place : places) EXPECT_TRUE(place->list(place->root() + "/arenas")->empty()) << "a twin was left";
}

TEST_F(ASpread, ShowsTheIndexOfEachPlaceUnderANameOfItsOwn) {
  ASSERT_TRUE(spread->make_folder("/s/index@2").ok());
  put(*spread, "/s/index@2/a.run");
  EXPECT_EQ(as_text(places[1]->read_record("/other/t/index/a.run", 4096).value()), "/s/index@2/a.run");
  EXPECT_EQ(spread->list("/s/index@2")->at(0).name, "a.run");
  EXPECT_EQ(spread->list("/s/index").status().code(), StatusCode::not_found);
}

/// A disk with so much room.
struct RoomyDisk final : ForwardingFileSystem {
  RoomyDisk(FileSystem& files, uint64_t free) : ForwardingFileSystem(files), room(free) {}
  Result<uint64_t> free_bytes(const std::string&) override { return room; }
  uint64_t room;
};

TEST(SpreadRoom, IsThatOfTheFullestPlaceTimesTheirNumber) {
  MemoryFileSystem files;
  RoomyDisk first(files, 1'000'000), second(files, 10);
  FolderBackend one(first, "/s"), another(second, "/t");
  SpreadBackend spread({&one, &another});
  EXPECT_EQ(spread.free_bytes("/s/arenas").value(), 20u) << "half of what is written belongs to the full one";
  EXPECT_EQ(spread.free_bytes("/s/sets").value(), 1'000'000u) << "which the first place has alone";
  first.room = second.room = UINT64_MAX;
  EXPECT_EQ(spread.free_bytes("/s/arenas").value(), UINT64_MAX);
}

}  // namespace
}  // namespace varve
