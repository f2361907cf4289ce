#include "study/fingerprint_set.h"

#include <algorithm>

namespace varve {

namespace {
constexpr size_t kSlotsMin = 1024;
}  // namespace

bool FingerprintSet::insert(uint64_t fingerprint) {
  if (4 * (size_ + 1) > 3 * slots_.size()) grow();
  if (fingerprint == 0) fingerprint = 1;  // 0 marks a free slot
  const size_t mask = slots_.size() - 1;
  size_t slot = fingerprint & mask;
  while (slots_[slot] != 0) {
    if (slots_[slot] == fingerprint) return false;
    slot = (slot + 1) & mask;
  }
  slots_[slot] = fingerprint;
  ++size_;
  return true;
}

void FingerprintSet::clear() {
  std::fill(slots_.begin(), slots_.end(), 0);
  size_ = 0;
}

void FingerprintSet::grow() {
  std::vector<uint64_t> before(std::max(kSlotsMin, 2 * slots_.size()));
  before.swap(slots_);
  size_ = 0;
  for (const uint64_t fingerprint : before) {
    if (fingerprint != 0) insert(fingerprint);
  }
}

}  // namespace varve
