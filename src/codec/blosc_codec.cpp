#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "codec/kernels.h"
#include "codec/opened.h"
#include "codec/registry.h"

namespace varve {
namespace {

constexpr size_t kFrameHeaderBytes = 16;
/// c-blosc compresses the planes of a block apart if there are at most so many, of so many bytes at least.
constexpr size_t kSplitsMax = 16, kSplitBytesMin = 128;
/// lz4 makes no more of a byte.
constexpr size_t kLz4RatioMax = 255;
/// How the bytes between a block's two ends were kept.
enum class StreamKind : uint8_t { stored = 0, lz4 = 1 };

/// What a frame begins with.
struct FrameHeader {
  enum Flag : uint8_t { shuffled = 1, copied = 2, whole_blocks = 16 };
  uint8_t flags = 0;
  size_t element_bytes = 0;
  size_t content_bytes = 0, block_bytes = 0;
  size_t bytes = 0;  ///< of all of the frame

  bool has(Flag flag) const { return (flags & flag) != 0; }
  size_t blocks() const { return has(copied) ? 0 : (content_bytes + block_bytes - 1) / block_bytes; }
  size_t bytes_of_block(size_t block) const { return std::min(block_bytes, content_bytes - block * block_bytes); }
  bool in_planes() const { return has(shuffled) && !has(copied) && element_bytes > 1; }
};

/// Nothing if none that is opened begins so: with another version, or of another coder.
std::optional<FrameHeader> read_frame_header(ByteSpan frame) {
  if (frame.size() < kFrameHeaderBytes || frame[0] != std::byte{2} || frame[1] != std::byte{1}) return std::nullopt;
  const FrameHeader header{.flags = static_cast<uint8_t>(frame[2]),
                           .element_bytes = static_cast<size_t>(frame[3]),
                           .content_bytes = load_le<uint32_t>(frame.data() + 4),
                           .block_bytes = load_le<uint32_t>(frame.data() + 8),
                           .bytes = load_le<uint32_t>(frame.data() + 12)};
  constexpr int lz4 = 1;
  if (header.flags >> 5 != lz4 || header.element_bytes == 0 || header.block_bytes == 0 ||
      header.block_bytes > header.content_bytes || header.content_bytes > kPackBytesMax)
    return std::nullopt;
  const uint64_t least =
      kFrameHeaderBytes + (header.has(FrameHeader::copied) ? header.content_bytes : 4 * header.blocks());
  if (header.bytes < least || (header.has(FrameHeader::copied) && header.bytes > least)) return std::nullopt;
  return header;
}

/// Where the next frame begins, whose end may lie behind that of `raw`.
std::optional<size_t> find_frame(ByteSpan raw, size_t from) {
  for (;; ++from) {
    from = as_text(raw).find("\2\1", from);
    if (from == std::string_view::npos) return std::nullopt;
    const ByteSpan frame = raw.subspan(from);
    const std::optional<FrameHeader> header = read_frame_header(frame);
    if (!header) continue;
    if (header->has(FrameHeader::copied)) return from;
    const size_t first_block = kFrameHeaderBytes + 4 * header->blocks();
    if (frame.size() >= kFrameHeaderBytes + 4 && load_le<uint32_t>(frame.data() + kFrameHeaderBytes) == first_block)
      return from;
  }
}

/// What is left of frames without their contents.
struct Remains {
  ByteVector rest;     ///< what lies between frames, their headers, and how their streams were kept
  ByteVector tokens;   ///< of lz4's sequences, with the bytes by which they go on
  ByteVector offsets;  ///< of lz4's matches

  struct Mark {
    size_t rest, tokens, offsets;
  };
  Mark mark() const { return {rest.size(), tokens.size(), offsets.size()}; }
  void go_back(const Mark& to) {
    rest.resize(to.rest);
    tokens.resize(to.tokens);
    offsets.resize(to.offsets);
  }
};

/// One stream of lz4, which ends with literals.
class Lz4Opener {
 public:
  Lz4Opener(ByteSpan in, MutableByteSpan out, Remains& remains) : in_(in), out_(out), remains_(remains) {}

