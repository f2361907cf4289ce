#include "hash/score.h"

#include <openssl/evp.h>

#include <algorithm>
#include <memory>
#include <new>

#ifdef VARVE_HAVE_BLAKE3
#include <blake3.h>
#endif

#ifdef VARVE_HAVE_BLAKE3_MANY
#include "hash/blake3_many.h"
#endif

namespace varve {

namespace {

#ifdef VARVE_HAVE_BLAKE3
constexpr bool kHaveBlake3 = true;

void hash_blake3(ByteSpan data, Score& score) {
  blake3_hasher hasher;
  blake3_hasher_init(&hasher);
  blake3_hasher_update(&hasher, data.data(), data.size());
  blake3_hasher_finalize(&hasher, reinterpret_cast<uint8_t*>(score.bytes.data()), score.bytes.size());
}

/// The library looks at its first hash what the processor can do, and notes it without a lock: several threads may not
/// be the first at the same time.
void prepare_blake3() {
  [[maybe_unused]] static const bool prepared = [] {
    Score score;
    hash_blake3({}, score);
    return true;
  }();
}
#else
constexpr bool kHaveBlake3 = false;

void hash_blake3(ByteSpan, Score&) {}  // never reached: create() refuses the algorithm
void prepare_blake3() {}
#endif

void keep_first(Score& score, size_t score_bytes) {
  std::fill(score.bytes.begin() + static_cast<ptrdiff_t>(score_bytes), score.bytes.end(), std::byte{0});
}

struct DigestContextDeleter {
  void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
};

/// Fetched once, and never freed: a fetch costs as much as hashing two kilobytes. Null if OpenSSL's configuration lacks
/// it.
const EVP_MD* sha256_digest() {
  static const EVP_MD* const digest = EVP_MD_fetch(nullptr, "SHA256", nullptr);
  return digest;
}

/// Throws std::bad_alloc, like any container: memory is the only thing that can fail once create() has found the
/// digest.
void hash_sha256(ByteSpan data, Score& score) {
  thread_local const std::unique_ptr<EVP_MD_CTX, DigestContextDeleter> context(EVP_MD_CTX_new());
  unsigned length = 0;
  if (!context || EVP_DigestInit_ex2(context.get(), sha256_digest(), nullptr) != 1 ||
      EVP_DigestUpdate(context.get(), data.data(), data.size()) != 1 ||
      EVP_DigestFinal_ex(context.get(), reinterpret_cast<unsigned char*>(score.bytes.data()), &length) != 1) {
    throw std::bad_alloc();
  }
}

}  // namespace

uint64_t Score::prefix() const {
  uint64_t value = 0;
  for (size_t i = 0; i < sizeof value; ++i) value = value << 8 | static_cast<uint8_t>(bytes[i]);
  return value;
}

std::string Score::hex(size_t byte_count) const {
  return to_hex(ByteSpan(bytes).first(std::min(byte_count, bytes.size())));
}

Result<ScoreFunction> ScoreFunction::create(ScoreAlgorithm algorithm, size_t score_bytes) {
  if (score_bytes != 20 && score_bytes != 32) {
    return Status::invalid_argument("a score has 20 or 32 bytes (160 or 256 bits)", std::to_string(score_bytes));
  }
  switch (algorithm) {
    case ScoreAlgorithm::blake3:
      if (kHaveBlake3) return ScoreFunction(algorithm, score_bytes);
      return Status::unsupported("this build has no BLAKE3", "score algorithm 1",
                                 "build Varve with VARVE_WITH_BLAKE3=ON and a BLAKE3 library");
    case ScoreAlgorithm::sha256:
      if (sha256_digest() != nullptr) return ScoreFunction(algorithm, score_bytes);
      return Status::unsupported("this system's OpenSSL has no SHA-256", "score algorithm 2");
  }
  return Status::unsupported("unknown score algorithm", std::to_string(static_cast<unsigned>(algorithm)),
                             "the store was written by a newer version");
}

ScoreFunction ScoreFunction::preferred() {
  return {kHaveBlake3 ? ScoreAlgorithm::blake3 : ScoreAlgorithm::sha256, std::tuple_size_v<decltype(Score::bytes)>};
}

ScoreFunction::ScoreFunction(ScoreAlgorithm algorithm, size_t score_bytes)
    : algorithm_(algorithm), score_bytes_(score_bytes) {
  if (algorithm == ScoreAlgorithm::blake3) prepare_blake3();
}

namespace {
/// How many of the first `inputs` can be hashed together; fewer than two if the build or their length does not allow
/// it.
size_t joint_inputs([[maybe_unused]] ScoreAlgorithm algorithm, [[maybe_unused]] std::span<const ByteSpan> inputs) {
#ifdef VARVE_HAVE_BLAKE3_MANY
  if (algorithm != ScoreAlgorithm::blake3 || !blake3_takes_many(inputs[0].size())) return 0;
  const auto end = inputs.begin() + static_cast<ptrdiff_t>(std::min(inputs.size(), kBlake3LanesMax));
  const auto other =
      std::find_if(inputs.begin(), end, [&](ByteSpan input) { return input.size() != inputs[0].size(); });
  return static_cast<size_t>(other - inputs.begin());
#else
  return 0;
#endif
}
}  // namespace

void ScoreFunction::many(std::span<const ByteSpan> inputs, std::span<Score> scores) const {
  for (size_t at = 0; at < inputs.size();) {
    const size_t joint = joint_inputs(algorithm_, inputs.subspan(at));
    if (joint < 2) {
      scores[at] = (*this)(inputs[at]);
      ++at;
      continue;
    }
#ifdef VARVE_HAVE_BLAKE3_MANY
    hash_blake3_many(inputs.subspan(at, joint), scores.subspan(at, joint));
#endif
    for (Score& score : scores.subspan(at, joint)) keep_first(score, score_bytes_);
    at += joint;
  }
}

Score ScoreFunction::operator()(ByteSpan data) const {
  Score score;
  switch (algorithm_) {
    case ScoreAlgorithm::blake3: hash_blake3(data, score); break;
    case ScoreAlgorithm::sha256: hash_sha256(data, score); break;
  }
  keep_first(score, score_bytes_);
  return score;
}

namespace {

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
