#include "engine/wide_packs.h"

#include <algorithm>

#include "codec/opened.h"
#include "codec/repeats.h"
#include "engine/pack_builder.h"

namespace varve {

namespace {
/// Of a class no more is looked at, in blocks of so much.
constexpr uint64_t kLookedAtMax = 32_MiB, kLookedAtBlock = 256_KiB;
/// Of all classes of a type, one after another.
constexpr uint64_t kTypeLookedAtMax = 64_MiB;

/// What has to be in another class, and not in its own, for a class to be laid with that one.
constexpr double kTogetherShareMin = 0.25;
/// Smaller classes stay alone.
constexpr uint64_t kTogetherBytesMin = 64_KiB;

/// What programs have compressed is opened from its beginning on: packs of them are so large, or half as large as they
/// may be, since what streams hold is encoded beside them.
constexpr uint64_t kOpenedPackBytes = 16_MiB;

bool may_be_wide(const SaveOptions& options) {
  const CodecPolicy& codec = options.codec;
  return options.scheme == Scheme::aware && options.pace == nullptr && codec.kind == CodecPolicy::Kind::automatic &&
         codec.effort != Effort::fast;
}

/// The streams of one type, by class.
using TypeStreams = std::vector<ClassStreams>;

void set_pack_bytes(const ClassStreams& streams, uint64_t bytes) {
  for (Stream* stream : streams) stream->pack_bytes = bytes;
}

/// What comes again in streams of a source.
class RepeatFinder {
 public:
  RepeatFinder(Source& source, const SaveOptions& options) : reader_(source), options_(options) {}

  /// In streams of one type.
  Result<Repeats> look_at(const ClassStreams& streams, uint64_t window_bytes) {
    Repeats repeats(streams.front()->type.bytes, window_bytes, std::min(class_bytes(streams), kLookedAtMax),
                    options_.chunker.bytes_average);
    uint64_t left = kLookedAtMax;
    VARVE_TRY(add(streams, left, repeats));
    return repeats;
  }

  /// Of each class of a type, given largest first, the earlier one that has most of it, or itself if none has much.
  Result<std::vector<size_t>> find_partners(const TypeStreams& type) {
    uint64_t bytes = 0;
    for (const ClassStreams& streams : type) bytes += class_bytes(streams);
    uint64_t left = std::min(bytes, kTypeLookedAtMax);
    Repeats repeats(type.front().front()->type.bytes, kShortestWindowBytes, left, options_.chunker.bytes_average);
    std::vector<size_t> partners;
    for (const ClassStreams& streams : type) {
      const size_t own = partners.size();
      if (own > 0) repeats.begin_part();
      VARVE_TRY(add(streams, left, repeats));
      partners.push_back(own);
      double most = kTogetherShareMin;
      for (size_t earlier = 0; earlier < own; ++earlier) {
        if (repeats.share_in_part(earlier) < most) continue;
        most = repeats.share_in_part(earlier);
        partners[own] = partners[earlier];
      }
    }
    return partners;
  }

  StreamGatherer& reader() { return reader_; }

 private:
  /// At most `left` bytes, which become less.
  Status add(const ClassStreams& streams, uint64_t& left, Repeats& repeats) {
    ByteVector block(kLookedAtBlock);
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
    return {};
  }

  StreamGatherer reader_;
  const SaveOptions& options_;
};

class WidePackFinder {
 public:
  WidePackFinder(Source& source, const SaveOptions& options, uint64_t pack_bytes_max, GroupStreams& group)
      : repeats_(source, options),
        options_(options),
        pack_bytes_max_(pack_bytes_max),
        class_keys_(group.class_keys),
        classes_(streams_by_class(group)) {}

  /// Each class by itself.
  Status look_at_each() {
    for (const ClassStreams& streams : classes_) {
      if (streams.front()->bundle.number > 0) continue;
      VARVE_ASSIGN(const bool opened, is_opened(streams));
      if (opened) {
        set_pack_bytes(streams, std::min(pack_bytes_max_ / 2, kOpenedPackBytes));
        continue;
      }
      if (class_bytes(streams) < 2 * options_.pack_bytes) continue;
      VARVE_ASSIGN(const uint64_t wanted, pack_bytes_wanted(streams));
      set_pack_bytes(streams, wanted);
    }
    return {};
  }

