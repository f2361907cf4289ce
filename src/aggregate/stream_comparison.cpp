#include "aggregate/stream_comparison.h"

#include <algorithm>
#include <cstring>

#include "aggregate/element_difference.h"
#include "aggregate/file_references.h"

namespace varve {

namespace {
constexpr uint64_t kWindowBytes = 1_MiB;

/// Whether two references, from some bytes into each, refer to the same.
bool same_source(const Leaf& leaf_a, const Reference& a, uint64_t skip_a, const Leaf& leaf_b, const Reference& b,
                 uint64_t skip_b) {
  const bool pattern = a.pack == Reference::kPattern;
  if (pattern != (b.pack == Reference::kPattern)) return false;
  if (pattern) return pattern_at(a, skip_a) == pattern_at(b, skip_b);
  return leaf_a.packs[a.pack].score == leaf_b.packs[b.pack].score && a.offset + skip_a == b.offset + skip_b;
}

/// How far from `begin` to `end` both streams refer to the same bytes: all of it, or whole windows.
uint64_t same_bytes(const StoredStream& a, const StoredStream& b, uint64_t begin, uint64_t end) {
  size_t i = 0, j = 0;
  uint64_t at_a = 0, at_b = 0;
  while (at_a + a.references[i].bytes <= begin) at_a += a.references[i++].bytes;
  while (at_b + b.references[j].bytes <= begin) at_b += b.references[j++].bytes;
  uint64_t at = begin;
  while (true) {
    const uint64_t skip_a = at - at_a, skip_b = at - at_b;
    if (!same_source(a.leaf, a.references[i], skip_a, b.leaf, b.references[j], skip_b))
      return (at - begin) / kWindowBytes * kWindowBytes;
    at += std::min(a.references[i].bytes - skip_a, b.references[j].bytes - skip_b);
    if (at >= end) return end - begin;
    if (at_a + a.references[i].bytes <= at) at_a += a.references[i++].bytes;
    if (at_b + b.references[j].bytes <= at) at_b += b.references[j++].bytes;
  }
}
}  // namespace

uint64_t StoredStream::bytes() const {
  uint64_t bytes = 0;
  for (const Reference& reference : references) bytes += reference.bytes;
  return bytes;
}

Status StreamComparer::visit_windows(const StoredStream& a, const StoredStream& b, uint64_t bytes,
                                     const std::function<bool(ByteSpan, ByteSpan)>& visit) {
  for (uint64_t at = 0; at < bytes; at += kWindowBytes) {
    if (progress_.cancelled()) return Status::cancelled();
    const uint64_t same = same_bytes(a, b, at, bytes);
    progress_.advance(same);
    at += same;
    if (at >= bytes) break;
    const size_t window_bytes = std::min(kWindowBytes, bytes - at);
    progress_.advance(window_bytes);
    old_window_.resize(window_bytes);
    new_window_.resize(window_bytes);
    VARVE_TRY(old_.read(a.leaf, a.references, at, old_window_));
    VARVE_TRY(new_.read(b.leaf, b.references, at, new_window_));
    if (!visit(old_window_, new_window_)) break;
  }
  return {};
}

Result<StreamComparer::Outcome> StreamComparer::compare(const StoredStream& a, const StoredStream& b,
                                                        const ElementType& type) {
  const uint64_t old_bytes = a.bytes(), new_bytes = b.bytes();
  const bool values = ElementDifference::is_defined_for(type) && old_bytes == new_bytes && new_bytes % type.bytes == 0;
  const size_t element_bytes = values ? type.bytes : 1;
  ElementDifference difference(type);
  Outcome outcome;
  outcome.changed_bytes = std::max(old_bytes, new_bytes) - std::min(old_bytes, new_bytes);
  auto count_changes = [&](ByteSpan before, ByteSpan after) {
    for (size_t i = 0; i + element_bytes <= before.size(); i += element_bytes) {
      if (std::memcmp(&before[i], &after[i], element_bytes) == 0) continue;
      outcome.changed_bytes += element_bytes;
      if (values) difference.add(&before[i], &after[i]);
    }
    return true;
  };
  VARVE_TRY(visit_windows(a, b, std::min(old_bytes, new_bytes), count_changes));
  if (values && outcome.changed_bytes > 0) {
    outcome.difference_max = difference.largest();
    outcome.difference_rms = difference.rms(new_bytes / type.bytes);
  }
  return outcome;
}

Result<bool> StreamComparer::equal(const StoredStream& a, const StoredStream& b) {
  const uint64_t bytes = b.bytes();
  if (a.bytes() != bytes) return false;
  bool equal = true;
  VARVE_TRY(visit_windows(a, b, bytes, [&](ByteSpan before, ByteSpan after) {
    equal = std::equal(before.begin(), before.end(), after.begin());
    return equal;
  }));
  return equal;
}

}  // namespace varve
