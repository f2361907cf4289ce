#include "snapshot/image_copy.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>

#include "core/guarded.h"
#include "core/sync.h"
#include "hash/score.h"
#include "snapshot/control_block.h"

#if defined(__x86_64__) && defined(__GNUC__)
#define VARVE_COPY_KERNELS_X86 1
#include <immintrin.h>
#else
#define VARVE_COPY_KERNELS_X86 0
#endif

// The sum is folded with carry-less multiplication (V. Gopal et al., "Fast CRC Computation for Generic Polynomials
// Using PCLMULQDQ Instruction", Intel 2009) from the very registers that are then stored.

namespace varve {
namespace {

/// The plain twin. By pieces that stay in the innermost cache between the two passes.
uint32_t copy_plain(std::byte* to, const std::byte* from, size_t bytes, uint32_t seed) {
  constexpr size_t kPieceBytes = 8_KiB;
  while (bytes > 0) {
    const size_t piece = std::min(bytes, kPieceBytes);
    std::memcpy(to, from, piece);
    // Of the copy: the source may be written meanwhile by a program that breaks its promise.
    seed = crc32c({to, piece}, seed);
    to += piece;
    from += piece;
    bytes -= piece;
  }
  return seed;
}

#if VARVE_COPY_KERNELS_X86

constexpr uint32_t kPolynomial = 0x82f63b78;  // CRC-32C, lowest power in the highest bit

/// x^exponent modulo the polynomial, as a 64-bit operand of a carry-less multiplication of reflected numbers, whose
/// product is shifted by one: hence the power before.
constexpr uint64_t fold_factor(uint32_t exponent) {
  uint32_t remainder = 0x80000000;  // x^0
  for (uint32_t i = 0; i + 1 < exponent; ++i) remainder = (remainder >> 1) ^ ((remainder & 1) != 0 ? kPolynomial : 0);
  return uint64_t{remainder} << 32;
}

/// Factors that move 128 bits ahead by `bits`.
struct FoldBy {
  uint64_t low, high;
};
constexpr FoldBy fold_by(uint32_t bits) { return {fold_factor(bits + 64), fold_factor(bits)}; }

constexpr FoldBy kFold128 = fold_by(128), kFold256 = fold_by(256), kFold384 = fold_by(384), kFold512 = fold_by(512),
                 kFold1024 = fold_by(1024), kFold1536 = fold_by(1536), kFold2048 = fold_by(2048);

#define VARVE_TARGET_SSE __attribute__((target("sse4.2,pclmul")))
#define VARVE_TARGET_AVX2_CLMUL __attribute__((target("avx2,sse4.2,pclmul")))
#define VARVE_TARGET_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,vpclmulqdq,pclmul,sse4.2")))

/// Copies a head or a tail.
VARVE_TARGET_SSE uint32_t copy_short(std::byte* to, const std::byte* from, size_t bytes, uint32_t state) {
  uint64_t wide = state;
  for (; bytes >= 8; bytes -= 8, from += 8, to += 8) {
    uint64_t word;
    std::memcpy(&word, from, 8);
    wide = _mm_crc32_u64(wide, word);
    std::memcpy(to, &word, 8);
  }
  state = static_cast<uint32_t>(wide);
  for (; bytes > 0; --bytes, ++from, ++to) {
    const auto byte = static_cast<unsigned char>(*from);
    state = _mm_crc32_u8(state, byte);
    *to = std::byte{byte};
  }
  return state;
}

size_t bytes_to_alignment(const std::byte* to, size_t alignment) {
  return (alignment - reinterpret_cast<uintptr_t>(to) % alignment) % alignment;
}

VARVE_TARGET_SSE inline __m128i fold_factors(FoldBy by) {
  return _mm_set_epi64x(static_cast<long long>(by.high), static_cast<long long>(by.low));
}

VARVE_TARGET_SSE inline __m128i fold(__m128i sum, __m128i factors, __m128i next) {
  const __m128i low = _mm_clmulepi64_si128(sum, factors, 0x00);
  const __m128i high = _mm_clmulepi64_si128(sum, factors, 0x11);
  return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

/// The remainder of what was folded to 128 bits.
VARVE_TARGET_SSE inline uint32_t remainder_of(__m128i sum) {
  uint64_t state = _mm_crc32_u64(0, static_cast<uint64_t>(_mm_cvtsi128_si64(sum)));
  state = _mm_crc32_u64(state, static_cast<uint64_t>(_mm_extract_epi64(sum, 1)));
  return static_cast<uint32_t>(state);
}

/// Stores 64 bytes, and gives them.
VARVE_TARGET_AVX2_CLMUL inline void copy_64(std::byte* to, const std::byte* from, __m128i (&copied)[4]) {
  const __m256i low = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  const __m256i high = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + 32));
  _mm256_stream_si256(reinterpret_cast<__m256i*>(to), low);
  _mm256_stream_si256(reinterpret_cast<__m256i*>(to + 32), high);
  copied[0] = _mm256_castsi256_si128(low);
  copied[1] = _mm256_extracti128_si256(low, 1);
  copied[2] = _mm256_castsi256_si128(high);
  copied[3] = _mm256_extracti128_si256(high, 1);
}

/// 64 bytes a turn: four sums of 128 bits side by side.
VARVE_TARGET_AVX2_CLMUL uint32_t copy_avx2(std::byte* to, const std::byte* from, size_t bytes, uint32_t seed) {
  const size_t head = std::min(bytes, bytes_to_alignment(to, 32));
  uint32_t state = copy_short(to, from, head, ~seed);
  to += head;
  from += head;
  bytes -= head;
  if (bytes >= 128) {
    const __m128i factors = fold_factors(kFold512);
    __m128i sums[4];
    copy_64(to, from, sums);
    sums[0] = _mm_xor_si128(sums[0], _mm_cvtsi32_si128(static_cast<int>(state)));
    for (bytes -= 64, from += 64, to += 64; bytes >= 64; bytes -= 64, from += 64, to += 64) {
      __m128i next[4];
      copy_64(to, from, next);
      for (int i = 0; i < 4; ++i) sums[i] = fold(sums[i], factors, next[i]);
    }
    __m128i sum = fold(sums[0], fold_factors(kFold384), sums[3]);
    sum = fold(sums[1], fold_factors(kFold256), sum);
    sum = fold(sums[2], fold_factors(kFold128), sum);
    state = remainder_of(sum);
  }
  return ~copy_short(to, from, bytes, state);
}

VARVE_TARGET_AVX512 inline __m512i fold_factors_512(FoldBy by) {
  const auto low = static_cast<long long>(by.low), high = static_cast<long long>(by.high);
  return _mm512_set4_epi64(high, low, high, low);
}

VARVE_TARGET_AVX512 inline __m512i fold_512(__m512i sum, __m512i factors, __m512i next) {
  const __m512i low = _mm512_clmulepi64_epi128(sum, factors, 0x00);
  const __m512i high = _mm512_clmulepi64_epi128(sum, factors, 0x11);
  return _mm512_ternarylogic_epi64(low, high, next, 0x96);
}

/// 256 bytes a turn: sixteen sums of 128 bits side by side.
VARVE_TARGET_AVX512 uint32_t copy_avx512(std::byte* to, const std::byte* from, size_t bytes, uint32_t seed) {
  const size_t head = std::min(bytes, bytes_to_alignment(to, 64));
  uint32_t state = copy_short(to, from, head, ~seed);
  to += head;
  from += head;
  bytes -= head;
  if (bytes >= 512) {
    const __m512i factors = fold_factors_512(kFold2048);
    __m512i sums[4];
    for (size_t i = 0; i < 4; ++i) {
      sums[i] = _mm512_loadu_si512(from + 64 * i);
      _mm512_stream_si512(reinterpret_cast<__m512i*>(to + 64 * i), sums[i]);
    }
    sums[0] = _mm512_xor_si512(sums[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(state))));
    for (bytes -= 256, from += 256, to += 256; bytes >= 256; bytes -= 256, from += 256, to += 256) {
      for (size_t i = 0; i < 4; ++i) {
        const __m512i next = _mm512_loadu_si512(from + 64 * i);
        _mm512_stream_si512(reinterpret_cast<__m512i*>(to + 64 * i), next);
        sums[i] = fold_512(sums[i], factors, next);
      }
    }
    __m512i sum = fold_512(sums[0], fold_factors_512(kFold1536), sums[3]);
    sum = fold_512(sums[1], fold_factors_512(kFold1024), sum);
    sum = fold_512(sums[2], fold_factors_512(kFold512), sum);
    alignas(64) __m128i lanes[4];
    _mm512_store_si512(lanes, sum);
    __m128i last = fold(lanes[0], fold_factors(kFold384), lanes[3]);
    last = fold(lanes[1], fold_factors(kFold256), last);
    last = fold(lanes[2], fold_factors(kFold128), last);
    state = remainder_of(last);
  }
  return ~copy_short(to, from, bytes, state);
}

