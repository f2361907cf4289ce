#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "format/tree.h"
#include "store/chunk_lookup.h"
#include "store/index_run.h"
#include "store/store.h"

namespace varve {

/// Runs of an index that lie in one folder, as far as they were opened. Each member function is for one thread at a
/// time, but find() and prefetch(). A copy shares the open runs.
class IndexRuns {
 public:
  struct Run {
    std::string path;
    RunTable table{};                               ///< of a run that is not opened
    std::shared_ptr<const ChunkIndexRun> opened{};  ///< null: only what it covers is known
    const RunTable& about() const { return opened ? opened->table() : table; }
  };
  /// What the runs are to have; of a place that does not know how many there are: what the newest ones say.
  explicit IndexRuns(std::optional<RunScope> scope) : said_scope_(scope) {}

  void clear() { runs_.clear(); }
  void add(Run run) { runs_.push_back(std::move(run)); }
  size_t count() const { return runs_.size(); }
  uint64_t entry_count() const;
  RunScope scope() const;

  /// The arenas whose chunks these runs know, so far as they are to have them.
  std::set<ArenaId> covered() const;
  /// The arenas that runs name, whatever they have of them.
  std::set<ArenaId> named() const;
  /// The arenas that are gone, as runs say that were written for that, whose paths are told_gone().
  std::set<ArenaId> said_gone() const;
  std::vector<std::string> told_gone() const;

  bool merge_wanted() const;
  /// Takes out those to be merged: if there are too many, the smaller half becomes one run, so that each entry is
  /// copied a number of times logarithmic in the size of the store.
  std::vector<Run> take_merged(const std::set<ArenaId>& gone);
  /// Takes out those that could not be read when something was looked up.
  std::vector<Run> take_unreadable();

  /// The block of the filter.
  void prefetch(uint64_t prefix) const;
  /// Of one chunk.
  void find(uint64_t prefix, std::vector<ChunkCandidate>& candidates) const;

 private:
  bool covers(const RunTable& table) const;

  std::optional<RunScope> said_scope_;
  std::vector<Run> runs_;
};

/// The index runs in one folder: soft state that anybody may change at any time (FORMAT.md, "Index runs"). Each member
/// function is for one thread at a time, but find() and prefetch(). A copy shares the open runs.
class IndexFolder final : public ChunkLookup {
 public:
  enum class Use {
    look_up,  ///< runs are opened, and can be searched and merged
    cover,    ///< only what they cover is read: somebody else looks up, and merges
  };
  struct Options {
    Use use = Use::look_up;
    /// As IndexRuns'.
    std::optional<RunScope> scope = RunScope::all();
    /// How much of its runs may be held in memory, beside their filters.
    uint64_t held_bytes = 64_MiB;
  };
  /// `path` need not be there. `fs` outlives it.
  IndexFolder(Backend& backend, std::string path, const UniqueId& store, Options options);

  /// Looks which runs there are, or so many of them: before the store's arenas are listed, so that a run that names
  /// none of these names arenas that are gone, and not some that have just come.
  Status list(size_t count_max = SIZE_MAX);
  /// Opens what was listed. Removes runs that are damaged or unreadable, that name only arenas that are gone, and those
  /// of a store that had fewer places. `present`: the arenas that there are; null: that is not known here.
  Status load(const std::set<ArenaId>* present);
  /// Whether a run that was listed was gone when it was to be opened: merged by somebody else.
  bool overtaken() const { return overtaken_; }
  const std::vector<std::string>& listed() const { return listed_; }
  const IndexRuns& runs() const { return runs_; }

  using NextEntry = std::function<Result<ChunkIndexEntry>()>;
  /// Writes one more run, whose entries `next` gives in ascending order. What anybody else does to it at once is no
  /// failure.
  Status add(std::vector<ArenaId> arenas, uint64_t entry_count, const NextEntry& next);
  /// The same for others alone: it is not looked into here.
  Status leave(std::vector<ArenaId> arenas, uint64_t entry_count, const NextEntry& next);
  /// Notes the arenas that its runs name and that are not `present` any more, for the next merge.
  Status tell_gone(const std::set<ArenaId>& present);
  /// Makes fewer runs of many, without what is gone. On failure they stay as they are.
  Status merge(const std::set<ArenaId>* present);

