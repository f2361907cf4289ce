#include "reader/zarr_chunks.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include "codec/chunk_formats.h"
#include "codec/codec.h"
#include "codec/kernels.h"
#include "hash/score.h"
#include "reader/part_stream.h"

namespace varve {

namespace {
/// What numcodecs and zarr-python call them.
enum class KnownCodec : uint8_t { zlib, gzip, zstd, lz4, blosc, crc32c, shuffle };

struct CodecName {
  std::string_view name;
  KnownCodec codec;
};
constexpr CodecName kCodecNames[] = {{"zlib", KnownCodec::zlib},      {"gzip", KnownCodec::gzip},
                                     {"zstd", KnownCodec::zstd},      {"lz4", KnownCodec::lz4},
                                     {"blosc", KnownCodec::blosc},    {"crc32c", KnownCodec::crc32c},
                                     {"shuffle", KnownCodec::shuffle}};

std::optional<KnownCodec> known(const ZarrCodec& codec) {
  for (const CodecName& each : kCodecNames) {
    if (each.name == codec.name) return each.codec;
  }
  return std::nullopt;
}

constexpr uint64_t kSumBytes = 4;
constexpr uint64_t kElementBytesMax = 255;
/// More than any program applies: each goes over all of a chunk.
constexpr size_t kCodecsMax = 32;

bool compresses(KnownCodec codec) { return codec != KnownCodec::crc32c && codec != KnownCodec::shuffle; }

Status decode_by(CodecNumber number, ByteSpan in, MutableByteSpan out) {
  VARVE_ASSIGN(const Codec* const codec, find_codec(number));
  return codec->decode(in, {}, out);
}

/// numcodecs puts how many bytes there were before the block.
Status decode_lz4(ByteSpan in, MutableByteSpan out) {
  constexpr size_t size_bytes = 4;
  if (in.size() < size_bytes || load_le<uint32_t>(in.data()) != out.size())
    return Status::corrupt("lz4: a chunk of another size");
  return decode_by(CodecNumber::lz4, in.subspan(size_bytes), out);
}

/// As numcodecs does it: of one byte, or of less, nothing is shuffled.
Status decode_shuffled(uint64_t element_bytes, ByteSpan in, MutableByteSpan out) {
  if (in.size() != out.size()) return Status::corrupt("shuffle: a chunk of another size");
  if (element_bytes <= 1) {
    std::copy(in.begin(), in.end(), out.begin());
    return {};
  }
  if (in.size() % element_bytes != 0)
    return Status::corrupt(fmt::format("shuffle: a chunk of no whole number of elements of {} bytes", element_bytes));
  kernels::unshuffle(element_bytes, in, out);
  return {};
}

Status check_sum(ByteSpan in, MutableByteSpan out) {
  if (in.size() != out.size() + kSumBytes || load_le<uint32_t>(in.data() + out.size()) != crc32c(in.first(out.size())))
    return Status::corrupt("crc32c: the chunk has another sum");
  std::copy_n(in.begin(), out.size(), out.begin());
  return {};
}

Status decode_one(const ZarrCodec& codec, ByteSpan in, MutableByteSpan out) {
  switch (*known(codec)) {
    case KnownCodec::zlib: return decode_zlib(in, out);
    case KnownCodec::gzip: return decode_by(CodecNumber::gzip, in, out);
    case KnownCodec::zstd: return decode_by(CodecNumber::zstd, in, out);
    case KnownCodec::lz4: return decode_lz4(in, out);
    case KnownCodec::blosc: return decode_blosc(in, out);
    case KnownCodec::crc32c: return check_sum(in, out);
    case KnownCodec::shuffle: return decode_shuffled(codec.element_bytes, in, out);
  }
  return Status::internal("a codec without a decoder");
}
}  // namespace

Status check_zarr_codecs(const std::vector<ZarrCodec>& codecs) {
  if (codecs.size() > kCodecsMax)
    return Status::unsupported(fmt::format("its chunks went through {} codecs", codecs.size()));
  bool compressed = false;
  for (const ZarrCodec& codec : codecs) {
    const std::optional<KnownCodec> which = known(codec);
    if (!which)
      return Status::unsupported(fmt::format("its chunks went through '{}', which is not known here", codec.name));
    if (*which == KnownCodec::lz4 || codec.compressor.starts_with("lz4"))
      VARVE_TRY(find_codec(CodecNumber::lz4).status());
    if (codec.compressor == "blosclz" || codec.compressor == "snappy") {
      return Status::unsupported(
          fmt::format("its chunks went through '{}' with '{}', which is not known here", codec.name, codec.compressor));
    }
    if (*which == KnownCodec::shuffle && codec.element_bytes == kNoElementBytes)
      return Status::unsupported("its chunks were shuffled by elements whose size is no number");
    if (*which == KnownCodec::shuffle && codec.element_bytes > kElementBytesMax)
      return Status::unsupported(fmt::format("its chunks were shuffled by {} bytes", codec.element_bytes));
    // Behind one that compresses nothing says how large its chunks are.
    if (compressed && *which != KnownCodec::crc32c)
      return Status::unsupported(fmt::format("its chunks went through '{}' when they were compressed", codec.name));
    compressed = compressed || compresses(*which);
  }
  return {};
}

Status decode_zarr_chunk(const std::vector<ZarrCodec>& codecs, ByteSpan stored, MutableByteSpan cells) {
  VARVE_TRY(check_zarr_codecs(codecs));
  // How many bytes each of them took in, up to the one that compresses: what is behind it adds its sum to what is
  // stored.
  std::vector<uint64_t> took(codecs.size());
  uint64_t bytes = cells.size();
  for (size_t i = 0; i < codecs.size(); ++i) {
    took[i] = bytes;
    if (known(codecs[i]) == KnownCodec::crc32c) bytes += kSumBytes;
    if (!compresses(*known(codecs[i]))) continue;
    uint64_t sums = 0;
    for (size_t behind = i + 1; behind < codecs.size(); ++behind) sums += kSumBytes;
    if (stored.size() < sums) return Status::corrupt("crc32c: a chunk without a sum");
    bytes = stored.size() - sums;
  }
  Buffer in, out;
  for (size_t i = codecs.size(); i-- > 0;) {
    if (i > 0) out = Buffer(took[i]);
    const MutableByteSpan into = i > 0 ? MutableByteSpan(out) : cells;
    VARVE_TRY(decode_one(codecs[i], i + 1 == codecs.size() ? stored : ByteSpan(in), into));
    std::swap(in, out);
  }
  return {};
}

Result<ZarrChunks::Cells> ZarrChunks::cells(const StoredPart& part, StreamReader& reader, bool keep) {
  if (Cells kept = find(part)) return kept;
  const uint64_t bytes = array_bytes(part.shape, part.type.bytes).value_or(UINT64_MAX);
  const PartStream stream(part);
  if (std::max(bytes, stream.bytes()) > kChunkBytesMax)
    return Status::resource_limit(fmt::format("a chunk of {} bytes, which are {} stored", bytes, stream.bytes()));
  Buffer stored(stream.bytes());
  VARVE_TRY(stream.read(reader, 0, stored));
  auto made = std::make_shared<Buffer>(bytes);
  const Status decoded = decode_zarr_chunk(*part.codecs, stored, *made);
  if (!decoded.ok()) {
    return decoded.with_context(fmt::format("'{}'", part.file->path))
        .with_hint("take its files, and read them with their format's library");
  }
  Cells cells = std::move(made);
  if (keep) add(part, cells);
  return cells;
}

ZarrChunks::Cells ZarrChunks::find(const StoredPart& part) {
  const MutexLock lock(mutex_);
  const auto found = places_.find(&part);
  if (found == places_.end()) return nullptr;
  kept_.splice(kept_.begin(), kept_, found->second);
  return found->second->second;
}

void ZarrChunks::add(const StoredPart& part, const Cells& cells) {
  if (cells->size() > kKeptBytesMax) return;
  const MutexLock lock(mutex_);
  if (places_.contains(&part)) return;  // two threads have decoded it
  kept_.emplace_front(&part, cells);
  places_.emplace(&part, kept_.begin());
  kept_bytes_ += cells->size();
  while (kept_bytes_ > kKeptBytesMax) {
    kept_bytes_ -= kept_.back().second->size();
    places_.erase(kept_.back().first);
    kept_.pop_back();
  }
}

}  // namespace varve
