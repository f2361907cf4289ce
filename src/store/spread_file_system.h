#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/file_system.h"
#include "core/sync.h"
#include "store/arena_writer.h"
#include "store/chunk_index.h"
#include "store/commit.h"
#include "store/store.h"

namespace varve {

/// The new arenas that one writer appends to at the same time: one for each place of the store's spread
/// (store.h), so that each pack and node goes where its score belongs. Most stores have one place. An arena is
/// made when something comes for it. One caller at a time; as with an ArenaWriter, after any failure all of it is lost:
/// drop it.
class SpreadWriter {
 public:
  /// `ordinal` tells the writers under one lease apart. The store and the lease outlive it.
  SpreadWriter(const Store& store, const WriterLease& lease, uint32_t ordinal, ArenaWriterOptions options);

  /// Where a pack was put.
  struct Place {
    uint32_t arena = 0;    ///< ordinal in arenas()
    uint32_t ordinal = 0;  ///< among the arena's packs
  };
  Result<Place> append_pack(const PackMeta& meta, ByteSpan body);
  Status append_node(const Score& score, ByteSpan content);
  /// Copies a frame from another arena as it is.
  Status append_copy(FrameKind kind, const FrameEntry& entry, ByteSpan meta, ByteSpan body);

  /// Seals all arenas. Their names are durable once their directory is synced.
  Status seal();

  /// The arena that has, or would get, what has this score.
  const ArenaId& home(const Score& score) const { return ids_[store_.spread().place_of(score)]; }
  /// Those that were made, in the order of their making.
  std::vector<ArenaId> arenas() const;
  uint64_t bytes() const;

 private:
  struct Open {
    uint32_t ordinal = 0;  ///< in made_
    std::unique_ptr<ArenaWriter> writer;
  };
  Result<Open*> arena_of(const Score& score);

  const Store& store_;
  const ArenaWriterOptions options_;
  std::vector<ArenaId> ids_;    ///< by place
  std::vector<Open> by_place_;  ///< without a writer until something comes
  std::vector<uint32_t> made_;  ///< places, in the order of the making
};

/// A folder on some file system that is one place of a store.
struct SpreadPlace {
  FileSystem* fs = nullptr;
  std::string path;
};

/// Makes several places, such as servers, one file system for one store: each arena is at the place of its id's range
/// (store.h); each place's folder of index runs is there under a name of its own (index_folder_name());
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
  /// The arenas' folder: what is at any place, each name once.
  Result<std::vector<DirectoryEntry>> list(const std::string& path) override;
  Result<FileStatus> stat(const std::string& path) override;
  /// The arenas' folder: all places together, as if each had a disk of its own.
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
  /// For a folder that every place has: acts on all at the same time, as each waits for its own disk. `act` gets the
  /// place's number.
  template <class Act>
  Status at_all_places(const Act& act) const;

  const std::vector<SpreadPlace> places_;
  const std::string root_;
  const ArenaSpread spread_;
  mutable Mutex mutex_;
  /// By name: where those arenas are that are not at their home.
  std::unordered_map<std::string, uint32_t> away_ VARVE_GUARDED_BY(mutex_);
};

class ThreadPool;

/// Asks the indexes of a store's places, for each chunk that of the place whose range its score is in (ArenaSpread);
/// all at the same time. Thread-safe.
class SpreadChunkLookup final : public ChunkLookup {
 public:
  /// By place; they outlive it.
  explicit SpreadChunkLookup(std::vector<ChunkLookup*> places);
  ~SpreadChunkLookup() override;
  Status find(std::span<const uint64_t> prefixes, std::span<uint32_t> counts,
              std::vector<ChunkCandidate>& candidates) override;

 private:
  struct Question;
  Status ask(std::vector<Question>& questions) const;

  const std::vector<ChunkLookup*> places_;
  const ArenaSpread spread_;
  const std::unique_ptr<ThreadPool> pool_;
};

}  // namespace varve