  /// Classes of one type together: a program may write the same in several variables, or files.
  Status look_at_types() {
    std::vector<TypeStreams> types;
    for (const ClassStreams& streams : classes_) {
      if (streams.front()->bundle.number > 0 || class_bytes(streams) < kTogetherBytesMin) continue;
      const auto of_its_type = [&](const TypeStreams& type) {
        return type.front().front()->type == streams.front()->type;
      };
      const auto found = std::find_if(types.begin(), types.end(), of_its_type);
      (found == types.end() ? types.emplace_back() : *found).push_back(streams);
    }
    for (TypeStreams& type : types) {
      if (type.size() > 1) VARVE_TRY(lay_together(type));
    }
    return {};
  }

 private:
  /// As for one of the last sets, or else by what comes again.
  Result<uint64_t> pack_bytes_wanted(const ClassStreams& streams) {
    KeptEncoders* const kept = options_.encoders;
    const std::string& key = class_keys_[streams.front()->class_id];
    if (kept != nullptr) {
      const std::optional<uint64_t> known = kept->wide_pack_bytes(options_.codec, key);
      if (known && (*known == 0 || *known >= 2 * options_.pack_bytes)) return std::min(*known, pack_bytes_max_);
    }
    const uint64_t window = options_.codec.effort == Effort::best ? kShortWindowBytes : kLongWindowBytes;
    VARVE_ASSIGN(const Repeats repeats, repeats_.look_at(streams, window));
    const uint64_t wanted = repeats.pack_bytes_wanted(options_.pack_bytes, pack_bytes_max_);
    if (kept != nullptr) kept->note_wide_pack_bytes(options_.codec, key, wanted);
    return wanted;
  }

  Status lay_together(TypeStreams& type) {
    std::stable_sort(type.begin(), type.end(),
                     [](const ClassStreams& a, const ClassStreams& b) { return class_bytes(a) > class_bytes(b); });
    VARVE_ASSIGN(const std::vector<size_t> partners, repeats_.find_partners(type));
    for (size_t first = 0; first < type.size(); ++first) {
      ClassStreams all;
      for (size_t each = first; each < type.size(); ++each) {
        if (partners[each] == first) all.insert(all.end(), type[each].begin(), type[each].end());
      }
      if (all.size() <= type[first].size()) continue;
      VARVE_ASSIGN(const Repeats repeats, repeats_.look_at(all, kShortestWindowBytes));
      const uint64_t wanted = repeats.pack_bytes_wanted(options_.pack_bytes, pack_bytes_max_);
      if (wanted == 0) continue;
      for (Stream* stream : all) stream->laid_with = all.front()->class_id;
      set_pack_bytes(all, wanted);
    }
    return {};
  }

  /// Whether usual packs would cut what can be opened.
  Result<bool> is_opened(const ClassStreams& streams) {
    if (streams.front()->type != ElementType{} || !options_.codec.opens_compressed) return false;
    if (class_bytes(streams) <= options_.pack_bytes) return false;
    ByteVector pack;
    for (const Stream* stream : streams) {
      const size_t at = pack.size();
      if (at == options_.pack_bytes) break;
      pack.resize(at + std::min(stream->bytes, options_.pack_bytes - at));
      VARVE_TRY(repeats_.reader().read(*stream, 0, MutableByteSpan(pack).subspan(at)));
    }
    return ends_in_deflated(pack) || ends_in_blosc(pack);
  }

  RepeatFinder repeats_;
  const SaveOptions& options_;
  const uint64_t pack_bytes_max_;
  const std::vector<std::string>& class_keys_;
  const std::vector<ClassStreams> classes_;
};
}  // namespace

Status find_wide_packs(Source& source, const SaveOptions& options, uint64_t pack_bytes_max, GroupStreams& group) {
  if (!may_be_wide(options) || pack_bytes_max < 2 * options.pack_bytes) return {};
  WidePackFinder finder(source, options, pack_bytes_max, group);
  VARVE_TRY(finder.look_at_each());
  // Other coders do not find records as short as those that are looked for.
  return options.codec.effort == Effort::best ? finder.look_at_types() : Status();
}

}  // namespace varve
