#include "aggregate/work_order.h"

#include <algorithm>
#include <numeric>
#include <tuple>

namespace varve {

Result<Scheme> parse_scheme(std::string_view name) {
  for (Scheme scheme : {Scheme::agnostic, Scheme::agnostic_block, Scheme::aware, Scheme::aware_block}) {
    if (name == scheme_name(scheme)) return scheme;
  }
  return Status::invalid_argument("unknown scheme", std::string(name),
                                  "choose agnostic, agnostic-block, aware or aware-block");
}

std::string_view scheme_name(Scheme scheme) {
  switch (scheme) {
    case Scheme::agnostic: return "agnostic";
    case Scheme::agnostic_block: return "agnostic-block";
    case Scheme::aware: return "aware";
    case Scheme::aware_block: return "aware-block";
  }
  return "aware";
}

WorkOrder::WorkOrder(const std::vector<Stream>& streams, Scheme scheme, uint64_t block_bytes)
    : streams_(streams),
      blocks_(scheme == Scheme::agnostic_block || scheme == Scheme::aware_block),
      by_class_(scheme == Scheme::aware || scheme == Scheme::aware_block),
      block_bytes_(block_bytes),
      order_(streams.size()) {
  std::iota(order_.begin(), order_.end(), 0u);
  auto key = [&](uint32_t i) {
    const Stream& s = streams_[i];
    return std::tuple(by_class_ ? s.class_id : 0u, s.rank, s.file, s.position);
  };
  std::sort(order_.begin(), order_.end(), [&](uint32_t a, uint32_t b) { return key(a) < key(b); });
  class_end_ = active_end_ = class_end(0);
}

size_t WorkOrder::class_end(size_t from) const {
  size_t end = from;
  while (end < order_.size() && (!by_class_ || streams_[order_[end]].class_id == streams_[order_[from]].class_id))
    ++end;
  return end;
}

std::optional<WorkItem> WorkOrder::next() { return blocks_ ? next_block() : next_whole(); }

std::optional<WorkItem> WorkOrder::next_whole() {
  while (at_ < order_.size()) {
    const uint32_t stream = order_[at_++];
    if (streams_[stream].bytes > 0) return WorkItem{stream, 0, streams_[stream].bytes};
  }
  return std::nullopt;
}

std::optional<WorkItem> WorkOrder::next_block() {
  while (class_begin_ < order_.size()) {
    while (at_ < active_end_) {
      const uint32_t stream = order_[at_++];
      const uint64_t begin = block_ * block_bytes_, bytes = streams_[stream].bytes;
      if (begin >= bytes) continue;
      found_in_round_ = true;
      return WorkItem{stream, begin, std::min(begin + block_bytes_, bytes)};
    }
    if (found_in_round_) {
      ++block_;
      // A class of one long stream and many short ones should not cost their product.
      auto has_more = [&](uint32_t i) { return streams_[i].bytes > block_ * block_bytes_; };
      const auto begin = order_.begin();
      const auto end = std::stable_partition(begin + static_cast<ptrdiff_t>(class_begin_),
                                             begin + static_cast<ptrdiff_t>(active_end_), has_more);
      active_end_ = static_cast<size_t>(end - begin);
    } else {
      class_begin_ = class_end_;
      class_end_ = active_end_ = class_end(class_begin_);
      block_ = 0;
    }
    found_in_round_ = false;
    at_ = class_begin_;
  }
  return std::nullopt;
}

}  // namespace varve
