#include "codec/repeats.h"

#include <algorithm>
#include <bit>

#include "codec/kernels.h"

#if VARVE_HAS_AVX2_KERNELS
#include <immintrin.h>
#endif

namespace varve {

namespace {
/// One word in 2 to the power of this begins an anchor: of bytes, each of which begins one, fewer where there are some
/// thousands.
constexpr int kAnchorBitsMin = 7, kAnchorBitsMax = 10;
constexpr uint64_t kAnchorsWanted = 4096;
constexpr uint64_t kAnchorSlotsMax = uint64_t{1} << 19;
/// What has to come again only in larger packs for these to be worth their size, of all that was looked at.
constexpr double kWideShareMin = 0.1;
/// The smallest packs that hold nearly as much of it as the largest do are taken.
constexpr double kNearlyAll = 0.9;

int anchor_bits(uint64_t element_bytes, uint64_t bytes) {
  if (element_bytes > 1) return kAnchorBitsMin;
  const auto bits = static_cast<int>(std::bit_width(bytes / kAnchorsWanted));
  return std::clamp(bits, kAnchorBitsMin, kAnchorBitsMax);
}

uint64_t hash_of(ByteSpan window) {
  uint64_t hash = 0;
  for (size_t at = 0; at < window.size(); at += 8) {
    hash = std::rotl(hash ^ load_le<uint64_t>(window.data() + at), 29) * 0x9e3779b97f4a7c15;
  }
  return hash ^ hash >> 32;
}

/// Whether numbers, or the eight bytes from any byte on, begin an anchor.
constexpr uint32_t kLowFactor = 0x9e3779b1, kHighFactor = 0x85ebca77;
template <class Word>
bool is_anchor(const std::byte* at, int bits) {
  const auto word = load_le<Word>(at);
  return static_cast<Word>(word * static_cast<Word>(0x9e3779b97f4a7c15)) >> (8 * sizeof(Word) - bits) == 1;
}
bool is_byte_anchor(const std::byte* at, int bits) {
  const uint32_t mixed = load_le<uint32_t>(at) * kLowFactor + load_le<uint32_t>(at + 4) * kHighFactor;
  return mixed >> (32 - bits) == 1;
}
}  // namespace

namespace kernels {
#if VARVE_HAS_AVX2_KERNELS
namespace {
VARVE_AVX2_BODY __m256i load_avx2(const std::byte* from) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}
VARVE_TARGET_AVX2 void mark_byte_anchors_avx2(const std::byte* at, int bits, std::span<uint32_t> marks) {
  const __m256i low_factor = _mm256_set1_epi32(static_cast<int>(kLowFactor));
  const __m256i high_factor = _mm256_set1_epi32(static_cast<int>(kHighFactor));
  const __m128i shift = _mm_cvtsi32_si128(32 - bits);
  for (uint32_t& mark : marks) {
    mark = 0;
    for (size_t first = 0; first < 4; ++first) {  // lane i has the bytes from first + 4 i on
      const __m256i mixed = _mm256_add_epi32(_mm256_mullo_epi32(load_avx2(at + first), low_factor),
                                             _mm256_mullo_epi32(load_avx2(at + first + 4), high_factor));
      const __m256i found = _mm256_cmpeq_epi32(_mm256_srl_epi32(mixed, shift), _mm256_set1_epi32(1));
      const auto lanes = static_cast<uint32_t>(_mm256_movemask_ps(_mm256_castsi256_ps(found)));
      if (lanes != 0) mark |= _pdep_u32(lanes, 0x11111111U << first);  // seldom; slow on some machines
    }
    at += kMarkedBytes;
  }
}
}  // namespace
#endif

void mark_byte_anchors(const std::byte* at, int bits, std::span<uint32_t> marks) {
#if VARVE_HAS_AVX2_KERNELS
  if (machine_has_avx2()) return mark_byte_anchors_avx2(at, bits, marks);
#endif
  mark_byte_anchors_plain(at, bits, marks);
}

void mark_byte_anchors_plain(const std::byte* at, int bits, std::span<uint32_t> marks) {
  for (uint32_t& mark : marks) {
    mark = 0;
    for (size_t i = 0; i < kMarkedBytes; ++i) mark |= static_cast<uint32_t>(is_byte_anchor(at + i, bits)) << i;
    at += kMarkedBytes;
  }
}
}  // namespace kernels

Repeats::Repeats(uint64_t element_bytes, uint64_t window_bytes, uint64_t bytes_in_all, uint64_t chunk_bytes)
    : element_bytes_(element_bytes == 2 || element_bytes == 4 || element_bytes == 8 ? element_bytes : 1),
      window_bytes_(window_bytes),
      chunk_bytes_(chunk_bytes),
      anchor_bits_(anchor_bits(element_bytes_, bytes_in_all)),
      anchors_(std::clamp<uint64_t>(std::bit_ceil(2 * (bytes_in_all / element_bytes_ >> anchor_bits_) + 1), 1024,
                                    kAnchorSlotsMax)) {}

