#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "core/file_system.h"
#include "core/sync.h"
#include "store/arena_spread.h"

namespace varve {

/// A folder on some file system that is one place of a store.
struct SpreadPlace {
  FileSystem* fs = nullptr;
  std::string path;
};

/// Makes several places, such as servers, one file system for one store: each arena is at the place of its id's range
/// (arena_spread.h); each place's folder of index runs is there under a name of its own (index_folder_name());
/// everything else is at the first place. An arena that is not where it belongs, since it was written when there were
/// fewer places, is looked for at all, and then remembered. Thread-safe.
class SpreadFileSystem final : public FileSystem {
 public:
  /// The places in their order, which all who use the store must agree on; at least one. Their file systems outlive it.
  explicit SpreadFileSystem(std::vector<SpreadPlace> places);

  /// What paths begin with: it stands for the folders of all places.
  const std::string& root() const { return root_; }

  const ArenaSpread& spread() const { return spread_; }

  Result<std::unique_ptr<File>> open_read(const std::string& path) override;
  Result<std::unique_ptr<File>> create(const std::string& path, CreateOptions options = {}) override;
  Status create_directory(const std::string& path) override;
  Status rename(const std::string& from, const std::string& to) override;
  Status rename_no_replace(const std::string& from, const std::string& to) override;
  /// An arena goes from all places.
  Status remove(const std::string& path) override;
  Status remove_directory(const std::string& path) override;
  Status sync_directory(const std::string& path) override;
  Result<std::unique_ptr<PowerWatch>> watch_power() override;
  Status touch(const std::string& path) override;
  /// Of the arenas' folder: what is at any place, each name once.
  Result<std::vector<DirectoryEntry>> list(const std::string& path) override;
  Result<FileStatus> stat(const std::string& path) override;
  /// Of the arenas' folder: of all places together, as if each had a disk of its own.
  Result<uint64_t> free_bytes(const std::string& path) override;
  /// At the place where it was last seen, else where it belongs.
  std::string shown_path(const std::string& path) const override;

 private:
  /// Where a path is, and what it is called there.
  struct Home {
    uint32_t place = 0;
    std::string path;
    bool is_arena = false;  ///< so that it may be elsewhere
  };
  Home home_of(const std::string& path) const;
  /// `path` as a place knows it.
  std::string at(const SpreadPlace& place, const std::string& path) const;
  FileSystem& fs_of(const Home& home) const { return *places_[home.place].fs; }
  /// Asks the place where an arena was last seen, then the place where `path` belongs, and then, for an arena, the
  /// others.
  template <class T, class Question>
  Result<T> ask(const std::string& path, const Question& question);
  uint32_t last_place_of(const std::string& path, const Home& home) const;
  void remember(const std::string& path, const Home& home, uint32_t place);
  /// Of a folder that every place has: at the same time, as each waits for its own disk. `act` gets the place's number.
  template <class Act>
  Status at_all_places(const Act& act) const;

  const std::vector<SpreadPlace> places_;
  const std::string root_;
  const ArenaSpread spread_;
  mutable Mutex mutex_;                             ///< guards away_
  std::unordered_map<std::string, uint32_t> away_;  ///< by name: where those arenas are that are not at their home
};

}  // namespace varve
