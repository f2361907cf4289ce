#include "study/sample_plan.h"

#include <algorithm>
#include <map>

#include "study/mix.h"

namespace varve {

namespace {
/// Windows are whole chunks and packs of every chunker's usual sizes.
constexpr uint64_t kWindowBytesMax = 256_KiB;
constexpr uint64_t kWindowBytesMin = 64_KiB;
/// More windows than this, and they get larger.
constexpr uint64_t kWindowsMax = 1 << 20;
}  // namespace

uint64_t SamplePlan::unit_hash(const StreamKey& key, int64_t rank, uint64_t window) const {
  const uint64_t rank_group = rank < 0 ? UINT64_MAX : static_cast<uint64_t>(rank) / group_size_;
  return mix(mix(mix(mix(key.class_id) + rank_group) + key.ordinal) + window);
}

uint64_t SamplePlan::window_bytes_of(const Stream& stream) const {
  return std::max<uint64_t>(window_bytes_ / stream.type.bytes, 1) * stream.type.bytes;
}

SamplePlan SamplePlan::of(const StudySeries& series, uint64_t bytes, uint32_t group_size) {
  SamplePlan plan;
  const uint64_t all_bytes = series.bytes();
  if (bytes >= all_bytes) return plan;
  plan.group_size_ = std::max(group_size, 1u);
  const uint64_t ranks = std::min<uint64_t>(series.rank_count(), plan.group_size_);
  const uint64_t units_wanted = 4 * ranks * series.class_keys.size() * series.sets.size();
  const uint64_t fair_bytes = bytes / std::max<uint64_t>(units_wanted, 1) / kWindowBytesMin * kWindowBytesMin;
  plan.window_bytes_ = std::clamp(fair_bytes, kWindowBytesMin, kWindowBytesMax);
  while (all_bytes / plan.window_bytes_ > kWindowsMax) plan.window_bytes_ *= 2;

  std::vector<std::map<uint64_t, uint64_t>> units(series.class_keys.size());  // of each class: bytes by hash
  std::vector<uint64_t> class_bytes(series.class_keys.size());
  for (const StudySet& set : series.sets) {
    for (size_t i = 0; i < set.group.streams.size(); ++i) {
      const Stream& stream = set.group.streams[i];
      const StreamKey& key = set.keys[i];
      class_bytes[key.class_id] += stream.bytes;
      const uint64_t window_bytes = plan.window_bytes_of(stream);
      for (uint64_t window = 0; window * window_bytes < stream.bytes; ++window) {
        units[key.class_id][plan.unit_hash(key, stream.rank, window)] +=
            std::min(window_bytes, stream.bytes - window * window_bytes);
      }
    }
  }
  const double share = static_cast<double>(bytes) / static_cast<double>(all_bytes);
  plan.limits_.assign(series.class_keys.size(), 0);
  for (size_t id = 0; id < units.size(); ++id) {
    uint64_t taken = 0;
    for (const auto& [hash, unit_bytes] : units[id]) {
      // The unit that crosses the share is taken if most of it is within.
      const double wanted = share * static_cast<double>(class_bytes[id]);
      if (taken > 0 && static_cast<double>(taken) + static_cast<double>(unit_bytes) / 2 > wanted) break;
      plan.limits_[id] = hash;
      taken += unit_bytes;
    }
  }
  return plan;
}

std::vector<StreamPiece> SamplePlan::pieces(const StudySet& set, size_t index) const {
  const Stream& stream = set.group.streams[index];
  std::vector<StreamPiece> pieces;
  if (stream.bytes == 0) return pieces;
  if (takes_all()) return {{0, stream.bytes}};
  const StreamKey& key = set.keys[index];
  const uint64_t window_bytes = window_bytes_of(stream);
  for (uint64_t window = 0; window * window_bytes < stream.bytes; ++window) {
    if (unit_hash(key, stream.rank, window) > limits_[key.class_id]) continue;
    const uint64_t begin = window * window_bytes, end = std::min(begin + window_bytes, stream.bytes);
    if (!pieces.empty() && pieces.back().end == begin) {
      pieces.back().end = end;
    } else {
      pieces.push_back({begin, end});
    }
  }
  return pieces;
}

}  // namespace varve
