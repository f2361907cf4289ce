#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/clock.h"
#include "format/image.h"
#include "format/set_record.h"
#include "layout/raw_layout.h"
#include "level/byte_swaps.h"
#include "level/checkpoint_parts.h"
#include "level/file_arrays.h"
#include "level/level.h"
#include "level/stored_image.h"
#include "reader/stored_variables.h"
#include "store/condemn.h"
#include "store/store.h"
#include "varve/status.h"

namespace varve {

/// What the ranks of a program had, taken from a set of the files that it has written itself, so that a session can
/// restart from it. The ranks are those by whose numbers the files were called, in their order; a set whose files have
/// none is of one rank. Of each it has the arrays that its files' layouts name and that lie in one piece there. Where
/// they lie in a whole, a sidecar beside the file says; what one rank has alone, or a file of no rank, is the whole.
class FileParts final : public HeldParts {
 public:
  using Told = std::function<void(const CopyFaults&)>;

  /// Null: a session made the set. `store`, `clock` and what `told` needs outlive it; `told` hears of what could not be
  /// had. Of what has to be decoded, it has only variables of the wish; null: all. `thread_count`: to decode with, at
  /// least 1. invalid_argument: a sidecar in it makes no sense.
  static Result<std::unique_ptr<FileParts>> open(const Store& store, Clock& clock, const SetRecord& record, Told told,
                                                 const RankWish* wish, size_t thread_count);
  ~FileParts() override { store_.drop_arena_cache(); }

  /// Leaves of all ranks only what this rank wants, under the names and in the byte order of the wish: a name may lack
  /// the "/" before it. With as many ranks as before, what does not say where it lies in the whole is the rank's own.
  /// invalid_argument: it does not say so, and that is needed; it is of another type; or it is not clear what of the
  /// files is meant. unsupported: nobody here knows how it was compressed. Once, before anything is read.
  Status fit(const RankWish& wish);
  /// Of all that is clear, as an image of the rank's own would have it.
  Result<std::map<uint32_t, ImageTable>> tables() const;

  uint32_t rank_count() const override { return static_cast<uint32_t>(by_rank_.size()); }
  std::vector<uint32_t> ranks() const override;
  ImageTable table(uint32_t rank) const override { return by_rank_[rank].table; }
  Status will_load(uint32_t rank) override;
  Status load(std::span<const PartLoad> loads, size_t thread_count) override;
  void note_faults() override;

 private:
  /// The files of a rank, one after another, are what it has saved.
  struct File {
    std::unique_ptr<StoredImage> image;
    uint64_t begin = 0;  ///< of its first byte in all of them
  };
  /// What is to be decoded, behind them.
  struct Array {
    const StoredVariable* variable = nullptr;
    uint64_t begin = 0;
    bool is_checked = false;
  };
  struct OfRank {
    std::vector<File> files;
    std::vector<Array> arrays;  ///< one after another
    uint64_t file_bytes = 0, bytes = 0;
    ImageTable table;                                   ///< in the order of names
    std::map<std::string, const StoredVariable*> left;  ///< what nobody can decode, or memory cannot hold, by bare name
    ByteSwaps swaps;
  };
  using Places = std::map<std::string, SidecarPlace>;  // by the variable's name
  /// Where variables come from.
  struct OfFile {
    const std::string& path;
    bool is_whole = false;  ///< they are wholes, unless `places` says otherwise
    const Places& places;
    std::set<std::string> placed{};  ///< those of `places` that were found
  };
  class Turned;

  FileParts(const Store& store, SetName set, Told told) : store_(store), set_(std::move(set)), told_(std::move(told)) {}

  Status add(std::vector<std::unique_ptr<StoredImage>> files, const StoredVariables::Wanted& wanted);
  Result<std::map<std::string, Places>> read_all_places(const std::vector<std::unique_ptr<StoredImage>>& files) const;
  Result<Places> read_places(StoredImage& sidecar) const;
  Status add_files(std::vector<std::unique_ptr<StoredImage>> files, const std::set<std::string>& of_zarr);
  Status add_variables(OfRank& rank, const File& file, OfFile& of_file);
  Status add_array(OfRank& rank, const StoredVariable& array, OfFile& of_file);
  Status add_variable(OfRank& rank, ImageVariable image, OfFile& of_file);
  std::vector<ImageVariable> find(uint32_t rank, const std::string& name) const;
  Status fit_variable(const RankWish& wish, const ImageVariable& wanted, bool several,
                      std::vector<std::vector<ImageVariable>>& fitting);
  Status fit_part(uint32_t rank, const ImageVariable& wanted, ImageVariable& part);
  Status keep_own(const RankWish& wish, const ImageVariable& wanted, bool several,
                  std::vector<std::vector<ImageVariable>>& found) const;
  Status why_left(const ImageVariable& wanted, const StoredVariable& array);
  static size_t array_at(const OfRank& rank, uint64_t offset);
  Status read_part(const PartRead& read) override;
  Status load_part(const PartLoad& load);
  Status load_arrays(const PartLoad& load);
  Status with_faults(const StoredVariable& array, Status outcome);

  const Store& store_;
  const SetName set_;
  const Told told_;
  std::unique_ptr<FileArrays> arrays_;  ///< null: none are wanted
  std::vector<OfRank> by_rank_;
  std::map<int64_t, size_t> ordinals_;                ///< in `by_rank_`, by the numbers of ranks
  std::vector<std::unique_ptr<StoredImage>> chunks_;  ///< files that arrays of Zarr consist of
  std::map<std::string, StoredImage*> images_;        ///< of all files, by path
  bool has_gaps_ = false;                             ///< the ranks' numbers do not follow each other
  std::set<std::string> wholes_;                      ///< names of what is the whole, and no sidecar says so
};

}  // namespace varve
