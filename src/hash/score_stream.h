#pragma once

#include <memory>

#include "hash/score.h"

namespace varve {

/// Computes the score of bytes that come in pieces: the same as ScoreFunction's of all of them at once, with 256 bits.
/// One thread at a time.
class ScoreStream {
 public:
  /// unsupported if this build lacks `algorithm`.
  static Result<ScoreStream> create(ScoreAlgorithm algorithm);
  ScoreStream(ScoreStream&&) noexcept;
  ScoreStream& operator=(ScoreStream&&) noexcept;
  ~ScoreStream();

  void append(ByteSpan data);
  /// Of all that was appended. Nothing may be appended afterwards.
  Score finish();

 private:
  struct State;
  explicit ScoreStream(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace varve
