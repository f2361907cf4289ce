#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>

#include "core/bytes.h"

namespace varve {

/// The hash of a chunk, a pack's table or a tree node: its address. A store keeps the first 20 or all 32 bytes of it;
/// the bytes that are not kept are zero here, so that equality is plain equality.
struct Score {
  std::array<std::byte, 32> bytes{};
  auto operator<=>(const Score&) const = default;  // NOLINT(modernize-use-nullptr): no pointer here
  /// The first eight bytes as a big-endian number, so that the order of prefixes is the order of scores.
  uint64_t prefix() const;
  std::string hex(size_t byte_count = 32) const;
};

struct ScoreHash {
  size_t operator()(const Score& score) const {
    size_t value;
    std::memcpy(&value, score.bytes.data(), sizeof value);
    return value;
  }
};

/// Numbered in the store's header (FORMAT.md, "Score algorithms"); numbers are never reused.
enum class ScoreAlgorithm : uint8_t { blake3 = 1, sha256 = 2 };

/// Computes the scores of one store. Copyable, immutable, thread-safe.
class ScoreFunction {
 public:
  /// unsupported if this build lacks `algorithm`; invalid_argument unless `score_bytes` is 20 or 32.
  static Result<ScoreFunction> create(ScoreAlgorithm algorithm, size_t score_bytes);
  /// The best algorithm of this build (BLAKE3, else SHA-256) with 256 bits.
  static ScoreFunction preferred();

  Score operator()(ByteSpan data) const;
  /// The scores of several inputs: the same, but equally long ones next to each other may be hashed together, which is
  /// faster. `scores` are as many as `inputs`.
  void many(std::span<const ByteSpan> inputs, std::span<Score> scores) const;
  ScoreAlgorithm algorithm() const { return algorithm_; }
  size_t score_bytes() const { return score_bytes_; }

 private:
  ScoreFunction(ScoreAlgorithm algorithm, size_t score_bytes);
  ScoreAlgorithm algorithm_;
  size_t score_bytes_;
};

/// CRC-32C (Castagnoli) of `data`, continued from `seed` (the CRC of what came before; 0 to start).
uint32_t crc32c(ByteSpan data, uint32_t seed = 0);

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
  /// The score of all that was appended. Nothing may be appended afterwards.
  Score finish();

 private:
  struct State;
  explicit ScoreStream(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace varve