  void prefetch(uint64_t prefix) const override { runs_.prefetch(prefix); }
  /// None with Use::cover. Never fails.
  Status find(std::span<const uint64_t> prefixes, std::span<uint32_t> counts,
              std::vector<ChunkCandidate>& candidates) override;
  bool is_far() const override { return false; }
  bool keeps_index() const override { return false; }

  /// What runs could not be read; damaged ones are thrown away.
  const std::vector<Status>& healed() const { return healed_; }

 private:
  Result<IndexRuns::Run> open(const std::string& path) const;
  /// not_found: a prune took it for a leftover.
  Result<IndexRuns::Run> write(std::vector<ArenaId> arenas, uint64_t entry_count, const NextEntry& next);
  /// Throws away a run that is damaged, or that the disk does not give any more.
  void discard(const std::string& path, const Status& why);
  bool worthless(const RunTable& table, const std::set<ArenaId>* present) const;
  Result<std::string> new_path() const;

  Backend* backend_;
  std::string path_;
  UniqueId store_;
  Options options_;
  std::shared_ptr<PageBudget> budget_;
  std::vector<std::string> listed_;
  IndexRuns runs_;
  std::vector<Status> healed_;
  bool overtaken_ = false;
};

/// A chunk that a sealed arena holds, verified against its pack's table.
struct KnownChunk {
  PackLink pack;
  uint64_t offset = 0;  ///< in the pack's raw bytes
};

/// Which chunks the store's sealed arenas hold: soft state in `index/` that only finds duplicates. Opening it indexes
/// arenas that no run covers yet, so that a lost or damaged index heals by itself.
///
/// In a store over several places, each place has the chunks whose scores are in its range, wherever their arenas lie
/// (ArenaSpread), so that each chunk is asked of one place. Who opens the index sees all of them, and writes to each
/// what it lacks.
///
/// If the store has a ChunkLookup of its own (Store::chunk_lookup()), that one is asked for chunks.
class ChunkIndex {
 public:
  /// Who sees to it that the index has all arenas of the store, in few runs.
  enum class Upkeep {
    here,    ///< who opens it: all runs are opened, what they lack is added, and too many are merged
    others,  ///< somebody else, at about the same time: some of the runs will do
    later,   ///< there was nothing to index a while ago: nothing is found but what is added
  };
  /// `excluded` arenas are not looked into. `memory_bytes` bounds what is held beside the runs' pages.
  static Result<std::unique_ptr<ChunkIndex>> open(const Store& store, std::set<ArenaId> excluded, uint64_t memory_bytes,
                                                  Upkeep upkeep = Upkeep::here);
  /// Whether the store has no chunks at all, as far as can be seen.
  static bool would_be_empty(const Store& store);
  /// Brings the index of a store over several places up to date, as opening it would, for those who only look up later.
  static Status complete(const Store& store, uint64_t memory_bytes);

  /// Looks chunks up, one thread at a time; keeps the tables of the packs it has met lately.
  class Cursor {
   public:
    explicit Cursor(const ChunkIndex& index)
        : index_(index), asks_ahead_(index.lookup_->is_far() && index.worth_asking()) {}
    /// Whether find() knows only what prefetch() was asked for before, and what lies beside that.
    bool asks_ahead() const { return asks_ahead_; }
    /// Asks for all chunks with these score prefixes at once. What was asked for before is forgotten.
    Status prefetch(std::span<const uint64_t> prefixes);

    /// The same in three steps, the second of which may be done by any thread, and meanwhile anything else: what is to
    /// be asked, the asking, and taking the answer in the place of what was asked for before.
    struct Question {
      std::vector<uint64_t> prefixes{};
      std::vector<uint32_t> counts{};
      std::vector<ChunkCandidate> candidates{};
    };
    Question question(std::span<const uint64_t> prefixes) const;
    static Status ask(ChunkLookup& lookup, Question& question);
    void take(const Question& answered);
    ChunkLookup& lookup() const { return *index_.lookup_; }
    std::optional<KnownChunk> find(const Score& score, size_t bytes);
    /// Every place of a chunk, for those who may find the first ones damaged.
    std::vector<KnownChunk> find_all(const Score& score, size_t bytes);

