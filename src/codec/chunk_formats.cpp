#include "codec/chunk_formats.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "codec/codec.h"
#include "codec/kernels.h"

namespace varve {
namespace {

/// A frame of blosc, without what its streams hold.
class BloscDecoder {
 public:
  BloscDecoder(ByteSpan frame, MutableByteSpan content) : frame_(frame), content_(content) {}

  Status run() {
    VARVE_TRY(read_header());
    if (content_.empty()) return {};
    if ((flags_ & kCopied) != 0) {
      if (frame_.size() - kHeaderBytes != content_.size()) return damaged();
      std::copy_n(frame_.begin() + kHeaderBytes, content_.size(), content_.begin());
      return {};
    }
    const size_t blocks = content_.size() / block_bytes_ + (content_.size() % block_bytes_ != 0 ? 1 : 0);
    if (blocks > (frame_.size() - kHeaderBytes) / sizeof(uint32_t)) return damaged();
    for (size_t block = 0; block < blocks; ++block) {
      const size_t at = load_le<uint32_t>(frame_.data() + kHeaderBytes + sizeof(uint32_t) * block);
      VARVE_TRY(decode_block(
          at, content_.subspan(block * block_bytes_, std::min(block_bytes_, content_.size() - block * block_bytes_))));
    }
    return {};
  }

 private:
  static constexpr size_t kHeaderBytes = 16;
  static constexpr uint8_t kShuffled = 1, kCopied = 2, kBitShuffled = 4, kWholeBlocks = 16;
  /// A block's planes are compressed apart if there are at most so many, of so many bytes at least.
  static constexpr size_t kSplitsMax = 16, kSplitBytesMin = 128;
  enum class Compressor : uint8_t { blosclz, lz4, snappy, zlib, zstd };

  static Status damaged() { return Status::corrupt("a frame of blosc is damaged"); }

  Status read_header() {
    if (frame_.size() < kHeaderBytes) return damaged();
    const auto version = static_cast<uint8_t>(frame_[0]);
    if (version != 1 && version != 2) return Status::unsupported(fmt::format("blosc frames of version {}", version));
    flags_ = static_cast<uint8_t>(frame_[2]);
    element_bytes_ = static_cast<size_t>(frame_[3]);
    const size_t content_bytes = load_le<uint32_t>(frame_.data() + 4), bytes = load_le<uint32_t>(frame_.data() + 12);
    block_bytes_ = load_le<uint32_t>(frame_.data() + 8);
    if (content_bytes != content_.size() || bytes != frame_.size() || element_bytes_ == 0) return damaged();
    if (content_bytes > 0 && (block_bytes_ == 0 || block_bytes_ > content_bytes)) return damaged();
    compressor_ = static_cast<Compressor>(flags_ >> 5);
    if ((flags_ & kCopied) != 0) return {};
    switch (compressor_) {
      case Compressor::lz4: return find(CodecNumber::lz4);
      case Compressor::zstd: return find(CodecNumber::zstd);
      case Compressor::zlib: return {};
      case Compressor::blosclz: return Status::unsupported("blosc frames that blosclz has compressed");
      case Compressor::snappy: return Status::unsupported("blosc frames that snappy has compressed");
    }
    return Status::unsupported(fmt::format("blosc frames of compressor {}", flags_ >> 5));
  }

  Status find(CodecNumber number) {
    VARVE_ASSIGN(codec_, find_codec(number));
    return {};
  }

  Status decode_block(size_t at, MutableByteSpan out) {
    const bool bytes_moved = (flags_ & kShuffled) != 0 && element_bytes_ > 1;
    const bool bits_moved = (flags_ & kBitShuffled) != 0 && block_bytes_ >= element_bytes_;
    const bool moved = bytes_moved || bits_moved;
    if (moved && moved_.size() < out.size()) moved_ = Buffer(out.size());
    const MutableByteSpan into = moved ? MutableByteSpan(moved_).first(out.size()) : out;
    const bool splits = (flags_ & kWholeBlocks) == 0 && element_bytes_ <= kSplitsMax && out.size() == block_bytes_ &&
                        block_bytes_ / element_bytes_ >= kSplitBytesMin;
    const size_t streams = splits ? element_bytes_ : 1;
    if (out.size() % streams != 0) return damaged();
    for (size_t stream = 0; stream < streams; ++stream)
      VARVE_TRY(decode_stream(at, into.subspan(stream * (out.size() / streams), out.size() / streams)));
    if (bytes_moved) {
      kernels::unshuffle(element_bytes_, into, out);
    } else if (bits_moved) {
      // What is no multiple of eight elements was left alone.
      if (out.size() / element_bytes_ % 8 == 0) {
        kernels::bit_unshuffle(element_bytes_, into, out);
      } else {
        std::copy(into.begin(), into.end(), out.begin());
      }
    }
    return {};
  }

  /// And goes on to behind it.
  Status decode_stream(size_t& at, MutableByteSpan out) {
    if (at > frame_.size() || frame_.size() - at < sizeof(uint32_t)) return damaged();
    const size_t bytes = load_le<uint32_t>(frame_.data() + at);
    at += sizeof(uint32_t);
    if (bytes > frame_.size() - at) return damaged();
    const ByteSpan in = frame_.subspan(at, bytes);
    at += bytes;
    if (bytes == out.size()) {
      std::copy(in.begin(), in.end(), out.begin());
      return {};
    }
    return codec_ != nullptr ? codec_->decode(in, {}, out) : decode_zlib(in, out);
  }

  const ByteSpan frame_;
  const MutableByteSpan content_;
  uint8_t flags_ = 0;
  size_t element_bytes_ = 0, block_bytes_ = 0;
  Compressor compressor_ = Compressor::lz4;
  const Codec* codec_ = nullptr;  ///< null: zlib
  Buffer moved_;                  ///< a block before its bytes are back in their places
};

}  // namespace

Status decode_blosc(ByteSpan in, MutableByteSpan out) { return BloscDecoder(in, out).run(); }

}  // namespace varve
