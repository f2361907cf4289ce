#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/buffer.h"
#include "core/bytes.h"
#include "core/process.h"
#include "core/progress.h"
#include "core/sync.h"
#include "core/unique_id.h"
#include "format/tree.h"
#include "layout/layout.h"

namespace varve {

constexpr std::string_view kRestoreStagingPrefix = ".varve-restore-";

/// The name of a folder in which a restore keeps what it has not published yet.
inline std::string restore_staging_name(const UniqueId& id) { return std::string(kRestoreStagingPrefix) + id.hex(); }

/// Whether a folder of that name is a restore's, or what one that was killed has left.
inline bool is_restore_staging(std::string_view name) {
  return name.starts_with(kRestoreStagingPrefix) &&
         name.size() == kRestoreStagingPrefix.size() + 2 * sizeof(UniqueId::bytes);
}

/// A note of this name lies in a folder while a restore gives its files their names there, and stays if that is
/// stopped: what is in the folder may then be some of a set, or some of it beside what was there before. It holds the
/// set's name, and which part of it was asked for; and is no part of any set.
inline constexpr std::string_view kRestoringNote = ".varve-restoring";

/// A folder that a set is restored into. Files are written in a staging folder inside it and renamed to their places by
/// publish(), between begin_publishing() and end_publishing() of one of the processes; paths are followed without
/// leaving the folder and without following symbolic links (openat2). write() may be called by several threads
/// (begin_writing_out(), finish() and stage_whole() as well); the rest by one.
class RestoreTarget {
 public:
  /// Creates `folder` and its parents if need be, and removes what restores that were killed have left in it.
  static Result<std::unique_ptr<RestoreTarget>> open(const std::string& folder, bool overwrite);
  /// Removes the staging folder with all that was not published, and the folder itself if this created it and nothing
  /// was published.
  ~RestoreTarget();
  RestoreTarget(const RestoreTarget&) = delete;
  RestoreTarget& operator=(const RestoreTarget&) = delete;

  /// already_exists if something lies at its path that publishing may not replace; permission_denied if the folder
  /// there cannot be written to, and `parent_comes` does not say that it is restored, too.
  Status check_free(const TreeFile& file, bool parent_comes) const;
  /// Creates the staged file number `number` with its final size, all zeros: a hole, or allocated blocks if it is going
  /// to be `dense`.
  Status stage(uint32_t number, uint64_t bytes, bool dense);
  Status write(uint32_t number, uint64_t offset, ByteSpan bytes);
  /// Stages and finishes a small file at once, in place of stage(), write() and finish(): at the cost of half of their
  /// system calls. May be called by several threads. Where there are very many, they are durable only after
  /// make_staged_durable().
  Status stage_whole(uint32_t number, ByteSpan contents, const TreeFile& file, bool sync);
  /// The same past the page cache, where the file system can. Address, offset and size are multiples of
  /// kDirectAlignment.
  Status write_direct(uint32_t number, uint64_t offset, ByteSpan bytes);
  /// Has the disk take what a staged file has so far, so that finish() waits for less. Only a hint.
  void begin_writing_out(uint32_t number);
  /// Gives a staged file its mode and time, and makes it durable if `sync`.
  Status finish(uint32_t number, const TreeFile& file, bool sync);
  /// After that, where all is to be durable: what stage_whole() has left, and where files had to be closed and opened
  /// again all that there is, since a disk's error may be forgotten in between, but not by the file system as a whole.
  Status make_staged_durable();
  /// Lays the note (kRestoringNote) into the folder: `part` of `set` comes, or all of it (empty). Waits for other
  /// restores that are publishing into the same folder. cancelled: the user would not.
  Status begin_publishing(const std::string& set, const std::string& part, bool sync, ProgressSink& progress);
  /// After that: whether check_free() says what it has said before, for all files at once, as nothing has come.
  bool is_still_empty();
  /// Takes it away, unless a restore that was stopped has left it, and this one was not of the same, nor of all of its
  /// set.
  Status end_publishing(bool sync);
  /// Whether publish() has changed what there is of files and links.
  bool gave_names() const { return gave_names_; }
  /// After begin_publishing(), if nobody's publish() has: the note goes if this restore has laid it.
  void take_note_back();
  /// Puts a staged file at its place, or creates the folder or link that `file` is.
  Status publish(uint32_t number, const TreeFile& file);
  /// Gives folders their modes and times, deepest first, and makes names durable if `sync`.
  Status finish_folders(const std::vector<const TreeFile*>& folders, bool sync);

