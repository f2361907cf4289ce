#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/source.h"

namespace varve {

/// What of a folder is saved: shell patterns. One without '/' matches a component of a path, so that a folder of that
/// name is meant with all that is below it; one with '/' matches a path from the saved folder on, or one above. A '/'
/// at the end says nothing.
struct FileChoice {
  std::vector<std::string> include;  ///< nothing else; empty: all
  std::vector<std::string> exclude;
  bool all() const { return include.empty() && exclude.empty(); }
};

/// False: for sure, the choice takes neither this path of the saved folder nor anything below it.
bool may_take(const FileChoice& choice, const std::string& path);

/// A note of this name lies in a folder while the files of that set leave it, as they are saved: what is left is not
/// the set. It is no part of any set.
inline constexpr std::string_view kRemovalNotePrefix = ".varve-removing-of-";
inline bool is_removal_note(std::string_view name) { return name.starts_with(kRemovalNotePrefix); }

/// Lists a folder with all that is below it, without following symbolic links; sorted by path. Sockets, pipes and
/// devices are left out with a warning; what a restore that was killed has left there, without. Anything that cannot be
/// read is an error: a set is never silently less than its folder. `depth_max`: 1 lists the folder alone.
Result<std::vector<SourceFile>> scan_source_tree(const std::string& folder, ProgressSink& progress,
                                                 size_t depth_max = SIZE_MAX);

/// What a FileChoice takes of a folder.
struct ChosenFiles {
  std::vector<SourceFile> files;  ///< sorted by path; with the folders that they lie in
  uint64_t names_sum = 0;         ///< SourceFile::names_sum of the folder itself
  bool some_left_out = false;
};
/// The same of what `choice` takes, and of the notes of restores and removals, unless these are excluded. What it
/// cannot take (may_take()) is neither opened nor looked at, so that nothing of it can fail. Warns of patterns that
/// match nothing.
Result<ChosenFiles> scan_chosen_files(const std::string& folder, const FileChoice& choice, ProgressSink& progress);

/// What somebody names to be saved: a folder, or one file.
struct NamedSource {
  std::string folder;  ///< the named one, or that in which the named file lies
  SourceFile self;     ///< the folder as `.`, or the file: for check_unchanged()
  bool is_file() const { return self.type == FileType::regular; }
};
/// `path` may be a link to either.
Result<NamedSource> look_at_source(const std::string& path);

/// What has become of a file that is not any more what the scan saw: busy.
Status changed_while_saved(const std::string& path);

/// What a failed system call on what the scan saw means: changed_while_saved() if it is gone, or is something else by
/// now.
Status failed_while_saved(int error, std::string_view action, const std::string& path);

/// busy if the file, or what lies in the folder, differs from what the scan saw.
Status check_unchanged(const std::string& folder, const SourceFile& file);
/// The same where `choice` was scanned for: what comes and goes in a folder and is not taken changes nothing.
Status check_unchanged(const std::string& folder, const SourceFile& file, const FileChoice& choice);

/// Waits until whatever happens to the files from now on gives them other times than those that the scan saw, for two
/// seconds at most: a file system counts time in ticks, and what is written in one tick has one time.
void let_times_pass(const std::vector<SourceFile>& files);

}  // namespace varve
