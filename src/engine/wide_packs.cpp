#include "engine/wide_packs.h"

#include <algorithm>

#include "codec/deflated.h"
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

/// Deflated streams are opened from their beginning on: packs of them are so large, or half as large as they may be,
/// since what streams hold is encoded beside them.
constexpr uint64_t kDeflatedPackBytes = 16_MiB;

bool may_be_wide(const SaveOptions& options) {
  const CodecPolicy& codec = options.codec;
  return options.scheme == Scheme::aware && options.pace == nullptr && codec.kind == CodecPolicy::Kind::automatic &&
         codec.effort != Effort::fast;
}

class WidePackFinder {
 public:
  WidePackFinder(Source& source, const SaveOptions& options, uint64_t pack_bytes_max, GroupStreams& group)
      : reader_(source), options_(options), pack_bytes_max_(pack_bytes_max), classes_(streams_by_class(group)) {}

  /// Each class by itself.
  Status look_at_each() {
    for (const ClassStreams& streams : classes_) {
      if (streams.front()->bundle.number > 0) continue;
      VARVE_ASSIGN(const bool deflated, is_deflated(streams));
      if (deflated) {
        set_pack_bytes(streams, std::min(pack_bytes_max_ / 2, kDeflatedPackBytes));
        continue;
      }
      if (bytes_of(streams) < 2 * options_.pack_bytes) continue;
      const uint64_t window = options_.codec.effort == Effort::best ? kShortWindowBytes : kLongWindowBytes;
      VARVE_ASSIGN(const Repeats repeats, look_at(streams, window));
      set_pack_bytes(streams, repeats.pack_bytes_wanted(options_.pack_bytes, pack_bytes_max_));
    }
    return {};
  }

  /// All classes of bytes without a type as one: a program may write the same in several files.
  Status look_at_bytes_together() {
    ClassStreams all;
    double share_alone = 0;  // of all bytes
    for (const ClassStreams& streams : classes_) {
      if (bytes_of(streams) < kTogetherBytesMin || streams.front()->type != ElementType{}) continue;
      all.insert(all.end(), streams.begin(), streams.end());
      VARVE_ASSIGN(const Repeats repeats, look_at(streams, kShortestWindowBytes));
      share_alone += repeats.share() * static_cast<double>(bytes_of(streams));
    }
    if (all.empty() || all.front()->class_id == all.back()->class_id) return {};
    VARVE_ASSIGN(const Repeats repeats, look_at(all, kShortestWindowBytes));
    share_alone /= static_cast<double>(bytes_of(all));
    const uint64_t wanted = repeats.pack_bytes_wanted(options_.pack_bytes, pack_bytes_max_);
    if (wanted == 0 || repeats.share() < share_alone + kTogetherShareMin) return {};
    for (Stream* stream : all) stream->laid_with = all.front()->class_id;
    set_pack_bytes(all, wanted);
    return {};
  }

 private:
  static uint64_t bytes_of(const ClassStreams& streams) {
    uint64_t bytes = 0;
    for (const Stream* stream : streams) bytes += stream->bytes;
    return bytes;
  }
  static void set_pack_bytes(const ClassStreams& streams, uint64_t bytes) {
    for (Stream* stream : streams) stream->pack_bytes = bytes;
  }
  /// Whether usual packs would cut deflated streams.
  Result<bool> is_deflated(const ClassStreams& streams) {
    if (streams.front()->type != ElementType{} || !options_.codec.opens_deflated) return false;
    if (bytes_of(streams) <= options_.pack_bytes) return false;
    ByteVector pack;
    for (const Stream* stream : streams) {
      const size_t at = pack.size();
      if (at == options_.pack_bytes) break;
      pack.resize(at + std::min(stream->bytes, options_.pack_bytes - at));
      VARVE_TRY(reader_.read(*stream, 0, MutableByteSpan(pack).subspan(at)));
    }
    return ends_in_stream(pack);
  }
  Result<Repeats> look_at(const ClassStreams& streams, uint64_t window_bytes) {
    Repeats repeats(streams.front()->type.bytes, window_bytes, std::min(bytes_of(streams), kLookedAtMax),
                    options_.chunker.bytes_average);
    ByteVector block(kLookedAtBlock);
    uint64_t left = kLookedAtMax;
    for (const Stream* stream : streams) {
      for (uint64_t at = 0; at < stream->bytes && left > 0;) {
        const MutableByteSpan part = MutableByteSpan(block).first(std::min({kLookedAtBlock, stream->bytes - at, left}));
        VARVE_TRY(reader_.read(*stream, at, part));
        repeats.add(part);
        at += part.size();
        left -= part.size();
      }
      repeats.begin_chunks();
    }
    return repeats;
  }

  StreamGatherer reader_;
  const SaveOptions& options_;
  const uint64_t pack_bytes_max_;
  const std::vector<ClassStreams> classes_;
};
}  // namespace

Status find_wide_packs(Source& source, const SaveOptions& options, uint64_t pack_bytes_max, GroupStreams& group) {
  if (!may_be_wide(options) || pack_bytes_max < 2 * options.pack_bytes) return {};
  WidePackFinder finder(source, options, pack_bytes_max, group);
  VARVE_TRY(finder.look_at_each());
  // Other coders do not find records as short as those that are looked for.
  return options.codec.effort == Effort::best ? finder.look_at_bytes_together() : Status();
}

}  // namespace varve
