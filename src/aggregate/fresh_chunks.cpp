#include "aggregate/fresh_chunks.h"

#include <algorithm>
#include <utility>

namespace varve {

namespace {
/// A node of the map with its share of the table of buckets.
constexpr uint64_t kEntryBytes = 96;
}  // namespace

FreshChunks::FreshChunks(uint64_t memory_bytes)
    : generation_entries_max_(std::max<uint64_t>(memory_bytes / kEntryBytes / 2, 1024)) {}

const FreshChunks::Place* FreshChunks::find(const Score& score, size_t bytes) const {
  for (const Map* map : {&current_, &previous_}) {
    auto found = map->find(score);
    if (found != map->end() && found->second.bytes == bytes) return &found->second.place;
  }
  return nullptr;
}

void FreshChunks::insert(const Score& score, size_t bytes, const Place& place) {
  if (current_.size() >= generation_entries_max_) {
    previous_ = std::move(current_);
    current_ = {};
  }
  current_[score] = {place, bytes};
}

}  // namespace varve
