#include "hash/score.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace varve {
namespace {

TEST(ScoreStream, GivesTheScoreOfAllPiecesTogether) {
  ByteVector bytes(100'000);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i % 251);
  for (const ScoreAlgorithm algorithm : {ScoreAlgorithm::blake3, ScoreAlgorithm::sha256}) {
    const Result<ScoreFunction> at_once = ScoreFunction::create(algorithm, 32);
    if (!at_once.ok()) {
      EXPECT_EQ(ScoreStream::create(algorithm).status().code(), at_once.status().code());
      continue;
    }
    for (size_t length : {0, 1, 64, 1024, 1025, 65'536, 100'000}) {
      for (size_t piece_bytes : {1, 63, 1024, 4096, 100'000}) {
        if (piece_bytes == 1 && length > 1025) continue;
        ScoreStream stream = ScoreStream::create(algorithm).value();
        for (size_t at = 0; at < length; at += piece_bytes) {
          stream.append(ByteSpan(bytes).subspan(at, std::min(piece_bytes, length - at)));
        }
        EXPECT_EQ(stream.finish(), (*at_once)(ByteSpan(bytes).first(length))) << length << " in " << piece_bytes;
      }
    }
  }
}

}  // namespace
}  // namespace varve
