#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "chunk/chunker.h"
#include "codec/chooser.h"
#include "codec/kept_encoders.h"
#include "core/progress.h"
#include "core/unique_id.h"
#include "engine/folder_scan.h"
#include "engine/scheme.h"
#include "engine/similarity.h"
#include "format/set_record.h"
#include "layout/layout_service.h"
#include "store/commit.h"
#include "store/kept_index.h"
#include "store/store.h"
#include "varve/communicator.h"

namespace varve {

/// Which ranks are laid together.
struct RankGrouping {
  std::string rank_regex;        ///< empty: find ranks by the numbers in the names
  uint32_t group_size = 32;      ///< ranks whose data are laid together in one arena
  uint64_t group_bytes_min = 0;  ///< more ranks than that, until their files have so many bytes
  bool smaller_groups = false;   ///< rather than leave one of several processes without a group
};

/// How variables are found, and which of them are alike.
struct VariableRules {
  LayoutReadOptions layouts;
  MatchRule match;
  uint64_t small_bytes = 100;  ///< variables below it go with the skeleton (mcrEngine, section VI)
};

/// What the tree of a group may hold.
struct TreeLimits {
  /// References of one file to what is in pieces, in the store or in the file: beyond, it is stored anew. A file of
  /// half as many more is refused.
  uint64_t references_max = 8'000'000;
  uint64_t node_bytes_max = kPackBytesMax;  ///< a longer leaf is cut into pieces
};

/// What a set's record says of the run that made it.
struct RunOfSet {
  std::optional<uint64_t> number{};  ///< SetRecord::number; none: the job's next one in the store
  UniqueId run{};                    ///< SetRecord::run
  uint64_t run_ranks = 0;            ///< SetRecord::run_ranks
};

class EffortPace;

struct SaveOptions {
  std::string job;               ///< empty: the name of the folder that holds the saved one
  std::optional<uint64_t> step;  ///< none: what the folder's name tells, else one more than the job's newest
  FileChoice choice;
  RankGrouping ranks;
  VariableRules variables;
  Scheme scheme = Scheme::aware;
  uint64_t block_bytes = 64_KiB;  ///< for the block schemes; rounded up to whole chunks
  CodecPolicy codec;
  EffortPace* pace = nullptr;        ///< chooses how much of `codec` each pack gets; outlives the save. None: all of it
  KeptEncoders* encoders = nullptr;  ///< of who saves again and again; outlives the save. None: of this save alone
  ChunkerOptions chunker;
  uint64_t pack_bytes = 1_MiB;  ///< raw bytes of a pack
  TreeLimits tree;
  uint64_t memory_bytes = 512_MiB;  ///< what the engine holds at most, about
  uint32_t thread_count = 0;        ///< 0: as many as processors
  bool direct_io = true;            ///< bypass the page cache when writing arenas
  RunOfSet made_by;
  /// What number the next set of a job gets; none: what the store says (Catalog::next_number()).
  std::function<Result<uint64_t>(const std::string& job)> next_number{};
  std::set<ArenaId> avoided_arenas;       ///< nothing that is in them is referred to, but stored anew
  std::function<Status()> may_publish{};  ///< of save_part(): asked right before the part can be seen; none: it may be
};

struct SaveReport {
  SetRecord record;
  uint64_t variable_count = 0;
  uint64_t pattern_bytes = 0;  ///< holes and constant chunks
  uint64_t known_bytes = 0;    ///< found in the store, or earlier in the set
  uint64_t doubted_ranks = 0;  ///< of save_folder() and save_folder_together(): count_doubted_ranks()
};

inline std::string removal_note_name(const SetName& set) { return std::string(kRemovalNotePrefix) + set.to_string(); }

/// What `save` would call a set of this folder: the job and step that `options` and the folder's name give. A folder
/// that is called as a number is a time (core/step_text.h) where the job has times, or a folder beside it is called so.
/// Extensions of a file's name with letters in them tell nothing. Looks at the store, and at the names beside the
/// folder.
Result<SetName> choose_set_name(const Store& store, const std::string& folder, const SaveOptions& options);

/// Saves a folder, or one file, as a set: everything or nothing. It must not change meanwhile (busy if it does, or if
/// there is a note in it that files are being removed, or restored). What the choice leaves out may: where it takes
/// all, a folder has changed if its time has, else if what it takes of the folder has. Progress is in raw bytes.
Result<SaveReport> save_folder(const Store& store, const std::string& folder, const SaveOptions& options,
                               LayoutService& layouts, ProgressSink& progress = null_progress());

/// The same of some files of a folder, with their ranks, under a name of the caller's. `check` says just before the
/// commit whether they are still all (busy if not); empty: they are.
Result<SaveReport> save_files(const Store& store, const std::string& folder, std::vector<SourceFile> files,
                              const SetName& name, const SaveOptions& options, LayoutService& layouts,
                              ProgressSink& progress = null_progress(), const std::function<Status()>& check = {});

/// What to do with the record of groups that are sealed: commit a set, publish a part.
using PublishRecord = std::function<Status(WriterLease& lease, const SetRecord& record)>;

/// What the options of every save must be.
Status check_save_options(const SaveOptions& options);

/// The file, or what is in the folder as far as `options` choose it, with ranks (scheme.h). Warns if that is nothing.
/// busy: a folder that is looked into (scan_chosen_files()) has a removal's or a restore's note that is not excluded.
Result<std::vector<SourceFile>> find_files(const NamedSource& source, const SaveOptions& options,
                                           ProgressSink& progress);
/// Files, as groups: the ranks in order, so many in each as `options` say. What belongs to no rank goes with the first.
/// With `smaller_groups`, there are `group_count_wanted` at least, if there are so many ranks.
std::vector<std::vector<SourceFile>> split_into_groups(std::vector<SourceFile> files, const SaveOptions& options,
                                                       uint32_t group_count_wanted = 1);

/// Saves `sources`, each as one group, under one lease, and has the record of them all published; `name` is the set's.
/// Some groups run at the same time. Starts over, three times at most, if a prune takes the writer for dead. Until
/// `publish` is called, nothing is visible. `index`: of who saves again and again; null: this save opens one.
Result<SaveReport> save_groups(const Store& store, const std::vector<Source*>& sources, const SetName& name,
                               const SaveOptions& options, ProgressSink& progress, const PublishRecord& publish,
                               KeptIndex* index = nullptr);

/// save_files() with a word in how its record is published.
Result<SaveReport> save_files_as(const Store& store, const std::string& folder, std::vector<SourceFile> files,
                                 const SetName& name, const SaveOptions& options, LayoutService& layouts,
                                 ProgressSink& progress, const PublishRecord& publish);

/// Saves one group's source as a part of a set (commit.h): all that the part says is durable when this returns OK, its
/// own name is with the set, and complete_set() makes the set of all parts. Of `options`, job, step, group size, ranks
/// and layouts are not looked at. The record that is returned is the part's. Progress is in raw bytes; `index` as
/// above.
///
/// already_exists: a part of that name is there already. Starts over if a prune took the writer for dead (busy after
/// the third time); no_space, io_error, cancelled ...: nothing was published.
Result<SetRecord> save_part(const Store& store, Source& source, const PartName& name, const SaveOptions& options,
                            ProgressSink& progress = null_progress(), KeptIndex* index = nullptr);

/// What several processes save together: the first looks, and tells the others.
struct SavePlan {
  SetName name;
  std::string folder;   ///< that the files lie in
  UniqueId run;         ///< of this save: its parts belong together
  uint64_t number = 0;  ///< SetRecord::number: the same in all parts
  std::vector<std::vector<SourceFile>> groups;
};

ByteVector encode_save_plan(const SavePlan& plan);
Result<SavePlan> decode_save_plan(ByteSpan raw);

/// As save_folder(), with the groups spread over several processes, which all see the folder and the store. Each saves
/// its groups as a part of the set (commit.h); the set appears when all have succeeded. What fails on one process
/// fails on all, with the same Status, and nothing appears. All processes return the same report. Memory and threads
/// are those of one process; if nothing is said about threads, the processes of a machine share its processors.
/// Warnings go to the first process's `progress`. Collective.
Result<SaveReport> save_folder_together(const Store& store, const std::string& folder, SaveOptions options,
                                        LayoutService& layouts, Communicator& ranks,
                                        ProgressSink& progress = null_progress());

}  // namespace varve
