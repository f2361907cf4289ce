#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "core/open_writers.h"
#include "core/sync.h"
#include "engine/source.h"
#include "watch/set_finder.h"

namespace varve {

struct OriginalsRules {
  /// Where the system does not say whether a program has a file open for writing: whether the files are closed, by the
  /// word of somebody who knows.
  bool known_to_be_closed = false;
  /// Asked under the lease: whether the file of this ordinal has the bytes that were compared, where its times do not
  /// tell (SourceReader::check_unnoticed()).
  std::function<Status(uint32_t file)> check_bytes = [](uint32_t) { return Status(); };
  // For tests.
  std::function<Result<ReadLease>(const std::string& path)> take_lease = ReadLease::take;
  /// A program that had found a file by its name just before that was taken away comes to its lease in this time:
  /// between the two it waits for nothing.
  std::function<void()> await_openers = [] { sleep_for(std::chrono::milliseconds(20)); };
};

/// Removes the files of a set that is saved, and folders that are empty then, up to the set's own, if it has one.
///
/// A file goes only if it is the very one that was found, unchanged, and nobody has it open for writing: both are
/// looked at under a lease, then it leaves its name for kRemovingFolder, where no program finds it, and only then, if
/// the lease is unbroken and the file still unchanged, it is removed. Otherwise it gets its name back, and nothing is
/// lost. A program that renames the folder meanwhile finds them in it.
///
/// From before the first file goes until all have gone for good there is a note in the set's folder, or the watched one
/// if it has none (find_removal_note()). It stays if this ends in between, by whatever.
///
/// busy: something has changed since the set was found, or a program has opened it for writing; that, and what comes
/// behind, is left. unsupported: the system does not say whether a program has a file open; nothing was removed.
/// already_exists: a file could not get its name back, as another has it now; it stays in kRemovingFolder.
Status remove_originals(const std::string& watched_folder, const FoundSet& set, const std::string& job,
                        const OriginalsRules& rules = {});

/// The name of the note that the removal of the set's files has begun, and is not over: what is found of it may be less
/// than the set. Empty: there is none. In a folder of the set's own, whoever's note counts. One that is older than all
/// of the set's files does not count, and the set's own is removed then: a program has written the set anew.
Result<std::string> find_removal_note(const std::string& watched_folder, const FoundSet& set, const std::string& job);

/// The path of the note (kRestoringNote) that a restore into one of the set's folders, or those above it up to the
/// watched one, is going on or was stopped: what is found of the set may be less than it, or of two sets. Empty: there
/// is none, or a program has written all of the set's files since.
Result<std::string> find_restoring_note(const std::string& watched_folder, const FoundSet& set);

/// In each folder of which files are being removed: where they are for a moment.
inline constexpr const char* kRemovingFolder = ".varve-removing";

/// Gives files that a removal which was stopped has left in such folders their names back, as far as nobody else has
/// these. `files` are those of `folder`, as scan_source_tree() finds them. Returns whether anything has changed.
bool put_back_unremoved(const std::string& folder, const std::vector<SourceFile>& files);

}  // namespace varve