bool machine_has_avx2_clmul() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.2");
}

bool machine_has_avx512_clmul() {
  return machine_has_avx2_clmul() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("vpclmulqdq");
}

#endif

}  // namespace

std::vector<CopyKernel> copy_kernels() {
  std::vector<CopyKernel> kernels{{"plain", copy_plain}};
#if VARVE_COPY_KERNELS_X86
  if (machine_has_avx2_clmul()) kernels.push_back({"avx2", copy_avx2});
  if (machine_has_avx512_clmul()) kernels.push_back({"avx512", copy_avx512});
#endif
  return kernels;
}

uint32_t copy_with_crc(std::byte* to, ByteSpan from, uint32_t seed) {
  static const CopyKernel best = copy_kernels().back();
  return best.copy_with_crc(to, from.data(), from.size(), seed);
}

void store_fence() {
#if VARVE_COPY_KERNELS_X86
  _mm_sfence();
#else
  std::atomic_thread_fence(std::memory_order_release);
#endif
}

}  // namespace varve

namespace varve {

namespace {

/// Set in the gate while helpers may enter; the bits below count those that are inside.
constexpr uint32_t kOpen = 1U << 31;
constexpr std::chrono::hours kLong(1);

}  // namespace

CopyTeam::~CopyTeam() {
  stopping_.store(true, std::memory_order_release);
  round_.fetch_add(1, std::memory_order_acq_rel);
  futex_wake_all(round_);
  for (Thread& helper : helpers_) helper.join();
}

void CopyTeam::start() {
  helpers_.reserve(threads_ - 1);
  // A thread inherits the mask: the program's signals must find the program's threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  while (helpers_.size() + 1 < threads_) {
    Result<Thread> helper = run_guarded([this] { return start_thread([this] { help(); }); });
    if (!helper.ok()) break;  // those that there are do it all
    helpers_.push_back(std::move(*helper));
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

bool CopyTeam::enter() {
  uint32_t gate = gate_.load(std::memory_order_acquire);
  while ((gate & kOpen) != 0) {
    if (gate_.compare_exchange_weak(gate, gate + 1, std::memory_order_acq_rel)) return true;
  }
  return false;
}

void CopyTeam::leave() {
  // The last to leave a closed round wakes the caller.
  if (gate_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  left_.fetch_add(1, std::memory_order_acq_rel);
  futex_wake_all(left_);
}

void CopyTeam::help() {
  uint32_t seen = 0;
  while (!stopping_.load(std::memory_order_acquire)) {
    const uint32_t round = round_.load(std::memory_order_acquire);
    if (round == seen) {
      futex_wait(round_, seen, kLong);
      continue;
    }
    seen = round;
    if (!enter()) continue;
    take_pieces();
    leave();
  }
}

void CopyTeam::take_pieces() {
  for (uint64_t piece = next_.fetch_add(1, std::memory_order_relaxed); piece < count_;
       piece = next_.fetch_add(1, std::memory_order_relaxed)) {
    (*work_)(piece);
  }
}

void CopyTeam::run(uint64_t count, const std::function<void(uint64_t)>& work) {
  work_ = &work;
  count_ = count;
  next_.store(0, std::memory_order_relaxed);
  const bool alone = threads_ == 1 || count < 2;
  if (!alone) {
    if (helpers_.empty()) start();
    gate_.store(kOpen, std::memory_order_release);  // nobody is inside: the round before ended so
    round_.fetch_add(1, std::memory_order_acq_rel);
    futex_wake_all(round_);
  }
  take_pieces();
  if (alone) return;
  // Closed: a helper that wakes up only now finds nothing to do, and need not be waited for.
  uint32_t seen = left_.load(std::memory_order_acquire);
  for (uint32_t inside = gate_.fetch_and(~kOpen, std::memory_order_acq_rel) & ~kOpen; inside != 0;
       inside = gate_.load(std::memory_order_acquire)) {
    futex_wait(left_, seen, kLong);
    seen = left_.load(std::memory_order_acquire);
  }
}

namespace {

/// Runs below this are gathered first: setting out on a copy past the caches costs as much as copying some hundred
/// bytes, and unaligned ends make the memory read what it overwrites.
constexpr uint64_t kDirectBytesMin = 4_KiB;
/// What is gathered stays in the innermost cache until it is copied on.
constexpr size_t kGatheredBytes = 16_KiB;

/// Writes an image's bytes one after another.
class ImageWriter {
 public:
  explicit ImageWriter(std::byte* to) : to_(to) {}

  void append(ByteSpan bytes) {
    if (bytes.size() >= kDirectBytesMin) {
      flush();
      crc_ = copy_with_crc(to_, bytes, crc_);
      to_ += bytes.size();
      return;
    }
    while (!bytes.empty()) {
      const MutableByteSpan room = room_for(bytes.size());
      std::memcpy(room.data(), bytes.data(), room.size());
      bytes = bytes.subspan(room.size());
    }
  }

  void append_region(const VariableMemory& memory, uint64_t dense_offset, uint64_t bytes) {
    if (memory.region.dense()) return append({memory.base + memory.region.first_byte + dense_offset, bytes});
    if (memory.region.row_bytes >= kDirectBytesMin) return append_rows(memory, dense_offset, bytes);
    while (bytes > 0) {
      const MutableByteSpan room = room_for(bytes);
      gather(memory.base, memory.region, dense_offset, room);
      dense_offset += room.size();
      bytes -= room.size();
    }
  }

  void append_zeros(uint64_t bytes) {
    while (bytes > 0) {
      const MutableByteSpan room = room_for(bytes);
      std::fill(room.begin(), room.end(), std::byte{0});
      bytes -= room.size();
    }
  }

  uint32_t finish() {
    flush();
    store_fence();
    return crc_;
  }

 private:
  void append_rows(const VariableMemory& memory, uint64_t dense_offset, uint64_t bytes) {
    while (bytes > 0) {
      uint64_t run_bytes = 0;
      const uint64_t at = memory.region.locate(dense_offset, run_bytes);
      run_bytes = std::min(run_bytes, bytes);
      append({memory.base + at, run_bytes});
      dense_offset += run_bytes;
      bytes -= run_bytes;
    }
  }

  /// The next bytes of the gathered ones, at least 1 and at most `bytes`.
  MutableByteSpan room_for(uint64_t bytes) {
    if (gathered_bytes_ == kGatheredBytes) flush();
    const size_t room = std::min<uint64_t>(bytes, kGatheredBytes - gathered_bytes_);
    const MutableByteSpan next = MutableByteSpan(gathered_).subspan(gathered_bytes_, room);
    gathered_bytes_ += room;
    return next;
  }

  void flush() {
    crc_ = copy_with_crc(to_, ByteSpan(gathered_).first(gathered_bytes_), crc_);
    to_ += gathered_bytes_;
    gathered_bytes_ = 0;
  }

  std::byte* to_;
  uint32_t crc_ = 0;
  size_t gathered_bytes_ = 0;
  /// Not initialised: that would take as long as a small copy.
  alignas(64) std::byte gathered_[kGatheredBytes];
};

}  // namespace

uint32_t copy_image(const VariableTable& variables, uint64_t offset, uint64_t bytes, std::byte* to) {
  const ImageTable& image = variables.image();
  const uint64_t end = offset + bytes;
  ImageWriter writer(to);
  if (offset < image.header_bytes) {
    const uint64_t header = std::min(bytes, image.header_bytes - offset);
    writer.append(ByteSpan(variables.image_header()).subspan(offset, header));
    offset += header;
  }
  // The first variable that ends behind the offset.
  auto after = [](uint64_t at, const ImageVariable& variable) { return at < variable.offset + variable.bytes; };
  auto variable = std::upper_bound(image.variables.begin(), image.variables.end(), offset, after);
  for (; offset < end && variable != image.variables.end(); ++variable) {
    if (offset < variable->offset) {
      const uint64_t padding = std::min(end, variable->offset) - offset;
      writer.append_zeros(padding);
      offset += padding;
    }
    const uint64_t from = offset - std::min(offset, variable->offset);
    const uint64_t part = offset < end ? std::min(end - offset, variable->bytes - from) : 0;
    const auto index = static_cast<size_t>(variable - image.variables.begin());
    writer.append_region(variables.memory()[index], from, part);
    offset += part;
  }
  return writer.finish();
}

}  // namespace varve
