#include "codec/opened.h"

#include <array>
#include <bit>

namespace varve {

namespace {

/// Less is not looked at.
constexpr size_t kLookedAtBytesMin = 256;
/// Places that are looked at for noise, how long each is, and how many different bytes noise has in one at least (in
/// the middle it has 162, with a deviation of 5).
constexpr size_t kNoisePlaces = 64, kNoisePlaceBytes = 256;
constexpr int kNoiseBytesMin = 150;
/// Contents of this size, or together of this size, are a section.
constexpr uint64_t kOwnSectionBytes = 256_KiB;
/// And so much of what is no content.
constexpr uint64_t kRestSectionBytes = 4_KiB;

}  // namespace

void OpenedSections::add(uint64_t bytes, size_t element_bytes) {
  const bool alike = bytes == last_bytes_ && element_bytes == last_element_bytes_ && bytes < kOwnSectionBytes;
  if (sections_.empty() || (sections_.back() >= kOwnSectionBytes && !alike)) sections_.push_back(0);
  sections_.back() += bytes;
  last_bytes_ = bytes;
  last_element_bytes_ = element_bytes;
}

std::vector<uint64_t> OpenedSections::end(uint64_t rest_bytes) {
  // Only the last section may be short.
  if (sections_.empty() || (rest_bytes >= kRestSectionBytes && sections_.back() >= kSectionBytesMin))
    sections_.push_back(0);
  sections_.back() += rest_bytes;
  return std::move(sections_);
}

bool may_be_compressed(ByteSpan raw) {
  if (raw.size() < kLookedAtBytesMin) return false;
  if (raw.size() < 2 * kNoisePlaces * kNoisePlaceBytes) return true;
  const size_t gap = (raw.size() - kNoisePlaceBytes) / (kNoisePlaces - 1);
  size_t noisy = 0;
  for (size_t place = 0; place < kNoisePlaces; ++place) {
    std::array<uint64_t, 4> seen{};
    for (const std::byte byte : raw.subspan(place * gap, kNoisePlaceBytes)) {
      const auto value = static_cast<size_t>(byte);
      seen[value / 64] |= uint64_t{1} << value % 64;
    }
    int different = 0;
    for (const uint64_t bits : seen) different += std::popcount(bits);
    noisy += different >= kNoiseBytesMin ? 1 : 0;
  }
  return noisy >= kNoisePlaces / 6;
}

}  // namespace varve
