#include "core/likeness.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <tuple>

namespace varve {

namespace {
constexpr uint64_t kBytesMax = 4_GiB - 1;
/// As many bytes are looked for anywhere in the pattern; fewer, but where they are expected.
constexpr size_t kFoundBytes = 8, kExpectedBytes = 3;

size_t slot_of(const std::byte* bytes, size_t slots) {
  uint64_t value = 0;
  std::memcpy(&value, bytes, sizeof value);
  return static_cast<size_t>((value * 0x9e3779b97f4a7c15) >> 32) & (slots - 1);
}
}  // namespace

// A difference: how many bytes there are, then runs of new bytes, each followed by one of the pattern's: (new bytes * 2
// + whether the pattern's are not where they are expected) | new bytes | then how much farther ahead | the pattern's
// bytes. They are expected behind the last ones by as many as are new.

Likeness::Likeness(ByteVector pattern) : pattern_(std::move(pattern)) {
  if (pattern_.size() < kFoundBytes) return;
  places_.resize(std::bit_ceil(pattern_.size()));
  for (size_t at = 0; at + kFoundBytes <= pattern_.size(); ++at) {
    uint32_t& place = places_[slot_of(pattern_.data() + at, places_.size())];
    if (place == 0) place = static_cast<uint32_t>(at) + 1;
  }
}

size_t Likeness::same_bytes(size_t at, ByteSpan bytes) const {
  if (at >= pattern_.size()) return 0;
  const ByteSpan there = ByteSpan(pattern_).subspan(at);
  return static_cast<size_t>(std::mismatch(there.begin(), there.end(), bytes.begin(), bytes.end()).first -
                             there.begin());
}

std::pair<size_t, size_t> Likeness::find(ByteSpan bytes) const {
  if (bytes.size() < kFoundBytes || places_.empty()) return {0, 0};
  const uint32_t place = places_[slot_of(bytes.data(), places_.size())];
  if (place == 0) return {0, 0};
  return {place - 1, same_bytes(place - 1, bytes)};
}

ByteVector Likeness::difference(ByteSpan bytes) const {
  ByteVector told;
  if (bytes.empty()) return told;
  ByteWriter out(told);
  out.varint(bytes.size());
  size_t fresh = 0, expected = 0;  // new bytes begin there; where what follows them is expected
  const auto end_run = [&](size_t at, size_t place, size_t same) {
    out.varint((at - fresh) * 2 + (place != expected ? 1 : 0));
    out.bytes(bytes.subspan(fresh, at - fresh));
    if (at == bytes.size()) return;
    if (place != expected) out.signed_varint(static_cast<int64_t>(place) - static_cast<int64_t>(expected));
    out.varint(same);
  };
  size_t at = 0;
  while (at < bytes.size()) {
    const ByteSpan rest = bytes.subspan(at);
    size_t place = expected, same = same_bytes(place, rest);
    if (same < std::min(kExpectedBytes, rest.size())) {
      std::tie(place, same) = find(rest);
      if (same < kFoundBytes) {
        ++at;
        ++expected;
        continue;
      }
    }
    end_run(at, place, same);
    at += same;
    fresh = at;
    expected = place + same;
  }
  if (fresh < at) end_run(at, expected, 0);
  return told;
}

Result<ByteVector> Likeness::restore(ByteSpan difference) const {
  ByteVector bytes;
  if (difference.empty()) return bytes;
  const auto makes_no_sense = [] { return Status::corrupt("how bytes differ from others makes no sense"); };
  ByteReader in(difference);
  VARVE_ASSIGN(const uint64_t total, in.varint());
  if (total > kBytesMax) return makes_no_sense();
  uint64_t expected = 0;
  while (bytes.size() < total) {
    VARVE_ASSIGN(const uint64_t run, in.varint());
    if (run / 2 > total - bytes.size()) return makes_no_sense();
    VARVE_ASSIGN(const ByteSpan fresh, in.bytes(run / 2));
    bytes.insert(bytes.end(), fresh.begin(), fresh.end());
    expected += fresh.size();
    if (bytes.size() == total) break;
    if (run % 2 == 1) {
      VARVE_ASSIGN(const int64_t ahead, in.signed_varint());
      expected += static_cast<uint64_t>(ahead);
    }
    VARVE_ASSIGN(const uint64_t same, in.varint());
    if (same > total - bytes.size() || expected > pattern_.size() || same > pattern_.size() - expected)
      return makes_no_sense();
    // Each turn goes on.
    if (same == 0 && fresh.empty()) return makes_no_sense();
    const auto from = pattern_.begin() + static_cast<ptrdiff_t>(expected);
    bytes.insert(bytes.end(), from, from + static_cast<ptrdiff_t>(same));
    expected += same;
  }
  if (!in.at_end()) return makes_no_sense();
  return bytes;
}

void AlikeBytes::add(ByteSpan bytes) {
  if (ends_.empty()) likeness_ = Likeness(ByteVector(bytes.begin(), bytes.end()));
  const ByteVector difference = likeness_.difference(bytes);
  differences_.insert(differences_.end(), difference.begin(), difference.end());
  ends_.push_back(differences_.size());
}

ByteVector AlikeBytes::at(size_t number) const {
  const uint64_t begin = number == 0 ? 0 : ends_[number - 1];
  Result<ByteVector> bytes = likeness_.restore(ByteSpan(differences_).subspan(begin, ends_[number] - begin));
  // It was made here.
  return bytes.ok() ? std::move(*bytes) : ByteVector();
}

}  // namespace varve
