#pragma once

#include <map>
#include <memory>
#include <set>

#include "core/progress.h"
#include "store/needs.h"
#include "store/spread_writer.h"

namespace varve {

/// Brings what sets need out of arenas that are to be removed. An arena may go only when every pack and node that is
/// needed, and that it has or might have, was found whole in an arena that stays, or was copied into a new one.
class Evacuation {
 public:
  Evacuation(const Store& store, const Needs& needs, ProgressSink& progress)
      : store_(store), needs_(needs), progress_(progress) {}

  /// Empties `victims`, which are all marked, into new sealed and durable arenas. Copies in any marked arena do not
  /// count, whoever marked it.
  Status run(const std::set<ArenaId>& victims);

  /// The victims that must stay: something that is needed is in them, or may be, and could not be brought to safety.
  const std::set<ArenaId>& staying() const { return staying_; }
  uint64_t copied_packs() const { return copied_packs_; }

 private:
  Status find_homes();
  Status empty(const ArenaReader& arena);
  bool has_whole_home(const Score& pack, const std::vector<Extent>& ranges);
  bool has_whole_home(const Score& node);
  Status copy_pack(const ArenaReader& arena, size_t ordinal, const std::vector<Extent>& ranges);
  void find_staying(const std::set<ArenaId>& victims);
  bool everything_is_safe();

  const Store& store_;
  const Needs& needs_;
  ProgressSink& progress_;
  /// The arenas that stay and have needed packs and nodes. Not where in them: one that is opened again, and whose index
  /// cannot be read this time, lists them in another order.
  std::multimap<Score, ArenaId> pack_homes_, node_homes_;
  std::set<Score> safe_;  ///< those of which a home was read and found whole, or that were copied
  std::unique_ptr<WriterLease> lease_;
  std::unique_ptr<SpreadWriter> writer_;
  std::set<ArenaId> staying_;
  uint64_t copied_packs_ = 0;
};

}  // namespace varve
