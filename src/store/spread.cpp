#include "store/spread.h"

#include <algorithm>
#include <optional>

#include "format/store_header.h"
#include "store/chunk_index.h"
#include "store/rebalance.h"
#include "store/store.h"

namespace varve {

namespace {
constexpr uint64_t kIndexMemoryBytes = 64_MiB;

struct Place {
  Backend* backend;
  std::optional<SpreadMember> member;
};

Result<std::vector<Place>> look_at(const std::vector<Backend*>& places) {
  if (places.empty() || places.size() > kSpreadPlacesMax)
    return Status::invalid_argument("a store has 1 to 1024 places", std::to_string(places.size()));
  std::vector<Place> found;
  for (Backend* const place : places) {
    VARVE_ASSIGN(std::optional<SpreadMember> member, read_spread_member(*place));
    found.push_back({place, member});
  }
  return found;
}

/// The members among `places`, by their position; those between that were not named are null.
/// invalid_argument: they are of different stores, or two are the same place.
Result<std::vector<Backend*>> members_by_position(const std::vector<Place>& places) {
  std::vector<Backend*> members;
  std::optional<UniqueId> store;
  for (const Place& place : places) {
    if (!place.member) continue;
    if (store && *store != place.member->store)
      return Status::invalid_argument("these are places of different stores", "", "name the places of one store");
    store = place.member->store;
    const uint32_t position = place.member->position;
    if (members.size() <= position) members.resize(position + 1);
    if (members[position] != nullptr)
      return Status::invalid_argument("two of these are the same place of a store", "", "name each place once");
    members[position] = place.backend;
  }
  return members;
}

Status wrong_places(const SpreadMember& home, size_t named) {
  return Status::invalid_argument("the store is spread over " + std::to_string(home.count) + " places, and " +
                                      std::to_string(named) + " of them are here",
                                  home.store.hex(), "name all of its places, in any order");
}

/// Whether there is a store in one folder.
Result<bool> has_header(Backend& place) {
  const Status status = place.status(store_header_path(place.root())).status();
  if (status.ok()) return true;
  if (status.code() == StatusCode::not_found) return false;
  return status;
}

Status check_empty(Backend& place) {
  const Result<std::vector<DirectoryEntry>> entries = place.list(place.root());
  if (entries.status().code() == StatusCode::not_found) return {};
  VARVE_TRY(entries.status());
  if (entries->empty()) return {};
  return Status::already_exists("the folder of a new place is not empty", place.root(), "name a new or empty folder");
}

/// The store's header and id, and all places in their new order: members first. Changes nothing.
struct Growth {
  UniqueId store;
  ByteVector header;
  uint32_t count_before = 1;
  std::vector<Backend*> places;
};

Result<Growth> plan_growth(const std::vector<Place>& places) {
  Growth growth;
  VARVE_ASSIGN(growth.places, members_by_position(places));
  std::vector<Backend*> added;
  for (const Place& place : places) {
    if (place.member) continue;
    VARVE_ASSIGN(const bool is_store, has_header(*place.backend));
    if (!is_store) {
      const Status missing = missing_store(*place.backend);
      if (places.size() == 1 || missing.code() == StatusCode::corrupt) return missing;
      VARVE_TRY(check_empty(*place.backend));
      added.push_back(place.backend);
    } else if (growth.places.empty()) {
      growth.places.push_back(place.backend);
    } else {
      return Status::invalid_argument("one of these places has another store", place.backend->root(),
                                      "a new place must be an empty folder");
    }
  }
  if (growth.places.empty()) return missing_store(*places.front().backend);
  if (growth.places.front() == nullptr)
    return Status::invalid_argument("the first place of the store is not among these", "", "name all of its places");
  std::optional<SpreadMember> home;
  for (const Place& place : places) {
    if (place.member && place.member->position == 0) home = place.member;
  }
  if (home) growth.count_before = home->count;
  // A growth that was stopped has named some of the new places already; the others take what is free.
  growth.places.resize(std::max<size_t>(growth.places.size(), places.size()));
  for (Backend*& place : growth.places) {
    if (place != nullptr || added.empty()) continue;
    place = added.front();
    added.erase(added.begin());
  }
  const bool complete =
      std::all_of(growth.places.begin(), growth.places.end(), [](const Backend* place) { return place != nullptr; });
  if (!complete || growth.places.size() < growth.count_before)
    return wrong_places(home.value_or(SpreadMember{growth.store, 0, growth.count_before}), places.size());
  Backend& first = *growth.places.front();
  VARVE_ASSIGN(growth.header, first.read_record(store_header_path(first.root()), 4096));
  VARVE_ASSIGN(const StoreHeader header, decode_store_header(growth.header, store_header_path(first.root())));
  growth.store = header.store;
  return growth;
}

/// Makes the new places ones of the store.
Status grow(const Growth& growth) {
  const auto count = static_cast<uint32_t>(growth.places.size());
  if (count == growth.count_before) return {};
  // The first place comes last: until then the store has as many places as before.
  for (uint32_t place = count; place-- > 0;) {
    Backend& backend = *growth.places[place];
    const std::string& path = backend.root();
    const bool added = place >= growth.count_before;
    if (added) VARVE_TRY(backend.make_folder(path));
    VARVE_TRY(write_spread_member(backend, {growth.store, place, count}));
    if (!added) continue;
    for (const char* folder : {"arenas", "index"}) VARVE_TRY(backend.make_folder(join_path(path, folder)));
    VARVE_TRY(backend.records().replace(store_header_path(path), growth.header));
    VARVE_TRY(settle_root(backend));
  }
  return {};
}
}  // namespace

Status create_spread_store(const std::vector<Backend*>& places, CreateStoreOptions options) {
  if (places.size() == 1) return Store::create(*places.front(), options);
  if (places.empty() || places.size() > kSpreadPlacesMax)
    return Status::invalid_argument("a store has 1 to 1024 places", std::to_string(places.size()));
  for (size_t place = 0; place < places.size(); ++place) {
    for (size_t other = 0; other < place; ++other) {
      if (places[other] == places[place])
        return Status::invalid_argument("two of these are the same place", places[place]->root(),
                                        "name each place once");
    }
    VARVE_ASSIGN(const bool is_store, has_header(*places[place]));
    if (is_store) return Status::already_exists("there is a store already", places[place]->root());
    VARVE_TRY(check_empty(*places[place]));
  }
  VARVE_ASSIGN(const UniqueId id, UniqueId::random());
  options.id = id;
  // The first place comes last: without it there is no store yet.
  for (size_t place = places.size(); place-- > 0;) {
    options.member = SpreadMember{id, static_cast<uint32_t>(place), static_cast<uint32_t>(places.size())};
    VARVE_TRY(Store::create(*places[place], options));
  }
  return {};
}

Result<std::vector<Backend*>> order_places(const std::vector<Backend*>& places) {
  VARVE_ASSIGN(const std::vector<Place> found, look_at(places));
  VARVE_ASSIGN(std::vector<Backend*> members, members_by_position(found));
  if (members.empty()) {
    if (places.size() == 1) return places;
    for (Backend* const place : places) {
      VARVE_ASSIGN(const bool is_store, has_header(*place));
      if (is_store) {
        return Status::invalid_argument("one of these places is a store of its own", place->root(), Remedy::rebalance);
      }
    }
    return places;
  }
  for (const Place& place : found) {
    if (!place.member || place.member->position != 0) continue;
    if (place.member->count != places.size() || members.size() != places.size())
      return wrong_places(*place.member, places.size());
    return members;
  }
  return Status::invalid_argument("the first place of the store is not among these", "",
                                  "name all of its places, in any order");
}

Result<RebalanceReport> rebalance(const std::vector<Backend*>& places, const RebalanceOptions& options,
                                  ProgressSink& progress) {
  VARVE_ASSIGN(const std::vector<Place> found, look_at(places));
  VARVE_ASSIGN(const Growth growth, plan_growth(found));
  VARVE_TRY(grow(growth));
  SpreadBackend spread(growth.places);
  VARVE_ASSIGN(const std::unique_ptr<Store> store, Store::open(spread, nullptr, spread.spread()));
  VARVE_ASSIGN(const RebalanceReport report, ArenaMover(*store, growth.places, options, progress).run());
  if (growth.places.size() == 1) return report;
  // Each place has answered for more chunks until now: the new ones are told what is theirs.
  progress.phase("indexing");
  ChunkIndex::complete(*store, kIndexMemoryBytes).ignore("the next save does it");
  return report;
}

}  // namespace varve
