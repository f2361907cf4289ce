#include "redundancy/erasure_code.h"

#include <fmt/format.h>
#include <isa-l/erasure_code.h>

#include <algorithm>
#include <cassert>

namespace varve {

namespace {
constexpr uint32_t kPolynomial = 0x11d;

/// Bit by bit, as the definition says.
constexpr uint8_t slow_product(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (; b != 0; b >>= 1) {
    if (b & 1) product ^= a;
    a = (a << 1) ^ (a & 0x80 ? kPolynomial : 0);
  }
  return static_cast<uint8_t>(product);
}

using ProductTable = std::array<std::array<uint8_t, 256>, 256>;

const ProductTable& product_table() {
  static const ProductTable table = [] {
    ProductTable products;
    for (uint32_t a = 0; a < 256; ++a) {
      for (uint32_t b = 0; b < 256; ++b) products[a][b] = slow_product(a, b);
    }
    return products;
  }();
  return table;
}

/// A matrix, and what the same steps make of the identity.
struct MatrixPair {
  std::vector<uint8_t> left, right;
  uint32_t size;

  void swap_rows(uint32_t a, uint32_t b) {
    for (auto* matrix : {&left, &right}) {
      for (uint32_t i = 0; i < size; ++i) std::swap((*matrix)[a * size + i], (*matrix)[b * size + i]);
    }
  }
  void scale_row(uint32_t row, uint8_t factor) {
    for (auto* matrix : {&left, &right}) {
      for (uint32_t i = 0; i < size; ++i) (*matrix)[row * size + i] = galois_product((*matrix)[row * size + i], factor);
    }
  }
  void add_row(uint32_t to, uint32_t from, uint8_t factor) {
    for (auto* matrix : {&left, &right}) {
      for (uint32_t i = 0; i < size; ++i) {
        (*matrix)[to * size + i] ^= galois_product((*matrix)[from * size + i], factor);
      }
    }
  }
};
}  // namespace

uint8_t galois_product(uint8_t a, uint8_t b) { return product_table()[a][b]; }

uint8_t galois_inverse(uint8_t a) {
  const std::array<uint8_t, 256>& products = product_table()[a];
  return static_cast<uint8_t>(std::find(products.begin(), products.end(), 1) - products.begin());
}

const std::array<uint8_t, 256>& galois_products(uint8_t a) { return product_table()[a]; }

// Gauss and Jordan: what makes the matrix the identity makes the identity its inverse.
Result<std::vector<uint8_t>> galois_inverse_matrix(std::span<const uint8_t> matrix, uint32_t size) {
  MatrixPair pair{{matrix.begin(), matrix.end()}, std::vector<uint8_t>(matrix.size()), size};
  for (uint32_t i = 0; i < size; ++i) pair.right[i * size + i] = 1;
  for (uint32_t column = 0; column < size; ++column) {
    uint32_t pivot = column;
    while (pivot < size && pair.left[pivot * size + column] == 0) ++pivot;
    if (pivot == size) return Status::internal("a matrix of an erasure code has no inverse");
    if (pivot != column) pair.swap_rows(column, pivot);
    pair.scale_row(column, galois_inverse(pair.left[column * size + column]));
    for (uint32_t row = 0; row < size; ++row) {
      if (row != column) pair.add_row(row, column, pair.left[row * size + column]);
    }
  }
  return std::move(pair.right);
}

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
/// So it gets no such blocks; tables are as good for them.
constexpr size_t kIsalBytesMin = 64;

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
}  // namespace

BlockMatrix::BlockMatrix(std::vector<uint8_t> coefficients, uint32_t source_count)
    : coefficients_(std::move(coefficients)), source_count_(source_count) {
  const bool ones = std::all_of(coefficients_.begin(), coefficients_.end(), [](uint8_t each) { return each == 1; });
  if (!ones) isal_tables_ = make_isal_tables(coefficients_, source_count_);
}

