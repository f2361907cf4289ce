#include "engine/wide_packs.h"

#include <algorithm>
#include <bit>

#include "codec/repeats.h"
#include "engine/pack_builder.h"

namespace varve {

namespace {
/// Of a class no more is looked at, in blocks of so much.
constexpr uint64_t kLookedAtMax = 32_MiB, kLookedAtBlock = 256_KiB;

/// What has to come again in other classes for these to be laid together, of all that was looked at.
constexpr double kTogetherShareMin = 0.1;
/// Smaller classes stay alone.
constexpr uint64_t kTogetherBytesMin = 64_KiB;

/// The streams of a class, in the order in which they are laid down.
using LaidStreams = std::vector<Stream*>;

/// Has `repeats` look at streams.
Status look_at(const LaidStreams& streams, StreamGatherer& reader, Repeats& repeats) {
  ByteVector block(kLookedAtBlock);
  uint64_t left = kLookedAtMax;
  for (const Stream* stream : streams) {
    for (uint64_t at = 0; at < stream->bytes && left > 0;) {
      const MutableByteSpan part = MutableByteSpan(block).first(std::min({kLookedAtBlock, stream->bytes - at, left}));
      VARVE_TRY(reader.read(*stream, at, part));
      repeats.add(part);
      at += part.size();
      left -= part.size();
    }
    repeats.begin_chunks();
  }
  return {};
}

bool may_be_wide(const SaveOptions& options) {
  const CodecPolicy& codec = options.codec;
  return options.scheme == Scheme::aware && options.pace == nullptr && codec.kind == CodecPolicy::Kind::automatic &&
         codec.effort != Effort::fast;
}

class WidePackFinder {
 public:
  WidePackFinder(Source& source, const SaveOptions& options, uint64_t pack_bytes_max, GroupStreams& group)
      : reader_(source), options_(options), pack_bytes_max_(pack_bytes_max), classes_(group.class_keys.size()) {
    for (Stream& stream : group.streams) classes_[stream.class_id].push_back(&stream);
    for (LaidStreams& streams : classes_) {
      std::stable_sort(streams.begin(), streams.end(),
                       [](const Stream* a, const Stream* b) { return a->rank < b->rank; });
    }
  }

  /// Each class by itself.
  Status look_at_each() {
    for (const LaidStreams& streams : classes_) {
      if (bytes_of(streams) < 2 * options_.pack_bytes || streams.front()->bundle.number > 0) continue;
      Repeats repeats = repeats_of(*streams.front(), best() ? kShortWindowBytes : kLongWindowBytes, bytes_of(streams));
      VARVE_TRY(look_at(streams, reader_, repeats));
      set_pack_bytes(streams, repeats);
      if (streams.front()->type == ElementType{}) {
        bytes_of_none_ += bytes_of(streams);
        share_of_none_ += static_cast<double>(bytes_of(streams)) * repeats.share();
      }
    }
    return {};
  }

  /// All classes of bytes without a type as one: a program may write the same in several files.
  Status look_at_bytes_together() {
    LaidStreams all;
    for (const LaidStreams& streams : classes_) {
      if (bytes_of(streams) >= kTogetherBytesMin && streams.front()->type == ElementType{})
        all.insert(all.end(), streams.begin(), streams.end());
    }
    if (all.empty() || all.front()->class_id == all.back()->class_id) return {};
    Repeats repeats = repeats_of(*all.front(), best() ? kShortestWindowBytes : kLongWindowBytes, bytes_of(all));
    VARVE_TRY(look_at(all, reader_, repeats));
    const double alone = bytes_of_none_ == 0 ? 0 : share_of_none_ / static_cast<double>(bytes_of_none_);
    if (repeats.share() < alone + kTogetherShareMin) return {};
    for (Stream* stream : all) stream->laid_with = all.front()->class_id;
    set_pack_bytes(all, repeats);
    return {};
  }

 private:
  static uint64_t bytes_of(const LaidStreams& streams) {
    uint64_t bytes = 0;
    for (const Stream* stream : streams) bytes += stream->bytes;
    return bytes;
  }
  bool best() const { return options_.codec.effort == Effort::best; }
  Repeats repeats_of(const Stream& stream, uint64_t window_bytes, uint64_t bytes) const {
    return {stream.type.bytes, window_bytes, std::min(bytes, kLookedAtMax), options_.chunker.bytes_average};
  }
  void set_pack_bytes(const LaidStreams& streams, const Repeats& repeats) const {
    const uint64_t wanted = repeats.pack_bytes_wanted(options_.pack_bytes, pack_bytes_max_);
    for (Stream* stream : streams) stream->pack_bytes = wanted;
  }

  StreamGatherer reader_;
  const SaveOptions& options_;
  const uint64_t pack_bytes_max_;
  std::vector<LaidStreams> classes_;
  /// Of what has no type: how much was looked at by itself, and the sum of the shares that come again, by bytes.
  uint64_t bytes_of_none_ = 0;
  double share_of_none_ = 0;
};
}  // namespace

Status find_wide_packs(Source& source, const SaveOptions& options, uint64_t pack_bytes_max, GroupStreams& group) {
  if (!may_be_wide(options) || pack_bytes_max < 2 * options.pack_bytes) return {};
  WidePackFinder finder(source, options, pack_bytes_max, group);
  VARVE_TRY(finder.look_at_each());
  return finder.look_at_bytes_together();
}

}  // namespace varve
