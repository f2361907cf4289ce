// Any bytes are a pack or a Status: the meta part as it is stored, and a codec recipe with a body, whose scores are
// made right so that decoding is reached. What decodes does so again to the same bytes, through the pack's own checks.
#include <algorithm>
#include <cstdlib>

#include "fuzz_layout.h"
#include "fuzzed_pack.h"

using namespace varve;

namespace {

/// Of those that are decoded. The format's limit is larger, and would only make the fuzzer slow.
constexpr uint64_t kDecodedBytesMax = 1_MiB;

ByteVector encoded_meta(const PackMeta& meta, const ScoreFunction& score) {
  ByteVector raw;
  encode_pack_meta(meta, score.score_bytes(), raw);
  return raw;
}

void fuzz_meta(ByteSpan raw, const ScoreFunction& score) {
  const Result<PackMeta> meta = decode_pack_meta(raw, score);
  if (!meta.ok()) return;
  if (meta->raw_bytes() > kPackBytesMax || meta->held_bytes() > meta->raw_bytes()) std::abort();
  const ByteVector encoded = encoded_meta(*meta, score);
  const Result<PackMeta> again = decode_pack_meta(encoded, score);
  if (!again.ok() || encoded_meta(*again, score) != encoded) std::abort();
}

/// A copy of its own, so that a sanitizer sees what is read beyond it.
Result<Pack> decode_copy(PackMeta meta, ByteSpan body, const ScoreFunction& score) {
  Buffer copy(body.size());
  std::copy(body.begin(), body.end(), copy.data());
  const ByteSpan view = copy;
  return Pack::decode(std::move(meta), std::move(copy), view, score);
}

/// Every range that the pack holds comes back.
void check_ranges(Pack& pack, ByteSpan raw, const std::vector<bool>& held) {
  if (!pack.verify_all().ok()) std::abort();
  uint64_t pack_offset = 0, raw_offset = 0;
  for (size_t i = 0; i < held.size(); ++i) {
    const uint64_t bytes = pack.meta().chunks[i].bytes;
    const Result<ByteSpan> range = pack.range(pack_offset, bytes);
    if (range.ok() != held[i]) std::abort();
    pack_offset += bytes;
    if (!held[i]) continue;
    if (!std::equal(range->begin(), range->end(), raw.begin() + static_cast<ptrdiff_t>(raw_offset))) std::abort();
    raw_offset += bytes;
  }
  if (pack.range(pack_offset, 1).ok() || pack.range(0, pack_offset + 1).ok()) std::abort();
  uint64_t whole = 0;
  for (const Extent& extent : pack.whole_extents()) whole += extent.bytes;
  if (whole != raw.size()) std::abort();
}

void fuzz_body(const FuzzedPack& fuzzed, const ScoreFunction& score) {
  PackMeta meta = fuzzed.meta;
  meta.score = pack_score(score, meta.chunks);
  if (!decode_pack_meta(encoded_meta(meta, score), score).ok()) return;
  const uint64_t held_bytes = meta.held_bytes();
  if (held_bytes > kDecodedBytesMax) return;
  (void)recipe_name(meta.recipe).ok();
  // What decoding leaves as it was would differ from the chunks' scores below.
  ByteVector raw(held_bytes, std::byte{0xa5});
  const bool decodes = decode_chain(meta.recipe, fuzzed.body, raw).ok();
  const std::vector<bool> held = meta.held();
  uint64_t offset = 0;
  for (size_t i = 0; i < held.size() && decodes; ++i) {
    if (!held[i]) continue;
    meta.chunks[i].score = score(ByteSpan(raw).subspan(offset, meta.chunks[i].bytes));
    offset += meta.chunks[i].bytes;
  }
  meta.score = pack_score(score, meta.chunks);
  Result<PackMeta> read = decode_pack_meta(encoded_meta(meta, score), score);
  if (!read.ok()) std::abort();
  Result<Pack> pack = decode_copy(std::move(*read), fuzzed.body, score);
  if (pack.ok() != decodes) std::abort();
  if (pack.ok()) check_ranges(*pack, raw, held);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const ScoreFunction score = ScoreFunction::preferred();
  const ByteSpan input = fuzz_bytes(data, size);
  fuzz_meta(input, score);
  if (const Result<FuzzedPack> fuzzed = decode_fuzzed_pack(input); fuzzed.ok()) fuzz_body(*fuzzed, score);
  return 0;
}
