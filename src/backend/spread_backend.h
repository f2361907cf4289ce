#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "core/sync.h"
#include "format/store_folder.h"

namespace varve {

/// The places of a spread store in their order, and which of them has a name. Each arena is at the place of its id's
/// range (ArenaSpread), or at any if it was written when there were fewer places; each place's folder of index runs is
/// there under a name of its own (index_folder_name()); everything else, and so each record, is at the first place.
/// Thread-safe.
class SpreadPlaces {
 public:
  /// Where a name is, and what it is called there.
  struct Home {
    uint32_t place = 0;
    std::string name;
    bool is_arena = false;  ///< so that it may be elsewhere
  };
  explicit SpreadPlaces(std::vector<Backend*> places);

  const std::string& root() const { return root_; }
  /// The folder that is at all places.
  const std::string& arenas() const { return arenas_; }
  const ArenaSpread& spread() const { return spread_; }

  Backend& operator[](size_t place) const { return *places_[place]; }
  Backend& at(const Home& home) const { return *places_[home.place]; }
  Home home_of(const std::string& name) const;
  /// `name` as a place knows it.
  std::string name_at(size_t place, const std::string& name) const;

  /// Has all places act on the arenas' folder at the same time, as each waits for its own disk. `act` gets a place, and
  /// what the folder is called there.
  template <class Act>
  Status at_all(const Act& act) const;
  /// The same, for what they answer.
  template <class T, class Ask>
  Result<std::vector<T>> ask_all(const Ask& ask) const;

 private:
  const std::vector<Backend*> places_;
  const std::string root_, arenas_;
  const ArenaSpread spread_;
};

/// Where those arenas were last seen that are not at the place of their range. Thread-safe.
class StrayArenas {
 public:
  uint32_t place_of(const std::string& name, const SpreadPlaces::Home& home) const;
  void remember(const std::string& name, const SpreadPlaces::Home& home, uint32_t place);

 private:
  mutable Mutex mutex_;
  std::unordered_map<std::string, uint32_t> places_ VARVE_GUARDED_BY(mutex_);  ///< by file name
};

/// Makes several places, such as servers, one backend for one store (SpreadPlaces). An arena that is not where it
/// belongs is looked for at all places, and then remembered. Thread-safe.
class SpreadBackend final : public Backend {
 public:
  /// The places in their order, which all who use the store must agree on; at least one. They outlive it.
  explicit SpreadBackend(std::vector<Backend*> places) : places_(std::move(places)) {}

  /// That of the first place: it stands for those of all places.
  const std::string& root() const override { return places_.root(); }
  const ArenaSpread& spread() const { return places_.spread(); }
  Records& records() override { return places_[0].records(); }

  Result<std::unique_ptr<ObjectWriter>> put(const std::string& name, PutOptions options = {}) override;
  Result<std::unique_ptr<RangeReader>> open(const std::string& name) override;
  /// The arenas' folder: what is at any place, each name once.
  Result<std::vector<DirectoryEntry>> list(const std::string& folder) override;
  Result<std::vector<std::string>> unfinished(const std::string& folder) override;
  Result<FileStatus> status(const std::string& name) override;
  Result<std::map<std::string, Result<FileStatus>>> list_with_status(const std::string& folder) override;
  /// An arena goes from all places.
  Status remove(const std::string& name) override;
  Status settle(const std::string& folder) override;

  Result<std::unique_ptr<PowerWatch>> watch_power() override;
  /// The arenas' folder: as much as fits if it goes to all places alike, as arenas do by their ids, each of which has a
  /// disk of its own: so much as the fullest of them has, times their number.
  Result<uint64_t> free_bytes(const std::string& folder) override;
  /// At the place where it was last seen, else where it belongs.
  std::string shown_path(const std::string& name) const override;
  Status make_folder(const std::string& folder) override;
  Status remove_folder(const std::string& folder) override;

 private:
  /// Asks the place where an arena was last seen, then the place where `name` belongs, and then, for an arena, the
  /// others.
  template <class T, class Question>
  Result<T> ask(const std::string& name, const Question& question);
  /// Notes that an arena was listed by a place; the one where it belongs counts most. Whether it is to be taken from
  /// this list.
  bool note_listed(const std::string& name, uint32_t place, bool is_new);

  const SpreadPlaces places_;
  StrayArenas stray_;
};

}  // namespace varve
