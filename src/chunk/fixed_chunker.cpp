#include <algorithm>

#include "chunk/chunker_kinds.h"

namespace varve {

namespace {

class FixedChunker final : public Chunker {
 public:
  explicit FixedChunker(uint32_t average)
      : average_(average), whole_below_(std::min(average + (average + 1) / 2, kChunkBytesMax + 1)) {}

  size_t next(ByteSpan ahead, uint64_t remaining) const override {
    return std::min<size_t>(ahead.size(), remaining < whole_below_ ? remaining : average_);
  }
  size_t bytes_ahead() const override { return whole_below_ - 1; }

 private:
  uint32_t average_;
  uint32_t whole_below_;  ///< a rest shorter than this is one chunk
};

}  // namespace

std::unique_ptr<Chunker> make_fixed_chunker(uint32_t average) { return std::make_unique<FixedChunker>(average); }

}  // namespace varve