 private:
  RestoreTarget(std::string folder, bool overwrite);
  Status lock_note(ProgressSink& progress);
  Result<UniqueFd> open_folder(const std::string& path) const;
  Status make_staging();
  Status sync_names(bool together);
  Status sync_all() const;
  /// The folder that `path` lies in, made if need be, open until another one is asked for.
  Result<int> parent_of(const std::string& path);
  Result<UniqueFd> make_parent(const std::string& path, std::string& name);
  Result<UniqueFd> create_staged(uint32_t number) const;
  Status write_at(int fd, uint64_t offset, ByteSpan bytes) const;
  Status describe_staged(int fd, const TreeFile& file, bool sync) const;
  struct StagedFile {
    UniqueFd fd;
    UniqueFd direct;  ///< opened with the first direct write; invalid where the file system cannot
    bool direct_tried = false;
  };
  Result<std::shared_ptr<StagedFile>> staged(uint32_t number, bool direct = false);
  void keep_open(uint32_t number, std::shared_ptr<StagedFile> file) VARVE_REQUIRES(mutex_);
  std::string describe(const std::string& path) const;

  const std::string folder_;
  const bool overwrite_;
  const size_t open_files_max_;
  std::vector<std::string> made_;          ///< folder_ and those above it, if open() made them
  std::set<std::string> changed_folders_;  ///< below folder_, in which there are new names
  bool created_ = false;
  bool is_empty_ = false;  ///< but for what restores lay there
  bool published_ = false;
  bool gave_names_ = false;
  UniqueFd root_, staging_;
  UniqueFd note_;  ///< kRestoringNote, locked
  bool note_is_new_ = false;
  bool note_goes_ = true;                 ///< with the end of this restore
  bool can_sync_all_ = false;             ///< all that the file system has, at once
  std::atomic<uint64_t> small_count_{0};  ///< that are to be durable
  std::atomic<bool> any_closed_early_{false};
  std::string staging_name_;
  struct Parent {
    std::string path;
    UniqueFd fd;
  };
  Parent last_parent_;  ///< of publish(): neighbours mostly have the same

  struct OpenFile {
    std::shared_ptr<StagedFile> file;
    std::list<uint32_t>::iterator used;
  };
  Mutex mutex_;
  std::unordered_map<uint32_t, OpenFile> open_ VARVE_GUARDED_BY(mutex_);
  std::list<uint32_t> recently_used_ VARVE_GUARDED_BY(mutex_);
};

inline constexpr uint64_t kTileBytes = 4_MiB;

/// Gathers the pieces of large files, which packs give in small ranges and no order, into tiles that are written with
/// one call each. A tile that is whole is written at once and may bypass the page cache; when too many are open, the
/// oldest is written as far as it is there. Thread-safe.
class TileWriter {
 public:
  /// Writes `bytes` at `offset` of file `number`; `whole_tile`: they are a whole tile in memory that is aligned for
  /// direct I/O.
  using Write = std::function<Status(uint32_t number, uint64_t offset, ByteSpan bytes, bool whole_tile)>;

  TileWriter(Write write, uint64_t memory_bytes);
  TileWriter(const TileWriter&) = delete;
  TileWriter& operator=(const TileWriter&) = delete;

  /// Adds a piece of a file that is `file_bytes` long. Each byte of a file comes once.
  Status add(uint32_t number, uint64_t file_bytes, uint64_t offset, ByteSpan bytes);
  /// Writes what is left. No add() may be running.
  Status flush();

 private:
  using Key = std::pair<uint32_t, uint64_t>;  ///< file, offset of the tile
  struct Tile {
    AlignedBlock memory;
    uint64_t bytes = 0;  ///< of the tile: less than kTileBytes at the end of a file
    uint64_t filled_bytes = 0;
    std::vector<Extent> filled;  ///< in the tile
    unsigned copying = 0;        ///< threads that are filling it
    std::list<Key>::iterator age;
  };

  Status add_to_tile(const Key& key, uint64_t tile_bytes, uint64_t begin, ByteSpan bytes);
  /// Takes a tile out of the map, or the oldest that nobody is filling. The lock is held.
  Tile take(std::map<Key, Tile>::iterator tile) VARVE_REQUIRES(mutex_);
  Status write_out(const Key& key, Tile& tile);

  const Write write_;
  const size_t tiles_max_;
  Mutex mutex_;
  std::map<Key, Tile> tiles_ VARVE_GUARDED_BY(mutex_);
  std::list<Key> oldest_first_ VARVE_GUARDED_BY(mutex_);
  std::vector<AlignedBlock> spare_ VARVE_GUARDED_BY(mutex_);
};

}  // namespace varve
