#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/clock.h"
#include "core/patience.h"
#include "core/sync.h"
#include "engine/stored_files.h"
#include "format/image.h"
#include "format/set_origin.h"
#include "format/set_record.h"
#include "level/node_packs.h"
#include "store/condemn.h"
#include "store/store.h"
#include "varve/status.h"

namespace varve {

/// Reads a store patiently: an open file may have gone bad, too. Thread-safe.
class PatientReads {
 public:
  /// Both outlive it.
  PatientReads(const Store& store, Clock& clock) : store_(store), patience_(clock) {}
  template <class Read>
  auto operator()(const Read& read) {
    return patience_(read, [this] { store_.drop_arena_cache(); });
  }

 private:
  const Store& store_;
  Patience patience_;
};

/// The image of one rank in a set of the store. What cannot be read is tried again for a while (PatientReads); if it
/// stays so, that is io_error, and no damage. One thread at a time.
class StoredImage {
 public:
  StoredImage(const Store& store, Clock& clock) : store_(store), clock_(clock), reads_(store, clock), streams_(store) {}

  /// Finds which run made a set of a node's own store, which has only the ranks of that node. invalid_argument: it was
  /// not made by a session.
  Status find_origin(const SetRecord& record, uint32_t group);
  /// After it.
  const SetOrigin& origin() const { return origin_; }

  /// Finds a rank's image and reads its table. `group`: where to look first, the ordinal of the rank's group.
  /// invalid_argument: the set has no image of this rank, or, after find_origin(), not_found: the rank was on another
  /// node when the set was made. corrupt.
  Status open(const SetRecord& record, uint32_t rank, uint32_t group);

  /// Those that are in this set, by rank. `of_node`: what a store of one node's own has, perhaps not of all ranks.
  static Result<std::map<uint32_t, std::unique_ptr<StoredImage>>> open_present(const Store& store, Clock& clock,
                                                                               const SetRecord& record, bool of_node);
  /// The same of one group of a set that all nodes share. `known`: tables of its ranks, which are not read then.
  static Result<std::map<uint32_t, std::unique_ptr<StoredImage>>> open_group(
      const Store& store, Clock& clock, const SetRecord& record, uint32_t group,
      const std::function<const ImageTable*(uint32_t rank)>& known = {});

  /// All regular files of a set that was saved from a folder, to be read like images without a table. None: a session
  /// made the set.
  static Result<std::optional<std::vector<std::unique_ptr<StoredImage>>>> open_files(const Store& store, Clock& clock,
                                                                                     const SetRecord& record);

  const ImageTable& image() const { return image_; }
  const TreeFile& file() const { return leaf_.files.front(); }

  /// What is wanted of an image, and where it goes.
  struct Load {
    StoredImage* image = nullptr;
    /// In order and apart: the packs that hold some of these bytes, so at least them. None: all of the image.
    std::optional<std::span<const Extent>> wanted{};
    ImageTarget* target = nullptr;
  };
  /// Puts all that is wanted where it goes, every chunk checked against its score, on up to `thread_count` threads.
  /// Each pack is read once for all images; and once for all ranks of the node that come with the same `shared`, which
  /// may be null. Looks at all even if some is damaged, and what is whole is there then.
  static Status load_all(std::span<const Load> loads, size_t thread_count, NodePacks* shared = nullptr);
  Status load(size_t thread_count, ImageTarget& target, NodePacks* shared = nullptr) {
    const Load all{this, {}, &target};
    return load_all({&all, 1}, thread_count, shared);
  }
  Status load(size_t thread_count, std::span<const Extent> wanted, ImageTarget& target) {
    const Load some{this, wanted, &target};
    return load_all({&some, 1}, thread_count);
  }
  /// Bytes of the image, checked as well.
  Status read(uint64_t offset, MutableByteSpan into);
  /// Looks at all of it, for faults().
  void find_faults();

  /// What open(), load() and find_faults() could not have: nothing new should refer to these arenas.
  const CopyFaults& faults() const { return faults_; }

 private:
  /// A run of bytes that lie together in the image and in a stream.
  struct Piece {
    uint64_t offset = 0, bytes = 0;
    size_t stream = 0;
    uint64_t stream_offset = 0;
  };
  struct PackUse;
  struct PackJob;
  class PackLoads;

  using OfRanks = std::map<uint32_t, std::unique_ptr<StoredImage>>;
  /// Adds what a group has of so many ranks.
  Status open_group(const GroupRecord& group, uint64_t rank_count, OfRanks& found,
                    const std::function<const ImageTable*(uint32_t rank)>& known = {});
  Status find(const SetRecord& record, uint32_t rank, uint32_t group);
  Result<std::optional<SetOrigin>> origin_in(const LeafLink& link);
  Status read_table();
  /// Where the streams' bytes lie in the file.
  void find_pieces();
  static uint64_t wanted_bytes(const Load& load, const Extent& bytes);
  std::vector<PackUse> pack_uses(const Load& load) const;
  /// Where the pack lies in the end, if that is in one piece.
  MutableByteSpan place_of(const PackUse& use, ImageTarget& target) const;
  /// How many files of its leaf use the pack; 0: not known.
  uint32_t users_of(uint32_t pack) const { return pack < users_.size() ? users_[pack] : 0; }
  Result<Root> read_root(const GroupRecord& group);
  Result<Leaf> read_leaf(const LeafLink& link);
  void note_faults(const CopyFaults& faults);
  void note_failure(const PackUse& use, const Status& failure);
  void load_patterns(const Load& load) const;
  /// Calls `visit` for the bytes of a stream, as they lie in the image.
  void for_each_piece(size_t stream, Extent bytes, const std::function<void(const Extent&)>& visit) const;

  const Store& store_;
  Clock& clock_;
  PatientReads reads_;
  StreamReader streams_;
  Leaf leaf_;                    ///< with no file but the image's
  std::vector<uint32_t> users_;  ///< for each of its packs: how many files used it
  std::vector<Piece> pieces_;    ///< in the order of the image
  std::vector<std::vector<Piece>> pieces_of_stream_;
  ImageTable image_;
  SetOrigin origin_;
  Mutex mutex_;
  CopyFaults faults_ VARVE_GUARDED_BY(mutex_);
  Status first_failure_ VARVE_GUARDED_BY(mutex_);
};

}  // namespace varve
