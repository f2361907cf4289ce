#pragma once

#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "store/chunk_index_run.h"

namespace varve {

/// The index runs in one folder: soft state that anybody may change at any time (FORMAT.md, "Index runs"). Each member
/// function is for one thread at a time, but find() and prefetch(). A copy shares the open runs.
class IndexFolder {
 public:
  enum class Use {
    look_up,  ///< runs are opened, and can be searched and merged
    cover,    ///< only what they cover is read: somebody else looks up, and merges
  };
  struct Options {
    Use use = Use::look_up;
    /// What the runs of this folder are to have; of a place that does not know how many there are: what the newest runs
    /// say.
    std::optional<RunScope> scope = RunScope::all();
    /// How much of its runs may be held in memory, beside their filters.
    uint64_t held_bytes = 64_MiB;
  };
  /// `path` need not be there. `fs` outlives it.
  IndexFolder(FileSystem& fs, std::string path, const UniqueId& store, Options options);

  /// Looks which runs there are: before the store's arenas are listed, so that a run that names none of these names
  /// arenas that are gone, and not some that have just come.
  Status list();
  /// Opens what was listed. Removes runs that are damaged or unreadable, that name only arenas that are gone, and those
  /// of a store that had fewer places. `present`: the arenas that there are; null: that is not known here.
  Status load(const std::set<ArenaId>* present);
  /// Whether a run that was listed was gone when it was to be opened: merged by somebody else.
  bool overtaken() const { return overtaken_; }
  const std::vector<std::string>& listed() const { return listed_; }

  /// The arenas whose chunks this folder knows, so far as they are its own.
  std::set<ArenaId> covered() const;
  /// Writes one more run, whose entries `next` gives in ascending order. What anybody else does to it at once is no
  /// failure.
  Status add(std::vector<ArenaId> arenas, uint64_t entry_count, const std::function<Result<ChunkIndexEntry>()>& next);
  /// Of arenas that its runs name and that are not `present` any more: leaves word for who merges the runs.
  Status tell_gone(const std::set<ArenaId>& present);

  bool merge_wanted() const;
  /// Makes fewer runs of many, without what is gone. On failure they stay as they are.
  Status merge(const std::set<ArenaId>* present);

  /// For who calls find() for many: has what it looks at first brought near, some calls ahead.
  void prefetch(uint64_t prefix) const;
  /// Appends the candidates with this score prefix, unchecked; none with Use::cover.
  void find(uint64_t prefix, std::vector<ChunkCandidate>& candidates) const;

  uint64_t entry_count() const;
  size_t run_count() const { return runs_.size(); }
  /// What runs could not be read; damaged ones are thrown away.
  const std::vector<Status>& healed() const { return healed_; }

 private:
  struct Run {
    std::string path;
    RunTable table{};                               ///< Use::cover
    std::shared_ptr<const ChunkIndexRun> opened{};  ///< Use::look_up
    const RunTable& about() const { return opened ? opened->table() : table; }
  };
  Result<Run> open(const std::string& path) const;
  /// Throws away a run that is damaged, or that the disk does not give any more.
  void discard(const std::string& path, const Status& why);
  void discard_unreadable();
  bool worthless(const RunTable& table, const std::set<ArenaId>* present) const;
  bool covers(const RunTable& table) const;
  RunScope scope() const;
  std::set<ArenaId> named() const;
  std::set<ArenaId> said_gone() const;
  Result<std::string> new_path() const;
  std::vector<Run> take_merged(const std::set<ArenaId>& gone);

  FileSystem* fs_;
  std::string path_;
  UniqueId store_;
  Options options_;
  std::shared_ptr<PageBudget> budget_;
  std::vector<std::string> listed_;
  std::vector<Run> runs_;
  std::vector<Status> healed_;
  bool overtaken_ = false;
};

}  // namespace varve
