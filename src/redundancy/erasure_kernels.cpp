#include "redundancy/erasure_kernels.h"

#include <algorithm>
#include <cassert>

#include "redundancy/galois_field.h"

#ifdef VARVE_HAVE_ISAL_ERASURE
#include <isa-l/erasure_code.h>
#endif

namespace varve {

namespace {
/// All blocks are gone through in pieces of this size, so that a target stays in the first cache while the sources are
/// added to it, and isa-l's passes over the sources (one for every few targets) find them in the second.
constexpr size_t kPieceBytes = 16_KiB;

void add(std::byte* to, const std::byte* from, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) to[i] ^= from[i];
}

/// Three at a time: a byte of the target is loaded and stored less often.
void add_three(std::byte* __restrict to, const std::byte* a, const std::byte* b, const std::byte* c, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) to[i] ^= a[i] ^ b[i] ^ c[i];
}

void add_product(std::byte* to, const std::byte* from, size_t bytes, uint8_t factor) {
  if (factor == 0) return;
  if (factor == 1) return add(to, from, bytes);
  const std::array<uint8_t, 256>& products = galois_products(factor);
  for (size_t i = 0; i < bytes; ++i) to[i] ^= std::byte{products[static_cast<uint8_t>(from[i])]};
}

void sum_piece(std::span<const ByteSpan> sources, std::byte* to, size_t at, size_t bytes) {
  std::memcpy(to, sources[0].data() + at, bytes);
  size_t next = 1;
  for (; next + 3 <= sources.size(); next += 3) {
    add_three(to, sources[next].data() + at, sources[next + 1].data() + at, sources[next + 2].data() + at, bytes);
  }
  for (; next < sources.size(); ++next) add(to, sources[next].data() + at, bytes);
}

/// isa-l gives blocks that are shorter than its vectors to a plain kernel, which calls its gf_mul() by that name.
/// OpenSSL has another function of this name, and where it is linked statically, isa-l's shared library finds that one.
/// So it gets no such blocks; our own kernel is as good for them.
constexpr size_t kIsalBytesMin = 64;

#ifdef VARVE_HAVE_ISAL_ERASURE
constexpr bool kHaveIsal = true;

std::vector<uint8_t> make_isal_tables(std::vector<uint8_t> coefficients, uint32_t source_count) {
  constexpr size_t kTableBytes = 32;
  std::vector<uint8_t> tables(kTableBytes * coefficients.size());
  ::ec_init_tables(static_cast<int>(source_count), static_cast<int>(coefficients.size() / source_count),
                   coefficients.data(), tables.data());
  return tables;
}

void isal_piece(const std::vector<uint8_t>& tables, std::span<const ByteSpan> sources,
                std::span<const MutableByteSpan> targets, size_t at, size_t bytes) {
  std::array<unsigned char*, kErasurePartsMax> from{}, to{};
  // isa-l's parameters lack a const: it writes neither to the sources nor to the tables.
  for (size_t i = 0; i < sources.size(); ++i) {
    from[i] = const_cast<unsigned char*>(reinterpret_cast<const unsigned char*>(sources[i].data() + at));
  }
  for (size_t i = 0; i < targets.size(); ++i) to[i] = reinterpret_cast<unsigned char*>(targets[i].data() + at);
  ::ec_encode_data(static_cast<int>(bytes), static_cast<int>(sources.size()), static_cast<int>(targets.size()),
                   const_cast<unsigned char*>(tables.data()), from.data(), to.data());
}
#else
constexpr bool kHaveIsal = false;

std::vector<uint8_t> make_isal_tables(const std::vector<uint8_t>&, uint32_t) { return {}; }
void isal_piece(const std::vector<uint8_t>&, std::span<const ByteSpan>, std::span<const MutableByteSpan>, size_t,
                size_t) {}
#endif
}  // namespace

BlockMatrix::BlockMatrix(std::vector<uint8_t> coefficients, uint32_t source_count, ErasureKernel kernel)
    : coefficients_(std::move(coefficients)), source_count_(source_count) {
  const bool ones = std::all_of(coefficients_.begin(), coefficients_.end(), [](uint8_t each) { return each == 1; });
  if (ones) {
    method_ = Method::sum;
  } else if (kHaveIsal && kernel == ErasureKernel::fast) {
    method_ = Method::isal;
    isal_tables_ = make_isal_tables(coefficients_, source_count_);
  } else {
    method_ = Method::plain;
  }
}

void BlockMatrix::apply(std::span<const ByteSpan> sources, std::span<const MutableByteSpan> targets) const {
  assert(sources.size() == source_count_ && targets.size() == target_count());
  const size_t block_bytes = sources.empty() ? 0 : sources[0].size();
  for (size_t at = 0; at < block_bytes; at += kPieceBytes) {
    const size_t bytes = std::min(kPieceBytes, block_bytes - at);
    if (method_ == Method::isal && bytes >= kIsalBytesMin) {
      isal_piece(isal_tables_, sources, targets, at, bytes);
      continue;
    }
    for (size_t row = 0; row < targets.size(); ++row) {
      std::byte* const to = targets[row].data() + at;
      if (method_ == Method::sum) {
        sum_piece(sources, to, at, bytes);
        continue;
      }
      std::fill_n(to, bytes, std::byte{0});
      for (size_t i = 0; i < sources.size(); ++i) {
        add_product(to, sources[i].data() + at, bytes, coefficients_[row * source_count_ + i]);
      }
    }
  }
}

}  // namespace varve
