#include "store/kept_index.h"

#include <algorithm>
#include <utility>

namespace varve {

namespace {
/// All of it is looked at again after so many saves.
constexpr uint32_t kSavesOfAnIndex = 64;
/// What a writer that is killed has not written, the next one has to gather from its arenas.
constexpr uint32_t kSavesOfARun = 8;
/// What is held is the program's memory, beside what its next save needs.
constexpr uint64_t kHeldBytesMax = 2_MiB;
}  // namespace

Result<ChunkIndex*> KeptIndex::open(uint64_t memory_bytes) {
  if (index_ && upkeep_ == ChunkIndex::Upkeep::here && saves_ >= kSavesOfAnIndex) {
    share().ignore("the arenas are indexed when it is opened");
    index_.reset();
  }
  if (index_) {
    index_->exclude({});
  } else {
    const bool begins_empty = std::exchange(begins_empty_, false);
    VARVE_ASSIGN(index_,
                 ChunkIndex::open(store_, {}, memory_bytes, begins_empty ? ChunkIndex::Upkeep::later : upkeep_));
    saves_ = 0;
  }
  held_bytes_max_ = std::min(memory_bytes, kHeldBytesMax);
  ++saves_;
  return index_.get();
}

Status KeptIndex::add(const std::vector<ArenaId>& arenas, ChunkIndexEntries entries) {
  // Shared before there would be too many, since to hold more takes the room of both meanwhile.
  Status shared;
  if (index_->held_bytes() > 0 && index_->held_bytes() + entries.size() * sizeof(ChunkIndexEntry) > held_bytes_max_) {
    shared = share_held(/*goes_on=*/true);
  }
  index_->hold(arenas, std::move(entries));
  if (++held_saves_ < kSavesOfARun && index_->held_bytes() <= held_bytes_max_) return shared;
  const Status rest = share_held(/*goes_on=*/true);
  return shared.ok() ? rest : shared;
}

Status KeptIndex::share() { return index_ ? share_held(/*goes_on=*/false) : Status(); }

Status KeptIndex::share_held(bool goes_on) {
  held_saves_ = 0;
  return index_->share_held(goes_on);
}

}  // namespace varve