  /// False if it is not of exactly as many bytes as `out` has.
  bool run() {
    while (at_ < in_.size()) {
      const auto token = static_cast<uint8_t>(in_[at_++]);
      remains_.tokens.push_back(static_cast<std::byte>(token));
      const std::optional<size_t> literals = length(token >> 4);
      if (!literals || *literals > in_.size() - at_ || *literals > out_.size() - made_) return false;
      std::copy_n(in_.begin() + static_cast<ptrdiff_t>(at_), *literals, out_.begin() + static_cast<ptrdiff_t>(made_));
      at_ += *literals;
      made_ += *literals;
      if (made_ == out_.size()) return at_ == in_.size();
      if (!copy_match(token & 15)) return false;
    }
    return false;
  }

 private:
  /// It goes on in bytes if it begins with 15; nothing if they do not end.
  std::optional<size_t> length(size_t begin) {
    if (begin < 15) return begin;
    for (size_t sum = begin; at_ < in_.size();) {
      const std::byte more = in_[at_++];
      remains_.tokens.push_back(more);
      sum += static_cast<size_t>(more);
      if (more != std::byte{255}) return sum;
    }
    return std::nullopt;
  }
  bool copy_match(size_t begin) {
    if (in_.size() - at_ < 2) return false;
    const size_t offset = load_le<uint16_t>(in_.data() + at_);
    remains_.offsets.insert(remains_.offsets.end(), {in_[at_], in_[at_ + 1]});
    at_ += 2;
    const std::optional<size_t> more = length(begin);
    if (!more || offset == 0 || offset > made_ || *more + 4 > out_.size() - made_) return false;
    // Byte by byte, as a match may repeat what it gives.
    for (const size_t end = made_ + *more + 4; made_ < end; ++made_) out_[made_] = out_[made_ - offset];
    return true;
  }

  const ByteSpan in_;
  const MutableByteSpan out_;
  Remains& remains_;
  size_t at_ = 0, made_ = 0;
};

class FrameOpener {
 public:
  explicit FrameOpener(ByteSpan raw) : raw_(raw), room_(opened_bytes_max(raw.size()) - raw.size()) {}

  Opened run() {
    FutileOpenings futile(raw_);
    for (size_t from = 0; !futile.enough();) {
      const std::optional<size_t> at = find_frame(raw_, from);
      if (!at) break;
      const FrameHeader header = *read_frame_header(raw_.subspan(*at));
      if (take(*at, header)) {
        futile.succeeded();
        from = end_;
      } else {
        futile.failed(header.content_bytes);
        from = *at + 1;
      }
    }
    opened_.stage = CodecNumber::blosc;
    const ByteSpan last = raw_.subspan(end_);
    ByteWriter params(opened_.params);
    params.varint(gaps_.size());
    for (const size_t bytes : {remains_.rest.size() + last.size(), remains_.tokens.size(), remains_.offsets.size()})
      params.varint(bytes);
    for (const uint64_t gap : gaps_) params.varint(gap);
    if (gaps_.empty()) return std::move(opened_);
    append(remains_.rest, last);
    const size_t content_bytes = opened_.bytes.size();
    for (const ByteVector* each : {&remains_.rest, &remains_.tokens, &remains_.offsets}) append(opened_.bytes, *each);
    opened_.sections = sections_.end(opened_.bytes.size() - content_bytes);
    return std::move(opened_);
  }

 private:
  static void append(ByteVector& to, ByteSpan bytes) { to.insert(to.end(), bytes.begin(), bytes.end()); }

