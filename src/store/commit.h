#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/progress.h"
#include "core/sync.h"
#include "core/unique_id.h"
#include "format/set_record.h"
#include "store/catalog.h"
#include "store/store.h"

namespace varve {

struct PartName;
/// When the name of a part of a set is made durable: what it refers to is so before, in either case.
enum class PartSync : uint8_t { at_once, with_its_set };

/// A writer whose lease shows no sign of life for so long is taken for dead, where nothing tells it sooner.
constexpr double kLeaseSilenceSeconds = 15;
/// A small file that is not complete and was not touched for so long is a leftover.
constexpr double kUnfinishedSecondsMax = 24 * 3600;
/// Some file systems take times from their clients, whose clocks may differ by so much. What is dated farther ahead was
/// stamped by a clock that was set back since.
constexpr double kClocksApartSecondsMax = 600;

/// Whether a lease shows no sign of life, of which the last one was at `beat_ns`, and it is `now_ns`: for so long, or
/// since a clock was set back, which those who live outlast by touching it anew.
bool is_silent(int64_t beat_ns, int64_t now_ns, double silence_seconds);
/// Whether a file was not touched for so long at `now_ns`. What is dated far ahead of that is touched, and ages from
/// then on, and not only when the clock has come there again. False if it is gone.
Result<bool> is_left_for(Backend& backend, const std::string& path, int64_t now_ns, double seconds);

/// A writer's place in a store, without locks: a file of its own name in `writers/`. While it is there, nothing that
/// existed when the writer began is removed by a prune, nor are the writer's own new arenas. Committing *renames that
/// very file* into the catalog: if a prune has given the writer up for dead (it removes the file), the rename fails and
/// nothing was lost but the work (COMMIT.md).
class WriterLease {
 public:
  /// `id` is for those who know each other by it (rebalance.h); else it is random.
  static Result<std::unique_ptr<WriterLease>> acquire(const Store& store, std::optional<UniqueId> id = {});
  ~WriterLease();  ///< gives up: removes the file, unless committed
  WriterLease(const WriterLease&) = delete;
  WriterLease& operator=(const WriterLease&) = delete;

  /// The id of the writer's `ordinal`-th arena at a place of the store's spread.
  ArenaId arena_id(uint32_t ordinal, uint32_t place = 0) const { return store_.spread().arena_at(id_, ordinal, place); }
  /// Whether `arena` was written by the writer whose lease file is called `lease_name`.
  static bool owns(const std::string& lease_name, const ArenaId& arena);

  /// Whether the writer of that lease ran on this machine and its process is gone. False if that cannot be told.
  static bool known_dead(const Store& store, const std::string& lease_name);
  /// Takes the lease of a writer away that was silent for so long, so that it can commit nothing any more. False: it
  /// may have committed, or do so yet, and its lease stays (Records::late_commit_seconds()).
  static Result<bool> give_up(const Store& store, const std::string& lease_name, double silent_seconds);
  /// The same of a lease by its whole name.
  static Result<bool> give_up(Backend& backend, const std::string& path, double silent_seconds);
  /// Whether a lease that says this says nothing but whose it is, or not even that yet; else what will be committed.
  static bool is_plain(std::string_view text);

  /// The arenas that may not be referred to, as a prune has marked them before. Who refers to arenas that are sealed
  /// opens them after this (COMMIT.md, W2 and W3), and forgets here what was open.
  Result<std::set<ArenaId>> condemned() const;

  /// Whether a prune has given this writer up: nothing that it has written can be committed, or need even be there.
  bool lost() const;
  /// busy, with what to tell the user then: the remedy is save_again.
  static Status lost_status(const SetName& set);

  /// Publishes the set: the commit point. All arenas that the record needs are sealed; this makes their names durable
  /// first. already_exists if the set is there already; busy if the lease was taken away; permission_denied if it is to
  /// replace a set that is pinned (Remarks::check_may_replace()).
  Status commit(const SetRecord& record, IfExists if_exists = IfExists::refuse);

  /// Whether the record is in the catalog, even if commit() has failed since: then its name may not be durable.
  bool has_passed_commit_point() const { return committed_; }

  /// commit() in two steps. From prepare() on, prunes see what the record needs, and keep it while the lease is there.
  Status prepare(const SetRecord& record);
  /// prepare(), where the names of all arenas that the record needs are durable.
  Status prepare_of_settled(const SetRecord& record);
  /// The same of a record that is to be committed byte for byte as it was encoded before.
  Status prepare_of_settled(const SetRecord& record, ByteSpan encoded);
  Status commit_prepared(const SetName& name, IfExists if_exists);
  /// The same of a set that was lost and is made as it was, in the place of whatever has its name; also if that is
  /// pinned: the pin keeps what it holds.
  Status commit_rebuilt(const SetName& name) { return publish(name, IfExists::replace); }

  /// Publishes a part of a set instead. already_exists if that part is there already; busy if the lease was taken away.
  Status publish_part(const PartName& name, const SetRecord& record, PartSync sync = PartSync::at_once);

 private:
  /// Shows every few seconds that the writer is alive.
  void beat();
  Status publish(const SetName& name, IfExists if_exists);

