#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/file_system.h"
#include "core/process.h"
#include "format/set_record.h"
#include "format/tree.h"
#include "store/store.h"
#include "varve/status.h"

namespace varve {

/// Where the bytes of one stored file lie: pieces in the order of the file, without gaps.
struct FileMap {
  static constexpr uint32_t kPattern = UINT32_MAX;
  struct Piece {
    uint64_t file_offset = 0, bytes = 0;
    uint64_t at = 0;       ///< in the pack; of a pattern its eight bytes
    uint32_t pack = 0;     ///< ordinal in `packs`, or kPattern
    uint32_t skipped = 0;  ///< of a pattern: which of its bytes the piece begins with
  };
  std::vector<Piece> pieces;
  std::vector<PackLink> packs;  ///< those that the file needs
  uint64_t bytes = 0;

  /// The piece that holds the byte at `offset`, which is below `bytes`.
  size_t piece_at(uint64_t offset) const;
  uint64_t memory_bytes() const { return pieces.size() * sizeof(Piece) + packs.size() * sizeof(PackLink); }
};

/// corrupt: the streams do not cover the file.
Result<FileMap> map_file(const Leaf& leaf, const TreeFile& file);

/// Notes, for the next mount, which files of an open set somebody has open for writing: a line when the first writer of
/// a file comes, one when its last has gone; and which have lost something that was written to them. It outlives this
/// process, but not the machine. Files are known by the spool's own inode numbers, which renames do not change. Not
/// thread-safe.
class WriterJournal {
 public:
  /// Reads what the last mount has left, and begins anew.
  static Result<WriterJournal> open(const std::string& path);

  /// The files that had writers when the last mount ended.
  const std::set<uint64_t>& left_open() const { return left_open_; }
  /// Whether there may be more of them.
  bool may_lack_lines() const { return may_lack_lines_; }
  /// Whether an earlier mount noted that the file has lost something, or perhaps has.
  bool had_lost(uint64_t file) const { return any_may_be_lost_ || lost_.contains(file); }

  Status begin(uint64_t file);
  /// What cannot be noted leaves the file open for the next mount, which then asks: nothing is lost.
  void end(uint64_t file);
  /// Something that was written to the file is lost. Where the disk has no room for a line, all files of the set count
  /// as such for the next mount.
  void lose(uint64_t file);
  /// A file that has lost something is gone; `was_last`: no other has. What cannot be noted makes the next one of its
  /// number count as such.
  void forget_lost(uint64_t file, bool was_last);

 private:
  void read(std::string_view text);
  Status append(char sign, uint64_t file);
  Status append(std::string_view line);
  void replace_head(std::string_view head);
  void reserve_room();

  std::string path_;
  UniqueFd descriptor_;
  uint64_t bytes_ = 0, reserved_bytes_ = 0;
  bool has_head_ = false;  ///< a line of its own that says whether anything is lost
  std::set<uint64_t> left_open_;
  std::set<uint64_t> lost_;
  bool any_may_be_lost_ = false, may_lack_lines_ = false;
  uint64_t writing_ = 0;  ///< files with writers now
};

/// What is noted of an open set beside its files.
struct OpenSetRecord {
  std::string job;
  std::string name;         ///< of the set's folder in the mount
  std::string boot;         ///< which run of the machine it was made in
  bool unfinished = false;  ///< a program was stopped while it wrote: only somebody who says so may seal the set
};

/// An open set in the spool: the folder with its files, which are plain ones, and what is noted of it.
struct SpooledSet {
  std::string path;
  OpenSetRecord record;

  std::string files_path() const { return join_path(path, "files"); }
  std::string record_path() const { return join_path(path, "set"); }
  std::string writers_path() const { return join_path(path, "writers"); }
  std::string attempt_path() const { return join_path(path, "attempt"); }
};

struct SpoolOptions {
  UniqueId store;            ///< whose open sets it holds
  std::string boot;          ///< which run of the machine this is
  double lock_seconds = 10;  ///< how long to wait for another mount to end
};

/// This run of the machine.
Result<std::string> boot_of_machine();

/// The folder in which a mount keeps its open sets until they are committed; one mount at a time has it.
///
///     lock           flock()ed by the mount
///     store          the id of the store that its sets are for
///     jobs/JOB/ID/   an open set: its record, its files, who writes, an attempt to seal it
///     trash/         committed and removed sets, on their way out
///
/// Thread-safe, but for one set at a time.
class Spool {
 public:
  /// Makes it if need be. busy: another mount has it. invalid_argument: it is that of another store. `fs` is of this
  /// machine, and outlives this.
  static Result<std::unique_ptr<Spool>> open(FileSystem& fs, const std::string& path, SpoolOptions options);

  const std::string& path() const { return path_; }
  const std::string& boot() const { return options_.boot; }
  FileSystem& fs() const { return fs_; }

  Result<std::vector<std::string>> jobs() const;
  Status make_job(const std::string& job) const;
  /// already_exists if it has open sets.
  Status remove_job(const std::string& job) const;

  /// The open sets of a job; those whose record cannot be read are told of by `bad`, and left alone.
  Result<std::vector<SpooledSet>> sets(const std::string& job, const std::function<void(const Status&)>& bad) const;
  /// Durable when it returns.
  Result<SpooledSet> make_set(const std::string& job, const std::string& name) const;
  /// Notes what `set.record` says, durably.
  Status write_record(const SpooledSet& set) const;
  /// Takes a set out of the mount at once; empty_trash() then removes its files.
  Status discard(const SpooledSet& set) const;
  void empty_trash() const;

  /// Notes, before its commit, that this record is about to be committed for the set.
  Status write_attempt(const SpooledSet& set, const SetRecord& record, const ScoreFunction& score) const;
  /// The record of the last attempt; none: there was no attempt, or one that did not come as far as its commit.
  Result<std::optional<SetRecord>> read_attempt(const SpooledSet& set, const ScoreFunction& score) const;
  bool may_have_attempt(const SpooledSet& set) const;
  /// Durable when it returns.
  Status remove_attempt(const SpooledSet& set) const;

 private:
  Spool(FileSystem& fs, std::string path, SpoolOptions options)
      : fs_(fs), path_(std::move(path)), options_(std::move(options)) {}
  Status lock();
  Status check_store() const;
  std::string jobs_path() const { return join_path(path_, "jobs"); }
  std::string job_path(const std::string& job) const { return join_path(jobs_path(), job); }
  std::string trash_path() const { return join_path(path_, "trash"); }

  FileSystem& fs_;
  const std::string path_;
  const SpoolOptions options_;
  UniqueFd lock_;
};

}  // namespace varve