  /// False: it is none that can be made again, and nothing was taken.
  bool take(size_t at, const FrameHeader& header) {
    const bool may_be = header.bytes <= raw_.size() - at && header.content_bytes <= kLz4RatioMax * header.bytes;
    if (!may_be || header.content_bytes > room_) return false;
    const Remains::Mark before = remains_.mark();
    const size_t content_at = opened_.bytes.size();
    append(remains_.rest, raw_.subspan(end_, at - end_));
    const ByteSpan frame = raw_.subspan(at, header.bytes);
    append(remains_.rest, frame.first(kFrameHeaderBytes));
    opened_.bytes.resize(content_at + header.content_bytes);
    if (!open(frame, header, MutableByteSpan(opened_.bytes).subspan(content_at))) {
      opened_.bytes.resize(content_at);
      remains_.go_back(before);
      return false;
    }
    gaps_.push_back(at - end_);
    end_ = at + header.bytes;
    room_ -= header.content_bytes;
    opened_.made_bytes += header.bytes;
    sections_.add(header.content_bytes, header.in_planes() ? header.element_bytes : 1);
    return true;
  }

  bool open(ByteSpan frame, const FrameHeader& header, MutableByteSpan content) {
    if (header.has(FrameHeader::copied)) {
      std::copy_n(frame.begin() + kFrameHeaderBytes, content.size(), content.begin());
      return true;
    }
    size_t at = kFrameHeaderBytes + 4 * header.blocks();
    for (size_t block = 0; block < header.blocks(); ++block) {
      if (load_le<uint32_t>(frame.data() + kFrameHeaderBytes + 4 * block) != at) return false;
      const MutableByteSpan out = content.subspan(block * header.block_bytes, header.bytes_of_block(block));
      const size_t splits = splits_of(header, out.size());
      if (out.size() % splits != 0) return false;
      if (header.in_planes()) planes_.resize(out.size());
      const MutableByteSpan into = header.in_planes() ? MutableByteSpan(planes_) : out;
      remains_.rest.push_back(static_cast<std::byte>(splits));
      const size_t stream_bytes = out.size() / splits;
      for (size_t split = 0; split < splits; ++split) {
        if (!open_stream(frame, at, into.subspan(split * stream_bytes, stream_bytes))) return false;
      }
      if (header.in_planes()) kernels::unshuffle(header.element_bytes, planes_, out);
    }
    return at == frame.size();
  }

  static size_t splits_of(const FrameHeader& header, size_t block_bytes) {
    const bool splits = !header.has(FrameHeader::whole_blocks) && header.element_bytes <= kSplitsMax &&
                        block_bytes == header.block_bytes && block_bytes / header.element_bytes >= kSplitBytesMin;
    return splits ? header.element_bytes : 1;
  }

  bool open_stream(ByteSpan frame, size_t& at, MutableByteSpan out) {
    if (frame.size() - at < 4) return false;
    const size_t bytes = load_le<uint32_t>(frame.data() + at);
    at += 4;
    if (bytes > frame.size() - at) return false;
    const ByteSpan in = frame.subspan(at, bytes);
    at += bytes;
    const StreamKind kind = bytes == out.size() ? StreamKind::stored : StreamKind::lz4;
    remains_.rest.push_back(static_cast<std::byte>(kind));
    if (kind == StreamKind::lz4) return Lz4Opener(in, out, remains_).run();
    std::copy(in.begin(), in.end(), out.begin());
    return true;
  }

  const ByteSpan raw_;
  size_t room_;     ///< for contents that are still to come
  size_t end_ = 0;  ///< of the last frame
  std::vector<uint64_t> gaps_;
  Remains remains_;
  ByteVector planes_;
  OpenedSections sections_;
  Opened opened_;
};

/// Makes frames of what was left of them, and of their contents, which need not fit together.
class FrameMaker {
 public:
  FrameMaker(ByteSpan rest, ByteSpan tokens, ByteSpan offsets, MutableByteSpan out)
      : rest_(rest), tokens_(tokens), offsets_(offsets), out_(out) {}

