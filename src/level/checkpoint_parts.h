#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/bytes.h"
#include "core/cell_box.h"
#include "core/likeness.h"
#include "format/image.h"
#include "layout/layout.h"
#include "level/stored_image.h"
#include "varve/status.h"

namespace varve {

/// Bytes of a rank's image, and where they go.
struct PartRead {
  uint32_t rank = 0;
  uint64_t offset = 0;
  MutableByteSpan into;
};

/// Cells of what a rank has of an array.
struct PartBox {
  uint64_t offset = 0;  ///< of that in the rank's image
  /// In an array of its shape, or of its elements one after another.
  CellBox cells;
};

/// What of a rank's image goes to `target`: at least these bytes, which are in order and apart.
struct PartLoad {
  uint32_t rank = 0;
  std::vector<Extent> wanted;
  ImageTarget* target = nullptr;
  std::vector<PartBox> boxes{};  ///< the same once more, for parts that are read by cells
};

/// A rank's table, as ranks tell each other.
struct ToldTable {
  uint32_t rank = 0;  ///< of the run that made it
  uint64_t image_bytes = 0;
  ByteVector header;  ///< encode_image_header(); not looked at yet
};
void tell_table(ByteWriter& out, uint32_t rank, const ImageTable& table);
/// corrupt: it makes no sense.
Result<ToldTable> told_table(ByteReader& in);

/// Tables of many ranks, which are much alike: held as how they differ from the first one.
class AlikeTables {
 public:
  /// The next one. As decode_image_header().
  Status add(const ToldTable& table);
  size_t size() const { return tables_.size(); }
  ImageTable at(size_t ordinal) const;

 private:
  AlikeBytes tables_;  ///< bytes of the image, and its header
};

/// What all ranks of a run have of one checkpoint, at one level. One thread at a time.
class CheckpointParts {
 public:
  virtual ~CheckpointParts() = default;
  /// Of the run that made it.
  virtual uint32_t rank_count() const = 0;
  /// Put together when it is asked for, where there are many.
  virtual ImageTable table(uint32_t rank) const = 0;
  /// Whether this rank, of all that read the parts, is the one that has it at hand; none: all have it alike.
  virtual std::optional<bool> is_at_hand(uint32_t /*rank*/) const { return std::nullopt; }
  /// All of these, checked.
  virtual Status read(std::span<const PartRead> reads) = 0;
  /// load() will be of this rank's image: what it takes to find it is read now, so that all can begin together.
  virtual Status will_load(uint32_t /*rank*/) { return {}; }
  /// All of these, of each rank one at most, checked, on up to `thread_count` threads.
  virtual Status load(std::span<const PartLoad> loads, size_t thread_count) = 0;
  /// This rank reads no more for now. Where ranks read for each other, it goes on to do that, until none wants
  /// anything: collective then, as is load(), and all come here after their last read(), whatever became of it.
  virtual void serve() {}
  /// As RankImage::origin().
  virtual std::optional<SetOrigin> origin() const { return std::nullopt; }
  /// As RankImage::is_of_own_node().
  virtual bool is_of_own_node() const { return true; }
  /// What could not be had is told where it belongs: nothing new should rest on what is damaged.
  virtual void note_faults() {}
};

/// Those that one place has, perhaps not of all ranks, and that this process reads itself.
class HeldParts : public CheckpointParts {
 public:
  /// The ranks whose parts are here, in order.
  virtual std::vector<uint32_t> ranks() const = 0;
  /// Of their set (SetRecord::number); 0: not known.
  virtual uint64_t number() const { return 0; }
  Status read(std::span<const PartRead> reads) final;

 protected:
  /// Any thread, but of one rank one at a time.
  virtual Status read_part(const PartRead& read) = 0;
};

}  // namespace varve
