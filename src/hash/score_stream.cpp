#include "hash/score_stream.h"

#include <openssl/evp.h>

#include <new>

#ifdef VARVE_HAVE_BLAKE3
#include <blake3.h>
#endif

namespace varve {

namespace {
struct DigestContextDeleter {
  void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
};

/// Throws std::bad_alloc, like any container: memory is the only thing that can fail once ScoreFunction::create() has
/// found the digest.
void must_succeed(int result) {
  if (result != 1) throw std::bad_alloc();
}
}  // namespace

struct ScoreStream::State {
  ScoreAlgorithm algorithm = ScoreAlgorithm::sha256;
  std::unique_ptr<EVP_MD_CTX, DigestContextDeleter> sha256;
#ifdef VARVE_HAVE_BLAKE3
  blake3_hasher blake3{};
#endif
};

ScoreStream::ScoreStream(std::unique_ptr<State> state) : state_(std::move(state)) {}
ScoreStream::ScoreStream(ScoreStream&&) noexcept = default;
ScoreStream& ScoreStream::operator=(ScoreStream&&) noexcept = default;
ScoreStream::~ScoreStream() = default;

Result<ScoreStream> ScoreStream::create(ScoreAlgorithm algorithm) {
  VARVE_TRY(ScoreFunction::create(algorithm, sizeof(Score::bytes)).status());  // whether this build has it
  auto state = std::make_unique<State>();
  state->algorithm = algorithm;
  switch (algorithm) {
    case ScoreAlgorithm::blake3:
#ifdef VARVE_HAVE_BLAKE3
      blake3_hasher_init(&state->blake3);
#endif
      break;
    case ScoreAlgorithm::sha256:
      state->sha256.reset(EVP_MD_CTX_new());
      must_succeed(state->sha256 ? EVP_DigestInit_ex2(state->sha256.get(), EVP_sha256(), nullptr) : 0);
      break;
  }
  return ScoreStream(std::move(state));
}

void ScoreStream::append(ByteSpan data) {
  switch (state_->algorithm) {
    case ScoreAlgorithm::blake3:
#ifdef VARVE_HAVE_BLAKE3
      blake3_hasher_update(&state_->blake3, data.data(), data.size());
#endif
      break;
    case ScoreAlgorithm::sha256: must_succeed(EVP_DigestUpdate(state_->sha256.get(), data.data(), data.size())); break;
  }
}

Score ScoreStream::finish() {
  Score score;
  auto* const out = reinterpret_cast<uint8_t*>(score.bytes.data());
  switch (state_->algorithm) {
    case ScoreAlgorithm::blake3:
#ifdef VARVE_HAVE_BLAKE3
      blake3_hasher_finalize(&state_->blake3, out, score.bytes.size());
#endif
      break;
    case ScoreAlgorithm::sha256: {
      unsigned length = 0;
      must_succeed(EVP_DigestFinal_ex(state_->sha256.get(), out, &length));
      break;
    }
  }
  return score;
}

}  // namespace varve