  Status copy_rest(uint64_t bytes) {
    VARVE_ASSIGN(const ByteSpan from, rest_.bytes(bytes));
    return put(from);
  }

  /// Returns how many bytes of `contents` it has.
  Result<size_t> make_frame(ByteSpan contents) {
    const size_t begin = at_;
    VARVE_TRY(copy_rest(kFrameHeaderBytes));
    const std::optional<FrameHeader> header = read_frame_header(out_.subspan(begin, kFrameHeaderBytes));
    if (!header) return Status::corrupt("a frame has a header that cannot be");
    if (header->content_bytes > contents.size()) return Status::corrupt("frames have more content than their stage");
    const ByteSpan content = contents.first(header->content_bytes);
    if (header->has(FrameHeader::copied)) {
      VARVE_TRY(put(content));
      return content.size();
    }
    const size_t blocks_at = at_;
    VARVE_TRY(leave(4 * header->blocks()));
    for (size_t block = 0; block < header->blocks(); ++block) {
      store_le(out_.data() + blocks_at + 4 * block, static_cast<uint32_t>(at_ - begin));
      VARVE_TRY(make_block(content.subspan(block * header->block_bytes, header->bytes_of_block(block)), *header));
    }
    if (at_ - begin != header->bytes) return Status::corrupt("a frame has another size than it says");
    return content.size();
  }

  Status end() const {
    const bool all = rest_.at_end() && tokens_.at_end() && offsets_.at_end() && at_ == out_.size();
    return all ? Status() : Status::corrupt("frames are shorter than their stage");
  }
  uint64_t rest_left() const { return rest_.remaining(); }

 private:
  Status put(ByteSpan bytes) {
    if (bytes.size() > out_.size() - at_) return Status::corrupt("frames are longer than their stage");
    std::copy(bytes.begin(), bytes.end(), out_.begin() + static_cast<ptrdiff_t>(at_));
    at_ += bytes.size();
    return {};
  }
  /// For what is known later.
  Status leave(size_t bytes) {
    if (bytes > out_.size() - at_) return Status::corrupt("frames are longer than their stage");
    at_ += bytes;
    return {};
  }

  Status make_block(ByteSpan content, const FrameHeader& header) {
    VARVE_ASSIGN(const uint8_t splits, rest_.u8());
    if (splits == 0 || content.size() % splits != 0) return Status::corrupt("a block cannot be split so");
    if (header.in_planes()) {
      planes_.resize(content.size());
      kernels::shuffle(header.element_bytes, content, planes_);
      content = planes_;
    }
    const size_t stream_bytes = content.size() / splits;
    for (size_t split = 0; split < splits; ++split) {
      const size_t begin = at_;
      VARVE_TRY(leave(4));
      VARVE_TRY(make_stream(content.subspan(split * stream_bytes, stream_bytes)));
      store_le(out_.data() + begin, static_cast<uint32_t>(at_ - begin - 4));
    }
    return {};
  }

  Status make_stream(ByteSpan content) {
    VARVE_ASSIGN(const uint8_t kind, rest_.u8());
    if (kind == static_cast<uint8_t>(StreamKind::stored)) return put(content);
    if (kind != static_cast<uint8_t>(StreamKind::lz4)) return Status::corrupt("a stream is of an unknown kind");
    for (;;) {
      VARVE_ASSIGN(const uint8_t token, tokens_.u8());
      const std::byte byte{token};
      VARVE_TRY(put({&byte, 1}));
      VARVE_ASSIGN(const size_t literals, length(token >> 4));
      if (literals > content.size()) return Status::corrupt("a stream is longer than its block");
      VARVE_TRY(put(content.first(literals)));
      content = content.subspan(literals);
      if (content.empty()) return {};
      VARVE_ASSIGN(const ByteSpan offset, offsets_.bytes(2));
      VARVE_TRY(put(offset));
      VARVE_ASSIGN(const size_t more, length(token & 15));
      if (more + 4 > content.size()) return Status::corrupt("a stream is longer than its block");
      content = content.subspan(more + 4);
    }
  }
  Result<size_t> length(size_t begin) {
    if (begin < 15) return begin;
    for (size_t sum = begin;;) {
      VARVE_ASSIGN(const ByteSpan more, tokens_.bytes(1));
      VARVE_TRY(put(more));
      sum += static_cast<size_t>(more[0]);
      if (more[0] != std::byte{255}) return sum;
    }
  }

