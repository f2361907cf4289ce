#include "codec/repeats.h"

#include <algorithm>
#include <bit>

namespace varve {

namespace {
/// One word in so many begins an anchor.
constexpr int kAnchorBits = 7;
constexpr uint64_t kAnchorSlotsMax = uint64_t{1} << 19;
/// What has to come again only in larger packs for these to be worth their size, of all that was looked at.
constexpr double kWideShareMin = 0.1;
/// The smallest packs that hold nearly as much of it as the largest do are taken.
constexpr double kNearlyAll = 0.9;

uint64_t hash_of(ByteSpan window) {
  uint64_t hash = 0;
  for (size_t at = 0; at < window.size(); at += 8) {
    hash = std::rotl(hash ^ load_le<uint64_t>(window.data() + at), 29) * 0x9e3779b97f4a7c15;
  }
  return hash ^ hash >> 32;
}
}  // namespace

Repeats::Repeats(uint64_t element_bytes, uint64_t window_bytes, uint64_t bytes_in_all, uint64_t chunk_bytes)
    : element_bytes_(element_bytes == 2 || element_bytes == 4 || element_bytes == 8 ? element_bytes : 1),
      window_bytes_(window_bytes),
      chunk_bytes_(chunk_bytes),
      anchors_(std::clamp<uint64_t>(std::bit_ceil(2 * (bytes_in_all / element_bytes_ >> kAnchorBits) + 1), 1024,
                                    kAnchorSlotsMax)) {}

template <class Word>
void Repeats::add_words(ByteSpan bytes, size_t step) {
  if (bytes.size() < window_bytes_ + sizeof(Word)) return;
  constexpr int shift = 8 * sizeof(Word) - kAnchorBits;
  const std::byte* const begin = bytes.data();
  const size_t end = bytes.size() - window_bytes_ - sizeof(Word);
  for (size_t at = 0; at < end; at += step) {
    const Word word = load_le<Word>(begin + at);
    if (static_cast<Word>(word * static_cast<Word>(0x9e3779b97f4a7c15)) >> shift != 1) continue;
    if (load_le<Word>(begin + at + sizeof(Word)) == word) continue;
    note(hash_of(bytes.subspan(at, window_bytes_)), at_ + at);
  }
}

void Repeats::add(ByteSpan bytes) {
  switch (element_bytes_) {
    case 8: add_words<uint64_t>(bytes, 8); break;
    case 4: add_words<uint32_t>(bytes, 4); break;
    case 2: add_words<uint32_t>(bytes, 2); break;
    default: add_words<uint64_t>(bytes, 1); break;
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

void Repeats::note(uint64_t hash, uint64_t at) {
  Anchor& anchor = anchors_[hash & (anchors_.size() - 1)];
  const bool known = anchor.hash == hash;
  const uint64_t before = anchor.at, distance = at - before;
  anchor = {hash, at};
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
