#pragma once

#include <cstdint>
#include <vector>

#include "codec/codec.h"

// What programs have compressed themselves, by what it holds. Each kind has a stage of its own, which makes it again.

namespace varve {

/// The contents of all that can be made again in some bytes, and whatever else it takes.
struct Opened {
  CodecNumber stage = CodecNumber::inflate;
  ByteVector params;  ///< of the stage
  ByteVector bytes;   ///< what the stage gives; none if nothing was found, as that would be the raw bytes
  /// How many of the bytes belong together, one after the other. Contents that follow each other and are as long, or so
  /// short that they had better be together, are likely to be of one kind.
  std::vector<uint64_t> sections;
  uint64_t made_bytes = 0;  ///< so many are made of contents
};

/// Makes Opened::sections.
class OpenedSections {
 public:
  /// Of the content that comes next. `element_bytes` are of what its planes were; 1: there were none.
  void add(uint64_t bytes, size_t element_bytes);
  /// So much, which is no content, comes last.
  std::vector<uint64_t> end(uint64_t rest_bytes);

 private:
  std::vector<uint64_t> sections_;
  uint64_t last_bytes_ = 0;
  size_t last_element_bytes_ = 0;
};

/// Whether `stage` gives what others took in to compress it.
constexpr bool opens(CodecNumber stage) { return stage == CodecNumber::inflate || stage == CodecNumber::blosc; }
/// What such a stage makes of so many bytes is at most this.
constexpr uint64_t opened_bytes_max(uint64_t bytes) {
  return bytes < kPackBytesMax / 32 ? 32 * bytes + 64_KiB : kPackBytesMax;
}

/// What has been tried in vain, so that bytes that only begin like what can be opened cost no more than others.
class FutileOpenings {
 public:
  explicit FutileOpenings(ByteSpan raw) : bytes_max_(opened_bytes_max(raw.size())) {}
  /// Whether no more is to be looked at: three could not be made again, one after the other, or as many bytes of
  /// content were for nothing as there may be in all.
  bool enough() const { return in_a_row_ >= 3 || bytes_ > bytes_max_; }
  void succeeded() { in_a_row_ = 0; }
  void failed(uint64_t content_bytes) {
    ++in_a_row_;
    wasted(content_bytes);
  }
  /// What turned out to be nothing that could be made again.
  void wasted(uint64_t content_bytes) { bytes_ += content_bytes; }

 private:
  const uint64_t bytes_max_;
  uint64_t bytes_ = 0;
  unsigned in_a_row_ = 0;
};

/// Whether a fourth of it may be compressed: whether so much looks like noise. Looks at 16 KiB in all.
bool may_be_compressed(ByteSpan raw);

/// Streams of deflate, with a header of zlib, gzip or zip. FORMAT.md, "inflate".
Opened open_deflated(ByteSpan raw);
/// Frames of c-blosc 1 that lz4 compressed, as Zarr writes them. FORMAT.md, "blosc".
Opened open_blosc(ByteSpan raw);

/// Whether a deflated stream, or a frame of blosc, goes on behind the end of `raw`: for whoever could have more of it
/// at hand.
bool ends_in_deflated(ByteSpan raw);
bool ends_in_blosc(ByteSpan raw);

/// Whether a frame of blosc begins in the first 64 KiB: what lz4 leaves of some numbers does not look like noise.
bool begins_with_blosc(ByteSpan raw);

}  // namespace varve