  ByteReader rest_, tokens_, offsets_;
  const MutableByteSpan out_;
  size_t at_ = 0;
  ByteVector planes_;
};

/// Frames of c-blosc by what they hold. FORMAT.md, "blosc".
class BloscCodec final : public Codec {
 public:
  CodecNumber number() const override { return CodecNumber::blosc; }
  std::string_view name() const override { return "blosc"; }
  bool applies_to(const PackShape& shape) const override { return shape.type.bytes == 1; }

  Status encode(ByteSpan in, const PackShape&, int level, ByteVector& params, ByteVector& out) const override {
    if (level != 0) return Status::invalid_argument("blosc has no levels");
    if (in.size() > kPackBytesMax) return Status::invalid_argument("a pack is larger than its limit");
    const Opened opened = open_blosc(in);
    params.insert(params.end(), opened.params.begin(), opened.params.end());
    const ByteSpan bytes = opened.made_bytes == 0 ? in : opened.bytes;
    out.insert(out.end(), bytes.begin(), bytes.end());
    return {};
  }

  Status decode(ByteSpan in, ByteSpan params, MutableByteSpan out) const override {
    ByteReader reader(params);
    // The three sizes are counted before the gaps.
    VARVE_ASSIGN(const uint64_t frames, reader.count());
    std::array<uint64_t, 3> bytes{};
    for (uint64_t& each : bytes) {
      VARVE_ASSIGN(each, reader.varint());
    }
    uint64_t left = in.size();
    for (const uint64_t each : bytes) {
      if (each > left) return Status::corrupt("frames are longer than their stage");
      left -= each;
    }
    ByteSpan contents = in.first(left);
    const ByteSpan rest = in.subspan(left, bytes[0]), tokens = in.subspan(left + bytes[0], bytes[1]);
    FrameMaker maker(rest, tokens, in.subspan(left + bytes[0] + bytes[1]), out);
    for (uint64_t frame = 0; frame < frames; ++frame) {
      VARVE_ASSIGN(const uint64_t gap, reader.varint());
      VARVE_TRY(maker.copy_rest(gap));
      VARVE_ASSIGN(const size_t content_bytes, maker.make_frame(contents));
      contents = contents.subspan(content_bytes);
    }
    if (!reader.at_end() || !contents.empty()) return Status::corrupt("bad parameters");
    VARVE_TRY(maker.copy_rest(maker.rest_left()));
    return maker.end();
  }
};

}  // namespace

Opened open_blosc(ByteSpan raw) { return FrameOpener(raw).run(); }

bool ends_in_blosc(ByteSpan raw) {
  size_t from = 0;
  while (const std::optional<size_t> at = find_frame(raw, from)) {
    const size_t bytes = read_frame_header(raw.subspan(*at))->bytes;
    if (bytes > raw.size() - *at) return true;
    from = *at + bytes;
  }
  // Of the next one there may be too little to know it.
  return from > 0 && raw.size() - from < kFrameHeaderBytes + 4;
}

bool begins_with_blosc(ByteSpan raw) {
  return find_frame(raw.first(std::min<size_t>(raw.size(), 64_KiB)), 0).has_value();
}

const Codec& blosc_codec() {
  static const BloscCodec codec;
  return codec;
}

}  // namespace varve
