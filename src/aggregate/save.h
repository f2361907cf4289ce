#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "aggregate/similarity.h"
#include "aggregate/source.h"
#include "aggregate/work_order.h"
#include "chunk/chunker.h"
#include "codec/chooser.h"
#include "core/progress.h"
#include "layout/layout_service.h"
#include "store/set_record.h"
#include "store/store.h"

namespace varve {

struct SaveOptions {
  std::string job;               ///< empty: the name of the folder that holds the saved one
  std::optional<uint64_t> step;  ///< none: the last number in the folder's name, else one more than the job's newest
  uint32_t group_size = 32;      ///< ranks whose data are laid together in one arena
  bool smaller_groups = false;   ///< rather than leave one of several processes without a group (save_together.h)
  Scheme scheme = Scheme::aware;
  uint64_t block_bytes = 64_KiB;  ///< for the block schemes; rounded up to whole chunks
  CodecPolicy codec;
  ChunkerOptions chunker;
  MatchRule match;
  LayoutReadOptions layouts;
  std::string rank_regex;           ///< empty: find ranks by the numbers in the names
  uint64_t memory_bytes = 512_MiB;  ///< what the engine holds at most, about
  uint32_t thread_count = 0;        ///< 0: as many as processors
  uint64_t pack_bytes = 1_MiB;      ///< raw bytes of a pack
  uint64_t small_bytes = 100;       ///< variables below it go with the skeleton (mcrEngine, section VI)
  /// References of one file to what is in pieces, in the store or in the file: beyond, it is stored anew. A file of
  /// half as many more is refused.
  uint64_t references_max = 8'000'000;
  uint64_t node_bytes_max = kPackBytesMax;  ///< a longer leaf is cut into pieces
  bool direct_io = true;                    ///< bypass the page cache when writing arenas
  std::optional<uint64_t> number{};         ///< SetRecord::number; none: the job's next one in the store
  UniqueId run{};                           ///< SetRecord::run
  uint64_t run_ranks = 0;                   ///< SetRecord::run_ranks
  std::set<ArenaId> avoided_arenas;         ///< nothing that is in them is referred to, but stored anew
};

struct SaveReport {
  SetRecord record;
  uint64_t variable_count = 0;
  uint64_t pattern_bytes = 0;  ///< holes and constant chunks
  uint64_t known_bytes = 0;    ///< found in the store, or earlier in the set
};

/// What to do if the set to be saved is there already.
inline constexpr const char* kChooseAnotherStep = "choose another step with --step, or `varve drop` the old set first";

/// What `save` would call a set of this folder: the job and step that `options` and the folder's name give. Looks at
/// the store's newest step if need be.
Result<SetName> choose_set_name(const Store& store, const std::string& folder, const SaveOptions& options);

/// The last number in a folder's name, by which it tells its step; none if it has none that fits.
std::optional<uint64_t> last_number(std::string_view name);

/// Saves a folder as one set: everything or nothing. The folder must not change meanwhile (busy if it does). Progress
/// is in raw bytes.
Result<SaveReport> save_folder(const Store& store, const std::string& folder, const SaveOptions& options,
                               LayoutService& layouts, ProgressSink& progress = null_progress());

/// The same of some files of a folder, with their ranks, under a name of the caller's.
Result<SaveReport> save_files(const Store& store, const std::string& folder, std::vector<SourceFile> files,
                              const SetName& name, const SaveOptions& options, LayoutService& layouts,
                              ProgressSink& progress = null_progress());

}  // namespace varve