template <class Word>
void Repeats::add_numbers(ByteSpan bytes) {
  for (size_t at = 0; at + window_bytes_ + sizeof(Word) < bytes.size(); at += element_bytes_) {
    if (is_anchor<Word>(bytes.data() + at, anchor_bits_)) note<Word>(bytes, at);
  }
}

void Repeats::add_bytes(ByteSpan bytes) {
  std::array<uint32_t, 64> marks{};
  const size_t behind = window_bytes_ + sizeof(uint64_t);
  size_t at = 0;
  while (at + kernels::kMarkedBytes + behind <= bytes.size()) {
    const auto some =
        std::span(marks).first(std::min(marks.size(), (bytes.size() - behind - at) / kernels::kMarkedBytes));
    kernels::mark_byte_anchors(bytes.data() + at, anchor_bits_, some);
    for (uint32_t mark : some) {
      for (; mark != 0; mark &= mark - 1) note<uint64_t>(bytes, at + static_cast<size_t>(std::countr_zero(mark)));
      at += kernels::kMarkedBytes;
    }
  }
  for (; at + behind < bytes.size(); ++at) {
    if (is_byte_anchor(bytes.data() + at, anchor_bits_)) note<uint64_t>(bytes, at);
  }
}

void Repeats::add(ByteSpan bytes) {
  switch (element_bytes_) {
    case 8: add_numbers<uint64_t>(bytes); break;
    case 4: add_numbers<uint32_t>(bytes); break;
    case 2: add_numbers<uint32_t>(bytes); break;
    default: add_bytes(bytes); break;
  }
  at_ += bytes.size();
}

void Repeats::begin_chunks() {
  if (chunk_bytes_ > 0) at_ += (chunk_bytes_ - at_ % chunk_bytes_) % chunk_bytes_;
}

void Repeats::begin_part() {
  begin_chunks();
  part_again_.assign(part_begins_.size(), 0);
  part_begins_.push_back(at_);
  part_anchor_count_ = 0;
}

template <class Word>
void Repeats::note(ByteSpan bytes, size_t offset) {
  const std::byte* const begin = bytes.data() + offset;
  if (load_le<Word>(begin) == load_le<Word>(begin + sizeof(Word))) return;
  const uint64_t hash = hash_of({begin, window_bytes_}), at = at_ + offset;
  Anchor& anchor = anchors_[hash & (anchors_.size() - 1)];
  const auto upper = static_cast<uint32_t>(hash >> 32);
  const bool known = anchor.hash == upper;
  const uint64_t before = anchor.at, distance = at - before;
  anchor = {upper, static_cast<uint32_t>(at)};
  if (known && chunk_bytes_ > 0 && distance % chunk_bytes_ == 0) return;
  ++anchor_count_;
  ++part_anchor_count_;
  if (!known) return;
  ++again_[static_cast<size_t>(std::bit_width(distance))];
  if (before < part_begins_.back()) {
    const auto part = std::upper_bound(part_begins_.begin(), part_begins_.end(), before) - part_begins_.begin() - 1;
    ++part_again_[static_cast<size_t>(part)];
  }
}

double Repeats::share_in_part(size_t earlier) const {
  if (part_anchor_count_ == 0) return 0;
  return static_cast<double>(part_again_[earlier]) / static_cast<double>(part_anchor_count_);
}

double Repeats::share_within(uint64_t pack_bytes) const {
  double found = 0;
  for (size_t bits = 1; bits < again_.size() && uint64_t{1} << (bits - 1) < pack_bytes; ++bits) {
    // Of two places, a pack holds both the more rarely, the farther they are apart: about in the middle of these.
    const double distance = 1.5 * static_cast<double>(uint64_t{1} << (bits - 1));
    found += static_cast<double>(again_[bits]) * std::max(0.0, 1 - distance / static_cast<double>(pack_bytes));
  }
  return anchor_count_ == 0 ? 0 : found / static_cast<double>(anchor_count_);
}

uint64_t Repeats::pack_bytes_wanted(uint64_t pack_bytes, uint64_t pack_bytes_max) const {
  const double usual = share_within(pack_bytes);
  const double most = share_within(pack_bytes_max) - usual;
  if (most < kWideShareMin) return 0;
  uint64_t wanted = 2 * pack_bytes;
  while (wanted < pack_bytes_max && share_within(wanted) - usual < kNearlyAll * most) wanted *= 2;
  return std::min(wanted, pack_bytes_max);
}

}  // namespace varve
