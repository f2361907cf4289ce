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
#include "core/patience.h"
#include "format/set_record.h"
#include "store/commit.h"
#include "store/store.h"

namespace varve {

/// "JOB@STEP" as a folder's name; none for anything else.
std::optional<SetName> parse_set_name(std::string_view text);

/// What the redundancy files of one failure group have as their label, if the nodes of a job have several: of which set
/// they are, and of which of its groups.
struct NodeLabel {
  SetName set;
  uint32_t group = 0;  ///< counts from 0
  uint32_t group_count = 1;
  bool operator==(const NodeLabel&) const = default;

  /// "JOB@STEP.GROUP-of-COUNT"; counts from 1
  std::string text() const;
  /// The reverse of text(); none for anything else.
  static std::optional<NodeLabel> parse(std::string_view text);
};

/// What redundancy sees of a node's store for one set: a folder of flat names (FORMAT.md, "Redundancy of node-local
/// stores"), at the store's own path. The store's header, the set's record, arenas, the set's redundancy file, and
/// unfinished files of all these; there is nothing else in it, and nothing else can be made.
///
/// A rename gives a file its place only with the next sync_directory(): first the header, then arenas, then the record,
/// then the redundancy file, each kind made durable before the next. So a set that is rebuilt appears once all that it
/// needs is there, whatever the order of the renames, and a rebuild that is stopped leaves nothing but unfinished files
/// in the set's redundancy folder, and a lease. One thread at a time may rename.
///
/// The record is committed as any other (commit.h): from before the first arena has its name, a lease says what the set
/// needs. busy: a prune took this one for dead.
class NodeFolder final : public FileSystem {
 public:
  /// `fs` outlives it. The store need not be there yet.
  NodeFolder(FileSystem& fs, const std::string& store_path, SetName set);

  static constexpr std::string_view kHeaderName = "store-header";
  static constexpr std::string_view kRecordName = "record";
  static constexpr uint64_t kHeaderBytesMax = 4096;
  /// Whether it is the name of something that can be protected.
  static bool is_protected_name(std::string_view name);
  /// Whether a store has neither arenas nor sets, nor anything that could become one. So it is, if there is none.
  static Result<bool> has_nothing(FileSystem& fs, const std::string& store_path);

  static std::string redundancy_path(const std::string& store_path) { return join_path(store_path, kRedundancyFolder); }
  static std::string set_path(const std::string& store_path, const SetName& set) {
    return join_path(redundancy_path(store_path), set.key());
  }

  /// The folder's path in this file system.
  const std::string& path() const { return store_path_; }
  /// Before it is looked whether the store has anything: a valid header that is there now may be replaced, as long as
  /// the store has nothing. One that comes later is another job's.
  void note_header();
  /// Makes the folders of a store that are missing, durably: before the first file is made. Those with nothing in them
  /// may be removed by another job that opens here (tidy_redundancy()): they are made anew when a file needs them.
  Status prepare();
  /// Where a name of the folder really is; invalid_argument for what is not in it.
  Result<std::string> place_of(std::string_view name) const;

  Result<std::unique_ptr<File>> open_read(const std::string& path) override;
  Result<std::unique_ptr<File>> create(const std::string& path, CreateOptions options = {}) override;
  Status create_directory(const std::string& path) override;
  Status rename(const std::string& from, const std::string& to) override;
  Status rename_no_replace(const std::string& from, const std::string& to) override;
  Status remove(const std::string& path) override;
  Status remove_directory(const std::string& path) override;
  Status sync_directory(const std::string& path) override;
  Status touch(const std::string& path) override;
  Result<std::vector<DirectoryEntry>> list(const std::string& path) override;
  Result<FileStatus> stat(const std::string& path) override;

 private:
  /// In the order in which they appear.
  enum class Kind : uint8_t { header, arena, record, parity };
  static std::optional<Kind> kind_of(std::string_view name);
  struct Rename {
    Kind kind;
    std::string from, to;  ///< real paths
  };
  /// A record about to get its place, and what shows prunes that it is.
  struct Commit {
    std::unique_ptr<Store> store;
    std::unique_ptr<WriterLease> lease;
  };
  Result<std::string> place_of_path(const std::string& path) const;
  Status make_folders();
  Status with_folders(const std::function<Status()>& act);
  Status make_parents_durable(Kind kind);
  Status give_place(const Rename& rename, Commit& commit);
  Status give_header(const Rename& header);
  Result<Commit> begin_commit(const Rename& record);
  Result<bool> may_be_replaced(const Rename& header) const;

  FileSystem& fs_;
  const std::string store_path_;
  const SetName set_;
  std::vector<Rename> waiting_;
  ByteVector header_before_;  ///< as note_header() found it; empty: there was none, or it could not be read
  const std::shared_ptr<Patience> patience_ = std::make_shared<Patience>();  ///< of all files
};

/// The names (node_folder.h) of all files that a store needs to have this set: its header, the set's record, and the
/// arenas that hold what the set refers to, whichever set they were written for. Goes through the set's trees.
/// not_found if there is no such set, or if something that it needs is nowhere.
///
/// `leaving`: arenas that prunes have marked (WriterLease::condemned()), and may remove. They are none of these files:
/// what only they have is copied into a new arena first.
Result<std::vector<std::string>> protected_files_of(const Store& store, const SetName& set,
                                                    const std::set<ArenaId>& leaving = {});

}  // namespace varve