  WriterLease(const Store& store, const UniqueId& id) : store_(store), id_(id) {}

  const Store& store_;
  const UniqueId id_;
  std::unique_ptr<PowerWatch> power_;
  std::string path_;
  std::unique_ptr<HeldRecord> record_;
  std::optional<SetRecord> prepared_;
  Mutex mutex_;
  ConditionVariable ended_;
  bool ending_ VARVE_GUARDED_BY(mutex_) = false;
  Thread heart_;
  bool committed_ = false;
};

/// What `write` gives, which writes a set with a lease of its own: a writer that a prune took for dead starts over,
/// some times.
template <class Write>
auto start_over_if_lost(ProgressSink& progress, const Write& write) {
  constexpr int kTriesMax = 3;
  auto outcome = write();
  for (int tries = 1; tries < kTriesMax && outcome.status().remedy() == Remedy::save_again; ++tries) {
    progress.warning(outcome.status().with_context("starting over"));
    outcome = write();
  }
  return outcome;
}

/// Names a part of a set: what one of `count` writers, who save a set together, has done. Parts are invisible to all
/// that reads sets, but prunes keep what they refer to (FORMAT.md, "Parts of a set").
struct PartName {
  SetName set;
  UniqueId run;  ///< of the program's run: parts of different runs never make one set
  uint32_t ordinal = 0;
  uint32_t count = 1;
  auto operator<=>(const PartName&) const = default;

  /// What a file of this name says: what the writer has done, or why it could do nothing.
  enum class Kind : uint8_t { delivered, failed };
  /// JOB@STEP.RUN.ORDINAL-of-COUNT.part, or .failed
  std::string file_name(Kind kind = Kind::delivered) const;
  /// The reverse of file_name(); none for anything else.
  static std::optional<PartName> parse(std::string_view file_name, Kind kind = Kind::delivered);
  /// "job@7 (part 1 of 4)", for people; counts from 1.
  std::string to_string() const;
};

/// At most so many parts make a set.
inline constexpr uint32_t kPartCountMax = 1'000'000;

/// The folder of the parts, which may be missing.
inline std::string parts_path(const Store& store) { return join_path(store.path(), "parts"); }
/// The parts that lie in the store, sorted; or, with Kind::failed, those that will not come.
Result<std::vector<PartName>> list_parts(const Store& store, PartName::Kind kind = PartName::Kind::delivered);
/// All that lies there, each sorted.
struct ListedParts {
  std::vector<PartName> delivered, failed;
  bool has(const PartName& part) const;
  /// The others of its set as well.
  bool has_all_of(const PartName& part) const;
};
Result<ListedParts> list_all_parts(const Store& store);
/// The record of a part: that of a set which has only the part's groups. not_found if it is not there (any more).
Result<SetRecord> read_part(const Store& store, const PartName& name);
/// The same of what the part says, by whatever way it came.
Result<SetRecord> decode_part(const Store& store, const PartName& name, ByteSpan raw);
/// Makes a part disappear; OK if it is gone already. Not durable until the parts' folder is synced.
Status remove_part(const Store& store, const PartName& name);

/// Tells the other writers of the set that this part will not come, and why, so that they need not wait for it. Not
/// durable: after a crash nobody waits. OK if that was told before.
Status publish_failure(const Store& store, const PartName& name, const Status& why);
/// Why the part will not come; an error of its own if that cannot be read.
Status read_failure(const Store& store, const PartName& name);
/// Takes back what publish_failure() told; OK if it is gone already.
Status remove_failure(const Store& store, const PartName& name);

/// Whether a part that was taken back may be published once more under its name.
enum class PartNames : uint8_t { reused, used_once };

/// Makes a set of its `count` parts, durably, and removes them; returns its record. Any number of writers may try at
/// the same time: one of them succeeds. Where names are used once, each part is read once; and not at all if `told` is
/// what the parts say, in their order, which their writers have told when they were published.
///
/// not_found: not all parts are there (yet). already_exists: the set is there; if it was made of these very parts,
/// what is left of them is gone now. invalid_argument: the parts were not saved with the same options. busy: a prune
/// took this writer for dead; try again.
Result<SetRecord> complete_set(const Store& store, const UniqueId& run, const SetName& name, uint32_t count,
                               IfExists if_exists = IfExists::refuse, PartNames part_names = PartNames::reused,
                               const std::vector<SetRecord>* told = nullptr);

/// Completes the sets of `job` of which all parts are there, but whose writers were killed before they could. Returns
/// those that appeared. One that fails does not keep the others; the first failure is returned if nothing appeared.
Result<std::vector<SetName>> complete_leftover_parts(const Store& store, const std::string& job);

/// The number that the first set of a new run of `job` gets: Catalog::next_number(), and beyond what earlier runs have
/// left in parts. These may become sets yet, which are older than all that the run makes.
Result<uint64_t> first_number_of_run(const Store& store, const std::string& job);

/// Removes the parts that committed sets were made of (leftovers of a committer that was killed); of the set `only`, if
/// it is given. The removal is durable when it returns. Returns how many there were.
Result<uint64_t> remove_used_parts(const Store& store, const SetName* only = nullptr);

}  // namespace varve