   private:
    struct PackTable {
      PackLink link;
      std::vector<ChunkEntry> chunks;
      std::vector<uint64_t> offsets;
      std::vector<bool> held;
    };
    using Key = std::pair<ArenaId, uint32_t>;
    struct KeyHash {
      size_t operator()(const Key& key) const { return static_cast<size_t>(key.first.tag() * 31 + key.second); }
    };
    struct Cached {
      std::unique_ptr<PackTable> table;  ///< null if it could not be read
      std::list<Key>::iterator used;
    };
    const PackTable* table(const ArenaId& arena, uint32_t pack);
    /// Gives the places of a chunk to `take`, until it returns false.
    template <class Take>
    void visit(const Score& score, size_t bytes, const Take& take);
    void find_candidates(uint64_t prefix);
    void remember_beside(const Key& key, const PackTable& table);
    void forget_oldest();

    const ChunkIndex& index_;
    const bool asks_ahead_;
    std::vector<ChunkCandidate> candidates_;
    std::unordered_map<Key, Cached, KeyHash> tables_;
    std::list<Key> recently_used_;
    /// If the store has a ChunkLookup: what it answered, in the order of prefixes, and the chunks of the tables above.
    std::vector<std::pair<uint64_t, ChunkCandidate>> asked_;
    std::unordered_map<uint64_t, ChunkCandidate> beside_;
  };

  /// Appends the candidates with this score prefix, unchecked, if the lookup is near. Thread-safe, as prefetch().
  void find(uint64_t prefix, std::vector<ChunkCandidate>& candidates) const;
  void prefetch(uint64_t prefix) const { lookup_->prefetch(prefix); }

  /// Adds arenas that were sealed since, with all their entries (in any order; ChunkIndexEntry::arena is an ordinal in
  /// `arenas`), for those who open an index after this. Nothing to do where the lookup keeps the index.
  Status add(const std::vector<ArenaId>& arenas, ChunkIndexEntries entries);
  /// The same for who goes on with this index: they are found here at once, and by others after share_held(). While
  /// nothing is looked up, as the next three.
  void hold(const std::vector<ArenaId>& arenas, ChunkIndexEntries entries);
  /// Adds what is held. `goes_on`: it is still found here, as part of the index, which is to have few runs.
  Status share_held(bool goes_on);
  uint64_t held_bytes() const { return held_.size() * sizeof(ChunkIndexEntry); }
  /// These arenas are not looked into from now on, instead of those before.
  void exclude(std::set<ArenaId> arenas) { excluded_ = std::move(arenas); }

  uint64_t entry_count() const;
  size_t run_count() const;
  /// It is not worth looking anything up.
  bool finds_nothing() const { return held_.empty() && !worth_asking(); }
  /// What runs could not be read; damaged ones are thrown away.
  std::vector<Status> healed() const;
  /// Why not all arenas are in it; OK if they are.
  const Status& incomplete() const { return incomplete_; }

 private:
  using Wanted = std::vector<std::set<ArenaId>>;  ///< by place

  ChunkIndex(const Store& store, std::set<ArenaId> excluded, uint64_t memory_bytes, IndexFolder::Use use);
  Status bring_up_to_date();
  Status look_at_some();
  void find_held(uint64_t prefix, std::vector<ChunkCandidate>& candidates) const;
  /// Returns the arenas that there are.
  Result<std::set<ArenaId>> load();
  Status index_arenas(const Wanted& missing);
  /// Writes to each place its share of the entries; with `wanted`, only of the arenas that it wants.
  /// `looks_in`: what is written is found here, too.
  Status write(const std::vector<ArenaId>& arenas, ChunkIndexEntries entries, const Wanted* wanted, bool looks_in);
  Status write_to(uint32_t place, const std::vector<ArenaId>& arenas, std::span<const ChunkIndexEntry> entries,
                  const std::set<ArenaId>* wanted, bool looks_in);
  template <class Act>
  Status at_all_places(const Act& act);
  /// Whether any place, or that of a chunk, has anything at all, as far as is known here.
  bool worth_asking() const { return lookup_->keeps_index() || entry_count() > 0; }
  bool worth_asking(uint64_t prefix) const;

  const Store& store_;
  std::set<ArenaId> excluded_;
  const uint64_t memory_bytes_;
  const IndexFolder::Use use_;
  Status incomplete_;
  std::vector<ArenaId> held_arenas_;
  ChunkIndexEntries held_;                         ///< of these, sorted
  std::vector<IndexFolder> folders_;               ///< that are brought up to date here, by place
  std::unique_ptr<SpreadChunkLookup> own_spread_;  ///< over several of them
  ChunkLookup* lookup_;
};

}  // namespace varve
