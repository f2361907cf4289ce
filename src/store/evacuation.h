#pragma once

#include <map>
#include <memory>
#include <set>
#include <vector>

#include "core/progress.h"
#include "format/pack.h"
#include "store/needs.h"
#include "store/spread_writer.h"

namespace varve {

/// A pack as a frame is written of it.
struct EncodedPack {
  PackMeta meta;
  ByteVector body;
};

/// The pack `table` with those chunks only that `held` says, whose bytes one after another are `raw`: a shorter body,
/// the same table, so the same score. It is encoded by the chain that `table` names, or stored if that gains nothing.
/// unsupported: this build lacks a codec of the chain.
Result<EncodedPack> encode_partial_pack(PackMeta table, const std::vector<bool>& held, ByteSpan raw);

/// The same of a pack at hand, with the chunks that lie in the (joined) ranges; corrupt if one of them is missing or
/// damaged.
Result<EncodedPack> partial_pack(Pack& pack, const std::vector<Extent>& ranges);

/// The bytes of the chunks that are `wanted`, one after another, each checked; corrupt likewise.
Result<ByteVector> bytes_of_chunks(Pack& pack, const std::vector<bool>& wanted);

/// The shape of what a pack of this class holds, if chunks are left out: its arrays have gaps.
PackShape flat_shape(const std::string& class_key, uint64_t bytes);

/// Brings what sets need out of arenas that are to be removed, some at a time. An arena may go only when every pack and
/// node that is needed, and that it has or might have, was found whole in an arena that stays, or was copied into a new
/// one.
class Evacuation {
 public:
  Evacuation(const Store& store, const Needs& needs, ProgressSink& progress)
      : store_(store), needs_(needs), progress_(progress) {}

  /// Sees what is in the arenas that stay: copies in any marked arena do not count, whoever marked it. All that is to
  /// be emptied is marked. Comes before all else.
  Status find_homes();

  /// Those of `victims` that may go as they are: all that is needed of them was read whole elsewhere. Writes nothing.
  std::set<ArenaId> held_elsewhere(const std::set<ArenaId>& victims);

  /// Brings what is needed of `victims` into a new arena (one at each place), sealed and durable. busy if another prune
  /// has taken this one for dead meanwhile.
  Status empty(const std::vector<ArenaId>& victims);

  /// Whether a victim that was emptied must stay: something that is needed is in it, or may be, and could not be
  /// brought to safety.
  bool must_stay(const ArenaId& victim);
  uint64_t copied_packs() const { return copied_packs_; }

 private:
  Status copy_what_is_needed(const std::vector<ArenaId>& victims);
  Status empty(const ArenaReader& arena);
  bool has_whole_home(const Score& pack, const std::vector<Extent>& ranges);
  bool has_whole_home(const Score& node);
  bool all_has_whole_home(const ArenaReader& arena);
  bool holds_unsafe(const std::vector<FrameEntry>& entries) const;
  bool everything_is_safe();
  Result<SpreadWriter*> writer();
  Status copy_pack(const ArenaReader& arena, size_t ordinal, const std::vector<Extent>& ranges);
  Status copy_what_it_holds(const ArenaReader& arena, size_t ordinal, const std::vector<Extent>& ranges);
  Status copy_of_all_copies(const PackLink& pack, const std::vector<Extent>& ranges);

  const Store& store_;
  const Needs& needs_;
  ProgressSink& progress_;
  /// The arenas that stay and have needed packs and nodes. Not where in them: one that is opened again, and whose index
  /// cannot be read this time, lists them in another order.
  std::multimap<Score, ArenaId> pack_homes_, node_homes_;
  std::set<Score> safe_;  ///< those of which a home was read and found whole, or that were copied
  std::unique_ptr<WriterLease> lease_;
  std::unique_ptr<SpreadWriter> writer_;  ///< none until something is copied
  uint32_t writer_count_ = 0;
  uint64_t copied_packs_ = 0;
};

}  // namespace varve
