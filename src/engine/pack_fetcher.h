#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "codec/chooser.h"
#include "codec/codec.h"
#include "codec/found_numbers.h"
#include "core/sync.h"
#include "format/tree.h"
#include "store/chunk_index.h"
#include "store/evacuation.h"
#include "store/needs.h"
#include "store/store.h"
#include "store/stored_copies.h"

namespace varve {

/// Puts packs together from their chunks, wherever these are: in other packs, of other sets, in any of several stores.
/// Only for packs whose table is still to be read somewhere. One thread.
class ChunkFinder {
 public:
  /// The stores outlive it.
  explicit ChunkFinder(std::vector<const Store*> stores) : stores_(std::move(stores)) {}

  /// The pack, with the chunks at least that are needed, each checked against its score.
  /// not_found: no table of it, or a chunk that is nowhere.
  Result<EncodedPack> build(const Score& score, const SetNeeds::PackNeed& need);

 private:
  Result<PackMeta> find_table(const Score& score, const SetNeeds::PackNeed& need) const;
  Result<ByteVector> find_chunk(const ChunkEntry& chunk);
  /// Null if the store's index cannot be had.
  ChunkIndex::Cursor* cursor_of(const Store& store);

  struct Opened {
    std::unique_ptr<ChunkIndex> index;
    std::optional<ChunkIndex::Cursor> cursor;  ///< keeps the tables of packs that it has met
  };
  const std::vector<const Store*> stores_;
  std::map<const Store*, Opened> opened_;
};

/// What a leaf knows of the arrays that lie in packs: what an encoder needs to predict numbers along their dimensions.
/// A pack does not say it itself.
class PackShapes {
 public:
  /// `leaf` must outlive this.
  explicit PackShapes(const Leaf& leaf);
  /// The shape of a pack that holds all its `raw_bytes`. What the leaf does not know of it is without dimensions.
  PackShape shape_of(const Score& pack, uint64_t raw_bytes) const;

 private:
  struct Piece {
    uint64_t offset = 0, bytes = 0;  ///< in the pack
    uint64_t stream_offset = 0;
    const TreeFile* file = nullptr;
    uint32_t stream = 0;
  };
  static ElementType type_of(const Piece& piece);
  static Run run_of(const Piece& piece, const ElementType& type);

  std::unordered_map<Score, std::vector<Piece>, ScoreHash> pieces_;
};

/// What of a set's needs a store has already.
struct HeldFrames {
  std::unordered_set<Score, ScoreHash> packs;
  std::unordered_map<Score, ArenaId, ScoreHash> nodes;  ///< and where
  uint64_t pack_bytes = 0;                              ///< stored, of these packs
};

/// Looks through the arenas of `store`, but for those that are `excluded`, for what `needs` names. A writer may rely on
/// what is found if its lease was there before, and the arenas that it saw marked are excluded (COMMIT.md, "Writing a
/// set").
///
/// A pack counts if an arena whose index is whole lists it and, by its table, holds every chunk that is needed; with
/// `read_packs` only if these chunks decode and match their scores as well. A node counts if it is read and matches its
/// score. What cannot be read does not count, and is no failure.
Result<HeldFrames> find_held(const Store& store, const std::set<ArenaId>& excluded, const SetNeeds& needs,
                             bool read_packs, size_t thread_count, ProgressSink& progress);

/// A pack on its way to another store.
struct FetchedPack {
  /// As it lay in its arena; or, if `anew` is there, encoded anew.
  ArenaReader::RawFrame frame;
  FrameEntry entry;  ///< what `frame` is, by its own table
  std::optional<EncodedPack> anew;
  uint64_t recoded_from_bytes = 0;  ///< of the frame, if `anew` is a smaller one by another codec; else 0
  bool checked = false;             ///< every chunk that it holds matches its score
};

/// Takes packs out of a store, whole. Thread-safe.
class PackFetcher {
 public:
  /// `check_chunks`: see TransferOptions. With `recode`, packs that this policy makes smaller are encoded by it.
  PackFetcher(const Store& from, bool check_chunks, std::optional<CodecPolicy> recode)
      : from_(from), check_chunks_(check_chunks), recode_(std::move(recode)) {}

  /// A copy of the pack that holds all that is needed: any whole one, else one that is put together from several. Its
  /// frame has passed its checksums, and its table matches the pack's score.
  /// not_found, corrupt: there is none. unsupported: a pack that needs others, of a later version.
  Result<FetchedPack> fetch(const Score& score, const SetNeeds::PackNeed& need, const PackShape& shape);

 private:
  Result<FetchedPack> take_whole(const StoredCopy& place, const Score& score, const PackShape& shape);
  /// What is lacking or damaged in one copy may be whole in another.
  Result<FetchedPack> put_together(const Score& score, const SetNeeds::PackNeed& need);
  Status recode(FetchedPack& fetched, Pack& pack, const PackShape& shape);
  std::shared_ptr<Encoder> encoder_for(const std::string& class_key);

  const Store& from_;
  const bool check_chunks_;
  const std::optional<CodecPolicy> recode_;
  const std::shared_ptr<FoundNumbers> found_ = std::make_shared<FoundNumbers>();  ///< for recode_
  Mutex mutex_;
  std::map<std::string, std::shared_ptr<Encoder>> encoders_ VARVE_GUARDED_BY(mutex_);
};

}  // namespace varve
