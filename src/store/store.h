#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
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
#include "store/arena_cache.h"

namespace varve {

/// Which place of a spread store the backend's root is; nothing if it is none. corrupt if that makes no sense.
Result<std::optional<SpreadMember>> read_spread_member(Backend& backend);
/// Says which place it is, durably, whatever was said before: a store has grown.
Status write_spread_member(Backend& backend, const SpreadMember& member);

/// Why no store can be opened in a place that has no header. corrupt: there is one that has lost it. not_found: there
/// is none.
Status missing_store(Backend& backend);

/// Makes the name of the store's own folder durable, so far as this user may.
Status settle_root(Backend& backend);
/// The same of a folder, of a store or not.
Status settle_root(FileSystem& fs, const std::string& path);

/// Where the header of the store at `path` is.
std::string store_header_path(const std::string& path);

class ChunkLookup;
class FoundDamage;

struct CreateStoreOptions {
  ScoreAlgorithm algorithm = ScoreFunction::preferred().algorithm();
  size_t score_bytes = 32;
  std::optional<UniqueId> id{};          ///< a new one, unless said
  std::optional<SpreadMember> member{};  ///< of a store over several places (spread.h)
};

/// A store in one directory (FORMAT.md, "The folder of a store"): its header, and its arenas. The catalog of sets
/// (catalog.h), what the arenas hold (stored_copies.h), writers (commit.h) and the index of known chunks
/// (chunk_index.h) work on it. Thread-safe.
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

  /// Makes the store's own name and its header's durable, once: who made it may have been killed before that. For who
  /// writes.
  Status make_durable() const;
  /// Somebody has done that who says so.
  void note_durable() const;
  /// Makes the names of its folders durable, once: for who has put something into one that may be new.
  Status make_folders_durable() const;

  /// io_error: another store is in its place. Somebody has removed it and made a new one, or mounted one over it.
  Status check_identity() const;
  /// invalid_argument: it is spread over another number of places by now than it was opened with.
  Status check_spread() const;

  /// What has its objects.
  Backend& backend() const { return *backend_; }
  const std::string& path() const { return path_; }
  ChunkLookup* chunk_lookup() const { return chunks_; }
  const UniqueId& id() const { return id_; }
  const ScoreFunction& score() const { return score_; }
  const ArenaSpread& spread() const { return spread_; }

  std::string sets_path() const { return join_path(path_, "sets"); }
  std::string arenas_path() const { return join_path(path_, "arenas"); }
  std::string writers_path() const { return join_path(path_, "writers"); }
  std::string runs_path() const { return join_path(path_, "runs"); }
  std::string condemned_path() const { return join_path(path_, "condemned"); }
  /// In a store over several places: that of the place of this number, as SpreadBackend names it.
  std::string index_path(uint32_t place = 0) const { return join_path(path_, index_folder_name(place)); }
  std::string arena_path(const ArenaId& arena) const { return join_path(arenas_path(), arena_file_name(arena)); }

  /// The sealed arenas that are there now, in the order of their ids.
  Result<std::vector<ArenaId>> list_arenas() const;
  /// Opens a sealed arena, or takes it from the cache.
  Result<std::shared_ptr<ArenaReader>> arena(const ArenaId& id) const;
  /// Forgets cached readers, so that removed arenas give back their space.
  void drop_arena_cache() const { arenas_.drop(); }
  /// Which arenas list what, as far as was seen.
  ArenaDirectory& directory() const { return directory_; }

  /// Has damage noted that reading comes across (condemn.h), which outlives the store; before anything is read.
  void watch_damage(FoundDamage& found) { found_damage_ = &found; }
  /// Null: nobody asks.
  FoundDamage* found_damage() const { return found_damage_; }

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

  const std::unique_ptr<Backend> own_;  ///< null: somebody else's
  Backend* const backend_;
  const std::string path_;
  const UniqueId id_;
  const ScoreFunction score_;
  ChunkLookup* const chunks_;
  const ArenaSpread spread_;

  mutable Mutex durable_mutex_;
  mutable bool is_durable_ VARVE_GUARDED_BY(durable_mutex_) = false;
  mutable bool has_durable_folders_ VARVE_GUARDED_BY(durable_mutex_) = false;
  mutable ArenaCache arenas_;
  mutable ArenaDirectory directory_;
  FoundDamage* found_damage_ = nullptr;
};

/// The header that an arena of this store has.
ArenaHeader arena_header(const Store& store, const ArenaId& arena);
/// What an arena is called in messages.
std::string arena_name(const Store& store, const ArenaId& arena);

/// The sealed arenas that are there now, and how many bytes each has: 0 if it cannot be looked at.
Result<std::map<ArenaId, uint64_t>> list_arena_sizes(const Store& store);
/// Of all sealed arenas together, but for those that cannot be looked at.
Result<uint64_t> arena_bytes(const Store& store);

/// The arenas that a prune has marked: no new reference may be made into them.
Result<std::vector<ArenaId>> list_condemned(const Store& store);

/// Calls `visit` with each of these arenas in turn, or with why it cannot be opened; several are opened at the same
/// time where that is worth it.
Status each_arena(const Store& store, std::span<const ArenaId> ids,
                  const std::function<Status(const ArenaId&, Result<std::shared_ptr<ArenaReader>>)>& visit);
/// Opens the arenas of a record's roots that way. One that cannot be opened comes out when it is read.
void open_ahead(const Store& store, const SetRecord& record);

}  // namespace varve
