#pragma once

#include <array>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "arena/arena_reader.h"
#include "core/file_system.h"
#include "core/sync.h"
#include "store/arena_directory.h"
#include "store/arena_name.h"
#include "store/arena_spread.h"
#include "store/spread_member.h"
#include "store/tree.h"

namespace varve {

class ChunkLookup;

struct CreateStoreOptions {
  ScoreAlgorithm algorithm = ScoreFunction::preferred().algorithm();
  size_t score_bytes = 32;
  std::optional<UniqueId> id{};          ///< a new one, unless said
  std::optional<SpreadMember> member{};  ///< of a store over several places (spread.h)
};

/// A store in one directory (FORMAT.md, "The folder of a store"): its header, and its arenas. The catalog of sets
/// (catalog.h), writers (writer_lease.h) and the index of known chunks (chunk_index.h) work on it. Thread-safe.
class Store {
 public:
  /// Makes `path` a store; creates the last component of `path` if need be. already_exists if it is one, or holds
  /// anything.
  static Status create(FileSystem& fs, const std::string& path, const CreateStoreOptions& options = {});
  /// `chunks`: who answers for an index of chunks that is not to be fetched (chunk_lookup.h), and outlives the store;
  /// null: the index in the store is looked into. `spread`: how `fs` spreads the arenas; invalid_argument if the store
  /// has another number of places.
  static Result<std::unique_ptr<Store>> open(FileSystem& fs, const std::string& path, ChunkLookup* chunks = nullptr,
                                             ArenaSpread spread = {});

  /// The folders that every store has from its creation on.
  static constexpr std::array<std::string_view, 5> kFolders{"sets", "arenas", "writers", "condemned", "index"};

  /// Makes the name of the store's folder durable, so far as this user may.
  static Status sync_name(FileSystem& fs, const std::string& path);
  static std::string header_path(const std::string& path) { return join_path(path, "varve.store"); }
  /// From a header as it lies in `path`, which is checked.
  static Result<UniqueId> id_of_header(ByteSpan header, const std::string& path);

  /// Makes the store's own name and its header's durable, once: who made it may have been killed before that. For who
  /// writes.
  Status make_durable() const;

  FileSystem& fs() const { return fs_; }
  const std::string& path() const { return path_; }
  ChunkLookup* chunk_lookup() const { return chunks_; }
  const UniqueId& id() const { return id_; }
  const ScoreFunction& score() const { return score_; }
  const ArenaSpread& spread() const { return spread_; }
  ArenaHeader arena_header(const ArenaId& arena) const;

  std::string sets_path() const { return join_path(path_, "sets"); }
  std::string parts_path() const { return join_path(path_, "parts"); }  ///< of sets (set_part.h); may be missing
  std::string arenas_path() const { return join_path(path_, "arenas"); }
  std::string writers_path() const { return join_path(path_, "writers"); }
  std::string condemned_path() const { return join_path(path_, "condemned"); }
  /// Of a store over several places: of the place of this number, as SpreadFileSystem names it.
  std::string index_path(uint32_t place = 0) const { return join_path(path_, index_folder_name(place)); }
  std::string arena_path(const ArenaId& arena) const { return join_path(arenas_path(), arena_file_name(arena)); }
  /// The same for messages (FileSystem::shown_path).
  std::string arena_name(const ArenaId& arena) const { return fs_.shown_path(arena_path(arena)); }
  std::string part_path(const ArenaId& arena) const { return join_path(arenas_path(), arena.hex() + ".part"); }

  /// The sealed arenas that are there now, in the order of their ids.
  Result<std::vector<ArenaId>> list_arenas() const;
  /// The arenas that a prune has marked: no new reference may be made into them.
  Result<std::vector<ArenaId>> list_condemned() const;

  /// Opens a sealed arena, or takes it from the cache.
  Result<std::shared_ptr<ArenaReader>> arena(const ArenaId& id) const;
  /// Forgets cached readers, so that removed arenas give back their space.
  void drop_arena_cache() const;

  struct Place {
    std::shared_ptr<ArenaReader> arena;
    size_t ordinal = 0;
  };
  /// All places of a pack, the hinted arena first; the others are looked for only if that lacks it, or if `all`. Empty:
  /// no arena has it.
  Result<std::vector<Place>> find_pack(const Score& score, const ArenaId& hint, bool all = false) const;

  /// The arenas that are there now and list any of these packs and nodes, or may list more than can be told; by their
  /// ids. Opens only arenas that were not seen before.
  Result<std::vector<ArenaId>> arenas_listing(std::span<const Score> scores) const;

  /// A pack in which all of `ranges` are there, verified: from one arena, or put together from all that have a copy.
  /// corrupt if no arena has the pack, or some chunk is whole in no copy.
  Result<Pack> read_pack(const PackLink& link, std::span<const Extent> ranges) const;
  /// Whether an arena lists the pack; corrupt if none does.
  Status check_pack_is_there(const PackLink& link) const;
  /// The content of a tree node, as read_pack() does.
  Result<ByteVector> read_node(const Score& score, const ArenaId& hint) const;
  Result<Root> read_root(const Score& score, const ArenaId& hint) const;
  Result<Leaf> read_leaf(const LeafLink& link) const;

 private:
  Store(FileSystem& fs, std::string path, const UniqueId& id, const ScoreFunction& score, ChunkLookup* chunks,
        ArenaSpread spread)
      : fs_(fs), path_(std::move(path)), id_(id), score_(score), chunks_(chunks), spread_(spread) {}
  template <class Find>
  Result<std::vector<Place>> find(const Score& score, const ArenaId& hint, bool all, const Find& find_in) const;

  FileSystem& fs_;
  const std::string path_;
  const UniqueId id_;
  const ScoreFunction score_;
  ChunkLookup* const chunks_;
  const ArenaSpread spread_;

  struct CachedArena {
    std::shared_ptr<ArenaReader> reader;
    std::list<ArenaId>::iterator used;
  };
  mutable Mutex durable_mutex_;  // guards the next
  mutable bool is_durable_ = false;
  mutable Mutex mutex_;  // guards the cache
  mutable uint64_t cache_generation_ = 0;
  mutable std::map<ArenaId, CachedArena> arenas_;
  mutable std::list<ArenaId> recently_used_;

  mutable ArenaDirectory directory_;
};

}  // namespace varve
