#include "study/share_counter.h"

#include "study/mix.h"

namespace varve {

namespace {
constexpr auto index_of(ShareScope scope) { return static_cast<size_t>(scope); }
}  // namespace

Estimate ShareCount::duplicate_chunks() const {
  const auto all = static_cast<double>(chunks);
  return {all - unique_chunks.value, all - unique_chunks.high, all - unique_chunks.low};
}

ShareCounter::ShareCounter(uint64_t chunks_expected, uint64_t memory_bytes, bool one_rank, bool of_sample)
    : one_rank_(one_rank), of_sample_(of_sample) {
  const uint64_t tables = one_rank ? 2 : kShareScopes;
  while (chunks_expected / (sample_mask_ + 1) * FingerprintSet::kBytesEach * tables > memory_bytes &&
         sample_mask_ < 0xffff) {
    sample_mask_ = 2 * sample_mask_ + 1;
  }
}

void ShareCounter::begin_set() {
  sets_.emplace_back();
  known_[index_of(ShareScope::within)].clear();
  known_[index_of(ShareScope::ranks)].clear();
}

bool ShareCounter::add(uint64_t fingerprint, uint64_t bytes, int64_t rank, uint64_t unit) {
  SetSums& set = sets_.back();
  ++set.chunks;
  set.bytes += bytes;
  if (!sampled(fingerprint)) return false;
  Sums& sums = set.groups[(of_sample_ ? unit : fingerprint) >> 60];
  ++sums.chunks;
  sums.bytes += bytes;
  const uint64_t of_rank = mix(fingerprint ^ mix(static_cast<uint64_t>(rank)));
  const auto count = [&](ShareScope scope, uint64_t key) {
    const bool is_new = known_[index_of(scope)].insert(key);
    sums.unique_chunks[index_of(scope)] += is_new ? 1 : 0;
    sums.unique_bytes[index_of(scope)] += is_new ? bytes : 0;
    return is_new;
  };
  count(ShareScope::ranks, fingerprint);
  const bool is_new = count(ShareScope::both, fingerprint);
  if (one_rank_) return is_new;
  count(ShareScope::within, of_rank);
  return count(ShareScope::sets, of_rank);
}

std::array<ShareCount, kShareScopes> ShareCounter::counts(size_t set) const {
  const SetSums& sums = sets_[set];
  std::array<ShareCount, kShareScopes> counts;
  for (size_t scope = 0; scope < kShareScopes; ++scope) {
    // With one rank, what it shares with others is what it shares with itself.
    const size_t from = !one_rank_                              ? scope
                        : scope == index_of(ShareScope::within) ? index_of(ShareScope::ranks)
                        : scope == index_of(ShareScope::sets)   ? index_of(ShareScope::both)
                                                                : scope;
    std::array<RatioUnit, kGroups> chunks, bytes;
    for (size_t group = 0; group < kGroups; ++group) {
      const Sums& of_group = sums.groups[group];
      chunks[group] = {0, static_cast<double>(of_group.chunks), static_cast<double>(of_group.unique_chunks[from])};
      bytes[group] = {0, static_cast<double>(of_group.bytes), static_cast<double>(of_group.unique_bytes[from])};
    }
    ShareCount& count = counts[scope];
    count.chunks = sums.chunks;
    count.bytes = sums.bytes;
    count.unique_chunks = estimate_from_groups(chunks, static_cast<double>(sums.chunks));
    count.unique_bytes = estimate_from_groups(bytes, static_cast<double>(sums.bytes));
    if (sample_mask_ == 0 && !of_sample_) {
      count.unique_chunks = Estimate::exact(count.unique_chunks.value);
      count.unique_bytes = Estimate::exact(count.unique_bytes.value);
    }
  }
  return counts;
}

}  // namespace varve
