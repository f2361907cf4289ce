#include "aggregate/pack_builder.h"

#include <functional>
#include <numeric>

namespace varve {

bool PackBuilder::accepts(const Stream& stream, uint64_t bytes) const {
  if (empty()) return true;
  return stream.class_id == class_id_ && stream.type == pending_.shape.type &&
         pending_.raw.size() + bytes <= pack_bytes_;
}

uint64_t PackBuilder::add(const Stream& stream, uint64_t stream_offset, ByteSpan bytes, const Score& score) {
  if (empty()) {
    class_id_ = stream.class_id;
    pending_.shape.type = stream.type;
    last_stream_ = nullptr;
  }
  const uint64_t element_bytes = stream.type.bytes;
  if (last_stream_ != &stream || run_end_ != stream_offset) {
    pending_.shape.runs.push_back({0, stream.dims, false});
    run_begin_ = stream_offset;
  }
  last_stream_ = &stream;
  run_end_ = stream_offset + bytes.size();
  Run& run = pending_.shape.runs.back();
  run.elements = (run_end_ - run_begin_) / element_bytes;
  const uint64_t array_elements = std::accumulate(run.dims.begin(), run.dims.end(), uint64_t{1}, std::multiplies<>());
  run.whole = run_begin_ == 0 && run_end_ == stream.bytes && run.elements == array_elements;

  const uint64_t offset = pending_.raw.size();
  pending_.raw.insert(pending_.raw.end(), bytes.begin(), bytes.end());
  pending_.meta.chunks.push_back({static_cast<uint32_t>(bytes.size()), score});
  return offset;
}

PendingPack PackBuilder::take(const std::string& class_key, const ScoreFunction& score) {
  PendingPack taken = std::move(pending_);
  pending_ = {};
  taken.meta.class_key = class_key;
  taken.meta.score = pack_score(score, taken.meta.chunks);
  return taken;
}

}  // namespace varve
