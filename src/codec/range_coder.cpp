#include "codec/range_coder.h"

#include <algorithm>

namespace varve {

QuasiStaticModel::QuasiStaticModel(uint32_t symbol_count)
    : weights_(symbol_count, kTotal / symbol_count), starts_(symbol_count + 1), round_length_(symbol_count >> 4 | 2) {
  for (uint32_t i = 0; i < kTotal % symbol_count; ++i) ++weights_[i];
  starts_.back() = kTotal;
  begin_round();
}

void QuasiStaticModel::begin_round() {
  if (left_with_more_ > 0) {  // the second part of a round
    left_in_round_ = left_with_more_;
    left_with_more_ = 0;
    ++increment_;
    return;
  }
  round_length_ = std::min(2 * round_length_, kRoundMax);
  // The weights become the frequencies in use, and are halved to make room for what this round will see.
  uint32_t start = 0;
  uint32_t halves = 0;
  for (size_t i = 0; i < weights_.size(); ++i) {
    starts_[i] = start;
    start += weights_[i];
    weights_[i] = weights_[i] >> 1 | 1;
    halves += weights_[i];
  }
  increment_ = (kTotal - halves) / round_length_;
  left_with_more_ = (kTotal - halves) % round_length_;
  left_in_round_ = round_length_ - left_with_more_;

  uint32_t symbol = 0;
  for (uint32_t i = 0; i < first_symbol_.size(); ++i) {
    while (starts_[symbol + 1] <= i << kLookupShift) ++symbol;
    first_symbol_[i] = symbol;
  }
}

}  // namespace varve
