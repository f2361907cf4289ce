#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "core/sync.h"
#include "core/unique_id.h"
#include "format/frame.h"
#include "format/set_record.h"
#include "format/store_folder.h"
#include "format/tree.h"
#include "store/arena_reader.h"

namespace varve {

/// Which place of a spread store the backend's root is; nothing if it is none. corrupt if that makes no sense.
Result<std::optional<SpreadMember>> read_spread_member(Backend& backend);
/// Says which place it is, durably, whatever was said before: a store has grown.
Status write_spread_member(Backend& backend, const SpreadMember& member);

/// Why no store can be opened in a place that has no header. corrupt: there is one that has lost it. not_found: there
/// is none.
Status missing_store(Backend& backend);

class Store;

/// Which arenas list a pack or a node, for look-ups whose hint does not help: after a prune has moved it, or in a store
/// to which a set was copied, where hints name the arenas of another store. Sixteen bytes for each pack and node of the
/// store, in memory, once it is needed. It only says where to look: what is found is opened by name and checked there.
/// Thread-safe.
class ArenaDirectory {
 public:
  /// The arenas that list this score, as far as was seen, and those that may list more than could be read of them; by
  /// their ids.
  std::vector<ArenaId> candidates(const Score& score) const;

  /// How often the arenas were gone through, or begun to be.
  uint64_t rounds() const;
  /// Takes in the arenas that have come, and forgets those that are gone; unless somebody has done so who began after
  /// this number of rounds(). Only one thread at a time goes through the arenas; others wait for it.
  Status refresh(const Store& store, uint64_t rounds_seen);

 private:
  struct Entry {
    uint64_t prefix = 0;
    uint32_t arena = 0;  ///< ordinal in arenas_
  };
  void forget_gone(const std::set<ArenaId>& present) VARVE_REQUIRES(mutex_);
  void take_in(const std::vector<ArenaId>& arenas, std::vector<Entry> entries, std::set<ArenaId> uncertain);

  Mutex refresh_mutex_ VARVE_ACQUIRED_BEFORE(mutex_);         ///< held while arenas are gone through
  uint64_t done_round_ VARVE_GUARDED_BY(refresh_mutex_) = 0;  ///< the last one that was completed
  mutable Mutex mutex_;
  uint64_t rounds_ VARVE_GUARDED_BY(mutex_) = 0;
  std::vector<ArenaId> arenas_ VARVE_GUARDED_BY(mutex_);
  std::vector<Entry> entries_ VARVE_GUARDED_BY(mutex_);   ///< by prefix
  std::set<ArenaId> uncertain_ VARVE_GUARDED_BY(mutex_);  ///< could not be opened, or not by their index
};

/// Makes the name of the store's own folder durable, so far as this user may.
Status settle_root(Backend& backend);

class ChunkLookup;

struct CreateStoreOptions {
  ScoreAlgorithm algorithm = ScoreFunction::preferred().algorithm();
  size_t score_bytes = 32;
  std::optional<UniqueId> id{};          ///< a new one, unless said
  std::optional<SpreadMember> member{};  ///< of a store over several places (spread.h)
};

/// A store in one directory (FORMAT.md, "The folder of a store"): its header, and its arenas. The catalog of sets
/// (catalog.h), writers (commit.h) and the index of known chunks (chunk_index.h) work on it. Thread-safe.
class Store {
 public:
  /// Makes the backend's root a store; in a folder, creates the last component of its path if need be. already_exists
  /// if it is one, or holds anything.
  static Status create(Backend& backend, const CreateStoreOptions& options = {});
  /// The same of a folder.
  static Status create(FileSystem& fs, const std::string& path, const CreateStoreOptions& options = {});
  /// `chunks`: who answers for an index of chunks that is not to be fetched (chunk_index.h), and outlives the store;
  /// null: the index in the store is looked into. `spread`: how `fs` spreads the arenas; invalid_argument if the store
  /// has another number of places.
  static Result<std::unique_ptr<Store>> open(FileSystem& fs, const std::string& path, ChunkLookup* chunks = nullptr,
                                             ArenaSpread spread = {});
  /// The same over any backend, which outlives the store.
  static Result<std::unique_ptr<Store>> open(Backend& backend, ChunkLookup* chunks = nullptr, ArenaSpread spread = {});

