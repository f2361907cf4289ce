#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "codec/chooser.h"
#include "codec/codec.h"

namespace varve {

/// Which of several variables predict which others. All numbers are ordinals of the variables.
struct Predictions {
  /// Those that predict another, or are predicted, with what predicts a variable before it.
  std::vector<uint32_t> order;
  /// Of each variable; of none that is not in `order`.
  std::vector<std::optional<uint32_t>> reference;
};

/// Finds by trial what predicts what. `samples` have the same part of each variable, as many numbers of `type` each,
/// in the runs of `shape`: of variables on one grid it is found whatever they mean.
Predictions find_predictions(const PackShape& shape, std::span<const ByteSpan> samples);

/// Whether these take less together than each does by itself, by all that encoders of this effort would try: numbers
/// that are hard to predict may repeat instead. Of the samples that `found` was found on.
Result<bool> worth_together(const PackShape& shape, std::span<const ByteSpan> samples, const Predictions& found,
                            Effort effort);

/// Whether variables of this type can predict each other.
bool predicts_across(const ElementType& type);

}  // namespace varve
