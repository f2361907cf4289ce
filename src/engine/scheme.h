#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/source.h"
#include "format/tree.h"
#include "varve/element_type.h"

namespace varve {

/// The order in which chunks are laid down before they are compressed (mcrEngine, section III-B).
enum class Scheme : uint8_t { agnostic, agnostic_block, aware, aware_block };
Result<Scheme> parse_scheme(std::string_view name);
std::string_view scheme_name(Scheme scheme);
/// Whether streams take turns, block by block.
constexpr bool takes_blocks(Scheme scheme) { return scheme == Scheme::agnostic_block || scheme == Scheme::aware_block; }

/// The bytes of one variable, or of a file's skeleton, on their way into the store.
struct Stream {
  /// Where its class is among those of a bundle, of which some predict others: all have as many streams as this one,
  /// of the same lengths, in the same order.
  struct Bundle {
    uint32_t number = 0;                  ///< from 1 on; 0: it is in none
    uint32_t position = 0;                ///< of the class
    uint32_t classes = 0;                 ///< of the bundle
    std::optional<uint32_t> reference{};  ///< position of the class that predicts this one
  };

  uint32_t file = 0;      ///< ordinal in the group
  uint32_t position = 0;  ///< in TreeFile::streams: 0 is the skeleton
  uint32_t class_id = 0;
  std::optional<uint32_t> laid_with{};  ///< another class, in whose packs it is
  bool moves = false;                   ///< its chunks are cut by their content, as it may come again at other places
  bool encoded = false;                 ///< by the file's format, which may have compressed it
  bool joins = false;                   ///< it is short, and goes whole into one chunk with others of its class
  int64_t rank = -1;
  uint64_t bytes = 0;
  ElementType type;
  std::vector<uint64_t> dims;  ///< of the array that a run of it lies in, fastest first (codec.h, Run)
  std::vector<Extent> extents;
  Bundle bundle;
  uint64_t pack_bytes = 0;            ///< raw bytes of a pack of its class; 0: as many as of others
  std::vector<Reference> references;  ///< filled by the saver; `pack` is an ordinal in the group's packs

  /// The class whose packs it is in.
  uint32_t laid_class() const { return laid_with.value_or(class_id); }
};

/// How many times as large as other packs those of a bundle may be.
inline constexpr uint64_t kBundlePackFactor = 4;
/// About how many raw bytes of a bundle are laid into one pack: as many of each of its `classes` variables as keep what
/// describes a part small, and no more than a reader of one variable may be made to decode.
constexpr uint64_t bundle_pack_bytes(uint64_t pack_bytes, size_t classes) {
  return std::clamp<uint64_t>(classes * 256_KiB, pack_bytes, kBundlePackFactor * pack_bytes);
}

/// A part of a stream that is chunked on its own.
struct WorkItem {
  uint32_t stream = 0;
  uint64_t begin = 0, end = 0;
};

/// Gives the parts of a group's streams in the order of a scheme: by class (all of one class for the agnostic schemes),
/// then rank and file; the block schemes take a block of each stream in turn. The classes of a bundle take turns, each
/// with a part of a pack, in the order of the bundle; turns end with what a rank has, unless that is little.
class WorkOrder {
 public:
  /// `streams` must outlive this. `block_bytes` counts for the block schemes. The classes of a bundle
  /// together lay down bundle_pack_bytes(pack_bytes) before the first is to go on; their streams are cut at multiples
  /// of `chunk_bytes`.
  WorkOrder(const std::vector<Stream>& streams, Scheme scheme, uint64_t block_bytes, uint64_t pack_bytes = 1_MiB,
            uint64_t chunk_bytes = 8_KiB);
  std::optional<WorkItem> next();

 private:
  /// Where a class of a bundle has got to.
  struct Turn {
    size_t at = 0;  ///< in order_
    size_t end = 0;
    uint64_t offset = 0;  ///< in the stream there
  };

  std::optional<WorkItem> next_whole();
  std::optional<WorkItem> next_of_bundle();
  /// Of a bundle whose first stream is the next in order_.
  void begin_bundle();
  std::optional<WorkItem> next_block();
  /// One past the last of order_ that has the class of `from`.
  size_t class_end(size_t from) const;

  const std::vector<Stream>& streams_;
  const bool blocks_;
  const bool by_class_;
  const uint64_t block_bytes_;
  const uint64_t pack_bytes_;
  const uint64_t chunk_bytes_;
  std::vector<uint32_t> order_;
  std::vector<Turn> turns_;  ///< of the bundle in work, by position
  size_t turn_ = 0;
  uint64_t turn_bytes_ = 0;  ///< of each turn
  uint64_t turn_bytes_left_ = 0;
  uint64_t much_of_a_rank_ = 0;  ///< of a class of the bundle
  size_t at_ = 0;                ///< next in order_
  size_t class_begin_ = 0, class_end_ = 0;
  size_t active_end_ = 0;  ///< of the class: the streams after it have no more blocks
  uint64_t block_ = 0;
  bool found_in_round_ = false;
};

/// Finds the rank of each regular file from the numbers in the names. Files whose paths differ only in digits are a
/// family; in a family of several the last number that varies is the rank; a file alone in its family has one if the
/// number follows a word such as `rank`, `cpu`, `proc`, `pe`, `task` or `node`. A thousand ranks and more that no word
/// tells are none if many numbers between them are lacking, or most of them have little data; unless somebody says that
/// there are so many (`said_count`). Others belong to no rank (-1). `regex`, if not empty, decides instead: its first
/// group (or all of the match) is the rank; files that it does not match belong to none.
Status assign_ranks(std::vector<SourceFile>& files, const std::string& regex, uint64_t said_count = 0);
/// Whether such a word comes before the last number of a name.
bool names_rank(std::string_view name);
/// How many ranks assign_ranks(), without an expression, has not taken for such because they would have had little
/// data.
uint64_t count_doubted_ranks(const std::vector<SourceFile>& files);

/// invalid_argument: this is no regular expression. An empty one decides nothing.
Status check_rank_regex(const std::string& regex);

/// The path with each run of digits replaced by '#'.
std::string path_family(std::string_view path);

}  // namespace varve