  /// settle_root() of a folder, of a store or not.
  static Status sync_name(FileSystem& fs, const std::string& path);
  static std::string header_path(const std::string& path) { return join_path(path, "varve.store"); }
  /// From a header as it lies in `path`, which is checked.
  static Result<UniqueId> id_of_header(ByteSpan header, const std::string& path);

  /// Makes the store's own name and its header's durable, once: who made it may have been killed before that. For who
  /// writes.
  Status make_durable() const;

  /// What has its objects.
  Backend& backend() const { return *backend_; }
  const std::string& path() const { return path_; }
  ChunkLookup* chunk_lookup() const { return chunks_; }
  const UniqueId& id() const { return id_; }
  const ScoreFunction& score() const { return score_; }
  const ArenaSpread& spread() const { return spread_; }
  ArenaHeader arena_header(const ArenaId& arena) const;

  std::string sets_path() const { return join_path(path_, "sets"); }
  std::string parts_path() const { return join_path(path_, "parts"); }  ///< of sets (commit.h); may be missing
  std::string arenas_path() const { return join_path(path_, "arenas"); }
  std::string writers_path() const { return join_path(path_, "writers"); }
  std::string condemned_path() const { return join_path(path_, "condemned"); }
  /// In a store over several places: that of the place of this number, as SpreadBackend names it.
  std::string index_path(uint32_t place = 0) const { return join_path(path_, index_folder_name(place)); }
  std::string arena_path(const ArenaId& arena) const { return join_path(arenas_path(), arena_file_name(arena)); }
  /// The same for messages.
  std::string arena_name(const ArenaId& arena) const { return backend_->shown_path(arena_path(arena)); }

  /// The sealed arenas that are there now, in the order of their ids.
  Result<std::vector<ArenaId>> list_arenas() const;
  /// The same, and how many bytes each has: 0 if it cannot be looked at.
  Result<std::map<ArenaId, uint64_t>> list_arena_sizes() const;
  /// Of all sealed arenas together, but for those that cannot be looked at.
  Result<uint64_t> arena_bytes() const;
  /// The arenas that a prune has marked: no new reference may be made into them.
  Result<std::vector<ArenaId>> list_condemned() const;

  /// Opens a sealed arena, or takes it from the cache.
  Result<std::shared_ptr<ArenaReader>> arena(const ArenaId& id) const;
  /// Calls `visit` with each of these arenas in turn, or with why it cannot be opened; several are opened at the same
  /// time where that is worth it.
  Status each_arena(std::span<const ArenaId> ids,
                    const std::function<Status(const ArenaId&, Result<std::shared_ptr<ArenaReader>>)>& visit) const;
  /// Opens the arenas of a record's roots that way. One that cannot be opened comes out when it is read.
  void open_ahead(const SetRecord& record) const;
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
  Store(std::unique_ptr<Backend> own, Backend& backend, const UniqueId& id, const ScoreFunction& score,
        ChunkLookup* chunks, ArenaSpread spread)
      : own_(std::move(own)),
        backend_(&backend),
        path_(backend.root()),
        id_(id),
        score_(score),
        chunks_(chunks),
        spread_(spread) {}
  static Result<std::unique_ptr<Store>> open(std::unique_ptr<Backend> own, Backend& backend, ChunkLookup* chunks,
                                             ArenaSpread spread);
  template <class Find>
  Result<std::vector<Place>> find(const Score& score, const ArenaId& hint, bool all, const Find& find_in) const;

  const std::unique_ptr<Backend> own_;  ///< null: somebody else's
  Backend* const backend_;
  const std::string path_;
  const UniqueId id_;
  const ScoreFunction score_;
  ChunkLookup* const chunks_;
  const ArenaSpread spread_;

  struct CachedArena {
    std::shared_ptr<ArenaReader> reader;
    std::list<ArenaId>::iterator used;
  };
  mutable Mutex durable_mutex_;
  mutable bool is_durable_ VARVE_GUARDED_BY(durable_mutex_) = false;
  mutable Mutex mutex_;
  mutable uint64_t cache_generation_ VARVE_GUARDED_BY(mutex_) = 0;
  mutable std::map<ArenaId, CachedArena> arenas_ VARVE_GUARDED_BY(mutex_);
  mutable std::list<ArenaId> recently_used_ VARVE_GUARDED_BY(mutex_);

  mutable ArenaDirectory directory_;
  mutable ConditionVariable opened_;
  mutable std::set<ArenaId> opening_ VARVE_GUARDED_BY(mutex_);  ///< by some thread just now
};

}  // namespace varve