void BlockMatrix::apply(std::span<const ByteSpan> sources, std::span<const MutableByteSpan> targets) const {
  assert(sources.size() == source_count_ && targets.size() == target_count());
  const size_t block_bytes = sources.empty() ? 0 : sources[0].size();
  for (size_t at = 0; at < block_bytes; at += kPieceBytes) {
    const size_t bytes = std::min(kPieceBytes, block_bytes - at);
    const bool sums = isal_tables_.empty();
    if (!sums && bytes >= kIsalBytesMin) {
      isal_piece(isal_tables_, sources, targets, at, bytes);
      continue;
    }
    for (size_t row = 0; row < targets.size(); ++row) {
      std::byte* const to = targets[row].data() + at;
      if (sums) {
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

namespace {
/// FORMAT.md, "Redundancy files": the coefficient of data part `column` in part `row`.
uint8_t generator(uint32_t row, uint32_t column, uint32_t data_parts, uint32_t parity_parts) {
  if (row < data_parts) return row == column ? 1 : 0;
  return parity_parts == 1 ? 1 : galois_inverse(static_cast<uint8_t>(row ^ column));
}

std::vector<uint8_t> parity_rows(uint32_t data_parts, uint32_t parity_parts) {
  std::vector<uint8_t> rows;
  for (uint32_t row = data_parts; row < data_parts + parity_parts; ++row) {
    for (uint32_t column = 0; column < data_parts; ++column) {
      rows.push_back(generator(row, column, data_parts, parity_parts));
    }
  }
  return rows;
}

Status check_blocks(std::span<const ByteSpan> sources, std::span<const MutableByteSpan> targets,
                    const BlockMatrix& matrix) {
  const auto as_long = [&](const auto& block) { return block.size() == sources[0].size(); };
  const bool fits = sources.size() == matrix.source_count() && targets.size() == matrix.target_count() &&
                    std::all_of(sources.begin(), sources.end(), as_long) &&
                    std::all_of(targets.begin(), targets.end(), as_long);
  return fits ? Status() : Status::internal("blocks of an erasure code differ in number or length");
}

bool are_different_parts(std::vector<uint32_t> parts, uint32_t part_count) {
  std::sort(parts.begin(), parts.end());
  return std::adjacent_find(parts.begin(), parts.end()) == parts.end() && (parts.empty() || parts.back() < part_count);
}
}  // namespace

Result<ErasureCode> ErasureCode::create(uint32_t data_parts, uint32_t parity_parts) {
  if (data_parts == 0 || parity_parts == 0) {
    return Status::invalid_argument("an erasure code needs at least one data part and one parity part",
                                    fmt::format("{}+{}", data_parts, parity_parts));
  }
  if (uint64_t{data_parts} + parity_parts > kErasurePartsMax) {
    return Status::invalid_argument(fmt::format("an erasure code has at most {} parts", kErasurePartsMax),
                                    fmt::format("{}+{}", data_parts, parity_parts), "take smaller groups");
  }
  return ErasureCode(data_parts, parity_parts);
}

ErasureCode::ErasureCode(uint32_t data_parts, uint32_t parity_parts)
    : data_parts_(data_parts),
      parity_parts_(parity_parts),
      encoder_(parity_rows(data_parts, parity_parts), data_parts) {}

std::vector<uint8_t> ErasureCode::generator_row(uint32_t part) const {
  std::vector<uint8_t> row(data_parts_);
  for (uint32_t column = 0; column < data_parts_; ++column) {
    row[column] = generator(part, column, data_parts_, parity_parts_);
  }
  return row;
}

Status ErasureCode::encode(std::span<const ByteSpan> data, std::span<const MutableByteSpan> parity) const {
  VARVE_TRY(check_blocks(data, parity, encoder_));
  encoder_.apply(data, parity);
  return {};
}

Status ErasureCode::Repair::apply(std::span<const ByteSpan> sources, std::span<const MutableByteSpan> targets) const {
  VARVE_TRY(check_blocks(sources, targets, matrix_));
  matrix_.apply(sources, targets);
  return {};
}

// The sources are their rows of the generator matrix times the data. So the data are the inverse of these rows times
// the sources, and a target is its own row times that.
Result<ErasureCode::Repair> ErasureCode::repair(std::vector<uint32_t> sources, std::vector<uint32_t> targets) const {
  if (sources.size() != data_parts_ || targets.empty() || !are_different_parts(sources, parts()) ||
      !are_different_parts(targets, parts())) {
    return Status::invalid_argument(fmt::format("a repair takes {} different parts, and makes others", data_parts_));
  }
  std::vector<uint8_t> rows;
  for (uint32_t source : sources) {
    const std::vector<uint8_t> row = generator_row(source);
    rows.insert(rows.end(), row.begin(), row.end());
  }
  VARVE_ASSIGN(const std::vector<uint8_t> inverse, galois_inverse_matrix(rows, data_parts_));
  std::vector<uint8_t> coefficients;
  for (uint32_t target : targets) {
    const std::vector<uint8_t> row = generator_row(target);
    for (uint32_t column = 0; column < data_parts_; ++column) {
      uint8_t sum = 0;
      for (uint32_t i = 0; i < data_parts_; ++i) sum ^= galois_product(row[i], inverse[i * data_parts_ + column]);
      coefficients.push_back(sum);
    }
  }
  BlockMatrix matrix(std::move(coefficients), data_parts_);
  return Repair(std::move(sources), std::move(targets), std::move(matrix));
}

Status ErasureCode::rebuild(const std::vector<bool>& present, std::span<const MutableByteSpan> blocks) const {
  if (present.size() != parts() || blocks.size() != parts()) {
    return Status::internal("a rebuild needs all parts of an erasure code, or room for them");
  }
  std::vector<uint32_t> sources, targets;
  for (uint32_t part = 0; part < parts(); ++part) {
    if (!present[part]) targets.push_back(part);
    if (present[part] && sources.size() < data_parts_) sources.push_back(part);
  }
  if (targets.empty()) return {};
  if (sources.size() < data_parts_) {
    return Status::invalid_argument(
        fmt::format("{} parts are lost, and {} can be rebuilt", targets.size(), parity_parts_));
  }
  std::vector<ByteSpan> from;
  std::vector<MutableByteSpan> to;
  from.reserve(sources.size());
  to.reserve(targets.size());
  for (uint32_t source : sources) from.emplace_back(blocks[source]);
  for (uint32_t target : targets) to.push_back(blocks[target]);
  VARVE_ASSIGN(const Repair made, repair(std::move(sources), std::move(targets)));
  return made.apply(from, to);
}

}  // namespace varve
