#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/progress.h"
#include "store/catalog.h"
#include "store/store.h"
#include "varve/communicator.h"

namespace varve {

/// Something that is wrong in a store, and whom it hurts.
struct Damage {
  Status what;  ///< with the file and the place
  std::vector<std::string>
      affected_sets;  ///< "job@3", "job@4 (part 1 of 2)", sorted; empty: no set needs it, or it heals
  std::vector<std::string> affected_files;  ///< "job@3:path", sorted, at most kAffectedFilesMax
  bool disposable = false;                  ///< part of the index, which the next save rebuilds
  std::optional<ArenaId> arena{};           ///< in which it is, if it is in one
};

struct VerifyReport {
  uint64_t set_count = 0, arena_count = 0, pack_count = 0;
  uint64_t checked_bytes = 0;
  uint64_t sampled_count = 0;  ///< packs of which every byte was read
  std::vector<Damage> damages;
  /// No damage but to what is disposable.
  bool whole() const;
};

/// Of how many packs every byte is read (and with all of them, of the nodes), from none, 0, to all, 1; which ones is
/// drawn anew each time.
struct VerifyDepth {
  VerifyDepth(bool deep) : share(deep ? 1 : 0) {}
  static VerifyDepth sample(double share) {
    VerifyDepth depth(false);
    depth.share = share;
    return depth;
  }
  double share = 0;
};

/// Checks all sets, and parts of sets: records, trees, that every referenced pack is there and long enough, and every
/// frame's header and table. To `depth` also every byte: bodies are decoded and every chunk is checked against its
/// score. A set is affected by damage to chunks that it needs and that are whole nowhere else, so by what restore would
/// fail for.
Result<VerifyReport> verify_store(const Store& store, VerifyDepth depth, ProgressSink& progress = null_progress());

/// The same by several processes that all see the store: the arenas are spread over them. All return the same report,
/// or the same failure. Collective.
Result<VerifyReport> verify_store_together(const Store& store, VerifyDepth depth, Communicator& ranks,
                                           ProgressSink& progress = null_progress());

/// Something that is wrong with packs, of which it is not known yet whom it hurts.
struct PackDamage {
  Status what;
  std::optional<ArenaId> arena;
  std::set<Score> packs;
};

/// What one of several processes that verify a store tells the others.
struct Findings {
  VerifyReport report;
  std::vector<PackDamage> pack_damages;
};

ByteVector encode_findings(const Findings& findings);
Result<Findings> decode_findings(ByteSpan raw);

/// Whom something in a store serves: sets, and parts of sets, and their files.
struct Users {
  std::set<std::string> sets;   ///< "job@3", "job@4 (part 1 of 2)"
  std::set<std::string> files;  ///< "job@3:path", kAffectedFilesMax at most
  void add(const std::string& set, const std::string& path);
  void add(const Users& more);
};
inline constexpr size_t kAffectedFilesMax = 100;

/// Who needs chunks of `packs` (with an arena where each should be) that are whole in no arena: for each pack that has
/// such users, who these are. Reads all copies of those packs, and goes through the trees of all sets and parts; of
/// what cannot be read there nothing is said. Fails only if cancelled.
Result<std::map<Score, Users>> users_of_lost_chunks(const Store& store, const std::map<Score, ArenaId>& packs,
                                                    ProgressSink& progress);

}  // namespace varve
