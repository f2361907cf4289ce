#include "aggregate/fresh_chunks.h"

#include <algorithm>
#include <utility>

namespace varve {

namespace {
/// What an entry takes, with its share of the slots while they are copied into more.
constexpr uint64_t kEntryBytes = 112;
constexpr size_t kSlotsMin = 1024;
}  // namespace

FreshChunks::FreshChunks(uint64_t memory_bytes)
    : generation_entries_max_(std::clamp<uint64_t>(memory_bytes / kEntryBytes / 2, 1024, UINT32_MAX / 2)) {}

const FreshChunks::Place* FreshChunks::find(const Score& score, size_t bytes) const {
  for (const Generation* generation : {&current_, &previous_}) {
    const Known* found = generation->find(score);
    if (found != nullptr && found->bytes == bytes) return &found->place;
  }
  return nullptr;
}

void FreshChunks::insert(const Score& score, size_t bytes, const Place& place) {
  if (current_.size() >= generation_entries_max_) {
    previous_ = std::move(current_);
    current_ = {};
  }
  current_.insert({score, place, bytes});
}

size_t FreshChunks::Generation::slot_of(const Score& score) const {
  const uint64_t hash = score.prefix();
  const auto tag = static_cast<uint32_t>(hash >> 32);
  size_t at = hash & (slots_.size() - 1);
  while (slots_[at].ordinal != 0 && (slots_[at].tag != tag || known_[slots_[at].ordinal - 1].score != score)) {
    at = (at + 1) & (slots_.size() - 1);
  }
  return at;
}

const FreshChunks::Known* FreshChunks::Generation::find(const Score& score) const {
  if (slots_.empty()) return nullptr;
  const Slot& slot = slots_[slot_of(score)];
  return slot.ordinal == 0 ? nullptr : &known_[slot.ordinal - 1];
}

void FreshChunks::Generation::insert(const Known& known) {
  if (2 * (known_.size() + 1) > slots_.size()) grow();
  Slot& slot = slots_[slot_of(known.score)];
  if (slot.ordinal != 0) {
    known_[slot.ordinal - 1] = known;
    return;
  }
  known_.push_back(known);
  slot = {static_cast<uint32_t>(known.score.prefix() >> 32), static_cast<uint32_t>(known_.size())};
}

void FreshChunks::Generation::grow() {
  std::vector<Slot> old(std::max(kSlotsMin, 2 * slots_.size()));
  old.swap(slots_);
  // All are different, so that only a free place is to be found.
  for (const Slot& slot : old) {
    if (slot.ordinal == 0) continue;
    size_t at = known_[slot.ordinal - 1].score.prefix() & (slots_.size() - 1);
    while (slots_[at].ordinal != 0) at = (at + 1) & (slots_.size() - 1);
    slots_[at] = slot;
  }
}

}  // namespace varve
