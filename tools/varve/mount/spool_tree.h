#pragma once

#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/process.h"
#include "mount/mounted_folder.h"
#include "mount/spool.h"

namespace varve {

class SpoolFile;

/// Something in an open set that has a name, or had one and is still known or open.
struct OpenNode {
  uint32_t parent = 0;
  std::string name;
  uint32_t type = S_IFREG;  ///< S_IFREG, S_IFDIR or S_IFLNK
  std::map<std::string, uint32_t> children;
  uint64_t spool_inode = 0;
  uint64_t known = 0;  ///< how often it was found and not forgotten
  uint32_t writers = 0;
  bool linked = true;          ///< it still has its name
  bool names_unsynced = true;  ///< of a folder: not all of its names are durable
  bool names_lost = false;     ///< of a folder: a sync of it failed, and a second one would prove nothing
  bool lost = false;           ///< of a file: something that was written to it is not there, or perhaps not
  bool cut_short = false;      ///< of a file: a program has heard of a write that failed, and did not make it again
  std::vector<SpoolFile*> files;
};

/// The names of an open set in memory. Each thing has a number, by which it is found until nobody knows it any more.
/// Not thread-safe.
class OpenNames {
 public:
  OpenNames() { nodes_[MountedFolder::kTop].type = S_IFDIR; }

  /// Null if nothing has that number; at() is for those that have.
  OpenNode* find(uint32_t id) { return const_cast<OpenNode*>(std::as_const(*this).find(id)); }
  const OpenNode* find(uint32_t id) const;
  OpenNode& at(uint32_t id) { return nodes_.at(id); }
  const OpenNode& at(uint32_t id) const { return nodes_.at(id); }
  const std::unordered_map<uint32_t, OpenNode>& nodes() const { return nodes_; }
  /// From the set's folder, which is "".
  std::string path_of(uint32_t id) const;

  uint32_t add(uint32_t folder, const std::string& name, uint32_t type, uint64_t spool_inode);
  /// In place of what has the new name.
  void move(uint32_t id, uint32_t new_folder, const std::string& new_name);
  void unlink(uint32_t id);
  /// Drops what has no name, is not known and not open.
  void tidy(uint32_t id);

 private:
  std::unordered_map<uint32_t, OpenNode> nodes_;
  uint32_t next_id_ = MountedFolder::kTop + 1;
};

/// The files of an open set, plain ones in the spool, and their names in memory: both change together. It notes in the
/// spool who writes. Verbs of MountedFolder do what that says. Not thread-safe.
class SpoolTree {
 public:
  /// With all that is in the spool already. `realm`: the number of the set's folder in the mount.
  static Result<SpoolTree> load(uint32_t realm, const SpooledSet& set);
  /// Whether the last mount left any file in writing.
  bool was_left_open() const { return was_left_open_; }

  OpenNames& names() { return names_; }
  const OpenNames& names() const { return names_; }
  MountResult<NodeView> view(uint32_t id) const;
  MountResult<NodeView> find(uint32_t folder, const std::string& name);
  MountResult<std::vector<ListedName>> list(uint32_t folder) const;
  MountResult<std::string> read_link(uint32_t id) const;

  /// The path of a new name, from the set's folder, if there can be one in `folder`.
  MountResult<std::string> place_for(uint32_t folder, const std::string& name) const;
  /// Opens a file that has a name, with what of a program's `flags` concerns the spool. `writes`: somebody will write.
  MountResult<UniqueFd> open_file(uint32_t id, int flags, bool writes);
  /// Makes a file that was not there, and opens it. Nobody has found it yet.
  MountResult<std::pair<uint32_t, UniqueFd>> create(uint32_t folder, const std::string& name, int flags, uint32_t mode);
  /// The last writer of a file has gone.
  void end_writing(uint32_t id);
  /// Something that was written to the file is lost, for this mount and later ones, until it is removed.
  void note_lost(uint32_t id);
  /// Opens a file that has a name, to be looked at.
  MountResult<UniqueFd> open_to_look(uint32_t id) const;
  MountResult<NodeView> make_folder(uint32_t folder, const std::string& name, uint32_t mode);
  MountResult<NodeView> make_link(uint32_t folder, const std::string& name, const std::string& target);
  Errno remove(uint32_t folder, const std::string& name, int flags);
  Errno rename(uint32_t folder, const std::string& name, uint32_t new_folder, const std::string& new_name,
               unsigned flags);
  /// Of a file that nobody needs to have open.
  Errno truncate(uint32_t id, uint64_t bytes);
  /// All of a change but the number of bytes.
  Errno change_attributes(uint32_t id, const AttributeChange& change) const;
  /// The folders from `id` up to the set's whose names are not durable, open; from now on they count as durable. EIO:
  /// that can no longer be had.
  MountResult<std::vector<std::pair<uint32_t, UniqueFd>>> take_unsynced_folders(uint32_t id);

 private:
  SpoolTree(uint32_t realm, UniqueFd folder, WriterJournal journal)
      : realm_(realm), folder_(std::move(folder)), journal_(std::move(journal)) {}
  MountResult<NodeView> found(uint32_t id);
  /// Its name is going, and with it what was lost of it, or was not written.
  void note_gone(uint32_t id);

  uint32_t realm_;
  UniqueFd folder_;
  WriterJournal journal_;
  OpenNames names_;
  bool was_left_open_ = false;
};

}  // namespace varve
